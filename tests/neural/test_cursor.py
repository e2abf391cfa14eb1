from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from seqmodels.encodings.examples import Example
from seqmodels.generation import Cursor
from seqmodels.generation.cursor import single_steps
from seqmodels.neural.batches import Row, Windowing
from seqmodels.neural.cursor import NetworkCursor, StepperCursor, ArraySteps
from seqmodels.neural.embedding_and_head import IOSpec, SequenceModule
from seqmodels.neural.network import Network
from seqmodels.neural.recurrent.elman import ElmanNetwork
from seqmodels.neural.recurrent.gru import GRUNetwork
from seqmodels.neural.recurrent.lstm import LSTMNetwork
from seqmodels.neural.scoring import log_prob_steps
from seqmodels.observations import Categorical, Observation

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


# -- networks of symbols ---------------------------------------------------------------------------------------


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


def test_a_symbol_cursors_state_is_not_changed_by_what_follows() -> None:
    for network in RECURRENT:
        _, cursor = both_cursors(network, False, True)
        state = cursor.advance(cursor.start(None, 1), torch.tensor([1]))
        first, _, again = (cursor.advance(state, torch.tensor([x])).outputs for x in (0, 1, 0))
        torch.testing.assert_close(first, again, rtol=1e-12, atol=1e-12)
        assert not first.requires_grad


def test_vectors_and_encoders_have_no_symbol_cursor(build_module: Build) -> None:
    for network, emits in (("gru", "vectors"), ("lstm seq2seq", "symbols"), ("transformer seq2seq", "symbols")):
        assert StepperCursor.from_network_cursor(NetworkCursor(*build_module(network, emits), Windowing())) is None
