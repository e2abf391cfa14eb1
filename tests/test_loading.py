"""Classes of one's own are saved and loaded; a file names them and cannot make anything be imported."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.common import storage
from seqmodels.common.parameters import Configurable
from seqmodels.encodings import Symbols
from seqmodels.loading import CLASSES, MODELS, PUBLIC
from seqmodels.observations import Categorical
from seqmodels.training import AdamW
from tests.faults import files_altered

X = [np.array([0, 1, 2, 1]), np.array([2, 0]), np.array([1, 1, 0])]
SMALL: dict[str, Any] = {"d_model": 8, "max_steps": 2, "batch_size": 2}
FIXTURES = Path(__file__).parent / "fixtures"


@dataclass(kw_only=True, eq=False, repr=False)
class SlowGRU(sm.GRU):
    """A subclass with a hyperparameter and defaults of its own."""

    lr: float = 1e-4
    warm: Any = None


@dataclass(eq=False, repr=False)
class Flat(Categorical):
    """An observation of one's own."""

    flatness: float = 0.5


@dataclass(eq=False, repr=False)
class Letters(Symbols):
    """An encoding of one's own."""


@dataclass(eq=False, repr=False)
class Careful(AdamW):
    """An optimizer of one's own."""


class PlainBigram(sm.NGram):
    """A subclass that is no dataclass, with the constructor of its base."""


class Same:
    """Holds a class of the same name as one of seqmodels'."""

    @dataclass(kw_only=True, eq=False, repr=False)
    class GRU(sm.GRU):
        """Not seqmodels'."""


def saved(thing: Any, path: Path, *names: str) -> Path:
    with pytest.warns(UserWarning, match=rf"classes=\[{', '.join(names)}\]"):
        thing.save(path)
    return path


def test_a_subclass_is_saved_with_a_warning_and_loaded_with_help(tmp_path: Path) -> None:
    model = SlowGRU(**SMALL, warm={"a": (1, 2)}).fit(X, validation=None)
    path = saved(model, tmp_path / "model", "SlowGRU")
    loaded = sm.load(path, classes=[SlowGRU])
    assert type(loaded) is SlowGRU
    assert (loaded.lr, loaded.warm) == (1e-4, {"a": (1, 2)})
    np.testing.assert_allclose(loaded.log_prob(X), model.log_prob(X), rtol=1e-5)
    plain = PlainBigram(2).fit(X)
    again = sm.load(saved(plain, tmp_path / "plain", "PlainBigram"), classes=[PlainBigram])
    assert type(again) is PlainBigram
    np.testing.assert_allclose(again.log_prob(X), plain.log_prob(X), rtol=1e-5)
    with pytest.raises(ValueError, match=r"holds a .*\.SlowGRU, which is not one of seqmodels' .*classes=\[SlowGRU\]"):
        sm.load(path)


def test_what_a_model_is_made_of_may_be_ones_own(tmp_path: Path) -> None:
    parts = {
        "observation": Flat(flatness=0.25),
        "encoding": Letters(),
        "training": sm.training.GradientTraining(optimizer=Careful()),
    }
    model = sm.GRU(**SMALL, **parts).fit(X, validation=None)
    path = saved(model, tmp_path / "model", "Flat", "Letters", "Careful")
    loaded = sm.load(path, classes=[Flat, Letters, Careful])
    found = [type(each) for each in (loaded.observation_, loaded.encoding_, loaded.training.optimizer)]
    assert found == [Flat, Letters, Careful]
    assert loaded.observation_.flatness == 0.25
    np.testing.assert_allclose(loaded.log_prob(X), model.log_prob(X), rtol=1e-5)
    with pytest.raises(ValueError, match=r"classes=\[\w+\]"):
        sm.load(path, classes=[Flat])


def test_a_class_of_the_same_name_is_not_taken_for_it(tmp_path: Path) -> None:
    path = saved(Same.GRU(**SMALL).fit(X, validation=None), tmp_path / "model", "GRU")
    assert type(sm.load(path, classes=[Same.GRU])) is Same.GRU
    with pytest.raises(ValueError, match=r"Same\.GRU, which is not one of seqmodels' classes"):
        sm.load(path)
    sm.GRU(**SMALL).fit(X, validation=None).save(tmp_path / "other")
    assert type(sm.load(tmp_path / "other", classes=[Same.GRU])) is sm.GRU


