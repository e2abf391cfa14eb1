"""``ContinuousTimeHMM`` given inputs beside its times: against exponentials and paths written out, and maxima."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.special import log_softmax

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.hmm import ChainInputEffects, ChainTraining, ContinuousTimeHMM, Frozen
from tests.made import made

Array = NDArray[np.float64]
GENERATOR = np.array([[-0.3, 0.3, 0.0], [0.5, -0.9, 0.4], [0.1, 0.1, -0.2]])
INITIAL = np.array([0.5, 0.3, 0.2])
MEANS, VARIANCES = np.array([0.0, 2.0, -2.0]), np.array([1.0, 0.5, 2.0])
AT = np.array([20.0, -0.3])  # the inputs at which these hold
OF_RATES, OF_FIRST = np.zeros((3, 3, 2)), np.array([[0.0, 0.0], [0.2, -0.5], [-0.1, 1.0]])
OF_RATES[0, 1], OF_RATES[1, 0], OF_RATES[1, 2], OF_RATES[2, 0] = (0.4, -0.5), (-0.2, 0.8), (0.3, 0.0), (0.0, -0.7)
OF_MEANS = np.array([[[0.3, 0.0]], [[-0.2, 0.5]], [[0.1, 1.0]]])


def drawn_inputs(lengths: tuple[int, ...], seed: int = 0) -> sm.Sequences:
    """Values of no model at irregular times, two of them at one time, with two inputs."""
    rng = np.random.default_rng(seed)
    times = [np.cumsum(rng.gamma(0.5, 2.0, n)) for n in lengths]
    for each in times:
        each[2:3] = each[1:2]
    inputs = [np.stack([20.0 + 2.0 * rng.normal(size=n), rng.normal(size=n)], 1) for n in lengths]
    items = [rng.normal(0, 2, (n, 1)) for n in lengths]
    return sm.Sequences(items, times=times, inputs=inputs, input_names=["a", "b"])


def given(**changes: Any) -> ContinuousTimeHMM:
    of_states = {"means": MEANS[:, None], "covariances": VARIANCES[:, None]}
    slopes = {"generator_slopes": OF_RATES, "emission_slopes": OF_MEANS, "initial_slopes": OF_FIRST}
    arguments = {"inputs": dict(zip("ab", AT, strict=True)), **of_states, **slopes} | changes
    return made(ContinuousTimeHMM.from_parameters, GENERATOR, INITIAL, **arguments)


def generator_at(u: Array, slopes: Array = OF_RATES) -> Array:
    q = np.where(np.eye(3), 0.0, GENERATOR) * np.exp(slopes @ (u - AT))
    return np.asarray(q - np.diag(q.sum(1)))


def written_out(x: Array, times: Array, inputs: Array) -> tuple[Array, Array, Array]:
    """The log-probabilities of the first state, of each transition and of each step."""
    log_first = log_softmax(np.log(INITIAL) + OF_FIRST @ (inputs[0] - AT))
    gaps = np.diff(times)
    with np.errstate(divide="ignore"):
        log_a = np.log([expm(generator_at(u) * gap) for u, gap in zip(inputs[1:], gaps, strict=True)])
    deviation = x - MEANS - (inputs - AT) @ OF_MEANS[:, 0].T
    return log_first, log_a, -0.5 * (deviation**2 / VARIANCES + np.log(2 * np.pi * VARIANCES))


@cache
def of_all_paths() -> tuple[sm.Sequences, list[tuple[int, ...]], Array]:
    """A sequence, the paths of its states, and the log-probability of each together with the sequence."""
    X = drawn_inputs((5,))
    assert X.times is not None
    assert X.inputs is not None
    log_first, log_a, log_b = written_out(X[0], X.times[0], X.inputs[0])
    paths, steps = list(itertools.product(range(3), repeat=5)), np.arange(5)
    joint = [log_first[z[0]] + log_b[steps, z].sum() + log_a[steps[:-1], z[:-1], z[1:]].sum() for z in paths]
    return X, paths, np.array(joint)


def test_every_question_is_answered_as_over_all_paths() -> None:
    X, paths, joint = of_all_paths()
    model, total = given(), np.logaddexp.reduce(joint)
    p = np.exp(joint - total)
    gamma = np.array([[p[[z[t] == k for z in paths]].sum() for k in range(3)] for t in range(5)])
    assert model.log_prob(X)[0] == pytest.approx(total, abs=1e-10)
    assert_allclose(model.posterior(X)[0], gamma, atol=1e-10)
    order = np.argsort(-joint)
    assert tuple(model.decode(X)[0]) == paths[order[0]]
    best = model.decode(X, k=4)[0]
    assert [tuple(each.states) for each in best] == [paths[i] for i in order[:4]]
    assert_allclose([each.log_prob for each in best], joint[order[:4]], atol=1e-10)
    assert_allclose(model.path_log_prob(X, [paths[order[9]]]), joint[order[9]], atol=1e-10)
    through = [sum(1 for _ in itertools.groupby(z)) == 2 and z[0] == 2 and z[-1] == 0 for z in paths]
    aligned = model.align(X, [[2, 0]])[0]
    assert aligned.log_prob == pytest.approx(joint[through].max(), abs=1e-10)
    drawn = model.sample_states(X, 3000, random_state=1)[0]
    assert_allclose([(drawn == k).mean(0) for k in range(3)], gamma.T, atol=0.05)


def test_steps_come_one_by_one() -> None:
    X, _, joint = of_all_paths()
    assert X.times is not None
    assert X.inputs is not None
    model, stream = given(), given().stream()
    rows = list(zip(X[0], X.inputs[0], X.times[0], strict=True))
    steps = [stream.update(x, {"a": u[0], "b": u[1]}, time=t) for x, u, t in rows]
    assert sum(steps) == pytest.approx(np.logaddexp.reduce(joint), abs=1e-10)
    assert_allclose(steps, model.log_prob_steps(X)[0], atol=1e-10)
    belief = model.filter(X)[0][-1]
    assert_allclose(stream.filtered, belief, atol=1e-10)
    later, ahead = X.times[0][-1] + np.array([0.5, 3.0]), np.array([[18.0, 1.0], [21.0, -2.0]])
    by_name = {"a": ahead[:, 0], "b": ahead[:, 1]}
    frame = model.forecast(X, 2, inputs=[by_name], times=[later]).frame
    (states,) = model.forecast_states(X, 2, inputs=[by_name], times=[later])
    for h, (gap, u, mean) in enumerate(zip((0.5, 2.5), ahead, frame["mean"], strict=True)):
        belief = belief @ expm(generator_at(u) * gap)
        assert mean == pytest.approx(belief @ (MEANS + OF_MEANS[:, 0] @ (u - AT)), abs=1e-8)
        assert_allclose(states.states[h], belief, atol=1e-10)
        assert states.mean[h, 0] == pytest.approx(mean, abs=1e-8)
    one_unit = model.forecast_states(X, 1, inputs=[{"a": [18.0], "b": [1.0]}])[0].states[0]
    assert_allclose(one_unit, model.filter(X)[0][-1] @ expm(generator_at(ahead[0])), atol=1e-10)
    assert_allclose(frame["time"], later)
    with pytest.raises(ValueError, match="inputs has no 'b'"):
        model.forecast(X, 2, inputs=[{"a": ahead[:, 0]}], times=[later])
    with pytest.raises(ValueError, match="have no one step, and the model reads times; pass times="):
        model.forecast(X, 2, inputs=[by_name])


def test_times_go_on_where_inputs_alone_are_given() -> None:
    X = drawn_inputs((5, 4))
    times = [np.arange(5) / 2, np.arange(3.0, 7.0)]
    regular = sm.Sequences(X.items, times=times, inputs=X.inputs, input_names=["a", "b"])
    ahead = [{"a": [20.0, 21.0], "b": [0.0, 1.0]}] * 2
    frame = given().forecast(regular, 2, inputs=ahead).frame
    assert frame["time"].tolist() == [2.5, 3.0, 7.0, 8.0]
    rows = [np.column_stack([t, ahead[0]["a"], ahead[0]["b"]]) for t in ([2.5, 3.0], [7.0, 8.0])]
    as_arrays = given().forecast(regular, 2, inputs=rows).frame
    assert_allclose(as_arrays[["time", "mean"]], frame[["time", "mean"]])


def test_drawn_steps_are_as_frequent_as_they_are_probable() -> None:
    flags = {"means": None, "covariances": None, "emission_slopes": None, "emission": np.eye(3)}
    model, times = given(**flags), [2.0, 2.5, 9.0]
    inputs = {"a": [20.0, 24.0, 17.0], "b": [0.0, 1.0, -1.0]}
    drawn = model.sample(3000, times=times, inputs=inputs)
    strings, rows = list(itertools.product(range(3), repeat=3)), np.stack([*inputs.values()], 1)
    X = sm.Sequences([np.array(z) for z in strings], times=[times] * 27, inputs=[rows] * 27, input_names=["a", "b"])
    p = np.exp(model.log_prob(X))
    assert p.sum() == pytest.approx(1.0)
    assert_allclose([np.mean([tuple(x) == z for x in drawn]) for z in strings], p, atol=0.03)


# -- EM --------------------------------------------------------------------------------------------------------


def test_expected_jumps_and_times_are_the_derivative_of_the_log_probability() -> None:
    X, model = drawn_inputs((9, 1, 6)), given()
    chain, emission = model._fitted_chain, model._emission
    examples, cpu = model._setting().examples(Data.of(X)), torch.device("cpu")
    corpus = chain.corpus(examples, emission, cpu, torch.float64)
    counted = chain.expectations(model.parameters_, emission, corpus.batches, torch.float64).given_inputs
    assert counted is not None
    assert counted.paths is not None
    assert counted.path_inputs is not None
    paths, u = counted.paths.numpy(), counted.path_inputs.numpy()
    rates = np.array([generator_at(AT + each) for each in u])
    expected = paths - rates * paths.diagonal(axis1=1, axis2=2)[:, :, None]  # d log p / d log q of each gap
    for k, j in np.argwhere(OF_RATES.any(2)):
        for column in range(2):
            step = np.zeros_like(OF_RATES)
            step[k, j, column] = 1e-5
            up, down = (given(generator_slopes=OF_RATES + s).log_prob(X).sum() for s in (step, -step))
            assert (up - down) / 2e-5 == pytest.approx((expected[:, k, j] * u[:, column]).sum(), rel=1e-6, abs=1e-7)
    assert paths.diagonal(axis1=1, axis2=2).sum() == pytest.approx(sum(t[-1] - t[0] for t in X.times or []))


def two_states(n: int, length: int, seed: int) -> sm.Sequences:
    """Symbols of two states, seen with errors, whose rate of leaving state 0 doubles with each unit of an input."""
    rng = np.random.default_rng(seed)
    items, times, inputs = [], [], []
    for _ in range(n):
        t, u = np.cumsum(rng.gamma(1.0, 0.4, length)), rng.normal(size=length)
        z = [0]
        for gap, each in zip(np.diff(t), u[1:], strict=True):
            rate = 0.8 * 2.0**each
            z.append(rng.choice(2, p=expm(np.array([[-rate, rate], [0.8, -0.8]]) * gap)[z[-1]]))
        items.append(np.where(rng.random(length) < 0.01, 1 - np.array(z), z))
        times.append(t)
        inputs.append(3.0 * u)
    return sm.Sequences(items, times=times, inputs=inputs, input_names=["dose"])


SEEN: dict[str, Any] = {"emission": [[0.99, 0.01], [0.01, 0.99]], "inputs": {"dose": 0.0}}
BEGUN: dict[str, Any] = {"warm_start": True, "input_effects__ridge": 2.0, "max_iter": 80, "tol": 0.0, "start": "free"}


def begun(**options: Any) -> ContinuousTimeHMM:
    chain: dict[str, Any] = {"generator": [[-0.5, 0.5], [0.5, -0.5]], "initial": [0.5, 0.5]}
    return made(ContinuousTimeHMM.from_parameters, **chain, **SEEN, generator_slopes=np.zeros((2, 2, 1)), **options)


@cache
def maximum() -> tuple[ContinuousTimeHMM, sm.Sequences]:
    """A model at the maximum over its rates and their slopes, and its data."""
    X = two_states(8, 40, 3)
    return begun(**BEGUN, training__frozen=["initial", "emission"]).fit(X), X


def moved(model: ContinuousTimeHMM, step: Array) -> ContinuousTimeHMM:
    """The model with other log-rates and slopes, those of the jumps 0 -> 1 and 1 -> 0."""
    p, other = model.parameters_, copy.copy(model)
    assert p.generator is not None
    assert p.transition_slopes is not None
    rates, slopes = p.generator.clamp(min=0.0).clone(), p.transition_slopes.clone()
    for i, (k, j) in enumerate([(0, 1), (1, 0)]):
        rates[k, j] *= np.exp(step[i])
        slopes[k, j, 0] += step[2 + i]
    other.parameters_ = replace(p, generator=rates - torch.diag(rates.sum(1)), transition_slopes=slopes)
    return other


def objective(model: ContinuousTimeHMM, X: sm.Sequences) -> float:
    slopes = model.parameters_.transition_slopes
    assert slopes is not None
    return float(model.log_prob(X).sum() - 0.5 * 2.0 * slopes.square().sum())


@pytest.mark.slow
def test_em_rises_and_ends_where_the_gradient_is_zero() -> None:
    model, X = maximum()
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    for i in range(4):
        step = 1e-4 * np.eye(4)[i]
        slope = (objective(moved(model, step), X) - objective(moved(model, -step), X)) / 2e-4
        assert slope == pytest.approx(0.0, abs=2e-3), i
    assert model.generator_slopes_[0, 1, 0] == pytest.approx(np.log(2) / 3, abs=0.15)
    assert model.generator_slopes_[1, 0, 0] == pytest.approx(0.0, abs=0.15)
    assert model.n_parameters_ == 2 + 2


@pytest.mark.slow
def test_standard_errors_are_those_of_the_hessian_by_differences() -> None:
    model, X = maximum()
    frame = model.standard_errors(X)
    assert frame["name"].tolist() == ["generator", "generator", "generator_slopes", "generator_slopes"]
    h, e = 1e-3, np.eye(4)
    signs, hessian = list(itertools.product((1, -1), repeat=2)), np.zeros((4, 4))
    for i, j in itertools.product(range(4), repeat=2):
        values = [a * b * objective(moved(model, h * (a * e[i] + b * e[j])), X) for a, b in signs]
        hessian[i, j] = sum(values) / (4 * h * h)
    deviations = np.sqrt(np.diag(np.linalg.inv(-hessian)))
    rates = model.generator_[[0, 1], [1, 0]]
    scale = model.input_scaling_.scale[1]
    assert_allclose(frame["standard_error"], np.r_[rates * deviations[:2], deviations[2:] / scale], rtol=1e-3)
    assert frame["feature"].tolist()[2:] == [(1, "dose"), (0, "dose")]
    low, high = model.profile_interval(X, "generator_slopes", 0, (1, "dose"))
    assert low < model.generator_slopes_[0, 1, 0] < high
    assert high - low == pytest.approx(2 * 1.96 * frame["standard_error"][2], rel=0.1)


def test_effects_of_zero_are_the_model_without() -> None:
    X = drawn_inputs((9, 1, 6))
    none = np.zeros_like(OF_RATES)
    flat = given(generator_slopes=none, emission_slopes=0 * OF_MEANS, initial_slopes=0 * OF_FIRST)
    plain = given(generator_slopes=None, emission_slopes=None, initial_slopes=None, inputs=None)
    assert_allclose(flat.log_prob(X), plain.log_prob(X), rtol=1e-12)
    assert flat.n_parameters_ - plain.n_parameters_ == 2 * (6 + 3 + 2)
    at_mean = sm.Sequences(X.items, times=X.times, inputs=[np.tile(AT, (len(x), 1)) for x in X], input_names=["a", "b"])
    assert_allclose(given().log_prob(at_mean), plain.log_prob(X), rtol=1e-12)
    assert_allclose(given().transition_over([0.5, 3.0], np.tile(AT, (2, 1))), plain.transition_over([0.5, 3.0]))


@pytest.mark.slow
def test_the_rest_of_a_fit_goes_with_inputs(tmp_path: Path) -> None:
    X = drawn_inputs((12, 9, 15, 8))
    few: dict[str, Any] = {"observation": sm.GaussianMixture(1), "max_iter": 4, "start": "free"}
    effects = ChainInputEffects(transitions=["b"], emissions=True, first_state=["a"], ridge=1.0)
    model = ContinuousTimeHMM(2, n_init=2, input_effects=effects, warm_start=True, **few).fit(X)
    assert model.input_names_ == ("time", "a", "b")
    assert len(model.starts_) == 2
    assert_array_equal(model.generator_slopes_[:, :, 0], np.zeros((2, 2)))
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert_allclose(loaded.log_prob(X), model.log_prob(X), rtol=1e-12)
    other = model.reorder([1, 0])
    assert_allclose(other.log_prob(X), model.log_prob(X), rtol=1e-10)
    assert_array_equal(other.generator_slopes_, model.generator_slopes_[::-1, ::-1])
    assert_allclose(loaded.fit(X).log_prob(X), model.fit(X).log_prob(X), rtol=1e-12)
    twice, weights = X.take([0, 1, 2, 2, 3]), [1.0, 1.0, 2.0, 1.0]
    started = {"warm_start": True, "max_iter": 3, "input_effects__ridge": 1.0}
    of_weights, of_copies = given(**started).fit(X, sample_weight=weights), given(**started).fit(twice)
    assert_allclose(of_weights.generator_slopes_, of_copies.generator_slopes_, atol=1e-8)
    assert_allclose(of_weights.emission_slopes_, of_copies.emission_slopes_, atol=1e-8)
    known = [np.where(np.arange(len(x)) % 5 == 0, 1, -1) for x in X]
    states = ContinuousTimeHMM(2, n_init=1, input_effects=effects, **few).fit(X, states=known).history_["objective"]
    assert (np.diff(states) > -1e-10).all()
    training = ChainTraining(frozen=Frozen(transition=[0]))
    frozen = ContinuousTimeHMM(2, n_init=1, input_effects=effects, training=training, **few).fit(X)
    assert_array_equal(frozen.generator_slopes_[0], np.zeros((2, 2)))
    assert frozen.generator_slopes_[1, 0, 1] != 0.0
    ordered = given(warm_start=True, topology=np.array(GENERATOR != 0), max_iter=3).fit(X)
    assert_array_equal(ordered.generator_[0, 2], 0.0)
    assert_array_equal(ordered.generator_slopes_[0, 2], [0.0, 0.0])


def test_refused_in_words() -> None:
    X, model = drawn_inputs((6, 5)), given()
    plain = sm.Sequences(X.items, times=X.times)
    all_effects = ChainInputEffects(transitions=True)
    refused: list[tuple[Any, str]] = [
        (lambda: ContinuousTimeHMM(2, input_effects=all_effects).fit(plain), "but the sequences have none; pass Seq"),
        (lambda: model.score(plain), "reads the inputs a, b, but the sequences have no inputs"),
        (lambda: ContinuousTimeHMM(2, input_effects=ChainInputEffects(emissions=["time"])).fit(X), "names 'time'"),
        (lambda: ContinuousTimeHMM(2, input_effects=all_effects, start="stationary").fit(X), "pass start='free'"),
        (
            lambda: ContinuousTimeHMM(2, input_effects=all_effects).partial_fit(plain),
            "the sequences have none; pass Seq",
        ),
        (lambda: model.stationary_, "no stationary distribution"),
        (lambda: model.transition_slopes_, "see generator_slopes_"),
        (lambda: given(generator_slopes=OF_RATES + 1.0), "slopes on its diagonal"),
        (lambda: given(generator_slopes=OF_RATES[:, :2]), r"generator_slopes have shape \(3, 2, 2\)"),
        (lambda: given(inputs=None), "pass the value of each input"),
        (lambda: model.stream().update([0.0], time=1.0), "reads the inputs time, a, b"),
        (lambda: model.transition_over([1.0, 2.0, 3.0], [[20.0, 0.0]] * 2), "one for each of 2 inputs"),
        (lambda: given(generator_slopes=None).generator_at([[0.0, 0.0]]), "see generator_"),
    ]
    for call, match in refused:
        with pytest.raises((ValueError, AttributeError), match=match):
            call()
