"""Conversion of T5 (Raffel et al. 2020) in Hugging Face's format to ``TransformerSeq2Seq``, and back.

T5 leaves its scores unscaled, so its queries are the queries here divided by √d_head. T5 reads its tied table as it is
and divides it by √d for the logits; here the table is already divided, and is multiplied by √d to read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor

from seqmodels.neural.huggingface.common import (
    Weights,
    check_convertible,
    check_published,
    is_tied,
    required_weight,
    resolved_row,
    row_of,
)
from seqmodels.neural.transformer.architecture import TransformerSeq2SeqArchitecture
from seqmodels.neural.transformer.models import TransformerSeq2Seq
from seqmodels.neural.untrained import untrained

STACKS = ("encoder", "decoder")
SELF = {"attention.output": "SelfAttention.o", "attention_residual.norm": "layer_norm"}
CROSS = {
    "cross_attention.key": "EncDecAttention.k",
    "cross_attention.value": "EncDecAttention.v",
    "cross_attention.output": "EncDecAttention.o",
    "cross_residual.norm": "layer_norm",
}
FEEDFORWARD = {
    "feedforward.expand": "DenseReluDense.wi",
    "feedforward.contract": "DenseReluDense.wo",
    "feedforward_residual.norm": "layer_norm",
}
SUBLAYERS = {"encoder": (SELF, FEEDFORWARD), "decoder": (SELF, CROSS, FEEDFORWARD)}


def from_t5(config: Any, weights: Mapping[str, Tensor], start: int | None) -> TransformerSeq2Seq:
    """Return a ``TransformerSeq2Seq`` with the weights of a ``T5ForConditionalGeneration``.

    Args:
        config: the published model's configuration.
        weights: the published model's weights, by name.
        start: the symbol that precedes the first target; None for the configuration's ``decoder_start_token_id``.
    """
    _check_published(config)
    output = required_weight(weights, "lm_head.weight", "T5ForConditionalGeneration")
    usual = getattr(config, "decoder_start_token_id", None)
    start_row = resolved_row(start, config.pad_token_id if usual is None else usual, config.vocab_size, "start")
    tied = is_tied(weights["shared.weight"], output)
    # Older configurations have one setting for both.
    divided = getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)
    model = TransformerSeq2Seq(
        d_model=config.d_model,
        n_layers=config.num_layers,
        n_heads=config.num_heads,
        d_feedforward=config.d_ff,
        architecture=TransformerSeq2SeqArchitecture(
            tie_embeddings=tied,
            scale_embeddings=divided,
            norm_type="rms",
            norm_epsilon=config.layer_norm_epsilon,
            bias=False,
            zero_init=False,
            attention_dropout=config.dropout_rate,
        ),
        convolution_lags=0,
        positions="t5",
        activation="relu",
        dropout=config.dropout_rate,
    )
    untrained(model, config.vocab_size, conditional=True)
    factor = config.d_model**-0.5 if divided else 1.0
    scale = config.d_kv**0.5
    words = weights["shared.weight"] * (factor if tied else 1.0)
    state = {name: weights[published] for name, published in _names(model)}
    for name, (query, key, value) in _projections(model):
        state[name] = torch.cat([weights[query] * scale, weights[key], weights[value]])
    state |= {name: weights[published] * scale for name, published in _queries(model)}
    state |= {"embedding.map.weight": words, "begin": words[start_row], "head.bias": torch.zeros(config.vocab_size)}
    if not tied:
        state |= {"source_embedding.map.weight": words, "head.weight": output * factor}
    model.module_.load_state_dict(state)
    return model


def to_t5(model: TransformerSeq2Seq) -> Any:
    """Return a ``T5ForConditionalGeneration`` in evaluation mode; the package ``transformers`` must be installed."""
    from transformers import T5Config, T5ForConditionalGeneration

    _check_expressible(model)
    state = model.module_.state_dict()
    start = _start(model)
    divided = model.architecture.scale_embeddings
    config = T5Config(
        vocab_size=model.encoding_.size,
        d_model=model.d_model,
        d_kv=model.d_model // model.n_query_heads,
        d_ff=4 * model.d_model if model.d_feedforward is None else model.d_feedforward,
        num_layers=model.n_layers,
        num_heads=model.n_query_heads,
        dropout_rate=model.dropout,
        layer_norm_epsilon=model.architecture.norm_epsilon,
        pad_token_id=start,
        decoder_start_token_id=start,
        tie_word_embeddings=divided,  # this setting means to divide; the tables are always tied
    )
    words = state["embedding.map.weight"] * (model.d_model**0.5 if divided else 1.0)
    scale = config.d_kv**0.5
    weights: Weights = {published: state[name] for name, published in _names(model)}
    for name, three in _projections(model):
        query, key, value = state[name].chunk(3)
        weights |= dict(zip(three, (query / scale, key, value), strict=True))
    weights |= {published: state[name] / scale for name, published in _queries(model)}
    weights |= {name: words for name in ("shared.weight", *(f"{stack}.embed_tokens.weight" for stack in STACKS))}
    weights["lm_head.weight"] = words
    converted = T5ForConditionalGeneration(config)
    converted.load_state_dict(weights)
    return converted.eval()


def _start(model: TransformerSeq2Seq) -> int:
    """Return the symbol that the decoder reads before the first target.

    Raises:
        ValueError: if the model has a learned start vector instead, or a bias of the logits.
    """
    weights = model.module_.state_dict()
    bias = weights["head.bias"]
    row = row_of(weights["embedding.map.weight"], weights["begin"])
    if not torch.equal(bias, bias[:1].expand_as(bias)):  # the same for all has no effect
        raise ValueError("T5 has no bias of its logits but the model has learned one; set module_.head.bias to 0")
    if row is None:
        raise ValueError(
            "T5 begins after a symbol but the model has learned a beginning of its own; set module_.begin to a row of "
            "module_.embedding.map.weight"
        )
    return row


def _names(model: TransformerSeq2Seq) -> Iterator[tuple[str, str]]:
    """Yield pairs of names, here and in T5, of the weights that have the same values in both."""
    for stack in STACKS:
        first = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield f"network.{stack}.score_bias.table", first
        yield f"network.{stack}.final_norm.weight", f"{stack}.final_layer_norm.weight"
        for i, (j, sublayer) in product(range(model.n_layers), enumerate(SUBLAYERS[stack])):
            for name, published in sublayer.items():
                yield f"network.{stack}.blocks.{i}.{name}.weight", f"{stack}.block.{i}.layer.{j}.{published}.weight"


def _projections(model: TransformerSeq2Seq) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each stacked query-key-value projection here, with T5's names of its three parts."""
    for stack, i in product(STACKS, range(model.n_layers)):
        published = [f"{stack}.block.{i}.layer.0.SelfAttention.{name}.weight" for name in "qkv"]
        yield f"network.{stack}.blocks.{i}.attention.project.weight", published


