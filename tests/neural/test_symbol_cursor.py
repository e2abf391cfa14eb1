from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from seqmodels.generation import Cursor
from seqmodels.neural.batches import Windowing
from seqmodels.neural.cursor import NetworkCursor
from seqmodels.neural.io_module import IOSpec, SequenceModule
from seqmodels.neural.network import Network
from seqmodels.neural.recurrent.elman import ElmanNetwork
from seqmodels.neural.recurrent.gru import GRUNetwork
from seqmodels.neural.recurrent.lstm import LSTMNetwork
from seqmodels.neural.symbol_cursor import SymbolCursor
from seqmodels.observations import Categorical, Observation

Build = Callable[..., tuple[SequenceModule, Observation]]
NETWORKS: dict[str, Callable[[], Network]] = {
    "lstm": lambda: LSTMNetwork(8, 3, dropout=0.3),
    "gru": lambda: GRUNetwork(8, 3, dropout=0.3),
    "elman tanh": lambda: ElmanNetwork(8, 2),
    "elman sigmoid": lambda: ElmanNetwork(8, 2, nonlinearity="sigmoid"),
    "elman relu": lambda: ElmanNetwork(8, 2, nonlinearity="relu"),
    "elman relu6": lambda: ElmanNetwork(8, 2, nonlinearity="relu6"),
}


def cursors(network: str, conditional: bool, stops: bool) -> tuple[NetworkCursor, SymbolCursor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = SequenceModule(
            NETWORKS[network](), Categorical(), IOSpec("symbols", 5, conditional, stops), torch.Generator()
        )
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
    whole = NetworkCursor(module.double().eval(), Categorical(), Windowing())
    fast = SymbolCursor.of(whole)
    assert fast is not None
    return whole, fast


def walked(cursor: Cursor, source: np.ndarray | None) -> torch.Tensor:
    """Log-probabilities of every symbol and the end, at every step; in between rows change places."""
    symbols, state, found = torch.tensor([[0, 4, 2, 2], [1, 3, 0, 4], [3, 3, 3, 3]]), cursor.start(source, 3), []
    for x in symbols.t():
        found.append(cursor.distribution(state).log_probs())
        state = cursor.select(cursor.advance(state, x), torch.tensor([2, 0, 0]))
    return torch.stack([*found, cursor.distribution(state).log_probs()])


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("stops", [False, True])
def test_predictions_are_the_network_cursors(network: str, conditional: bool, stops: bool) -> None:
    whole, fast = cursors(network, conditional, stops)
    source = np.array([4, 0, 1]) if conditional else None
    torch.testing.assert_close(walked(fast, source), walked(whole, source), rtol=0, atol=1e-12)


def test_a_state_is_not_changed_by_what_follows() -> None:
    for network in NETWORKS:
        _, cursor = cursors(network, False, True)
        state = cursor.advance(cursor.start(None, 1), torch.tensor([1]))
        first, _, again = (cursor.advance(state, torch.tensor([x])).outputs for x in (0, 1, 0))
        assert torch.equal(first, again)
        assert not first.requires_grad


def test_vectors_and_encoders_have_no_symbol_cursor(build_module: Build) -> None:
    for network, emits in (("gru", "vectors"), ("lstm seq2seq", "symbols"), ("transformer seq2seq", "symbols")):
        assert SymbolCursor.of(NetworkCursor(*build_module(network, emits), Windowing())) is None
