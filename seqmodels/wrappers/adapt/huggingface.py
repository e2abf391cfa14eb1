"""Causal language models of the package ``transformers``, used as they are, as ``SequenceModel`` objects."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from seqmodels.common.parameters import Seed, checked, in_one_line
from seqmodels.encodings import Encoding, Symbols
from seqmodels.sequences.measure import Length
from seqmodels.wrappers.adapt.fine_tuning import FineTuning
from seqmodels.wrappers.adapt.logits import LogitsModel, LogitsReader, Tokens
from seqmodels.wrappers.adapt.tokenizer import PublishedTokens

Auto = Literal["auto"]


CACHES = ("cache", "past_key_values", "cache_params")  # its names in versions of transformers, newest first


@dataclass(eq=False, repr=False)
class HuggingFaceModel(LogitsModel):
    """A published causal language model of ``transformers``; ``seqmodels.adapt.from_huggingface`` makes one.

    Args:
        model: a model such as ``AutoModelForCausalLM.from_pretrained`` returns.
        tokenizer: its tokenizer, for a model of text; None for a model of integers, the tokens.
        start: token before the first; ``"auto"`` means ``bos_token_id`` or, if there is none, ``eos_token_id``.
        end: token that ends a text; ``"auto"`` means ``eos_token_id``. None means that no token does.
        context: number of tokens that are read at once; ``"auto"`` means ``max_position_embeddings``, None all.
    """

    model: Any
    tokenizer: Any = None
    _: KW_ONLY
    start: int | Auto = "auto"
    end: int | Auto | None = "auto"
    context: int | Auto | None = "auto"

    _in_place_of_code: ClassVar[str] = (
        "save the network, network_.model.save_pretrained(folder), and make this again by "
        "from_huggingface(AutoModelForCausalLM.from_pretrained(folder), ...)"
    )

    def _check_hyperparameters(self) -> None:
        if not isinstance(self.model, nn.Module) or not hasattr(self.model, "config"):
            raise ValueError(
                f"model is {in_one_line(self.model):.80}; pass a causal language model, such as "
                "AutoModelForCausalLM.from_pretrained(name)"
            )

    def _known_encoding(self) -> Encoding:
        size = self._n_tokens()
        if self.tokenizer is None:
            return Symbols(size).restore({"size": size})
        return PublishedTokens(self.tokenizer, size).restore({})

    def _n_tokens(self) -> int:
        head = self.model.get_output_embeddings()
        return int(self.model.config.get_text_config().vocab_size if head is None else head.weight.shape[0])

    def _default_length(self, kind: Any) -> Length:
        """Return "given" for integers, as other models of token numbers do; "stop" for text if there is an end."""
        return "given" if kind == "symbols" or self._resolved().end is None else "stop"

    def _network(self) -> nn.Module:
        return PublishedNetwork(self.model)

    def _reader(self, network: nn.Module) -> LogitsReader:
        assert isinstance(network, PublishedNetwork), "of this model it is"
        return CachedReader(network.model)

    def _resolved(self) -> Tokens:
        config = self.model.config.get_text_config()
        begin, stop = (
            _first(None if self.tokenizer is None else getattr(self.tokenizer, name), getattr(config, name, None))
            for name in ("bos_token_id", "eos_token_id")
        )
        start = (stop if begin is None else begin) if self.start == "auto" else self.start
        if start is None:
            raise ValueError(
                "neither the tokenizer nor the configuration names a token before the first; pass start=, the one that "
                "the model was trained to read there"
            )
        end = stop if self.end == "auto" else self.end
        positions = getattr(config, "max_position_embeddings", None)
        return Tokens(start, end, positions if self.context == "auto" else self.context)


def _first(*candidates: Any) -> int | None:
    """Return the first of several token numbers that is not None; if it is a list of tokens, its first token."""
    for candidate in candidates:
        if candidate is not None:
            return int(candidate[0] if isinstance(candidate, list) else candidate)
    return None


class PublishedNetwork(nn.Module):
    """A published language model as a module from tokens ``(B, T)`` to W logits of the next at each, ``(B, T, W)``."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.training = bool(model.training)  # so that this module is in evaluation mode if the model is

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the token that follows each of ``tokens``, ``(B, T)``, as ``(B, T, W)``."""
        logits: Tensor = self.model(input_ids=tokens, use_cache=False).logits
        return logits


class CachedReader(LogitsReader):
    """A reader of a published model's logits that keeps the model's cache of the last tokens, and reads only new ones.

    If the tokens do not continue those of the last call, all are read.

    Args:
        model: a causal language model of the package ``transformers``.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._tokens: Tensor | None = None  # tokens that the cache holds
        self._logits: Tensor | None = None
        self._cache: dict[str, Any] = {}

    def last_logits(self, tokens: Tensor) -> Tensor:
        known = self._tokens
        n_known = 0 if known is None else known.shape[1]
        continues = known is not None and len(known) == len(tokens) and torch.equal(known, tokens[:, :n_known])
        if not (continues and self._cache):
            n_known, self._cache = 0, {}
        if n_known < tokens.shape[1] or self._logits is None:
            self._tokens = None  # unknown until the read succeeds
            self._read(tokens, n_known)
            self._tokens = tokens
        assert self._logits is not None, "it was read"
        return self._logits

    def _read(self, tokens: Tensor, n_known: int) -> None:
        # One at a time after the first call, because recurrent caches take several tokens only then.
        parts = [tokens] if n_known == 0 else tokens[:, n_known:].split(1, dim=1)
        for part in parts:
            output = self.model(input_ids=part, use_cache=True, **self._cache)
            self._cache = next(({name: output[name]} for name in CACHES if output.get(name) is not None), {})
            self._logits = output.logits[:, -1]


