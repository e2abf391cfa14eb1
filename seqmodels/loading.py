"""A model from the content of its file, of whichever class it was; ``saved_files.load`` reads the file."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from seqmodels import (
    adapt,
    cached,
    classification,
    context_mixing,
    context_tree,
    data,
    dynamic,
    encodings,
    hmm,
    mixture,
    neural,
    ngram,
    observations,
    offsets,
    online_em,
    ppm,
    storage,
    training,
)
from seqmodels.classification import GenerativeClassifier
from seqmodels.encodings import Encoding
from seqmodels.measure import Measure
from seqmodels.model import SequenceModel
from seqmodels.neural import MaskedTransformer
from seqmodels.observations import Observation
from seqmodels.parameters import Configurable, check_argument
from seqmodels.training import callbacks

# A class is known to ``load`` by being a public name of one of these, and in no other way.
PACKAGES = (
    adapt,
    cached,
    classification,
    context_mixing,
    context_tree,
    data,
    dynamic,
    encodings,
    hmm,
    mixture,
    neural,
    ngram,
    observations,
    offsets,
    online_em,
    ppm,
    training,
)

# What Python raises where content is not of the kind that a saved model has: a list for a dictionary, no such name, ...
MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError)


def _public_classes() -> dict[str, type]:
    """By name; but for callbacks, which no file keeps."""
    public = [getattr(package, name) for package in PACKAGES for name in package.__all__]
    return {thing.__name__: thing for thing in public if _is_class(thing) and thing.__module__ != callbacks.__name__}


def _is_class(thing: Any) -> bool:
    return isinstance(thing, type) and thing.__module__.startswith("seqmodels.")


PUBLIC = _public_classes()
CLASSES: dict[str, type[Configurable]] = {
    name: cls for name, cls in PUBLIC.items() if issubclass(cls, Configurable) and not inspect.isabstract(cls)
}
MODELS = tuple(cls for cls in CLASSES.values() if issubclass(cls, SequenceModel | MaskedTransformer))


def restored(content: dict[str, Any], path: str | os.PathLike[str], classes: Iterable[type] = ()) -> Any:
    """The model of what ``storage.read`` found in a file; ``ValueError``, naming it, where there is none."""
    known = {**PUBLIC, **storage.given_classes(classes)}
    with errors_of(path):
        return restored_model(content, known)


@contextmanager
def errors_of(path: str | os.PathLike[str]) -> Iterator[None]:
    """Context in which what is raised for malformed content is a ``ValueError`` that names the file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path} cannot be loaded: {error}") from error
    except MALFORMED as error:
        raise ValueError(
            f"{path} is not a saved model: {type(error).__name__} in its content: {error}"[:500]
        ) from error


def restored_model(content: dict[str, Any], known: Mapping[str, type]) -> Any:
    """The model of this content, of classes that are known by name; raises ``ValueError`` or any of ``MALFORMED``."""
    model = storage.build(content["model"], known)
    if isinstance(model, GenerativeClassifier):
        return model._load(content, [restored_model(part, known) for part in content["models"].values()])
    if not isinstance(model, SequenceModel | MaskedTransformer):
        raise ValueError(f"the file holds a {type(model).__name__}, which is no model")
    encoding = _of(Encoding, storage.build(content["encoding"], known))
    observation = _of(Observation, storage.build(content["observation"], known))
    _check_fit(content)
    if (observation.emits == "vectors") != (encoding.reads == "vectors"):
        raise ValueError(
            f"the observation {observation!r} emits {observation.emits}, but {encoding!r} reads {encoding.reads}"
        )
    if not isinstance(model, SequenceModel):
        return model._load(content, encoding, observation)
    for name, value in content["measure"].items():
        check_argument(Measure, name, value)
    sources = content.get("source_encoding")
    sources = None if sources is None else _of(Encoding, storage.build(sources, known))
    members = {
        name: _of(SequenceModel, restored_model(part, known)) for name, part in content.get("members", {}).items()
    }
    return model._load(content, encoding, observation, sources, members)


def _of(kind: type, thing: Any) -> Any:
    if not isinstance(thing, kind):
        raise ValueError(f"the file holds {thing!r:.100} where it should hold an {kind.__name__.lower()}")
    return thing


def _check_fit(content: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless what is said of the fit is of the right types."""
    history = content["history"]
    columns: list[Any] = list(history.values()) if isinstance(history, dict) else [None]
    if not all(isinstance(column, list) and all(type(x) in (int, float) for x in column) for column in columns):
        raise ValueError("the history should be columns of numbers")
    if len({len(column) for column in columns}) > 1:
        raise ValueError("the columns of the history should be equally long")
    if type(content["converged"]) is not bool or type(content["fit_seconds"]) not in (int, float):
        raise ValueError("converged and fit_seconds should be a boolean and a number")
