from __future__ import annotations

import itertools
import math
from functools import cache, partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from seqmodels.inference.chains import filter, forward_backward, log_space, scaled, smooth, textbook
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import Posterior, Trellis
from tests.inference.chains.enumeration import Array, Enumerated, enumerate_paths, random_model

pytestmark = pytest.mark.usefixtures("recursions")


def tensor(array: Array) -> Tensor:
    return torch.as_tensor(array, dtype=torch.float64)


def scaled_forward_backward(trellis: Trellis) -> tuple[Posterior, Tensor]:
    """One attempt, without what is computed again: the result, and which sequences it does not hold for."""
    return scaled.backward(trellis, scaled.forward(trellis, bounded=False))


def trellis_of(
    initial: Tensor, transition: Tensor, log_b: Tensor, final: Tensor | None = None, lengths: list[int] | None = None
) -> Trellis:
    """Whole sequences, from frames one sequence after the other."""
    segments = Segments.whole([len(log_b)] if lengths is None else lengths)
    return Trellis.of(initial, transition, LogDensities(segments.packing.pack(log_b)), segments, final)


def optional(array: Array | None) -> Tensor | None:
    return None if array is None else tensor(array)


def log(b: Array) -> Tensor:
    return tensor(b).log()


def random_case(seed: int) -> tuple[Array, Array, Array | None, Array]:
    """A small model and one sequence's b (T, K); every third is sparse, every fifth has frames some states cannot
    emit."""
    rng = np.random.default_rng(seed)
    K, T = int(rng.integers(1, 5)), int(rng.integers(1, 7))
    initial, transition, final = random_model(rng, K, with_final=bool(seed % 2), sparse=seed % 3 == 0)
    b = rng.gamma(0.5, size=(T, K))
    return initial, transition, final, b * (rng.random((T, K)) > 0.2) if seed % 5 == 0 else b


def random_batch(seed: int, lengths: list[int], K: int = 4) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """``initial``, ``transition``, ``final`` and one (T, K) log b a sequence."""
    rng = np.random.default_rng(seed)
    initial, transition, final = random_model(rng, K, with_final=True, sparse=False)
    assert final is not None
    return tensor(initial), tensor(transition), tensor(final), [tensor(rng.normal(size=(n, K))) for n in lengths]


def assert_posterior(got: Posterior, expected: Enumerated, rtol: float = 1e-12) -> None:
    close = partial(assert_allclose, rtol=rtol, atol=1e-13)
    close(got.log_prob.numpy(), [expected.log_prob])
    close(got.gamma.numpy(), expected.gamma)
    close(got.xi.numpy(), expected.xi)
    close(got.initial.numpy(), expected.gamma[0])
    close(got.final.numpy(), expected.gamma[-1])


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_equals_the_sum_over_every_path(first: int) -> None:
    for seed in range(first, first + 50):
        initial, transition, final, b = random_case(seed)
        expected = enumerate_paths(initial, transition, b, final)
        arguments = (tensor(initial), tensor(transition), log(b), optional(final))
        result = filter(*arguments)
        possible = np.isfinite(expected.steps)
        assert_allclose(result.steps[possible].numpy(), expected.steps[possible], rtol=1e-12, atol=1e-13)
        assert (result.steps[~possible] == -torch.inf).all()
        assert_allclose(result.alpha.numpy(), expected.alpha, rtol=1e-12, atol=1e-13)
        assert (result.ends is None) == (final is None)
        if result.ends is not None:
            assert_allclose(result.ends.numpy(), [expected.end], rtol=1e-12, atol=1e-13)
        if np.isfinite(expected.log_prob):
            assert_posterior(forward_backward(*arguments), expected)
        else:
            with pytest.raises(ValueError, match="sequence 0 has probability zero"):
                forward_backward(*arguments)


