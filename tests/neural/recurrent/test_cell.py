"""A cell of one's own is a model; those of Elman, LSTM and GRU are what their faster networks compute."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import seqmodels as sm
from seqmodels.neural.network import Network, select
from seqmodels.neural.recurrent.cell import Cell
from seqmodels.neural.recurrent.elman import ElmanCell, ElmanNetwork
from seqmodels.neural.recurrent.gru import GRUCell, GRUNetwork
from seqmodels.neural.recurrent.lstm import LSTMCell, LSTMNetwork
from seqmodels.neural.recurrent.stack import CellStack, RecurrentOptions

B, T, D, L = 3, 7, 6, 2


class MinGRU(Cell):
    """``h_t = (1 - z_t) h_{t-1} + z_t W_h x_t``, ``z_t = σ(W_z x_t)`` (Feng et al. 2024)."""

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        self.d_hidden = d_hidden
        self.gate = nn.Linear(d_in, d_hidden)
        self.candidate = nn.Linear(d_in, d_hidden)

    def initial_state(self, n: int) -> Tensor:
        return self.gate.bias.new_zeros(n, self.d_hidden)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.lerp(state, self.candidate(inputs), torch.sigmoid(self.gate(inputs)))
        return h, h


class ParallelMinGRU(MinGRU):
    """The same, all steps at once."""

    def unroll(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        z = torch.sigmoid(self.gate(inputs))
        log_keep = torch.log1p(-z).cumsum(1)  # (B, T, d)
        h = log_keep.exp() * (state[:, None] + (z * self.candidate(inputs) * (-log_keep).exp()).cumsum(1))
        return h, h[:, -1]


FAST: dict[str, tuple[Callable[[int, int], Cell], Callable[..., Any]]] = {
    "lstm": (LSTMCell, LSTMNetwork),
    "gru": (GRUCell, GRUNetwork),
    **{
        name: (partial(ElmanCell, nonlinearity=name), partial(ElmanNetwork, nonlinearity=name))
        for name in ("tanh", "sigmoid", "relu", "relu6")
    },
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def seeded(make: Callable[[], Network]) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().double()


@pytest.mark.parametrize("options", [{}, {"layer_norm": True, "residual": True}], ids=["plain", "norm"])
@pytest.mark.parametrize("name", FAST)
def test_cells_are_what_the_faster_networks_compute(name: str, options: dict[str, bool]) -> None:
    cell, network = FAST[name]
    slow = seeded(lambda: CellStack(cell, D, L, options=RecurrentOptions(**options)))
    fast = seeded(lambda: network(D, L, options=RecurrentOptions(**options)))
    for layer, weights in zip(slow.unrolled, fast.rnn.all_weights, strict=True):
        for mine, theirs in zip(layer.cell.parameters(), weights, strict=True):
            mine.data.copy_(theirs)
    x = draw(B, T, D)
    torch.testing.assert_close(slow(x, slow.start(B))[0], fast(x, fast.start(B))[0], rtol=0, atol=1e-12)


def test_cells_start_as_their_networks_do() -> None:
    slow, fast = seeded(lambda: CellStack(LSTMCell, D, L)), seeded(lambda: LSTMNetwork(D, L))
    pairs = zip(slow.parameters(), fast.parameters(), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)


@pytest.mark.parametrize("sizes", [[1] * T, [3, 4]], ids=["one by one", "3 + 4"])
def test_steps_are_the_whole(sizes: list[int]) -> None:
    network, x = seeded(lambda: CellStack(MinGRU, D, L)), draw(B, T, D)
    whole, _ = network(x, network.start(B))
    state, parts = network.start(B), []
    for part in x.split(sizes, 1):
        hidden, state = network(part, state)
        parts.append(hidden)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)
    rows = torch.tensor([2, 0, 2])
    expected, _ = network(x, state)
    torch.testing.assert_close(network(x[rows], select(state, rows))[0], expected[rows], rtol=0, atol=1e-12)


def test_a_faster_unroll_is_the_steps() -> None:
    slow, fast = seeded(lambda: CellStack(MinGRU, D, L)), seeded(lambda: CellStack(ParallelMinGRU, D, L))
    x = draw(B, T, D)
    torch.testing.assert_close(fast(x, fast.start(B)), slow(x, slow.start(B)), rtol=0, atol=1e-10)


X = [np.array([0, 1, 2, 1, 0, 2, 2, 1, 0, 1, 1]), np.array([2, 1, 0]), np.array([1])]
SMALL: dict[str, Any] = {"d_model": D, "n_layers": L, "max_steps": 3, "dtype": "float64"}


def test_a_cell_of_ones_own_scores_streams_generates_and_is_trained_with_options() -> None:
    architecture = sm.neural.RecurrentArchitecture(embedding_dropout=0.1, layer_norm=True, residual=True)
    options = {"architecture": architecture, "dropout": 0.2}
    model = sm.neural.Recurrent(cell=MinGRU, **SMALL, **options).fit(X, validation=None)
    for x, expected in zip(X, model.log_prob_steps(X), strict=True):
        stream = model.stream()
        np.testing.assert_allclose([stream.update(each) for each in x], expected[: len(x)], rtol=0, atol=1e-12)
    assert [len(x) for x in model.sample(3, length=5)] == [5, 5, 5]
    again = sm.neural.Recurrent(cell=MinGRU, **SMALL, **options).fit(X, validation=None)
    assert again.score(X) == pytest.approx(model.score(X), rel=1e-6)
    vectors = [draw(9, 2).numpy(), draw(4, 2, seed=1).numpy()]
    assert np.isfinite(sm.neural.Recurrent(cell=MinGRU, **SMALL).fit(vectors, validation=None).score(vectors))


def test_a_known_cell_is_its_faster_network() -> None:
    fast = sm.neural.Recurrent(cell=LSTMCell, **SMALL, lr=8e-3).fit(X, validation=None)
    assert isinstance(fast.module_.network, LSTMNetwork)
    plain = sm.LSTM(**SMALL).fit(X, validation=None)
    assert fast.score(X) == pytest.approx(plain.score(X), rel=1e-8)  # Adam divides by gradients of the size of rounding


@pytest.mark.parametrize("drop", ["recurrent_dropout", "weight_drop"])
def test_recurrent_weights_are_dropped_where_they_are_named(drop: str) -> None:
    dropping = seeded(lambda: CellStack(partial(LSTMCell), D, L, options=RecurrentOptions(**{drop: 0.5})))
    plain, x = seeded(lambda: CellStack(partial(LSTMCell), D, L)), draw(B, T, D)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        noisy, _ = dropping(x, dropping.start(B))
    exact, _ = plain(x, plain.start(B))
    assert not torch.allclose(noisy, exact)
    noisy.sum().backward()
    assert all(parameter.grad is not None for parameter in dropping.parameters())
    torch.testing.assert_close(dropping.eval()(x, dropping.start(B))[0], exact, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="MinGRU names no recurrent_weights"):
        sm.neural.Recurrent(cell=MinGRU, **SMALL).set_params(**{f"architecture__{drop}": 0.5}).fit(X)


def test_what_is_no_cell_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the cell is a GRUCell; pass a subclass of neural\.Cell"):
        sm.neural.Recurrent(cell=nn.GRUCell, **SMALL).fit(X)
    with pytest.raises(ValueError, match=r"cell is 'gru'; pass a subclass of neural\.Cell"):
        sm.neural.Recurrent(cell="gru", **SMALL).fit(X)  # type: ignore[arg-type]


def test_a_cell_of_ones_own_is_saved_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model = sm.neural.Recurrent(cell=MinGRU, **SMALL).fit(X, validation=None)
    with pytest.warns(UserWarning, match=r"load\(path, classes=\[MinGRU\]\)"):
        model.save(path)
    assert sm.load(path, classes=[MinGRU]).score(X) == pytest.approx(model.score(X), rel=1e-6)
    with pytest.raises(ValueError, match=r"pass classes=\[MinGRU\]"):
        sm.load(path)
    sm.neural.Recurrent(cell=GRUCell, **SMALL).fit(X, validation=None).save(path)
    assert isinstance(sm.load(path), sm.neural.Recurrent)
    with pytest.raises(ValueError, match="pass a class in its place"):
        sm.neural.Recurrent(cell=partial(ElmanCell, nonlinearity="relu"), **SMALL).fit(X, validation=None).save(path)
