"""Models before their first training step, with random weights: to count parameters, or to load published weights."""

from __future__ import annotations

from typing import TypeVar

from seqmodels.encodings import Symbols
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.model.fitting import apply_setting
from seqmodels.neural.masked import MaskedTransformer
from seqmodels.neural.model import NeuralModel
from seqmodels.observations import Categorical
from seqmodels.sequences.measure import Length

AnyNeural = TypeVar("AnyNeural", bound=NeuralModel)


def untrained(model: AnyNeural, n_symbols: int, *, length: Length = "given", conditional: bool = False) -> AnyNeural:
    """Give ``model`` random weights for integer symbols, as if before its first training step, and return it.

    Within ``torch.device("meta")`` the weights have only shapes.

    Args:
        model: any network model except ``MaskedTransformer``.
        n_symbols: number of symbols V.
        length: ``"stop"`` if the model predicts ends, ``"given"`` if not; it is also set on the model.
        conditional: True for a model of p(y | x), whose sources have the same V symbols.

    >>> import torch
    >>> from seqmodels.neural import Transformer
    >>> with torch.device("meta"):
    ...     model = untrained(Transformer(d_model=512, n_layers=8), 50_000)
    >>> model.n_parameters_
    77473616
    """
    model.set_params(encoding=Symbols(n_symbols), length=length)
    model._check_hyperparameters()
    encoding = Symbols(n_symbols).restore({"size": n_symbols})
    apply_setting(
        model, Setting.from_fitted(encoding, Categorical(), length, conditional, encoding if conditional else None)
    )
    model._build()
    model.module_.eval()
    _never_trained(model)
    return model


def untrained_masked(model: MaskedTransformer, n_symbols: int) -> MaskedTransformer:
    """Give a masked Transformer random weights for ``n_symbols`` integer symbols, as if untrained, and return it."""
    model.set_params(encoding=Symbols(n_symbols))
    model._check_architecture()
    model.encoding_ = Symbols(n_symbols).restore({"size": n_symbols})
    model._build()
    model.module_.eval()
    _never_trained(model)
    return model


def _never_trained(model: NeuralModel | MaskedTransformer) -> None:
    import pandas as pd

    model.history_, model.converged_, model.fit_seconds_ = pd.DataFrame(), False, 0.0
