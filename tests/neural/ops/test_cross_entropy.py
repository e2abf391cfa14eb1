from __future__ import annotations

from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import seqmodels as sm
from seqmodels.neural import scoring
from seqmodels.neural.ops import cross_entropy
from seqmodels.neural.ops.cross_entropy import linear_log_prob

ROWS, WIDTH, SYMBOLS = (3, 5), 4, 1_000


def drawn(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


@pytest.fixture(params=[False, True], ids=["fused", "chunked"])
def algorithm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        monkeypatch.setattr(cross_entropy, "CHUNKED_FROM", 0)


@pytest.mark.usefixtures("algorithm")
@pytest.mark.parametrize("at_once", [1, 7_000, 1 << 20])
def test_values_and_gradients_are_those_of_a_softmax(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "CHUNKED_ELEMENTS", at_once)
    monkeypatch.setattr(cross_entropy, "FUSED_ELEMENTS", at_once)
    inputs = drawn(*ROWS, WIDTH), drawn(SYMBOLS, WIDTH), drawn(SYMBOLS)
    target = torch.randint(SYMBOLS, ROWS, generator=torch.Generator().manual_seed(0))
    target[0, :3] = torch.tensor([0, 255, SYMBOLS - 1])
    upstream = drawn(*ROWS).detach()
    found = linear_log_prob(*inputs, target)
    expected = -F.cross_entropy(F.linear(*inputs).movedim(-1, 1), target, reduction="none")
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    gradients = (torch.autograd.grad((x * upstream).sum(), inputs) for x in (found, expected))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("at_once", [1, 7_000, 1 << 20])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_form_for_a_gpu_gives_the_same(at_once: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cross_entropy, "ON_GPU", at_once)
    sum_dtype = torch.promote_types(dtype, torch.float32)
    inputs = [x.detach().to(dtype) for x in (drawn(8, WIDTH), drawn(SYMBOLS, WIDTH) / 8)]
    inputs.append(drawn(SYMBOLS).detach().to(sum_dtype))
    target = torch.randint(SYMBOLS, (8,), generator=torch.Generator().manual_seed(0))
    expected = cross_entropy._log_prob_on_cpu(*inputs, target, sum_dtype, keeps=True)
    with torch.no_grad():
        found = cross_entropy._log_prob_on_gpu(*inputs, target, sum_dtype, keeps=True)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        compiled = cross_entropy._log_prob_on_gpu(*inputs, target, sum_dtype, keeps=True)
    tolerance = 0.03 if dtype == torch.bfloat16 else 1e-12  # two products of up to 2 in bfloat16 differ by 2 / 128
    for log_p, p in (found, compiled):
        torch.testing.assert_close(log_p, expected[0], rtol=0, atol=tolerance)
        torch.testing.assert_close(p, expected[1], rtol=tolerance, atol=1e-12)


@pytest.mark.parametrize(("n_rows", "kind", "is_kept"), [(20, "cuda", True), (21, "cuda", False), (21, "cpu", True)])
def test_a_gpu_keeps_the_probabilities_of_so_many_rows_and_no_more(
    n_rows: int, kind: str, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_entropy, "KEPT_ON_GPU", 20 * SYMBOLS)
    hidden = MagicMock(device=torch.device(kind))
    hidden.__len__.return_value = n_rows
    assert cross_entropy._keeps_probabilities(hidden, SYMBOLS) is is_kept


@pytest.mark.usefixtures("algorithm")
def test_half_precision_is_autocasts() -> None:
    inputs = [x.detach().float() for x in (drawn(*ROWS, WIDTH), drawn(SYMBOLS, WIDTH), drawn(SYMBOLS))]
    target = torch.zeros(ROWS, dtype=torch.int64)
    full = linear_log_prob(*inputs, target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = linear_log_prob(*inputs, target)
    assert half.dtype == torch.float32
    assert 1e-6 < float((half - full).abs().max()) < 0.1


@pytest.mark.usefixtures("algorithm")
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("length", ["stop", "given"])
def test_a_network_is_the_same_with_it_and_without(length: str, tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data = [np.arange(n) % 11 for n in (6, 9, 4)]
    model = sm.LSTM(
        d_model=8,
        max_steps=5,
        length=length,
        architecture=sm.neural.RecurrentArchitecture(tie_embeddings=tied),
        training=sm.training.GradientTraining(precision="float32"),
    )
    plain = model.clone().fit(data, validation=None)
    monkeypatch.setattr(scoring, "LARGE_VOCABULARY", 2)
    pieces = model.fit(data, validation=None)
    np.testing.assert_allclose(pieces.log_prob(data), plain.log_prob(data), rtol=1e-5)
    np.testing.assert_allclose(plain.log_prob(data), plain.set_params(dtype="float64").log_prob(data), rtol=1e-5)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("n_symbols", [60, 200])
@pytest.mark.products_repeat
def test_compiled_it_is_the_same(n_symbols: int, half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="without numba nothing is compiled")
    from seqmodels.neural.ops.compiled_softmax import softmax_rows

    inputs = [x.detach().float().requires_grad_() for x in (drawn(7, WIDTH), drawn(n_symbols, WIDTH), drawn(n_symbols))]
    target, upstream = torch.tensor([0, 1, 5, 59, 30, 31, n_symbols - 1]), drawn(7).detach().float()
    results, calls = [], []

    def counted(*arguments: torch.Tensor) -> torch.Tensor:
        calls.append(arguments)
        return softmax_rows(*arguments)

    monkeypatch.setattr("seqmodels.neural.ops.compiled_softmax.softmax_rows", counted)
    for least in (0, 1 << 60):
        monkeypatch.setattr(cross_entropy, "COMPILED_FROM", least)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            log_probs = linear_log_prob(*inputs, target)
        results.append((log_probs, *torch.autograd.grad((log_probs * upstream).sum(), inputs)))
    assert len(calls) == 1
    tolerance = 0.01 if half else 1e-5
    torch.testing.assert_close(*results, rtol=tolerance, atol=tolerance)


def test_compiled_an_infinite_bias_is_no_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="without numba nothing is compiled")
    monkeypatch.setattr(cross_entropy, "COMPILED_FROM", 0)
    hidden, weight = torch.zeros(2, WIDTH), torch.zeros(70, WIDTH)
    bias = torch.full((70,), -torch.inf)
    bias[[3, 69]] = 0.0
    found = linear_log_prob(hidden, weight, bias, torch.tensor([3, 5]))
    torch.testing.assert_close(found, torch.tensor([0.5, 0.0]).log(), rtol=1e-6, atol=0)


def test_compiled_it_is_the_same_in_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="without numba nothing is compiled")
    monkeypatch.setattr(cross_entropy, "COMPILED_FROM", 0)
    inputs = [x.detach().float().requires_grad_() for x in (drawn(7, WIDTH), drawn(70, WIDTH), drawn(70))]
    results = []
    for n_threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda n=n_threads: n)
        log_probs = linear_log_prob(*inputs, torch.arange(7))
        results.append((log_probs, *torch.autograd.grad(log_probs.sum(), inputs)))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)