def test_the_fast_algorithms_equal_the_textbook() -> None:
    n_compared = 0
    for seed in range(60):
        initial, transition, final, b = random_case(seed)
        arguments = (tensor(initial), tensor(transition), log(b), optional(final))
        log_prob, gamma, xi = textbook.forward_backward(*arguments)
        if log_prob == -torch.inf:
            continue
        n_compared += 1
        found = forward_backward(*arguments)
        assert_allclose(found.log_prob, log_prob[None], rtol=1e-12)
        assert_allclose(found.gamma, gamma, atol=1e-12)
        assert_allclose(smooth(*arguments), gamma, atol=1e-12)
        assert_allclose(found.xi, xi.sum(0), atol=1e-12)
        log_alpha = textbook.forward(*arguments[:3])
        filtered = filter(*arguments)
        assert_allclose(filtered.alpha, log_alpha.softmax(1), atol=1e-12)
        assert_allclose(filtered.steps.cumsum(0), log_alpha.logsumexp(1), rtol=1e-12, atol=1e-13)
    assert n_compared > 40


def test_each_method_is_right_by_itself() -> None:
    for seed in range(1, 60, 3):  # none sparse: scaling must not leave these to logarithms
        initial, transition, final, b = random_case(seed)
        b = np.maximum(b, 1e-9)
        trellis = trellis_of(tensor(initial), tensor(transition), log(b), optional(final))
        expected = enumerate_paths(initial, transition, b, final)
        found, failed = scaled_forward_backward(trellis)
        assert not failed.any()
        assert not scaled.forward(trellis).failed.any()
        assert_posterior(found, expected)
        assert_posterior(log_space.forward_backward_pass(trellis), expected)


def test_float32_is_as_good_as_its_rounding() -> None:
    lengths = [40, 7, 23]
    initial, transition, final, log_bs = random_batch(3, lengths)
    log_b = torch.cat(log_bs)
    trellis = trellis_of(initial, transition, log_b.float(), final, lengths)
    assert not scaled_forward_backward(trellis)[1].any()
    single = forward_backward(initial, transition, log_b.float(), final, lengths=lengths)
    double = forward_backward(initial, transition, log_b, final, lengths=lengths)
    assert single.gamma.dtype == torch.float32
    assert single.log_prob.dtype == single.xi.dtype == torch.float64
    assert_allclose(single.log_prob, double.log_prob, rtol=1e-6)
    assert_allclose(single.gamma, double.gamma, atol=1e-5)
    assert_allclose(single.xi, double.xi, rtol=1e-5)


def test_ragged_batch_equals_one_at_a_time() -> None:
    lengths = [3, 9, 1, 9, 4, 17]
    initial, transition, final, log_bs = random_batch(0, lengths)
    log_b = torch.cat(log_bs)
    starts = torch.stack([initial.roll(i) for i in range(len(lengths))])  # a start of its own for each
    ran = filter(starts, transition, log_b, final, lengths=lengths)
    together = forward_backward(starts, transition, log_b, final, lengths=lengths)
    alone = [forward_backward(s, transition, x, final) for s, x in zip(starts, log_bs, strict=True)]
    steps = [filter(s, transition, x, final) for s, x in zip(starts, log_bs, strict=True)]
    assert ran.ends is not None
    assert_allclose(ran.steps, torch.cat([each.steps for each in steps]), rtol=1e-12, atol=1e-13)
    assert_allclose(ran.ends, torch.cat([each.ends for each in steps if each.ends is not None]), rtol=1e-12)
    assert_allclose(together.log_prob, torch.cat([a.log_prob for a in alone]), rtol=1e-12)
    assert_allclose(together.gamma, torch.cat([a.gamma for a in alone]), rtol=1e-12)
    for name in ("xi", "initial", "final"):
        assert_allclose(getattr(together, name), sum(getattr(a, name) for a in alone), rtol=1e-12)


def test_order_and_company_do_not_matter() -> None:
    lengths = [3, 9, 1, 9, 4, 17]
    initial, transition, final, log_bs = random_batch(1, lengths)
    one = forward_backward(initial, transition, torch.cat(log_bs), final, lengths=lengths)
    other = forward_backward(initial, transition, torch.cat(log_bs[::-1]), final, lengths=lengths[::-1])
    assert_allclose(one.log_prob, other.log_prob.flip(0), rtol=1e-12)
    assert_allclose(one.xi, other.xi, rtol=1e-12)
    reordered = torch.cat(other.gamma.split(lengths[::-1])[::-1])
    assert_allclose(one.gamma, reordered, rtol=1e-12, atol=1e-15)


