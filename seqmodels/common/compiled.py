"""The decorator ``compiled``, which turns a loop over steps into machine code if numba is installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial, update_wrapper
from importlib.util import find_spec
from typing import Any, TypeVar, cast, overload

from seqmodels.common.caller_warnings import warn_caller

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

STEPS_IN_PLAIN_PYTHON = 100_000  # more steps take so long without numba that a warning is due


def is_compiling() -> bool:
    """Return True if numba is installed, so that ``compiled`` functions run as machine code."""
    return find_spec("numba") is not None


@overload
def compiled(function: FunctionT) -> FunctionT: ...
@overload
def compiled(
    *, any_order: bool = ..., allocates: bool = ..., inner: bool = ...
) -> Callable[[FunctionT], FunctionT]: ...
def compiled(
    function: FunctionT | None = None, *, any_order: bool = False, allocates: bool = True, inner: bool = False
) -> Any:
    """Return a function of arrays and numbers compiled by numba at its first call, or unchanged if numba is missing.

    It can be used as a decorator with or without arguments. The machine code is kept next to the module, or in the
    user's cache folder if the module's folder cannot be written. If neither can be written, each process compiles the
    function again and a warning says so once. Compiled code does not hold the interpreter's lock, so threads run side
    by side. Import a module of compiled functions only where it is needed, because numba takes a while to load.

    Args:
        function: the function to compile; None if the decorator is used with arguments.
        any_order: allow sums in another order and fused multiply-adds, which vector instructions need. NaN and
            infinities keep their meaning.
        allocates: allow the function to create arrays and to keep references to them. If False, numba does not count
            references to the arrays that it is given. Each count is an atomic operation, and passing a tuple of arrays
            in an inner loop costs many of them.
        inner: compile the function only for calls from other compiled functions. Code that takes each argument apart
            when Python calls is not generated then, which is up to a third of the time to compile. Called from Python,
            the function runs as it is written.
    """
    if function is None:
        return partial(_compiled, any_order=any_order, allocates=allocates, inner=inner)
    return _compiled(function, any_order=any_order, allocates=allocates, inner=inner)


def _compiled(function: FunctionT, *, any_order: bool, allocates: bool, inner: bool) -> FunctionT:
    if not is_compiling():
        return function
    import numba

    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": allocates}
    options |= {"no_cfunc_wrapper": True, "no_cpython_wrapper": inner}  # nothing but Python calls from outside
    if any_order:
        # Not all of fastmath, because its other flags assume that there are no NaN and infinities.
        options["fastmath"] = {"reassoc", "contract"}
    try:
        code = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder to keep it in
        _warn_of_no_cache()
        code = numba.njit(**options)(function)
    return cast(FunctionT, _Inner(function, code) if inner else code)


class _Inner:
    """A compiled function for other compiled functions; numba would crash if Python called it by itself."""

    def __init__(self, function: Callable[..., Any], code: Any) -> None:
        update_wrapper(self, function)
        self.code = code

    @property
    def _numba_type_(self) -> Any:
        """The type by which numba finds the machine code."""
        return self.code._numba_type_

    def __call__(self, *args: Any) -> Any:
        return self.__wrapped__(*args)  # type: ignore[attr-defined]


@cache
def _warn_of_no_cache() -> None:
    warn_caller(
        "neither the folder of seqmodels nor the user's cache folder can be written, so its loops are compiled anew in "
        "each process, which takes seconds; set the environment variable NUMBA_CACHE_DIR to a folder that can"
    )


def warn_if_slow(name: str, n_steps: int) -> None:
    """Warn that a model will be slow if numba is missing and it reads more than ``STEPS_IN_PLAIN_PYTHON`` steps.

    Args:
        name: name of the model or method, for the message.
        n_steps: number of steps that it will read.
    """
    if not is_compiling() and n_steps > STEPS_IN_PLAIN_PYTHON:
        warn_caller(
            f"{name} reads {n_steps:,} steps in plain Python, which is slow; install numba (pip install "
            "numba) for the same figures, faster",
        )
