"""Two processes that share the sequences end with the parameters of one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch.multiprocessing
from numpy.testing import assert_allclose

from seqmodels import HMM, GaussianMixture, distributed

ARRAYS = ("initial_", "transition_", "weights_", "means_", "covariances_")


def sequences() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.cumsum(rng.normal(size=(n, 2)), 0) / 3 for n in (30, 7, 18, 25, 1)]


def fitted() -> HMM:
    return HMM(3, observation=GaussianMixture(2), max_iter=8, tol=0, dtype="float64").fit(sequences())


def work(rank: int, folder: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = fitted()
    np.savez(f"{folder}/{rank}.npz", history=model.history_["log_prob"], **{n: getattr(model, n) for n in ARRAYS})
    torch.distributed.destroy_process_group()


def test_two_processes_are_one(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(work, (str(tmp_path),), nprocs=2)
    alone = fitted()
    for rank in range(2):
        found = np.load(tmp_path / f"{rank}.npz")
        for name in ARRAYS:
            assert_allclose(found[name], getattr(alone, name), rtol=1e-8, atol=1e-10)
        assert_allclose(found["history"], alone.history_["log_prob"], rtol=1e-10)


def test_one_process_has_all() -> None:
    assert distributed.share([3, 1, 2]) == [3, 1, 2]
    (total,) = distributed.add_up([torch.ones(2, dtype=torch.float64)])
    assert total.tolist() == [1.0, 1.0]


def test_fewer_sequences_than_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "_several", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 3)
    with pytest.raises(ValueError, match="2 sequences for 3 processes"):
        distributed.share([1, 2])
