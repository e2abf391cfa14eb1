from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.encodings.examples import Example
from seqmodels.generation import Cursor
from seqmodels.generation.cursor import single_steps
from seqmodels.generation.decoding import ANCESTRAL, draw
from seqmodels.neural.batches import Row, Windowing
from seqmodels.neural.cursor import ArrayState, ArraySteps, NetworkCursor, StepperCursor
from seqmodels.neural.embedding_and_head import IOSpec, SequenceModule
from seqmodels.neural.network import Network
from seqmodels.neural.recurrent.elman import ElmanNetwork
from seqmodels.neural.recurrent.gru import GRUNetwork
from seqmodels.neural.recurrent.lstm import LSTMNetwork
from seqmodels.neural.recurrent.min_gru import MinGRUCell
from seqmodels.neural.recurrent.stack import CellStack, RecurrentOptions
from seqmodels.neural.scoring import log_prob_steps
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.network import TransformerNetwork
from seqmodels.observations import Categorical, GaussianMixture, NegativeBinomial, Observation

Build = Callable[..., tuple[SequenceModule, Observation]]
NETWORKS = [
    ("gru", None),
    ("lstm", None),
    ("transformer", None),
    *(("transformer", n) for n in (1, 2, 5, 8)),
    ("lstm seq2seq", None),
    ("transformer seq2seq", None),
]
CASES = [
    *((network, Windowing(context)) for network, context in NETWORKS),
    *(("transformer", Windowing(*n)) for n in ((5, 1), (5, 5), (8, 3))),
]


