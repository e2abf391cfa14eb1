"""Segments that start and end exactly give what plain loops over the whole sequence give, whatever the chain."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from seqmodels.inference.chains import forward_backward, log_space, scaled, textbook
from seqmodels.inference.chains import parallel_segments as segments_module
from seqmodels.inference.chains.block_products import ScaledRows
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.forward_backward import forward_backward_pass, forward_pass
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import Trellis

LENGTHS = [130, 1, 37, 64, 16]
CHAINS = ["mixed", "left-to-right", "in blocks", "hardly moving", "periodic", "one state"]


@pytest.fixture(autouse=True)
def _tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a device: loops on a CPU need no segments."""
    monkeypatch.setattr(segments_module, "_has_numba", lambda: False)


def transition_of(name: str) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    mixed = torch.rand(4, 4, generator=generator, dtype=torch.float64)
    mixed = mixed / mixed.sum(1, keepdim=True)
    one = torch.ones(1, 1, dtype=torch.float64)
    if name == "left-to-right":
        ahead = torch.diag(torch.full((4,), 0.95)) + torch.diag(torch.full((3,), 0.05), 1)
        ahead[-1, -1] = 1.0
        return ahead.double()
    if name == "in blocks":
        pair = mixed[:2, :2] / mixed[:2, :2].sum(1, keepdim=True)
        return torch.block_diag(pair, one, one)
    if name == "hardly moving":
        return torch.full((4, 4), 1e-9, dtype=torch.float64).fill_diagonal_(1 - 3e-9)
    if name == "periodic":
        return torch.eye(4, dtype=torch.float64).roll(1, 1)
    return one if name == "one state" else mixed


def densities_of(kind: str, n_states: int) -> Tensor:
    """(N, K) nats of all sequences, one after the other."""
    generator = torch.Generator().manual_seed(2)
    log_b = torch.randn(sum(LENGTHS), n_states, generator=generator, dtype=torch.float64)
    if kind == "one can emit":  # every fifth frame can be from one state alone, which is the same one throughout
        log_b[::5, 1:] = -torch.inf
    if kind == "far apart":
        log_b[1::7, 0] -= 680.0
        log_b[4::7, -1] -= 690.0
    return log_b


def problem(name: str, kind: str = "plain", *, with_final: bool = False) -> Trellis:
    """Whole sequences; each starts in any state, or in the first if the chain only goes on."""
    transition = transition_of(name)
    K = len(transition)
    initial = torch.eye(K)[0].double() if name == "left-to-right" else torch.full((K,), 1 / K, dtype=torch.float64)
    final = torch.linspace(0.02, 0.1, K, dtype=torch.float64) if with_final else None
    if final is not None:
        transition = transition * (1 - final)[:, None]
    whole = Segments.whole(LENGTHS)
    log_b = whole.packing.pack(densities_of(kind, K))
    return Trellis.of(initial, transition, LogDensities(log_b), whole, final)


def cut(trellis: Trellis, size: int) -> tuple[Trellis, Tensor]:
    return trellis.cut(Segments.of_size(trellis.segments.lengths, size, 0))


def by_the_book(trellis: Trellis) -> tuple[Tensor, list[Tensor], Tensor]:
    """log p(x) of each sequence, gamma of each, and the sum of xi."""
    results = [
        textbook.forward_backward(trellis.initial[0], trellis.transition, log_b, trellis.final[0])
        for log_b in trellis.segments.split(trellis.densities.log())
    ]
    return torch.stack([r[0] for r in results]), [r[1] for r in results], sum(r[2].sum(0) for r in results)  # type: ignore[return-value]


