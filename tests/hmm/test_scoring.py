"""A sequence that is longer than a batch is scored in parts, to the same figures; of what lies on disk no more is
read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from seqmodels import HMM, AutoregressiveGaussian, GaussianMixture, LeftToRight
from seqmodels.encodings import Standardize
from seqmodels.hmm import corpus, scoring
from seqmodels.hmm.hidden_chain import HiddenChainModel

K, T = 3, 3000


def frames(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.repeat(rng.normal(size=(T // 10, 2)), 10, axis=0) + 0.3 * rng.normal(size=(T, 2))


def small_blocks(monkeypatch: pytest.MonkeyPatch, n_frames: int) -> list[int]:
    """Of ``n_frames``; the list will hold how many parts were made of each long sequence."""
    monkeypatch.setitem(corpus.ELEMENTS_AT_ONCE, "cpu", n_frames * K)
    monkeypatch.setattr(HiddenChainModel, "_few_frames", lambda *_: None)  # which are scored without batches
    made, cut = [], scoring.cut

    def counted(sequence: int, length: int, size: int) -> Any:
        made.append(len(cut(sequence, length, size)))
        return cut(sequence, length, size)

    monkeypatch.setattr(scoring, "cut", counted)
    return made


@pytest.mark.parametrize("observation", [GaussianMixture(1), AutoregressiveGaussian(2)], ids=repr)
@pytest.mark.parametrize("length", ["given", "stop"])
def test_slices_score_as_the_whole(observation: Any, length: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = [frames(1)[:40], frames(), frames(2)[:700]]
    model = HMM(K, observation=observation, length=length, dtype="float64", max_iter=3).fit(x)
    whole = model.log_prob_steps(x)
    made = small_blocks(monkeypatch, 300)
    for sliced, expected in zip(model.log_prob_steps(x), whole, strict=True):
        assert_allclose(sliced, expected, rtol=1e-9, atol=1e-9)
    assert sorted(made) == [2, 10]


def test_a_chain_that_never_forgets_and_a_source_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = [frames()[:700]]
    model = HMM(K, observation=GaussianMixture(1), topology=LeftToRight(), max_iter=2).fit(x)
    pairs = HMM(K, observation=GaussianMixture(1), max_iter=2).fit([x[0][:300]], [x[0][300:]])
    expected = model.score(x), pairs.score([x[0][:300]], [x[0][300:]])
    made = small_blocks(monkeypatch, 100)
    assert (model.score(x), pairs.score([x[0][:300]], [x[0][300:]])) == pytest.approx(expected, rel=1e-12)
    assert made == []


@pytest.mark.parametrize("length", ["given", "stop"])
def test_after_the_impossible_nothing_is_possible(length: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    even = np.full((K, K), 1 / K)
    final = [0.1] * K if length == "stop" else None
    chain = even if final is None else 0.9 * even
    model = HMM.from_parameters(even[0], chain, final, emission=[[0.5, 0.5, 0.0]] * K, dtype="float64")
    x = [np.zeros(900, dtype=int)]
    x[0][450] = 2
    whole = model.log_prob_steps(x)[0]
    small_blocks(monkeypatch, 300)
    steps = model.log_prob_steps(x)[0]
    assert np.isfinite(steps[:450]).all()
    assert (steps[450:900] == -np.inf).all()
    assert_allclose(steps, whole)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_more_than_a_block_is_read_from_disk_at_once(
    dtype: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = frames().astype(dtype)
    x[5, 1] = np.nan
    x.tofile(tmp_path / "frames")
    mapped = np.memmap(tmp_path / "frames", dtype=dtype, mode="r", shape=x.shape)
    model = HMM(K, observation=GaussianMixture(1), max_iter=2).fit([x])
    steps, paths = model.log_prob_steps([x])[0], model.decode([x])[0]
    made = small_blocks(monkeypatch, 300)
    monkeypatch.setattr("seqmodels.sequences.mapped.BLOCK_BYTES", 500 * x[0].nbytes)
    read: list[int] = []
    for name in ("encode", "log_det"):
        method = getattr(Standardize, name)

        def counted(self: Standardize, item: Any, method: Any = method) -> Any:
            read.append(len(item))
            return method(self, item)

        monkeypatch.setattr(Standardize, name, counted)
    assert_allclose(model.log_prob_steps([mapped])[0], steps, rtol=1e-4, atol=1e-4)
    assert made == [10]
    assert max(read) <= 500  # parts of 300 frames, log-determinants of 500
    assert sum(read) == 3 * T  # once encoded; the log-determinant for the examples and for the steps
    assert (model.decode([mapped])[0] == paths).all()


@pytest.mark.parametrize("kind", ["diag", "full", "tied", "spherical"])
@pytest.mark.parametrize("missing", [False, True])
def test_a_mean_many_deviations_from_the_others_loses_no_digits(kind: Any, missing: bool) -> None:
    means, x = np.array([[0.0, 0.0], [-1e8, 1e8]]), np.array([[0.5, -1.0], [-1e8, 1e8 + 1]])
    covariances = {"full": np.stack([np.eye(2)] * 2), "tied": np.eye(2), "spherical": np.ones(2)}.get(
        kind, np.ones((2, 2))
    )
    model = HMM.from_parameters(
        [0.5, 0.5],
        np.full((2, 2), 0.5),
        means=means,
        covariances=covariances,
        covariance_type=kind,
        dtype="float64",
    )
    x[0, 0] = np.nan if missing else x[0, 0]
    expected = np.log(0.5) - 0.5 * (np.nansum((x - means) ** 2, 1) + np.log(2 * np.pi) * (~np.isnan(x)).sum(1))
    assert_allclose(model.log_prob_steps([x])[0], expected, rtol=0, atol=1e-6)  # 1e8 has eight digits left
