"""Conversion of BERT (Devlin et al. 2019) in Hugging Face's format to ``MaskedTransformer``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqmodels.neural.huggingface.common import (
    activation_of,
    check_published,
    is_tied,
    required_weight,
    resolved_row,
)
from seqmodels.neural.masked import MaskedTransformer
from seqmodels.neural.transformer.architecture import MaskedTransformerArchitecture
from seqmodels.neural.untrained import untrained_masked


class SpecialSymbols(NamedTuple):
    """The numbers that BERT's vocabulary gives to the special symbols of a ``MaskedTransformer``.

    Attributes:
        mask: number of the symbol that replaces masked ones.
        begin: number of the symbol before a text.
        end: number of the symbol after a text.
    """

    mask: int
    begin: int
    end: int


# The numbers in the published English vocabularies, cased ones too.
ENGLISH_VOCABULARY = SpecialSymbols(mask=103, begin=101, end=102)
BLOCK = {
    "attention.output": "attention.output.dense",
    "attention_residual.norm": "attention.output.LayerNorm",
    "feedforward.expand": "intermediate.dense",
    "feedforward.contract": "output.dense",
    "feedforward_residual.norm": "output.LayerNorm",
}
EMBEDDING_AND_HEAD = {
    "embedding_norm": "bert.embeddings.LayerNorm",
    "transform.linear": "cls.predictions.transform.dense",
    "transform.norm": "cls.predictions.transform.LayerNorm",
}
WORDS = "bert.embeddings.word_embeddings.weight"
POSITIONS = "bert.embeddings.position_embeddings.weight"
SEGMENTS = "bert.embeddings.token_type_embeddings.weight"
KINDS = ("weight", "bias")


def from_bert(config: Any, weights: Mapping[str, Tensor], special_symbols: SpecialSymbols) -> MaskedTransformer:
    """Return a ``MaskedTransformer`` with the weights of a ``BertForMaskedLM``.

    Args:
        config: the published model's configuration.
        weights: the published model's weights, by name.
        special_symbols: numbers of the published symbols for mask, beginning and end.

    Raises:
        ValueError: if the configuration is not supported, or the output layer is missing.
    """
    check_published(config, {"is_decoder": False, "position_embedding_type": "absolute"})
    head, bias = (required_weight(weights, f"cls.predictions.decoder.{kind}", "BertForMaskedLM") for kind in KINDS)
    words = weights[WORDS]
    rows = [
        resolved_row(symbol, None, config.vocab_size, f"special_symbols.{name}")
        for name, symbol in special_symbols._asdict().items()
    ]
    model = MaskedTransformer(
        d_model=config.hidden_size,
        n_layers=config.num_hidden_layers,
        n_heads=config.num_attention_heads,
        d_feedforward=config.intermediate_size,
        max_length=config.max_position_embeddings,
        architecture=MaskedTransformerArchitecture(
            tie_embeddings=is_tied(words, head),
            embedding_norm=True,
            head_transform=True,
            norm_epsilon=config.layer_norm_eps,
            attention_dropout=config.attention_probs_dropout_prob,
        ),
        norm="post",
        positions="learned",
        activation=activation_of(config.hidden_act),
        dropout=config.hidden_dropout_prob,
    )
    untrained_masked(model, config.vocab_size)
    state = {name: weights[published] for name, published in _names(model)}
    state |= {name: torch.cat([weights[published] for published in three]) for name, three in _projections(model)}
    state |= {"embedding.weight": torch.cat([words, words[rows]]), "head.bias": bias}
    state["positions.table"] = weights[POSITIONS] + weights[SEGMENTS][0]  # every symbol belongs to the first segment
    if not model.architecture.tie_embeddings:
        state["head.weight"] = head
    model.module_.load_state_dict(state)
    return model


def _names(model: MaskedTransformer) -> Iterator[tuple[str, str]]:
    """Yield pairs of names, in this library and in BERT, of the weights that have the same values in both."""
    for (name, published), kind in product(EMBEDDING_AND_HEAD.items(), KINDS):
        yield f"{name}.{kind}", f"{published}.{kind}"
    for i, (name, published), kind in product(range(model.n_layers), BLOCK.items(), KINDS):
        yield f"encoder.blocks.{i}.{name}.{kind}", f"bert.encoder.layer.{i}.{published}.{kind}"


def _projections(model: MaskedTransformer) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each query-key-value projection in this library, with BERT's names of its three parts."""
    for i, kind in product(range(model.n_layers), KINDS):
        published = [f"bert.encoder.layer.{i}.attention.self.{name}.{kind}" for name in ("query", "key", "value")]
        yield f"encoder.blocks.{i}.attention.project.{kind}", published
