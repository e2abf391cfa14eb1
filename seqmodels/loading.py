"""``load``: what ``save`` wrote, a model, a classifier or anomalies with their threshold: only the file knows."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from seqmodels import counts, data, encodings, hmm, linear_gaussian, neural, observations, training, wrappers
from seqmodels.common import storage
from seqmodels.common.display import a_or_an
from seqmodels.common.parameters import Configurable, check_argument, checked
from seqmodels.common.storage import MALFORMED, build_part, check_parts, class_of_part, part, part_of
from seqmodels.encodings import Encoding
from seqmodels.encodings.precision import DTYPES, check_device
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.model import SequenceModel
from seqmodels.neural import MaskedTransformer
from seqmodels.observations import Observation
from seqmodels.sequences.measure import Measure
from seqmodels.training import callbacks
from seqmodels.wrappers import adapt
from seqmodels.wrappers.classification import GenerativeClassifier

# A class is known to ``load`` by being a public name of one of these, and in no other way.
PACKAGES = (adapt, counts, data, encodings, hmm, linear_gaussian, neural, observations, training, wrappers)


def _public_classes() -> dict[str, type]:
    """Return the public classes by name, without callbacks, which no file keeps."""
    public = [getattr(package, name) for package in PACKAGES for name in package.__all__]
    return {thing.__name__: thing for thing in public if _is_class(thing) and thing.__module__ != callbacks.__name__}


def _is_class(thing: Any) -> bool:
    return isinstance(thing, type) and thing.__module__.startswith("seqmodels.")


PUBLIC = _public_classes()
CLASSES: dict[str, type[Configurable]] = {
    name: cls for name, cls in PUBLIC.items() if issubclass(cls, Configurable) and not inspect.isabstract(cls)
}
MODELS = tuple(cls for cls in CLASSES.values() if issubclass(cls, SequenceModel | MaskedTransformer))
# What the content of a model has beside its description, with the types; where it is made of no others, no members.
PARTS_OF_ALL: dict[str, type | tuple[type, ...]] = {
    "encoding": dict,
    "observation": dict,
    "history": dict,
    "converged": bool,
    "fit_seconds": (int, float),
    "state": dict,
}
PARTS_OF_SEQUENCE_MODELS = {**PARTS_OF_ALL, "measure": dict, "members": dict}


@checked
def load(path: str | os.PathLike[str], *, classes: Iterable[type] = ()) -> Any:
    """Return the fitted model that ``save`` wrote, by this version or an older one.

    Its parameters are those that were saved, to the last bit, and its figures those of the saved model to the rounding
    of products: 1e-12 of them in float64 and 1e-5 in float32. On some processors a product depends in its last bits on
    where in memory an array lies (``MKL_CBWR=COMPATIBLE`` in the environment ends that of torch's).

    A ``SequenceModel``, or a ``MaskedTransformer``, a ``GenerativeClassifier`` or ``Anomalies``, which are none: only
    the file knows. Files from strangers may be loaded: nothing in one can run code, take much more memory than it has
    bytes, or say where the next ``fit`` writes; ``checkpoint``, ``resume_from`` and ``callbacks`` are at their
    defaults.

    Args:
        path: of the file.
        classes: classes of one's own that the file holds: a model, an observation, an encoding, an optimizer, ... A
            file names them; they are found here and nowhere else.

    Raises:
        ValueError: another file, a damaged one, one of a newer version, one that holds a class which is not known, or
            one whose numbers no fit could have found.
    """
    content = storage.read(path)
    return restored(content, path, classes)


def restored(content: dict[str, Any], path: str | os.PathLike[str], classes: Iterable[type] = ()) -> Any:
    """Return the object whose content was read from a file.

    Raises:
        ValueError: if the content is malformed; the message names the file.
    """
    known = {**PUBLIC, **storage.given_classes(classes)}
    with errors_of(path):
        if part_of(part_of(content, "model"), "class", str) != "Anomalies":
            return restored_model(content, known)
        detector, fitted = build_part(content, "model", known), part_of(content, "fitted")
        return detector._load(content, restored_model(fitted, known))


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
    """The model of this content, of classes that are known by name; ``ValueError``, naming the part, if malformed.

    All parts that its class has are there, and of their types, before anything of it is built.
    """
    cls = class_of_part(content, "model", known)
    if issubclass(cls, GenerativeClassifier):
        return _restored_classifier(content, known)
    if not issubclass(cls, SequenceModel | MaskedTransformer):
        raise ValueError(f"the file holds {a_or_an(cls)}, which is no model")
    is_sequence_model = issubclass(cls, SequenceModel)
    content = {"members": {}, **content}  # earlier files have none
    check_parts(content, PARTS_OF_SEQUENCE_MODELS if is_sequence_model else PARTS_OF_ALL)
    has_sources = is_sequence_model and content.get("source_encoding") is not None
    described = ["model", "encoding", "observation", *(["source_encoding"] if has_sources else [])]
    model, encoding, observation, *sources = (build_part(content, name, known) for name in described)
    check_parts(content["encoding"], {"state": dict})
    _check_precision(model)
    _check_kinds((Encoding, encoding), (Observation, observation), *((Encoding, each) for each in sources))
    _check_fit(content)
    if (observation.emits == "vectors") != (encoding.emits == "vectors"):
        raise ValueError(
            f"the observation {observation!r} emits {observation.emits}, but {encoding!r} makes {encoding.emits}"
        )
    if not isinstance(model, SequenceModel):
        with part("state"):
            return model._load(content, encoding, observation)
    _check_measure(content["measure"])
    members = _members(content["members"], known, "members")
    for name, member in members.items():
        _check_kinds((SequenceModel, member))
        _check_class(member, model, name)
    with part("state"):
        model._load(content, encoding, observation, sources[0] if sources else None, members)
    _check_read(model)
    return model


def _restored_classifier(content: dict[str, Any], known: Mapping[str, type]) -> Any:
    classifier, contents = build_part(content, "model", known), part_of(content, "models")
    models = list(_members(contents, known, "models").values())
    features = build_part(content, "features", known) if "features" in content else None
    with part("classes, priors or temperature"):
        return classifier._load(content, models, features)


def _check_precision(model: SequenceModel | MaskedTransformer) -> None:
    """Raise ``ValueError`` for a device or a dtype that cannot be."""
    check_device(model.device)
    dtypes = model._dtypes if isinstance(model, SequenceModel) else tuple(DTYPES)
    if model.dtype not in dtypes:
        raise ValueError(f"its dtype is {model.dtype!r}; there are {', '.join(map(repr, dtypes))}")


def _members(contents: Mapping[str, Any], known: Mapping[str, type], name: str) -> dict[str, Any]:
    members = {}
    for key, content in contents.items():
        with part(f"{name}/{key}"):
            members[key] = restored_model(content, known)
    return members


def _check_class(member: SequenceModel, model: SequenceModel, name: str) -> None:
    """Raise ``ValueError`` for a fitted member that is not of the class of the model that it was cloned from."""
    params = model.get_params(deep=False)
    several = params.get("models", [])
    unfitted = several[int(name)] if name.isdigit() and int(name) < len(several) else params.get(name)
    if isinstance(unfitted, SequenceModel) and type(unfitted) is not type(member):
        raise ValueError(
            f"its member {name!r} is {a_or_an(type(member))}, but the {type(model).__name__} is made of "
            f"{a_or_an(type(unfitted))} there"
        )


def _check_measure(measure: dict[str, Any]) -> None:
    for name, value in measure.items():
        check_argument(Measure, name, value)
    with part("measure"):
        Measure(**measure)


def _check_read(model: SequenceModel) -> None:
    """Raise ``ValueError`` for an observation that cannot be, and for a measure of other data than the model reads."""
    model.observation_.check(model.encoding_.size)
    said = model.measure_
    setting = Setting.from_fitted(model.encoding_, model.observation_, said.length, said.conditional)
    if repr(setting.observation) != repr(model.observation_):  # of which the units of the encoding are a part
        raise ValueError(f"its observation is {model.observation_!r}, but its encoding has other units")
    for name in ("space", "unit"):
        expected, stated = getattr(setting.measure, name), getattr(said, name)
        if expected != stated:
            raise ValueError(f"its measure has the {name} {stated!r}, but the model reads what has {expected!r}")


def _check_kinds(*things: tuple[type, Any]) -> None:
    for kind, thing in things:
        if not isinstance(thing, kind):
            raise ValueError(f"the file holds {thing!r:.100} where it should hold {a_or_an(kind.__name__.lower())}")


def _check_fit(content: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` unless the history has columns of numbers, and the seconds of the fit are a number."""
    columns = list(content["history"].values())
    if not all(isinstance(column, list) and all(type(x) in (int, float) for x in column) for column in columns):
        raise ValueError("the history should be columns of numbers")
    if len({len(column) for column in columns}) > 1:
        raise ValueError("the columns of the history should be equally long")
    if type(content["fit_seconds"]) not in (int, float):  # a boolean is an int
        raise ValueError("converged and fit_seconds should be a boolean and a number")
