"""Several starts: data are packed once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seqmodels import HMM, GaussianMixture
from seqmodels.hmm import pieces
from seqmodels.hmm.blocks import make_blocks


def series(*lengths: int, seed: int = 0) -> list[np.ndarray]:
    """Two noisy levels."""
    rng = np.random.default_rng(seed)
    levels = [np.cumsum(rng.random(n) < 0.1) % 2 for n in lengths]
    return [(2.0 * level + rng.normal(size=len(level)))[:, None] for level in levels]


def test_data_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []

    def counted(sequences: Any, *rest: Any) -> Any:
        packed.append(len(sequences))
        return make_blocks(sequences, *rest)

    monkeypatch.setattr(pieces, "make_blocks", counted)
    HMM(2, observation=GaussianMixture(1), n_init=3, max_iter=2).fit(series(20, 30))
    assert packed == [2]
