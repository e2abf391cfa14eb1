"""Hyperparameters as in scikit-learn: a constructor stores them untouched, and they are read and set by name.

A parameter of a nested object is written ``outer__inner``. Values from a file or a command line are checked against the
annotations of the constructor's arguments.
"""

from __future__ import annotations

import builtins
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from functools import cache, wraps
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from seqmodels.common.attributes import readable_names
from seqmodels.common.other_names import meant_names, suggestion, unknown_argument

P = ParamSpec("P")
R = TypeVar("R")
LISTS = (list, tuple, np.ndarray)
LARGEST_EXACT = 2**53  # the largest integer up to which float64 holds every integer exactly
SMALL = 256  # a size up to this may exceed the data, because it costs little
MAX_SHOWN = 200  # characters of a value in an error


@dataclass(frozen=True)
class Range:
    """A range of finite numbers, to be written in an annotation: ``Annotated[int, Range(1)]`` is an integer from 1 on.

    Args:
        low: the lower limit.
        high: the upper limit, which is included.
        may_be_low: if False, the lower limit itself is excluded.
    """

    low: float
    high: float = np.inf
    may_be_low: bool = True

    def admits(self, number: Any) -> bool:
        above = self.low <= number if self.may_be_low else self.low < number
        return bool(above and number <= self.high and number < np.inf)

    def __str__(self) -> str:
        return f"{'from' if self.may_be_low else 'above'} {self.low:g} {self._to_high()}"

    def _to_high(self) -> str:
        if self.high < np.inf:
            return f"to {self.high:g}" if self.may_be_low else f"and at most {self.high:g}"
        return "on" if self.may_be_low else "and finite"


NotNegative = Annotated[int, Range(0)]
Seed = Annotated[int, Range(0, 2**63 - 1)]  # torch takes no larger seed
PositiveInt = Annotated[int, Range(1)]
PositiveFloat = Annotated[float, Range(0, may_be_low=False)]
NotNegativeFloat = Annotated[float, Range(0)]
LARGEST_FLOOR = 1e6  # the largest floor of a variance or a scale, in units in which all data have about 1
Floor = Annotated[float, Range(0, LARGEST_FLOOR, may_be_low=False)]


class _OwnArgumentsFirst:
    """A descriptor that returns the signature of a class's constructor, with keywords in ``_listed_last`` at the end.

    A dataclass lists the fields of its bases first, so that the arguments that all models share would hide a model's
    own from a reader of ``help``.
    """

    def __get__(self, thing: object, cls: type[Configurable]) -> inspect.Signature | None:
        if thing is not None:
            return None  # because an object that can be called has a signature of its own
        # Without this check, a class that has no constructor of its own would seem to take any argument.
        has_own = cls.__init__ is not object.__init__
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:] if has_own else []
        last = {name: i for i, name in enumerate(cls._listed_last)}
        return inspect.Signature(sorted(parameters, key=lambda p: (p.kind, _place(p, last))))


def _place(parameter: inspect.Parameter, last: Mapping[str, int]) -> int:
    return last.get(parameter.name, -1) if parameter.kind is parameter.KEYWORD_ONLY else -1


