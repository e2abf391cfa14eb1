"""How weights move along a gradient: optimisers, and the clipping of gradients before their step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqmodels.parameters import Configurable


class Optimizer(Configurable, ABC):
    """An optimiser. To add one, define ``build``; matrices decay, and biases, norms and single rows do not."""

    @abstractmethod
    def build(self, module: nn.Module, lr: float, weight_decay: float) -> list[torch.optim.Optimizer]:
        """Torch's optimisers, each of some of the weights; ``lr`` is the peak rate, which every group starts with."""


@dataclass(eq=False, repr=False)
class AdamW(Optimizer):
    """Adam with decoupled weight decay (Kingma and Ba, 2015; Loshchilov and Hutter, 2019).

    Args:
        betas: how much of the mean and of the mean square of gradients each step keeps.
        eps: added to the root of the mean square.
    """

    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-8

    def build(self, module: nn.Module, lr: float, weight_decay: float) -> list[torch.optim.Optimizer]:
        groups = _groups(module.parameters(), weight_decay)
        return [torch.optim.AdamW(groups, lr=lr, betas=self.betas, eps=self.eps, fused=True)]


@dataclass(eq=False, repr=False)
class Muon(Optimizer):
    """Orthogonalised momentum for matrices inside the network (Jordan et al., 2024), AdamW for embeddings and all else.

    Steps are scaled to have the size of AdamW's (Liu et al., 2025), so that a rate that suits one suits the other.

    Args:
        momentum: how much of the mean gradient each step keeps.
        betas: those of AdamW.
    """

    momentum: float = 0.95
    betas: tuple[float, float] = (0.9, 0.99)

    def build(self, module: nn.Module, lr: float, weight_decay: float) -> list[torch.optim.Optimizer]:
        inner = _inner_matrices(module)
        others = _groups((p for p in module.parameters() if id(p) not in {id(q) for q in inner}), weight_decay)
        adamw = torch.optim.AdamW(others, lr=lr, betas=self.betas, fused=True) if others else None
        if not inner:
            return [adamw] if adamw else []
        muon = torch.optim.Muon(
            inner, lr=lr, weight_decay=weight_decay, momentum=self.momentum, adjust_lr_fn="match_rms_adamw"
        )
        return [muon, adamw] if adamw else [muon]


def _inner_matrices(module: nn.Module) -> list[Tensor]:
    """Matrices from hidden states to hidden states: neither embeddings nor maps from or to raw steps."""
    outer = {id(p) for m in module.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    outer |= {id(p) for name, m in module.named_children() if name != "network" for p in m.parameters()}
    return [p for p in module.parameters() if p.ndim == 2 and min(p.shape) > 1 and id(p) not in outer]


def _groups(parameters: Iterable[Tensor], weight_decay: float) -> list[dict[str, Any]]:
    """Matrices, which decay, and all others, which do not."""
    every = list(parameters)
    matrices = [p for p in every if p.ndim >= 2]
    others = [p for p in every if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def norm_of_all(gradients: list[Tensor]) -> Tensor:
    """The Euclidean norm of all of them together."""
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return norm


def clip(gradients: list[Tensor], max_norm: float, norm_of: Callable[[list[Tensor]], Tensor] = norm_of_all) -> None:
    """Scale all gradients together to ``g · min(1, max_norm / |g|)``, in place (Pascanu, Mikolov and Bengio, 2013).

    Those that are short enough are not touched, which saves a pass over all of them.

    Raises:
        RuntimeError: the norm is not finite.
    """
    if not gradients:
        return
    norm = float(norm_of(gradients))
    if not math.isfinite(norm):
        raise RuntimeError(
            f"the norm of the gradient is non-finite ({norm}), so the weights cannot be moved along it; look for "
            "values that are infinite or far too large, or lower lr"
        )
    if norm > max_norm:
        torch._foreach_mul_(gradients, max_norm / norm)
