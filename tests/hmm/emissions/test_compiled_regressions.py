"""Autoregressive states in compiled loops against the matrix products they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels import AutoregressiveGaussian
from seqmodels.hmm.emissions import emission_of
from seqmodels.inference.chains import parallel_segments as segments
from seqmodels.inference.chains.scratch import Scratch
from tests.past_steps import past_steps

pytest.importorskip("numba", reason="without numba the loops are not compiled, and not used")

F64 = torch.float64
N, K, D = 1300, 5, 3  # more frames than a block has, and a state and columns left over by fours


def case(order: int, covariance_type: Any, dtype: torch.dtype, *, has_missing: bool) -> tuple[Any, ...]:
    """An emission, its table, frames, their past, and gamma; the past of the first steps is unknown."""
    generator = torch.Generator().manual_seed(order)
    x = torch.randn(N, D, generator=generator, dtype=F64).cumsum(0) / 4
    past = past_steps(x.unsqueeze(0), order)
    assert past is not None
    if has_missing:
        x[torch.rand(N, D, generator=generator) < 0.1] = torch.nan
    emission = emission_of(AutoregressiveGaussian(order, covariance_type), D)
    table = 0.5 * torch.randn(K, emission.observation.n_output_parameters(D), generator=generator, dtype=F64)
    gamma = torch.softmax(torch.randn(K, N, generator=generator, dtype=F64), 0).to(dtype).T
    return emission, emission.tie(table), x.to(dtype), past.squeeze(0).to(dtype), gamma


@pytest.mark.parametrize("has_missing", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize(("order", "covariance_type"), [(1, "full"), (2, "diag"), (4, "full")])
def test_compiled_regressions_equal_matrix_products(
    order: int, covariance_type: Any, dtype: torch.dtype, has_missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    emission, table, x, past, gamma = case(order, covariance_type, dtype, has_missing=has_missing)
    results = []
    for fewest in (0, 2 * N):
        monkeypatch.setattr(segments, "FEWEST_FRAMES_COMPILED", fewest)
        assert emission._runs_compiled(K, emission._design(x, past)) == (fewest == 0)
        densities, memo = emission.evaluate(table, x, past, dtype, Scratch())
        log_b = densities.log().clone()
        assert_allclose(emission.log_prob(table, x, past, dtype), log_b, rtol=1e-12)  # but for the rounding of products
        results.append((log_b, emission.statistics(table, x, past, gamma, memo)[0]))
    (log_b, sums), (expected_log_b, expected_sums) = results
    tolerance = 1e-11 if dtype == F64 else 1e-6
    assert_allclose(log_b, expected_log_b, rtol=tolerance, atol=tolerance)
    assert_allclose(sums, expected_sums, rtol=1e-11, atol=1e-9)  # in float64 whatever the precision of x


def test_the_loops_are_worth_loading_for_fewer_frames_of_more_states(monkeypatch: pytest.MonkeyPatch) -> None:
    emission, _, x, past, _ = case(1, "full", F64, has_missing=False)
    design = emission._design(x, past)
    monkeypatch.setattr(segments, "FEWEST_FRAMES_COMPILED", 2 * N)
    assert [emission._runs_compiled(k, design) for k in (4, 7, 8, 48)] == [False, False, True, True]
    monkeypatch.setattr(segments, "FEWEST_FRAMES_COMPILED", 0)
    assert [emission._runs_compiled(k, design) for k in (1, 3, 4)] == [False, False, True]


def test_several_threads_give_the_same_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    from seqmodels.hmm.emissions import compiled_regressions

    monkeypatch.setattr(segments, "FEWEST_FRAMES_COMPILED", 0)
    monkeypatch.setattr(compiled_regressions, "PART", 512)
    emission, table, x, past, gamma = case(1, "full", F64, has_missing=False)
    results = []
    for n_threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda n_threads=n_threads: n_threads)
        log_b = emission.log_prob(table, x, past, F64)
        results.append([log_b, emission.statistics(table, x, past, gamma)[0]])
    for one, two in zip(*results, strict=True):
        assert_allclose(one, two, rtol=1e-12, atol=1e-12)