class Configurable:
    """The base class of objects that the arguments of their constructor describe (scikit-learn's convention).

    A subclass takes its hyperparameters in ``__init__`` and stores each under its own name. Models, observations and
    encodings are all configurable, so ``observation__n_components`` is a parameter of a model.
    """

    _checks_itself: ClassVar[bool] = False  # True if it refuses wrong arguments itself, even within another object
    _renamed: ClassVar[Mapping[str, str]] = {}  # names that hyperparameters have in older files -> names they have now
    # For each hyperparameter, words that only files of older versions have, and the value that takes the place of each.
    _former_values: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    # Values of hyperparameters that files of older versions lack, where the default is another now.
    _lacked: ClassVar[Mapping[str, Any]] = {}
    # Arguments that only older versions have, and the value in their files at which each has no effect.
    _had: ClassVar[Mapping[str, Any]] = {}
    _listed_last: ClassVar[tuple[str, ...]] = ()  # keywords that the signature lists after all others, in this order
    # What to pass, in words, in place of another library's argument that does not correspond to one argument here.
    _in_other_words: ClassVar[Mapping[str, str]] = {}

    # The end of an error's sentence that says what to pass in place of code, which a file cannot hold.
    _in_place_of_code: ClassVar[str] = (
        "pass a class in its place, which makes it when called without arguments, and give that class to "
        "load(path, classes=[...])"
    )

    # Arguments that may not exceed the number of steps, of all sequences ("steps") or of the longest one ("longest").
    _bounded_by_data: ClassVar[Mapping[str, str]] = {}
    # Arguments among them that are refused beyond the data even if they are ``SMALL``, because their cost grows fast.
    _costly: ClassVar[frozenset[str]] = frozenset()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Create the object before ``__init__`` runs.

        Raises:
            TypeError: a keyword is not an argument of the constructor; the message suggests what to write.
        """
        keywords = _keywords(cls)  # type: ignore[arg-type]
        for name in kwargs:
            if keywords is not None and name not in keywords:
                instead = cls._in_other_words.get(name) or _in_group(cls, name)
                if instead:
                    raise TypeError(f"{cls.__name__} has no argument {name!r}; pass {instead}")
                meant = "" if suggestion(name, keywords) else _meant_in_group(cls, name)
                if meant:
                    raise TypeError(f"{cls.__name__} has no argument {name!r}; did you mean {meant}?")
                raise unknown_argument(cls.__name__, name, keywords)
        return super().__new__(cls)

    __signature__ = _OwnArgumentsFirst()

    def __dir__(self) -> list[str]:
        """Return the names of attributes that can be read now, without those that exist only in another state."""
        return readable_names(self, super().__dir__())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the hyperparameters (arguments of the constructor) by name.

        Args:
            deep: True for those of nested objects too, as ``outer__inner``.
        """
        names = argument_names(type(self))  # type: ignore[arg-type]
        params: dict[str, Any] = {name: getattr(self, name) for name in names}
        if deep:
            for name, value in list(params.items()):
                for path, nested in _nested(name, value):
                    params.update({f"{path}__{inner}": v for inner, v in nested.get_params().items()})
        return params

    def set_params(self, **params: Any) -> Self:
        """Set hyperparameters (arguments of the constructor) by name and return self.

        Args:
            params: the new values; one of a nested object is written ``outer__inner``.

        Raises:
            ValueError: a name does not exist.
        """
        known = argument_names(type(self))  # type: ignore[arg-type]
        for name, value in params.items():
            outer, _, inner = name.partition("__")
            if outer not in known:
                raise _unknown_parameter(type(self), outer)
            if not inner:
                setattr(self, outer, value)
                continue
            setattr(self, outer, _with(self._value_with(outer, inner.partition("__")[0]), outer, inner, value))
        return self

    def _value_with(self, name: str, inner: str) -> Any:
        """Return the hyperparameter ``name``, a nested object of which one parameter is about to be set.

        Override it in a class in which a hyperparameter may be a word, such as ``"auto"``, that stands for an object
        with parameters.

        Args:
            name: name of the hyperparameter.
            inner: name of the object's parameter that is about to be set.
        """
        return getattr(self, name)

    def clone(self) -> Self:
        """Return an unfitted copy with the same hyperparameters."""
        params = self.get_params(deep=False)
        return type(self)(**{k: _cloned(v) for k, v in params.items()})

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        for field in getattr(self, "__dataclass_fields__", {}).values():
            if field.default_factory is not MISSING:
                defaults[field.name] = field.default_factory()
        params = self.get_params(deep=False).items()
        changed = [f"{name}={in_one_line(value)}" for name, value in params if not _same(value, defaults[name])]
        return f"{type(self).__name__}({', '.join(changed)})"


def in_one_line(value: Any) -> str:
    """Return the ``repr`` of a value in one line; if that is too long and has line breaks, only the name of its class.

    >>> print(in_one_line(np.eye(2)), in_one_line(np.zeros((50, 50))))
    array([[1., 0.], [0., 1.]]) ndarray(...)
    """
    text = repr(value)
    if "\n" not in text:
        return text
    line = " ".join(text.split())
    return line if len(line) <= MAX_SHOWN else f"{type(value).__name__}(...)"


def _cloned(value: Any) -> Any:
    if isinstance(value, Configurable):
        return value.clone()
    return type(value)(map(_cloned, value)) if type(value) in (list, tuple) else value


