"""Small matrix products on one thread: to wake a second one takes longer than they do. Compiled loops on several.

Long recursions on several too, each on sequences of its own: then no step waits for another thread.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

WORTH_SHARING = 200_000  # multiplications in a product, from which a second thread gains
# The same of products in a recursion of each thread's own: between two of them only one thread can be at work.
WORTH_A_RECURSION = {torch.float32: 8_000_000, torch.float64: 3_000_000}

Item = TypeVar("Item")
Result = TypeVar("Result")

Part = tuple[int, int]  # from, to
SetThreads = Callable[[int], int]  # a number of threads; some return what it was


@contextmanager
def one_thread_if_small(transition: Tensor, n: int) -> Iterator[None]:
    """Within, torch uses one thread on this CPU if products of (K, K) with (K, n) are small; after, as many as before.

    Only in the thread that calls: ``torch.set_num_threads`` is for the whole process, and other threads may be at work
        in it.
    """
    if torch.get_num_threads() == 1 or transition.is_cuda or transition.numel() * n >= WORTH_SHARING:
        yield
        return
    with one_thread():
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, torch uses one thread on this CPU; after, as many as before. Only in the thread that calls."""
    threads = torch.get_num_threads()
    set_openmp, set_products = _thread_setters()
    set_openmp(1)
    before = set_products(1)
    try:
        yield
    finally:
        set_openmp(threads)
        set_products(before)


def run_parts(parts: Sequence[Part], run: Callable[[Part], None], *, is_worth_sharing: bool) -> None:
    """``run`` every part, on as many threads as torch uses if that ``is_worth_sharing``; ``run`` is compiled code."""
    n_threads = min(torch.get_num_threads(), len(parts))
    if n_threads <= 1 or not is_worth_sharing:
        for part in parts:
            run(part)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(run, parts))


def in_threads(items: Sequence[Item], run: Callable[[Item], Result]) -> list[Result]:
    """``run`` of each, in order, without gradients; each is in a thread of its own, in which torch uses that one."""

    def run_one(item: Item) -> Result:
        with one_thread(), torch.no_grad():
            return run(item)

    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(run_one, items))


@cache
def _thread_setters() -> tuple[SetThreads, SetThreads]:
    """Of the calling thread's number in the OpenMP that torch runs on, and in MKL; where there is neither, nothing is
    set."""
    folder = Path(torch.__file__).parent
    files = [path for path in folder.glob("lib/libtorch_cpu.*") if path.suffix in (".so", ".dylib")]
    # Loaded already; names are looked up in what it depends on too.
    library = ctypes.CDLL(str(files[0])) if files else None
    return getattr(library, "omp_set_num_threads", int), getattr(library, "MKL_Set_Num_Threads_Local", int)
