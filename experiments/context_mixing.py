"""How well does context mixing predict text? ``python -m experiments.context_mixing FILE ...``.

Of each file the last tenth of its bytes is held out; of tinyshakespeare as much as nanoGPT does. Nats a byte, with the
seconds of the processor that each took, go to ``experiments/results/context_mixing/``. What is adaptive goes on
learning in the held-out part; ``whole`` is its code of the file from nothing, in nats a byte.

Compressors are there as well, zpaq where the package of that name is installed: a held-out part costs what the whole
file takes more than its first part. zpaq chooses its tables by the size of what it is given, so where the two sizes
are on different sides of 2**20 bytes that difference is not the cost of the held-out part alone, and ``whole`` is to be
compared. The design was chosen inside the first nine tenths of tinyshakespeare, on modules of Python's library and on
the German side of multi30k.
"""

import lzma
import math
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from seqmodels import ContextMixing, NGram, SequenceModel
from seqmodels.evaluation.comparison.provenance import stamped

RESULTS = Path("experiments/results/context_mixing")
NANOGPT = {1_115_394: 111_540}  # bytes of a file -> of its held-out part
MODELS: dict[str, Callable[[], SequenceModel]] = {
    "context mixing, adaptive": lambda: ContextMixing(length="given"),
    "context mixing, adaptive, 64 MiB a context": lambda: ContextMixing(length="given", n_buckets=1 << 21),
    "context mixing, static": lambda: ContextMixing(length="given", adaptive=False),
    "6-gram, Kneser-Ney": lambda: NGram(6, length="given"),
}


def of_model(name: str, train: str, test: str) -> dict[str, object]:
    began = time.process_time()
    model = MODELS[name]().fit([train])
    fitted = time.process_time()
    score = model.score([test])
    return {
        "model": name,
        "memory": model.memory_,
        "nats_per_byte": round(-score, 4),
        "whole": _whole(model, score, train, test),
        "fit_cpu_seconds": round(fitted - began, 1),
        "score_cpu_seconds": round(time.process_time() - fitted, 1),
    }


def _whole(model: SequenceModel, score: float, train: str, test: str) -> float:
    if model.memory_ == "static":
        return math.nan
    n_train, n_test = len(train.encode()), len(test.encode())
    return round(-(model.history_["log_prob"].iloc[-1] * n_train + score * n_test) / (n_train + n_test), 4)


def of_compressor(name: str, size: Callable[[bytes], int], train: bytes, test: bytes) -> dict[str, object]:
    began = time.process_time()
    size_of_train = size(train)
    fitted = time.process_time()
    nats = (size(train + test) - size_of_train) * 8 * math.log(2)
    return {
        "model": name,
        "memory": "adaptive",
        "nats_per_byte": round(nats / len(test), 4),
        "whole": round((size_of_train * 8 * math.log(2) + nats) / (len(train) + len(test)), 4),
        "fit_cpu_seconds": round(fitted - began, 1),
        "score_cpu_seconds": round(time.process_time() - fitted, 1),
    }


def compressors() -> dict[str, Callable[[bytes], int]]:
    preset = 9 | lzma.PRESET_EXTREME
    sizes: dict[str, Callable[[bytes], int]] = {"xz -9e": lambda b: len(lzma.compress(b, preset=preset))}
    if find_spec("zpaq") is not None:
        import zpaq

        sizes["zpaq -m5"] = lambda b: len(zpaq.compress(b, 5, threads=1))
    return sizes


def split(text: str) -> tuple[str, str]:
    """The first part, and the last tenth of the bytes; of tinyshakespeare as others split it."""
    whole = text.encode()
    at = len(whole) - NANOGPT.get(len(whole), len(whole) // 10)
    while whole[at] & 0xC0 == 0x80:  # not within a character
        at += 1
    return whole[:at].decode(), whole[at:].decode()


def main() -> None:
    ContextMixing().fit(["what is compiled is compiled now"]).score(["in a second or in thirty"])
    rows = []
    for path in sys.argv[1:]:
        train, test = split(Path(path).read_bytes().decode())
        about = {"file": Path(path).name, "bytes": len((train + test).encode())}
        found = [of_model(name, train, test) for name in MODELS]
        found += [of_compressor(name, size, train.encode(), test.encode()) for name, size in compressors().items()]
        rows += [about | each for each in found]
        print(pd.DataFrame(found).to_string(), flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    stamped(pd.DataFrame(rows)).to_csv(RESULTS / "text.csv", index=False)


if __name__ == "__main__":
    main()
