"""Parts that all conversions of Hugging Face's models share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from seqmodels.neural.transformer.layers import Activation

Weights = dict[str, Tensor]

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
}


def activation_of(name: str) -> Activation:
    """Return the name in this library of an activation that Hugging Face's configurations call ``name``.

    Raises:
        ValueError: if the activation is not supported.
    """
    if name not in ACTIVATIONS:
        raise ValueError(
            f"the activation {name!r} is not supported; convert a model with {', '.join(map(repr, ACTIVATIONS))}"
        )
    return ACTIVATIONS[name]


def check_published(config: Any, expected: Mapping[str, object]) -> None:
    """Raise ``ValueError`` if a setting of a published configuration has another value than the expected one.

    A setting that the configuration does not have is accepted.

    Args:
        config: the published model's configuration.
        expected: the values, by name of the setting.
    """
    for name, value in expected.items():
        actual = getattr(config, name, value)
        if actual != value:
            raise ValueError(
                f"{config.model_type} with {name}={actual!r} is not supported; convert one with {name}={value!r}"
            )


def required_weight(weights: Mapping[str, Tensor], name: str, owner: str) -> Tensor:
    """Return the published weight ``name``.

    Args:
        weights: the published model's weights, by name.
        name: name of the weight.
        owner: the class of ``transformers`` whose models have it, for the message.

    Raises:
        ValueError: if there is none.
    """
    if name not in weights:
        raise ValueError(f"the model has no {name}; pass a {owner}, the class with the output layer")
    return weights[name]


def is_tied(table: Tensor, head: Tensor) -> bool:
    """Return True if the output layer ``head`` equals the embedding table, or if both have only shapes.

    The weights are compared because the setting in configurations has changed its meaning over time.
    """
    return table.is_meta or torch.equal(table, head)


def resolved_row(requested: int | None, published: int | None, n_symbols: int, what: str) -> int:
    """Return the number of a special symbol: ``requested`` by the caller or, if that is None, the published one.

    Args:
        requested: number of a symbol, or None.
        published: the number in the published configuration, or None.
        n_symbols: number of symbols V.
        what: what the symbol is for, for the message.

    Raises:
        ValueError: if there is no such symbol.
    """
    row = published if requested is None else requested
    if row is None or not 0 <= row < n_symbols:
        raise ValueError(f"{what} is symbol {row} but there are {n_symbols}; pass one from 0 to {n_symbols - 1}")
    return row
