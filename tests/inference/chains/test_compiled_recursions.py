"""The compiled loops against the recursions they stand for."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from seqmodels.inference.chains import parallel_segments, scaled
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.forward_backward import forward_backward_pass
from seqmodels.inference.chains.packing import Packing
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.scaled import ScaledChain
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.inference.chains.trellis import Posterior, Trellis
from tests.hard_chains import CHAINS

pytest.importorskip("numba", reason="without numba the loops are not compiled, and not used")

F64 = torch.float64


@pytest.fixture(autouse=True)
def few_frames_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_segments, "FEWEST_FRAMES_COMPILED", 0)


RAGGED = [7, 1, 12, 12, 3, *range(1, 70), 40]  # more sequences than a block takes


def random_trellis(K: int, dtype: torch.dtype, cut: Segments, n_chains: int = 0) -> Trellis:
    """Segments that span ``RAGGED`` sequences or a long one; several chains; transitions that are zero."""
    generator = torch.Generator().manual_seed(K)
    lead = (n_chains,) if n_chains else ()
    transition = torch.rand(*lead, K, K, generator=generator, dtype=F64) ** 3 + 0.01
    final = 0.1 * torch.rand(*lead, K, generator=generator, dtype=F64)
    initial = torch.softmax(torch.randn(*lead, K, generator=generator, dtype=F64), -1)
    transition = transition / transition.sum(-1, keepdim=True) * (1 - final.unsqueeze(-1))
    log_b = (3 * torch.randn(*lead, K, cut.packing.n_frames, generator=generator, dtype=F64)).to(dtype).mT
    return Trellis.of(initial, transition, LogDensities(log_b), cut, final)


def hard_trellis(name: str, K: int, dtype: torch.dtype) -> Trellis:
    """One of ``CHAINS``; densities of zero and of very little, sequences of one frame, of many, and impossible."""
    cut, generator = Segments.whole([*RAGGED, 500]), torch.Generator().manual_seed(1)
    initial, transition = (torch.from_numpy(a) for a in CHAINS[name](K))
    log_b = 3 * torch.randn(K, cut.packing.n_frames, generator=generator, dtype=F64)
    log_b[torch.rand(log_b.shape, generator=generator) < 0.03] *= 300
    log_b[torch.rand(log_b.shape, generator=generator) < 0.02] = -torch.inf
    return Trellis.of(initial, transition, LogDensities(log_b.to(dtype).mT), cut)


CASES = {
    "two states": (2, Segments.whole(RAGGED), 0),
    "ragged": (5, Segments.whole(RAGGED), 0),
    "most states": (parallel_segments.MOST_STATES_COMPILED, Segments.whole(RAGGED), 0),
    "chains": (3, Segments.whole(RAGGED), 2),
    "many states": (30, Segments.whole(RAGGED), 0),
    "many states of chains": (19, Segments.whole(RAGGED), 2),
    "many states in segments": (21, Segments.of_size(torch.tensor([900, 5]), 192, 192), 0),
    "segments": (4, Segments.of_size(torch.tensor([8000, 5, 900]), 192, 192), 0),
    "segments of chains": (4, Segments.of_size(torch.tensor([3000]), 192, 192), 2),
}


def figures(posterior: Posterior) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in vars(posterior).items() if value is not None}


@pytest.mark.parametrize("by_frame", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("case", CASES)
def test_compiled_loops_equal_the_recursions(
    case: str, dtype: torch.dtype, by_frame: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    K, cut, n_chains = CASES[case]
    trellis = random_trellis(K, dtype, cut, n_chains)
    if by_frame:  # in memory a row of states for each frame
        trellis = replace(trellis, densities=LogDensities(trellis.densities.log().contiguous()))
    compiled = figures(forward_backward_pass(trellis))
    monkeypatch.setattr(parallel_segments, "_has_numba", lambda: False)
    expected = figures(forward_backward_pass(trellis))
    tolerance = 1e-12 if dtype == F64 else 1e-5
    for name, value in expected.items():
        scale = float(value.abs().max())
        assert_allclose(compiled[name], value, rtol=tolerance, atol=tolerance * scale, err_msg=name)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("name", CHAINS)
def test_compiled_loops_fail_where_the_recursions_do(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqmodels.inference.chains import compiled_recursions

    monkeypatch.setattr(parallel_segments, "FEWEST_SIDE_BY_SIDE", 0)  # else the long sequence makes them run one by one
    trellis, loops = hard_trellis(name, 18, dtype), Mock(wraps=compiled_recursions._forward_blocks)
    monkeypatch.setattr(compiled_recursions, "_forward_blocks", loops)
    compiled = figures(forward_backward_pass(trellis))
    assert loops.called
    monkeypatch.setattr(parallel_segments, "_has_numba", lambda: False)
    expected = figures(forward_backward_pass(trellis))
    assert (expected["log_prob"] > -torch.inf).any()
    tolerance = 1e-11 if dtype == F64 else 1e-5
    for figure, value in expected.items():
        scale = float(value[torch.isfinite(value)].abs().max())
        assert_allclose(compiled[figure], value, rtol=tolerance, atol=tolerance * scale, err_msg=figure)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_the_largest_beta_and_messages_are_those_of_the_recursions(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, starts, ends = random_chain(dtype)
    results = []
    for has_numba in (True, False):
        monkeypatch.setattr(parallel_segments, "_has_numba", lambda has_numba=has_numba: has_numba)
        alpha, scale = scaled.forward_recursion(chain, starts, Scratch())
        gamma, beta_max = torch.empty_like(alpha), torch.empty_like(scale)
        b = ScaledChain(chain.transition, chain.b.mT.clone().mT, chain.packing)
        messages, drifted = scaled.backward_recursion(b, alpha, scale, ends, gamma, beta_max=beta_max)
        results.append([alpha, scale, gamma, beta_max, messages, b.b, drifted])
    for compiled, expected in zip(*results, strict=True):
        assert_allclose(compiled, expected, rtol=1e-12 if dtype == F64 else 1e-5, atol=1e-30)


def test_a_sequence_that_drifts_is_told() -> None:
    chain, starts, ends = random_chain(F64)
    alpha, scale = scaled.forward_recursion(chain, starts, Scratch())
    last_alpha = alpha[chain.packing.last[chain.packing.order]]
    ends = ends / (last_alpha * ends).sum(1, keepdim=True)
    alpha[chain.packing.sequence == 2] *= 1.1
    alpha[chain.packing.sequence == 3] = torch.nan
    beta_max = torch.empty_like(scale)
    _, drifted = scaled.backward_recursion(chain, alpha, scale, ends, torch.empty_like(alpha), beta_max=beta_max)
    assert drifted[chain.packing.rank].nonzero()[:, 0].tolist() == [2, 3]
    assert chain.packing.any(torch.isnan(beta_max)).nonzero()[:, 0].tolist() == [3]


def random_chain(dtype: torch.dtype) -> tuple[ScaledChain, Tensor, Tensor]:
    """A chain, ``starts`` and ``ends`` (n, K)."""
    generator = torch.Generator().manual_seed(0)
    packing, K = Packing.of(RAGGED), 5
    transition = torch.rand(K, K, generator=generator, dtype=dtype)
    starts = torch.softmax(torch.randn(len(RAGGED), K, generator=generator, dtype=dtype), 1)
    ends = torch.rand(len(RAGGED), K, generator=generator, dtype=dtype)
    b = torch.exp(-5 * torch.rand(K, packing.n_frames, generator=generator, dtype=dtype))
    return ScaledChain(transition / transition.sum(1, keepdim=True), b.mT, packing), starts, ends


def test_several_threads_give_the_same_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    from seqmodels.inference.chains import compiled_recursions

    trellis = random_trellis(5, F64, Segments.whole(RAGGED))
    alone = figures(forward_backward_pass(trellis))
    monkeypatch.setattr(compiled_recursions, "WORTH_SHARING", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    together = figures(forward_backward_pass(trellis))
    assert all(torch.equal(together[name], alone[name]) for name in alone)
