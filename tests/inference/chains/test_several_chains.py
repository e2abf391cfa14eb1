"""Chains side by side: the E-step of each is the one it has alone, however it must be computed."""

from __future__ import annotations

import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from seqmodels.inference.chains.densities import Densities, LogDensities, PowerDensities, TableDensities
from seqmodels.inference.chains.forward_backward import forward_backward_pass
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.inference.chains.trellis import Posterior, Trellis

pytestmark = pytest.mark.usefixtures("recursions")

R, K, LENGTHS = 3, 2, (5, 9, 1)
F64 = torch.float64
N = sum(LENGTHS)


def chains(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """``initial (R, K)``, ``transition (R, K, K)``, ``final (R, K)``."""
    generator = torch.Generator().manual_seed(seed)
    initial = torch.rand(R, K, generator=generator, dtype=F64)
    arcs = torch.rand(R, K, K + 1, generator=generator, dtype=F64)
    arcs = arcs / arcs.sum(-1, keepdim=True)
    return initial / initial.sum(-1, keepdim=True), arcs[..., :K], arcs[..., K]


def densities(kind: str) -> Densities:
    """Of R·K states."""
    generator = torch.Generator().manual_seed(1)
    if kind == "table":
        symbols = torch.randint(4, (N,), generator=generator)
        return TableDensities(torch.rand(4, R * K, generator=generator, dtype=F64).log(), symbols)
    exponent, factor = (torch.rand(R * K, N, generator=generator, dtype=F64) - i for i in (5, 0))
    return PowerDensities(exponent, factor) if kind == "power" else LogDensities(exponent.T)


def assert_each_as_alone(trellis: Trellis) -> list[Posterior]:
    """Of the problem together and of each chain's own."""
    alone = [forward_backward_pass(Trellis.of(*_own(chain))) for chain in trellis.chains]
    together = forward_backward_pass(trellis).chains
    for a, b in zip(together, alone, strict=True):
        for name in ("log_prob", "gamma", "xi", "initial", "final"):
            assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-10, atol=1e-12, err_msg=name)
    return together


def _own(chain: Trellis) -> tuple[Tensor, Tensor, Densities, Segments, Tensor]:
    return chain.initial[0], chain.transition, LogDensities(chain.densities.log()), chain.segments, chain.final[0]


@pytest.mark.parametrize("kind", ["log", "power", "table"])
def test_each_has_its_own_densities(kind: str) -> None:
    both = densities(kind)
    split = both.chains(R)
    assert split.shape == (R, N, K)
    assert_allclose(split.log(), both.log().unflatten(1, (R, K)).movedim(1, 0), rtol=1e-12)
    b, peak = split.scaled(Scratch(), 0.0)
    assert_allclose(b.log() + peak.unsqueeze(-1), split.log(), rtol=1e-12)
    if kind == "power":  # a factor may be below one
        assert ((b.amax(-1) > 0) & (b.amax(-1) <= 1)).all()
    else:
        assert_allclose(b.amax(-1), 1.0, atol=1e-15)
    for i in range(R):
        assert_allclose(split.chain(i).log(), split.log()[i], rtol=1e-15)


@pytest.mark.parametrize("kind", ["log", "power", "table"])
def test_each_e_step_is_its_own(kind: str) -> None:
    initial, transition, final = chains()
    assert_each_as_alone(Trellis.of(initial, transition, densities(kind).chains(R), Segments.whole(LENGTHS), final))


def test_one_that_fails_is_recomputed_alone() -> None:
    """The second chain must stay in states that are all but impossible: its sums leave the range of scaling."""
    initial, transition, final = chains(2)
    initial[1], transition[1], final[1] = torch.tensor([1.0, 0.0]), 0.5 * torch.eye(2), torch.tensor([0.5, 0.5])
    log_b = torch.full((N, R * K), -1.0, dtype=F64)
    log_b[:, 2] = -40387.375
    found = assert_each_as_alone(
        Trellis.of(initial, transition, LogDensities(log_b).chains(R), Segments.whole(LENGTHS), final)
    )
    assert_allclose(found[1].log_prob, [n * (-40387.375 + torch.tensor(0.5).log()) for n in LENGTHS], rtol=1e-6)


def test_an_impossible_sequence_is_so_under_one_chain_alone() -> None:
    initial, transition, final = chains(3)
    initial[1], transition[1], final[1] = torch.tensor([1.0, 0.0]), 0.5 * torch.eye(2), torch.tensor([0.5, 0.5])
    segments = Segments.whole(LENGTHS)
    log_b = torch.zeros(N, R * K, dtype=F64)
    log_b[segments.sequence == 1, 2] = -torch.inf
    found = assert_each_as_alone(Trellis.of(initial, transition, LogDensities(log_b).chains(R), segments, final))
    assert [torch.isinf(each.log_prob).tolist() for each in found] == [[False] * 3, [False, True, False], [False] * 3]


def test_segments_of_a_long_sequence() -> None:
    """One chain forgets and is cut, the other remembers and is run again, whole."""
    generator = torch.Generator().manual_seed(4)
    stay = torch.tensor([0.5, 0.9999], dtype=F64)[:, None, None]
    transition = stay * torch.eye(2, dtype=F64) + (1 - stay) * (1 - torch.eye(2, dtype=F64))
    initial, log_b = torch.full((2, 2), 0.5, dtype=F64), 0.1 * torch.rand(1200, 4, generator=generator, dtype=F64)
    segments = Segments.of_size(torch.tensor([1200]), 300, 192)
    packed = segments.packing.pack(log_b)
    found = assert_each_as_alone(Trellis.of(initial, transition, LogDensities(packed).chains(2), segments))
    whole = forward_backward_pass(
        Trellis.of(initial, transition, LogDensities(log_b).chains(2), Segments.whole([1200]))
    ).chains
    for a, b in zip(found, whole, strict=True):
        assert_allclose(segments.packing.unpack(a.gamma), b.gamma, rtol=1e-10)
        assert_allclose(a.xi, b.xi, rtol=1e-10)


def test_shapes_that_do_not_fit_are_refused() -> None:
    initial, transition, final = chains()
    with pytest.raises(ValueError, match=r"log_b has shape \(15, 6\), expected \(3, 15, 2\)"):
        Trellis.of(initial, transition, densities("log"), Segments.whole(LENGTHS), final)
    with pytest.raises(ValueError, match="final"):
        Trellis.of(initial, transition, densities("log").chains(R), Segments.whole(LENGTHS), final[0])
