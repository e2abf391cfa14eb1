"""Numbers of threads: small matrix products run on one, compiled loops and long recursions on several.

Waking a second thread takes longer than a small product does. Long recursions gain from several threads if each has
sequences of its own, because then no step waits for another thread.
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

WORTH_SHARING = 200_000  # number of multiplications in a product from which a second thread gains
# The threshold for running recursions in threads, which do not wait for each other between two products.
WORTH_A_RECURSION = {torch.float32: 8_000_000, torch.float64: 3_000_000}

Item = TypeVar("Item")
Result = TypeVar("Result")

Part = tuple[int, int]  # first item, and the first after the part
SetThreads = Callable[[int], int]  # takes a number of threads; some functions return the one before


@contextmanager
def one_thread_if_small(transition: Tensor, n: int) -> Iterator[None]:
    """Use one torch thread on this CPU, within the context, if products of the given sizes are small.

    The products are of ``transition (K, K)`` with matrices ``(K, n)``. The number of threads before is restored
    afterwards. Only the calling thread is affected: ``torch.set_num_threads`` would change the whole process, in which
    other threads may be at work.
    """
    if torch.get_num_threads() == 1 or transition.is_cuda or transition.numel() * n >= WORTH_SHARING:
        yield
        return
    with one_thread():
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one torch thread on this CPU within the context, and as many as before afterwards.

    Only the calling thread is affected.
    """
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
    """Call ``run``, a compiled function, with each part, on several threads if ``is_worth_sharing``.

    A part is a range of items, ``(first, first after it)``. There are at most as many threads as torch uses.
    """
    n_threads = min(torch.get_num_threads(), len(parts))
    if n_threads <= 1 or not is_worth_sharing:
        for part in parts:
            run(part)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(run, parts))


def in_threads(items: Sequence[Item], run: Callable[[Item], Result]) -> list[Result]:
    """Return the results of ``run(item)``, in order, each computed in a thread of its own without gradients.

    Within such a thread, torch uses one thread.
    """

    def run_one(item: Item) -> Result:
        with one_thread(), torch.no_grad():
            return run(item)

    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(run_one, items))


@cache
def _thread_setters() -> tuple[SetThreads, SetThreads]:
    """Return functions that set the number of threads that the calling thread uses, in OpenMP and in MKL.

    OpenMP is the library that torch has loaded. If a library is not there, its function sets nothing.
    """
    folder = Path(torch.__file__).parent
    files = [path for path in folder.glob("lib/libtorch_cpu.*") if path.suffix in (".so", ".dylib")]
    # The library is loaded already; names are looked up in its dependencies too.
    library = ctypes.CDLL(str(files[0])) if files else None
    return getattr(library, "omp_set_num_threads", int), getattr(library, "MKL_Set_Num_Threads_Local", int)