def test_a_chain_goes_on_from_a_belief() -> None:
    initial, transition, _, (log_b,) = random_batch(2, [20])
    transition = transition / transition.sum(1, keepdim=True)
    whole = filter(initial, transition, log_b)
    head = filter(initial, transition, log_b[:8])
    tail = filter(head.alpha[-1:] @ transition, transition, log_b[8:])
    assert_allclose(torch.cat([head.steps, tail.steps]), whole.steps, rtol=1e-12, atol=1e-13)


def test_agrees_with_hmmlearn() -> None:
    rng = np.random.default_rng(0)
    model = pytest.importorskip("hmmlearn.hmm").GaussianHMM(3, covariance_type="diag", implementation="log")
    model.startprob_, model.transmat_ = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), size=3)
    variances, model.n_features = rng.uniform(0.5, 2, size=(3, 2)), 2
    model.means_, model.covars_ = rng.normal(size=(3, 2)) * 2, variances
    X, lengths = rng.normal(size=(60, 2)) * 3, [25, 5, 30]
    squares = (X[:, None] - model.means_) ** 2 / variances
    log_b = tensor(-0.5 * (squares + np.log(2 * np.pi * variances)).sum(2))
    got = forward_backward(tensor(model.startprob_), tensor(model.transmat_), log_b, lengths=lengths)
    log_prob, gamma = model.score_samples(X, lengths)
    assert_allclose(got.log_prob.sum(), log_prob, rtol=1e-8)
    assert_allclose(got.gamma, gamma, atol=1e-8)


def test_agrees_with_pyro() -> None:
    dist = pytest.importorskip("pyro.distributions")

    _, transition, _, _ = random_batch(4, [1])
    transition = transition / transition.sum(1, keepdim=True)
    before = tensor(np.array([0.1, 0.2, 0.3, 0.4]))  # Pyro makes one transition before the first observation
    observation = dist.Normal(torch.arange(4.0, dtype=torch.float64), torch.ones(4, dtype=torch.float64))
    x = torch.linspace(-1, 4, 30, dtype=torch.float64)
    expected = dist.DiscreteHMM(before.log(), transition.log(), observation, duration=30).log_prob(x)
    found = filter(before @ transition, transition, observation.log_prob(x[:, None]))
    assert found.ends is None
    assert_allclose(found.steps.sum(), expected, rtol=1e-12)


# -- where scaling gives out -------------------------------------------------------------------------------


