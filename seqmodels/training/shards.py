"""Training of a module too large for one process: each process holds a shard of it (FSDP2), also in checkpoints.

A checkpoint of shards is an ordinary checkpoint file without the sharded tensors, which names a folder beside it. In
this folder every process has written its parts, as safetensors (``torch.distributed.checkpoint``). Any number of
processes can read it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from seqmodels.common import distributed
from seqmodels.training.optimizers import norm_of_all
from seqmodels.training.parallel import Processes

Result = TypeVar("Result")


class Shards(Processes):
    """Processes each of which holds a shard (a part) of all weights, their gradients and the optimiser's state (FSDP2).

    The weights of a unit are gathered for its forward pass and again for its backward pass, and its gradients are
    summed and distributed (Rajbhandari et al. 2020, *ZeRO*; Zhao et al. 2023, *PyTorch FSDP*). Weights that belong to
    no unit are gathered for the whole step. Other processes are not told of an error within a step; they stop when the
    failed process ends.

    Args:
        module: the module whose weights are trained; afterwards its parameters are ``DTensor``, until ``whole_weights``
            are loaded into another module.
        units: parts of the module that are gathered one after the other, each of which computes by its ``forward``
            only.
    """

    def __init__(self, module: nn.Module, units: Sequence[nn.Module]) -> None:
        mesh = init_device_mesh(next(module.parameters()).device.type, (dist.get_world_size(),))
        sharded = [fully_shard(unit, mesh=mesh) for unit in units]
        self._calling = _Calling(module)
        self._root = fully_shard(self._calling, mesh=mesh)
        for part in (*sharded, self._root):
            part.set_gradient_divide_factor(1.0)  # gradients are parts of a sum,
            part.set_force_sum_reduction_for_comms(True)  # not of a mean, which gloo does not know

    def call(self, function: Callable[[], Result]) -> Result:
        """Return ``function()``, which computes with the module; all processes call this at once.

        They must call the same units of the module in the same order.
        """
        distributed.meet()
        with _naming_process(), warnings.catch_warnings():
            # Blocks return keys and values that are views; nothing changes what they return in place.
            warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)
            result: Result = self._calling(function)
            if not torch.is_grad_enabled():  # otherwise the backward pass reshards
                self._root.reshard()
        return result

    def backward(self, loss: Tensor, *, ends_step: bool) -> None:
        """Add the gradients of ``loss``, summed over processes.

        They are summed after every batch and not only at the end of a step, because whole gradients would not fit.

        Args:
            loss: loss of this process's part of the batch.
            ends_step: has no effect here.
        """
        with _naming_process():
            loss.backward()

    def norm(self, gradients: list[Tensor]) -> Tensor:
        norm = norm_of_all(gradients)
        assert isinstance(norm, DTensor), "gradients are sharded as weights are"
        return norm.full_tensor()

    def is_sharded(self, tensor: Tensor) -> bool:
        return isinstance(tensor, DTensor)

    def placed(self, tensor: Tensor, like: Tensor) -> Tensor:
        moved = super().placed(tensor, like)
        if not isinstance(like, DTensor):
            return moved
        return distribute_tensor(moved, like.device_mesh, like.placements, src_data_rank=None)


class _Calling(nn.Module):
    """A module whose forward pass is any function that computes with ``module``, so that FSDP's hooks run around it.

    Args:
        module: the module whose weights are sharded.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, function: Callable[[], Result]) -> Result:
        return function()


@contextmanager
def _naming_process() -> Iterator[None]:
    """Return a context that raises errors as ``LostProcessError``, because the other processes wait within a step."""
    try:
        yield
    except distributed.ProcessError:
        raise
    except Exception as error:
        raise distributed.LostProcessError(  # because a process that caught an ordinary error would continue alone
            f"process {distributed.rank()} of {dist.get_world_size()} failed within a step of sharded weights, which "
            f"the others notice when it ends: {type(error).__name__}: {error}"
        ) from error


# -- checkpoints -----------------------------------------------------------------------------------------------


def write_shards(folder: str, tensors: Mapping[str, Tensor]) -> None:
    """Write the parts of tensors that this process holds to a folder; all processes call this at once.

    Args:
        folder: the folder, which all processes share.
        tensors: the tensors, by name.

    Raises:
        ProcessError: in every process, if one of them fails.
        ImportError: safetensors is not installed.
    """
    _check_safetensors()
    try:
        save(dict(tensors), storage_writer=HuggingFaceStorageWriter(folder, save_distributed=True))
    except CheckpointException as failed:  # raised in all processes; it is a BaseException and no Exception
        number, (error, _) = next(iter(failed.failures.items()))
        raise distributed.ProcessError(
            f"process {number} of {dist.get_world_size()} failed, so all stop: {type(error).__name__}: {error}"
        ) from error


def names_and_shapes(folder: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors that ``write_shards`` wrote to a folder, by name.

    Raises:
        ValueError: files are missing or cannot be read.
        ImportError: safetensors is not installed.
    """
    _check_safetensors()
    with _naming_folder(folder):
        metadata = HuggingFaceStorageReader(folder).read_metadata().state_dict_metadata
        shapes = {}
        for name, entry in metadata.items():
            assert isinstance(entry, TensorStorageMetadata)
            if sum(chunk.sizes.numel() for chunk in entry.chunks) != entry.size.numel():
                raise ValueError(f"{name} is not complete; a file may be missing")
            shapes[name] = tuple(entry.size)
    return shapes


def read_shards(folder: str, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors that ``write_shards`` wrote to a folder, by name; each process reads only the parts it holds.

    Args:
        folder: the folder.
        like: for each name, a tensor that gives shape, device and sharding.

    Raises:
        ValueError: files cannot be read.
    """
    tensors = {name: torch.empty_like(tensor) for name, tensor in like.items()}
    with warnings.catch_warnings(), _naming_folder(folder):  # torch warns if there is one process only
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        load(dict(tensors), storage_reader=HuggingFaceStorageReader(folder), no_dist=True)
    return tensors


@contextmanager
def _naming_folder(folder: str) -> Iterator[None]:
    """Return a context that raises errors of torch and safetensors as ``ValueError`` with the folder in the message.

    Some of them do not derive from ``Exception``.
    """
    try:
        yield
    except (Exception, CheckpointException) as error:
        first = next(iter(error.failures.values()))[0] if isinstance(error, CheckpointException) else error
        raise ValueError(f"the weights of a checkpoint in {folder} cannot be read: {first}") from error


def _check_safetensors() -> None:
    try:
        import safetensors  # noqa: F401
    except ImportError as error:
        raise ImportError("checkpoints of shards need safetensors: pip install 'seqmodels[sharded]'") from error
