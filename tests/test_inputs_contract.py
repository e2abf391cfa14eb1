"""What holds of every model that reads inputs, p(x | inputs), besides what ``test_contract.py`` asks of all models."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.generation.given_inputs import InputCursor, with_inputs

LENGTHS = (9, 1, 5, 12, 7, 3, 8, 6)
SMALL: dict[str, Any] = {"d_model": 8, "max_steps": 3, "batch_size": 4}


def mixture(weights: str, **options: Any) -> sm.Mixture:
    """Of members that read all inputs, one of them, and none."""
    members = [
        sm.LSTM(**SMALL, inputs=True),
        sm.HMM(2, max_iter=3, n_init=1, input_effects=sm.hmm.ChainInputEffects(transitions=["wind"])),
        sm.GRU(**SMALL, inputs=["heat"]),
        sm.HMM(2, max_iter=3, n_init=1),
    ]
    return sm.Mixture([*members], weights=weights, held_out=0.3, **options)


FAMILIES: dict[str, Callable[..., sm.SequenceModel]] = {
    "hmm-transitions": partial(
        sm.HMM, 3, max_iter=3, n_init=1, input_effects=sm.hmm.ChainInputEffects(transitions=True)
    ),
    "hmm-emissions": partial(
        sm.HMM,
        2,
        max_iter=3,
        n_init=1,
        input_effects=sm.hmm.ChainInputEffects(emissions=["heat"], transitions=["wind"]),
    ),
    "hmm-start": partial(
        sm.HMM,
        2,
        max_iter=3,
        n_init=1,
        input_effects=sm.hmm.ChainInputEffects(first_state=["heat"], transitions=["wind"]),
    ),
    "hmm-start-alone": partial(
        sm.HMM, 2, max_iter=3, n_init=1, input_effects=sm.hmm.ChainInputEffects(first_state=True)
    ),
    "hmm-terms": partial(
        sm.HMM,
        1,
        input_effects=sm.hmm.ChainInputEffects(
            emissions=[sm.hmm.RandomEffect("herd"), sm.hmm.Smooth("heat", n_splines=5)], new_group_points=16
        ),
    ),
    "hmm-variational": partial(
        sm.HMM,
        2,
        max_iter=3,
        n_init=1,
        observation=sm.AutoregressiveGaussian(),
        algorithm="variational",
        input_effects=sm.hmm.ChainInputEffects(emissions=True),
    ),
    "hsmm-durations": partial(
        sm.hmm.HSMM,
        2,
        durations="poisson",
        max_duration=6,
        max_iter=3,
        n_init=1,
        length="given",
        input_effects=sm.hmm.ChainInputEffects(durations=["heat"]),
    ),
    "hsmm-terms": partial(
        sm.hmm.HSMM,
        1,
        durations="poisson",
        max_duration=6,
        max_iter=3,
        length="given",
        input_effects=sm.hmm.ChainInputEffects(
            durations=[sm.hmm.RandomEffect("herd")], emissions=[sm.hmm.RandomEffect("herd")], new_group_points=16
        ),
    ),
    "markov-switching-ar": partial(
        sm.hmm.MarkovSwitchingAR,
        2,
        order=2,
        max_iter=3,
        n_init=1,
        input_effects=sm.hmm.ChainInputEffects(transitions=True),
    ),
    "system": partial(sm.LinearGaussian, 2, max_iter=3, state_inputs=["heat"], observation_inputs=["heat", "wind"]),
    "lstm": partial(sm.LSTM, **SMALL, inputs=True),
    "transformer": partial(sm.Transformer, **SMALL, n_layers=1, n_heads=2, context=4, inputs=True),
    "mixture-static": partial(mixture, "static"),
    "mixture-switching": partial(mixture, "switching"),
    "mixture-gated": partial(mixture, "gated"),
}
OF_VECTORS = ("hmm-terms", "hsmm-terms", "hmm-variational", "markov-switching-ar", "system")
ROWS = [
    (name, kind) for name in FAMILIES for kind in ("symbols", "vectors") if kind == "vectors" or name not in OF_VECTORS
]
each_row = pytest.mark.parametrize(("name", "kind"), ROWS)
# Durations of a single state, which follows itself, say nothing of the values.
pytestmark = pytest.mark.filterwarnings("ignore:the standard deviation of .* of durations of state 0 is not determined")


def data(kind: str, seed: int = 0, lengths: tuple[int, ...] = LENGTHS, scale: float = 1.0) -> sm.Sequences:
    """Sequences with three inputs, of which "herd" numbers groups; seeds other than 0 have new ones from step 1 on."""
    rng = np.random.default_rng(seed)
    inputs = [np.stack([300.0 + 5.0 * rng.normal(size=n), rng.normal(size=n), np.zeros(n)], 1) for n in lengths]
    for i, u in enumerate(inputs):
        is_new, block = (seed > 0) & (i % 2 == 0) & (np.arange(len(u)) > 0), np.arange(len(u)) // 3
        u[:, 2] = np.where(is_new, 90 + block % 2, (block + i) % 4)
    if kind == "symbols":
        items = [((u[:, 0] > 300).astype(int) + rng.integers(0, 2, len(u))) % 3 for u in inputs]
    else:
        items = [scale * (0.2 * u[:, :1] + rng.normal(size=(len(u), 1))) for u in inputs]
    return sm.Sequences(items, inputs=inputs, input_names=["heat", "wind", "herd"])


def fitted(name: str, kind: str, X: sm.Sequences | None = None, **options: Any) -> sm.SequenceModel:
    if X is None:
        return fitted_once(name, kind)
    options = {"dtype": "float64", "random_state": 1} | options
    if kind == "symbols" and name.startswith("h"):
        options["observation"] = sm.Categorical(0.1)
    return FAMILIES[name](**options).fit(X)


@cache
def fitted_once(name: str, kind: str) -> sm.SequenceModel:
    """To ``data(kind)``: not to be changed."""
    return fitted(name, kind, data(kind))


@pytest.mark.quick_cases(10)
@each_row
def test_it_is_one_probability_of_x(name: str, kind: str) -> None:
    model, X = fitted(name, kind), data(kind, 1, (3,))
    assert X.inputs is not None
    if kind == "symbols":
        strings = [np.array(s) for s in itertools.product(range(3), repeat=3)]
        each = sm.Sequences(strings, inputs=[X.inputs[0]] * len(strings), input_names=X.input_names)
        assert np.exp(model.log_prob(each)).sum() == pytest.approx(1.0, abs=1e-9)
        return
    nodes = np.linspace(-7.0, 7.0, 201)  # of values that stand closest where the density is
    grid = 60.0 + np.sinh(nodes)
    each = sm.Sequences(list(grid[:, None, None]), inputs=[X.inputs[0][:1]] * len(grid), input_names=X.input_names)
    density = np.exp(model.log_prob(each)) * np.cosh(nodes)
    assert np.trapezoid(density, nodes) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.quick_cases(7)
@each_row
def test_the_unit_of_x_shifts_the_score_and_that_of_inputs_does_not(name: str, kind: str) -> None:
    X = data(kind)
    assert X.inputs is not None
    model = fitted(name, kind)
    other_units = X.with_inputs([u * [4.0, 0.5, 2.0] + [1.0, -2.0, 5.0] for u in X.inputs], X.input_names)
    assert fitted(name, kind, other_units).score(other_units) == pytest.approx(model.score(X), abs=1e-6)
    swapped = X.with_inputs([u[:, ::-1] for u in X.inputs], ["herd", "wind", "heat"])
    np.testing.assert_allclose(model.log_prob(swapped), model.log_prob(X), atol=1e-12)
    beside = X.with_inputs([np.column_stack([u, u[:, 0] ** 2]) for u in X.inputs], ["heat", "wind", "herd", "square"])
    np.testing.assert_allclose(model.log_prob(beside), model.log_prob(X), rtol=1e-12)
    if kind == "vectors":
        doubled = data(kind, scale=2.0)
        assert fitted(name, kind, doubled).score(doubled) == pytest.approx(model.score(X) - np.log(2.0), abs=1e-6)


@each_row
def test_order_and_company_change_nothing(name: str, kind: str) -> None:
    model, X = fitted(name, kind), data(kind, 2)
    steps = model.log_prob_steps(X)
    order = np.random.default_rng(0).permutation(len(X))
    for i, of_sequence in zip(order, model.log_prob_steps(X.take(order)), strict=True):
        np.testing.assert_allclose(of_sequence, steps[i], atol=1e-9)
    np.testing.assert_allclose(model.log_prob_steps(X[3:4])[0], steps[3], atol=1e-9)


@each_row
def test_states_of_a_cursor_are_values(name: str, kind: str) -> None:
    model, X = fitted(name, kind), data(kind, 3, (4,))
    (example,) = model._setting().examples(sm.encodings.raw_data.Data.of(X))
    base = model.cursor()
    assert isinstance(base, InputCursor)
    values, u = torch.as_tensor(example.values), torch.as_tensor(example.inputs)
    first = base.start(n=2)
    given = base.given(first, u[:1].expand(2, -1))
    other = base.given(first, -u[:1].expand(2, -1))
    before = base.distribution(given).log_prob(values[:1].expand(2, *values.shape[1:]))
    after = base.advance(given, values[:1].expand(2, *values.shape[1:]))
    base.given(after, u[1:2].expand(2, -1))
    again = base.distribution(given).log_prob(values[:1].expand(2, *values.shape[1:]))
    torch.testing.assert_close(before, again, rtol=1e-5, atol=1e-6)
    if name in ("lstm", "transformer", "hmm-emissions") and kind == "vectors":
        of_other = base.distribution(other).log_prob(values[:1].expand(2, *values.shape[1:]))
        assert not torch.allclose(before, of_other, rtol=1e-4)
    with pytest.raises(ValueError, match="those of the next step are not known"):
        base.distribution(after)
    with pytest.raises(ValueError, match="those of the next step are not known"):
        base.advance(after, values[1:2].expand(2, *values.shape[1:]))
    cursor = with_inputs(base, example.inputs)
    state, nats = cursor.start(), []
    for x in values:
        nats.append(float(cursor.distribution(state).log_prob(x[None])))
        state = cursor.advance(state, x[None])
    np.testing.assert_allclose(nats, model._steps([example])[0], atol=1e-9)
    twice = cursor.select(cursor.start(), torch.tensor([0, 0, 0]))
    assert cursor.distribution(twice).output_parameters.shape[0] == 3


@pytest.mark.parametrize("name", [name for name, kind in ROWS if kind == "symbols"])
def test_drawn_symbols_are_as_frequent_as_they_are_probable(name: str) -> None:
    model, X = fitted(name, "symbols"), data("symbols", 4, (2,))
    assert X.inputs is not None
    assert X.input_names is not None
    drawn = model.sample(4000, inputs=dict(zip(X.input_names, X.inputs[0].T, strict=True)))
    strings = [np.array(s) for s in itertools.product(range(3), repeat=2)]
    p = np.exp(model.log_prob(sm.Sequences(strings, inputs=[X.inputs[0]] * 9, input_names=X.input_names)))
    shares = [np.mean([np.array_equal(x, s) for x in drawn]) for s in strings]
    np.testing.assert_allclose(shares, p, atol=0.03)


@pytest.mark.parametrize("name", [name for name, kind in ROWS if kind == "symbols"])
def test_validation_folds_and_the_tail_of_a_series_keep_inputs(name: str) -> None:
    X = data("vectors", 5)
    model = fitted(name, "vectors")
    held_out = fitted(name, "vectors", X, random_state=2)
    assert held_out.input_names_ == model.input_names_
    explicit = FAMILIES[name]().fit(X[:6], validation=X[6:])
    assert np.isfinite(explicit.history_["validation"].iloc[-1])
    train, test = data("vectors", 6, (60,)).split(0.2)
    alone = FAMILIES[name]().fit(train)
    np.testing.assert_allclose(
        alone.score(test), np.mean(alone.log_prob_steps(data("vectors", 6, (60,)))[0][48:]), atol=1e-4
    )


def test_folds_of_a_choice_and_of_a_backtest_keep_inputs() -> None:
    X = data("vectors", 7, (30,) * 6)
    chosen = sm.choose(
        sm.HMM(max_iter=3, n_init=1, input_effects=sm.hmm.ChainInputEffects(emissions=True)),
        X,
        n_states=[1, 2],
        folds=2,
    )
    assert chosen.model.input_names_ == ("heat", "wind", "herd")
    model = sm.HMM(1, input_effects=sm.hmm.ChainInputEffects(emissions=True), max_iter=3, n_init=1).fit(X)
    plain = sm.HMM(1, max_iter=3, n_init=1, observation=sm.GaussianMixture(1)).fit(X)
    table = sm.evaluation.backtest({"given": model, "plain": plain}, X, horizon=2, baselines=False).frame
    crps = table.groupby("model")["crps"].mean()
    assert crps["given"] < crps["plain"]
