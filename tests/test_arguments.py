"""Arguments of wrong types, and numbers that are none, are refused by name before any work."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.common.parameters import Configurable, admits, argument_names, argument_types
from seqmodels.common.storage import NotSavableError
from tests.families import Row, fitted, rows

X = [np.arange(20) % 3 for _ in range(6)]
LABELS = list("aabbab")
V = [np.random.default_rng(i).normal(size=(8, 2)) for i in range(5)]
WRONG: tuple[Any, ...] = ("no such word", math.nan, np.float32("nan"), 1.5, ["a"], {}, object(), None, True)
# What a function or an alphabet of another size is, its own errors say.
IN_OTHER_WORDS = {"n_symbols", "symbols", "alphabet", "text", "tokenizer"}


def one_row_of_each_class() -> Iterator[Row]:
    seen: set[type] = set()
    for row in rows("vectors", "symbols", "text"):
        cls = type(row.model)
        if cls not in seen:
            seen.add(cls)
            yield row


def arguments() -> list[tuple[Row, str]]:
    """Each argument of each class; those that several classes have alike, once."""
    found: dict[tuple[str, str], Row] = {}
    for row in one_row_of_each_class():
        hints = argument_types(type(row.model))
        for name in argument_names(type(row.model)):
            found.setdefault((name, str(hints.get(name))), row)
    return [(row, name) for (name, _), row in found.items() if name not in IN_OTHER_WORDS]


@pytest.mark.parametrize("kind", ["a-d", "e-m", "n-r", "s-z"])
def test_what_an_annotation_does_not_admit_is_refused_by_name(kind: str) -> None:
    came = []
    for row, name in arguments():
        if not kind[0] <= name[0] <= kind[-1]:
            continue
        hint = argument_types(type(row.model)).get(name, Any)
        for value in WRONG:
            if admits(hint, value.item() if isinstance(value, np.generic) else value):
                continue
            what = f"{type(row.model).__name__}({name}={value!r})"
            try:
                row.model.set_params(**{name: value}).fit(*row.data)
                came.append(f"{what} is accepted")
            except ValueError as error:
                if name not in str(error):
                    came.append(f"{what}: {error}")
            except Exception as error:
                came.append(f"{what}: {type(error).__name__}: {error}")
    assert came == []


def as_numpy(thing: Configurable) -> Configurable:
    """A clone whose numbers are NumPy's, but for booleans, which are 0 and 1, NumPy's or Python's in turn."""
    for i, (name, value) in enumerate(thing.get_params(deep=False).items()):
        if isinstance(value, bool):
            thing.set_params(**{name: (int(value), np.bool_(value), np.int64(value))[i % 3]})
        elif isinstance(value, int):
            thing.set_params(**{name: np.int64(value)})
        elif isinstance(value, float):
            thing.set_params(**{name: np.float32(value) if float(np.float32(value)) == value else np.float64(value)})
        elif isinstance(value, Configurable):
            as_numpy(value)
    return thing


def test_numbers_of_numpy_and_0_and_1_are_as_good_as_pythons(tmp_path: Path) -> None:
    for row in list(one_row_of_each_class())[::4]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = fitted(row)
            model = as_numpy(row.model.clone()).fit(*row.data, validation=None)
            found = model.log_prob(*row.data)
            np.testing.assert_allclose(found, expected.log_prob(*row.data), rtol=1e-5, err_msg=str(row))
            with suppress(NotSavableError):
                model.save(tmp_path / "model")
        assert repr(model) == repr(expected)


