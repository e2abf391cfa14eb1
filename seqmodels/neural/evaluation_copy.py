"""Copies of a fitted module to compute with: on a device, in a dtype, in evaluation mode.

The module itself never changes.
"""

from __future__ import annotations

import copy
import os
import threading
from itertools import chain
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn

AnyModule = TypeVar("AnyModule", bound=nn.Module)
Key = tuple[torch.device, torch.dtype]
Writes = tuple[tuple[int, int], ...]  # of each tensor, which it is and how often it was written to

# Copies live as long as what they are copies of. They are no attributes, lest they be saved, pickled or copied with a
# model.
_COPIES: WeakKeyDictionary[nn.Module, dict[Key, tuple[Writes, nn.Module]]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def evaluation_copy(module: AnyModule, device: torch.device, dtype: torch.dtype) -> AnyModule:
    """``module`` itself where it is so already, else a copy, made once and again after its tensors are written to.

    Any number of threads may call it, and compute with what it returns, at once.
    """
    device = torch.empty(0, device=device).device  # with its index
    tensors = list(chain(module.parameters(), module.buffers()))
    is_there = all(t.device == device for t in tensors) and all(p.dtype == dtype for p in module.parameters())
    if is_there and not any(part.training for part in module.modules()):
        return module
    writes = tuple((id(t), t._version) for t in tensors)
    with _LOCK:
        copies = _COPIES.setdefault(module, {})
        made = copies.get((device, dtype))
        if made is None or made[0] != writes:
            with torch.inference_mode(False), torch.no_grad():
                made = copies[device, dtype] = writes, copy.deepcopy(module).to(device, dtype).eval()
    return made[1]  # type: ignore[return-value]


def _new_lock() -> None:
    """Another thread of the parent may have held it at the fork."""
    global _LOCK
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)
