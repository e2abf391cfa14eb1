"""``compiled``: with and without reference counts the same figures."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqmodels
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


@compiled(inner=True)
def halved(x: np.ndarray) -> float:
    return float(x[0] / 2)


@compiled
def half_of_first(x: np.ndarray) -> float:
    return halved(x)


def test_an_inner_function_is_called_by_compiled_ones_and_runs_as_written_when_python_calls_it() -> None:
    x = np.array([3.0, 4.0])
    assert half_of_first(x) == halved(x) == 1.5  # in this order: numba has code of it for these types by then
    assert halved.__name__ == "halved"


def decorator(function: ast.FunctionDef) -> dict[str, Any] | None:
    """The arguments that a compiled function's decorator is given; None of one that is not compiled."""
    for each in function.decorator_list:
        called = each.func if isinstance(each, ast.Call) else each
        if isinstance(called, ast.Name) and called.id == "compiled":
            return {k.arg or "": k.value for k in each.keywords} if isinstance(each, ast.Call) else {}
    return None


def inner_functions(tree: ast.Module) -> set[str]:
    """What a module defines with ``inner=True``, and other names that it gives it."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    names = {each.name for each in functions if "inner" in (decorator(each) or {})}
    for node in tree.body:
        if isinstance(node, ast.Assign) and names & {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}:
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def test_python_code_calls_no_inner_function() -> None:
    """It would run a hundred times as slowly, and give the same figures."""
    root = Path(seqmodels.__file__).parent
    texts = {
        ".".join(path.relative_to(root.parent).with_suffix("").parts): path.read_text() for path in root.rglob("*.py")
    }
    inner = {module: inner_functions(ast.parse(text)) for module, text in texts.items() if "inner=True" in text}
    assert len(inner) > 10
    names_of_modules = "|".join(module.split(".")[-1] for module in inner)
    named = re.compile(rf"^ *(from|import) .*\b({names_of_modules})\b", re.MULTILINE)
    trees = {module: ast.parse(text) for module, text in texts.items() if module in inner or named.search(text)}
    called = set()
    for module, tree in trees.items():
        imports = [(n.module, a) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names]
        names = {a.asname or a.name for source, a in imports if a.name in inner.get(source or "", ())}
        names |= inner.get(module, set())
        modules = {a.asname or a.name: inner.get(f"{source}.{a.name}", set()) for source, a in imports}
        for node in tree.body:
            if isinstance(node, ast.Assign) or (isinstance(node, ast.FunctionDef) and decorator(node) is not None):
                continue
            for each in ast.walk(node):
                if isinstance(each, ast.Name) and each.id in names:
                    called.add(f"{module}:{each.lineno} {each.id}")
                if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
                    if each.attr in modules.get(each.value.id, set()):
                        called.add(f"{module}:{each.lineno} {each.attr}")
    assert not called
