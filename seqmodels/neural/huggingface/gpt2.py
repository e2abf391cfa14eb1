"""Conversion of GPT-2 (Radford et al. 2019) in Hugging Face's format to ``Transformer``, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor

from seqmodels.neural.huggingface.common import (
    PUBLISHED_ACTIVATIONS,
    Weights,
    activation_of,
    check_convertible,
    check_published,
    is_tied,
    required_weight,
    resolved_row,
    row_of,
)
from seqmodels.neural.transformer.architecture import TransformerArchitecture
from seqmodels.neural.transformer.models import Transformer
from seqmodels.neural.untrained import untrained

BLOCK = {
    "attention.project": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "attention_residual.norm": "ln_1",
    "feedforward.expand": "mlp.c_fc",
    "feedforward.contract": "mlp.c_proj",
    "feedforward_residual.norm": "ln_2",
}
WORDS = "transformer.wte.weight"
LAST_NORM = "transformer.ln_f"
NEVER_LOGIT = -1e4  # nats, for a symbol that is never drawn
TRANSPOSED = tuple(f"{name}.weight" for name in ("c_attn", "c_proj", "c_fc"))  # published as (inputs, outputs)


def from_gpt2(config: Any, weights: Mapping[str, Tensor], start: int | None) -> Transformer:
    """Return a ``Transformer`` with the weights of a ``GPT2LMHeadModel``.

    Args:
        config: the published model's configuration.
        weights: the published model's weights, by name.
        start: the symbol whose embedding precedes the first one; None for the configuration's ``bos_token_id``.
    """
    check_published(config, {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False})
    output = required_weight(weights, "lm_head.weight", "GPT2LMHeadModel")
    start_row = resolved_row(start, config.bos_token_id, config.vocab_size, "start")
    model = Transformer(
        d_model=config.n_embd,
        n_layers=config.n_layer,
        n_heads=config.n_head,
        d_feedforward=config.n_inner,
        context=config.n_positions,
        architecture=TransformerArchitecture(
            tie_embeddings=is_tied(weights[WORDS], output),
            scale_embeddings=False,
            bias=True,
            zero_init=False,
            norm_epsilon=config.layer_norm_epsilon,
            attention_dropout=config.attn_pdrop,
        ),
        convolution_lags=0,
        positions="learned",
        activation=activation_of(config.activation_function),
        dropout=config.resid_pdrop,
    )
    untrained(model, config.vocab_size)
    state = {name: _transposed(published, weights[published]) for name, published in _names(model)}
    state |= {"begin": state["embedding.map.weight"][start_row], "head.bias": torch.zeros(config.vocab_size)}
    if not model.architecture.tie_embeddings:
        state["head.weight"] = output
    model.module_.load_state_dict(state)
    return model


def to_gpt2(model: Transformer) -> Any:
    """Return a ``GPT2LMHeadModel`` in evaluation mode; the package ``transformers`` must be installed.

    GPT-2 reads a symbol before the first one. If the model has a learned start vector instead, it becomes one more
    symbol, V, with probability zero. GPT-2 has no bias of the logits. If the model has one, the output layer is no
    longer tied to the embedding, and contains the bias.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    _check_expressible(model)
    state = model.module_.state_dict()
    weights: Weights = {published: _transposed(published, state[name]) for name, published in _names(model)}
    weights["lm_head.weight"] = model.module_.head.weight.detach()
    start = row_of(weights[WORDS], state["begin"])
    tied = model.architecture.tie_embeddings and start is not None and not _varies(state["head.bias"])
    weights |= _embedding_and_output(weights, state["head.bias"], state["begin"] if start is None else None)
    config = GPT2Config(
        vocab_size=len(weights[WORDS]),
        n_positions=model.context,
        n_embd=model.d_model,
        n_layer=model.n_layers,
        n_head=model.n_query_heads,
        n_inner=model.d_feedforward,
        activation_function=PUBLISHED_ACTIVATIONS[model.activation],
        resid_pdrop=model.dropout_,
        embd_pdrop=model.dropout_,
        attn_pdrop=model.architecture.attention_dropout,
        layer_norm_epsilon=model.architecture.norm_epsilon,
        bos_token_id=model.encoding_.size if start is None else start,
        eos_token_id=start,
        tie_word_embeddings=tied,
    )
    converted = GPT2LMHeadModel(config)
    converted.load_state_dict(weights)
    return converted.eval()


