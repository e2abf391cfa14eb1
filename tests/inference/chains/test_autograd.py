from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from seqmodels.inference.chains import filter, forward_backward, log_prob, parallel_segments
from seqmodels.inference.chains.autograd import log_prob_of_segments
from seqmodels.inference.chains.given_inputs import log_transitions
from tests.inference.chains.enumeration import enumerate_paths, path_probabilities, random_model

F64 = torch.float64


def problem(
    seed: int, lengths: list[int], K: int = 3, with_final: bool = False, sparse: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    rng = np.random.default_rng(seed)
    initial, transition, final = random_model(rng, K, with_final, sparse)
    log_b = torch.as_tensor(rng.normal(-3, 2, size=(sum(lengths), K)))
    end = None if final is None else torch.as_tensor(final)
    return torch.as_tensor(initial), torch.as_tensor(transition), log_b, end


def leaves(*tensors: Tensor | None) -> list[Any]:
    return [None if t is None else t.clone().requires_grad_() for t in tensors]


@pytest.mark.parametrize("with_final", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_gradient_is_the_posterior_of_enumeration(with_final: bool, sparse: bool) -> None:
    n_possible = 0
    for seed in range(30):
        initial, transition, log_b, final = problem(seed, [4], 3, with_final, sparse)
        pi, a, b, f = leaves(initial, transition, log_b, final)
        log_p = log_prob(pi, a, b, f)
        expected = enumerate_paths(*(t.numpy() for t in (initial, transition, log_b.exp())), _array(final))
        assert_allclose(log_p.item(), expected.log_prob, rtol=1e-12)
        log_p.sum().backward()
        assert_allclose(b.grad, expected.gamma, atol=1e-12)
        assert_allclose(a.grad * transition, expected.xi, atol=1e-12)
        assert_allclose(pi.grad * initial, expected.gamma[0], atol=1e-12)
        assert (a.grad[transition == 0] == 0).all()
        assert (pi.grad[initial == 0] == 0).all()
        if final is not None:
            assert_allclose(f.grad * final, expected.gamma[-1], atol=1e-12)
            assert (f.grad[final == 0] == 0).all()
        n_possible += np.isfinite(expected.log_prob)
    assert n_possible > 20


def _array(final: Tensor | None) -> Any:
    return None if final is None else final.numpy()


@pytest.mark.parametrize("with_final", [False, True])
@pytest.mark.parametrize("own_starts", [False, True])
def test_finite_differences(with_final: bool, own_starts: bool) -> None:
    lengths = [3, 1, 4]
    initial, transition, log_b, final = problem(1, lengths, 3, with_final)
    if own_starts:
        initial = torch.stack([initial.roll(i) for i in range(len(lengths))])
    inputs = [initial, transition, log_b, *([] if final is None else [final])]

    def run(pi: Tensor, a: Tensor, b: Tensor, f: Tensor | None = None) -> Tensor:
        return log_prob(pi, a, b, f, lengths=lengths)

    assert torch.autograd.gradcheck(run, leaves(*inputs))  # each sequence by itself: gradients that differ come in


@pytest.mark.parametrize("far", [False, True])
def test_gradients_that_differ_by_sequence_are_weights(far: bool) -> None:
    lengths = [4, 2, 5]
    initial, transition, log_b, final = problem(2, lengths, 3, True, False)
    if far:  # a belief of e^-2000 is the only way to the last frame: only logarithms can tell
        transition = torch.tensor([[0.9, 0, 0], [0, 0.4, 0.5], [0, 0, 0.8]], dtype=F64)
        final, initial = 1 - transition.sum(1), torch.tensor([0.5, 0.5, 0.0], dtype=F64)
        log_b = torch.tensor([0.0, -2000, -5000], dtype=F64).repeat(len(log_b), 1)
        log_b[torch.tensor(lengths).cumsum(0) - 1] = torch.tensor([-1e5, -1e5, 0], dtype=F64)
        assert filter(initial, transition, log_b, final, lengths=lengths).alpha[0, 1] == 0
    weights = torch.tensor([1.5, -0.5, 0.0], dtype=F64)
    pi, a, b, f = leaves(initial, transition, log_b, final)
    (log_prob(pi, a, b, f, lengths=lengths) * weights).sum().backward()
    total = torch.zeros_like(transition)
    for w, alone, gradient in zip(weights, log_b.split(lengths), b.grad.split(lengths), strict=True):
        found = forward_backward(initial, transition, alone, final)
        total += w * found.xi
        assert_allclose(gradient, w * found.gamma, atol=1e-12)
    assert_allclose(a.grad * transition, total, atol=1e-12)


def test_d_log_b_is_gamma_of_long_sequences_cut_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [700, 3, 90]
    initial, transition, log_b, final = problem(3, lengths, 4, True)
    expected = forward_backward(initial, transition, log_b, final, lengths=lengths)
    monkeypatch.setattr(parallel_segments, "_best_size", lambda *_: 200)
    pi, a, b, f = leaves(initial, transition, log_b, final)
    log_p = log_prob(pi, a, b, f, lengths=lengths)
    assert_allclose(log_p.detach(), expected.log_prob, rtol=1e-10)
    log_p.sum().backward()
    assert_allclose(b.grad, expected.gamma, atol=1e-10)
    assert_allclose(a.grad * transition, expected.xi, atol=1e-8)


def test_an_impossible_sequence_has_no_gradient_and_spoils_no_other() -> None:
    initial, transition, log_b, _ = problem(4, [2, 3])
    log_b[2:] = -torch.inf
    log_b[:, 0] = torch.where(log_b[:, 0].isinf(), -torch.inf, log_b[:, 0])
    a, b = leaves(transition, log_b)
    log_p = log_prob(initial, a, b, lengths=[2, 3])
    assert log_p[1] == -torch.inf
    log_p[0].backward()
    assert torch.isfinite(a.grad).all()
    assert (b.grad[2:] == 0).all()
    assert_allclose(b.grad[:2].sum(1), 1, rtol=1e-12)


def test_float32_densities_and_no_second_derivative() -> None:
    initial, transition, log_b, _ = problem(5, [6, 4])
    b, a = leaves(log_b.float(), transition)
    log_p = log_prob(initial, a, b, lengths=[6, 4])
    assert log_p.dtype == F64
    (first,) = torch.autograd.grad(log_p.square().sum(), a, create_graph=True)
    assert first.dtype == F64
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
    log_p = log_prob(initial, transition, b, lengths=[6, 4])
    log_p.sum().backward()
    assert b.grad.dtype == torch.float32
    assert_allclose(b.grad.sum(1), 1, rtol=1e-5)


def test_without_gradients_it_is_the_forward_pass() -> None:
    initial, transition, log_b, final = problem(6, [3], 2, True)
    log_p = log_prob(initial, transition, log_b, final)
    assert not log_p.requires_grad
    paths = path_probabilities(*(t.numpy() for t in (initial, transition, log_b.exp())))
    assert final is not None
    assert_allclose(log_p.exp().item(), sum(p * float(final[z[-1]]) for z, p in paths.items()), rtol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_transitions_of_each_step_against_every_path(sparse: bool) -> None:
    rng, lengths = np.random.default_rng(7), [4, 1, 3]
    whole = parallel_segments.Segments.whole(lengths)
    for seed in range(5):
        initial, transition, log_b, _ = problem(seed, lengths, 3, sparse=sparse)
        slopes, inputs = torch.as_tensor(rng.normal(size=(3, 3, 2))), torch.as_tensor(rng.normal(size=(8, 2)))
        weights = torch.as_tensor(rng.uniform(0.5, 2.0, len(lengths)))

        def by_paths(pi: Tensor, a: Tensor, w: Tensor, b: Tensor, inputs: Tensor = inputs) -> Tensor:
            log_a, first, totals = log_transitions(a, w, inputs).exp(), 0, []
            for n in lengths:
                total = torch.zeros((), dtype=F64)
                for path in itertools.product(range(3), repeat=n):
                    p = pi[path[0]] * b[first, path[0]].exp()
                    for t in range(1, n):
                        p = p * log_a[first + t, path[t - 1], path[t]] * b[first + t, path[t]].exp()
                    total = total + p
                totals.append(total.log())
                first += n
            return torch.stack(totals)

        def as_operation(pi: Tensor, a: Tensor, w: Tensor, b: Tensor, inputs: Tensor = inputs) -> Tensor:
            log_a = whole.packing.pack(log_transitions(a, w, inputs))
            return log_prob_of_segments(pi, a, whole.packing.pack(b), whole, None, log_a)

        results = []
        for function in (by_paths, as_operation):
            of_function = leaves(initial, transition, slopes, log_b)
            values = function(*of_function)
            (weights * values).sum().backward()
            by_initial, *others = (leaf.grad for leaf in of_function)
            by_initial[initial == 0] = 0.0  # which the operation takes it to be
            results.append([values.detach(), by_initial, *others])
        for expected, found in zip(*results, strict=True):
            assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
