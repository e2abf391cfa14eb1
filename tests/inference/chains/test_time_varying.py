"""Transitions that differ from step to step, against every path written out, and where they are all the same."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from seqmodels.inference.chains import time_varying
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.forward_backward import forward_backward_pass, forward_pass
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.sampling import sample_paths
from seqmodels.inference.chains.time_varying import log_transitions
from seqmodels.inference.chains.trellis import Trellis
from seqmodels.inference.chains.viterbi import best_paths, log_prob_of_paths
from tests.inference.chains.enumeration import random_model

LENGTHS = (4, 1, 3)
K = 3


def problem(seed: int, *, sparse: bool) -> tuple[Trellis, np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """A trellis; its initial distribution, and for each sequence densities and transitions into each step."""
    rng = np.random.default_rng(seed)
    initial, transition, _ = random_model(rng, K, False, sparse)
    slopes = torch.tensor(rng.normal(size=(K, K, 2)))
    b = [rng.uniform(0.05, 1.0, (n, K)) for n in LENGTHS]
    inputs = [rng.normal(size=(n, 2)) for n in LENGTHS]
    segments = Segments.whole(LENGTHS)
    log_a = log_transitions(torch.tensor(transition), slopes, torch.tensor(np.concatenate(inputs)))
    log_b = LogDensities(segments.packing.pack(torch.tensor(np.concatenate(b)).log()))
    trellis = Trellis.of(torch.tensor(initial), torch.tensor(transition), log_b, segments)
    of_each = [part.numpy() for part in log_a.exp().split(list(LENGTHS))]
    return replace(trellis, log_transitions=segments.packing.pack(log_a)), initial, b, of_each


def paths_of(initial: np.ndarray, b: np.ndarray, a: np.ndarray) -> dict[tuple[int, ...], float]:
    paths = {}
    for path in itertools.product(range(K), repeat=len(b)):
        p = initial[path[0]] * b[0, path[0]]
        for t in range(1, len(b)):
            p *= a[t, path[t - 1], path[t]] * b[t, path[t]]
        paths[path] = float(p)
    return paths


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_every_path_written_out(seed: int, sparse: bool) -> None:
    trellis, initial, b, a = problem(seed, sparse=sparse)
    posterior, filtered = forward_backward_pass(trellis), forward_pass(trellis)
    assert posterior.transitions is not None
    gammas, xis = (trellis.packing.split(each) for each in (posterior.gamma, posterior.transitions))
    steps, alphas = trellis.packing.split(filtered.steps), trellis.packing.split(filtered.alpha)
    best, log_best = best_paths(trellis)
    total_xi = np.zeros((K, K))
    for i, found in enumerate(best.split(list(LENGTHS))):
        paths = paths_of(initial, b[i], a[i])
        total = sum(paths.values())
        assert float(posterior.log_prob[i]) == pytest.approx(np.log(total), abs=1e-12)
        gamma, xi = np.zeros((len(b[i]), K)), np.zeros((len(b[i]), K, K))
        for path, p in paths.items():
            for t, state in enumerate(path):
                gamma[t, state] += p / total
                if t:
                    xi[t, path[t - 1], state] += p / total
        np.testing.assert_allclose(gammas[i], gamma, atol=1e-12)
        np.testing.assert_allclose(xis[i], xi, atol=1e-12)
        total_xi += xi.sum(0)
        prefixes = [sum(paths_of(initial, b[i][: t + 1], a[i]).values()) for t in range(len(b[i]))]
        np.testing.assert_allclose(steps[i], np.diff(np.log(prefixes), prepend=0.0), atol=1e-12)
        np.testing.assert_allclose(alphas[i][-1], gamma[-1], atol=1e-12)
        assert paths[tuple(found.tolist())] == pytest.approx(max(paths.values()))
        assert float(log_best[i]) == pytest.approx(np.log(max(paths.values())))
    np.testing.assert_allclose(posterior.xi, total_xi, atol=1e-12)
    assert torch.allclose(log_prob_of_paths(trellis, best), log_best)


def test_drawn_paths_have_the_posterior() -> None:
    trellis, *_ = problem(0, sparse=False)
    paths, log_prob = sample_paths(trellis, 20_000, torch.Generator().manual_seed(0))
    paths, posterior = trellis.packing.pack(paths), forward_backward_pass(trellis)
    assert torch.allclose(log_prob, posterior.log_prob)
    shares = torch.stack([(paths == k).double().mean(1) for k in range(K)], 1)
    assert float((shares - posterior.gamma).abs().max()) < 0.02
    later, before = slice(len(LENGTHS), None), trellis.packing.previous
    pairs = torch.nn.functional.one_hot(paths[before] * K + paths[later], K * K).double().mean(1)
    assert posterior.transitions is not None
    assert float((pairs - posterior.transitions[later].flatten(1)).abs().max()) < 0.02


def test_slopes_of_zero_are_no_inputs() -> None:
    trellis, *_ = problem(1, sparse=True)
    n = trellis.packing.n_frames
    plain = replace(trellis, log_transitions=None)
    at_zero = replace(trellis, log_transitions=trellis.transition.log().expand(n, -1, -1).contiguous())
    left, right = forward_backward_pass(plain), forward_backward_pass(at_zero)
    for name in ("log_prob", "gamma", "xi", "initial", "final"):
        assert torch.allclose(getattr(left, name), getattr(right, name), atol=1e-12)
    assert torch.equal(best_paths(plain)[0], best_paths(at_zero)[0])


def test_weights_of_sequences_and_a_part_of_them() -> None:
    trellis, *_ = problem(2, sparse=False)
    weights = torch.tensor([2.0, 0.0, 1.0], dtype=torch.float64)
    weighted = forward_backward_pass(replace(trellis, weights=weights))
    whole = forward_backward_pass(trellis)
    assert whole.transitions is not None
    of_each = weights[trellis.packing.sequence]
    assert torch.allclose(weighted.xi, torch.einsum("n,nij->ij", of_each, whole.transitions))
    part, rows = trellis.take(torch.tensor([2]))
    assert torch.allclose(forward_backward_pass(part).gamma, whole.gamma[rows])


def test_an_impossible_sequence() -> None:
    trellis, *_ = problem(3, sparse=False)
    log_b = trellis.densities.log().clone()
    log_b[trellis.segments.rows(torch.tensor([0]), torch.tensor([2]))] = -torch.inf
    found = forward_backward_pass(replace(trellis, densities=LogDensities(log_b)))
    assert found.log_prob[0] == -torch.inf
    assert torch.isfinite(found.log_prob[1:]).all()
    assert not found.gamma.isnan().any()
    assert found.transitions is not None
    assert not found.transitions.isnan().any()


@pytest.mark.parametrize("sparse", [False, True])
def test_compiled_loops_are_the_tensor_operations(sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    for seed in range(3):
        trellis, *_ = problem(seed, sparse=sparse)
        log_b = trellis.densities.log().clone()
        if seed == 2:  # and an impossible sequence
            log_b[trellis.segments.rows(torch.tensor([2]), torch.tensor([1]))] = -torch.inf
        trellis = replace(trellis, densities=LogDensities(log_b))
        compiled = forward_backward_pass(trellis), forward_pass(trellis)
        with monkeypatch.context() as patch:
            patch.setattr(time_varying, "is_compiling", lambda: False)
            expected = forward_backward_pass(trellis), forward_pass(trellis)
        for left, right in zip(compiled, expected, strict=True):
            for name, value in vars(right).items():
                if value is not None:
                    torch.testing.assert_close(getattr(left, name), value, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("case", ["dense", "sparse", "ties", "levels of -1e9"])
def test_best_paths_in_loops_are_those_of_tensor_operations(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    rng, lengths = np.random.default_rng(0), (40, 1, 7, 40)
    segments = Segments.whole(lengths)
    log_b = torch.tensor(rng.normal(size=(sum(lengths), K)))
    log_b[rng.random(log_b.shape) < 0.1] = -torch.inf
    if case == "levels of -1e9":
        log_b -= 1e9 * torch.tensor(rng.random((len(log_b), 1)))
    log_a = torch.tensor(rng.dirichlet(np.ones(K), (len(log_b), K))).log()
    initial, transition, final = (torch.tensor(each) for each in random_model(rng, K, True, case == "sparse"))
    if case == "sparse":
        log_a[torch.tensor(rng.random(log_a.shape) < 0.2)] = -torch.inf
    if case == "ties":
        log_b, log_a, initial = log_b.round(), torch.zeros_like(log_a), torch.ones_like(initial)
    trellis = Trellis.of(initial, transition, LogDensities(log_b), segments, final)
    trellis = replace(trellis, log_transitions=log_a)
    with monkeypatch.context() as patch:
        patch.setattr(time_varying, "is_compiling", lambda: False)
        path, log_prob = best_paths(trellis)
    found, log_found = best_paths(trellis)
    possible = torch.isfinite(log_prob)
    assert int(possible.sum()) >= 2
    assert torch.equal(torch.isfinite(log_found), possible)
    is_possible = possible.repeat_interleave(torch.tensor(lengths))
    assert torch.equal(found[is_possible], path[is_possible])
    assert torch.equal(log_found[possible], log_prob[possible])
