"""Weights from a file, checked against the hyperparameters before memory for the model is allocated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

RANDOM_FILLS = (
    nn.init.normal_,
    nn.init.uniform_,
    nn.init.trunc_normal_,
    nn.init.kaiming_uniform_,
    Tensor.normal_,
    Tensor.uniform_,
)
MAX_UNSAVED = 1 << 22  # how many more numbers may be in computed tables than are saved

Module = TypeVar("Module", bound=nn.Module)


def build_with_weights(make: Callable[[], Module], arrays: Mapping[str, Any], *, d_model: int, n_layers: int) -> Module:
    """Return the module that ``make`` makes, with the given weights, after checking that their names and shapes fit.

    They are checked before memory for the module is allocated.

    Args:
        make: returns an untrained module.
        arrays: float32 weights, by name.
        d_model, n_layers: width and number of layers of the module, which are checked first, because modules are made
            in loops over them.

    Raises:
        ValueError: if names or shapes differ from the module's, or weights are not finite float32 numbers.
    """
    check_numbers(arrays)
    largest_dimension = max((n for array in arrays.values() for n in array.shape), default=0)
    for name, value, limit in (("d_model", d_model, largest_dimension), ("n_layers", n_layers, len(arrays))):
        if not 1 <= value <= limit:
            raise ValueError(
                f"{name} is {value}, but the weights in the file belong to another module, with at most {limit}"
            )
    with shapes_alone():
        expected = make()
    check_shapes(expected, arrays)
    with _WithoutRandomFills(generators=True):
        module = make()
    module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return module


def check_numbers(arrays: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless all weights, ``arrays`` by name, are float32 NumPy arrays of finite numbers."""
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype != np.float32:
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise ValueError(f"the weights {name!r} are {kind}; a saved model has float32")
        if not np.isfinite(array).all():
            raise ValueError(
                f"the weights {name!r} are not all finite: the model had diverged when it was saved, or the file was "
                "made so; fit it again, with a smaller lr"
            )


def check_shapes(module: nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise ``ValueError`` unless ``arrays`` are exactly the module's weights by name and shape.

    Raise it also if the module's computed tables that are not saved, such as sinusoids, are much larger than the
    weights.

    Args:
        module: the module that the weights are for; it may be on the device ``meta``.
        arrays: weights by name.
    """
    expected = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    for name in sorted(expected.keys() ^ arrays.keys()):
        where = "the file lacks" if name in expected else "the model has no place for"
        raise ValueError(
            f"{where} the weights {name!r}: the hyperparameters are not those that the weights were fitted with"
        )
    for name, shape in expected.items():
        if shape != arrays[name].shape:
            raise ValueError(
                f"the weights {name!r} have shape {arrays[name].shape}, but the hyperparameters ask for {shape}; "
                "they are not those that the weights were fitted with"
            )
    n_saved = sum(array.size for array in arrays.values())
    n_unsaved = sum(table.numel() for name, table in module.named_buffers() if name not in expected)
    if n_unsaved > n_saved + MAX_UNSAVED:
        raise ValueError(
            f"the hyperparameters ask for tables of {n_unsaved:,} numbers beside {n_saved:,} weights; lower "
            "max_length or context"
        )


@contextmanager
def shapes_alone() -> Iterator[None]:
    """Return a context in which tensors have shapes and types but no memory (torch's device ``meta``)."""
    with torch.device("meta"), _WithoutRandomFills(generators=False):
        yield


class _WithoutRandomFills(TorchFunctionMode):
    """A context in which modules are made without drawing their initial weights, which are loaded afterwards.

    Args:
        generators: False leaves the argument ``generator`` out of other random draws, because generators cannot be on
            the device ``meta``.
    """

    def __init__(self, *, generators: bool) -> None:
        super().__init__()
        self.generators = generators

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        arguments = kwargs or {}
        if func in RANDOM_FILLS:
            return args[0] if args else arguments["tensor"]
        return func(
            *args, **{name: value for name, value in arguments.items() if self.generators or name != "generator"}
        )
