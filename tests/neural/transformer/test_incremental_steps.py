"""Single steps on packed weights are the module's, for every option that they implement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seqmodels.encodings.examples import Example
from seqmodels.generation import Cursor
from seqmodels.neural.batches import Row, Windowing
from seqmodels.neural.cursor import NetworkCursor, StepperCursor
from seqmodels.neural.embedding_and_head import IOSpec, SequenceModule
from seqmodels.neural.scoring import log_prob_steps
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.network import TransformerNetwork
from seqmodels.observations import Categorical

V, N = 5, 3
DEFAULT = {"positions": "rotary", "activation": "relu2", "bias": False, "convolution_lags": 4}
OPTIONS: dict[str, dict[str, Any]] = {
    "transformer": DEFAULT,
    "gpt2": {"positions": "learned", "activation": "gelu-tanh"},
    "shared keys": DEFAULT | {"n_heads": 4, "n_kv_heads": 2, "bias": True},
    "one key, normalised": DEFAULT | {"n_heads": 4, "n_kv_heads": 1, "qk_norm": True, "convolution_lags": 1},
    "normalised without gains": {"qk_norm": True, "norm_affine": False, "norm_type": "rms", "norm_epsilon": 1e-2},
    "llama": DEFAULT | {"norm_type": "rms", "activation": "swiglu", "convolution_lags": 0},
    "odd heads": {"d_model": 9, "n_heads": 3, "positions": "binary", "activation": "relu"},
    "no positions": {"positions": None, "activation": "gelu", "qk_norm": True},
}
LEFT_OUT: list[dict[str, Any]] = [
    {"norm": "post"},
    {"norm": "residual"},
    {"positions": "alibi"},
    {"positions": "t5"},
    {"window": 3},
]


def cursor(
    name: str,
    windowing: Windowing,
    *,
    conditional: bool = False,
    tied: float | None = None,
    max_length: int | None = 16,
) -> NetworkCursor:
    options: dict[str, Any] = {"d_model": 8, "n_layers": 2, "n_heads": 2, "dropout": 0.0, **OPTIONS[name]}
    lags = options.pop("convolution_lags", 0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = TransformerNetwork(TransformerConfig(**options), max_length=max_length, convolution_lags=lags)
        module = SequenceModule(
            network, Categorical(), IOSpec("symbols", V, conditional, True, tied), torch.Generator()
        )
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
    return NetworkCursor(module.double().eval(), Categorical(), windowing)


def fast(whole: NetworkCursor) -> StepperCursor:
    found = StepperCursor.from_network_cursor(whole)
    assert found is not None
    return found


def symbols(length: int, seed: int = 0) -> Tensor:
    return torch.randint(V, (N, length), generator=torch.Generator().manual_seed(seed))


def walked(stepping: Cursor, x: Tensor, source: np.ndarray | None = None) -> Tensor:
    """``(T + 1, n, V + 1)`` log-probabilities of every symbol and the end, at every step."""
    state, found = stepping.start(source, len(x)), []
    for step in x.t():
        found.append(stepping.distribution(state).log_probs())
        state = stepping.advance(state, step)
    return torch.stack([*found, stepping.distribution(state).log_probs()])


@pytest.mark.parametrize("name", OPTIONS)
def test_steps_are_those_of_the_module(name: str) -> None:
    whole, x = cursor(name, Windowing()), symbols(13)
    torch.testing.assert_close(walked(fast(whole), x), walked(whole, x), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "windowing", [Windowing(1), Windowing(2), Windowing(5), Windowing(5, 5), Windowing(8, 3), Windowing(16)]
)
@pytest.mark.parametrize("name", ["transformer", "gpt2"])
@pytest.mark.parametrize("conditional", [False, True])
def test_windows_are_those_of_batched_evaluation(name: str, windowing: Windowing, conditional: bool) -> None:
    whole, x = cursor(name, windowing, conditional=conditional), symbols(19)
    source = np.array([4, 0, 1, 3, 3, 2, 1]) if conditional else None
    rows = [Row.from_example(Example(each.numpy(), source), False, True) for each in x]
    expected = np.stack(log_prob_steps(whole.module, whole.observation, rows, windowing))
    found = walked(fast(whole), x, source)
    targets = torch.cat([x, torch.full((N, 1), V)], 1).t().unsqueeze(-1)
    np.testing.assert_allclose(found.gather(-1, targets).squeeze(-1).t(), expected, rtol=0, atol=1e-10)


def test_tied_tables_are_read() -> None:
    whole, x = cursor("gpt2", Windowing(4), tied=2.0), symbols(9)
    torch.testing.assert_close(walked(fast(whole), x), walked(whole, x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["transformer", "no positions"])
def test_steps_go_on_past_what_is_kept(name: str) -> None:
    whole, x = cursor(name, Windowing(), max_length=3), symbols(9)
    torch.testing.assert_close(walked(fast(whole), x), walked(whole, x), rtol=0, atol=1e-12)


def test_learned_positions_end_where_the_module_says() -> None:
    stepping = fast(cursor("gpt2", Windowing(), max_length=6))
    with pytest.raises(ValueError, match="the sequence has 7 steps but positions were learned for max_length=6"):
        walked(stepping, symbols(6))


@pytest.mark.parametrize("windowing", [Windowing(), Windowing(4)])
def test_a_state_advanced_twice_gives_the_same_twice(windowing: Windowing) -> None:
    """Whoever comes first writes in place; the branch that comes later is not spoiled, nor is what was said before."""
    whole = cursor("transformer", windowing)
    stepping = fast(whole)
    states = [stepping.start(None, N)]
    for step in symbols(7).t():
        states.append(stepping.advance(states[-1], step))
    for state, after, step in zip(states, states[1:], symbols(7).t(), strict=False):
        before = state.outputs.clone()
        branches = [state, state]
        for t in range(3):  # side by side, the second ahead of the first in turn
            for i in ((0, 1), (1, 0))[t % 2]:
                branches[i] = stepping.advance(branches[i], symbols(3, seed=i)[:, t])
        for i in (0, 1):
            alone = state
            for t in range(3):
                alone = stepping.advance(alone, symbols(3, seed=i)[:, t])
            torch.testing.assert_close(alone.outputs, branches[i].outputs, rtol=0, atol=1e-12)
        assert not torch.equal(branches[0].outputs, branches[1].outputs)
        assert torch.equal(state.outputs, before)
        torch.testing.assert_close(stepping.advance(state, step).outputs, after.outputs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("windowing", [Windowing(), Windowing(4)])
def test_beams_are_independent_copies(windowing: Windowing) -> None:
    whole = cursor("shared keys", windowing)
    stepping, x, index = fast(whole), symbols(9), torch.tensor([2, 0, 2, 1])
    state, slow = stepping.start(None, N), whole.start(None, N)
    for step in x.t():
        chosen = stepping.select(state, index)
        state, slow = stepping.advance(state, step), whole.advance(slow, step)
        beams = stepping.advance(chosen, step[index])
        torch.testing.assert_close(beams.outputs, slow.outputs[index], rtol=0, atol=1e-12)
        torch.testing.assert_close(state.outputs, slow.outputs, rtol=0, atol=1e-12)
    chosen, rest = stepping.select(state, index), symbols(6, seed=1)
    for step in rest.t():  # over a window's edge
        chosen, slow = stepping.advance(chosen, step[index]), whole.advance(slow, step)
    torch.testing.assert_close(chosen.outputs, slow.outputs[index], rtol=0, atol=1e-12)


def test_steps_are_written_in_place() -> None:
    stepping = fast(cursor("transformer", Windowing()))
    state, places = stepping.start(None, N), []
    for step in symbols(15).t():
        state = stepping.advance(state, step)
        places.append(state.stepper_state.cache.key_value.data_ptr())
    assert len(set(places)) == 1
    assert state.stepper_state.cache.key_value.shape[4] == 16


def test_a_state_of_inference_mode_goes_on_outside_of_it() -> None:
    whole, x = cursor("transformer", Windowing()), symbols(6)
    stepping = fast(whole)
    with torch.inference_mode():
        state = stepping.start(None, N)
        for step in x[:, :4].t():
            state = stepping.advance(state, step)
    for step in x[:, 4:].t():
        state = stepping.advance(state, step)
    torch.testing.assert_close(stepping.distribution(state).log_probs(), walked(whole, x)[-1], rtol=0, atol=1e-12)


def test_what_the_caller_changes_later_was_read_before() -> None:
    whole, x = cursor("transformer", Windowing(4)), symbols(9)
    stepping, scratch = fast(whole), torch.zeros(N, dtype=torch.int64)
    state = stepping.start(None, N)
    for step in x.t():
        state = stepping.advance(state, scratch.copy_(step))
    torch.testing.assert_close(stepping.distribution(state).log_probs(), walked(whole, x)[-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("options", LEFT_OUT)
def test_what_is_not_implemented_is_left_to_the_module(options: dict[str, Any]) -> None:
    network = TransformerNetwork(TransformerConfig(d_model=8, n_heads=2, **options))
    assert network.stepper() is None


def test_large_vocabularies_need_no_table_of_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqmodels.neural.cursor.PROJECTED_UP_TO", V - 1)
    whole, x = cursor("transformer", Windowing(8)), symbols(13)
    torch.testing.assert_close(walked(fast(whole), x), walked(whole, x), rtol=0, atol=1e-12)