@pytest.mark.parametrize("with_final", [False, True])
@pytest.mark.parametrize("name", CHAINS)
def test_exact_segments_equal_the_textbook(name: str, with_final: bool) -> None:
    whole = problem(name, with_final=with_final)
    log_prob, gamma, xi = by_the_book(whole)
    steps = log_space.forward_pass(whole)
    for size in (16, 50):
        parts, rows = cut(whole, size)
        found, failed = scaled.backward(parts, scaled.forward(parts, bounded=False))
        assert not failed.any()
        assert_allclose(found.log_prob, log_prob, rtol=1e-12)
        assert_allclose(torch.cat(parts.segments.split(found.gamma)), torch.cat(gamma), rtol=0, atol=1e-12)
        assert_allclose(found.xi, xi, rtol=1e-12, atol=1e-12)  # sums over hundreds of frames
        ran = scaled.forward(parts)
        assert not ran.failed.any()
        assert_allclose(ran.steps, steps.steps[rows], rtol=1e-12, atol=1e-12)
        assert_allclose(ran.alpha, steps.alpha[rows], rtol=0, atol=1e-12)
        assert_allclose(ran.ends, steps.ends, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", ["far apart", "one can emit"])
@pytest.mark.parametrize("name", ["mixed", "left-to-right", "in blocks", "hardly moving"])
def test_what_underflows_or_cannot_be_is_as_exact(name: str, kind: str) -> None:
    """By the attempts in their order, from segments that start exactly on."""
    whole = problem(name, kind)
    log_prob, gamma, xi = by_the_book(whole)
    parts, rows = cut(whole, 16)
    found, filtered = forward_backward_pass(parts), forward_pass(parts)
    possible = log_prob > -torch.inf
    assert_allclose(found.log_prob, log_prob, rtol=1e-12)
    for each, expected, is_possible in zip(parts.segments.split(found.gamma), gamma, possible, strict=True):
        assert_allclose(each, expected if is_possible else torch.zeros_like(each), rtol=0, atol=1e-12)
    if possible.all():
        assert_allclose(found.xi, xi, rtol=1e-12, atol=1e-12)  # sums over hundreds of frames
    assert_allclose(filtered.steps, log_space.forward_pass(whole).steps[rows], rtol=1e-12, atol=1e-12)


def test_an_impossible_sequence_spoils_no_other() -> None:
    whole = problem("in blocks")
    log_b = densities_of("plain", 4)
    log_b[60] = -torch.inf  # in the first sequence
    log_b[131:167:2, 2:], log_b[132:167:2, :2] = -torch.inf, -torch.inf  # the third would have to change its block
    blocked = Trellis.of(whole.initial[0], whole.transition, LogDensities(whole.packing.pack(log_b)), whole.segments)
    found, expected = forward_backward_pass(cut(blocked, 16)[0]), forward_backward_pass(cut(whole, 16)[0])
    assert (found.log_prob == -torch.inf).tolist() == [True, False, True, False, False]
    assert_allclose(found.log_prob[[1, 3, 4]], expected.log_prob[[1, 3, 4]], rtol=1e-14)


def test_a_state_that_one_segment_loses_and_another_needs_is_missed() -> None:
    """State 0, entered at the second frame or never, falls below the smallest number beside state 1 in the first
    segment, and is as likely as that by the end of the third: no segment by itself can tell that it matters."""
    transition = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]], dtype=torch.float64)
    log_b = torch.zeros(48, 3, dtype=torch.float64)
    log_b[3:6, 0], log_b[20:22, 1], log_b[40:42, 1] = -800 / 3, -150.0, -250.0
    whole = Trellis.of(torch.eye(3)[2].double(), transition, LogDensities(log_b), Segments.whole([48]))
    parts, _ = cut(whole, 16)
    assert scaled.forward(parts).failed.all()
    assert scaled.backward(parts, scaled.forward(parts, bounded=False))[1].all()
    (steps,) = parts.segments.split(forward_pass(parts).steps)
    assert_allclose(steps.cumsum(0), log_space.forward_pass(whole).steps.cumsum(0), rtol=1e-12, atol=1e-12)
    assert_allclose(steps.sum(), -800.0, rtol=1e-12)
    assert_allclose(forward_backward_pass(parts).log_prob, [-800.0], rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_chain_that_hardly_moves_is_not_computed_frame_by_frame(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_times: list[int] = []

    def counted(chain: scaled.ScaledChain, *arguments: object, **options: object) -> object:
        n_times.append(len(chain.packing.batch_sizes))
        return forward_recursion(chain, *arguments, **options)  # type: ignore[arg-type]

    def never(trellis: Trellis) -> object:
        raise AssertionError("computed in logarithms")

    forward_recursion: Callable[..., object] = scaled.forward_recursion
    monkeypatch.setattr(scaled, "forward_recursion", counted)
    monkeypatch.setattr(log_space, "forward_backward_pass", never)
    generator, transition = torch.Generator().manual_seed(3), transition_of("hardly moving")
    log_b = torch.randn(9000, 4, generator=generator, dtype=torch.float64) * 0.01 - 1
    found = forward_backward(transition[0], transition, log_b.to(dtype))
    monkeypatch.undo()
    assert len(n_times) == 2
    assert max(n_times) < 1500
    expected = forward_backward(transition[0], transition, log_b)
    rtol, atol = (1e-7, 1e-4) if dtype == torch.float32 else (1e-12, 1e-12)
    assert_allclose(found.log_prob, expected.log_prob, rtol=rtol)
    assert_allclose(found.gamma, expected.gamma, rtol=0, atol=atol)


def test_exact_segments_are_used_where_they_pay() -> None:
    long, short = torch.tensor([100_000]), torch.tensor([40, 30])
    assert Segments.exact(long, 4).are_exact
    assert Segments.exact(short, 4).is_whole
    assert Segments.exact(long, 200).is_whole  # K times the arithmetic


def test_rows_of_a_product_keep_their_own_scale() -> None:
    """Powers of two: factors so far apart that no float64 holds two of them."""
    values = torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=torch.float64)
    left = ScaledRows.of(values, torch.tensor([-40_000.0, 7.0], dtype=torch.float64))
    right = ScaledRows.of(values, torch.tensor([-3_000.0, 5_000.0], dtype=torch.float64))
    product = left @ right
    # Row 0 is of right's row 0 alone, and row 1 of its row 1 but for a share of 2^-8000.
    total = product.exponents + torch.log2(product.values.sum(1))
    assert_allclose(total, [-43_000.0, 7.0 + 5_000.0 - 1.0], rtol=0, atol=1e-12)
    assert product.values[0, 1] == 0
    assert product.values[1, 0] == product.values[1, 1]
    zero = ScaledRows.of(torch.zeros(2, 2, dtype=torch.float64)) @ right
    assert not zero.values.any()
