"""Which cases of a test the quick tier has: ``tests.conftest.mark_slow``."""

from __future__ import annotations

import pytest

CONFTEST = """
import pytest
from tests.conftest import mark_slow

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    mark_slow(items)
"""
MODULE = """
import pytest

@pytest.mark.parametrize("x", "abc")
@pytest.mark.parametrize("n", [1, 2])
def test_two_axes(x, n): ...

@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("x", "abc")
@pytest.mark.parametrize("n", [1, 2])
def test_limited(x, n): ...

@pytest.mark.parametrize(("x", "n"), [("a", 1), ("b", 1), ("c", 2)])
def test_one_axis(x, n): ...

def test_plain(): ...

@pytest.mark.slow
def test_measured(): ...
"""


def collected(pytester: pytest.Pytester, expression: str) -> list[str]:
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\nmarkers =\n    slow\n    quick_cases(n)\naddopts = --strict-markers")
    result = pytester.inline_run("--collect-only", "-q", "-p", "no:xdist", "-m", expression)
    finished = result.getcalls("pytest_collection_finish")[0]
    return [item.nodeid.partition("::")[2] for item in finished.session.items]


def test_the_quick_tier_is_a_diagonal_in_which_each_value_stands_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_cases=MODULE)
    quick = collected(pytester, "not slow")
    assert quick == [
        *("test_two_axes[1-a]", "test_two_axes[1-c]", "test_two_axes[2-b]", "test_limited[1-a]"),
        *("test_one_axis[a-1]", "test_one_axis[b-1]", "test_one_axis[c-2]", "test_plain"),
    ]
    slow = collected(pytester, "slow")
    assert len(slow) == 3 + 5 + 1
    assert not set(quick) & set(slow)


def test_tests_of_scripts_are_slow(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("experiments")
    (folder / "test_a_script.py").write_text("def test_it(): ...\n", encoding="utf-8")
    assert collected(pytester, "not slow") == []
    assert collected(pytester, "slow") == ["test_it"]
