"""Optimisers, which move weights along a gradient, and the clipping of gradients before their step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seqmodels.common.parameters import Configurable, check_range

NEWTON_SCHULZ = 3.4445, -4.7750, 2.0315  # coefficients of x, x³ and x⁵, by Jordan et al. (2024)
MUON_SIZE = 0.2  # root mean square of a step divided by the learning rate, as AdamW's in practice (Liu et al., 2025)
MUON_EPSILON = 1e-7  # least norm by which a momentum is divided


class Optimizer(Configurable, ABC):
    """The settings of an optimiser, from which torch's optimisers of a module are made. To add one, define ``build``.

    Weights with two or more axes decay; biases, norms and other vectors do not.
    """

    def check(self) -> None:
        """Raise ``ValueError`` if an argument of the optimiser is out of range; called before training."""

    @abstractmethod
    def build(self, module: nn.Module, lr: float, weight_decay: float) -> list[torch.optim.Optimizer]:
        """Return torch optimisers for all weights of a module, each for some of them.

        Args:
            module: the module.
            lr: peak learning rate, with which every group of weights starts.
            weight_decay: decoupled weight decay of weights with two or more axes.
        """


@dataclass(eq=False, repr=False)
class AdamW(Optimizer):
    """Adam with decoupled weight decay (Kingma and Ba, 2015; Loshchilov and Hutter, 2019).

    Args:
        betas: the share of the running mean, and of the running mean square, of gradients that each step keeps.
        eps: constant added to the root of the mean square.
    """

    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-8

    def check(self) -> None:
        _check_betas(self.betas)
        check_range(self, "eps", 0, math.inf)

    def build(self, module: nn.Module, lr: float, weight_decay: float) -> list[torch.optim.Optimizer]:
        groups = _groups(module.parameters(), weight_decay)
        if _are_plain_and_on_cpu(module.parameters()):
            return [FusedAdamW(groups, lr, self.betas, self.eps)]
        return [torch.optim.AdamW(groups, lr=lr, betas=self.betas, eps=self.eps, fused=True)]


class OptimizerOnCPU(torch.optim.Optimizer, ABC):
    """An optimiser of weights on the CPU, without torch's decorators, which import ``torch._dynamo`` for some seconds.

    To add one, define ``take_step``.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of weights with its own settings."""
        torch.optim.Optimizer.add_param_group.__wrapped__(self, param_group)  # type: ignore[attr-defined]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none or p.grad is None:
                    p.grad = None
                else:
                    p.grad.zero_()

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step for all weights that have a gradient, and return the loss that ``closure`` returns.

        Without ``closure`` return None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.take_step(group, [p for p in group["params"] if p.grad is not None])
        return loss

    @abstractmethod
    def take_step(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        """Move the weights of a group that have a gradient, which may be none, by the settings of the group."""


class FusedAdamW(OptimizerOnCPU):
    """An AdamW for weights on the CPU that takes exactly the steps of ``torch.optim.AdamW(fused=True)``.

    Its state is the same too, and its step has less overhead.

    Args:
        groups: groups of weights, each with its ``weight_decay``.
        lr: learning rate of every group.
        betas: shares of the running mean and mean square that each step keeps.
        eps: constant added to the root of the mean square.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "fused": True})

    def take_step(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        if not weights:
            return
        states = [self.state[p] or self._begin(p) for p in weights]
        means, squares, steps = ([s[name] for s in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            weights,
            [p.grad for p in weights],  # type: ignore[misc]
            means,
            squares,
            [],
            steps,
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

    def _begin(self, weight: Tensor) -> dict[str, Tensor]:
        self.state[weight] = {
            "step": torch.zeros((), dtype=torch.float32),
            "exp_avg": torch.zeros_like(weight, memory_format=torch.preserve_format),
            "exp_avg_sq": torch.zeros_like(weight, memory_format=torch.preserve_format),
        }
        state: dict[str, Tensor] = self.state[weight]
        return state


@dataclass(eq=False, repr=False)
class Muon(Optimizer):
    """Orthogonalized momentum for matrices inside the network (Jordan et al., 2024), and AdamW for other weights.

    Steps are scaled to have the size of AdamW's (Liu et al., 2025), so that the same learning rate suits both.
    Embeddings and the input and output layers are trained by AdamW.

    Args:
        momentum: the share of the running mean of gradients that each step keeps.
        betas: the shares of the running mean, and of the running mean square, of gradients that each step of AdamW
            keeps.
        newton_schulz_steps: number of iterations that make a matrix orthogonal, of three products of matrices each.
            After fewer, directions in which the gradient is small move less far.
    """

    momentum: float = 0.95
    betas: tuple[float, float] = (0.9, 0.99)
    newton_schulz_steps: int = 5

    def check(self) -> None:
        _check_betas(self.betas)
        check_range(self, "momentum", 0, 1)
        if self.newton_schulz_steps < 1:
            raise ValueError(f"newton_schulz_steps is {self.newton_schulz_steps}; pass at least 1")

    def build(self, module: nn.Module, lr: float, weight_decay: float) -> list[torch.optim.Optimizer]:
        inner = _inner_matrices(module)
        others = _groups((p for p in module.parameters() if id(p) not in {id(q) for q in inner}), weight_decay)
        optimizers: list[torch.optim.Optimizer] = []
        on_cpu = _are_plain_and_on_cpu(module.parameters())
        if inner and on_cpu:
            optimizers.append(OrthogonalizedMomentum(inner, lr, weight_decay, self.momentum, self.newton_schulz_steps))
        elif inner:
            optimizers.append(
                torch.optim.Muon(
                    inner,
                    lr=lr,
                    weight_decay=weight_decay,
                    momentum=self.momentum,
                    ns_steps=self.newton_schulz_steps,
                    adjust_lr_fn="match_rms_adamw",
                )
            )
        if others and on_cpu:
            optimizers.append(FusedAdamW(others, lr, self.betas, AdamW.eps))
        elif others:
            optimizers.append(torch.optim.AdamW(others, lr=lr, betas=self.betas, fused=True))
        return optimizers


class OrthogonalizedMomentum(OptimizerOnCPU):
    """A Muon for matrices on the CPU, which takes the steps of ``torch.optim.Muon`` under ``"match_rms_adamw"``.

    The momentum B of a gradient G is ``B ← μ B + (1 - μ) G``. A step moves the matrix along ``O``, the orthogonal
    matrix next to ``μ B + (1 - μ) G``, which Newton-Schulz iterations approximate.

    Torch's own multiplies in bfloat16, which is slower than float32 where the processor has no instructions for it:
    2.6 times with AVX-512, and over 20 times with AVX2. This one then takes float32.

    Args:
        matrices: the matrices, of two axes each.
        lr: learning rate.
        weight_decay: decoupled weight decay.
        momentum: μ, the share of the running mean of gradients that each step keeps.
        n_iterations: number of Newton-Schulz iterations.
    """

    def __init__(
        self, matrices: list[Tensor], lr: float, weight_decay: float, momentum: float, n_iterations: int
    ) -> None:
        super().__init__(
            [{"params": matrices}],
            {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": True, "ns_steps": n_iterations},
        )
        has_bfloat16 = torch.cpu.get_capabilities().get("avx512_bf16", False)
        self.dtype = torch.bfloat16 if has_bfloat16 else torch.float32

    def take_step(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        lr, mu = group["lr"], group["momentum"]
        for matrix in weights:
            assert matrix.grad is not None, "weights with a gradient"
            state = self.state[matrix]
            if not state:
                state["momentum_buffer"] = torch.zeros_like(matrix.grad)
            momentum: Tensor = state["momentum_buffer"]
            momentum.lerp_(matrix.grad, 1 - mu)
            direction = orthogonalized(matrix.grad.lerp(momentum, mu), self.dtype, group["ns_steps"])
            matrix.mul_(1 - lr * group["weight_decay"])
            matrix.add_(direction, alpha=-lr * MUON_SIZE * math.sqrt(max(matrix.shape)))


def orthogonalized(matrix: Tensor, dtype: torch.dtype, n_iterations: int) -> Tensor:
    """Return about ``U Vᵀ`` of a matrix ``U S Vᵀ``, by Newton-Schulz iterations in ``dtype``.

    With five of them, and the coefficients of Jordan et al. (2024), the singular values of the result are from about
    0.7 to 1.2, those of the smallest in ``S`` excepted. Each iteration enlarges small ones 3.4 times.

    Args:
        matrix: a matrix, ``(m, n)``.
        dtype: type of the products and of the result.
        n_iterations: number of iterations.
    """
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.t() if is_tall else matrix).to(dtype)
    x = x / x.norm().clamp(min=MUON_EPSILON)
    a, b, c = NEWTON_SCHULZ
    for _ in range(n_iterations):
        gram = x @ x.t()
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.t() if is_tall else x


def _are_plain_and_on_cpu(parameters: Iterable[Tensor]) -> bool:
    """Return True if all parameters are whole (not sharded over processes) and on the CPU."""
    return all(type(p) is nn.Parameter and p.device.type == "cpu" for p in parameters)


def _inner_matrices(module: nn.Module) -> list[Tensor]:
    """Return the weight matrices between hidden layers of a module: no embeddings, no input and output layers."""
    outer = {id(p) for m in module.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    outer |= {id(p) for name, m in module.named_children() if name != "network" for p in m.parameters()}
    return [p for p in module.parameters() if p.ndim == 2 and min(p.shape) > 1 and id(p) not in outer]


def _check_betas(betas: tuple[float, float]) -> None:
    if not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"betas is {betas}; pass two numbers from 0 up to 1")


def _groups(parameters: Iterable[Tensor], weight_decay: float) -> list[dict[str, Any]]:
    """Return parameter groups for a torch optimizer: weights with two or more axes, which decay, and all others."""
    every = list(parameters)
    matrices = [p for p in every if p.ndim >= 2]
    others = [p for p in every if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def norm_of_all(gradients: list[Tensor]) -> Tensor:
    """Return the Euclidean norm of all gradients together, as a scalar tensor."""
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return norm


def clip(gradients: list[Tensor], max_norm: float, norm_of: Callable[[list[Tensor]], Tensor] = norm_of_all) -> None:
    """Scale all gradients together to ``g · min(1, max_norm / |g|)``, in place (Pascanu, Mikolov and Bengio, 2013).

    Gradients that are short enough are not touched, which saves a pass over them.

    Args:
        gradients: the gradients g of all weights.
        max_norm: the largest Euclidean norm of all gradients together.
        norm_of: computes this norm, as a scalar tensor.

    Raises:
        RuntimeError: the norm is not finite.
    """
    if not gradients:
        return
    norm = float(norm_of(gradients))
    _refuse_non_finite(norm)
    if norm > max_norm:
        torch._foreach_mul_(gradients, max_norm / norm)


def _refuse_non_finite(norm: float) -> None:
    if not math.isfinite(norm):
        raise RuntimeError(
            f"the norm of the gradient is non-finite ({norm}), so the weights cannot be moved along it; look for "
            "values that are infinite or far too large, or lower lr"
        )


class QueuedClip:
    """Clipping of gradients by the step of torch's fused AdamW itself, so that a GPU need not wait for their norm.

    The optimisers divide gradients by ``grad_scale``, and leave weights unchanged where ``found_inf`` is set; mixed
    precision uses these attributes for its own scale. The norm of a step is read at the next one. So a norm that is not
    finite is refused one step late, with the weights unchanged.

    Args:
        optimizers: all optimisers whose gradients are clipped together.
        max_norm: the largest norm of all gradients together.
    """

    def __init__(self, optimizers: list[torch.optim.Optimizer], max_norm: float) -> None:
        self.optimizers = optimizers
        self.max_norm = max_norm
        self._norm: Tensor | None = None  # norm at the last step, on the CPU, valid once the event has come
        self._copied: torch.cuda.Event | None = None

    @staticmethod
    def can_clip(optimizers: list[torch.optim.Optimizer]) -> bool:
        """Return True if all optimisers are fused AdamW for weights on another device than the CPU."""
        return bool(optimizers) and all(
            type(optimizer) is torch.optim.AdamW
            and optimizer.defaults["fused"]
            and group["params"][0].device.type != "cpu"
            for optimizer in optimizers
            for group in optimizer.param_groups
        )

    def __call__(self, gradients: list[Tensor]) -> None:
        """Let the next step of the optimisers clip these gradients.

        Raises:
            RuntimeError: the norm of the gradients at the step before was not finite.
        """
        self.check()
        if not gradients:
            return
        norm = norm_of_all(gradients)
        # The fused step reads both as float32, whatever the type of the weights.
        scale, is_refused = (norm / self.max_norm).clamp_(min=1).float(), (~norm.isfinite()).float()
        for optimizer in self.optimizers:
            optimizer.grad_scale, optimizer.found_inf = scale, is_refused  # type: ignore[attr-defined]
        self._norm = norm.to("cpu", non_blocking=norm.is_cuda)  # does not block, because the copy is to pinned memory
        if norm.is_cuda:
            self._copied = torch.cuda.Event()
            self._copied.record(torch.cuda.current_stream(norm.device))

    def check(self) -> None:
        """Raise ``RuntimeError`` if the norm of the last step's gradients was not finite; this waits for the GPU."""
        if self._norm is None:
            return
        if self._copied is not None:
            self._copied.synchronize()
        norm, self._norm = float(self._norm), None
        _refuse_non_finite(norm)
