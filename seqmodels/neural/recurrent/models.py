"""The users' recurrent networks: Elman, LSTM, GRU."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass

from seqmodels.neural.batches import Reach
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.network import Network
from seqmodels.neural.ops.scan import Nonlinearity
from seqmodels.neural.recurrent.network import ElmanNetwork, GRUNetwork, LSTMNetwork
from seqmodels.neural.recurrent.options import RecurrentOptions


@dataclass(kw_only=True, eq=False, repr=False)
class Recurrent(NeuralModel, ABC):
    """What the recurrent models share: they see the whole past, and are trained by truncated back-propagation.

    Args:
        bptt: steps back-propagated through at once; the state is carried on.
    """

    bptt: int = 64

    def _reach(self) -> Reach:
        return Reach()

    def _chunk(self) -> int:
        return self.bptt


@dataclass(kw_only=True, eq=False, repr=False)
class Stacked(Recurrent, ABC):
    """What those without an encoder share: what may be done between and inside their layers, all off by default.

    Args:
        recurrent_dropout: the fraction of features and states dropped in training, the same at every step of a chunk
            (Gal & Ghahramani 2016); ``dropout`` draws afresh at every step, and leaves states alone.
        embedding_dropout: the fraction of steps whose input is dropped in training.
        weight_drop: the fraction of recurrent weights dropped in training, the same for all of a chunk (Merity et al. 2018).
        layer_norm: normalise what each layer hands up (Ba et al. 2016).
        residual: from the second layer on, a layer adds to what it was given.
    """

    recurrent_dropout: float = 0.0
    embedding_dropout: float = 0.0
    weight_drop: float = 0.0
    layer_norm: bool = False
    residual: bool = False

    def _options(self) -> RecurrentOptions:
        return RecurrentOptions(
            self.recurrent_dropout, self.embedding_dropout, self.weight_drop, self.layer_norm, self.residual
        )


@dataclass(kw_only=True, eq=False, repr=False)
class ElmanRNN(Stacked):
    """``h_t = σ(V h_{t-1} + U x_t + b)`` (Elman 1990, *Finding structure in time*).

    Args:
        nonlinearity: σ: ``"relu6"``, which is ``min(max(z, 0), 6)`` (Krizhevsky 2010), ``"relu"``, whose states may grow without
            bound (Le et al. 2015), ``"tanh"`` or ``"sigmoid"``, Elman's own. GPUs have fused kernels of ``"tanh"`` and ``"relu"``.
        bptt: steps back-propagated through at once; the state is carried on.

    The other arguments are those of ``NeuralModel`` and, between and inside layers, ``recurrent_dropout``, ``embedding_dropout``,
    ``weight_drop``, ``layer_norm`` and ``residual`` (``RecurrentOptions``). By the second on one core a capped ReLU without
    dropout learns more than tanh, of characters (``experiments/elman_tuning.py``) as of frames.
    """

    nonlinearity: Nonlinearity = "relu6"
    dropout: float = 0.0
    lr: float = 3e-3

    def _network(self) -> Network:
        return ElmanNetwork(
            self.d_model,
            self.n_layers,
            nonlinearity=self.nonlinearity,
            dropout=self.dropout,
            options=self._options(),
        )


@dataclass(kw_only=True, eq=False, repr=False)
class LSTM(Stacked):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000 for the forget gate).

    Args:
        bptt: steps back-propagated through at once; the state is carried on.

    The other arguments are those of ``NeuralModel`` and, between and inside layers, ``recurrent_dropout``, ``embedding_dropout``,
    ``weight_drop``, ``layer_norm`` and ``residual`` (``RecurrentOptions``).
    """

    lr: float = 8e-3

    def _network(self) -> Network:
        return LSTMNetwork(self.d_model, self.n_layers, dropout=self.dropout, options=self._options())


@dataclass(kw_only=True, eq=False, repr=False)
class GRU(Stacked):
    """Gated recurrent unit (Cho et al. 2014).

    Args:
        bptt: steps back-propagated through at once; the state is carried on.

    The other arguments are those of ``NeuralModel`` and, between and inside layers, ``recurrent_dropout``, ``embedding_dropout``,
    ``weight_drop``, ``layer_norm`` and ``residual`` (``RecurrentOptions``).
    """

    lr: float = 4e-3

    def _network(self) -> Network:
        return GRUNetwork(self.d_model, self.n_layers, dropout=self.dropout, options=self._options())
