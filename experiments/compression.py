"""How small are files, and how fast, beside other compressors? ``python experiments/compression.py FILE ...``.

``compress_file`` without a model, whose data alone are enough to decode, each decoded again and compared bit for bit;
and gzip, bz2 and xz at their highest settings, PPMd (the package pyppmd), ``zpaq -method 5``, ``zstd -19`` and
``brotli -q 11`` where they are installed. Sizes are of whole files, heads and all; ``zpaq_data`` is that of zpaq less
the 1,020 bytes of its container. Speeds are in kB of the file for each second of the processor's time, of one thread. A
file is named by itself and its folder, and the last row has the sums.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import lzma
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

import seqmodels as sm
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.wrappers.adapt.compressor import CODES

ZPAQ_CONTAINER = 1020  # bytes of an archive that are not the code of the file
OUT = Path("experiments/results/compression/compression.csv")


def by_filter(*command: str) -> Callable[[bytes], int]:
    """The size of what a program writes of what it reads."""

    def size(content: bytes) -> int:
        if shutil.which(command[0]) is None:
            raise ImportError(f"{command[0]} is not on the PATH")
        return len(subprocess.run(command, input=content, capture_output=True, check=True).stdout)

    return size


OTHERS: Mapping[str, Callable[[bytes], int]] = {
    "gzip": lambda content: len(gzip.compress(content, 9)),
    "bz2": lambda content: len(bz2.compress(content, 9)),
    "xz": lambda content: len(lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)),
    "ppmd": CODES["ppmd"],
    "zstd": by_filter("zstd", "-19", "-c", "-q"),
    "brotli": by_filter("brotli", "-q", "11", "-w", "24", "-c"),
    "zpaq": CODES["zpaq"],
}


def row(path: Path) -> dict[str, object]:
    """Sizes and speeds of one file."""
    content = path.read_bytes()
    sm.evaluation.decompress_file(sm.evaluation.compress_file(b"compiled before it is timed"))
    began = time.process_time()
    data = sm.evaluation.compress_file(content)
    coded = time.process_time()
    assert sm.evaluation.decompress_file(data) == content, path
    decoded = time.process_time()
    sizes: dict[str, object] = {}
    for name, size in OTHERS.items():
        try:
            sizes[name] = size(content)
        except ImportError:  # not installed here
            sizes[name] = None
    if sizes["zpaq"] is not None:
        sizes["zpaq_data"] = int(str(sizes["zpaq"])) - ZPAQ_CONTAINER
    kilobytes = len(content) / 1e3
    return {
        "file": "/".join(path.absolute().parts[-2:]),
        "n_bytes": len(content),
        "seqmodels": len(data),
        "bits": round(8 * len(data) / len(content), 4),
        **sizes,
        "kb_per_s_compress": round(kilobytes / (coded - began), 1),
        "kb_per_s_decompress": round(kilobytes / (decoded - coded), 1),
    }


def with_total(table: pd.DataFrame) -> pd.DataFrame:
    """With a row of the sums of sizes."""
    sizes = [name for name in table.columns if name not in ("file", "bits") and not name.startswith("kb_per_s")]
    total = {"file": "total", **{name: int(table[name].sum()) for name in sizes}}
    return pd.concat([table, pd.DataFrame([total])], ignore_index=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    arguments = parser.parse_args()
    if find_spec("numba") is None:
        raise SystemExit("without numba this takes hours: pip install numba")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for path in arguments.files:
        rows.append(row(path))
        print(rows[-1], flush=True)
        table = stamped(with_total(pd.DataFrame(rows).dropna(axis=1, how="all"))).assign(
            command="python experiments/compression.py FILE ..."
        )
        table.to_csv(OUT, index=False)


if __name__ == "__main__":
    main()
