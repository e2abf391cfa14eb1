"""Several processes under ``torchrun`` that run one script on the same sequences and end with the same model or error.

The script is the one for a single process, after ``join()`` or ``torch.distributed.init_process_group()``. Sums over
sequences are divided: each process works on its shard, and the sums are all-reduced (``all_reduce_sum``). Rank 0 does
everything else alone and the others receive the result (``run_on_rank_zero``). Decisions that depend on a clock follow
rank 0's clock.

Before each sum the processes exchange a header of a few numbers, which says if one of them has failed and what each is
about to do. So an error in one is raised in all at the next sum, and no process waits for one that will never come. A
process that was killed or hangs is noticed by the connection or by the time limit of the process group,
``init_process_group(..., timeout=timedelta(minutes=5))``. Gradients of networks are summed without headers, in training
steps that have exchanged one (``seqmodels.training.parallel``).
"""

from __future__ import annotations

import _thread
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from seqmodels.common import storage
from seqmodels.common.caller_warnings import warn_caller

Item = TypeVar("Item")
HEARTBEAT = 1.0  # seconds between two headers of a process that works while the others wait
# Codes of what a process is about to do other than a sum; a sum is announced by how many numbers it has.
FAIL, COMPARE, WAIT, CONTENT, DONE, MEET = -1, -2, -3, -4, -5, -6

# Requests to stop: one that a signal to this process made, and one that all knew of at the last exchange of headers.
_stop = {"requested": False, "agreed": False}
_works_alone: ContextVar[bool] = ContextVar("works_alone", default=False)


class ProcessError(RuntimeError):
    """An error raised in every process when one of them has failed."""


class ProcessValueError(ProcessError, ValueError):
    """An error raised in every process when one has raised a ``ValueError``, or when the processes' inputs differ."""


class LostProcessError(ProcessError):
    """An error raised when a process was killed, hangs or lost its connection, so that nothing more can be summed."""


def join(backend: str = "gloo", *, timeout: float = 300.0) -> None:
    """Join the processes that ``torchrun`` started; do nothing if this process was not started by it.

    This calls ``torch.distributed.init_process_group``. A process that torchrun has restarted (``--max-restarts``) gets
    a store of its own, because in torch 2.13 it is otherwise refused, or waits for the processes of the earlier start.

    Args:
        backend: ``"gloo"``, or ``"nccl"`` if each process has a GPU.
        timeout: seconds to wait for a process before it counts as lost; choose more than the slowest EM step takes.
    """
    if "RANK" not in os.environ:
        return
    rank, size, limit = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), timedelta(seconds=timeout)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        dist.init_process_group(backend, timeout=limit)
        return
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(  # type: ignore[attr-defined]
        address, port, size, is_master=False, timeout=limit
    )
    prefix = f"seqmodels/{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    store_of_restart = dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store_of_restart, rank=rank, world_size=size, timeout=limit)


def is_distributed() -> bool:
    """Return True if several processes work together now.

    It is False in a single process, and in one that works alone while the others wait.
    """
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1 and not _works_alone.get()


def is_rank_zero() -> bool:
    """Return True if this is process 0, or a process that works alone."""
    return not is_distributed() or dist.get_rank() == 0


def shard(items: Sequence[Item]) -> list[Item]:
    """Return the items that this process works on: every n-th item for n processes, all items for one process.

    Args:
        items: all items, the same in every process.
    """
    return list(items[share_of(len(items))])


def rank() -> int:
    """Return the number of this process among those that share the work; 0 if it is the only one."""
    return dist.get_rank() if is_distributed() else 0


def n_processes() -> int:
    """Return the number of processes that share the work; 1 if this process works alone."""
    return dist.get_world_size() if is_distributed() else 1


def share_of(n: int) -> slice:
    """Return the slice that selects the items on which this process works, every n-th for n processes.

    Args:
        n: number of items.
    """
    return slice(rank(), n, n_processes())


