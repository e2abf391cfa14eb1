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
    """Return the name that a published activation has here.

    Raises:
        ValueError: if the activation is not supported.
    """
    if name not in ACTIVATIONS:
        raise ValueError(
            f"the activation {name!r} is not supported; convert a model with {', '.join(map(repr, ACTIVATIONS))}"
        )
    return ACTIVATIONS[name]


def check_published(config: Any, expected: Mapping[str, object]) -> None:
    """Raise ``ValueError`` if a setting of a published configuration has another value than the ``expected`` one.

    A setting that the configuration does not have is accepted.
    """
    for name, value in expected.items():
        actual = getattr(config, name, value)
        if actual != value:
            raise ValueError(
                f"{config.model_type} with {name}={actual!r} is not supported; convert one with {name}={value!r}"
            )


def required_weight(weights: Mapping[str, Tensor], name: str, owner: str) -> Tensor:
    """Return the published weight ``name``.

    Raises:
        ValueError: if there is none, because the model does not have the class that ``owner`` names.
    """
    if name not in weights:
        raise ValueError(f"the model has no {name}; pass a {owner}, the class with the output layer")
    return weights[name]


def is_tied(table: Tensor, head: Tensor) -> bool:
    """Return True if the output layer equals the embedding table.

    The weights are compared because the setting in configurations has changed its meaning over time.
    """
    return table.is_meta or torch.equal(table, head)


def resolved_row(requested: int | None, published: int | None, n_symbols: int, what: str) -> int:
    """Return the symbol ``requested`` by the caller or, if that is None, the one in the published configuration.

    Args:
        requested: number of a symbol, or None.
        published: the configuration's number, or None.
        n_symbols: number of symbols V.
        what: what the symbol is for, for the message.

    Raises:
        ValueError: if there is no such symbol.
    """
    row = published if requested is None else requested
    if row is None or not 0 <= row < n_symbols:
        raise ValueError(f"{what} is symbol {row} but there are {n_symbols}; pass one from 0 to {n_symbols - 1}")
    return row
