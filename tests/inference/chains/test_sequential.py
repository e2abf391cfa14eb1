"""Compiled loops over one sequence after the other give what passes in logarithms and tensor operations give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels.common.compiled import is_compiling
from seqmodels.inference.chains import log_space, parallel_segments
from seqmodels.inference.chains.forward_backward import forward_backward_pass, forward_pass
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import Posterior, Trellis
from seqmodels.inference.chains.viterbi import best_paths, traced

pytestmark = pytest.mark.skipif(not is_compiling(), reason="numba is not installed")
F64 = torch.float64
LENGTHS = (40, 1, 75, 40)
LEFT_RIGHT = torch.tensor([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]], dtype=F64)
RARE = torch.tensor([[1.0 - 1e-200, 1e-200, 0.0], [0.0, 1.0 - 1e-200, 1e-200], [0.0, 0.0, 1.0]], dtype=F64)


def trellis(case: str) -> Trellis:
    generator = torch.Generator().manual_seed(0)
    dense = torch.rand(3, 3, generator=generator, dtype=F64)
    log_b = 3 * torch.randn(sum(LENGTHS), 3, generator=generator, dtype=F64)
    transition, final = dense / dense.sum(1, keepdim=True), None
    if case == "far":  # all densities but one underflow
        log_b *= 1e4
    if case == "levels of -1e9":
        log_b -= 1e9
    if case in ("left-right", "what is lost comes back"):
        transition = LEFT_RIGHT
        # The last state fits all frames by far, until the first fits what follows by more.
        log_b[:20] = torch.tensor([-800.0, -800.0, 0.0], dtype=F64)
        log_b[20:40] = torch.tensor([0.0, -900.0, -900.0], dtype=F64)
    if case == "left-right":
        log_b[20:40] = 0.0
    if case == "tiny transitions":
        transition = RARE
    if case == "an underflow that fits what follows":
        transition = RARE
        log_b[:] = torch.tensor([0.0, 0.0, 800.0], dtype=F64)
    if case == "zeros":
        log_b[torch.rand(log_b.shape, generator=generator) < 0.2] = -torch.inf
        log_b[::7] = torch.tensor([0.0, -torch.inf, -torch.inf], dtype=F64)
    if case == "an end in a state that was lost":
        final = torch.tensor([0.0, 0.0, 1.0], dtype=F64)
        transition = torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.0, 0.0, 0.0]], dtype=F64)
        log_b[:, 2] = -1000.0
    if case in ("as much was added as there is", "as much was added as there is of a prefix"):
        transition = torch.eye(3, dtype=F64)
        log_b[:] = 0.0
        log_b[10], log_b[20] = torch.tensor([0.0, -700.0, 0.0]), torch.tensor([np.log(1e-200), 0.0, 0.0])
        if case.endswith("prefix"):
            log_b[30] = torch.tensor([0.0, -100.0, 0.0])
    if case == "ends":
        final = torch.tensor([0.1, 0.0, 0.4], dtype=F64)
        transition = transition * (1 - final)[:, None]
    made = Trellis.of_concatenated(torch.tensor([0.6, 0.4, 0.0], dtype=F64), transition, log_b, final, LENGTHS)
    assert made.is_sequential
    return replace(made, weights=torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=F64))


CASES = (
    *("dense", "far", "levels of -1e9", "left-right", "what is lost comes back", "tiny transitions", "zeros", "ends"),
    *("an underflow that fits what follows", "an end in a state that was lost"),
    *("as much was added as there is", "as much was added as there is of a prefix"),
)


@pytest.mark.parametrize("case", CASES)
def test_forward_backward_is_that_in_logarithms(case: str) -> None:
    found, expected = forward_backward_pass(trellis(case)), log_space.forward_backward_pass(trellis(case))
    assert_allclose(found.log_prob, expected.log_prob, rtol=1e-12, atol=1e-12)
    assert_allclose(found.gamma, expected.gamma, atol=1e-12)
    for name in ("xi", "initial", "final"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_the_forward_pass_is_that_in_logarithms(case: str) -> None:
    found, expected = forward_pass(trellis(case)), log_space.forward_pass(trellis(case))
    assert_allclose(found.alpha, expected.alpha, atol=1e-12)
    assert_allclose(found.steps, expected.steps, rtol=1e-12, atol=1e-11)
    assert_allclose(found.ends, expected.ends, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("case", CASES)
def test_the_best_path_is_that_of_tensor_operations(case: str) -> None:
    problem = trellis(case)
    path, log_prob = best_paths(problem)
    expected, _ = traced(problem, problem.densities.log())
    possible = (log_prob > -torch.inf).repeat_interleave(torch.tensor(LENGTHS))
    assert torch.equal(path[possible], expected[possible])


@pytest.mark.parametrize(("case", "n_failed"), [("dense", 0), ("left-right", 0), ("what is lost comes back", 1)])
def test_only_what_was_lost_and_mattered_is_computed_again(
    case: str, n_failed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, in_logarithms = [], log_space.forward_backward_pass

    def recorded(whole: Trellis) -> Posterior:
        taken.append(whole.segments.n_sequences)
        return in_logarithms(whole)

    monkeypatch.setattr(log_space, "forward_backward_pass", recorded)
    forward_backward_pass(trellis(case))
    assert sum(taken) == n_failed


def test_many_states_in_many_sequences_are_matrix_products() -> None:
    cpu = torch.device("cpu")
    assert parallel_segments.runs_sequentially(3, 300, 300, cpu)
    assert parallel_segments.runs_sequentially(48, 300, 300, cpu)
    assert not parallel_segments.runs_sequentially(200, 60_000, 300, cpu)
    assert not parallel_segments.runs_sequentially(3, 300, 300, torch.device("meta"))


def test_one_long_sequence_of_many_states_is_cut() -> None:
    """Its loops take less time than tensor operations at each step of it, but more than those of its segments."""
    for n_states, length, is_whole in ((3, 5_000, True), (48, 5_000, True), (96, 20_000, False), (128, 100_000, False)):
        assert parallel_segments.runs_sequentially(n_states, length, length, torch.device("cpu"))
        assert Segments.fastest([length], n_states, torch.float32).is_whole == is_whole