def test_functions_take_them_too() -> None:
    model = sm.HMM(2, max_iter=1, n_init=1, verbose=0).fit(X)
    assert (
        model.sample(np.int64(2), length=np.int32(3), random_state=np.int64(1))[0].tolist()
        == model.sample(2, length=3, random_state=1)[0].tolist()
    )
    models, vectors = {"a": sm.LinearGaussian(1, max_iter=1).fit([v[:, :1] for v in V])}, [np.arange(9.0)[:, None]]
    tested = sm.backtest(models, vectors, horizon=np.int64(2), baselines=0, refit=np.False_)
    assert tested.frame["model"].unique().tolist() == ["a"]
    with pytest.raises(ValueError, match="baselines is 2; pass true or false"):
        sm.backtest(models, vectors, horizon=2, baselines=2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sm.LSTM(hidden_size=64), "LSTM has no argument 'hidden_size'; did you mean d_model\\?"),
        (lambda: sm.Transformer(nhead=2), "Transformer has no argument 'nhead'; did you mean n_heads\\?"),
        (lambda: sm.hmm.HSMM(n_components=2), "HSMM has no argument 'n_components'; did you mean n_states\\?"),
        (lambda: sm.GRU(epochs=2), "GRU has no argument 'epochs'; did you mean max_epochs\\?"),
        (lambda: sm.HMM(n_stats=2), "HMM has no argument 'n_stats'; did you mean n_states\\?"),
        (lambda: sm.encodings.Bytes(size=2), "Bytes has no argument 'size'"),
        (lambda: sm.HMM(2).fit(X, lengths=[3]), "did you mean Sequences.from_lengths"),
        (lambda: sm.load(pth="a"), "load has no argument 'pth'; did you mean path\\?"),
    ],
)
def test_an_unknown_argument_gets_a_hint(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call()


# How many arguments a class may have: a reader of ``help`` finds those that he turns. What few turn goes into a group.
MOST_ARGUMENTS = {
    sm.HMM: 20,
    sm.hmm.HSMM: 24,
    sm.hmm.ContinuousTimeHMM: 20,
    sm.hmm.MarkovSwitchingAR: 24,
    sm.HMMTagger: 16,
    sm.AlignmentHMM: 21,
    sm.LinearGaussian: 27,
    sm.ElmanRNN: 22,
    sm.LSTM: 21,
    sm.GRU: 21,
    sm.neural.Recurrent: 22,
    sm.neural.CausalModel: 23,
    sm.Transformer: 29,
    sm.TransformerSeq2Seq: 29,
    sm.LSTMSeq2Seq: 26,
    sm.EncoderDecoder: 23,
    sm.LSTMTagger: 25,
    sm.TransformerTagger: 31,
    sm.MaskedTransformer: 28,
    sm.training.GradientTraining: 15,
    sm.training.EMTraining: 3,
    sm.hmm.ChainTraining: 9,
    sm.hmm.ChainInputEffects: 7,
    sm.neural.TransformerArchitecture: 13,
    sm.neural.RecurrentArchitecture: 7,
}


@pytest.mark.parametrize("cls", MOST_ARGUMENTS, ids=lambda cls: cls.__name__)
def test_a_class_has_no_more_arguments_than_this(cls: type) -> None:
    assert len(argument_names(cls)) == MOST_ARGUMENTS[cls]


def test_arguments_that_users_turn_come_first() -> None:
    assert argument_names(sm.LSTM)[:8] == (
        *("d_model", "n_layers", "dropout", "bptt"),
        *("lr", "batch_size", "max_steps", "max_epochs"),
    )
    assert argument_names(sm.Transformer)[:4] == ("d_model", "n_layers", "dropout", "n_heads")


@pytest.mark.parametrize(
    ("cls", "old", "words"),
    [
        (sm.LSTM, {"checkpoint": "a"}, "pass training=GradientTraining(checkpoint=...)"),
        (sm.LSTM, {"training_precision": "float32"}, "pass training=GradientTraining(precision=...)"),
        (sm.GRU, {"layer_norm": True}, "pass architecture=RecurrentArchitecture(layer_norm=...)"),
        (sm.Transformer, {"norm_type": "rms"}, "pass architecture=TransformerArchitecture(norm_type=...)"),
        (sm.LSTM, {"optim": "sgd"}, "did you mean training=GradientTraining(optimizer=...)?"),
        (sm.LinearGaussian, {"resume_from": "a"}, "pass training=EMTraining(resume_from=...)"),
        (sm.HMM, {"checkpoint": "a"}, "pass training=ChainTraining(checkpoint=...)"),
        (sm.HMM, {"frozen": ["emission"]}, "pass training=ChainTraining(frozen=...)"),
        (sm.HMM, {"transition_inputs": True}, "pass input_effects=ChainInputEffects(transitions=...)"),
    ],
)
def test_an_argument_that_moved_says_where(cls: type, old: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=re.escape(words)):
        cls(**old)


def test_an_argument_that_the_fit_of_a_model_has_not_is_refused() -> None:
    prior = sm.hmm.ChainTraining(prior=sm.hmm.ConjugatePrior())
    with pytest.raises(ValueError, match=r"prior is ConjugatePrior.*, but the fit of a MarkovSwitchingAR has none"):
        sm.hmm.MarkovSwitchingAR(2, training=prior).fit(X)
    with pytest.raises(ValueError, match="compile is True, but a MaskedTransformer is trained without"):
        sm.MaskedTransformer(training=sm.training.GradientTraining(compile=True)).fit(["to be"])


def test_a_grid_turns_an_argument_of_a_group() -> None:
    found = sm.choose(sm.GRU(d_model=4, max_steps=2), X, training__weight_decay=[0.0, 0.1], folds=2)
    assert found.model.training.weight_decay in (0.0, 0.1)


REGRESSIONS: dict[str, Any] = {"means": [[1.2], [-0.4]], "autoregression": [[0.1]], "variances": [0.6]}


def test_options_may_repeat_what_parameters_imply_and_not_contradict_it() -> None:
    def model(**options: Any) -> sm.hmm.MarkovSwitchingAR:
        return sm.hmm.MarkovSwitchingAR.from_parameters([[0.9, 0.1], [0.2, 0.8]], **REGRESSIONS, **options)

    assert model(switching_ar=False, n_states=2, order=1, length="given").order == 1
    for options in ({"switching_ar": True}, {"n_states": 3}, {"length": "stop"}):
        (name,) = options
        with pytest.raises(ValueError, match=f"{name} is .*, but the other arguments make it .*; leave {name} out"):
            model(**options)
    with pytest.raises(ValueError, match="structure is 3, but the other arguments make it"):
        sm.LinearGaussian.local_level(structure=3)


def hmm(**observation: Any) -> sm.HMM:
    return sm.HMM(2, observation=sm.GaussianMixture(**observation), max_iter=1)


class OfPolars:
    def to_pandas(self) -> None:
        raise ImportError("pyarrow is required")


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a model for models": (lambda: sm.compare(sm.HMM(), X), "models is of type HMM; pass a dictionary"),
    "a list for models": (lambda: sm.compare([sm.HMM()], X), "models is of type list; pass a dictionary"),
    "search": (lambda: sm.compare({"a": sm.HMM(2)}, X, test=X, search=5), "search is 5; pass a Search"),
    "a grid": (lambda: sm.Search({"a": 5}), "the grid of 'a' is 5"),
    "a grid's values": (lambda: sm.Search({"a": {"lr": 5}}), "'lr' in the grid of 'a' is 5; pass a list"),
    "folds": (lambda: sm.Search({"a": {"lr": [5]}}, folds=math.nan), "folds is nan"),
    "seeds": (lambda: sm.compare({"a": sm.HMM(2)}, X, test=X, seeds=1.5), "seeds is 1.5; pass an integer"),
    "baseline": (lambda: sm.compare({"a": sm.HMM(2)}, X, test=X, baseline=[]), "baseline is"),
    "the seed": (lambda: sm.compare({"a": sm.HMM(2)}, X, test=X, random_state=math.nan), "random_state is nan"),
    "a budget": (lambda: sm.Budget(seconds="x"), "seconds is 'x'; pass a number or none"),
    "parameters": (lambda: sm.Budget(parameters=1.5), "parameters is 1.5; pass an integer"),
    "None to audit": (lambda: sm.audit(None, X), "model is None, which has no log_prob_steps"),
    "a class to audit": (lambda: sm.audit(sm.HMM, X), "has no log_prob_steps"),
    "a frame of another package": (
        lambda: sm.data.table(OfPolars()),
        "the OfPolars cannot be made .*; install pyarrow",
    ),
    "no frame": (lambda: sm.data.table(None), "source is None; pass a path, or a frame of pandas"),
    "choose": (lambda: sm.choose(sm.HMM(), X, n_states=[1], random_state=math.nan), "random_state is nan"),
    "adaptive": (lambda: sm.NGram(adaptive="foo").fit(X), "adaptive is 'foo'; pass true or false"),
    "segment": (lambda: sm.Dynamic(sm.GRU(max_steps=1), segment=math.inf).fit(X), "segment is inf"),
    "refit": (lambda: sm.Mixture([sm.NGram(1)], refit=["a"]).fit(X), r"refit is \['a'\]"),
    "n_folds": (lambda: sm.GenerativeClassifier(sm.NGram(2), n_folds=math.nan).fit(X, LABELS), "n_folds is nan"),
    "calibrate": (lambda: sm.GenerativeClassifier(sm.NGram(2), calibrate="x").fit(X, LABELS), "calibrate is 'x'"),
    "of anomalies": (lambda: sm.Anomalies(sm.NGram(2), random_state=math.nan).fit(X), "random_state is nan"),
    "of a masked model": (lambda: sm.MaskedTransformer(random_state=math.nan).fit(X), "random_state is nan"),
    "a device": (lambda: sm.NGram(1, device="x").fit(X), "device is 'x'; pass 'auto'"),
    "a seed below zero": (lambda: sm.NGram(1, random_state=-1).fit(X), "random_state is -1"),
    "lr": (lambda: sm.GRU(lr=math.inf).fit(X), "lr is inf; pass a finite number"),
    "weight_decay": (
        lambda: sm.GRU(training=sm.training.GradientTraining(weight_decay=-1)).fit(X),
        "weight_decay of GradientTraining is -1",
    ),
    "eps": (
        lambda: sm.GRU(training=sm.training.GradientTraining(optimizer=sm.training.AdamW(eps=-1))).fit(X),
        "eps is -1",
    ),
    "betas": (
        lambda: sm.GRU(training=sm.training.GradientTraining(optimizer=sm.training.AdamW(betas=(0.9, 2)))).fit(X),
        "betas is",
    ),
    "warm_up": (
        lambda: sm.GRU(training=sm.training.GradientTraining(schedule=sm.training.Cosine(warm_up=2))).fit(X),
        "warm_up is 2; pass a number from 0 on",
    ),
    "tol": (lambda: sm.HMM(2, tol=math.inf).fit(X), "tol=inf must be finite"),
    "max_seconds": (lambda: sm.HMM(2, max_seconds=-1).fit(X), "max_seconds is -1"),
    "n_components": (lambda: hmm(n_components=0).fit(V), "n_components of GaussianMixture is 0"),
    "min_covariance": (
        lambda: hmm(min_covariance=0).fit(V),
        "min_covariance of .* is 0; pass a number above 0",
    ),
    "of a nested one": (lambda: hmm(covariance_type="x").fit(V), "covariance_type"),
    "order": (
        lambda: sm.HMM(1, observation=sm.AutoregressiveGaussian(0)).fit(V),
        "order of .* is 0",
    ),
    "pseudocount": (lambda: sm.HMM(1, observation=sm.Categorical(-1)).fit(X), "pseudocount of Categorical is -1"),
    "max_length": (lambda: sm.TransformerSeq2Seq(max_length=0).fit(X, X), "max_length is 0"),
}
ASKED = {
    "sample": ["max_length", "random_state", "temperature", "top_k", "top_p", "min_p", "stop"],
    "n_best": ["n", "n_beams", "length", "max_length", "alpha"],
    "log_prob_marginal": ["beam", "pruning", "random_state"],
    "forecast": ["k", "quantiles", "n", "top_k", "random_state"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_calls_are_refused_by_the_name_of_the_argument(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("method", ASKED)
def test_what_a_fitted_model_is_asked_is_checked(method: str) -> None:
    model = sm.HMM(2, max_iter=1).fit(X)
    given: dict[str, Any] = {"log_prob_marginal": {"X": X}, "forecast": {"X": X, "k": 1}}.get(method, {})
    for name in ASKED[method]:
        for value in (math.nan, "no such word", object()):
            with pytest.raises(ValueError, match=name):
                getattr(model, method)(**given | {name: value})
