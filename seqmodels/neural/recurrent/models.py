"""The users' recurrent models: Elman, LSTM, GRU, and a network of any cell."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from seqmodels.neural.architecture import Architecture
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
class RecurrentArchitecture(Architecture):
    """The rarer options of a recurrent network: the argument ``architecture`` of ``ElmanRNN``, ``LSTM``, ``GRU``, ...

    Args:
        recurrent_dropout: fraction of features and states that is dropped in training, the same at every step of a
            window (Gal & Ghahramani 2016). The model's ``dropout`` draws afresh at every step, and does not drop
            states.
        embedding_dropout: fraction of steps whose input is dropped in training.
        weight_drop: fraction of recurrent weights that is dropped in training, the same for all of a window (Merity et
            al. 2018).
        layer_norm: True to normalise the outputs of each layer (Ba et al. 2016).
        residual: True for a residual connection around each layer from the second on.
        tie_embeddings, scale_embeddings: True if input embedding and output layer share one matrix, and True to
            multiply tied embeddings by √d_model; for symbols only.
    """

    recurrent_dropout: float = 0.0
    embedding_dropout: float = 0.0
    weight_drop: float = 0.0
    layer_norm: bool = False
    residual: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class RecurrentModel(NeuralModel, ABC):
    """A recurrent network without an encoder, which sees the whole past of a sequence; base of ``LSTM``, ``GRU``, ...

    To add one, define ``_network``.

    Args:
        d_model: width of the hidden state; ``"auto"``: 256, or less for short series or little time (see ``LSTM``).
        n_layers: number of layers.
        dropout: fraction of the features of each layer's output that is dropped in training; ``"auto"``: from 0 to 0.3,
            by the number of passes over the data (see ``LSTM``).
        bptt: number of steps that are back-propagated through at once; the state is carried on.
        architecture: the rarer options, such as layer norm.
    """

    d_model: int | Literal["auto"] = "auto"
    dropout: float | Literal["auto"] = "auto"
    bptt: int = 64
    architecture: RecurrentArchitecture = field(default_factory=RecurrentArchitecture)

    _width_follows_data: ClassVar[bool] = True
    _dropout_follows_data: ClassVar[bool] = True

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        self._options()  # which refuses fractions that cannot be

    def _windowing(self) -> Windowing:
        return Windowing()

    def _bptt_steps(self) -> int:
        return self.bptt

    def _options(self) -> RecurrentOptions:
        """Return those options of ``architecture`` that the recurrent layers use, such as dropout and layer norm.

        Raises:
            ValueError: if a fraction is below 0, or 1 or more.
        """
        names = [each.name for each in fields(RecurrentOptions)]
        return RecurrentOptions(**{name: getattr(self.architecture, name) for name in names})


@dataclass(kw_only=True, eq=False, repr=False)
class Recurrent(RecurrentModel):
    """A recurrent network of any ``Cell``: ``output_t, state_t = cell(input_t, state_{t-1})``, in layers.

    Args:
        cell: a subclass of ``Cell``, or a function, that makes the cell of a layer from two widths, ``(d_in,
            d_hidden)``. A saved model refers to its cell by name, so pass it to ``load``: ``load(path,
            classes=[MyCell])``.
        d_model: width of the hidden state; ``"auto"``: 256, or less for short series or little time (see ``LSTM``).
        n_layers: number of layers.
        dropout: fraction of the features of each layer's output that is dropped in training; ``"auto"``: from 0 to 0.3,
            by the number of passes over the data (see ``LSTM``).
        bptt: number of steps that are back-propagated through at once; the state is carried on.
        architecture: a ``RecurrentArchitecture``: the rarer options, such as layer norm.

    Learning rate, batch size and limits of training are described at ``TrainingOptions``; encoding, observation, seed,
    device and precision at ``SequenceModel``.

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
    """The simple recurrent network of Elman (1990, *Finding structure in time*): ``h_t = σ(V h_{t-1} + U x_t + b)``.

    In the same time on one core a capped ReLU without dropout, the default, learns more than tanh, on characters
    (``experiments/tuning.py``) and on frames.

    Args:
        nonlinearity: σ. ``"relu6"`` is ``min(max(z, 0), 6)`` (Krizhevsky 2010); the states of ``"relu"`` may grow
            without bound (Le et al. 2015); ``"sigmoid"`` is Elman's own; ``"tanh"`` and ``"relu"`` have fused kernels
            on GPUs.
        d_model: width of the hidden state; ``"auto"``: 256, or less for short series or little time (see ``LSTM``).
        n_layers: number of layers.
        dropout: fraction of the features of each layer's output that is dropped in training.
        bptt: number of steps that are back-propagated through at once; the state is carried on.
        architecture: a ``RecurrentArchitecture``: the rarer options, such as layer norm.

    Learning rate, batch size and limits of training are described at ``TrainingOptions``; encoding, observation, seed,
    device and precision at ``SequenceModel``.
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
    """A network of long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000 for the forget gate).

    Args:
        d_model: width of the hidden state. ``"auto"`` is 256 in general. If ``max_seconds`` is the only budget, or the
            data are up to five series of vectors with at most 1000 frames together, it is ``256 sqrt(n / 400000)`` for
            n steps of training data, as a power of two from 32 to 256, because a wide network overfits a few sequences;
            and 128 instead of 256 if the seconds are not enough for 300 batches, as with many symbols. ``d_model_`` is
            the width that was chosen.
        n_layers: number of layers.
        dropout: fraction of the features of each layer's output that is dropped in training. ``"auto"`` is 0.3 if no
            budget is given and the data have fewer than 300,000 steps, and 0.1 otherwise. If ``max_seconds`` is the
            only budget, it is 0 if the seconds are less than two passes over the data (by the time of a few batches),
            0.3 from seven passes on, and 0.1 between. It is always 0.1 on short series. On pairs it is 0 for less than
            four passes and 0.1 otherwise. ``dropout_`` is the fraction that was chosen.
        bptt: number of steps that are back-propagated through at once (truncated back-propagation through time); the
            state is carried on.
        architecture: a ``RecurrentArchitecture``: the rarer options, such as layer norm.

    Learning rate, batch size and limits of training are described at ``TrainingOptions``; encoding, observation, seed,
    device and precision at ``SequenceModel``.
    """

    lr: float = 8e-3

    def _network(self) -> Network[Any]:
        return LSTMNetwork(self.d_model_, self.n_layers, dropout=self.dropout_, options=self._options())


@dataclass(kw_only=True, eq=False, repr=False)
class GRU(RecurrentModel):
    """A network of gated recurrent units (Cho et al. 2014).

    Args:
        d_model: width of the hidden state; ``"auto"``: 256, or less for short series or little time (see ``LSTM``).
        n_layers: number of layers.
        dropout: fraction of the features of each layer's output that is dropped in training; ``"auto"``: from 0 to 0.3,
            by the number of passes over the data (see ``LSTM``).
        bptt: number of steps that are back-propagated through at once; the state is carried on.
        architecture: a ``RecurrentArchitecture``: the rarer options, such as layer norm.

    Learning rate, batch size and limits of training are described at ``TrainingOptions``; encoding, observation, seed,
    device and precision at ``SequenceModel``.
    """

    lr: float = 4e-3

    def _network(self) -> Network[Any]:
        return GRUNetwork(self.d_model_, self.n_layers, dropout=self.dropout_, options=self._options())
