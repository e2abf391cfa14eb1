"""Peak memory and seconds of fitting and scoring data on disk, against the size of the file.

    python benchmarks/large_data.py [--sizes 0.25 1 5 20] [--texts 20 200] [--folders 200] [--tokens 20 100]
        [--tables 1 4] [--tiny 1e5] [--cases hmm lstm ...]

Each case is a process of its own, on one thread. ``vectors.npy`` is sparse: a file of 20 GB takes a few megabytes of
disk, but is read in full. Texts are words of a given text, or of the manual that comes with Python, drawn anew by a
word trigram; a folder has them in files of 100 kB. Tokens are 100,000, half of their stretches of eight repeated from
earlier ones. Tables are Parquet, of eight columns. Megabytes are 2^20 bytes; ``peak`` and ``imported`` are resident,
the most of the process and what it held after its imports; seconds are of the processor.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parent / "results" / "large_data.csv"
N_FEATURES = 64
N_BLOCKS, BLOCK = 64, 2000  # of frames that are not zero
SECONDS_BETWEEN_LOOKS = 0.01  # at the memory of a process
BYTES_OF_FILE = 100_000
N_TOKENS = 100_000
N_CHAINS = 2000  # of words, drawn side by side
COLUMNS = ("case", "size", "unit", "seconds", "peak", "imported", "anonymous", "figure")


def main() -> None:
    """Run the cases and write the table, a row at a time."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=float, nargs="*", default=[0.25, 1, 5, 20], help="GB of vectors")
    parser.add_argument("--texts", type=float, nargs="*", default=[20, 200], help="MB of text")
    parser.add_argument("--folders", type=float, nargs="*", default=[200], help="MB of text in files of 100 kB")
    parser.add_argument("--tokens", type=float, nargs="*", default=[20, 100], help="million tokens")
    parser.add_argument("--tables", type=float, nargs="*", default=[1, 4], help="million rows of a Parquet file")
    parser.add_argument(
        "--tiny", type=float, nargs="*", default=[1e6], help="sequences of 5 of 50, or 100,000, symbols"
    )
    parser.add_argument("--cases", nargs="*", default=list(dict.fromkeys(CASES)))
    parser.add_argument("--source", help="a text whose words are drawn")
    parser.add_argument("--out", default=str(RESULTS))
    parser.add_argument("--run", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        print(json.dumps(run(json.loads(arguments.run))))
        return
    with tempfile.TemporaryDirectory(prefix="large-data-") as folder:
        cases = [(name, size, "GB") for size in arguments.sizes for name in VECTORS]
        cases += [(name, size, "MB") for size in arguments.texts for name in TEXTS]
        cases += [(name, size, "MB in files") for size in arguments.folders for name in FOLDERS]
        cases += [(name, size, "million tokens") for size in arguments.tokens for name in TOKENS]
        cases += [(name, size, "million rows") for size in arguments.tables for name in TABLES]
        cases += [(name, size, "sequences") for size in arguments.tiny for name in TINY]
        for name, size, unit in cases:
            if name in arguments.cases:
                path = "" if unit == "sequences" else made(Path(folder), size, unit, arguments.source)
                row = in_process({"case": name, "size": size, "unit": unit, "path": str(path)})
                print(row, flush=True)
                add_row(Path(arguments.out), row)


def made(folder: Path, size: float, unit: str, source: str | None) -> Path:
    """The file, or folder of files, of a case, written unless it is there."""
    path = folder / f"{size}{ENDINGS[unit]}"
    if not path.exists():
        if unit == "GB":
            write_vectors(path, size)
        elif unit == "MB":
            write_text(path, size, source)
        elif unit == "MB in files":
            write_texts(path, made(folder, size, "MB", source))
        elif unit == "million tokens":
            write_tokens(path, int(size * 1e6))
        else:
            write_table(path, int(size * 1e6))
    return path


def in_process(case: dict[str, Any]) -> dict[str, Any]:
    """The row of a case, from a process of its own.

    Its high-water mark is read all the while, as ``compare`` sets it back to measure each model.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--run", json.dumps(case)]
    peak = 0.0
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=errors, text=True)
        while process.poll() is None:
            peak = max(peak, high_water_mark(process.pid))
            time.sleep(SECONDS_BETWEEN_LOOKS)
        out.seek(0), errors.seek(0)
        if process.returncode:
            raise RuntimeError(f"{case} failed:\n{errors.read()}")
        row: dict[str, Any] = json.loads(out.read().splitlines()[-1])
    return {**row, "peak": max(row["peak"], round(peak))}


def high_water_mark(pid: int) -> float:
    """Megabytes of a process; 0 if it has ended."""
    try:
        return resident("VmHWM", str(pid))
    except (FileNotFoundError, StopIteration):
        return 0.0


def add_row(path: Path, row: dict[str, Any]) -> None:
    """In the place of an earlier one of the same case and size."""
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    kept = [r for r in rows if (r["case"], float(r["size"]), r["unit"]) != (row["case"], row["size"], row["unit"])]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, row])


# -- one case, in its process --------------------------------------------------------------------------------


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Fit or score, and what it took."""
    import pandas  # noqa: F401 - what every fit imports is not of the data

    import seqmodels as sm

    warnings.simplefilter("ignore")  # of the zeros of the sparse file
    sm.LSTM(d_model=4, max_steps=1).fit([np.arange(50) % 3])
    sm.HMM(2, algorithm="stepwise", max_iter=1).fit([np.arange(50) % 3])
    imported = resident("VmRSS")
    began = time.process_time()
    figure = CASES[case["case"]](sm, case)
    return {
        **{name: case[name] for name in ("case", "size", "unit")},
        "seconds": round(time.process_time() - began, 1),
        "peak": round(resident("VmHWM")),
        "imported": round(imported),
        "anonymous": round(resident("RssAnon")),
        "figure": figure,
    }


def resident(field: str, pid: str = "self") -> float:
    """Megabytes, of a line such as ``VmHWM:  120340 kB``."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


def stepwise(sm: Any, case: dict[str, Any]) -> float:
    """One epoch of stepwise EM."""
    model = sm.HMM(8, observation=sm.GaussianMixture(1), algorithm="stepwise", max_iter=1)
    return float(model.fit(sm.data.on_disk(case["path"])).history_["log_prob"].iloc[-1])


def score(sm: Any, case: dict[str, Any]) -> float:
    """The score of an HMM of eight states that knows the head of the file."""
    x = sm.data.on_disk(case["path"])
    model = sm.HMM(8, observation=sm.GaussianMixture(1), max_iter=2, n_init=1).fit([np.array(x[0][:20_000])])
    return float(model.score(x))


def lstm(sm: Any, case: dict[str, Any]) -> float:
    """Three steps of training."""
    model = sm.LSTM(d_model=64, max_steps=3, observation=sm.GaussianMixture(1)).fit(sm.data.on_disk(case["path"]))
    return float(model.history_["log_prob"].iloc[-1])


def transformer(sm: Any, case: dict[str, Any]) -> float:
    """Three steps of training."""
    network = sm.Transformer(d_model=64, context=128, max_steps=3, observation=sm.GaussianMixture(1))
    model = network.fit(sm.data.on_disk(case["path"]))
    return float(model.history_["log_prob"].iloc[-1])


def network_score(sm: Any, case: dict[str, Any], name: str) -> float:
    """The score of a network that knows the head of the file."""
    x = sm.data.on_disk(case["path"])
    options = {"d_model": 64, "max_steps": 20, "observation": sm.GaussianMixture(1)}
    model = sm.LSTM(**options) if name == "lstm" else sm.Transformer(**options, context=128)
    return float(model.fit([np.array(x[0][:20_000])], validation=None).score(x))


def compare(sm: Any, case: dict[str, Any]) -> float:
    """The difference on the last tenth of two models fitted to the rest: stepwise EM, and three steps of an LSTM."""
    x = sm.data.on_disk(case["path"])
    train, test = x.split(0.1)
    observation = sm.GaussianMixture(1) if x.kind == "vectors" else "auto"
    models = {
        "hmm": sm.HMM(8, observation=observation, algorithm="stepwise", max_iter=1),
        "lstm": sm.LSTM(d_model=64, max_steps=3, observation=observation),
    }
    return float(sm.compare(models, train, test=test).frame.set_index("model")["difference"]["lstm"])


def ngram(sm: Any, case: dict[str, Any]) -> float:
    """All 5-grams of bytes."""
    return float(sm.NGram(5).fit(sm.data.on_disk(case["path"])).history_["log_prob"].iloc[-1])


def ngram_score(sm: Any, case: dict[str, Any]) -> float:
    """All 5-grams of bytes, and the score of the whole text."""
    x = sm.data.on_disk(case["path"])
    return float(sm.NGram(5).fit(x).score(x))


def compare_ngrams(sm: Any, case: dict[str, Any]) -> float:
    """What 5-grams gain over 3-grams on the last tenth, each counted on the rest."""
    train, test = sm.data.on_disk(case["path"]).split(0.1)
    frame = sm.compare({"3": sm.NGram(3), "5": sm.NGram(5)}, train, test=test).frame
    return float(frame.set_index("model")["difference"]["5"])


def tiny(sm: Any, case: dict[str, Any], name: str, n_symbols: int) -> float:
    """How many times longer fit and score take of sequences of five symbols than of the same symbols in long ones."""
    models = {
        "hmm": lambda: sm.HMM(8, max_iter=10, n_init=1),
        "ngram": lambda: sm.NGram(3),
        "lstm": lambda: sm.LSTM(d_model=64, max_steps=50),
    }
    symbols = np.random.default_rng(0).integers(0, n_symbols, int(case["size"]) * 5)
    seconds = []
    models[name]().fit(list(symbols[:150_000].reshape(-1, 5000)))  # what is loaded and compiled once is not counted
    for length in (5, 5000):
        x = list(symbols.reshape(-1, length))
        began = time.process_time()
        models[name]().fit(x).score(x)
        seconds.append(time.process_time() - began)
    return round(seconds[0] / seconds[1], 2)


def folder_hmm(sm: Any, case: dict[str, Any]) -> float:
    """One epoch of stepwise EM of all files, and the score of all."""
    x = sm.data.on_disk(case["path"])
    return float(sm.HMM(8, algorithm="stepwise", max_iter=1).fit(x).score(x))


def tokens_ngram(sm: Any, case: dict[str, Any]) -> float:
    """5-grams, of which the rarest are left out, and the score of the file."""
    x = sm.data.on_disk(case["path"], dtype="uint32")
    return float(sm.NGram(5).fit(x).score(x))


def tokens_lstm(sm: Any, case: dict[str, Any]) -> float:
    """Three steps of training."""
    x = sm.data.on_disk(case["path"], dtype="uint32")
    return float(sm.LSTM(d_model=64, max_steps=3).fit(x).history_["log_prob"].iloc[-1])


VECTORS = {
    "hmm stepwise": stepwise,
    "hmm score": score,
    "lstm": lstm,
    "lstm score": lambda sm, case: network_score(sm, case, "lstm"),
    "transformer": transformer,
    "transformer score": lambda sm, case: network_score(sm, case, "transformer"),
    "compare": compare,
}
TEXTS = {"ngram fit": ngram, "ngram fit and score": ngram_score, "compare ngrams": compare_ngrams}
FOLDERS = {"folder ngram": ngram_score, "folder hmm": folder_hmm, "folder compare ngrams": compare_ngrams}
TOKENS = {"tokens ngram": tokens_ngram, "tokens lstm": tokens_lstm}
TABLES = {"table hmm stepwise": stepwise}
TINY = {
    f"{what} {name}": (lambda sm, case, name=name, n_symbols=n_symbols: tiny(sm, case, name, n_symbols))
    for what, n_symbols in (("tiny", 50), ("wide", 100_000))
    for name in ("hmm", "ngram", "lstm")
}
CASES = {**VECTORS, **TEXTS, **FOLDERS, **TOKENS, **TABLES, **TINY}
ENDINGS = {"GB": ".npy", "MB": ".txt", "MB in files": "", "million tokens": ".bin", "million rows": ".parquet"}


# -- files ---------------------------------------------------------------------------------------------------


def write_vectors(path: Path, gigabytes: float) -> None:
    """A sparse float32 file with some blocks of frames from all over it."""
    n = int(gigabytes * 2**30) // (4 * N_FEATURES)
    frames = np.lib.format.open_memmap(path, "w+", np.float32, (n, N_FEATURES))
    rng = np.random.default_rng(0)
    for t in range(0, n, n // N_BLOCKS):
        block = frames[t : t + BLOCK]
        means = np.repeat(rng.normal(size=(len(block) // 20 + 1, N_FEATURES)), 20, axis=0)[: len(block)]
        block[:] = means + 0.3 * rng.normal(size=block.shape)
    frames.flush()


def write_texts(folder: Path, source: Path) -> None:
    """A text in files of ``BYTES_OF_FILE``."""
    folder.mkdir()
    with source.open("rb") as file:
        for i, part in enumerate(iter(lambda: file.read(BYTES_OF_FILE), b"")):
            (folder / f"{i:06d}.txt").write_bytes(part.decode(errors="ignore").encode())


def write_tokens(path: Path, n: int) -> None:
    """Ranks by Zipf's law; half of the stretches of eight are earlier ones, most often early ones."""
    weights = 1 / (np.arange(N_TOKENS) + 2.7)
    below, rng = np.cumsum(weights / weights.sum()), np.random.default_rng(0)
    tokens = np.memmap(path, np.uint32, "w+", shape=(n,))
    for t in range(0, n, 1 << 20):
        block = np.searchsorted(below, rng.random(min(1 << 20, n - t))).clip(max=N_TOKENS - 1)
        if t:
            stretches = block[: len(block) // 8 * 8].reshape(-1, 8)
            again = rng.random(len(stretches)) < 0.5
            starts = (rng.random(again.sum()) ** 4 * (t - 8)).astype(np.int64)
            stretches[again] = tokens[starts[:, None] + np.arange(8)]
        tokens[t : t + len(block)] = block
    tokens.flush()


def write_table(path: Path, n: int) -> None:
    """Eight columns of float64; needs pyarrow."""
    import pyarrow as pa
    from pyarrow import parquet

    rng, schema = np.random.default_rng(0), pa.schema([(f"x{i}", pa.float64()) for i in range(8)])
    with parquet.ParquetWriter(path, schema) as writer:
        for t in range(0, n, 1 << 16):
            means = np.repeat(rng.normal(size=((1 << 16) // 32, 8)), 32, axis=0)[: n - t]
            values = means + 0.3 * rng.normal(size=means.shape)
            writer.write_table(pa.table(list(values.T), schema=schema))


def write_text(path: Path, megabytes: float, source: str | None) -> None:
    """Words of a text drawn anew: each after two as some occurrence of these two goes on."""
    if source is None:
        import seqmodels as sm

        text = str(sm.data.builtin_text()[0])
    else:
        text = Path(source).read_text(encoding="utf-8")
    words, ids = np.unique(re.findall(r"\s+|\w+|[^\w\s]", text), return_inverse=True)
    encoded = [word.encode() for word in words.tolist()]
    pairs = ids[:-1] * len(words) + ids[1:]
    order = np.argsort(pairs, kind="stable")
    low, high = (np.searchsorted(pairs[order], pairs, side=side) for side in ("left", "right"))
    rng = np.random.default_rng(0)
    at, left = rng.integers(0, len(pairs) - 1, N_CHAINS), megabytes * 1e6
    lengths = np.array([len(word) for word in encoded])
    drawn = []
    while left > 0:
        like = order[low[at] + (rng.random(N_CHAINS) * (high[at] - low[at])).astype(np.int64)]
        at = np.where(like + 1 < len(pairs), like + 1, 0)
        drawn.append(ids[at + 1])
        left -= float(lengths[drawn[-1]].sum())
    with path.open("wb") as file:
        for chain in np.stack(drawn, axis=1):
            file.write(b"".join([encoded[i] for i in chain.tolist()]))


if __name__ == "__main__":
    main()
