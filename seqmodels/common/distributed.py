"""Several processes under ``torchrun``, which run one script on the same sequences and end with one model or one error.

The script is that of one process, after ``join()`` or ``torch.distributed.init_process_group()``. What can be summed
over sequences is: each process works on its shard, and sums are all-reduced (``all_reduce_sum``). Everything else rank
0 does alone, and the others receive the result (``run_on_rank_zero``). Decisions that hang on a clock are those of rank
0's clock.

Before each sum the processes exchange a header of a few numbers: whether one of them has failed, and what each is about
to do. So an error in one is raised in all, at the next sum, and no process waits for one that will never come. A
process that was killed or hangs is noticed by the connection or by the time limit of the process group,
``init_process_group(..., timeout=timedelta(minutes=5))``. Gradients of networks are summed without headers of their
own, in steps that have one (``seqmodels.training.parallel``).
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
# What a process is about to do, where it is no sum: a sum is announced by how many numbers it has.
FAIL, COMPARE, WAIT, CONTENT, DONE, MEET = -1, -2, -3, -4, -5, -6

_stop = {"requested": False, "agreed": False}  # of this process, by a signal; by all, as they last exchanged headers
_works_alone: ContextVar[bool] = ContextVar("works_alone", default=False)


class ProcessError(RuntimeError):
    """Raised in every process, since one of them failed."""


class ProcessValueError(ProcessError, ValueError):
    """The same, where that one raised a ``ValueError``, or where processes were given different things."""


class LostProcessError(ProcessError):
    """A process was killed, hangs or lost its connection, so that nothing can be added up any more."""


def join(backend: str = "gloo", *, timeout: float = 300.0) -> None:
    """Join the processes that ``torchrun`` started; where this one was not started by it, nothing.

    It is ``torch.distributed.init_process_group``, but a process that torchrun has started again (``--max-restarts``)
    does not look for the others where they were before (seen in torch 2.13: it is refused, or waits).

    Args:
        backend: ``"gloo"``, or ``"nccl"`` with a GPU each.
        timeout: seconds that a process is waited for before it counts as lost; more than the slowest EM step takes.
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
    """Whether there is more than this process, and it does not work alone while the others wait."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1 and not _works_alone.get()


def is_rank_zero() -> bool:
    """Whether this is process 0, or the only one."""
    return not is_distributed() or dist.get_rank() == 0


def shard(items: Sequence[Item]) -> list[Item]:
    """Every n-th of them, for n processes; all where there is only this one."""
    return list(items[share_of(len(items))])


def rank() -> int:
    """The number of this process; 0 of the only one."""
    return dist.get_rank() if is_distributed() else 0


def n_processes() -> int:
    """How many there are."""
    return dist.get_world_size() if is_distributed() else 1


def share_of(n: int) -> slice:
    """Which of n items ``shard`` gives to this process."""
    return slice(rank(), n, n_processes())


def all_reduce_sum(tensors: Sequence[Tensor], from_rank_zero: Sequence[float] = ()) -> tuple[list[Tensor], list[float]]:
    """Sums over all processes of float64 tensors, of the same shapes in each; and rank 0's numbers ``from_rank_zero``.

    Raises:
        ProcessError: another process has failed, or does something else.
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
    """The sum of the numbers that all processes give."""
    (total,), _ = all_reduce_sum([torch.tensor(number, dtype=torch.float64)])
    return float(total)


def of_rank_zero(number: float) -> float:
    """The number that rank 0 gives, in every process: of what its machine has, as far as all must do alike."""
    return all_reduce_sum([], [number])[1][0]


def meet() -> None:
    """Raise ``ProcessError`` if a process has failed, before all do what it would be missed in."""
    if is_distributed():
        _exchange(MEET)