def _queries(model: TransformerSeq2Seq) -> Iterator[tuple[str, str]]:
    """Yield pairs of names, here and in T5, of the query projections of cross-attention."""
    for i in range(model.n_layers):
        yield (
            f"network.decoder.blocks.{i}.cross_attention.query.weight",
            f"decoder.block.{i}.layer.1.EncDecAttention.q.weight",
        )


def _check_published(config: Any) -> None:
    expected = {
        "feed_forward_proj": "relu",
        "num_decoder_layers": config.num_layers,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "d_kv": config.d_model // config.num_heads,
    }
    check_published(config, expected)


def _check_expressible(model: TransformerSeq2Seq) -> None:
    expected: dict[str, tuple[object, ...]] = {
        "length_": ("given",),
        "tie_embeddings": (True,),
        "norm": ("pre",),
        "norm_type": ("rms",),
        "norm_affine": (True,),
        "activation": ("relu",),
        "positions": ("t5",),
        "convolution_lags": (0,),
        "n_kv_heads": (None, model.n_query_heads),
        "qk_norm": (False,),
        "window": (None,),
        "bias": (False,),
    }
    check_convertible(model, "T5", expected)
    if not model.module_.spec.conditional:
        raise ValueError("T5 models p(y | x), but the model was fitted without y; fit it with one")
