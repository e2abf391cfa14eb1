"""The posterior of the states of a chain given inputs, beside the recursions in logarithms."""

from __future__ import annotations

import numpy as np
import torch

from seqmodels.hmm.score_loops import Smoothed, smooth
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.forward_backward import forward_backward_pass
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import Trellis

LENGTHS, K = [1, 7, 4], 3


def passed(logits: torch.Tensor, log_b: torch.Tensor) -> tuple[bool, Smoothed, np.ndarray, Trellis, np.ndarray]:
    """The result of ``smooth`` for three sequences with ends, the same problem for ``forward_backward``, and rows."""
    segments = Segments.whole(LENGTHS)
    order = torch.cat(segments.split(torch.arange(12))).numpy()
    initial, final = torch.tensor([[0.5, 0.5, 0.0]]).double(), torch.tensor([[1.0, 0.2, 0.7]]).double()
    matrix = torch.full((K, K), 1 / K, dtype=torch.float64)
    trellis = Trellis(initial, matrix, final, LogDensities(log_b), segments, log_transitions=logits.log_softmax(-1))
    peak = log_b.amax(1, keepdim=True)
    b = (log_b - peak).exp().clamp(min=1e-300) * (log_b > -torch.inf)
    result, log_prob = Smoothed.of((12, K, K), np.repeat(initial.numpy(), 3, 0)), np.empty(3)
    ends, starts = np.repeat(final.numpy(), 3, 0), np.cumsum([0, *LENGTHS])
    done = smooth(starts, order, logits.exp().numpy(), b.numpy(), ends, result, np.empty((12, K)), log_prob)
    return done, result, log_prob + np.add.reduceat(peak[order, 0].numpy(), starts[:-1]), trellis, order


def random(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits, log_b = (torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((12, K, K), (12, K)))
    return 3 * logits, 30 * log_b


def test_the_posterior_is_that_of_the_recursions_in_logarithms() -> None:
    logits, log_b = random(0)
    logits[:, 0, 2], log_b[5, 1] = -20.0, -torch.inf
    log_b[3] = torch.tensor([-800.0, 0.0, -2000.0])  # a matrix whose states are connected forgives that
    done, result, log_prob, trellis, order = passed(logits, log_b)
    expected = forward_backward_pass(trellis)
    assert done
    assert expected.transitions is not None
    np.testing.assert_allclose(log_prob, expected.log_prob, rtol=1e-12)
    np.testing.assert_allclose(result.gamma, expected.gamma[order], rtol=1e-9, atol=1e-200)
    np.testing.assert_allclose(result.xi, expected.transitions[order], rtol=1e-9, atol=1e-200)
    np.testing.assert_allclose(result.transition[[2, 9]], logits.softmax(-1)[order][[2, 9]], rtol=1e-12)


def test_structural_zeros_are_exact_while_no_probability_is_small() -> None:
    logits, log_b = random(1)
    logits[:, 0, 2] = log_b[5, 1] = -torch.inf
    done, result, log_prob, trellis, _ = passed(logits, log_b)
    assert done
    np.testing.assert_allclose(log_prob, forward_backward_pass(trellis).log_prob, rtol=1e-12)
    assert (result.xi[:, 0, 2] == 0).all()


def test_results_that_may_be_wrong_are_reported() -> None:
    logits, log_b = random(2)
    apart = torch.where(torch.eye(K, dtype=torch.bool), 0.0, -torch.inf).double().expand(12, K, K)
    log_b[:6], log_b[6:] = torch.tensor([0.0, -200.0, -200.0]), torch.tensor([-100.0, 0.0, 0.0])
    assert not passed(apart.contiguous(), log_b)[0]  # the likely state of the second half has underflowed in the first
    assert passed(logits, log_b)[0]
    log_b[4] = -torch.inf
    assert not passed(logits, log_b)[0]
