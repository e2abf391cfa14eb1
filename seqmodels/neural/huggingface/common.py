"""What the conversions from and to Hugging Face's models have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from seqmodels.common.parameters import place_in_group
from seqmodels.neural.masked import MaskedTransformer
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.transformer.layers import Activation

Weights = dict[str, Tensor]

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
}
PUBLISHED_ACTIVATIONS: dict[str, str] = {"gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu"}


def activation_of(name: str) -> Activation:
    """The name here of a published activation; raises ``ValueError`` for one that is not supported."""
    if name not in ACTIVATIONS:
        raise ValueError(
            f"the activation {name!r} is not supported; convert a model with {', '.join(map(repr, ACTIVATIONS))}"
        )
    return ACTIVATIONS[name]


def check_published(config: Any, expected: Mapping[str, object]) -> None:
    """Raise ``ValueError`` for a published configuration that is not supported; missing settings are as expected."""
    for name, value in expected.items():
        actual = getattr(config, name, value)
        if actual != value:
            raise ValueError(
                f"{config.model_type} with {name}={actual!r} is not supported; convert one with {name}={value!r}"
            )


def check_convertible(
    model: NeuralModel | MaskedTransformer, published: str, expected: Mapping[str, tuple[object, ...]]
) -> None:
    """Raise ``ValueError`` for a hyperparameter, of ``model`` or its architecture, that the published model lacks."""
    for name, values in expected.items():
        actual = getattr(model.architecture if place_in_group(type(model), name) else model, name)
        if actual not in values:
            known = " or ".join(f"{name}={value!r}" for value in values)
            raise ValueError(f"{published} has {known} but the model has {name}={actual!r}; fit one with that")


def required_weight(weights: Mapping[str, Tensor], name: str, owner: str) -> Tensor:
    """A weight; raises ``ValueError`` where the model is not the one that ``owner`` names."""
    if name not in weights:
        raise ValueError(f"the model has no {name}; pass a {owner}, the class with the output layer")
    return weights[name]


def is_tied(table: Tensor, head: Tensor) -> bool:
    """Whether the output layer is the table; the meaning of the setting in configurations has changed over time."""
    return table.is_meta or torch.equal(table, head)


def resolved_row(requested: int | None, published: int | None, n_symbols: int, what: str) -> int:
    """The symbol passed by the caller, or else that of the configuration; raises ``ValueError`` where there is none."""
    row = published if requested is None else requested
    if row is None or not 0 <= row < n_symbols:
        raise ValueError(f"{what} is symbol {row} but there are {n_symbols}; pass one from 0 to {n_symbols - 1}")
    return row


def row_of(table: Tensor, vector: Tensor) -> int | None:
    """The last row of ``table (V, d)`` that equals ``vector (d,)``, or None."""
    rows = (table == vector).all(1).nonzero()
    return int(rows[-1]) if len(rows) else None
