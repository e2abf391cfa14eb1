"""Objects with hyperparameters as TOML tables and back, and tables as text."""

import inspect
import tomllib
from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.common.parameters import argument_types, check_argument
from seqmodels.evaluation.runs.toml import dumps, from_table, to_table
from seqmodels.loading import CLASSES

NESTED = [
    sm.HMM(
        3,
        observation=sm.GaussianMixture(8, "full"),
        topology=[[True, True], [False, True]],
        training=sm.hmm.ChainTraining(tied=[0, 0, 1]),
    ),
    sm.HMM(topology=sm.LeftToRight(), training=sm.hmm.ChainTraining(frozen=["emission"]), pseudocount=0.5),
    sm.HMM(observation=sm.Columns([(sm.GaussianMixture(2), 2), (sm.Poisson(), 1)])),
    sm.LSTM(
        training=sm.training.GradientTraining(optimizer=sm.training.Muon(), schedule=sm.training.Cosine()),
        max_steps=7,
        max_seconds=1.5,
    ),
    sm.LSTMSeq2Seq(attention=None, encoding=sm.BPE(300)),
    sm.GenerativeClassifier(sm.HMM(2)),
    sm.neural.Recurrent(d_model=8),
]


def through_toml(thing: Any) -> Any:
    return from_table(tomllib.loads(dumps(to_table(thing))))


@pytest.mark.parametrize("thing", NESTED, ids=lambda thing: type(thing).__name__)
def test_nested_hyperparameters_come_back(thing):
    assert repr(through_toml(thing)) == repr(thing)


def test_every_class_with_defaults_comes_back_and_its_annotations_admit_them():
    tried = 0
    for cls in CLASSES.values():
        parameters = inspect.signature(cls).parameters
        assert set(parameters) <= set(argument_types(cls)), cls
        if all(p.default is not p.empty for p in parameters.values()):
            thing = cls()
            assert repr(through_toml(thing)) == repr(thing)
            for key, value in thing.get_params(deep=False).items():
                check_argument(cls, key, value)
            tried += 1
    assert tried > 25


def test_a_model_that_came_back_fits_alike():
    x = [np.random.default_rng(0).integers(0, 3, 30) for _ in range(4)]
    model = sm.HMM(2, observation=sm.Categorical(pseudocount=0.1), max_iter=3)
    assert through_toml(model).fit(x).score(x) == pytest.approx(model.fit(x).score(x), rel=1e-6)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"n_states": 3}, "has no class"),
        ({"class": "GPT"}, "there is no class 'GPT'"),
        ({"class": "PPM"}, "PPM was removed; fit ContextMixing"),
        ({"class": "Recurrent", "cell": {"type": "os"}}, "there is no class 'os' in seqmodels"),
        ({"class": "HMM", "states": 3}, "HMM has no parameter 'states'"),
        ({"class": "HMM", "n_states": "3"}, "n_states of HMM is '3'; pass an integer"),
        ({"class": "HMM", "n_states": True}, "pass an integer"),
        ({"class": "HMM", "n_states": 2.5}, "pass an integer"),
        ({"class": "LSTM", "max_steps": "many"}, 'pass an integer, "auto" or none'),
        ({"class": "HMM", "observation": {"class": "HMM"}}, "observation of HMM is"),
        ({"class": "HMM", "observation": {"class": "GaussianMixture", "covariance_type": "round"}}, "covariance_type"),
    ],
)
def test_what_does_not_fit_is_named(table, said):
    with pytest.raises(ValueError, match=said):
        from_table(table)


def test_what_fit_writes_and_calls_is_no_part_of_a_table():
    model = sm.LSTM(
        training=sm.training.GradientTraining(
            checkpoint="run", resume_from="run", callbacks=[sm.training.TensorBoard("runs")]
        )
    )
    assert not {"checkpoint", "resume_from", "callbacks"} & to_table(model)["training"].keys()


def test_what_is_written_is_read_back():
    table = {
        "a": 1,
        "b": -0.1 + 0.3,
        "c": 1e-05,
        "d": float("inf"),
        "e": True,
        "words": 'quo"te \\ back\n\ttab \x7f \x00 é 🎈',
        "list": [1, [2.5, "x"], {"k": 1}],
        "empty": {},
        "outer": {"own": 2, "with space": {"class": "X", "inner": {"class": "Y", "n": 1}}, "é": 3},
    }
    assert tomllib.loads(dumps(table)) == table


def test_arrays_are_lists_and_none_is_said():
    assert tomllib.loads(dumps({"m": np.eye(2), "n": np.float64(0.5), "none": None})) == {
        "m": [[1.0, 0.0], [0.0, 1.0]],
        "n": 0.5,
        "none": {"none": True},
    }


def test_floats_come_back_to_the_last_bit():
    values = np.random.default_rng(0).normal(size=50) * 10.0 ** np.arange(-25, 25)
    assert tomllib.loads(dumps({"x": values}))["x"] == values.tolist()


def test_what_toml_has_no_word_for_is_refused():
    with pytest.raises(TypeError, match="a complex"):
        dumps({"x": 1j})


def test_a_table_that_knew_no_groups_is_read():
    model = from_table({"class": "LSTM", "d_model": 8, "patience": 9, "tie_embeddings": True})
    assert repr(model) == (
        "LSTM(d_model=8, architecture=RecurrentArchitecture(tie_embeddings=True), "
        "training=GradientTraining(patience=9))"
    )
    assert repr(from_table(to_table(model))) == repr(model)