def log_paths(initial: Array, transition: Array, log_b: Array, final: Array) -> tuple[Array, float, Array]:
    """(T,) log p(x_1..x_t), log p(x) and gamma by enumeration in logarithms."""
    T, K = log_b.shape
    with np.errstate(divide="ignore"):
        log_initial, log_a, log_final = np.log(initial), np.log(transition), np.log(final)
    prefixes = np.full((T, K**T), -np.inf)
    paths = np.array(list(itertools.product(range(K), repeat=T)))
    total = log_initial[paths[:, 0]] + log_b[0, paths[:, 0]]
    for t in range(T):
        if t:
            total = total + log_a[paths[:, t - 1], paths[:, t]] + log_b[t, paths[:, t]]
        prefixes[t] = total - (T - 1 - t) * np.log(K)  # each prefix stands for K^(T-1-t) paths
    log_prefix = np.logaddexp.reduce(prefixes, axis=1)
    total = total + log_final[paths[:, -1]]
    log_prob = float(np.logaddexp.reduce(total))
    weights = np.exp(total - log_prob)
    return log_prefix, log_prob, np.stack([[weights[paths[:, t] == k].sum() for k in range(K)] for t in range(T)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sharp_left_to_right_models_keep_their_true_figures(dtype: torch.dtype) -> None:
    transition = np.array([[0.5, 0.5, 0.0], [0.0, 0.6, 0.4], [0.0, 0.0, 0.7]])
    initial, final, n_failed = np.array([0.9, 0.1, 0.0]), np.array([0.0, 0.0, 0.3]), 0
    for seed in range(25):
        log_b = np.random.default_rng(seed).integers(-4000, 0, size=(6, 3)).astype(float)
        log_prefix, log_prob, gamma = log_paths(initial, transition, log_b, final)
        arguments = (tensor(initial), tensor(transition), torch.as_tensor(log_b, dtype=dtype), tensor(final))
        n_failed += int(scaled_forward_backward(trellis_of(*arguments))[1].sum())
        result, smoothed = filter(*arguments), forward_backward(*arguments)
        assert result.ends is not None
        assert_allclose(result.steps.cumsum(0), log_prefix, rtol=1e-9)
        assert_allclose(result.steps.sum() + result.ends[0], log_prob, rtol=1e-9)
        assert_allclose(smoothed.log_prob, [log_prob], rtol=1e-9)
        assert_allclose(smoothed.gamma, gamma, atol=1e-6 if dtype == torch.float32 else 1e-9)
    assert n_failed > 5


@pytest.mark.parametrize("lost", [50, 90, 400, 900])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_that_all_but_vanished_comes_back(dtype: torch.dtype, lost: int) -> None:
    # Nothing returns to state 0. It is all but excluded by the first frame, and the only one for the last.
    transition = tensor(np.array([[0.9, 0.1], [0.0, 1.0]]))
    log_b = torch.tensor([[-lost, 0.0], [0.0, 0.0], [0.0, -5000.0]], dtype=dtype)
    expected = np.log(0.5) - lost + 2 * np.log(0.9)
    result = filter(tensor(np.array([0.5, 0.5])), transition, log_b)
    assert_allclose(result.steps.sum(), expected, rtol=1e-6 if dtype == torch.float32 else 1e-12)
    gamma = smooth(tensor(np.array([0.5, 0.5])), transition, log_b)
    assert_allclose(gamma, [[1, 0], [1, 0], [1, 0]], atol=1e-6)


def test_a_state_that_mattered_in_the_middle_only() -> None:
    # State 0 sinks below what float32 can hold, is level with state 1 for a while, and does not matter for the whole.
    log_b = torch.tensor([[-50.0, 0.0], [-50.0, 0.0], [0.0, -50.0], [0.0, -49.0], [-60.0, 0.0], [-60.0, 0.0]])
    stay, start = torch.eye(2, dtype=torch.float64), tensor(np.array([0.5, 0.5]))
    steps = filter(start, stay, log_b).steps
    expected = torch.logsumexp(log_b.double().cumsum(0) + np.log(0.5), 1)
    assert_allclose(steps.cumsum(0), expected, atol=1e-5)


def test_only_a_state_lost_by_float32_can_end() -> None:
    half, final = torch.full((2, 2), 0.5, dtype=torch.float64), tensor(np.array([0.0, 0.25]))
    log_b = torch.tensor([[0.0, 0.0], [0.0, -200.0]])
    result = filter(half[0], half, log_b, final)
    assert result.ends is not None
    assert_allclose(result.steps, [0.0, np.log(0.5)], atol=1e-6)
    assert_allclose(result.ends, [np.log(0.25) - 200.0], rtol=1e-6)


def test_one_that_scaling_fails_leaves_the_sums_of_the_others_whole() -> None:
    stay, start = torch.eye(2, dtype=torch.float64), tensor(np.array([1.0, 0.0]))
    forced = torch.tensor([[-5.0, -5.0], [-2000.0, 0.0], [-5.0, -5.0]])
    log_b = torch.cat([torch.zeros(3, 2), forced]).double()
    together = forward_backward(start, stay, log_b, lengths=[3, 3])
    assert_allclose(together.log_prob, [0.0, -2010.0], atol=1e-12)
    assert_allclose(together.xi, [[4.0, 0.0], [0.0, 0.0]], atol=1e-12)
    assert_allclose(together.initial, [2.0, 0.0], atol=1e-12)
    assert_allclose(together.final, [2.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_forced_improbable_state_is_not_clamped(dtype: torch.dtype) -> None:
    log_b = torch.tensor([[-40387.375, 0.0], [-1.0, 0.0]], dtype=dtype)
    identity = torch.eye(2, dtype=torch.float64)
    result = filter(tensor(np.array([1.0, 0.0])), identity, log_b)
    assert result.steps.tolist() == [-40387.375, -1.0]


def test_an_impossible_sequence_is_minus_infinity_and_has_no_posterior() -> None:
    log_b = torch.zeros(4, 2, dtype=torch.float64)
    log_b[2] = -torch.inf
    stay, start = torch.eye(2, dtype=torch.float64), tensor(np.array([0.5, 0.5]))
    both = torch.cat([torch.zeros(2, 2, dtype=torch.float64), log_b])
    good, bad = filter(start, stay, both, lengths=[2, 4]).steps.split([2, 4])
    assert_allclose(good, [0.0, 0.0], atol=1e-15)
    assert_allclose(bad[:2], [0.0, 0.0], atol=1e-15)
    assert bad[2:].tolist() == [-torch.inf, -torch.inf]
    with pytest.raises(ValueError, match="sequence 1 has probability zero"):
        forward_backward(start, stay, both, lengths=[2, 4])


# -- long sequences ----------------------------------------------------------------------------------------


def long_case(stay: float, T: int = 6000, K: int = 5) -> tuple[Trellis, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """The problem uncut, and the arguments of the public functions but for the lengths T and 150."""
    initial, transition, final, log_bs = random_batch(5, [T, 150], K)
    final = final * 0.01
    transition = transition / transition.sum(1, keepdim=True) * (1 - stay) + stay * torch.eye(K, dtype=torch.float64)
    transition = transition * (1 - final)[:, None]
    arguments = (initial, transition, torch.cat(log_bs), final)
    return trellis_of(*arguments, [T, 150]), arguments


def in_segments(trellis: Trellis, size: int, margin: int) -> tuple[Trellis, Tensor]:
    """The same problem cut as told, and the row of the whole one of each of its rows."""
    return trellis.cut(Segments.of_size(trellis.segments.lengths, size, margin))


def in_fastest_segments(trellis: Trellis) -> tuple[Trellis, Tensor]:
    """The same problem cut where it pays."""
    dtype, n_states = trellis.densities.dtype, len(trellis.transition)
    return trellis.cut(Segments.fastest(trellis.segments.lengths, n_states, dtype))


def assert_close(parts: Posterior, whole: Posterior, rows: Tensor) -> None:
    assert_allclose(parts.gamma, whole.gamma[rows], rtol=1e-9, atol=1e-12)
    for name in ("log_prob", "xi", "initial", "final"):
        assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-9, atol=1e-12)


def test_segments_equal_the_sequence_from_end_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "seqmodels.inference.chains.parallel_segments._has_numba", lambda: False
    )  # compiled loops need no segments
    trellis, arguments = long_case(stay=0.0)
    cut, rows = in_fastest_segments(trellis)
    assert cut.packing.n_sequences > 5
    (parts, failed), (whole, _) = scaled_forward_backward(cut), scaled_forward_backward(trellis)
    assert not failed.any()
    assert_close(parts, whole, rows)
    found, sequential = filter(*arguments, lengths=[6000, 150]), scaled.forward(trellis)
    unpack = trellis.packing.unpack
    assert found.ends is not None
    assert_allclose(found.steps, unpack(sequential.steps), rtol=1e-9)
    assert_allclose(found.alpha, unpack(sequential.alpha), rtol=1e-9, atol=1e-12)
    assert_allclose(found.ends, sequential.ends, rtol=1e-9)


@pytest.mark.parametrize("lengths", [[500, 700, 200, 900], [400, 401, 1, 399], [800, 192, 193]])
def test_segments_of_every_length(lengths: list[int]) -> None:
    initial, transition, final, log_bs = random_batch(9, lengths)
    trellis = trellis_of(initial, transition, torch.cat(log_bs), final, lengths)
    whole, _ = scaled_forward_backward(trellis)
    for size in (192, 200, 333, 400):
        cut, rows = in_segments(trellis, size, margin=192)
        parts, failed = scaled_forward_backward(cut)
        assert not failed.any()
        assert_close(parts, whole, rows)


def test_a_chain_that_remembers_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "seqmodels.inference.chains.parallel_segments._has_numba", lambda: False
    )  # compiled loops need no segments
    trellis, arguments = long_case(stay=0.9999)
    cut, _ = in_fastest_segments(trellis)
    assert not cut.segments.is_whole
    assert scaled.forward(cut).failed.tolist() == [True, False]
    found, failed = scaled_forward_backward(cut)
    assert failed.tolist() == [True, False]
    whole, _ = scaled_forward_backward(trellis)
    assert abs(found.log_prob[0] - whole.log_prob[0]) > 1e-6  # what the check is there to keep out
    result = forward_backward(*arguments, lengths=[6000, 150])
    assert_allclose(result.log_prob, whole.log_prob, rtol=1e-13)
    assert_allclose(result.gamma, trellis.packing.unpack(whole.gamma), rtol=1e-9, atol=1e-12)
    assert_allclose(result.xi, whole.xi, rtol=1e-9)


@pytest.mark.parametrize(("known", "forward"), [([0, 400], True), ([799], False)])
def test_either_direction_alone_finds_what_a_segment_cannot_know(known: list[int], forward: bool) -> None:
    # Nothing tells the two states apart but a few frames, more than a margin away from where it matters.
    transition = tensor(np.array([[0.9999, 0.0001], [0.0001, 0.9999]]))
    log_b = torch.zeros(800, 2, dtype=torch.float64)
    log_b[known] = tensor(np.array([0.0, -50.0]))
    trellis = trellis_of(transition.mean(0), transition, log_b)
    cut, _ = in_segments(trellis, size=400, margin=192)
    assert scaled.forward(cut).failed.item() == forward
    assert scaled_forward_backward(cut)[1].item()


@cache
def long_sequence() -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """A chain, log-densities of 100,000 steps that float32 holds, and their log-probability, summed exactly."""
    rng, (T, K) = np.random.default_rng(0), (100_000, 6)
    initial, transition, _ = random_model(rng, K, with_final=False, sparse=False)
    log_b = (2 * rng.normal(size=(T, K))).astype(np.float32).astype(float)
    belief, scales = initial, []
    for b in np.exp(log_b):  # as it is written
        joint = belief * b
        scales.append(np.log(joint.sum()))
        belief = joint / joint.sum() @ transition
    return initial, transition, log_b, math.fsum(scales)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-7), (torch.float64, 1e-12)])
