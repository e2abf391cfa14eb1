from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import pytest
from torch import nn

from seqmodels.common.parameters import (
    Configurable,
    admits,
    argument_names,
    check_argument,
    checked_argument,
    in_groups,
    in_words,
)
from seqmodels.hmm import HMM
from seqmodels.model import SequenceModel
from seqmodels.wrappers.adapt.huggingface import HuggingFaceModel
from seqmodels.wrappers.adapt.network import TorchModel
from seqmodels.wrappers.classification import GenerativeClassifier


@dataclass(eq=False, repr=False)
class Inner(Configurable):
    size: int = 2
    names: list[str] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class Outer(Configurable):
    inner: Inner | str = "auto"
    rate: float = 0.5


def test_parameters_by_name_nested() -> None:
    inner = Inner(3)
    outer = Outer(inner)
    assert outer.get_params(deep=False) == {"inner": inner, "rate": 0.5}
    assert outer.get_params() == {"inner": inner, "rate": 0.5, "inner__size": 3, "inner__names": []}
    assert Outer().get_params() == {"inner": "auto", "rate": 0.5}


def test_set_returns_self_and_does_not_touch_a_shared_part() -> None:
    shared = Inner(3)
    left, right = Outer(shared), Outer(shared)
    assert left.set_params(inner__size=4, rate=1.0) is left
    assert (left.get_params()["inner__size"], right.get_params()["inner__size"], shared.size) == (4, 3, 3)
    assert left.rate == 1.0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("size", "Outer has no parameter 'size'; it has inner, rate"),
        ("rate__x", "'rate' is 0.5, which has no parameters of its own to set"),
        ("inner__x", "Inner has no parameter 'x'; it has size, names"),
    ],
)
def test_unknown_names_are_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Outer(Inner()).set_params(**{name: 1})


def test_clones_are_unfitted_and_deep() -> None:
    outer = Outer(Inner(3))
    outer.fitted_ = 1  # type: ignore[attr-defined]
    copy = outer.clone()
    assert copy is not outer
    assert copy.inner is not outer.inner
    assert copy.get_params()["inner__size"] == 3
    assert not hasattr(copy, "fitted_")


def test_repr_shows_what_differs_from_the_defaults() -> None:
    assert repr(Outer()) == "Outer()"
    assert repr(Outer(Inner(5), rate=0.25)) == "Outer(inner=Inner(size=5), rate=0.25)"


@dataclass(kw_only=True, eq=False, repr=False)
class Rare(Configurable):
    """What few users turn."""

    pause: float = 0.5
    colour: str = "red"

    _renamed: ClassVar[dict[str, str]] = {"break_": "pause"}


@dataclass(kw_only=True, eq=False, repr=False)
class Base(Configurable):
    seed: int = 0
    rare: Rare = field(default_factory=Rare)

    _listed_last: ClassVar[tuple[str, ...]] = ("rare", "seed")


@dataclass(kw_only=True, eq=False, repr=False)
class Grouped(Base):
    size: int = 2


def test_a_group_is_read_set_cloned_and_shown_like_other_arguments() -> None:
    model = Grouped()
    assert repr(model) == "Grouped()"
    assert model.get_params()["rare__colour"] == "red"
    assert repr(model.set_params(rare__pause=1.0)) == "Grouped(rare=Rare(pause=1.0))"
    assert (model.clone().rare.pause, Grouped().rare.pause) == (1.0, 0.5)


def test_the_signature_lists_what_a_class_has_of_its_own_first() -> None:
    assert list(inspect.signature(Grouped).parameters) == ["size", "rare", "seed"]
    assert argument_names(Grouped) == ("size", "rare", "seed")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("colour", "Grouped has no argument 'colour'; pass rare=Rare(colour=...)"),
        ("break_", "Grouped has no argument 'break_'; pass rare=Rare(pause=...)"),
        ("rare__colour", "Grouped has no argument 'rare__colour'; pass rare=Rare(colour=...)"),
        ("color", "Grouped has no argument 'color'; did you mean rare=Rare(colour=...)?"),
        ("siez", "Grouped has no argument 'siez'; did you mean size?"),
    ],
)
def test_an_argument_that_is_in_a_group_says_where(name: str, says: str) -> None:
    with pytest.raises(TypeError, match=re.escape(says)):
        Grouped(**{name: 1})


def test_setting_an_argument_that_is_in_a_group_says_where() -> None:
    with pytest.raises(ValueError, match="Grouped has no parameter 'break_'; set rare__pause"):
        Grouped().set_params(break_=1)
    with pytest.raises(ValueError, match="Grouped has no parameter 'colour'; set rare__colour"):
        check_argument(Grouped, "colour", "blue")


def test_arguments_of_a_file_without_groups_are_put_in_them() -> None:
    found = in_groups(Grouped, {"size": 3, "break_": 2.0, "colour": "blue"})
    assert repr(Grouped(**found)) == "Grouped(size=3, rare=Rare(pause=2.0, colour='blue'))"
    assert in_groups(Grouped, {"rare": "as it is"}) == {"rare": "as it is"}


def test_annotations_admit_what_they_say():
    assert admits(float, 3)
    assert not admits(float, "3")
    assert not admits(int, False)
    assert admits(Literal["a"] | None, None)
    assert not admits(Literal[1], True)
    assert admits(np.ndarray, [[1]])
    assert not admits(np.ndarray, 1)
    assert in_words(int | None) == "an integer or none"
    assert admits(list[float], np.zeros(2))


def test_a_number_is_the_same_as_another_type_where_that_is_asked_for() -> None:
    for key, value in (("verbose", 1), ("verbose", 2), ("max_iter", 20.0), ("tol", 0), ("warm_start", 0)):
        assert checked_argument(HMM, key, value) == value or key == "verbose"
    assert type(checked_argument(HMM, "max_iter", 20.0)) is int
    assert checked_argument(HMM, "verbose", 2) is True
    for key, value in (
        ("verbose", "2"),
        ("max_iter", 20.5),
        ("max_iter", float("nan")),
        ("max_iter", "20"),
        ("max_iter", 1e300),
    ):
        with pytest.raises(ValueError, match=f"{key} of HMM is"):
            checked_argument(HMM, key, value)
    check_argument(HMM, "verbose", 1)
    with pytest.raises(ValueError, match="verbose of HMM is 2; pass "):
        check_argument(HMM, "verbose", 2)


NETWORK = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 300), nn.ModuleList(nn.Linear(2, 2) for _ in range(9))])


@pytest.mark.parametrize("model", [HuggingFaceModel(NETWORK), TorchModel(NETWORK, n_symbols=3)])
def test_a_network_is_shown_by_its_class_in_reprs_and_errors(model: SequenceModel) -> None:
    for text in (repr(model), repr(GenerativeClassifier(model))):
        assert "=ModuleList(...)" in text
        assert "Linear" not in text
    with pytest.raises(ValueError, match=r"length is ModuleList\(\.\.\.\); pass one of"):
        model.clone().set_params(length=NETWORK)._adopted()
    with pytest.raises(ValueError, match=r"model is ModuleList\(\.\.\.\)") as refused:
        HuggingFaceModel(NETWORK)._adopted()
    assert "Linear" not in str(refused.value)
