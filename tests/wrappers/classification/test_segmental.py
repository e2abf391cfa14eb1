"""Segmental k-means of left-to-right chains: paths and scores against enumeration of every path, and what is pooled."""

from itertools import combinations_with_replacement

import numpy as np
import pytest

from seqmodels.wrappers.classification.segmental import MOST_FRAMES, PaddedFrames, SegmentChains, fitted_chains


def some_frames(seed: int = 0) -> PaddedFrames:
    rng = np.random.default_rng(seed)
    return PaddedFrames.of([rng.normal(size=(n, 2)) for n in (5, 3, 1, 4)])


def log_density(x: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> float:
    return float(-0.5 * ((x - mean) ** 2 / variance + np.log(variance)).sum())


def paths(n_frames: int, n_segments: int) -> list[tuple[int, ...]]:
    """From the first segment on, by at most one a frame."""
    rising = combinations_with_replacement(range(n_segments), n_frames)
    return [path for path in rising if path[0] == 0 and (np.diff(path) <= 1).all()]


def test_scores_and_paths_are_the_best_of_all_paths() -> None:
    rng, frames = np.random.default_rng(1), some_frames()
    chains = SegmentChains(rng.normal(size=(2, 3, 2)), rng.uniform(0.5, 2, size=(2, 3, 2)))
    index = np.array([0, 1, 1, 0])
    log_prob, best_paths = chains.log_prob(frames), chains.paths(frames, index)
    for i, n in enumerate(frames.lengths):
        for label in range(2):
            totals = {
                path: sum(
                    log_density(frames.values[i, t], chains.means[label, k], chains.variances[label, k])
                    for t, k in enumerate(path)
                )
                for path in paths(int(n), 3)
            }
            best = max(totals, key=totals.__getitem__)
            assert log_prob[i, label] == pytest.approx(totals[best], abs=1e-10)
            if label == index[i]:
                assert tuple(best_paths[i, :n]) == best


def test_pooled_variances_are_of_all_labels_and_segments() -> None:
    frames, index = some_frames(), np.array([0, 1, 1, 0])
    pooled = fitted_chains(frames, index, 2, pools_variances=True, mean_count=1.0, n_segments=2)
    assert np.unique(pooled.variances.reshape(-1, 2), axis=0).shape == (1, 2)
    separate = fitted_chains(frames, index, 2, pools_variances=False, mean_count=1.0, n_segments=2)
    assert np.unique(separate.variances.reshape(-1, 2), axis=0).shape == (4, 2)


def test_segments_that_differ_are_found() -> None:
    rng = np.random.default_rng(0)
    lengths = [(6, 2), (2, 6), (4, 4), (7, 1)]
    steps = [np.concatenate([np.zeros((a, 1)), np.full((b, 1), 5.0)]) for a, b in lengths]
    frames = PaddedFrames.of([each + 0.1 * rng.normal(size=each.shape) for each in steps])
    chains = fitted_chains(frames, np.zeros(4, dtype=int), 1, pools_variances=True, mean_count=0.0, n_segments=2)
    found = chains.paths(frames, np.zeros(4, dtype=int))
    assert [int((path == 0).sum()) for path in found] == [a for a, _ in lengths]


def test_long_sequences_are_read_at_evenly_spaced_frames() -> None:
    frames = PaddedFrames.of([np.arange(1000.0)[:, None], np.arange(10.0)[:, None]])
    assert frames.lengths.tolist() == [MOST_FRAMES, 10]
    with pytest.raises(ValueError, match="column 1 is constant"):
        PaddedFrames.of([np.array([[0.0, 1.0], [1.0, 1.0]])])
