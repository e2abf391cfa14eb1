"""Random single bits flipped in saved models of every class, a checkpoint and a comparison: how many are refused."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import seqmodels as sm
from seqmodels.training import checkpoint
from tests.faults.promise import Promise, main

FIXTURES = Path(__file__).parents[1] / "fixtures" / "0.1.0"
# One of each class.
MODELS = (
    "hmm-diag",
    "alignment",
    "hmm-tagger",
    "ngram-bpe",
    "elman-vectors",
    "lstm-vectors",
    "gru-vectors",
    "lstm-seq2seq",
    "lstm-tagger",
    "transformer-vectors",
    "transformer-seq2seq",
    "transformer-tagger",
    "masked",
    "classifier-hmm",
)


def n_refused(files: list[Path], load: Callable[[], Any], n: int, rng: np.random.Generator) -> int:
    """How many of ``n`` flips, each of one bit anywhere in the files, ``load`` refuses by a ``ValueError``."""
    load()
    sizes, refused = np.array([file.stat().st_size for file in files]), 0
    for _ in range(n):
        bit = int(rng.integers(8 * sizes.sum()))
        which = int(np.searchsorted(np.cumsum(sizes), bit // 8, side="right"))
        before = files[which].read_bytes()
        damaged = bytearray(before)
        damaged[bit // 8 - int(sizes[:which].sum())] ^= 1 << (bit % 8)
        files[which].write_bytes(damaged)
        try:
            load()
        except ValueError:
            refused += 1
        files[which].write_bytes(before)
    load()
    return refused


def flipped(folder: Path, n: int, names: tuple[str, ...]) -> dict[str, int]:
    """Refused flips of each kind of file."""
    rng, found = np.random.default_rng(0), {}
    for name in names:
        model, path = sm.load(FIXTURES / f"{name}.safetensors"), folder / name
        model.save(path)
        found[type(model).__name__] = n_refused([path], lambda path=path: sm.load(path), n, rng)  # type: ignore[misc]
    path = folder / "checkpoint"
    checkpoint.write(path, checkpoint.read(FIXTURES / "run.checkpoint"))
    found["checkpoint"] = n_refused([path], lambda: checkpoint.read(path), n, rng)
    kept = folder / "comparison"
    sm.evaluation.Comparison.load(FIXTURES / "comparison").save(kept)
    files = sorted(file for file in kept.rglob("*") if file.is_file())
    found["comparison"] = n_refused(files, lambda: sm.evaluation.Comparison.load(kept), n, rng)
    return found


def measure(quick: bool) -> list[Promise]:
    n, names = (20, MODELS[:3]) if quick else (300, MODELS)
    with tempfile.TemporaryDirectory() as folder:
        found = flipped(Path(folder), n, names)
    for name, refused in found.items():
        print(f"{name}: {refused} of {n} refused")
    kinds = {
        "a saved model": {k: v for k, v in found.items() if k not in ("checkpoint", "comparison")},
        "a checkpoint": {"checkpoint": found["checkpoint"]},
        "a saved comparison": {"comparison": found["comparison"]},
    }
    return [
        Promise(
            f"{n} random bit flips in {what}" + (f", each of {len(counts)} classes" if len(counts) > 1 else ""),
            f"{n} of {n} refused",
            f"{min(counts.values())} of {n} refused" + (" in the worst class" if len(counts) > 1 else ""),
            min(counts.values()) == n,
        )
        for what, counts in kinds.items()
    ]


if __name__ == "__main__":
    main(measure)