@checked
def from_huggingface(
    model: Any,
    tokenizer: Any = None,
    *,
    start: int | Auto = "auto",
    end: int | Auto | None = "auto",
    length: Length | Auto = "auto",
    context: int | Auto | None = "auto",
    stride: int | None = None,
    training: FineTuning | None = None,
    dtype: str = "float32",
    device: str = "auto",
    random_state: Seed = 0,
) -> HuggingFaceModel:
    """Return a fitted model of a published causal language model, such as Llama, Mamba or Qwen, run as it is.

    ``seqmodels.neural.from_huggingface`` instead converts the weights of GPT-2 and BERT into models of this
    library, which can be trained further and saved. This function reads whatever ``AutoModelForCausalLM`` loads. With
    ``training``, ``fit`` fine-tunes it, and ``network_.model.save_pretrained(folder)`` saves the result.

    With a tokenizer it is a model of text, in nats per UTF-8 byte: its figure is the log-probability of a text's usual
    tokenisation, a lower bound of the text's (``kind="bound"``). Without a tokenizer it is a model of integers, the
    tokens. The figure is the sum of the model's own losses over the tokens after ``start``, and over ``end``; the first
    token is scored given that the text is not empty.

    Args:
        model: a model such as ``AutoModelForCausalLM.from_pretrained`` returns. If it is not in evaluation mode, in
            ``dtype`` and on ``device``, a copy is made that is. Its logits are checked to be causal.
        tokenizer: the tokenizer that the model was trained with, which must give every text back: see
            ``PublishedTokens``. None for a model of integers.
        start: token before the first; ``"auto"`` means ``bos_token_id`` or, if there is none, ``eos_token_id``.
        end: token that ends a text, which is no symbol; ``"auto"`` means ``eos_token_id``. None means that no token
            does, and the text's length is given.
        length: ``"auto"`` means ``"stop"`` for text if there is an end, else ``"given"``, which masks the end.
        context: number of tokens that are read at once, ``start`` included; longer texts are read in windows that
            overlap by half. ``"auto"`` means ``max_position_embeddings``; None means all.
        stride: number of tokens from one window to the next; None means half the context.
        training: a ``FineTuning`` by which ``fit`` trains a copy of the network. None means that ``fit`` leaves it as
            it is.
        dtype, device, random_state: arguments of ``SequenceModel``.

    Raises:
        ValueError: If the tokenizer has more tokens than the model, there is no token to start from, or the model is
            not causal; when scoring, if the tokenizer does not give a text back.
    """
    adapted = HuggingFaceModel(
        model,
        tokenizer,
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
    return adapted._adopted()
