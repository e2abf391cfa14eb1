"""``compiled``: with and without reference counts the same figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seqmodels.common.compiled import _warn_of_no_cache, compiled, is_compiling


def total_of_tails(x: np.ndarray) -> float:
    result, tail = 0.0, x
    while len(tail) > 0:
        result += tail[0]
        tail = tail[1:]
    return result


def test_without_reference_counts_the_result_is_the_same() -> None:
    x = np.arange(10.0)
    assert compiled(allocates=False)(total_of_tails)(x) == compiled(total_of_tails)(x) == 45.0


@pytest.mark.skipif(not is_compiling(), reason="numba is not installed")
@pytest.mark.parametrize("allocates", [True, False])
def test_references_are_counted_only_where_arrays_may_be_made(allocates: bool) -> None:
    import numba

    function: Any = compiled(allocates=allocates)(total_of_tails)
    options = {name: value for name, value in function.targetoptions.items() if name != "nopython"}
    anew = numba.njit(**options)(total_of_tails)  # code that was kept in a file cannot be looked at
    anew(np.arange(3.0))
    (code,) = anew.inspect_llvm().values()
    assert ("@NRT_incref(" in code or "@NRT_decref(" in code) == allocates


@pytest.mark.skipif(not is_compiling(), reason="numba is not installed")
def test_where_no_code_can_be_kept_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    njit = numba.njit

    def refuses_to_keep(*, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(numba, "njit", refuses_to_keep)
    _warn_of_no_cache.cache_clear()
    with pytest.warns(UserWarning, match="NUMBA_CACHE_DIR"):
        first = compiled(total_of_tails)
    assert first(np.arange(10.0)) == 45.0
    assert compiled(total_of_tails)(np.arange(10.0)) == 45.0
