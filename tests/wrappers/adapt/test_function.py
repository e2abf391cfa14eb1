"""A function of the prefix, or of a state, as a model: every rule of the contract is in ``test_contract.py``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from tests.families import Decaying

CHAIN = np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]])  # of two symbols and the end
X = [np.array(x) for x in ([0, 0, 1, 0, 1], [1], [0], [1, 1, 0])]


def chain(prefix: Any) -> np.ndarray:
    return np.log(CHAIN[int(prefix[-1])] if len(prefix) else [0.5, 0.4, 0.1])


def chain_of_states(state: Any) -> np.ndarray:
    return np.log([0.5, 0.4, 0.1] if state is None else CHAIN[state])


def expected(x: np.ndarray) -> np.ndarray:
    first = np.log([5 / 9, 4 / 9])[x[0]]  # no sequence is empty
    return np.array([first, *np.log(CHAIN[x[:-1], x[1:]]), np.log(CHAIN[x[-1], 2])])


@cache
def variants() -> dict[str, sm.SequenceModel]:
    from_callable = sm.adapt.from_callable
    return {
        "prefix": from_callable(chain, n_symbols=2),
        "states": from_callable(chain_of_states, n_symbols=2, advance=lambda state, symbol: symbol),
        "batched": from_callable(lambda all_: np.stack([chain(p) for p in all_]), n_symbols=2, batched=True),
        "tensors": from_callable(lambda prefix: torch.as_tensor(chain(prefix)).float(), n_symbols=2),
    }


@pytest.mark.parametrize("name", variants())
def test_its_figures_are_those_of_the_function(name: str) -> None:
    model = variants()[name]
    tolerance = 1e-6 if name == "tensors" else 1e-12
    for x, steps in zip(X, model.log_prob_steps(X), strict=True):
        assert_allclose(steps, expected(x), atol=tolerance, rtol=0)
    stream = model.stream()
    assert_allclose([stream.update(x) for x in X[0]], expected(X[0])[:-1], atol=tolerance, rtol=0)
    assert (model.length_, model.context_, model.n_parameters_) == ("stop", None, 0)


def test_lengths_are_given_where_the_function_has_no_end_or_they_are_asked_for() -> None:
    without = sm.adapt.from_callable(lambda prefix: np.log([0.25, 0.75]), n_symbols=2)
    assert without.length_ == "given"
    assert_allclose(without.log_prob(X[:1]), 3 * np.log(0.25) + 2 * np.log(0.75))
    masked = sm.adapt.from_callable(chain, n_symbols=2, length="given")
    assert_allclose(masked.log_prob_steps(X[:1])[0][1], np.log(0.7 / 0.9))
    with pytest.raises(ValueError, match='length is "stop", but the function does not say'):
        sm.adapt.from_callable(lambda prefix: np.log([0.25, 0.75]), n_symbols=2, length="stop")


def test_prefixes_are_of_the_kind_of_the_data() -> None:
    seen: list[Any] = []

    def uniform(size: int) -> Any:
        def next_log_probs(prefix: Any) -> np.ndarray:
            seen.append(prefix)
            return np.full(size, -np.log(size))

        return next_log_probs

    sm.adapt.from_callable(uniform(256), text=True).log_prob(["né"])
    assert seen[-3:] == [b"", b"n", "né".encode()[:2]]
    sm.adapt.from_callable(uniform(3), alphabet="nét").log_prob(["tén"])
    assert seen[-3:] == ["", "t", "té"]
    sm.adapt.from_callable(uniform(2), symbols=["sit", "walk"]).log_prob([["walk", "sit"]])
    assert seen[-1].tolist() == [1]
    with pytest.raises(ValueError, match="read-only"):
        seen[-1][0] = 0


def test_characters_stand_on_their_last_byte_and_others_are_refused() -> None:
    model = sm.adapt.from_callable(lambda prefix: np.log([0.5, 0.3, 0.2]), alphabet="nét")
    assert_allclose(model.log_prob_steps(["né"])[0], [np.log(0.5), 0, np.log(0.3)])
    assert (model.measure_.space, model.measure_.unit, model.measure_.kind) == ("text", "byte", "exact")
    assert set(model.sample(length=30)[0]) <= set("nét")
    with pytest.raises(ValueError, match="sequence 1 has 'x' at character 2, which is not in the model's alphabet"):
        model.log_prob(["né", "nnx"])


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([0.5, 0.5], "sum to 3.29744, not to one"),
        (np.log([0.5, 0.25]), "sum to 0.75, not to one"),
        ([np.nan, 0.0], "sum to nan, not to one"),
        (np.log([0.25] * 4), r"returns shape .*\(4,\); return \(V,\) log-probabilities, V = 2"),
        ([[0.0, -np.inf]], r"returns shape \(1, 2\)"),
    ],
)
def test_what_is_no_distribution_is_refused(returned: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.adapt.from_callable(lambda prefix: returned, n_symbols=2)
    late = sm.adapt.from_callable(lambda prefix: returned if len(prefix) == 2 else np.log([0.5, 0.5]), n_symbols=2)
    late.log_prob([[0, 1]])
    for ask in (lambda: late.log_prob([[0, 1, 1]]), lambda: late.predict_next([0, 1])):
        with pytest.raises(ValueError, match=message):
            ask()


def test_arguments_say_once_what_the_outputs_are() -> None:
    for arguments, message in (
        ({}, "nothing says what the outputs stand for"),
        ({"n_symbols": 2, "text": True}, "n_symbols and text says what the outputs stand for"),
        ({"n_symbols": 2, "initial_state": 0}, "initial_state is given but advance is not"),
    ):
        with pytest.raises(ValueError, match=message):
            sm.adapt.from_callable(chain, **arguments)
    with pytest.raises(ValueError, match="pass either next_log_probs"):
        sm.adapt.from_callable(n_symbols=2)
    with pytest.raises(ValueError, match="next_log_probs is 3; pass a function"):
        sm.adapt.from_callable(3, n_symbols=2)  # type: ignore[arg-type]


def test_a_zero_is_a_zero() -> None:
    model = sm.adapt.from_callable(lambda prefix: [0.0, -np.inf], n_symbols=2)
    assert model.log_prob([[0, 0], [0, 1]]).tolist() == [0.0, -np.inf]
    assert model.sample(length=5)[0].tolist() == [0] * 5


def test_fit_leaves_it_as_it_is_and_checks_that_it_can_read_the_data() -> None:
    model = sm.adapt.from_callable(chain, n_symbols=2)
    before = model.log_prob(X)
    assert_array_equal(model.fit(X).log_prob(X), before)
    assert_array_equal(model.clone().fit(X).log_prob(X), before)
    for bad, message in (
        ([[0, 2]], "sequence 0 has symbol 2 at position 1 but the model knows 0 to 1"),
        (["ab"], "reads symbols but the sequences are text"),
        ([np.zeros((2, 2))], "models symbols or text, but the sequences are vectors"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(bad)
    with pytest.raises(ValueError, match=r"models p\(x\), not p\(y \| x\); leave y out"):
        model.fit(X, X)
    ignoring = model.clone().set_params(ignore_source=True).fit(["a", "b", "c", "d"], X)
    assert_array_equal(ignoring.log_prob(["a", "b", "c", "d"], X), before)
    with pytest.raises(ValueError, match="warm_start=True, but a CallableModel is not trained"):
        model.clone().set_params(warm_start=True).fit(X)
    assert_array_equal(model.log_prob(X), before)


def test_a_function_cannot_be_saved_and_a_class_can(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a file cannot hold how to make one; pass a class in its place"):
        sm.adapt.from_callable(chain, n_symbols=2).save(tmp_path / "model")
    model = sm.adapt.from_callable(Decaying, n_symbols=3)
    with pytest.warns(UserWarning, match="which seqmodels does not know"):
        model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model", classes=[Decaying])
    assert_array_equal(loaded.log_prob(X), model.log_prob(X))
    assert_array_equal(loaded.fit(X).log_prob(X), model.log_prob(X))
    with pytest.raises(ValueError, match=r"pass classes=\[Decaying\]"):
        sm.load(tmp_path / "model")
