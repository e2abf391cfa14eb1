"""``load``: a fitted model, classifier or anomaly detector from the file that its ``save`` wrote."""

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
from seqmodels.model.fitting import check_random_state
from seqmodels.neural import MaskedTransformer
from seqmodels.observations import Observation
from seqmodels.sequences.measure import Measure
from seqmodels.training import callbacks
from seqmodels.wrappers import adapt
from seqmodels.wrappers.classification import GenerativeClassifier

# A class is known to ``load`` by being a public name of one of these, and in no other way.
PACKAGES = (adapt, counts, data, encodings, hmm, linear_gaussian, neural, observations, training, wrappers)


def _public_classes() -> dict[str, type]:
    """Return the package's public classes by name, except callbacks, which files do not contain."""
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

    Its class is that of the saved object: a ``SequenceModel``, ``MaskedTransformer``, ``GenerativeClassifier`` or
    ``Anomalies``. Parameters are the saved ones to the last bit. Log-probabilities agree with those of the saved model
    up to rounding, 1e-12 relative in float64 and 1e-5 in float32, because on some processors the last bits of a matrix
    product depend on where in memory an array lies (with ``MKL_CBWR=COMPATIBLE`` in the environment torch's do not).

    Files from strangers are safe to load: they cannot run code, take much more memory than they have bytes, or set
    where the next ``fit`` writes: ``checkpoint``, ``resume_from`` and ``callbacks`` have their defaults after loading.

    Args:
        path: the file.
        classes: your own classes of which the saved model is made: a model, an observation, an encoding, an optimizer,
            ... A file refers to them by name, and only these and the package's own classes are accepted.

    Raises:
        ValueError: the file is not a saved model, is damaged, was written by a newer version, refers to an unknown
            class, or has parameters that no fit could have found.
    """
    content = storage.read(path)
    return restored(content, path, classes)


def restored(content: dict[str, Any], path: str | os.PathLike[str], classes: Iterable[type] = ()) -> Any:
    """Return the fitted object from the content of a file that ``save`` wrote.

    Args:
        content: arrays and JSON values by name, as ``storage.read`` returns them.
        path: the file, for error messages.
        classes: the user's own classes of which the object may be made.

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
    """Return a context that turns errors caused by malformed content into ``ValueError`` with the name of the file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path} cannot be loaded: {error}") from error
    except MALFORMED as error:
        raise ValueError(
            f"{path} is not a saved model: {type(error).__name__} in its content: {error}"[:500]
        ) from error


def restored_model(content: dict[str, Any], known: Mapping[str, type]) -> Any:
    """Return the fitted model or classifier from the content of a file.

    That the content is complete and its parts have the right types is checked before anything is built.

    Args:
        content: arrays and JSON values by name.
        known: the classes of which the model may be made, by name.

    Raises:
        ValueError: if a part of the content is malformed; the message names the part.
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
    _check_device_dtype_and_seed(model)
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


def _check_device_dtype_and_seed(model: SequenceModel | MaskedTransformer) -> None:
    """Raise ``ValueError`` if a model cannot compute with its device, dtype or seed."""
    check_device(model.device)
    check_random_state(model.random_state)
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
    """Raise ``ValueError`` if a fitted member of a model has another class than the unfitted one in its parameters.

    ``name`` is the name, or index, of the member among the model's parameters.
    """
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
    """Raise ``ValueError`` if a loaded model's observation or measure does not fit the data that its encoding reads."""
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
    """Raise ``ValueError`` unless the history is columns of numbers of one length and the fit's seconds are a
    number.
    """
    columns = list(content["history"].values())
    if not all(isinstance(column, list) and all(type(x) in (int, float) for x in column) for column in columns):
        raise ValueError("the history should be columns of numbers")
    if len({len(column) for column in columns}) > 1:
        raise ValueError("the columns of the history should be equally long")
    if type(content["fit_seconds"]) not in (int, float):  # a boolean is an int
        raise ValueError("converged and fit_seconds should be a boolean and a number")