def _nested(path: str, value: Any) -> Iterator[tuple[str, Configurable]]:
    """Yield each nested ``Configurable`` in a value with its path: ``path`` itself, or ``path__0``, ... in a list."""
    if isinstance(value, Configurable):
        yield path, value
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _nested(f"{path}__{i}", item[0] if type(item) is tuple else item)


def _with(value: Any, name: str, inner: str, new: Any) -> Any:
    """Return a copy of a nested object in which one of its parameters has a new value.

    Args:
        value: the object, or a list of objects.
        name: the hyperparameter that holds it, for the message.
        inner: name of the parameter, as ``0__name`` for an object in a list.
        new: the new value.

    Raises:
        ValueError: the object has no such parameter.
    """
    if isinstance(value, Configurable):
        return value.clone().set_params(**{inner: new})
    number, _, rest = inner.partition("__")
    if not (isinstance(value, list) and number.isdigit() and int(number) < len(value) and rest):
        raise ValueError(f"{name!r} is {value!r}, which has no parameters of its own to set")
    copy = list(value)
    item = copy[int(number)]
    head = item[0] if type(item) is tuple else item
    changed = _with(head, f"{name}__{number}", rest, new)
    copy[int(number)] = (changed, *item[1:]) if type(item) is tuple else changed
    return copy


@contextmanager
def undone_on_failure(thing: Configurable) -> Iterator[None]:
    """Return a context manager that restores the attributes of an object if its block raises an exception.

    The attributes are those that ``thing`` had before the block.
    """
    attributes = dict(vars(thing))
    try:
        yield
    except BaseException:
        thing.__dict__ = attributes
        raise


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and repr(value) == repr(default))


# -- by annotation -----------------------------------------------------------------------------------------


@cache
def argument_names(cls: type) -> tuple[str, ...]:
    """Return the names of the arguments of a class's constructor, in order."""
    return tuple(inspect.signature(cls).parameters)


@cache
def argument_groups(cls: type) -> dict[str, type[Configurable]]:
    """Return the arguments of ``cls`` that are groups of further arguments, by name, each with the class of the group.

    A group is a ``Configurable`` that holds arguments which few users change, such as ``training=``: a field of a
    dataclass whose default factory is the class of the group.
    """
    factories = {name: f.default_factory for name, f in getattr(cls, "__dataclass_fields__", {}).items()}
    return {n: f for n, f in factories.items() if isinstance(f, type) and issubclass(f, Configurable)}


def place_in_group(cls: type, name: str) -> tuple[str, str] | None:
    """Return where an argument of a class stands if it belongs to a group of arguments: the group, and its name there.

    A group is an argument such as ``training=`` that holds further ones. Return None if ``cls`` itself has the
    argument, and if no group has it.

    Args:
        cls: the class.
        name: name of the argument, perhaps a former one.

    >>> from seqmodels import LSTM
    >>> place_in_group(LSTM, "checkpoint"), place_in_group(LSTM, "training_precision"), place_in_group(LSTM, "lr")
    (('training', 'checkpoint'), ('training', 'precision'), None)
    """
    if name in argument_names(cls):
        return None
    for group, of in argument_groups(cls).items():
        inner = of._renamed.get(name, name)
        if inner in argument_names(of):  # type: ignore[arg-type]
            return group, inner
    return None


def refuse_wrong_groups(thing: Configurable) -> None:
    """Check that each argument that is a group of arguments (such as ``training=``) has a value of the group's class.

    Args:
        thing: the object whose arguments are checked.

    Raises:
        ValueError: one has a value of another class.
    """
    for name, of in argument_groups(type(thing)).items():  # type: ignore[arg-type]
        if not isinstance(getattr(thing, name), of):
            raise ValueError(f"{name} is {_shortened(getattr(thing, name))}; pass {in_words(of)}")


def owner_of(cls: type, name: str) -> tuple[type, str]:
    """Return the class that has an argument, ``cls`` or the class of a group of arguments, and its name there.

    A group is an argument such as ``training=`` that holds further ones.

    Args:
        cls: the class.
        name: name of the argument, perhaps a former one.
    """
    place = place_in_group(cls, name)
    return (argument_groups(cls)[place[0]], place[1]) if place else (cls, name)


