"""The hand-written loop against autograd, one step after another."""

import math

import pytest
import torch
from torch import Tensor

from seqmodels.neural.network import Source
from seqmodels.neural.seq2seq import decoder_loop
from seqmodels.neural.seq2seq.attention import Attention
from seqmodels.neural.seq2seq.decoder_loop import (
    AttendedSource,
    LoopWeights,
    QueryMap,
    additive_score,
    attentive_lstm,
    dot_score,
)
from seqmodels.neural.seq2seq.network import LSTMSeq2SeqNetwork
from tests.neural.seq2seq.attentions import WITHOUT_EARLIER_WEIGHTS

B, S, T, D = 3, 5, 4, 6
MASK = torch.arange(S) < torch.tensor([[5], [2], [3]])
every = pytest.mark.parametrize("name", WITHOUT_EARLIER_WEIGHTS)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def build(name: str, dtype: torch.dtype = torch.float64) -> tuple[LSTMSeq2SeqNetwork, Attention]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        attention = WITHOUT_EARLIER_WEIGHTS[name](D)
        return LSTMSeq2SeqNetwork(D, attention=attention).to(dtype), attention


def loop_and_autograd(name: str, n_pieces: int = 1) -> list[tuple[Tensor, ...]]:
    """States, contexts, weights, last state and cell.

    And the gradients of a function of them with respect to everything.
    """
    results = []
    for fast in (True, False):
        network, attention = build(name)
        inputs, values = draw(B, T, D).requires_grad_(), draw(B, S, D, seed=1).requires_grad_()
        memory, pieces = network.start(B, Source(values, MASK)), []
        for piece in inputs.split(T // n_pieces, 1):
            loop = attention.for_loop(*memory[3:])
            assert loop is not None
            if fast:
                *found, memory = network._decode_in_loop(piece, memory, *loop)
            else:
                *found, memory = network._decode_step_by_step(piece, memory, attention)
            pieces.append(found)
        states, contexts, weights = (torch.cat(parts, 1) for parts in zip(*pieces, strict=True))
        outputs = states, contexts, weights, memory[0], memory[1]
        total = sum((x * draw(*x.shape, seed=i)).sin().sum() for i, x in enumerate(outputs) if i != 2)
        leaves = [inputs, values, *network.encoder.parameters(), *network.bridge.parameters()]
        leaves += [*network.decoder.parameters(), *attention.parameters()]
        results.append((*outputs, *torch.autograd.grad(total, leaves)))
    return results


@every
@pytest.mark.parametrize("n_pieces", [1, 2])
def test_the_loop_and_its_gradients_are_autograds(name: str, n_pieces: int) -> None:
    fast, plain = loop_and_autograd(name, n_pieces)
    torch.testing.assert_close(fast, plain, rtol=1e-11, atol=1e-12)


@pytest.mark.quick_cases(1)
@every
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    network, attention = build(name)
    memory = network.start(B, Source(draw(B, S, D, seed=1), MASK))
    h, c, past, key, value, mask = (
        x.detach().clone().requires_grad_() if x is not None and x.dtype != torch.bool else x for x in memory
    )

    def run(inputs: Tensor, h: Tensor, c: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        loop = attention.for_loop(key, value, mask)
        assert loop is not None
        states, contexts, _, after = network._decode_in_loop(inputs, (h, c, past, key, value, mask), *loop)
        return states, contexts, after[1]

    assert torch.autograd.gradcheck(run, (draw(B, 2, D).requires_grad_(), h, c, key, value), nondet_tol=1e-12)


@every
def test_without_gradients_it_says_the_same(name: str) -> None:
    network, _ = build(name)
    memory, x = network.start(B, Source(draw(B, S, D, seed=1), MASK)), draw(B, T, D)
    with torch.no_grad():
        alone = network(x, memory)[0]
    torch.testing.assert_close(alone, network(x, memory)[0], rtol=0, atol=1e-12)


def errors_in_bfloat16(name: str, fast: bool) -> dict[str, float]:
    """How far hidden states, and gradients relative to their size, are from those in double precision."""
    x, values = draw(B, T, D), draw(B, S, D, seed=1)
    (exact, _), (rough, attention) = build(name), build(name, torch.float32)
    expected = exact(x, exact.start(B, Source(values, MASK)))[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        memory = rough.start(B, Source(values.float(), MASK))
        loop = attention.for_loop(*memory[3:])
        assert loop is not None
        outputs = rough._decode_in_loop(x.float(), memory, *loop) if fast else None
        states, contexts, *_ = outputs or rough._decode_step_by_step(x.float(), memory, attention)
        found = states + rough.readout(torch.cat([states, contexts], -1))
    found.float().sum().backward()
    expected.sum().backward()
    gradients = zip(rough.named_parameters(), exact.parameters(), strict=True)
    errors = {what: float((p.grad.double() - q.grad).norm() / q.grad.norm()) for (what, p), q in gradients}
    return errors | {"hidden": float((found - expected).detach().norm() / expected.detach().norm())}


@every
def test_under_autocast_it_is_as_near_double_precision_as_autograd_is(name: str) -> None:
    fast, plain = (errors_in_bfloat16(name, fast) for fast in (True, False))
    assert max(plain.values()) > 1e-3  # it is in bfloat16
    assert [what for what in plain if fast[what] > 2 * plain[what] + 0.005] == []


def test_one_step_by_hand() -> None:
    driven, h, c, weight, feed, bias = (
        draw(*s, seed=i) for i, s in enumerate([(1, 1, 4), (1, 1), (1, 1), (5, 1), (4, 1), (5,)])
    )
    key, value, energy = draw(1, 2, 1, seed=6), draw(1, 2, 1, seed=7), draw(1, seed=8)
    mask_bias = torch.zeros(1, 2, dtype=torch.float64)
    query = QueryMap(weight[4:], bias[4:])
    weights = LoopWeights.with_query(weight[:4], feed, query)
    state, context, share, cell = attentive_lstm(driven, h, c, weights, AttendedSource(key, value, mask_bias, energy))
    asks = float(weight[4, 0] * h[0, 0] + bias[4])
    scores = [float(energy[0]) * math.tanh((asks + float(k)) / 2) for k in key.flatten()]
    total = sum(math.exp(s) for s in scores)
    shares = [math.exp(s) / total for s in scores]
    mean = sum(p * float(v) for p, v in zip(shares, value.flatten(), strict=True))
    gates = [float(driven[0, 0, i] + weight[i, 0] * h[0, 0] + feed[i, 0] * mean) for i in range(4)]
    enter, keep, leave = (1 / (1 + math.exp(-gates[i])) for i in (0, 1, 3))
    new = keep * float(c) + enter * math.tanh(gates[2])
    assert share.flatten().tolist() == pytest.approx(shares, rel=1e-12)
    assert float(context) == pytest.approx(mean, rel=1e-12)
    assert float(cell) == pytest.approx(new, rel=1e-12)
    assert float(state) == pytest.approx(leave * math.tanh(new), rel=1e-12)


def test_scores_are_their_equations_up_to_what_all_keys_share() -> None:
    query, key, energy = draw(T, 1, D), draw(S, D, seed=1), draw(D, seed=2)
    expected = torch.tanh(query + key) @ energy - energy.sum()
    torch.testing.assert_close(
        additive_score(2 * query, 2 * key, energy) - 2 * energy.sum(), expected, rtol=0, atol=1e-12
    )
    dots = dot_score(query[:, 0], key)
    torch.testing.assert_close(dots, torch.einsum("td,sd->ts", query[:, 0], key) / math.sqrt(D), rtol=0, atol=1e-12)


@pytest.mark.quick_cases(2)
@every
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("n_steps", [4, 20])
def test_compiled_it_is_the_same_up_to_rounding(
    name: str, half: bool, n_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba", reason="without numba nothing is compiled")
    results = []
    for least in (0, 1 << 60):
        monkeypatch.setattr(decoder_loop, "COMPILED_FROM", least)
        network, attention = build(name, torch.float32)
        inputs, values = draw(B, n_steps, D).float().requires_grad_(), draw(B, S, D, seed=1).float().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            memory = network.start(B, Source(values, MASK))
            loop = attention.for_loop(*memory[3:])
            assert loop is not None
            states, contexts, weights, after = network._decode_in_loop(inputs, memory, *loop)
        outputs = states, contexts, after[1]
        total = sum((x.float() * draw(*x.shape, seed=i).float()).sum() for i, x in enumerate(outputs))
        leaves = [inputs, values, *network.encoder.parameters(), *network.bridge.parameters()]
        leaves += [*network.decoder.parameters(), *attention.parameters()]
        results.append((*outputs, weights, *torch.autograd.grad(total, leaves)))
    assert any(not torch.equal(x, y) for x, y in zip(*results, strict=True))
    for x, y in zip(*results, strict=True):
        scale = max(1.0, float(y.detach().abs().max()))
        torch.testing.assert_close(x, y, rtol=0, atol=(0.03 if half else 1e-5) * scale)