def test_two_classes_of_one_name_cannot_be_told_apart() -> None:
    @dataclass(kw_only=True, eq=False, repr=False)
    class SlowGRU(sm.LSTM):
        """Another."""

    with pytest.raises(ValueError, match="have one name"):
        storage.warn_of_classes_to_give(globals()["SlowGRU"](), SlowGRU())
    with pytest.raises(ValueError, match="two of the name 'SlowGRU'"):
        storage.given_classes([globals()["SlowGRU"], SlowGRU])
    with pytest.raises(ValueError, match="which is not a class"):
        storage.given_classes([SlowGRU()])  # type: ignore[list-item]


def test_a_classifier_and_a_comparison_of_ones_own_models(tmp_path: Path) -> None:
    y = np.array(["a", "b", "a"])
    classifier = sm.GenerativeClassifier(SlowGRU(**SMALL), calibrate=False).fit(X, y, validation=None)
    path = saved(classifier, tmp_path / "classifier", "SlowGRU")
    loaded = sm.load(path, classes=[SlowGRU])
    np.testing.assert_allclose(loaded.predict_proba(X), classifier.predict_proba(X), rtol=1e-5)
    rng = np.random.default_rng(0)
    train, test = ([rng.integers(0, 3, 20) for _ in range(8)] for _ in range(2))
    comparison = sm.compare({"own": SlowGRU(**SMALL)}, train, test=test, validation=None)
    folder = saved(comparison, tmp_path / "comparison", "SlowGRU")
    assert type(sm.evaluation.Comparison.load(folder, classes=[SlowGRU]).models["own"]) is SlowGRU
    with pytest.raises(ValueError, match=r"classes=\[SlowGRU\]"):
        sm.evaluation.Comparison.load(folder)


def test_what_is_seqmodels_own_needs_no_help(recwarn: pytest.WarningsRecorder) -> None:
    storage.warn_of_classes_to_give(sm.HMM(topology=sm.LeftToRight(), observation=sm.GaussianMixture()), [sm.LSTM()])
    assert not recwarn.list


def test_a_class_may_be_a_hyperparameter() -> None:
    @dataclass(eq=False, repr=False)
    class Holder(Configurable):
        """Of a class."""

        held: type

    for held in (sm.GRU, SlowGRU):
        known = {**PUBLIC, **storage.given_classes([Holder, SlowGRU])}
        assert storage.build(storage.describe(Holder(held)), known).held is held
    with pytest.raises(ValueError, match="held of Holder is 3"):
        storage.build({"class": "a.Holder", "params": {"held": 3}}, known)


@pytest.mark.parametrize("name", ["os.system", "torch.nn.Linear", "subprocess.Popen", "seqmodels.neural.GRU"])
def test_a_name_in_a_file_is_looked_up_and_never_imported(name: str) -> None:
    for value in ({"class": name, "params": {}}, {"class": "HMM", "params": {"topology": {"type": name}}}):
        with pytest.raises(ValueError, match="is not one of seqmodels' classes"):
            storage.build(value, PUBLIC)
    with pytest.raises(ValueError, match="has no hyperparameters"):
        storage.build({"class": "t.Linear", "params": {}}, storage.given_classes([torch.nn.Linear]))


def subclasses(cls: type) -> Iterator[type]:
    for each in cls.__subclasses__():
        yield each
        yield from subclasses(each)


def test_load_knows_every_class_that_a_model_is_made_of() -> None:
    elsewhere = tuple(f"seqmodels.{part}" for part in ("data", "evaluation", "cli", "training.callbacks", "anomalies"))
    own = {c for c in subclasses(Configurable) if c.__module__.startswith("seqmodels.")}
    leaves = {c for c in own if not any(issubclass(other, c) for other in own - {c})}
    made_of = {c for c in leaves if not c.__module__.startswith(elsewhere) and not inspect.isabstract(c)}
    assert {c.__name__ for c in made_of - set(CLASSES.values())} == set()
    assert {sm.HMM, sm.NGram, sm.GRU, sm.MaskedTransformer} <= set(MODELS)


def altered_file(folder: str, name: str, place: str, value: Any, path: Path) -> None:
    content = storage.read(FIXTURES / folder / f"{name}.safetensors")
    storage.write(path, files_altered.altered(content, tuple(place.split("/")), value))


