"""``from_huggingface``: any causal language model of the package ``transformers``, as it is, as a ``SequenceModel``."""

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


CACHES = ("cache", "past_key_values", "cache_params")  # its names in versions of transformers, the newest first


@dataclass(eq=False, repr=False)
class HuggingFaceModel(LogitsModel):
    """A published causal language model. ``seqmodels.adapt.from_huggingface`` makes one; its arguments are the same."""

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
        """W, the columns of its logits."""
        head = self.model.get_output_embeddings()
        return int(self.model.config.get_text_config().vocab_size if head is None else head.weight.shape[0])

    def _default_length(self, kind: Any) -> Length:
        """Of integers lengths are given, as by other models of token numbers; a text ends where the model says."""
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
    """The first that is a token, or a list of such."""
    for candidate in candidates:
        if candidate is not None:
            return int(candidate[0] if isinstance(candidate, list) else candidate)
    return None


class PublishedNetwork(nn.Module):
    """Tokens ``(B, T)`` -> logits ``(B, T, W)``."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.training = bool(model.training)  # so that evaluation mode is taken to be what the model's is

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits ``(B, T, W)`` of what follows each of ``tokens (B, T)``."""
        logits: Tensor = self.model(input_ids=tokens, use_cache=False).logits
        return logits


class CachedReader(LogitsReader):
    """Keeps the cache of the tokens that it read last; those that go on from them are read alone."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._tokens: Tensor | None = None  # what is in the cache
        self._logits: Tensor | None = None
        self._cache: dict[str, Any] = {}

    def last_logits(self, tokens: Tensor) -> Tensor:
        known = self._tokens
        n_known = 0 if known is None else known.shape[1]
        continues = known is not None and len(known) == len(tokens) and torch.equal(known, tokens[:, :n_known])
        if not (continues and self._cache):
            n_known, self._cache = 0, {}
        if n_known < tokens.shape[1] or self._logits is None:
            self._tokens = None  # until it is read
            self._read(tokens, n_known)
            self._tokens = tokens
        assert self._logits is not None, "it was read"
        return self._logits

    def _read(self, tokens: Tensor, n_known: int) -> None:
        # A cache takes several tokens at once in its first call only: recurrent ones go on by one.
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
    """A fitted model of a published causal language model, which is run as it is: Llama, Mamba, Qwen, ...

    ``seqmodels.neural.from_huggingface`` instead converts the weights of GPT-2, BERT and T5 into models of this
    library, which can be trained further and saved. This one reads whatever ``AutoModelForCausalLM`` loads; with
    ``training`` it is fine-tuned by ``fit``, and ``network_.model.save_pretrained(folder)`` saves what that came to.

    With a tokenizer it is of text, in nats per UTF-8 byte: the log-probability of a text's usual tokenisation, a lower
    bound of the text's (``kind="bound"``). Without it is of integers, the tokens. The figure is the sum of the model's
    own losses over the tokens after ``start``, and over ``end``; only of the first token it is the loss given that the
    text is not empty.

    Args:
        model: such as of ``AutoModelForCausalLM.from_pretrained``; in evaluation mode, in ``dtype``, and on ``device``,
            or a copy is made that is. Its logits are checked to be causal.
        tokenizer: the one it was trained with, which must give every text back: see ``PublishedTokens``.
        start: the token before the first; ``"auto"``: ``bos_token_id``, or if there is none, ``eos_token_id``.
        end: the token that ends a text; ``"auto"``: ``eos_token_id``; None: no token does, and the text's length is
            given. It is no symbol.
        length: ``"auto"``: ``"stop"`` of text where there is an end, else ``"given"``, which masks the end.
        context: tokens that it reads at once, ``start`` among them; longer texts are read in windows that overlap by
            half. ``"auto"``: ``max_position_embeddings``; None: all.
        stride: tokens from a window to the next.
        training: a ``FineTuning``: how ``fit`` trains a copy of the network. None: ``fit`` leaves it as it is.
        dtype, device, random_state: as of ``SequenceModel``.

    Raises:
        ValueError: a tokenizer of more tokens; no token to start from; a model that is not causal. When scoring: a text
            that the tokenizer does not give back.
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