def begin_all_reduce(tensor: Tensor) -> Callable[[], None]:
    """Begin to sum a tensor over all processes, in place and without a header; what is returned waits for the sum.

    All processes must have agreed (``all_reduce_sum``) that they will begin the same sums, in the same order.
    """
    with _detecting_loss():
        work = dist.all_reduce(tensor, async_op=True)

    def wait() -> None:
        with _detecting_loss():
            work.wait()

    return wait


def broadcast_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The float64 tensors of rank 0, in every process."""
    if not is_distributed():
        return list(tensors)
    return all_reduce_sum([t if dist.get_rank() == 0 else torch.zeros_like(t) for t in tensors])[0]


def receive_content(content: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """In every rank but 0 the ``content()`` of rank 0 (see ``broadcast_content``); in rank 0 None."""
    if not is_distributed():
        return None
    received = broadcast_content(content)
    return None if dist.get_rank() == 0 else received


def broadcast_content(content: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The ``content()`` of rank 0, in every process: nested dictionaries of arrays and JSON values."""
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
    """Rank 0 works, the others wait: for as long as it takes, unless it fails, is killed or hangs.

    Args:
        name: of what is fitted; process 0 warns, at the line that called ``fit``, that the others have nothing to do.
            None: no warning, as of the last part of a fit that was shared.
        work: to be done.
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
    """Request, after a signal to this process, that training end in all processes at the same step."""
    _stop["requested"] = True


def stop_agreed() -> bool:
    """Whether a stop had been requested when headers were last exchanged; the same in all. In one process False."""
    return _stop["agreed"]


def clear_stop_requests() -> None:
    """Forget earlier requests to stop."""
    _stop.update(requested=False, agreed=False)


@contextmanager
def propagate_errors() -> Iterator[None]:
    """Around what every process does: an error in one is raised in all, and none goes on before all are done.

    Raises:
        ProcessError: one of them failed; in all the same, and a ``ValueError`` where that was one. If all failed alike,
            each raises what it raised.
    """
    if not is_distributed():
        yield
        return
    try:
        yield
        _exchange(DONE)
    except ProcessError:
        raise  # in all of them already
    except Exception as error:
        with suppress(LostProcessError):  # the error here says more than that the others have left
            _exchange(FAIL, error)
        raise
    except BaseException as error:  # an interruption stays one here, and is an error in the others
        with suppress(ProcessError):
            _exchange(FAIL, error)
        raise


def check_equal(texts: Mapping[str, str]) -> None:
    """Raise ``ValueError`` in every process, naming what differs and where, unless all hold the same texts by name."""
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
    """The headers of all processes, summed."""

    working: bool


def _exchange(what: int, error: BaseException | None = None, *, working: bool = False) -> _Header:
    """Tell all others what this process is about to do; raises if one has failed, or if they do not do the same."""
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
            f"the {n} processes do different things at the same time, so that their sums would be of nothing; let "
            "every process make the same calls in the same order, and one fit at a time"
        )
    return _Header(bool(working_now))


def _raise_everywhere(error: BaseException | None) -> None:
    """Raise one message in all, of the first process that failed; where all failed alike, each its own error."""
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
    """Tell the waiting processes, once a second, that this one works; if one of them fails, end the work within."""
    done, failure = threading.Event(), list[ProcessError]()

    def beat() -> None:
        while not done.wait(HEARTBEAT):
            try:
                _exchange(WAIT, working=True)
            except ProcessError as error:
                failure.append(error)
                _stop["agreed"] = True  # training loops ask for this, also where SIGINT is ignored
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
    """The texts of all processes, in every process."""
    encoded = np.frombuffer(text.encode(errors="backslashreplace"), dtype=np.uint8)  # also half a surrogate pair
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
    """Where the process group can add up: on the GPU with NCCL alone."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def _all_reduce(tensor: Tensor) -> None:
    with _detecting_loss():
        dist.all_reduce(tensor)


def _broadcast(tensor: Tensor) -> None:
    with _detecting_loss():
        dist.broadcast(tensor, 0)


@contextmanager
def _detecting_loss() -> Iterator[None]:
    """Raise an error of the process group as the loss of another process."""
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
