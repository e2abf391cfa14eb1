"""A trained causal ``nn.Module`` of tokens, used as it is, as a ``SequenceModel``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import nn

from seqmodels.common.display import a_or_an
from seqmodels.common.parameters import Seed, checked_but
from seqmodels.common.randomness import InitialDraws
from seqmodels.encodings import Encoding
from seqmodels.sequences.measure import Length
from seqmodels.wrappers.adapt.alphabet import known_encoding
from seqmodels.wrappers.adapt.fine_tuning import FineTuning
from seqmodels.wrappers.adapt.logits import LogitsModel, Tokens


@dataclass(eq=False, repr=False)
class TorchModel(LogitsModel):
    """A model ``p(x_t | x_<t) = softmax(module(start, x_<t))`` of a network of tokens; ``from_torch`` makes one.

    Args:
        module: network from tokens ``(B, T)`` to logits ``(B, T, W)``, or a class without arguments that makes it.
        n_symbols: number of symbols V, if sequences are of integers.
        symbols: names of the V symbols, if sequences are of strings.
        text: True if sequences are strings, read as UTF-8 bytes.
        alphabet: the V characters, if sequences are strings, read as characters.
        start: token before the first symbol; None if there is none, and the first symbol is then uniform.
        end: token that ends a sequence; None if there is none.
    """

    module: nn.Module | type
    _: KW_ONLY
    n_symbols: int | None = None
    symbols: Sequence[str] | None = None
    text: bool = False
    alphabet: str | None = None
    start: int | None = None
    end: int | None = None

    def _check_hyperparameters(self) -> None:
        if not isinstance(self.module, nn.Module | type):
            raise ValueError(f"module is {self.module!r:.80}; pass an nn.Module, or a class that makes a trained one")
        for name in ("start", "end", "context", "stride"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= (name in ("context", "stride"))):
                raise ValueError(f"{name} is {value!r}; pass a number, or None")

    def _known_encoding(self) -> Encoding:
        return known_encoding(self.encoding, self.n_symbols, self.symbols, self.text, self.alphabet)

    def _network(self) -> nn.Module:
        if not isinstance(self.module, type):
            return self.module
        with InitialDraws(torch.Generator().manual_seed(self.random_state)):  # initial weights, before the trained ones
            made = self.module()
        if not isinstance(made, nn.Module):
            raise ValueError(f"{self.module.__name__} makes {a_or_an(type(made))}; pass a class of nn.Module")
        return made

    def _resolved(self) -> Tokens:
        return Tokens(self.start, self.end, self.context)


@checked_but("module")
def from_torch(
    module: nn.Module | type,
    *,
    n_symbols: int | None = None,
    symbols: Sequence[str] | None = None,
    text: bool = False,
    alphabet: str | None = None,
    encoding: Encoding | None = None,
    start: int | None = None,
    end: int | None = None,
    length: Length | Any = "auto",
    context: int | None = None,
    stride: int | None = None,
    training: FineTuning | None = None,
    dtype: str = "float32",
    device: str = "auto",
    random_state: Seed = 0,
) -> TorchModel:
    """Return a fitted model of a trained network that maps tokens ``(B, T)`` to logits ``(B, T, W)`` of the next token.

    Nothing is trained unless ``training`` says how; then ``fit``, also as ``compare`` calls it, trains from the weights
    that the module has. (``from_module`` trains a module that stands between an embedding and a head.) The module is
    checked to be causal. It computes in evaluation mode and in ``dtype``, by a copy if it is not so already. Symbols
    are its tokens 0 to V - 1. Logits of other tokens than these and the end are masked, so the figures are exact.

    Args:
        module: the network; or a class without arguments that makes the trained one, so that the model can be saved.
        n_symbols: V, if sequences are of integers.
        symbols: names of the V symbols, if sequences are of strings.
        text: True if sequences are strings, read as UTF-8 bytes; V is then 256.
        alphabet: the V characters in the order of the tokens, if sequences are strings, read as characters.
        encoding: a fitted encoding for anything else, such as the ``encoding_`` of a model that reads ``BPE``.
        start: token that the network was trained to read before the first symbol. None means that there is none, and
            the first symbol is uniform, ``1 / V``.
        end: token that ends a sequence. It may be one of the first V, and is then no symbol. None if there is none.
        length: ``"auto"`` means ``"stop"`` if there is an ``end``, else ``"given"``, which masks the end.
        context: number of tokens that are read at once; longer sequences are read in windows that overlap by half. None
            means all.
        stride: number of tokens from one window to the next; None means half the context.
        training: a ``FineTuning`` by which ``fit`` trains a copy of the network. None means that ``fit`` leaves it as
            it is.
        dtype, device, random_state: arguments of ``SequenceModel``.

    Raises:
        ValueError: If the module's logits have another shape, or depend on later tokens or on other sequences.

    >>> import torch
    >>> class Bigram(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.table = nn.Embedding.from_pretrained(torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))
    ...
    ...     def forward(self, tokens):
    ...         return self.table(tokens)
    >>> from_torch(Bigram(), n_symbols=2, start=2).log_prob_steps([[0, 0, 1]])[0].round(2)
    array([-0.69, -0.13, -2.13])
    """
    model = TorchModel(
        module,
        n_symbols=n_symbols,
        symbols=symbols,
        text=text,
        alphabet=alphabet,
        encoding="auto" if encoding is None else encoding,
        start=start,
        end=end,
        length=length,
        context=context,
        stride=stride,
        training=training,
        dtype=dtype,
        device=device,
        random_state=random_state,
    )
    return model._adopted()