def had_no_effect(cls: type[Configurable], name: str, value: Any) -> bool:
    """Return True if an argument from a file existed in earlier versions only, and its value had no effect there.

    Args:
        cls: the class.
        name: name of the argument.
        value: its value in the file.
    """
    had = cls._had
    return name not in argument_names(cls) and name in had and bool(had[name] == value)  # type: ignore[arg-type]


def in_groups(cls: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a class with those that belong to a group, such as ``training=``, in that group.

    Files of earlier versions, which had no groups, store all arguments side by side.

    Args:
        cls: the class.
        arguments: values of the arguments by name.
    """
    groups, direct, grouped = argument_groups(cls), dict[str, Any](), dict[str, dict[str, Any]]()
    for name, value in arguments.items():
        place = place_in_group(cls, name)
        if place:
            grouped.setdefault(place[0], {})[place[1]] = value
        else:
            direct[name] = value
    return {**{group: groups[group](**of) for group, of in grouped.items()}, **direct}


def _in_group(cls: type, name: str) -> str:
    """Return code that passes an argument in its group, such as ``training=Training(lr=...)``; "" if none has it.

    Args:
        cls: the class that has the groups.
        name: name of the argument, perhaps ``group__name``.
    """
    outer, _, inner = name.partition("__")
    groups, place = argument_groups(cls), place_in_group(cls, name)
    if outer in groups and inner in argument_names(groups[outer]):  # type: ignore[arg-type]
        place = outer, inner
    return f"{place[0]}={groups[place[0]].__name__}({place[1]}=...)" if place else ""


def _meant_in_group(cls: type, name: str) -> str:
    """Return code that passes the argument of a group whose name is most like a given one; "" if none is alike.

    Args:
        cls: the class that has groups of arguments, such as ``training=``.
        name: the unknown name of an argument.
    """
    for group, of in argument_groups(cls).items():
        meant = meant_names(name, argument_names(of))  # type: ignore[arg-type]
        if meant:
            return f"{group}={of.__name__}({meant[0]}=...)"
    return ""


def _unknown_parameter(cls: type, name: str) -> ValueError:
    place, known = place_in_group(cls, name), argument_names(cls)
    if place:
        return ValueError(f"{cls.__name__} has no parameter {name!r}; set {'__'.join(place)}")
    says = suggestion(name, known) or f"; it has {', '.join(known)}"
    return ValueError(f"{cls.__name__} has no parameter {name!r}{says}")


def made_with(cls: type[R], options: Mapping[str, Any], **implied: Any) -> R:
    """Return an object of a class, made with the options of a caller and with arguments that are already determined.

    Args:
        cls: the class.
        options: arguments that a caller passes, by name.
        implied: arguments that are determined otherwise.

    Raises:
        ValueError: an option contradicts an implied argument; repeating its value is allowed.
    """
    for name in options.keys() & implied.keys():
        if not _same(options[name], implied[name]):
            raise ValueError(
                f"{name} is {_shortened(options[name])}, but the other arguments make it {_shortened(implied[name])}; "
                f"leave {name} out"
            )
    return cls(**{**options, **implied})


@cache
def _keywords(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the names that a function or constructor takes as keywords; None if it takes any keyword."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return tuple(each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY))


@cache
def _required(function: Callable[..., Any]) -> tuple[str, ...]:
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty)


def _lacks(
    function: Callable[..., Any], lacking: Sequence[str], further: Sequence[str], known: Sequence[str]
) -> TypeError:
    """Return the ``TypeError`` for a call of ``function`` without the arguments ``lacking``.

    Args:
        function: a function or class that also takes any keyword.
        lacking: names of required arguments that were not passed.
        further: keywords of the call that are no arguments.
        known: all arguments; if ``further`` look like other libraries' names for them, the message says so.
    """
    other = [f"{name} is called {meant[0]} here" for name in further if (meant := meant_names(name, known))]
    return TypeError("; ".join([f"{function.__qualname__} lacks {', '.join(lacking)}", *(other or ["pass them too"])]))


@cache
def argument_types(cls: type) -> dict[str, Any]:
    """Return the annotations of the arguments of a class's constructor, by name."""
    return {**get_type_hints(cls, include_extras=True), **_types_of_constructor(cls)}


def _types_of_constructor(cls: Any) -> dict[str, Any]:
    """Return the annotations of ``__init__`` by name; an empty dictionary if a dataclass wrote it.

    Annotations of a dataclass's ``__init__`` cannot be resolved, but the annotations of its fields can.
    """
    owner = next(base for base in cls.__mro__ if "__init__" in vars(base))
    return {} if "__dataclass_fields__" in vars(owner) else get_type_hints(owner.__init__, include_extras=True)


def check_argument(cls: type, name: str, value: Any) -> None:
    """Check that the annotation of an argument of a class's constructor admits a value.

    Args:
        cls: the class.
        name: name of the argument.
        value: the value.

    Raises:
        ValueError: it does not, or there is no such argument.
    """
    _check_admitted(cls, name, [as_python(argument_types(cls).get(name, Any), value)])


def checked_argument(cls: type, name: str, value: Any) -> Any:
    """Return a value from a file, after checking that the annotation of an argument of a class's constructor admits it.

    If it does not, return the same number in a type that the annotation admits, because older versions stored 1 where
    True is meant now.

    Args:
        cls: the class.
        name: name of the argument.
        value: the value.

    Raises:
        ValueError: no type fits, or there is no such argument.
    """
    return _check_admitted(cls, name, [value, *_same_number(value)])


def _check_admitted(cls: type, name: str, values: list[Any]) -> Any:
    """Return the first of several values that the annotation of an argument of a class's constructor admits.

    Args:
        cls: the class.
        name: name of the argument.
        values: the values to try.

    Raises:
        ValueError: it admits none, or there is no such argument.
    """
    if name not in argument_names(cls):
        raise _unknown_parameter(cls, name)
    hint = argument_types(cls).get(name, Any)
    for value in values:
        if admits(hint, value):
            return value
    raise ValueError(f"{name} of {cls.__name__} is {_shortened(values[0])}; pass {_instead_of(values[0], hint)}")


@dataclass(frozen=True)
class WrongArgument:
    """An argument whose annotation does not admit its value; ``str`` of it is a message that says what to pass.

    Attributes:
        name: the argument.
        of: the class that has it, if that is nested in the object that was checked; otherwise "".
        value: the value passed.
        hint: the annotation.
    """

    name: str
    of: str
    value: Any
    hint: Any

    def __str__(self) -> str:
        of = f" of {self.of}" if self.of else ""
        return f"{self.name}{of} is {_shortened(self.value)}; pass {_instead_of(self.value, self.hint)}"


def wrong_argument(thing: Configurable) -> WrongArgument | None:
    """Return the first argument of an object whose annotation does not admit its value; None if all are admitted.

    Numbers of NumPy are replaced by Python's, and 0 and 1 by False and True where an argument is a boolean, so that
    other code need not tell them apart. The check includes nested observations, optimisers and the like, but not nested
    models, which check themselves.

    Args:
        thing: the object, whose attributes hold its constructor's arguments.
    """
    return next(_wrong_arguments(thing, ""), None)


def refuse_wrong_arguments(thing: Configurable) -> None:
    """Check that the annotations of an object's arguments admit their values, also in nested objects.

    Raises:
        ValueError: one does not; the message says what to pass.
    """
    wrong = wrong_argument(thing)
    if wrong is not None:
        raise ValueError(str(wrong))


def refuse_beyond_data(thing: Configurable, n_steps: int, longest: int) -> None:
    """Check that no size, such as a number of states, is more than the data can determine.

    Such a size would take very long or all memory. The check includes everything nested in ``thing``.

    Args:
        thing: a model, perhaps with an observation, a topology or other models in it.
        n_steps: number of steps of all sequences.
        longest: number of steps of the longest sequence.

    Raises:
        ValueError: a size is larger than the data, and not small.
    """
    for name, of in thing._bounded_by_data.items():
        value, size = getattr(thing, name), {"steps": n_steps, "longest": longest}[of]
        most = size if name in thing._costly else max(SMALL, size)
        if isinstance(value, int) and value > most:
            data = "the data have" if of == "steps" else "the longest sequence has"
            raise ValueError(
                f"{name} of {type(thing).__name__} is {value:,}, but {data} {size:,} steps; pass at most {most:,}, or "
                "more data"
            )
    for name, value in thing.get_params(deep=False).items():
        for _, nested in _nested(name, value):
            refuse_beyond_data(nested, n_steps, longest)


def check_fields(thing: Any) -> None:
    """Check that the annotations of a dataclass's fields admit their values.

    Numbers of NumPy are replaced by Python's, in a frozen dataclass too.

    Args:
        thing: an instance of the dataclass.

    Raises:
        ValueError: one does not.
    """
    values = {field.name: getattr(thing, field.name) for field in fields(thing) if field.init}
    for name, value in _all_admitted(_known_types(type(thing)), values.items()):  # type: ignore[arg-type]
        if value is not values[name]:
            object.__setattr__(thing, name, value)  # works in a frozen dataclass too


def check_range(thing: Configurable, name: str, low: float, high: float) -> None:
    """Check that an argument of an object is finite and in a range.

    Args:
        thing: the object.
        name: name of the argument.
        low, high: limits, which are included.

    Raises:
        ValueError: it is not.
    """
    value = getattr(thing, name)
    if not Range(low, high).admits(value):
        to_high = "and finite" if high == np.inf else f"and at most {high:g}"
        raise ValueError(f"{name} is {value}; pass a number from {low:g} on, {to_high}")


def _wrong_arguments(thing: Configurable, of: str) -> Iterator[WrongArgument]:
    hints, defaults = _known_types(type(thing)), _checked_defaults(type(thing))  # type: ignore[arg-type]
    for name, given in thing.get_params(deep=False).items():
        if name in defaults and given is defaults[name]:
            continue
        value = as_python(hints.get(name, Any), given)
        if value is not given:
            setattr(thing, name, value)
        if not admits(hints.get(name, Any), _plain(value)):
            yield WrongArgument(name, of, value, hints[name])
        for _, nested in _nested(name, value):
            if not nested._checks_itself:
                yield from _wrong_arguments(nested, type(nested).__name__)


@cache
def _known_types(cls: type) -> dict[str, Any]:
    """Return ``argument_types(cls)``, or an empty dictionary if its annotations contain an unknown name.

    Names are unknown, for example, in the annotations of a class that a function defines.
    """
    try:
        return argument_types(cls)
    except NameError:
        return {}


@cache
def _checked_defaults(cls: type[Configurable]) -> dict[str, Any]:
    """Return the defaults, by name, that need no check: plain values that their annotations admit unchanged."""
    hints, signature = _known_types(cls), inspect.signature(cls)  # type: ignore[arg-type]
    defaults = {name: argument.default for name, argument in signature.parameters.items()}
    return {
        name: value
        for name, value in defaults.items()
        if isinstance(value, str | int | float | None) and as_python(hints.get(name, Any), value) is value
        if admits(hints.get(name, Any), value)
    }


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that checks its arguments against their annotations before it runs; use it as a decorator.

    The new function raises ``ValueError`` for a value that an annotation does not admit.

    >>> @checked
    ... def repeat(path: str | os.PathLike[str], n: PositiveInt = 1) -> None: ...
    >>> repeat(None)
    Traceback (most recent call last):
    ...
    ValueError: path is None; pass a path
    >>> repeat("a", n=0)
    Traceback (most recent call last):
    ...
    ValueError: n is 0; pass an integer from 1 on
    """
    return checked_but()(function)


def checked_but(*others: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that checks a function's arguments against their annotations before it runs, except some.

    Args:
        others: names of the arguments that are not checked, because the function itself checks them.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        names = tuple(inspect.signature(function).parameters)
        keywords = _keywords(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if keywords is not None and name not in keywords:
                    raise unknown_argument(function.__name__, name, [k for k in keywords if k not in ("self", "cls")])
            lacking = [name for name in _required(function)[len(args) :] if name not in kwargs]
            if keywords is None and lacking:
                raise _lacks(function, lacking, [name for name in kwargs if name not in names], names)
            hints = {name: hint for name, hint in _option_types(function).items() if name not in others}
            by_place = [value for _, value in _all_admitted(hints, zip(names, args, strict=False))]
            by_name = dict(_all_admitted(hints, kwargs.items()))
            return function(*by_place, *args[len(by_place) :], **by_name)  # type: ignore[arg-type]

        return call

    return decorated


def check_options(function: Callable[..., Any], **options: Any) -> None:
    """Check that a function's annotations admit the values of some of its arguments.

    Args:
        function: the function.
        options: values of the arguments, by name.

    Raises:
        ValueError: an annotation does not admit its value.

    >>> def repeat(n: int, how: Literal["up", "down"]) -> None:
    ...     check_options(repeat, n=n, how=how)
    >>> repeat(2, "left")
    Traceback (most recent call last):
    ...
    ValueError: how is 'left'; pass "up" or "down"
    """
    for _ in _all_admitted(_option_types(function), options.items()):
        pass


def _all_admitted(hints: Mapping[str, Any], values: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each argument, with the value converted by ``as_python``.

    Args:
        hints: annotations by name; an argument without one is not checked.
        values: names and values.

    Raises:
        ValueError: an annotation does not admit its value.
    """
    for name, given in values:
        value = as_python(hints.get(name, Any), given)
        if name in hints and not admits(hints[name], value):
            raise ValueError(f"{name} is {_shortened(given)}; pass {_instead_of(given, hints[name])}")
        yield name, value


def as_python(hint: Any, value: Any) -> Any:
    """Return a value with NumPy's numbers as Python's, and 0 or 1 as a boolean where only a boolean is admitted.

    Args:
        hint: annotation that the value is for.
        value: the value.

    >>> as_python(bool, 0), as_python(int, np.int64(1)), as_python(bool | int, np.bool_(True))
    (False, 1, True)
    """
    if isinstance(value, np.bool_ | np.integer | np.floating) and not isinstance(value, np.timedelta64):
        value = value.item()
    if type(value) is int and value in (0, 1) and not admits(hint, value) and admits(hint, bool(value)):
        return bool(value)
    return value


@cache
def _option_types(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function's arguments by name, leaving out ``Any``.

    A class that is imported for type checkers only is represented by a stand-in with its name.
    """
    known = _Names(function.__globals__)
    hints = get_type_hints(function, globalns=known, localns=known, include_extras=True)
    return {name: hint for name, hint in hints.items() if hint is not Any}


class _OfName(type):
    """A metaclass of stand-ins for classes that are not imported; they recognise instances by the class's name."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _OfName(name, (), {})

    def __instancecheck__(cls, value: Any) -> bool:
        return any(base.__name__ == cls.__name__ for base in type(value).__mro__)


class _Names(dict[str, Any]):
    """The names of a module for resolving annotations; an unknown name is represented by a stand-in class."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, None) or _OfName(name, (), {})


def _plain(value: Any) -> Any:
    """Return the value, with a NumPy number converted to Python's and a path to text."""
    return os.fspath(value) if isinstance(value, os.PathLike) else _item(value)


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _same_number(value: Any) -> list[bool | int | float]:
    if not isinstance(value, bool | int | float) or not abs(value) <= LARGEST_EXACT:
        return []
    integers = [int(value), bool(value)] if value == int(value) else []
    return [*integers, float(value)]


def _shortened(value: Any) -> str:
    text = in_one_line(value)
    return text if len(text) < MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def admits(hint: Any, value: Any) -> bool:
    """Return True if an annotation admits a value.

    Lists stand for tuples, sequences and arrays, and integers for floats. NaN is not admitted as a number. Items of a
    generator, which can be read only once, are not checked.

    Args:
        hint: the annotation, a type or a construct of ``typing``.
        value: the value.
    """
    if hint is Any:
        return True
    origin, arguments = _parts(hint)
    if origin in (Union, UnionType):
        return any(admits(option, value) for option in arguments)
    if origin is Annotated:
        kind, *limits = arguments
        return admits(kind, value) and all(limit.admits(value) for limit in limits)
    value = _item(value)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in arguments)
    if hint is None or hint is type(None):
        return value is None
    if hint in (int, float):
        is_number = isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
        # NaN does not equal itself. Larger integers are refused because those in NumPy and torch have 64 bits.
        return is_number and value == value and not (isinstance(value, int) and abs(value) >= 2**63)
    kind = origin or hint
    if not isinstance(kind, type):
        return True  # for example a TypeVar, which does not restrict its values
    if getattr(kind, "_is_protocol", False):
        return all(hasattr(value, name) for name in _members(kind))
    if kind is np.ndarray:
        return _is_list(value) or hasattr(value, "__array__")
    if kind in (Iterable, Collection):
        if not isinstance(value, kind) or isinstance(value, str | bytes | Mapping):
            return False
        return not _is_list(value) or _admits_elements(get_args(hint), value)
    if kind is Sequence and get_args(hint) == (Any,) and isinstance(value, str):
        return True  # a text is a sequence of characters
    if kind in LISTS or (kind is not object and issubclass(list, kind)):
        return _is_list(value) and _admits_elements(get_args(hint), value)
    return isinstance(value, kind) or (kind is str and isinstance(value, os.PathLike))


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


@cache
def _members(protocol: type) -> frozenset[str]:
    """Return the names of the public attributes and methods that a ``Protocol`` requires."""
    bases = [base for base in protocol.__mro__ if getattr(base, "_is_protocol", False)]
    names = {name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", {}))}
    return frozenset(name for name in names if not name.startswith("_"))


def _is_list(value: Any) -> bool:
    """Return True for lists, other sequences and one-dimensional arrays, such as an index of pandas; False for text."""
    if isinstance(value, str | bytes):
        return False
    return isinstance(value, (*LISTS, Sequence)) or (hasattr(value, "__array__") and np.ndim(value) == 1)


def _admits_elements(hints: tuple[Any, ...], values: Any) -> bool:
    """Return True if the elements of a list fit the arguments of the list's annotation, such as ``X`` in ``list[X]``.

    Without arguments every element fits. ``tuple[X, Y]`` asks for as many elements as it has arguments.

    Args:
        hints: arguments of the annotation, ``(X,)`` for ``list[X]``.
        values: the list.
    """
    if not hints or hints[0] is Any:
        return True
    elements = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if not isinstance(elements, list) or (hints[0] in (str, int) and set(map(type, elements)) == {hints[0]}):
        return True
    if len(hints) == 1 or hints[-1] is ...:
        return all(admits(hints[0], value) for value in elements)
    return len(hints) == len(elements) and all(map(admits, hints, elements))


def in_words(hint: Any) -> str:
    """Return an annotation in words, for error messages.

    >>> in_words(int | Literal["auto"] | None)
    'an integer, "auto" or none'
    """
    hints = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    options = [word for option in hints for word in _words(option)]
    if "a path" in options:
        options = [word for word in options if word != "a word"]
    options = list(dict.fromkeys(options))
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} or {options[-1]}"


def _instead_of(value: Any, hint: Any) -> str:
    """Return a phrase that says what to pass in place of ``value`` for the annotation ``hint``.

    For a single word where a list is expected, the list of that word is named too.
    """
    is_word = isinstance(value, str) and admits(hint, [value])
    return in_words(hint) + (f", such as [{_shortened(value)}]" if is_word else "")


WORDS: dict[Any, str] = {int: "an integer", float: "a number", str: "a word", bool: "true or false"}
WORDS |= {type(None): "none", None: "none"}
WORDS |= {Mapping: "a dictionary", dict: "a dictionary", np.ndarray: "an array", slice: "a slice"}
PLURALS = {int: "integers", float: "numbers", str: "words"}


def _words(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return ["none" if choice is None else f'"{choice}"' for choice in get_args(hint)]
    if get_origin(hint) is Annotated:
        kind, *limits = get_args(hint)
        return [" ".join([*_words(kind), *map(str, limits)])]
    return [_word(hint)]


def _word(hint: Any) -> str:
    kind = get_origin(hint) or hint
    if kind in WORDS:
        return WORDS[kind]
    if isinstance(kind, type) and issubclass(kind, os.PathLike):
        return "a path"
    name = getattr(kind, "__name__", str(hint))
    if name not in ("Sequence", "Iterable", "Collection", "list", "tuple"):
        return "a function" if name == "Callable" else f"{'an' if name[0] in 'AEIO' else 'a'} {name}"
    elements = get_args(hint)
    if not elements or elements[0] is Any:
        return "a list"
    if get_origin(elements[0]) in (tuple, list, Sequence, Iterable):
        return "a list of lists"
    plural = PLURALS.get(elements[0]) or f"{getattr(elements[0], '__name__', '')} objects".strip()
    return f"a list of {plural}"
