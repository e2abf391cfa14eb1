"""Conversion of GPT-2 (Radford et al. 2019) in Hugging Face's format to ``Transformer``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import torch
from torch import Tensor

from seqmodels.neural.huggingface.common import (
    activation_of,
    check_published,
    is_tied,
    required_weight,
    resolved_row,
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
TRANSPOSED = tuple(f"{name}.weight" for name in ("c_attn", "c_proj", "c_fc"))  # published as (inputs, outputs)


def from_gpt2(config: Any, weights: Mapping[str, Tensor], start: int | None) -> Transformer:
    """Return a ``Transformer`` with the weights of a ``GPT2LMHeadModel``.

    Args:
        config: the published model's configuration.
        weights: the published model's weights, by name.
        start: the symbol whose embedding precedes the first one; None for the configuration's ``bos_token_id``.

    Raises:
        ValueError: if the configuration is not supported, or the output layer is missing.
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


def _names(model: Transformer) -> Iterator[tuple[str, str]]:
    """Yield pairs of names, in this library and in GPT-2, of the weights that have the same values in both.

    The output layer's and the learned start's are not among them.
    """
    yield "embedding.map.weight", WORDS
    yield "network.positions.table", "transformer.wpe.weight"
    for i, (name, published), kind in product(range(model.n_layers), BLOCK.items(), ("weight", "bias")):
        yield f"network.decoder.blocks.{i}.{name}.{kind}", f"transformer.h.{i}.{published}.{kind}"
    for kind in ("weight", "bias"):
        yield f"network.decoder.final_norm.{kind}", f"{LAST_NORM}.{kind}"


def _transposed(published: str, weight: Tensor) -> Tensor:
    return weight.t().contiguous() if published.endswith(TRANSPOSED) else weight
