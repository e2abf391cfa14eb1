"""Saved models in which one value of the JSON is another, with hashes that are right: each is refused by name.

What stands in a file is what a model was, so a value of another type, or one that the rest of the file does not go
with, is no model: ``load`` raises a ``ValueError`` that says the file, and where in it. A value that can be, such as
another seed, gives a model that scores, or refuses to in words.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from seqmodels.common import storage
from seqmodels.loading import restored
from tests.faults.promise import Promise, main
from tests.fixtures.make import figures

FOLDERS = [Path(__file__).parents[1] / "fixtures" / name for name in ("0.1.0", "next")]
OTHERS: tuple[Any, ...] = ("x", -1, 7, 1.5, float("nan"), float("inf"), None, True, [], ["x"], {}, {"class": "HMM"})
# What older versions wrote that says nothing of the model: the history of its fit, and where its checkpoints went.
SAYS_NOTHING = ("history", "fit_seconds")


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values but arrays, dictionaries and lists among them."""
    if place and not isinstance(value, np.ndarray):
        yield place
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value[:3]):
            if key not in SAYS_NOTHING:
                yield from leaves(inner, (*place, key))


def altered(content: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with another value in one place."""
    result = copy.deepcopy(content)
    inner = result
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return result


def outcome(content: dict[str, Any], path: Path, X: Any, y: Any) -> str:
    """ "" for a model or a refusal in words that names the file; else what came."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = restored(content, path)
        except ValueError as error:
            text = str(error)
            if "in its content" in text:
                return f"refused in foreign words: {text[len(str(path)) :][:150]}"
            return "" if str(path) in text else f"the file is not named: {text[:150]}"
        except Exception as error:
            return f"load: {type(error).__name__}: {error}"[:150]
        try:
            figures(model, X, y)
        except ValueError as error:
            return "" if len(str(error).split()) >= 4 else f"score: {error!r}"
        except Exception as error:
            return f"score: {type(error).__name__}: {error}"[:150]
    return ""


def items(plain: list[Any] | None) -> list[Any] | None:
    return None if plain is None else [item if isinstance(item, str) else np.array(item) for item in plain]


def sweep(every: int = 1, chosen: Callable[[str], bool] = lambda name: True) -> Iterator[tuple[str, str]]:
    """What was altered, and what came of it; one in so many."""
    number = 0
    for folder in FOLDERS:
        expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        for name, then in expected["models"].items():
            if not chosen(name):
                continue
            path, data = folder / f"{name}.safetensors", expected["data"][then["data"]]
            content, X, y = storage.read(path), items(data["X"]), items(data["y"])
            for place in leaves(content):
                for value in OTHERS:
                    number += 1
                    if number % every == 0:
                        what = f"{name}: {'/'.join(map(str, place))} = {value!r}"
                        yield what, outcome(altered(content, place, value), path, X, y)


def measure(quick: bool) -> list[Promise]:
    """All of them, or one in 97."""
    found = list(sweep(97 if quick else 1))
    wrong = [f"{what}: {came}" for what, came in found if came]
    print("\n".join(wrong))
    return [
        Promise(
            "saved models of which one value was altered, with right hashes",
            "a model that scores, or a ValueError in words that names the file",
            f"{len(found) - len(wrong)} of {len(found)}",
            not wrong,
        )
    ]


if __name__ == "__main__":
    main(measure)
