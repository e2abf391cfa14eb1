"""How several processes train one module that each has the whole of, ``Replicas``; ``shards`` is for larger ones.

Every process computes the gradient of its part of a batch, ``-Σ weight · log p / (weight of the whole batch)``; summed
over processes that is the gradient of the batch. Between the header of ``distributed.all_reduce_sum`` and the last of
those sums no process may leave: one that fails in its backward pass adds zeros, and says so at the next header.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from seqmodels.common import distributed
from seqmodels.training.optimizers import norm_of_all

Parallel = Literal["replicate", "shard"]
Result = TypeVar("Result")
BUCKET_BYTES = 4 << 20  # of gradients that are summed together, while the backward pass goes on to others


class Processes(ABC):
    """The processes that train a module. To add a way to share the work, define ``call`` and ``backward``.

    Attributes:
        shares: whether there are several.
    """

    shares: ClassVar[bool] = True

    @abstractmethod
    def call(self, function: Callable[[], Result]) -> Result:
        """``function()``, which computes with the module; in all processes at once."""

    @abstractmethod
    def backward(self, loss: Tensor, *, ends_step: bool) -> None:
        """Add the gradients of ``loss`` to those that the weights have, and at the end of a step over processes."""

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Euclidean norm of all gradients together."""
        return norm_of_all(gradients)

    def is_sharded(self, tensor: Tensor) -> bool:
        """Whether this process holds a part of it only."""
        return False

    def placed(self, tensor: Tensor, like: Tensor) -> Tensor:
        """A whole tensor on the device of ``like``, and sharded as that is."""
        return tensor.to(like.device)

    def close(self) -> None:
        """Leave the module without hooks; its weights stay as they are held."""
        return


class OneProcess(Processes):
    """One process, with nothing to share: each method is what it would be without the others."""

    shares: ClassVar[bool] = False

    def call(self, function: Callable[[], Result]) -> Result:
        return function()

    def backward(self, loss: Tensor, *, ends_step: bool) -> None:
        loss.backward()


class Replicas(Processes):
    """Every process has all weights, and they stay equal: gradients are all-reduced in buckets, the last layers first.

    A bucket is sent as soon as its gradients are there, and the backward pass goes on meanwhile (Li et al. 2020,
    *PyTorch Distributed*). A weight without a gradient in any process has none afterwards.

    Args:
        module: whose weights are trained.
    """

    def __init__(self, module: nn.Module) -> None:
        self._buckets = _buckets([p for p in module.parameters() if p.requires_grad])
        self._bucket_of = {id(weight): bucket for bucket in self._buckets for weight in bucket.weights}
        self._sums = False
        hooks = [
            weight.register_post_accumulate_grad_hook(self._ready)
            for bucket in self._buckets
            for weight in bucket.weights
        ]
        self._hooks = hooks

    def call(self, function: Callable[[], Result]) -> Result:
        return function()

    def backward(self, loss: Tensor, *, ends_step: bool) -> None:
        """Add the gradients of ``loss``; at the end of a step return when those of all processes are summed."""
        self._sums = ends_step
        try:
            loss.backward()
        finally:
            if ends_step:
                self._sums = False
                self._finish()

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _ready(self, weight: Tensor) -> None:
        """A gradient is complete: send its bucket if it is the last of it, and those before it have been sent."""
        if not self._sums:
            return
        self._bucket_of[id(weight)].n_ready += 1
        for bucket in self._buckets:  # the same order in all processes
            if bucket.is_sent:
                continue
            if bucket.n_ready < len(bucket.weights):
                return
            bucket.send()

    def _finish(self) -> None:
        for bucket in self._buckets:
            if not bucket.is_sent:
                bucket.send()
        for bucket in self._buckets:
            bucket.receive()


class _Bucket:
    """Gradients of one type on one device, summed in one array, with for each whether there is any."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.weights = list(weights)
        self.n_ready = 0
        self._flat: Tensor | None = None
        self._wait: Callable[[], None] | None = None

    @property
    def is_sent(self) -> bool:
        """Whether its sum is under way."""
        return self._wait is not None

    def send(self) -> None:
        """Begin to sum it."""
        parts = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in self.weights]
        there = self.weights[0].new_tensor([p.grad is not None for p in self.weights])
        self._flat = torch.cat([*parts, there])
        self._wait = distributed.begin_all_reduce(self._flat)

    def receive(self) -> None:
        """Wait for the sum, which then are the gradients."""
        assert self._flat is not None, "it was sent"
        assert self._wait is not None, "it was sent"
        self._wait()
        *sums, there = self._flat.detach().split([*(p.numel() for p in self.weights), len(self.weights)])
        for weight, total, n in zip(self.weights, sums, there.tolist(), strict=True):
            weight.grad = total.view_as(weight) if n else None
        self.n_ready, self._flat, self._wait = 0, None, None


def _buckets(weights: Sequence[Tensor]) -> list[_Bucket]:
    """From the last weight, whose gradient is there first, ``BUCKET_BYTES`` together, or one larger weight."""
    groups: list[list[Tensor]] = []
    n_bytes = 0
    for weight in reversed(weights):
        size = weight.numel() * weight.element_size()
        fits = groups and (groups[-1][0].dtype, groups[-1][0].device) == (weight.dtype, weight.device)
        if fits and n_bytes + size <= BUCKET_BYTES:
            groups[-1].append(weight)
            n_bytes += size
        else:
            groups.append([weight])
            n_bytes = size
    return [_Bucket(group) for group in groups]


def whole_weights(module: nn.Module) -> dict[str, Tensor]:
    """``module.state_dict()`` on the CPU, after training by ``Shards``; all processes gather it at once."""
    from torch.distributed.tensor import DTensor

    weights = {}
    for name, tensor in module.state_dict().items():
        weights[name] = (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()
    return weights
