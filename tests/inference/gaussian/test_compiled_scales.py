"""The scale that follows innovations moves by the score of scipy's t density."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from seqmodels.inference.gaussian.compiled_scales import follow_scales
from seqmodels.linear_gaussian.innovations import InnovationSteps, StudentTInnovations


def steps_of(seed: int, *lengths: int, n_features: int = 2) -> tuple[InnovationSteps, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    seen = rng.random((sum(lengths), n_features)) < 0.7
    white = np.where(seen, np.linspace(0, 5, len(seen))[:, None] * rng.standard_t(2, size=seen.shape), 0.0)
    steps = InnovationSteps(np.array(lengths), (white**2).sum(1), seen.sum(1).astype(float), rng.normal(size=len(seen)))
    return steps, [each[s] for each, s in zip(white, seen, strict=True)]


def test_moves_are_scores_of_the_density() -> None:
    steps, white = steps_of(0, 12, 1, 7)
    nu, first, gain, least, width = 4.2, 0.3, 0.1, -0.2, 1e-5

    def log_density(w: np.ndarray, log_scale: float) -> float:
        return stats.multivariate_t(shape=np.exp(2 * log_scale) * np.eye(len(w)), df=nu).logpdf(w) if len(w) else 0.0

    found, t = np.empty(20), 0
    follow_scales(steps.squares, steps.n_observed, steps.lengths, nu, first, gain, least, found)
    for length in steps.lengths:
        log_scale = first
        for _ in range(length):
            assert found[t] == pytest.approx(log_scale, abs=1e-9)
            above, below = (log_density(white[t], log_scale + sign * width) for sign in (1, -1))
            slope = (above - below) / (2 * width)
            log_scale, t = max(log_scale + gain * slope, least), t + 1
    assert (found == least).any()
    assert (found > first).any()


def test_one_step_at_a_time_is_the_same() -> None:
    steps, _ = steps_of(1, 30)
    density = StudentTInnovations(3.0, 0.1, 0.4, 2)
    log_scales, log_scale = density.log_scales(steps), torch.full((1,), np.log(0.1), dtype=torch.float64)
    for t in range(30):
        np.testing.assert_allclose(log_scale, log_scales[t], rtol=1e-13, atol=1e-13)
        log_scale = density.after(
            log_scale, *(torch.tensor(each[t : t + 1]) for each in (steps.squares, steps.n_observed))
        )
