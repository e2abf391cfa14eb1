"""Published weights: Hugging Face's models <-> fitted models, with the same log-probabilities up to rounding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from seqmodels.neural.huggingface.bert import UNCASED, Marks, from_bert, to_bert
from seqmodels.neural.huggingface.gpt2 import from_gpt2, to_gpt2
from seqmodels.neural.huggingface.t5 import from_t5, to_t5
from seqmodels.neural.masked import MaskedTransformer
from seqmodels.neural.transformer.models import Transformer, TransformerSeq2Seq
from seqmodels.randomness import InitialDraws


class Published(Protocol):
    """What is read of a model of the package ``transformers``, which need not be there."""

    config: Any

    def state_dict(self) -> Mapping[str, Tensor]:
        """Its weights by name."""
        ...


def from_huggingface(
    model: Published, *, start: int | None = None, marks: Marks = UNCASED
) -> Transformer | MaskedTransformer | TransformerSeq2Seq:
    """A fitted model over the integer symbols of the published one; the tokens of a text are for its tokenizer to find.

    - ``GPT2LMHeadModel`` -> ``Transformer``, ``length="given"``: ``<|endoftext|>`` is one of the symbols. Sequences longer
      than its positions are read in windows.
    - ``BertForMaskedLM`` -> ``MaskedTransformer``, which brackets sequences itself: leave ``[CLS]`` and ``[SEP]`` out. All
      is of the first segment.
    - ``T5ForConditionalGeneration`` (relu, heads that divide the width) -> ``TransformerSeq2Seq``, ``length="given"``:
      p(y | x), ``</s>`` is one of the symbols of either.

    Args:
        model: of the package ``transformers``, or whatever has its ``config`` and ``state_dict()``.
        start: the symbol whose embedding stands before the first, of GPT-2 and T5; None: what the configuration says.
        marks: BERT's symbols for mask, beginning and end.

    Raises:
        ValueError: for another architecture, or a choice in the configuration that is not here.
    """
    config, weights = model.config, {name: tensor.detach() for name, tensor in model.state_dict().items()}
    match config.model_type:
        case "gpt2":
            return from_gpt2(config, weights, start)
        case "bert":
            return from_bert(config, weights, marks)
        case "t5":
            return from_t5(config, weights, start)
    raise ValueError(f"model_type is {config.model_type!r}; pass a model of type 'gpt2', 'bert' or 't5'")


def to_huggingface(model: Transformer | MaskedTransformer | TransformerSeq2Seq) -> Any:
    """A model of the package ``transformers``: ``GPT2LMHeadModel``, ``BertForMaskedLM`` or ``T5ForConditionalGeneration``.

    It is in float32, in evaluation mode, with the same logits, but for a constant.

    Args:
        model: fitted to symbols or text (whose encoded steps are the symbols), with the architecture of ``presets.gpt2``,
            ``bert`` or ``t5`` in any size. Only GPT-2 and BERT can say what was trained here: GPT-2 with one more symbol
            for the beginning and an output layer of its own, BERT with three more for its marks, all of probability
            zero. T5 begins after a symbol and has no bias of the logits.

    Raises:
        ValueError: for what the published architecture has not, named.
        ImportError: ``transformers`` is not installed.
    """
    model._setting()  # refuses what is not fitted
    if model.encoding_.reads == "vectors":
        raise ValueError("the model reads vectors; fit one to text or to the integers of a tokenizer")
    _check_installed()
    with InitialDraws(torch.Generator()):  # theirs draws weights before it is given any
        if isinstance(model, MaskedTransformer):
            return to_bert(model)
        if isinstance(model, TransformerSeq2Seq):
            return to_t5(model)
        return to_gpt2(model)


def _check_installed() -> None:
    try:
        import transformers  # noqa: F401 (only whether it is there)
    except ImportError as error:
        raise ImportError("to_huggingface needs transformers: pip install 'seqmodels[huggingface]'") from error