def all_reduce_sum(tensors: Sequence[Tensor], from_rank_zero: Sequence[float] = ()) -> tuple[list[Tensor], list[float]]:
    """Return the sums of tensors over all processes, and numbers of process 0 (rank 0).

    Args:
        tensors: float64 tensors, which have the same shapes in every process.
        from_rank_zero: numbers that rank 0 sends to all; other processes must pass as many, which are ignored.

    Returns:
        The summed tensors, and the numbers of rank 0.

    Raises:
        ProcessError: another process has failed or does something else.
    """
    if not is_distributed():
        return list(tensors), list(from_rank_zero)
    device = tensors[0].device if tensors else _device()
    numbers = torch.tensor(list(from_rank_zero), dtype=torch.float64, device=device)
    parts = [t.reshape(-1) for t in tensors] + [numbers if dist.get_rank() == 0 else torch.zeros_like(numbers)]
    flat = torch.cat(parts).to(_device())
    _exchange(flat.numel())
    _all_reduce(flat)
    *sums, numbers = flat.to(device).split([part.numel() for part in parts])
    return [part.view(t.shape) for part, t in zip(sums, tensors, strict=True)], numbers.tolist()


def sum_of(number: float) -> float:
    """Return the sum of ``number`` over all processes."""
    (total,), _ = all_reduce_sum([torch.tensor(number, dtype=torch.float64)])
    return float(total)


def of_rank_zero(number: float) -> float:
    """Return, in every process, the ``number`` that process 0 passes.

    Use it for quantities that depend on the machine, such as free memory, on which all processes must act alike.
    """
    return all_reduce_sum([], [number])[1][0]


def meet() -> None:
    """Wait until all processes have called this function.

    Call it before work in which the others would wait for a process that has failed.

    Raises:
        ProcessError: a process has failed.
    """
    if is_distributed():
        _exchange(MEET)


def begin_all_reduce(tensor: Tensor) -> Callable[[], None]:
    """Begin to sum a tensor over all processes, in place, and return a function that waits for the sum.

    No message about errors is exchanged first, so all processes must have agreed (``all_reduce_sum``) to begin the same
    sums in the same order.

    Args:
        tensor: the tensor, of the same shape in every process.
    """
    with _detecting_loss():
        work = dist.all_reduce(tensor, async_op=True)

    def wait() -> None:
        with _detecting_loss():
            work.wait()

    return wait


def broadcast_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return, in every process, the tensors of process 0.

    Args:
        tensors: float64 tensors, of the same shapes in every process.
    """
    if not is_distributed():
        return list(tensors)
    return all_reduce_sum([t if dist.get_rank() == 0 else torch.zeros_like(t) for t in tensors])[0]


def receive_content(content: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Return what ``content()`` returns in process 0, in every other process.

    Return None in process 0, or if there is only one process.

    Args:
        content: function that returns nested dictionaries of arrays and JSON values; only process 0 calls it.
    """
    if not is_distributed():
        return None
    received = broadcast_content(content)
    return None if dist.get_rank() == 0 else received


