"""Compiled steps are those of torch, for every option and in every window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import seqmodels as sm
from seqmodels.generation import Cursor
from seqmodels.generation.decoding import ANCESTRAL, Draw, draw
from seqmodels.neural.batches import Windowing
from seqmodels.neural.cursor import NetworkCursor, StepperCursor
from seqmodels.neural.embedding_and_head import IOSpec, SequenceModule
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.kernels import draw_symbol
from seqmodels.neural.transformer.network import TransformerNetwork
from seqmodels.observations import Categorical

pytest.importorskip("numba")
V = 5
DEFAULT = {"positions": "rotary", "activation": "relu2", "bias": False, "convolution_lags": 4}
OPTIONS: dict[str, dict[str, Any]] = {
    "transformer": DEFAULT,
    "gpt2": {"positions": "learned", "activation": "gelu-tanh"},
    "shared keys, normalised": DEFAULT | {"n_heads": 4, "n_kv_heads": 2, "bias": True, "qk_norm": True},
    "llama": DEFAULT | {"norm_type": "rms", "activation": "swiglu", "convolution_lags": 0},
    "odd heads": {"d_model": 9, "n_heads": 3, "positions": "binary", "activation": "relu"},
    "no positions or gains": {"positions": None, "activation": "gelu", "norm_affine": False, "norm_epsilon": 1e-2},
}


def cursors(name: str, windowing: Windowing) -> tuple[StepperCursor, StepperCursor]:
    """Of the same weights in float64, with the steps of torch and with compiled ones."""
    options: dict[str, Any] = {"d_model": 8, "n_layers": 2, "n_heads": 2, "dropout": 0.0, **OPTIONS[name]}
    lags = options.pop("convolution_lags", 0)
    network = TransformerNetwork(TransformerConfig(**options), max_length=16, convolution_lags=lags)
    module = SequenceModule(network, Categorical(), IOSpec("symbols", V, False, True, None), torch.Generator())
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4, generator=torch.Generator().manual_seed(parameter.numel()))
    base = NetworkCursor(module.double().eval(), Categorical(), windowing)
    plain, compiled = (StepperCursor.from_network_cursor(base, compiled=compiled) for compiled in (False, True))
    assert plain is not None
    assert compiled is not None
    return plain, compiled


def symbols(n: int, length: int) -> Tensor:
    return torch.randint(V, (n, length), generator=torch.Generator().manual_seed(0))


def outputs(cursor: Cursor, x: Tensor) -> Tensor:
    """(T + 1, n, V + 1)."""
    states = [cursor.start(None, len(x))]
    for step in x.t():
        states.append(cursor.advance(states[-1], step))
    return torch.stack([state.outputs for state in states])


@pytest.mark.parametrize("name", OPTIONS)
def test_steps_are_those_of_torch(name: str) -> None:
    plain, compiled = cursors(name, Windowing())
    x = symbols(1, 13)
    torch.testing.assert_close(outputs(compiled, x), outputs(plain, x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 3, 5])
@pytest.mark.parametrize(
    "windowing", [Windowing(1), Windowing(2), Windowing(5), Windowing(6, 4), Windowing(5, 5), Windowing(8, 3)]
)
def test_windows_are_those_of_torch(windowing: Windowing, n: int) -> None:
    plain, compiled = cursors("transformer", windowing)
    x = symbols(n, 19)
    torch.testing.assert_close(outputs(compiled, x), outputs(plain, x), rtol=0, atol=1e-12)


def test_the_next_window_is_read_alongside(monkeypatch: pytest.MonkeyPatch) -> None:
    _, compiled = cursors("transformer", Windowing(6))
    monkeypatch.setattr(type(compiled.stepper), "prefill", lambda *_: pytest.fail("a window was read again"))
    outputs(compiled, symbols(2, 20))


@pytest.mark.parametrize("n_beams", [4, 6])
@pytest.mark.parametrize("windowing", [Windowing(), Windowing(4)])
def test_branches_and_beams_are_independent(windowing: Windowing, n_beams: int) -> None:
    plain, compiled = cursors("transformer", windowing)
    x, index = symbols(3, 9), torch.tensor([2, 0, 2, 1, 1, 0])[:n_beams]
    states, expected = compiled.start(None, 3), plain.start(None, 3)
    for step in x.t():
        beams, beam_expected = compiled.select(states, index), plain.select(expected, index)
        for t in range(4):  # side by side with the states they came from, over a window's edge
            beams = compiled.advance(beams, x[index, t])
            beam_expected = plain.advance(beam_expected, x[index, t])
        torch.testing.assert_close(beams.outputs, beam_expected.outputs, rtol=0, atol=1e-12)
        compiled.advance(states, 0 * step)  # writes first
        states, expected = compiled.advance(states, step), plain.advance(expected, step)
        torch.testing.assert_close(states.outputs, expected.outputs, rtol=0, atol=1e-12)


def test_large_vocabularies_need_no_table_of_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqmodels.neural.cursor.PROJECTED_UP_TO", V - 1)
    plain, compiled = cursors("transformer", Windowing(8))
    x = symbols(2, 13)
    torch.testing.assert_close(outputs(compiled, x), outputs(plain, x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("may_end", [False, True])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(
    "windowing", [Windowing(), Windowing(1), Windowing(6), Windowing(7, 5), Windowing(5, 5), Windowing(8, 3)]
)
def test_several_steps_are_drawn_as_one_by_one(windowing: Windowing, n: int, may_end: bool) -> None:
    plain, compiled = cursors("transformer", windowing)
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    state, x, expected, n_at_once = compiled.start(None, n), symbols(n, 1)[:, 0], plain.start(None, n), []
    expected_x = x
    while len(n_at_once) < 8:
        length = min(4, compiled.n_drawn_at_once(state))
        n_at_once.append(length)
        if length == 0:
            state = compiled.advance(state, x)
            drawn = [draw(compiled.distribution(state), ANCESTRAL, generators[0], may_end=may_end)]
        else:
            uniform = torch.rand(length, n, generator=generators[0], dtype=torch.float64)
            drawn_x, ended, state = compiled.draw(state, x, uniform, may_end=may_end)
            drawn = [Draw(row, None if ended is None else ended[t], None) for t, row in enumerate(drawn_x)]
        for step in drawn:
            expected = plain.advance(expected, expected_x)
            expected_step = draw(plain.distribution(expected), ANCESTRAL, generators[1], may_end=may_end)
            assert torch.equal(step.x, expected_step.x)
            assert (step.ended is None) == (expected_step.ended is None) == (not may_end)
            assert not may_end or torch.equal(step.ended, expected_step.ended)
            x = expected_x = step.x
        torch.testing.assert_close(state.outputs, expected.outputs, rtol=0, atol=1e-12)
    assert max(n_at_once) > 1 or windowing.context == 1
    assert windowing != Windowing(6) or 0 not in n_at_once  # the next window is always read alongside


@torch.no_grad()
def test_branches_after_several_drawn_steps_are_independent() -> None:
    plain, compiled = cursors("transformer", Windowing(6))
    uniform, x = torch.rand(3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64), symbols(2, 4)
    state, expected = compiled.start(None, 2), plain.start(None, 2)
    first, _, after = compiled.draw(state, x[:, 0], uniform, may_end=False)
    again, _, after_again = compiled.draw(state, x[:, 0], uniform, may_end=False)
    assert torch.equal(first, again)
    compiled.advance(after, x[:, 1])
    for step in (x[:, 0], *first, x[:, 2], x[:, 3]):
        expected = plain.advance(expected, step)
    after = compiled.advance(compiled.advance(compiled.advance(after, first[-1]), x[:, 2]), x[:, 3])
    torch.testing.assert_close(after.outputs, expected.outputs, rtol=0, atol=1e-12)
    after_again = compiled.advance(compiled.advance(compiled.advance(after_again, first[-1]), x[:, 2]), x[:, 3])
    torch.testing.assert_close(after_again.outputs, expected.outputs, rtol=0, atol=1e-12)


def test_an_end_is_drawn_with_its_probability() -> None:
    outputs = np.array([0.3, -1.0, 0.7, 0.2])
    p = np.exp(outputs[:3]) / np.exp(outputs[:3]).sum()
    p_end = 1 / (1 + np.exp(-0.2))
    drawn = [draw_symbol(outputs, 3, True, u) for u in (np.arange(1000) + 0.5) / 1000]
    np.testing.assert_allclose(np.bincount(drawn) / 1000, [*(p * (1 - p_end)), p_end], atol=1e-3)
    drawn = [draw_symbol(outputs, 3, False, u) for u in (np.arange(1000) + 0.5) / 1000]
    np.testing.assert_allclose(np.bincount(drawn) / 1000, p, atol=1e-3)


def test_a_model_draws_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = list(np.random.default_rng(0).integers(4, size=(4, 30)))
    model = sm.Transformer(d_model=8, n_layers=1, n_heads=2, context=8, max_steps=3, dtype="float64")
    plain = model.fit(x, validation=None).sample(2, length=30, random_state=3)
    compiled = model.set_params(architecture__compile_steps=True).sample(2, length=30, random_state=3)
    np.testing.assert_array_equal(plain, compiled)
    monkeypatch.setattr("seqmodels.neural.transformer.models.is_compiling", lambda: False)
    with pytest.raises(ValueError, match="compile_steps=True needs numba; install it"):
        model.sample(1, length=3)
