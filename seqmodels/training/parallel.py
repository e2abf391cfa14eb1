"""Training of one module by several processes, each of which holds all its weights.

``shards`` is for modules that are too large for that. Every process computes the gradient of its part of a batch, ``-Σ
weight · log p / (weight of the whole batch)``, and the sum over processes is the gradient of the batch. Between the
header of ``distributed.all_reduce_sum`` and the last of these sums no process may leave: a process that fails in its
backward pass adds zeros, and reports it at the next header.
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
BUCKET_BYTES = 4 << 20  # size of gradients that are summed together while the backward pass continues


class Processes(ABC):
    """The processes that train one module together. To add a way to share the work, define ``call`` and ``backward``.

    Attributes:
        shares: True if there are several processes.
    """

    shares: ClassVar[bool] = True

    @abstractmethod
    def call(self, function: Callable[[], Result]) -> Result:
        """Return ``function()``, which computes with the module; all processes call this at once."""

    @abstractmethod
    def backward(self, loss: Tensor, *, ends_step: bool) -> None:
        """Add the gradients of ``loss`` to the weights' gradients, summed over processes at the end of a step.

        Args:
            loss: loss of this process's part of the batch.
            ends_step: True if the optimiser takes a step next; False if more batches are accumulated before.
        """

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the Euclidean norm of the gradients of all weights together, as a scalar tensor."""
        return norm_of_all(gradients)

    def is_sharded(self, tensor: Tensor) -> bool:
        return False

    def placed(self, tensor: Tensor, like: Tensor) -> Tensor:
        """Return ``tensor``, which this process holds whole, on the device of ``like`` and sharded as ``like`` is."""
        return tensor.to(like.device)

    def close(self) -> None:
        """Remove the hooks that this object put on the module, if any; the module's weights stay as they are."""
        return


class OneProcess(Processes):
    """A single process, which trains a module without sharing the work."""

    shares: ClassVar[bool] = False

    def call(self, function: Callable[[], Result]) -> Result:
        return function()

    def backward(self, loss: Tensor, *, ends_step: bool) -> None:
        loss.backward()


class Replicas(Processes):
    """Processes each of which holds all weights, which stay equal because gradients are all-reduced.

    Gradients are summed in buckets, the last layers first. A bucket is sent as soon as its gradients are computed,
    while the backward pass continues (Li et al. 2020, *PyTorch Distributed*). A weight that has no gradient in any
    process has none afterwards.

    Args:
        module: the module whose weights are trained.
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
        """Add the gradients of ``loss``; at the end of a step return when the gradients of all processes are summed.

        Args:
            loss: loss of this process's part of the batch.
            ends_step: True if the optimiser takes a step next; False if more batches are accumulated before.
        """
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
        """Count the computed gradient of ``weight``, and start the sum over processes of buckets that are complete.

        Buckets (groups of gradients) are sent in their order, which is the same in all processes.
        """
        if not self._sums:
            return
        self._bucket_of[id(weight)].n_ready += 1
        for bucket in self._buckets:  # in this order, because it must be the same in all processes
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
    """A group of gradients of one type on one device, which are summed over processes as one array.

    The array also counts, for each weight, the processes that have a gradient of it.

    Args:
        weights: the weights whose gradients they are.
    """

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.weights = list(weights)
        self.n_ready = 0
        self._flat: Tensor | None = None
        self._wait: Callable[[], None] | None = None

    @property
    def is_sent(self) -> bool:
        return self._wait is not None

    def send(self) -> None:
        """Begin to sum the gradients of the bucket over processes, without waiting."""
        parts = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in self.weights]
        there = self.weights[0].new_tensor([p.grad is not None for p in self.weights])
        self._flat = torch.cat([*parts, there])
        self._wait = distributed.begin_all_reduce(self._flat)

    def receive(self) -> None:
        """Wait for the sums over processes and set them as the gradients of the bucket's weights."""
        assert self._flat is not None, "it was sent"
        assert self._wait is not None, "it was sent"
        self._wait()
        *sums, there = self._flat.detach().split([*(p.numel() for p in self.weights), len(self.weights)])
        for weight, total, n in zip(self.weights, sums, there.tolist(), strict=True):
            weight.grad = total.view_as(weight) if n else None
        self.n_ready, self._flat, self._wait = 0, None, None


def _buckets(weights: Sequence[Tensor]) -> list[_Bucket]:
    """Group the weights, from the last to the first, into buckets of gradients that are all-reduced together.

    A bucket has at most 4 MiB (``BUCKET_BYTES``), or one larger weight. The last weight comes first because its
    gradient is computed first.
    """
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
    """Return the whole weights of a module by name, on the CPU, after training by shards (``module.state_dict()``).

    All processes call this at once.
    """
    from torch.distributed.tensor import DTensor

    weights = {}
    for name, tensor in module.state_dict().items():
        weights[name] = (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()
    return weights
