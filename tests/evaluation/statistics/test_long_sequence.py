"""Statistics of steps on disk are those of the same steps in memory, however many are read at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.data import on_disk
from seqmodels.evaluation.statistics import long_sequence
from seqmodels.evaluation.statistics.confidence_set import confidence_set_p_values
from seqmodels.evaluation.statistics.long_sequence import LongSteps, mean_over_seeds, rows_of_seeds
from seqmodels.evaluation.statistics.paired import moving_block_difference
from seqmodels.evaluation.statistics.pairwise import model_difference
from seqmodels.sequences.mapped import MappedArray

N = 300
UNITS = np.array([N - 1.0])  # an end is a step but no unit


def on_disk_of(steps: np.ndarray) -> np.ndarray:
    mapped = MappedArray.temporary(steps.size)
    mapped.write(0, steps.ravel())
    return mapped.reshape(steps.shape)


def steps_of(n_models: int, n_seeds: int) -> list[np.ndarray]:
    """Nats whose differences are correlated over some steps."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(n_models, n_seeds, N + 9))
    correlated = sum(noise[..., k : k + N] for k in range(9))
    return [-3.0 - 0.1 * i + 0.2 * correlated[i] + 0.05 * rng.normal(size=(n_seeds, 1)) for i in range(n_models)]


@pytest.fixture(params=[11, 1000])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(long_sequence, "STEPS_READ", request.param)
    return int(request.param)


@pytest.mark.parametrize("n_seeds", [(1, 1), (3, 3), (1, 3), (3, 1)])
def test_the_difference_of_two_models(n_seeds: tuple[int, int], at_once: int) -> None:
    a, b = (steps[:n] for steps, n in zip(steps_of(2, 3), n_seeds, strict=True))
    expected = model_difference(a, b, UNITS, None, ("a", "b"))
    found = model_difference(on_disk_of(a), on_disk_of(b), UNITS, None, ("a", "b"))
    assert (found.method, found.block, found.n_clusters) == (expected.method, expected.block, expected.n_clusters)
    for name in ("difference", "low", "high", "p_value"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, err_msg=name)
    assert not np.isnan(found.low)
    assert_allclose(found.difference, (a.mean(axis=0).sum() - b.mean(axis=0).sum()) / UNITS[0], rtol=1e-12)
    chosen = moving_block_difference(on_disk_of(a), b, block=7)
    assert_allclose(chosen.low, moving_block_difference(a, b, block=7).low, rtol=1e-9)


@pytest.mark.parametrize("n_seeds", [1, 2])
def test_the_confidence_set(n_seeds: int, at_once: int) -> None:
    steps = steps_of(3, n_seeds)
    expected = confidence_set_p_values(steps, UNITS, n_bootstrap=100)
    assert len(set(expected)) == 3
    assert_allclose(confidence_set_p_values([on_disk_of(s) for s in steps], UNITS, n_bootstrap=100), expected)


def test_autocovariances_and_block_sums(at_once: int) -> None:
    (steps,) = steps_of(1, 2)
    long, d = LongSteps.of(on_disk_of(steps)), steps.mean(axis=0) - steps.mean()
    assert_allclose(long.autocovariance(20), [(d[: N - k] * d[k:]).sum() / N for k in range(21)], atol=1e-12)
    starts = np.array([[0, 5], [N - 1, N - 7]])
    around = np.concatenate([steps, steps], axis=1)
    sums = [[around[s, t : t + 7].sum() + around[s, u : u + 7].sum() for s in range(2)] for t, u in starts]
    assert_allclose(long.block_sums(starts, 7), sums, rtol=1e-12)


def test_what_is_impossible_is_named(at_once: int) -> None:
    a, b = steps_of(2, 1)
    a[0, 200] = -np.inf
    difference = model_difference(on_disk_of(a), on_disk_of(b), UNITS, None, ("a", "b"))
    assert difference.difference == -np.inf
    assert "-inf under 'a'" in difference.method
    with pytest.raises(ValueError, match="1 of 300 steps of the model are not finite"):
        moving_block_difference(on_disk_of(a), on_disk_of(b))


def test_means_and_rows_of_seeds_stay_on_disk(at_once: int) -> None:
    (steps,) = steps_of(1, 3)
    mapped = [on_disk_of(row) for row in steps]
    for found, expected in ((rows_of_seeds(mapped), steps), (mean_over_seeds(mapped), steps.mean(axis=0))):
        assert isinstance(found, MappedArray)
        assert found.is_on_disk
        assert_allclose(found, expected, rtol=1e-14)
    assert_array_equal(mean_over_seeds(list(steps)), steps.mean(axis=0))


def test_a_comparison_of_long_sequences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.cumsum(np.random.default_rng(1).random(900) < 0.3) % 5
    np.save(tmp_path / "x.npy", x)
    train, test = on_disk(tmp_path / "x.npy").split(0.3)
    models: list[dict[str, Any]] = [{"one": sm.NGram(1), "two": sm.NGram(2)} for _ in range(2)]
    whole = sm.compare(models[0], train, test=test).frame
    monkeypatch.setattr("seqmodels.sequences.mapped.MAX_STEPS_IN_MEMORY", 100)
    result = sm.compare(models[1], train, test=test)
    assert isinstance(result.log_prob_steps["two"][0], MappedArray)
    for column in ("score", "difference", "ci_low", "ci_high", "p_value", "p_best"):
        assert_allclose(result.frame[column], whole[column], rtol=1e-9, err_msg=column)
    assert result.pairwise()["p_value"].iloc[0] < 0.05
