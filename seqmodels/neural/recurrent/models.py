"""The users' recurrent models: Elman, LSTM, GRU, and a network of any cell."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from seqmodels.neural.batches import Windowing
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.network import Network
from seqmodels.neural.ops.scan import Nonlinearity
from seqmodels.neural.recurrent.cell import Cell
from seqmodels.neural.recurrent.elman import ElmanCell, ElmanNetwork
from seqmodels.neural.recurrent.gru import GRUCell, GRUNetwork
from seqmodels.neural.recurrent.lstm import LSTMCell, LSTMNetwork
from seqmodels.neural.recurrent.stack import CellStack, RecurrentOptions

# Faster networks of some cells, which compute the same.
FAST_NETWORKS: dict[object, Callable[..., Network[Any]]] = {
    ElmanCell: ElmanNetwork,
    LSTMCell: LSTMNetwork,
    GRUCell: GRUNetwork,
}


@dataclass(kw_only=True, eq=False, repr=False)
class RecurrentModel(NeuralModel, ABC):
    """What recurrent models without an encoder share: they see the whole past; what is dropped or added is optional.

    Args:
        d_model: width of the hidden state. ``"auto"``: 256; where ``max_seconds`` is the only budget, or the data are
            up to five series of vectors with 1000 frames together or fewer, ``256 sqrt(n / 400000)`` for n steps of
            training data, a power of two from 32 to 256, for a few sequences teach a wide network nothing but
            themselves; 128 in place of 256 where the seconds are not enough for 300 batches, as with many symbols.
            ``d_model_`` is what it came to.
        dropout: fraction of the features of each layer's output that is dropped in training. ``"auto"``: 0.3 where no
            budget is given and the data have fewer than 300,000 steps, and else 0.1; where ``max_seconds`` is the only
            budget, 0 if they are fewer than two passes over the data, by the time of a few batches, 0.3 from seven on,
            and 0.1 between. Always 0.1 on short series and pairs. ``dropout_`` is what it came to.
        bptt: steps back-propagated through at once (truncated back-propagation); the state is carried on.
        recurrent_dropout: the fraction of features and states dropped in training, the same at every step of a window
            (Gal & Ghahramani 2016); ``dropout`` draws afresh at every step, and leaves states alone.
        embedding_dropout: the fraction of steps whose input is dropped in training.
        weight_drop: the fraction of recurrent weights dropped in training, the same for all of a window (Merity et al.
            2018).
        layer_norm: normalise the outputs of each layer (Ba et al. 2016).
        residual: from the second layer on, a layer adds to its input.

    To add one, define ``_network``.
    """

    d_model: int | Literal["auto"] = "auto"
    dropout: float | Literal["auto"] = "auto"
    bptt: int = 64
    recurrent_dropout: float = 0.0
    embedding_dropout: float = 0.0
    weight_drop: float = 0.0
    layer_norm: bool = False
    residual: bool = False

    _width_follows_data: ClassVar[bool] = True
    _dropout_follows_data: ClassVar[bool] = True

    def _windowing(self) -> Windowing:
        return Windowing()

    def _bptt_steps(self) -> int:
        return self.bptt

    def _options(self) -> RecurrentOptions:
        return RecurrentOptions(
            recurrent_dropout=self.recurrent_dropout,
            embedding_dropout=self.embedding_dropout,
            weight_drop=self.weight_drop,
            layer_norm=self.layer_norm,
            residual=self.residual,
        )


@dataclass(kw_only=True, eq=False, repr=False)
class Recurrent(RecurrentModel):
    """A recurrent network of any ``Cell``: ``output_t, state_t = cell(input_t, state_{t-1})``, in layers.

    Args:
        cell: a subclass of ``Cell``, or a function, that makes a layer's cell of ``(d_in, d_hidden)``.
        bptt: steps back-propagated through at once; the state is carried on.

    The other arguments are those of ``NeuralModel`` and, between and inside layers, ``recurrent_dropout``,
    ``embedding_dropout``, ``weight_drop``, ``layer_norm`` and ``residual`` (``RecurrentOptions``). A saved model names
    its cell; ``load`` is told what the name stands for: ``load(path, classes=[MyCell])``.

    >>> model = Recurrent(cell=GRUCell, d_model=8, max_steps=2).fit(["to be or not to be"])
    >>> model.sample(length=3)[0] == model.sample(length=3)[0]
    True
    """

    cell: Callable[[int, int], Cell[Any]] = ElmanCell
    lr: float = 4e-3

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        if not callable(self.cell):
            raise ValueError(
                f"cell is {self.cell!r}; pass a subclass of neural.Cell, or a function that makes a cell of two widths"
            )

    def _network(self) -> Network[Any]:
        if self.cell in FAST_NETWORKS:
            network = FAST_NETWORKS[self.cell]
            return network(self.d_model_, self.n_layers, dropout=self.dropout_, options=self._options())
        return CellStack(self.cell, self.d_model_, self.n_layers, dropout=self.dropout_, options=self._options())


@dataclass(kw_only=True, eq=False, repr=False)
class ElmanRNN(RecurrentModel):
    """``h_t = σ(V h_{t-1} + U x_t + b)`` (Elman 1990, *Finding structure in time*).

    Args:
        nonlinearity: σ: ``"relu6"``, which is ``min(max(z, 0), 6)`` (Krizhevsky 2010), ``"relu"``, whose states may
            grow without bound (Le et al. 2015), ``"tanh"`` or ``"sigmoid"``, Elman's own. GPUs have fused kernels of
            ``"tanh"`` and ``"relu"``.
        bptt: steps back-propagated through at once; the state is carried on.

    The other arguments are those of ``NeuralModel`` and, between and inside layers, ``recurrent_dropout``,
    ``embedding_dropout``, ``weight_drop``, ``layer_norm`` and ``residual`` (``RecurrentOptions``). By the second on one
    core a capped ReLU without dropout learns more than tanh, of characters (``experiments/tuning.py``) as of
    frames.
    """

    nonlinearity: Nonlinearity = "relu6"
    dropout: float = 0.0
    lr: float = 3e-3

    def _network(self) -> Network[Any]:
        return ElmanNetwork(
            self.d_model_,
            self.n_layers,
            nonlinearity=self.nonlinearity,
            dropout=self.dropout_,
            options=self._options(),
        )


@dataclass(kw_only=True, eq=False, repr=False)
class LSTM(RecurrentModel):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000 for the forget gate).

    Args:
        bptt: steps back-propagated through at once; the state is carried on.

    The other arguments are those of ``NeuralModel`` and, between and inside layers, ``recurrent_dropout``,
    ``embedding_dropout``, ``weight_drop``, ``layer_norm`` and ``residual`` (``RecurrentOptions``).
    """

    lr: float = 8e-3

    def _network(self) -> Network[Any]:
        return LSTMNetwork(self.d_model_, self.n_layers, dropout=self.dropout_, options=self._options())


@dataclass(kw_only=True, eq=False, repr=False)
class GRU(RecurrentModel):
    """Gated recurrent unit (Cho et al. 2014).

    Args:
        bptt: steps back-propagated through at once; the state is carried on.

    The other arguments are those of ``NeuralModel`` and, between and inside layers, ``recurrent_dropout``,
    ``embedding_dropout``, ``weight_drop``, ``layer_norm`` and ``residual`` (``RecurrentOptions``).
    """

    lr: float = 4e-3

    def _network(self) -> Network[Any]:
        return GRUNetwork(self.d_model_, self.n_layers, dropout=self.dropout_, options=self._options())