@pytest.mark.parametrize(
    ("folder", "name", "place", "value", "message"),
    [
        ("0.1.0", "hmm-diag", "model/params/device", "x", "device is 'x'"),
        ("0.1.0", "hmm-diag", "model/params/device", "meta", "device is 'meta'"),
        ("0.1.0", "masked", "model/params/device", "x", "device is 'x'"),
        ("0.1.0", "masked", "model/params/dtype", "x", "its dtype is 'x'"),
        ("0.1.0", "hmm-diag", "model/params/random_state", -1, "random_state is -1"),
        ("next", "switching-system-vectors-x-given", "model/params/random_state", -1, "random_state is -1"),
        (
            "0.1.0",
            "ngram",
            "measure/space",
            "R^2",
            "the space 'R\\^2', but the model reads what has 'text'",
        ),
        ("0.1.0", "ngram", "measure/unit", "frame", "its measure has the unit 'frame'"),
        ("0.1.0", "hmm-diag", "observation/params/min_covariance", -1, "min_covariance of GaussianMixture is -1"),
        ("0.1.0", "hmm-diag", "model/class", 5, "its 'class' is not what a saved model has there: it is 5"),
        ("0.1.0", "hmm-diag", "observation/params", [], "its 'observation/params' is not what"),
        ("0.1.0", "hmm-diag", "encoding/state", None, "its 'state' is not what"),
        ("0.1.0", "hmm-diag", "state", {}, "an HMM has initial, table, transition, but the file has"),
        ("0.1.0", "classifier-hmm", "temperature", [], "its 'classes, priors or temperature' is not what"),
        ("0.1.0", "classifier-ngram", "models", [], "its 'models' is not what"),
        ("next", "mixture-static", "members/1/state", 5, "its 'members/1/state' is not what"),
        ("next", "mixture-static", "model/params/models", [], "a mixture of 0 models cannot have the members"),
        ("next", "dynamic-lstm", "observation/params/n_components", 7, "but the model inside has GaussianMixture"),
        (
            "next",
            "system",
            "observation/params/n_components",
            7,
            "but the prediction of this LinearGaussian is GaussianMixture",
        ),
    ],
)
def test_one_altered_value_is_refused_with_its_place(folder, name, place, value, message, tmp_path):
    path = tmp_path / "altered.safetensors"
    altered_file(folder, name, place, value, path)
    with pytest.raises(ValueError, match=message) as refused:
        sm.load(path)
    assert str(path) in str(refused.value)


def test_what_is_not_whole_is_refused_before_anything_of_it_is_built(tmp_path):
    content = storage.read(FIXTURES / "0.1.0" / "hmm-diag.safetensors")
    content = files_altered.altered(content, ("measure",), 5)
    storage.write(tmp_path / "altered", files_altered.altered(content, ("model", "params", "n_states"), "x"))
    with pytest.raises(ValueError, match="its 'measure' is not what a saved model has there: it is 5"):
        sm.load(tmp_path / "altered")


@pytest.mark.parametrize(("whole", "key"), [("mixture-static", "0"), ("dynamic-lstm", "model")])
def test_a_member_of_another_class_is_refused(whole, key, tmp_path):
    other = storage.read(FIXTURES / "next" / "context-tree.safetensors")
    altered_file("next", whole, f"members/{key}", other, tmp_path / "altered.safetensors")
    with pytest.raises(ValueError, match=f"its member '{key}' is a ContextTree, but the .* is made of a"):
        sm.load(tmp_path / "altered.safetensors")


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("PPM", "ContextMixing"),
        ("Cached", "Dynamic"),
        ("LatentOffset", "RunningScale"),
        ("OnlineEM", "ContextMixing"),
        ("LinearGaussianModel", "from_parameters"),
    ],
)
def test_a_file_of_a_removed_class_is_refused_by_name(name, instead, tmp_path):
    path = FIXTURES / "removed" / f"{name.lower()}.safetensors"
    message = rf"{path.name} cannot be loaded: the file holds an? {name}, which was removed; .*{instead}"
    message += ".*; seqmodels 0.1 was the last version that could read the file"
    with pytest.raises(ValueError, match=message):
        sm.load(path)
    altered_file("next", "mixture-static", "members/0", storage.read(path), tmp_path / "altered.safetensors")
    with pytest.raises(ValueError, match=f"the file holds an? {name}, which was removed; .*{instead}"):
        sm.load(tmp_path / "altered.safetensors")


def test_what_was_called_true_once_is_the_same_number(tmp_path):
    altered_file("0.1.0", "masked", "model/params/n_layers", 1.0, tmp_path / "altered.safetensors")
    assert type(sm.load(tmp_path / "altered.safetensors").n_layers) is int


def test_no_altered_value_is_met_with_foreign_words():
    names = ("hmm-diag", "ngram", "lstm-vectors", "classifier-hmm", "mixture-switching", "context-tree")
    found = list(files_altered.sweep(23, lambda name: name in names))
    assert len(found) > 50
    assert [(what, came) for what, came in found if came] == []