def test_a_long_sequence_loses_nothing(dtype: torch.dtype, rtol: float) -> None:
    initial, transition, log_b, expected = long_sequence()
    found = filter(tensor(initial), tensor(transition), torch.as_tensor(log_b, dtype=dtype))
    assert_allclose(found.steps.sum(), expected, rtol=rtol)


def test_short_sequences_are_left_whole() -> None:
    initial, transition, final, log_bs = random_batch(6, [300] * 20)
    trellis = trellis_of(initial, transition, torch.cat(log_bs), final, [300] * 20)
    assert in_fastest_segments(trellis)[0].segments.is_whole


# -- the door ----------------------------------------------------------------------------------------------


def test_a_single_frame() -> None:
    initial, transition, final, (log_b,) = random_batch(7, [1])
    result = forward_backward(initial, transition, log_b, final)
    joint = initial * log_b[0].exp() * final
    assert_allclose(result.log_prob, [joint.sum().log()], rtol=1e-12)
    assert_allclose(result.gamma[0], joint / joint.sum(), rtol=1e-12)
    assert not result.xi.any()


def test_shapes_are_checked() -> None:
    initial, transition, final, (log_b,) = random_batch(8, [5])
    with pytest.raises(ValueError, match=r"log_b has shape \(4, 4\), expected \(5, 4\)"):
        filter(initial, transition, log_b[:4], lengths=[5])
    with pytest.raises(ValueError, match="initial has shape"):
        filter(initial[:3], transition, log_b)
    with pytest.raises(ValueError, match="final has shape"):
        forward_backward(initial, transition, log_b, final[:2])
    with pytest.raises(ValueError, match="float16; pass float32 or float64"):
        forward_backward(initial, transition, log_b.half())
    with pytest.raises(ValueError, match="sequence 1 is empty"):
        forward_backward(initial, transition, log_b, lengths=[5, 0])


@pytest.mark.parametrize("by_state", [False, True])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_products_side_by_side_are_those_of_runs_of_rows(
    lead: tuple[int, ...], by_state: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaled, "ROWS_OF_A_PART", 4)
    monkeypatch.setattr(scaled, "GATHERED_AT_ONCE", 3 * 4 * 5)  # five parts
    packing, generator = Packing.of([1, 40, 13, 13, 7]), torch.Generator().manual_seed(0)
    alpha, ahead = torch.rand(2, *lead, packing.n_frames, 3, generator=generator, dtype=torch.float64)
    if by_state:
        alpha, ahead = (a.mT.contiguous().mT for a in (alpha, ahead))
    expected = scaled._products_of_neighbours(alpha, ahead, packing)
    torch.testing.assert_close(scaled._products_side_by_side(alpha, ahead, packing), expected, rtol=1e-12, atol=0)