def _embedding_and_output(weights: Weights, bias: Tensor, begin: Tensor | None) -> Weights:
    """Return GPT-2's embedding table, output layer and shift of the last norm, by GPT-2's names.

    Args:
        weights: weights converted so far, by GPT-2's names.
        bias: bias of the logits, ``(V,)``, which is made part of output layer and shift.
        begin: learned start vector, ``(d,)``, which becomes one more symbol with probability zero; None if there is
            none.
    """
    words = weights[WORDS]
    head = weights["lm_head.weight"]
    shift = weights[f"{LAST_NORM}.bias"]
    if begin is not None:
        words = torch.cat([words, begin[None]])
        head = torch.cat([head, torch.zeros_like(begin)[None]])
        bias = torch.cat([bias, bias.new_tensor([NEVER_LOGIT])])
    if _varies(bias):
        head, shift = with_bias(head, bias, weights[f"{LAST_NORM}.weight"], shift)
    return {WORDS: words, "lm_head.weight": head, f"{LAST_NORM}.bias": shift}


def _varies(bias: Tensor) -> bool:
    """Return False if ``bias (V,)``, added to the logits, is the same for all symbols and so has no effect."""
    return not torch.equal(bias, bias[:1].expand_as(bias))


def _names(model: Transformer) -> Iterator[tuple[str, str]]:
    """Yield pairs of names, here and in GPT-2, of all weights but the output layer's and the learned start's."""
    yield "embedding.map.weight", WORDS
    yield "network.positions.table", "transformer.wpe.weight"
    for i, (name, published), kind in product(range(model.n_layers), BLOCK.items(), ("weight", "bias")):
        yield f"network.decoder.blocks.{i}.{name}.{kind}", f"transformer.h.{i}.{published}.{kind}"
    for kind in ("weight", "bias"):
        yield f"network.decoder.final_norm.{kind}", f"{LAST_NORM}.{kind}"


def _transposed(published: str, weight: Tensor) -> Tensor:
    return weight.t().contiguous() if published.endswith(TRANSPOSED) else weight


def _check_expressible(model: Transformer) -> None:
    expected: dict[str, tuple[object, ...]] = {
        "length_": ("given",),
        "norm": ("pre",),
        "norm_type": ("layer",),
        "norm_affine": (True,),
        "activation": tuple(PUBLISHED_ACTIVATIONS),
        "positions": ("learned",),
        "convolution_lags": (0,),
        "projections": (True,),
        "n_kv_heads": (None, model.n_query_heads),
        "qk_norm": (False,),
        "window": (None,),
        "bias": (True,),
    }
    if model.architecture.tie_embeddings:
        expected["scale_embeddings"] = (False,)
    check_convertible(model, "GPT-2", expected)


def with_bias(weight: Tensor, bias: Tensor, gain: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Express a bias of the logits after a layer norm by an output layer without bias.

    The result W' ``(V, d)`` and s' ``(d,)`` satisfies ``W' (g n + s') = W (g n + s) + b`` for every n that sums to
    zero, as the array n that a layer norm normalises does. For such n, ``(1 / g) · (g n + s) = Σ s / g``, whatever n
    is. With a shift s' that makes this sum d, adding ``b_v / (d g)`` to row v of the output layer adds b_v to its
    logit.

    Args:
        weight: W ``(V, d)``.
        bias: b ``(V,)``.
        gain: the norm's gain g ``(d,)``.
        shift: the norm's shift s ``(d,)``.

    Raises:
        ValueError: if a gain is zero.

    >>> import torch
    >>> W, b, g, s = torch.eye(3)[:2], torch.tensor([1.0, -1.0]), torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3)
    >>> other, moved = with_bias(W, b, g, s)
    >>> other @ (g * torch.tensor([1.0, 1.0, -2.0]) + moved)
    tensor([2., 1.])
    """
    if not gain.all():
        raise ValueError(
            "the last norm has a gain of zero, so a bias of the logits cannot be expressed without one; set it to 0"
        )
    w, b, g, s = (x.double() for x in (weight, bias, gain, shift))
    moved = s + (1 - (s / g).mean()) * g  # s' / g has mean one
    added = (w @ (s - moved) + b) / len(g)
    return (w + added[:, None] / g).to(weight.dtype), moved.to(shift.dtype)
