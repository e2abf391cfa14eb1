"""Conversion of Hugging Face's models to fitted models with the same log-probabilities up to rounding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from seqmodels.common.parameters import checked
from seqmodels.neural.huggingface.bert import ENGLISH_VOCABULARY, SpecialSymbols, from_bert
from seqmodels.neural.huggingface.gpt2 import from_gpt2
from seqmodels.neural.masked import MaskedTransformer
from seqmodels.neural.transformer.models import Transformer


class Published(Protocol):
    """The parts of a model of the package ``transformers`` that a conversion reads; the package need not be installed.

    Attributes:
        config: the model's configuration.
    """

    config: Any

    def state_dict(self) -> Mapping[str, Tensor]:
        """Return the weights by name."""
        ...


@checked
def from_huggingface(
    model: Published, *, start: int | None = None, special_symbols: SpecialSymbols = ENGLISH_VOCABULARY
) -> Transformer | MaskedTransformer:
    """Return a published model as a fitted model over the integer symbols into which its tokenizer turns a text.

    - ``GPT2LMHeadModel`` becomes a ``Transformer`` with ``length="given"``; ``<|endoftext|>`` is one of the symbols.
      Sequences longer than its number of positions are read in windows.
    - ``BertForMaskedLM`` becomes a ``MaskedTransformer``, which adds the boundaries itself: leave ``[CLS]`` and
      ``[SEP]`` out. All symbols belong to the first segment.

    Args:
        model: a model of the package ``transformers``, or any object that has its ``config`` and ``state_dict()``.
        start: for GPT-2, the symbol whose embedding precedes the first one, or None for the configuration's.
        special_symbols: BERT's symbols for mask, beginning and end.

    Raises:
        ValueError: if the architecture or its configuration is not supported.
    """
    config = model.config
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    match config.model_type:
        case "gpt2":
            return from_gpt2(config, weights, start)
        case "bert":
            return from_bert(config, weights, special_symbols)
    raise ValueError(f"model_type is {config.model_type!r}; pass a model of type 'gpt2' or 'bert'")
