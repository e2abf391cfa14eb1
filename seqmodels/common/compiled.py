"""``compiled``: a loop over steps as machine code where numba is installed, else as it stands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, TypeVar, cast, overload

from seqmodels.common.caller_warnings import warn_caller

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

STEPS_IN_PLAIN_PYTHON = 100_000  # more take long enough that the knob is worth a warning


def is_compiling() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


@overload
def compiled(function: FunctionT) -> FunctionT: ...
@overload
def compiled(*, any_order: bool = ..., allocates: bool = ...) -> Callable[[FunctionT], FunctionT]: ...
def compiled(function: FunctionT | None = None, *, any_order: bool = False, allocates: bool = True) -> Any:
    """The same function of arrays and numbers, compiled by numba when it is first called; itself without numba.

    With ``any_order`` sums may be added up in another order and products be fused with sums, as vector instructions
    need it; NaN and infinities stay what they are. Without ``allocates`` it may make no array, nor keep a reference to
    one, and counts no references to those that it is given: each count is an atomic operation, and a tuple of arrays
    that is passed on in an inner loop costs many.

    The machine code is kept next to the module, or in the user's cache folder where that cannot be written; where
    neither can, it is compiled anew in each process. It holds no lock of the interpreter, so threads run side by side.
    Import a module of compiled functions where they are first needed: numba takes a while to load.
    """
    if function is None:
        return partial(_compiled, any_order=any_order, allocates=allocates)
    return _compiled(function, any_order=any_order, allocates=allocates)


def _compiled(function: FunctionT, *, any_order: bool, allocates: bool) -> FunctionT:
    if not is_compiling():
        return function
    import numba

    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": allocates}
    if any_order:
        options["fastmath"] = {"reassoc", "contract"}  # not what assumes that there are no infinities
    try:
        return cast(FunctionT, numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no folder to keep it in
        _warn_of_no_cache()
        return cast(FunctionT, numba.njit(**options)(function))


@cache
def _warn_of_no_cache() -> None:
    """Warn, once, that machine code cannot be kept."""
    warn_caller(
        "neither the folder of seqmodels nor the user's cache folder can be written, so its loops are compiled anew in "
        "each process, which takes seconds; set the environment variable NUMBA_CACHE_DIR to a folder that can"
    )


def warn_if_slow(name: str, n_steps: int) -> None:
    """Warn that ``name`` will read so many steps in plain Python, if that will take long."""
    if not is_compiling() and n_steps > STEPS_IN_PLAIN_PYTHON:
        warn_caller(
            f"{name} reads {n_steps:,} steps in plain Python, which is slow; install numba (pip install "
            "numba) for the same figures, faster",
        )
