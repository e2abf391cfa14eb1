"""What is made of a fitted module to compute with: a copy on a device, in a dtype, in evaluation mode; packed weights.

The module itself never changes. What is made of it is kept, and made again once its weights are others.
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
# Of each tensor, which it is and how often it was written to; and its sum: not all writers count (fused optimisers).
Weights = tuple[tuple[tuple[int, int], ...], list[float]]

_LOCK = threading.RLock()


class MadeOfModules(Generic[Made]):
    """What is made of modules, as long as they live; made once, and again after their tensors are written to.

    It is no attribute of them, lest it be saved, pickled or copied with a model. Any number of threads may use it.
    """

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[nn.Module, dict[Hashable, tuple[Weights, Made]]] = WeakKeyDictionary()

    @torch.no_grad()
    def get(self, module: nn.Module, key: Hashable, make: Callable[[], Made]) -> Made:
        """What ``make`` makes of ``module``, which that may not hold, lest it live forever; ``key`` says what it is."""
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
    """Parameters and buffers, those of several parts more than once: without their names, which take most of the time.

    >>> [t.shape for t in _tensors(nn.Sequential(nn.Linear(2, 3)))]
    [torch.Size([3, 2]), torch.Size([3])]
    """
    tables = (table for part in module.modules() for table in (part._parameters, part._buffers))
    return [t for table in tables for t in table.values() if t is not None]


_COPIES: MadeOfModules[nn.Module] = MadeOfModules()


def evaluation_copy(module: AnyModule, device: torch.device, dtype: torch.dtype) -> AnyModule:
    """``module`` itself where it is so already, else a copy.

    Any number of threads may call it, and compute with what it returns, at once.
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
    """Another thread of the parent may have held it at the fork."""
    global _LOCK
    _LOCK = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)
