"""Docstrings of all public names: what ``Args`` describes are the arguments that there are, and every one is named."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from seqmodels.neural.architecture import Architecture
from seqmodels.neural.training_options import TrainingOptions
from seqmodels.neural.transformer.config import LayerOptions, TransformerArguments
from seqmodels.training import Resumable
from tests.pages import ROOT

ARGS = re.compile(r"^Args:\n((?:    .*\n|\n)*)", re.MULTILINE)
NAMES = re.compile(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*):", re.MULTILINE)
NOT_DESCRIBED = {"X", "y", "self", "cls", "args", "kwargs"}  # data are described once, by `SequenceModel.fit`
# Arguments that many classes take, and whose description stands with these.
SHARED = (TrainingOptions, TransformerArguments, LayerOptions, Architecture, Resumable)

PUBLIC = sorted(
    name
    for page in (ROOT / "docs/reference").glob("*.md")
    for name in re.findall(r"^::: (seqmodels\.[\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
)


def resolve(name: str) -> Any:
    """The object that a full name means: modules first, then what is in them."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
            for part in parts[n:]:
                found = getattr(found, part)
        except (ImportError, AttributeError):
            continue
        return found
    raise AssertionError(name)


def described(doc: str) -> set[str]:
    """The arguments of a docstring's section ``Args``."""
    section = ARGS.search(inspect.cleandoc(doc) + "\n")
    lines = NAMES.findall(section[1]) if section else []
    return {name.lstrip("*") for line in lines for name in line.split(", ")}


def by_class(cls: type) -> set[str]:
    """What a class describes of its arguments, or a base of it."""
    return {name for base in cls.__mro__ for name in described(base.__dict__.get("__doc__") or "")}


def named(doc: str) -> set[str]:
    """Arguments that the text names: ``n``, or ``n=5``."""
    return set(re.findall(r"``(\w+)(?:=[^`]*)?``", doc))


def callables(name: str) -> Iterator[tuple[str, Callable[..., Any], set[str], set[str]]]:
    """Full name, the callable, what its own ``Args`` describes, and what may be described elsewhere."""
    found = resolve(name)
    if inspect.isclass(found):
        shared = {argument for cls in SHARED for argument in by_class(cls)}
        yield name, found, described(found.__doc__ or ""), by_class(found) | shared
        for attribute, method in vars(found).items():
            function = getattr(method, "__func__", method)
            if not attribute.startswith("_") and inspect.isfunction(function):
                overridden = [getattr(base, attribute, None) for base in found.__mro__[1:]]
                elsewhere = {name for each in overridden for name in described(getattr(each, "__doc__", None) or "")}
                yield f"{name}.{attribute}", function, described(function.__doc__ or ""), elsewhere
    elif callable(found):
        yield name, found, described(found.__doc__ or ""), set()


@pytest.mark.parametrize("name", PUBLIC)
def test_args_are_the_arguments(name: str) -> None:
    for full, function, own, elsewhere in callables(name):
        if not own:
            continue
        parameters = inspect.signature(function).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        fields = set(getattr(function, "__annotations__", {})) if inspect.isclass(function) else set()
        wrong = own - set(parameters) - fields
        assert takes_any or not wrong, f"{full} describes {sorted(wrong)}, which it does not take"
        unnamed = set(parameters) - own - elsewhere - named(function.__doc__ or "") - NOT_DESCRIBED
        assert not unnamed, f"{full} says nothing of {sorted(unnamed)}"