def sequences(emits: str, n: int, length: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shape = (n, length) if emits == "symbols" else (n, length, 2)
    return list(rng.integers(0, 3, shape) if emits == "symbols" else rng.normal(size=shape))


def step_by_step(cursor: NetworkCursor, values: list[np.ndarray], source: np.ndarray | None) -> np.ndarray:
    """``(n, T)`` log-probabilities, and the end's where there is one, step by step."""
    steps = torch.as_tensor(np.stack(values))
    state, found = cursor.start(source, len(values)), []
    for t in range(steps.shape[1]):
        found.append(cursor.distribution(state).log_prob(steps[:, t]))
        state = cursor.advance(state, steps[:, t])
    log_end = cursor.distribution(state).log_end
    return torch.stack(found if log_end is None else [*found, log_end], dim=1).numpy()


@pytest.mark.parametrize(("network", "windowing"), CASES)
@pytest.mark.parametrize("emits", ["symbols", "vectors", "autoregressive"])
@pytest.mark.parametrize("conditional", [False, True])
def test_incremental_and_batched_evaluation_agree(
    build_module: Build, network: str, windowing: Windowing, emits: str, conditional: bool
) -> None:
    module, observation = build_module(network, emits, conditional=conditional)
    values = sequences(emits, 3, 19)
    for n_source in (1, 6, 11) if conditional else (0,):
        source = sequences(emits, 1, n_source)[0] if conditional else None
        rows = [Row.from_example(Example(v, source), module.network.reads_source, module.spec.has_end) for v in values]
        expected = np.stack(log_prob_steps(module, observation, rows, windowing))
        found = step_by_step(NetworkCursor(module, observation, windowing), values, source)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_the_end_cannot_come_first(build_module: Build) -> None:
    for conditional in (False, True):
        module, observation = build_module("gru", conditional=conditional)
        cursor = NetworkCursor(module, observation, Windowing())
        state = cursor.start(np.array([1, 2]) if conditional else None, 2)
        log_end = cursor.distribution(state).log_end
        assert log_end is not None
        assert (log_end == -torch.inf).all()
        after = cursor.distribution(cursor.advance(state, torch.tensor([0, 1]))).log_end
        assert after is not None
        assert torch.isfinite(after).all()


def test_a_state_is_not_changed_by_what_follows(build_module: Build) -> None:
    module, observation = build_module("transformer")
    cursor = NetworkCursor(module, observation, Windowing(4))
    state = cursor.start(None, 1)
    for symbol in (0, 2, 1, 1, 2):
        state = cursor.advance(state, torch.tensor([symbol]))
    before = cursor.distribution(state).output_parameters.clone()
    left, right = (cursor.advance(state, torch.tensor([symbol])) for symbol in (0, 1))
    again = cursor.advance(state, torch.tensor([0]))
    torch.testing.assert_close(cursor.distribution(state).output_parameters, before, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        cursor.distribution(again).output_parameters,
        cursor.distribution(left).output_parameters,
        rtol=1e-12,
        atol=1e-12,
    )
    assert not torch.equal(cursor.distribution(left).output_parameters, cursor.distribution(right).output_parameters)


def test_memory_stays_bounded(build_module: Build) -> None:
    module, observation = build_module("gru", "autoregressive")
    cursor = NetworkCursor(module, observation, Windowing())
    state = cursor.start(None, 1)
    for _ in range(10):
        state = cursor.advance(state, torch.zeros(1, 2))
    assert state.recent.shape == (1, observation.n_past, 2)
    assert state.position == 10


@pytest.mark.parametrize(("network", "context"), NETWORKS)
def test_selected_rows_go_on_as_they_would_have(build_module: Build, network: str, context: int | None) -> None:
    module, observation = build_module(network)
    cursor, index = NetworkCursor(module, observation, Windowing(context)), torch.tensor([2, 0, 2])
    state = cursor.start(None, 3)
    for x in sequences("symbols", 7, 3):
        state = cursor.advance(state, torch.as_tensor(x))
    chosen, symbols = cursor.select(state, index), torch.tensor([1, 0, 2])
    for _ in range(2):
        found = cursor.distribution(chosen).output_parameters
        torch.testing.assert_close(found, cursor.distribution(state).output_parameters[index], rtol=0, atol=1e-12)
        chosen, state = cursor.advance(chosen, symbols[index]), cursor.advance(state, symbols)


# -- networks with a stepper ------------------------------------------------------------------------------------


RECURRENT: dict[str, Callable[[], Network]] = {
    "lstm": lambda: LSTMNetwork(8, 3, dropout=0.3),
    "gru": lambda: GRUNetwork(8, 3, dropout=0.3),
    "elman tanh": lambda: ElmanNetwork(8, 2),
    "elman sigmoid": lambda: ElmanNetwork(8, 2, nonlinearity="sigmoid"),
    "elman relu": lambda: ElmanNetwork(8, 2, nonlinearity="relu"),
    "elman relu6": lambda: ElmanNetwork(8, 2, nonlinearity="relu6"),
}


def both_cursors(network: str, conditional: bool, has_end: bool) -> tuple[NetworkCursor, StepperCursor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = SequenceModule(
            RECURRENT[network](), Categorical(), IOSpec("symbols", 5, conditional, has_end), torch.Generator()
        )
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
    whole = NetworkCursor(module.double().eval(), Categorical(), Windowing())
    fast = StepperCursor.from_network_cursor(whole)
    assert fast is not None
    return whole, fast


def walked(cursor: Cursor, source: np.ndarray | None) -> torch.Tensor:
    """Log-probabilities of every symbol and the end, at every step; in between rows change places."""
    symbols, state, found = torch.tensor([[0, 4, 2, 2], [1, 3, 0, 4], [3, 3, 3, 3]]), cursor.start(source, 3), []
    for x in symbols.t():
        found.append(cursor.distribution(state).log_probs())
        state = cursor.select(cursor.advance(state, x), torch.tensor([2, 0, 0]))
    return torch.stack([*found, cursor.distribution(state).log_probs()])


@pytest.mark.parametrize("network", RECURRENT)
@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("has_end", [False, True])
def test_predictions_are_the_network_both_cursors(network: str, conditional: bool, has_end: bool) -> None:
    whole, fast = both_cursors(network, conditional, has_end)
    source = np.array([4, 0, 1]) if conditional else None
    torch.testing.assert_close(walked(fast, source), walked(whole, source), rtol=0, atol=1e-12)


@pytest.mark.parametrize("has_end", [False, True])
def test_a_single_step_is_worth_what_the_prediction_says(has_end: bool) -> None:
    _, cursor = both_cursors("lstm", False, has_end)
    steps, state = single_steps(cursor), cursor.start()
    assert isinstance(steps, ArraySteps)
    at = steps.enter(state)
    for x in (0, 4, 4, 2, 1):
        symbol = torch.tensor([x])
        expected = float(cursor.distribution(state).log_prob(symbol))
        at, nats = steps.advance(at, np.int64(x))
        assert nats == pytest.approx(expected, rel=1e-12)
        state = cursor.advance(state, symbol)
        torch.testing.assert_close(steps.leave(at).outputs, state.outputs, rtol=1e-12, atol=1e-12)


def test_a_stepper_cursors_state_is_not_changed_by_what_follows() -> None:
    for network in RECURRENT:
        _, cursor = both_cursors(network, False, True)
        state = cursor.advance(cursor.start(None, 1), torch.tensor([1]))
        first, _, again = (cursor.advance(state, torch.tensor([x])).outputs for x in (0, 1, 0))
        torch.testing.assert_close(first, again, rtol=1e-12, atol=1e-12)
        assert not first.requires_grad


# -- single steps on arrays ------------------------------------------------------------------------------------


def transformer(**options: Any) -> TransformerNetwork:
    default = {"positions": "rotary", "activation": "relu2", "bias": False, "d_model": 8, "n_layers": 2, "n_heads": 2}
    config = TransformerConfig(**(default | options))
    return TransformerNetwork(config, max_length=16, convolution_lags=4 if config.positions == "rotary" else 0)


STEPPED: dict[str, Callable[[], Network]] = RECURRENT | {
    "transformer": transformer,
    "llama": lambda: transformer(norm_type="rms", activation="swiglu", n_heads=4, n_kv_heads=2),
    "no positions": lambda: transformer(positions=None, activation="gelu", norm_affine=False, norm_epsilon=1e-2),
    "gpt2": lambda: transformer(positions="learned", activation="gelu-tanh", bias=True, qk_norm=True),
}
LEFT_TO_THE_MODULE: dict[str, Callable[[], Network]] = {
    "layer norms": lambda: LSTMNetwork(8, options=RecurrentOptions(layer_norm=True)),
    "a cell": lambda: CellStack(MinGRUCell, 8),
    "post": lambda: transformer(norm="post"),
    "alibi": lambda: transformer(positions="alibi"),
}
HEADS: dict[str, Observation] = {
    "symbols": Categorical(),
    "full": GaussianMixture(3, "full"),
    "diagonal": GaussianMixture(3, "diag"),
    "low rank": GaussianMixture(2, "lowrank"),
    "counts": NegativeBinomial(),
}
STEPS = 200


def stepped(network: str, head: str = "symbols", **spec: Any) -> NetworkCursor:
    """Of random weights in float64, with windows for networks that read so."""
    observation, make = HEADS[head], (STEPPED | LEFT_TO_THE_MODULE)[network]
    size, reads = (5, "symbols") if head == "symbols" else (3, "vectors")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        chosen = IOSpec(**({"reads": reads, "size": size, "conditional": False, "has_end": True} | spec))
        module = SequenceModule(make(), observation, chosen, torch.Generator())
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.25)
    windowing = Windowing(16) if isinstance(module.network, TransformerNetwork) else Windowing()
    return NetworkCursor(module.double().eval(), observation, windowing)


def array_steps(base: NetworkCursor) -> tuple[StepperCursor, ArraySteps]:
    cursor = StepperCursor.from_network_cursor(base)
    assert cursor is not None
    steps = single_steps(cursor)
    assert isinstance(steps, ArraySteps)
    return cursor, steps


def values_of(head: str, length: int = STEPS, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if head == "symbols":
        return rng.integers(5, size=length)
    return rng.poisson(2.0, (length, 3)).astype(float) if head == "counts" else rng.normal(size=(length, 3))


def stepwise(cursor: StepperCursor, steps: ArraySteps, values: np.ndarray, source: np.ndarray | None) -> np.ndarray:
    """``(T + 1,)`` nats of each step, and of the end after them."""
    at, found = steps.enter(cursor.start(source)), []
    for x in values:
        at, nats = steps.advance(at, x)
        found.append(nats)
    log_end = cursor.distribution(steps.leave(at)).log_end
    assert log_end is not None
    return np.array([*found, float(log_end)])


@pytest.mark.quick_cases(12)
@pytest.mark.parametrize(
    ("network", "head", "spec"),
    [
        *((network, head, {}) for network in STEPPED for head in ("symbols", "full")),
        *(("lstm", head, {}) for head in ("diagonal", "low rank", "counts")),
        *((network, "full", {"has_missing": True}) for network in ("gru", "transformer")),
        ("lstm", "full", {"has_first": True}),
        *((network, head, {"conditional": True}) for network in ("elman tanh", "transformer") for head in HEADS),
        ("transformer", "symbols", {"tied_scale": 2.0}),
    ],
)
def test_steps_on_arrays_are_the_modules(network: str, head: str, spec: dict[str, Any]) -> None:
    """Over many steps, past the context of a network that has one."""
    base, values = stepped(network, head, **spec), values_of(head)
    if spec.get("has_missing"):
        values[np.random.default_rng(1).random(values.shape) < 0.2] = np.nan
    source = values_of(head, 7, seed=2) if spec.get("conditional") else None
    found = stepwise(*array_steps(base), values, source)
    (expected,) = log_prob_steps(
        base.module, base.observation, [Row.from_example(Example(values, source), False, True)], base.windowing
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def nats_from(steps: ArraySteps, at: ArrayState, values: np.ndarray) -> list[float]:
    found = []
    for x in values:
        at, nats = steps.advance(at, x)
        found.append(nats)
    return found


@pytest.mark.parametrize("network", ["lstm", "gru", "elman relu6", "transformer"])
def test_steps_on_arrays_leave_the_states_they_start_from(network: str) -> None:
    """Two branches that are taken in turn are what each is in a sequence of its own."""
    cursor, steps = array_steps(stepped(network))
    values, start = values_of("symbols", 40), steps.enter(cursor.start())
    at = start
    for t, x in enumerate(values[:30]):
        if t in (3, 12, 15, 20):  # within a window, over its edge, at it, and in the next
            branches, sides, found = [values_of("symbols", 9, seed=t), values[t : t + 9]], [at, at], np.zeros((2, 9))
            for k in range(9):
                for side in ((0, 1), (1, 0))[k % 2]:
                    sides[side], found[side, k] = steps.advance(sides[side], branches[side][k])
            expected = [nats_from(steps, start, np.concatenate([values[:t], branch]))[t:] for branch in branches]
            np.testing.assert_allclose(found, expected, rtol=1e-12)
        at, _ = steps.advance(at, x)


def test_steps_on_arrays_take_no_more_memory_past_the_context() -> None:
    cursor, steps = array_steps(stepped("transformer"))
    at = steps.enter(cursor.start())
    for x in values_of("symbols"):
        at, _ = steps.advance(at, x)
        assert at.stepper_state.cache.key_value.shape[4] <= 16
        assert len(at.recent) <= 16


def test_steps_on_arrays_say_nothing_of_numbers_that_overflow() -> None:
    base = stepped("elman relu", "full")
    base.module.float()
    cursor, steps = array_steps(base)
    at, found = steps.enter(cursor.start()), []
    for x in (np.full(3, 1e30), np.full(3, 1e38), np.zeros(3)):
        at, nats = steps.advance(at, x)
        found.append(nats)
    assert not np.isfinite(found).all()


@pytest.mark.parametrize("head", ["symbols", "full"])
@pytest.mark.parametrize("network", ["lstm", "gru", "transformer"])
@pytest.mark.parametrize("parts", [(5, 30), (16, 1, 8), (40, 33)])
def test_what_is_read_at_once_is_what_is_read_step_by_step(network: str, head: str, parts: tuple[int, ...]) -> None:
    cursor, steps = array_steps(stepped(network, head))
    values, at, state = values_of(head, sum(parts)), steps.enter(cursor.start()), cursor.start()
    for part in np.split(values, np.cumsum(parts)[:-1]):
        state = cursor.read(state, torch.as_tensor(part).unsqueeze(0))
    for x in values:
        at, _ = steps.advance(at, x)
    for _ in range(20):  # and what follows
        np.testing.assert_allclose(state.outputs[0], at.outputs, rtol=1e-12, atol=1e-12)
        state, (at, _) = cursor.advance(state, torch.as_tensor(values[:1])), steps.advance(at, values[0])


@pytest.mark.parametrize("may_end", [False, True])
@pytest.mark.parametrize("network", ["lstm", "transformer"])
def test_what_is_drawn_on_arrays_is_drawn_as_one_by_one(network: str, may_end: bool) -> None:
    cursor, _ = array_steps(stepped(network))
    state, x = cursor.start(), torch.tensor([3])
    expected, expected_x, ends = state, x, 0
    for seed in range(4):
        assert cursor.n_drawn_at_once(state) >= 10
        generators = [torch.Generator().manual_seed(seed) for _ in range(2)]
        uniform = torch.rand(10, 1, generator=generators[0], dtype=torch.float64)
        symbols, ended, state = cursor.draw(state, x, uniform, may_end=may_end)
        for t, symbol in enumerate(symbols):
            expected = cursor.advance(expected, expected_x)
            one = draw(cursor.distribution(expected), ANCESTRAL, generators[1], may_end=may_end)
            assert torch.equal(symbol, one.x)
            assert (ended is None) == (one.ended is None) == (not may_end)
            if ended is not None and one.ended is not None:
                assert torch.equal(ended[t], one.ended)
                ends += int(ended[t])
            x = expected_x = one.x
        np.testing.assert_allclose(state.outputs, expected.outputs, rtol=1e-12, atol=1e-12)
    assert (ends > 0) == may_end
    assert cursor.n_drawn_at_once(cursor.start(None, 2)) == 0


def test_a_large_alphabet_is_projected_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    base, values = stepped("lstm"), values_of("symbols", 20)
    expected = stepwise(*array_steps(base), values, None)
    monkeypatch.setattr("seqmodels.neural.cursor.PROJECTED_UP_TO", 4)
    cursor, steps = array_steps(stepped("lstm"))
    assert cursor.inputs.table.shape == (5, 8)  # embeddings
    np.testing.assert_allclose(stepwise(cursor, steps, values, None), expected, rtol=1e-12)


@pytest.mark.parametrize("network", [*STEPPED, *LEFT_TO_THE_MODULE])
def test_which_networks_take_single_steps_on_arrays(network: str) -> None:
    cursor = StepperCursor.from_network_cursor(stepped(network))
    assert (cursor is not None) == (network in STEPPED)
    assert cursor is None or isinstance(single_steps(cursor), ArraySteps)


def test_a_stream_goes_on_by_its_own_weights_after_a_refit() -> None:
    options = {"d_model": 8, "max_steps": 3, "dtype": "float64"}
    first, second = ([np.random.default_rng(k).integers(4, size=60)] for k in (1, 2))
    for model in (sm.LSTM(**options), sm.Transformer(**options, context=16, n_layers=1)):
        expected = model.fit(first, validation=None).log_prob_steps(first)[0]
        stream = model.stream()
        found = [stream.update(x) for x in first[0][:30]]
        model.fit(second, validation=None)
        found += [stream.update(x) for x in first[0][30:]]
        np.testing.assert_allclose(found, expected[:60], rtol=1e-12)
        again = model.stream()
        np.testing.assert_allclose(
            [again.update(x) for x in second[0]], model.log_prob_steps(second)[0][:60], rtol=1e-12
        )


def test_encoders_and_observations_of_the_past_have_no_stepper_cursor(build_module: Build) -> None:
    for network, emits in (("gru", "autoregressive"), ("lstm seq2seq", "symbols"), ("transformer seq2seq", "symbols")):
        assert StepperCursor.from_network_cursor(NetworkCursor(*build_module(network, emits), Windowing())) is None