def broadcast_content(content: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return, in every process, what ``content()`` returns in process 0.

    Args:
        content: function that returns nested dictionaries of arrays and JSON values; only process 0 calls it.
    """
    if not is_distributed():
        return content()
    local = content() if dist.get_rank() == 0 else {}
    encoded = _to_bytes(local) if dist.get_rank() == 0 else b""
    _exchange(CONTENT)
    size = torch.tensor([len(encoded)], device=_device())
    _broadcast(size)
    data = torch.empty(int(size), dtype=torch.uint8, device=_device())
    if encoded:
        data.copy_(torch.frombuffer(bytearray(encoded), dtype=torch.uint8))
    _broadcast(data)
    return local if dist.get_rank() == 0 else _from_bytes(data.cpu().numpy().tobytes())


def run_on_rank_zero(name: str | None, work: Callable[[], None]) -> None:
    """Call ``work`` in process 0 (rank 0) while the other processes wait until it is done.

    The others wait as long as it takes, unless rank 0 fails, is killed or hangs. A single process just calls ``work``.

    Args:
        name: what is fitted; rank 0 warns, at the line that called ``fit``, that the others have nothing to do. None
            gives no warning, as for the last part of a fit whose other parts were shared.
        work: a function without arguments.
    """
    if not is_distributed():
        work()
    elif dist.get_rank() == 0:
        if name is not None:
            warn_caller(
                f"{name} is fitted by process 0 alone; the other {dist.get_world_size() - 1} wait and take its model "
                "(HMMs and networks are what several processes fit together); start one process, or one for each model",
            )
        with _heartbeats():
            token = _works_alone.set(True)
            try:
                work()
            finally:
                _works_alone.reset(token)
        _exchange(WAIT)
    else:
        while _exchange(WAIT).working:
            pass


def request_stop() -> None:
    """Request that training end in all processes at the same step; a signal handler calls this function."""
    _stop["requested"] = True


def stop_agreed() -> bool:
    """Return True if some process had requested a stop of training when the processes last exchanged messages.

    All processes return the same. With one process it is False.
    """
    return _stop["agreed"]


def clear_stop_requests() -> None:
    """Forget earlier requests to stop training, of this process and of the others."""
    _stop.update(requested=False, agreed=False)


@contextmanager
def propagate_errors() -> Iterator[None]:
    """Return a context manager that raises an error of one process in all, and whose block all leave together.

    With one process the block runs as it would without this context.

    Raises:
        ProcessError: one or several processes failed. The message is that of the first process, by rank, that failed;
            if its error is a ``ValueError``, this one is too. If all failed with the same message, each raises its own
            error.
    """
    if not is_distributed():
        yield
        return
    try:
        yield
        _exchange(DONE)
    except ProcessError:
        raise  # every process raises it already
    except Exception as error:
        with suppress(LostProcessError):  # because the error here says more than the loss of the others
            _exchange(FAIL, error)
        raise
    except BaseException as error:  # an interruption is raised unchanged here, and becomes an error in the others
        with suppress(ProcessError):
            _exchange(FAIL, error)
        raise


def check_equal(texts: Mapping[str, str]) -> None:
    """Check that all processes pass the same texts, such as descriptions of their models and data.

    Args:
        texts: the texts by name.

    Raises:
        ProcessValueError: in every process, if some differ; the message names the texts that differ and the processes
            that hold each.
    """
    if not is_distributed():
        return
    _exchange(COMPARE)
    gathered = _gather("\n".join(f"{name}\t{_one_line(text)}" for name, text in texts.items()))
    by_rank = [dict(line.split("\t", 1) for line in text.split("\n")) for text in gathered]
    names = dict.fromkeys(name for held in by_rank for name in held)
    differing = [name for name in names if len({held.get(name, "missing") for held in by_rank}) > 1]
    if not differing:
        return
    name = differing[0]
    ranks_with: dict[str, list[int]] = {}
    for rank, held in enumerate(by_rank):
        ranks_with.setdefault(held.get(name, "missing"), []).append(rank)
    who = "; ".join(f"{text} in {_ranks_in_words(ranks)}" for text, ranks in ranks_with.items())
    also = f" (and {', '.join(differing[1:])})" if differing[1:] else ""
    raise ProcessValueError(
        f"the processes differ in {name}{also}: {who}; give every process the same model, the same sequences in the "
        "same order and the same version of seqmodels"
    )


# -- headers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Header:
    """The sum over all processes of the headers (a few numbers) that they exchange before each collective operation.

    Attributes:
        working: True if rank 0 still works while the others wait.
    """

    working: bool


def _exchange(what: int, error: BaseException | None = None, *, working: bool = False) -> _Header:
    """Tell all other processes what this one is about to do, and return the sum of these headers over all processes.

    Args:
        what: ``FAIL``, ``COMPARE``, ``WAIT``, ``CONTENT``, ``DONE`` or ``MEET``, or the number of values to be summed.
        error: the error of this process, if ``what`` is ``FAIL``.
        working: True if this process works while the others wait.

    Raises:
        ProcessError: a process has failed, or the processes do not do the same.
    """
    n, size = dist.get_world_size(), float(what % (1 << 20))
    header = torch.tensor(
        [what == FAIL, working, _stop["requested"], size, size * size], dtype=torch.float64, device=_device()
    )
    _all_reduce(header)
    failed, working_now, stop_requested, size_sum, square_sum = header.tolist()
    _stop["agreed"] = bool(stop_requested)
    if failed:
        _raise_everywhere(error)
    if n * square_sum != size_sum * size_sum:
        raise ProcessError(
            f"the {n} processes do different things at the same time, so that their sums would be meaningless; let "
            "every process make the same calls in the same order, and one fit at a time"
        )
    return _Header(bool(working_now))


def _raise_everywhere(error: BaseException | None) -> None:
    """Raise an error with the message of the first process that failed; every process calls this when one has failed.

    If all processes failed with the same message, return, so that each raises its own error.

    Args:
        error: the error of this process; None if it has not failed.
    """
    mine = "" if error is None else f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    messages = _gather(("1" if isinstance(error, ValueError) else "0") + mine)
    failed = [i for i, message in enumerate(messages) if message[1:]]
    first = messages[failed[0]]
    if len(failed) == len(messages) and len(set(messages)) == 1:
        return
    kind = ProcessValueError if first[0] == "1" else ProcessError
    others = f" (and {_ranks_in_words(failed[1:])})" if failed[1:] else ""
    raise kind(f"process {failed[0]} of {len(messages)}{others} failed, so all stop: {first[1:]}") from error


@contextmanager
def _heartbeats() -> Iterator[None]:
    """Tell the waiting processes once a second, while the block runs, that this process still works.

    If one of the waiting processes fails, interrupt the block and raise its error.
    """
    done, failure = threading.Event(), list[ProcessError]()

    def beat() -> None:
        while not done.wait(HEARTBEAT):
            try:
                _exchange(WAIT, working=True)
            except ProcessError as error:
                failure.append(error)
                _stop["agreed"] = True  # because training loops check it, even where SIGINT is ignored
                if not done.is_set():
                    _thread.interrupt_main()
                return

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    except KeyboardInterrupt:
        if not failure:
            raise
    finally:
        done.set()
        thread.join()
    if failure:
        raise failure[0]


# -- what is sent ------------------------------------------------------------------------------------------


def _gather(text: str) -> list[str]:
    """Return, in every process, the texts of all processes in order of rank."""
    encoded = np.frombuffer(text.encode(errors="backslashreplace"), dtype=np.uint8)  # a lone surrogate too
    device, n = _device(), dist.get_world_size()
    sizes = torch.zeros(n, dtype=torch.float64, device=device)
    sizes[dist.get_rank()] = len(encoded)
    _all_reduce(sizes)
    texts = torch.zeros(n, max(1, int(sizes.max())), dtype=torch.int32, device=device)
    texts[dist.get_rank(), : len(encoded)] = torch.from_numpy(encoded.astype(np.int32)).to(device)
    _all_reduce(texts)
    rows = texts.to(torch.uint8).cpu().numpy()
    return [row[: int(size)].tobytes().decode() for row, size in zip(rows, sizes.tolist(), strict=True)]


def _to_bytes(content: Mapping[str, Any]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "content"
        storage.write(path, content)
        return path.read_bytes()


def _from_bytes(encoded: bytes) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "content"
        path.write_bytes(encoded)
        return storage.read(path)


def _device() -> torch.device:
    """Return the device on which the process group sums tensors: the GPU for NCCL, the CPU for any other backend."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def _all_reduce(tensor: Tensor) -> None:
    with _detecting_loss():
        dist.all_reduce(tensor)


def _broadcast(tensor: Tensor) -> None:
    with _detecting_loss():
        dist.broadcast(tensor, 0)


@contextmanager
def _detecting_loss() -> Iterator[None]:
    """Raise ``LostProcessError`` in place of an error of the process group within the block."""
    try:
        yield
    except RuntimeError as error:
        others = [i for i in range(dist.get_world_size()) if i != dist.get_rank()]
        n, reason = dist.get_world_size(), str(error).splitlines()[0]
        raise LostProcessError(
            f"{_ranks_in_words(others, 'or')} of {n} stopped answering process {dist.get_rank()}: it was killed, or "
            "hangs for longer than the time limit of the process group, or lost its connection; start all again "
            f"(torchrun --max-restarts does). [{reason}]"
        ) from error


def _ranks_in_words(ranks: Sequence[int], last: str = "and") -> str:
    if len(ranks) == 1:
        return f"process {ranks[0]}"
    return f"processes {', '.join(map(str, ranks[:-1]))} {last} {ranks[-1]}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
