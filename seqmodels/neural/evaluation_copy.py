"""Objects made from a fitted module to compute with: packed weights, and copies on a device, in evaluation mode.

The module itself never changes. The objects are kept, and made again when its weights have changed.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

AnyModule = TypeVar("AnyModule", bound=nn.Module)
Made = TypeVar("Made")
# Each tensor's id and number of writes, and its sum, since not all writers count (fused optimisers do not).
Weights = tuple[tuple[tuple[int, int], ...], list[float]]

_LOCK = threading.RLock()


class MadeOfModules(Generic[Made]):
    """A store of objects computed from modules' weights, such as packed weights; they are computed anew after a change.

    Objects are kept as long as their module lives. They are not attributes of the modules, so that they are not saved,
    pickled or copied with a model. Any number of threads may use the store.
    """

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[nn.Module, dict[Hashable, tuple[Weights, Made]]] = WeakKeyDictionary()

    @torch.no_grad()
    def get(self, module: nn.Module, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the object that ``make`` computes from a module, from the store if the module has not changed since.

        Args:
            module: the module.
            key: name that tells the objects of one module apart.
            make: computes the object, which must not hold a reference to ``module``, because it would then live
                forever.
        """
        weights = _weights(module)
        with _LOCK:
            all_made = self._made.setdefault(module, {})
            made = all_made.get(key)
            if made is None or made[0] != weights:
                with torch.inference_mode(False):
                    made = all_made[key] = weights, make()
        return made[1]


def _weights(module: nn.Module) -> Weights:
    tensors = _tensors(module)
    sums = torch.stack([t.sum(dtype=torch.promote_types(t.dtype, torch.float32)) for t in tensors])
    return tuple((id(t), t._version) for t in tensors), sums.tolist()


def _tensors(module: nn.Module) -> list[Tensor]:
    """Return all parameters and buffers of a module in a list; shared ones come more than once.

    >>> [t.shape for t in _tensors(nn.Sequential(nn.Linear(2, 3)))]
    [torch.Size([3, 2]), torch.Size([3])]
    """
    tables = (table for part in module.modules() for table in (part._parameters, part._buffers))
    return [t for table in tables for t in table.values() if t is not None]


_COPIES: MadeOfModules[nn.Module] = MadeOfModules()


def evaluation_copy(module: AnyModule, device: torch.device, dtype: torch.dtype) -> AnyModule:
    """Return ``module`` in evaluation mode, on this device and with parameters of this dtype: itself, or else a copy.

    The copy is kept until the module's weights change. Any number of threads may call it, and compute with the result,
    at the same time.
    """
    device = torch.empty(0, device=device).device  # with its index
    is_there = all(
        t.device == device and (t.dtype == dtype or not isinstance(t, nn.Parameter)) for t in _tensors(module)
    )
    if is_there and not any(part.training for part in module.modules()):
        return module
    made = _COPIES.get(module, (device, dtype), lambda: copy.deepcopy(module).to(device, dtype).eval())
    return made  # type: ignore[return-value]


def _new_lock() -> None:
    """Replace the lock of the store after a fork, since another thread of the parent may have held it then."""
    global _LOCK
    _LOCK = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)
