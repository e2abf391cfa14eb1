"""HSMMs given inputs: against every segmentation of tiny data, an HMM, and differences of log-likelihoods."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy import stats

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.hmm import HSMM, Frozen
from seqmodels.hmm.semi_markov import expectations
from seqmodels.hmm.semi_markov.duration_regression import DurationRegression
from tests.hmm.test_inputs import _goes_through
from tests.made import made

Array = NDArray[np.float64]
Paths = dict[tuple[int, ...], float]
ALL = {f"input_effects__{name}": True for name in ("transitions", "emissions", "first_state")}
LATER = np.arange(3.0)


def given(lengths: tuple[int, ...], seed: int = 0) -> sm.Sequences:
    """Three levels; an input moves them, and another one says which level comes next."""
    rng = np.random.default_rng(seed)
    items, inputs = [], []
    for n in lengths:
        u, states = rng.normal(size=(n, 2)), [int(rng.integers(3))]
        while len(states) < n:
            if rng.random() < 0.35:
                states.append((states[-1] + (1 if u[len(states), 0] + 0.5 * rng.normal() > 0 else 2)) % 3)
            else:
                states.append(states[-1])
        items.append(2.0 * np.array(states)[:, None] + 0.5 * u[:, 1:] + 0.6 * rng.normal(size=(n, 1)))
        inputs.append(5.0 + 2.0 * u)
    return sm.Sequences(items, inputs=inputs, input_names=["turn", "move"])


def driven(
    *, left_censored: bool = False, absorbing: bool = False, durations: bool = False, alone: bool = False
) -> HSMM:
    """An HSMM of three states in which everything depends on inputs, durations if they shall, or these alone."""
    rng = np.random.default_rng(4)
    transition = np.array([[0.0, 0.6, 0.4], [0.7, 0.0, 0.3], [0.2, 0.8, 0.0]])
    if absorbing:
        transition = np.array([[0.0, 0.6, 0.4], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    pmf = rng.dirichlet(np.ones(3), 3)
    pmf[0] = [0.0, 0.3, 0.7]
    options: dict[str, Any] = {"left_censored": left_censored, "topology": transition > 0 if absorbing else "ergodic"}
    of_rest = {
        "transition_slopes": 0.4 * rng.normal(size=(3, 3, 2)),
        "emission_slopes": 0.2 * rng.normal(size=(3, 1, 2)),
        "initial_slopes": 0.3 * rng.normal(size=(3, 2)),
    }
    options |= {} if alone else of_rest
    if durations:
        options["duration_slopes"] = 0.4 * rng.normal(size=(3, 2))
    return HSMM.from_parameters(
        [0.5, 0.3, 0.2],
        transition,
        durations=pmf,
        means=[[0.0], [2.0], [4.0]],
        covariances=[[1.0], [0.5], [0.8]],
        inputs={"turn": 5.0, "move": 5.0},
        **options,
    )


def segmentations(
    first_pmf: Array, pmf: Array, b: Array, first: Array, a: Array, begin: int = 0, before: int = -1
) -> Iterator[tuple[tuple[int, ...], float]]:
    """The states of every segmentation of the rest of a sequence, and its probability; the last may be cut off.

    ``pmf (T, 3, 3)`` is that of segments that begin at each step.
    """
    n = len(b)
    for j in range(3):
        p_d, enters = (first_pmf[j], first[j]) if begin == 0 else (pmf[begin, j], a[begin, before, j])
        for d in range(1, min(3, n - begin) + 1 if enters else 0):
            p = enters * b[begin : begin + d, j].prod()
            if begin + d == n:
                yield (j,) * d, p * p_d[d - 1 :].sum()
                continue
            for path, rest in segmentations(first_pmf, pmf, b, first, a, begin + d, j) if p_d[d - 1] else ():
                yield (j,) * d + path, p * p_d[d - 1] * rest


def all_paths(model: HSMM, item: Array, inputs: Array) -> Paths:
    """p(path, x) of every path of states, in raw units; a missing step has density one."""
    reads, z = model.input_effects, inputs - 5.0
    means = model.means_[:, 0, 0] + (z @ model.emission_slopes_[:, 0].T if reads.emissions else 0.0 * z[:, :1])
    b = stats.norm.pdf(item, means, np.sqrt(model.covariances_[:, 0, 0]))
    first = model.initial_at(inputs[:1])[0] if reads.first_state else model.initial_
    a = model.transition_at(inputs) if reads.transitions else np.tile(model.transition_, (len(z), 1, 1))
    pmf = np.tile(model.durations_, (len(z), 1, 1))
    if reads.durations:
        pmf = pmf * np.exp((z @ model.duration_slopes_.T)[:, :, None] * LATER)
        pmf = pmf / pmf.sum(2, keepdims=True)
    first_pmf = pmf[0]
    if model.left_censored:  # of the steps left, where a segment is cut at any of its steps
        first_pmf = first_pmf[:, ::-1].cumsum(1)[:, ::-1] / (first_pmf @ [1, 2, 3])[:, None]
    of_path: Paths = {}
    for path, p in segmentations(first_pmf, pmf, np.where(np.isnan(item), 1.0, b), first, a):
        of_path[path] = of_path.get(path, 0.0) + p
    return {path: p for path, p in of_path.items() if p > 0}


def shares(paths: Paths) -> Array:
    """p(z_t | x), ``(T, 3)``."""
    of_states = sum(p * np.eye(3)[list(path)] for path, p in paths.items())
    return np.asarray(of_states / sum(paths.values()))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("absorbing", [False, True])
@pytest.mark.parametrize("left_censored", [False, True])
@pytest.mark.parametrize("of_durations", ["", "durations too", "durations alone"])
def test_all_is_as_the_list_of_segmentations_says(
    of_durations: str, left_censored: bool, absorbing: bool, tmp_path: Path
) -> None:
    X, alone = given((6, 1, 4)), of_durations == "durations alone"
    model = driven(left_censored=left_censored, absorbing=absorbing, durations=of_durations != "", alone=alone)
    assert X.inputs is not None
    if not alone:
        a = model.transition_at(X.inputs[0])
        assert_allclose(a.sum(2), 1.0)
        assert np.ptp(a[:, 0, 1]) > 0.1
        assert not np.diagonal(a, axis1=1, axis2=2)[:, :2].any()
    if of_durations:
        assert np.ptp(model.durations_at(X.inputs[0])[:, 1, 0]) > 0.1
        assert_allclose(model.durations_at([[5.0, 5.0]])[0], model.durations_, rtol=1e-12)
        model.save(tmp_path / "model.safetensors")
        assert_allclose(sm.load(tmp_path / "model.safetensors").log_prob(X), model.log_prob(X), rtol=1e-14)
        assert_allclose(model.reorder([2, 0, 1]).log_prob(X), model.log_prob(X), rtol=1e-12)
    labels: list[Any] = [[0, (1, 2)], [(0, 1, 2)], [(0, 1), 2]]
    labels = labels if absorbing else [[0, (1, 2), 2], [(0, 1, 2)], [(0, 1), (1, 2)]]
    expected = [all_paths(model, x, u) for x, u in zip(X, X.inputs, strict=True)]
    assert_allclose(model.log_prob(X), [np.log(sum(each.values())) for each in expected], rtol=1e-10)
    found = zip(X, X.inputs, model.posterior(X), model.filter(X), model.log_prob_steps(X), expected, strict=True)
    for item, inputs, gamma, belief, steps, paths in found:
        assert_allclose(gamma, shares(paths), rtol=0, atol=1e-10)
        before = [all_paths(model, item[:t], inputs[:t]) for t in range(1, len(item) + 1)]
        assert_allclose(belief, [shares(each)[-1] for each in before], rtol=0, atol=1e-10)
        assert_allclose(np.cumsum(steps), [np.log(sum(each.values())) for each in before], rtol=1e-10)
        stream = model.stream()
        assert_allclose([stream.update(x, inputs=u) for x, u in zip(item, inputs, strict=True)], steps, rtol=1e-10)
    every = zip(model.decode(X), model.decode(X, k=50), model.align(X, labels), labels, expected, strict=True)
    for path, best, aligned, groups, paths in every:
        in_order = sorted(paths, key=lambda p: -paths[p])
        assert tuple(path.tolist()) == in_order[0]
        assert [tuple(each.states.tolist()) for each in best] == in_order[:50]
        assert_allclose([each.log_prob for each in best], np.log([paths[p] for p in in_order[:50]]), rtol=1e-10)
        through = next(p for p in in_order if _goes_through(p, [np.atleast_1d(g).tolist() for g in groups]))
        assert tuple(aligned.states.tolist()) == through
        assert_allclose(aligned.log_prob, np.log(paths[through]), rtol=1e-10)
    second = [sorted(paths, key=lambda p: paths[p])[-2 if len(paths) > 1 else -1] for paths in expected]
    log_p = model.path_log_prob(X, second)
    assert_allclose(log_p, [np.log(paths[p]) for paths, p in zip(expected, second, strict=True)], rtol=1e-10)
    drawn = model.sample_states(X, 4000)
    for of_sequence, paths in zip(drawn, expected, strict=True):
        assert_allclose(np.eye(3)[of_sequence].mean(0), shares(paths), rtol=0, atol=0.04)


@pytest.mark.parametrize("durations", [False, True])
def test_what_comes_next_is_the_ratio_of_two_sums(durations: bool) -> None:
    X, model = given((5,)), driven(durations=durations)
    assert X.inputs is not None
    item, inputs = X.items[0], X.inputs[0]
    exact, (of_states,) = (f(X[:1], 3, inputs=[inputs[:3]]) for f in (model.forecast, model.forecast_states))
    steps = of_states._chain
    assert steps is not None
    weights = steps.first
    assert set(exact.frame["method"]) == {"exact"}
    for h in range(1, 4):  # the mean of step h, from the shares of its states where no step ahead says anything
        ahead, seen = np.concatenate([inputs, inputs[:h]]), np.concatenate([item, np.full((h, 1), np.nan)])
        paths = all_paths(model, seen, ahead)
        means = model.means_[:, 0, 0] + model.emission_slopes_[:, 0] @ (ahead[-1] - 5.0)
        row = exact.frame[exact.frame["step"] == h]
        assert_allclose(row["mean"], shares(paths)[-1] @ means, rtol=1e-8)
        assert_allclose(of_states.states[h - 1], shares(paths)[-1], rtol=1e-8)
        weights = steps.advance(weights, h - 1) if h > 1 else weights
        assert_allclose(weights.view(3, 3).sum(1), shares(paths)[-1], rtol=1e-8)
    paths = np.stack(model.forecast(X[:1], 3, inputs=[inputs[:3]], n=3000).paths)
    assert_allclose(paths[0].mean(0)[:, 0], exact.frame["mean"], atol=0.15)
    (one,) = model.sample(prefix=item[:2], length=3, inputs=inputs)
    assert_allclose(one[:2], item[:2])
    assert len(one) == 5


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("left_censored", [False, True])
def test_geometric_durations_are_exactly_an_hmm(left_censored: bool) -> None:
    X = given((30, 1, 25), 1)
    options: dict[str, Any] = {"observation": sm.GaussianMixture(1), "max_iter": 4, "n_init": 1, "tol": 0.0, **ALL}
    model = made(HSMM, 3, durations="geometric", left_censored=left_censored, **options).fit(X)
    hmm = made(sm.HMM, 3, start="free", dtype="float64", **options).fit(X)
    assert hmm.n_parameters_ == model.n_parameters_
    hmm.parameters_ = model.parameters_
    assert_allclose(model.log_prob(X), hmm.log_prob(X), rtol=1e-11)
    for found, expected in zip(model.posterior(X), hmm.posterior(X), strict=True):
        assert_allclose(found, expected, rtol=0, atol=1e-10)
    after, of_hmm = (
        each.set_params(warm_start=True, max_iter=1).fit(X) for each in (model, hmm)
    )  # one EM step from the same parameters
    for name in ("initial_", "transition_", "means_", "transition_slopes_", "emission_slopes_", "initial_slopes_"):
        assert_allclose(getattr(after, name), getattr(of_hmm, name), rtol=1e-7, atol=1e-9, err_msg=name)


CHOSEN: dict[str, Any] = {
    "observation": sm.GaussianMixture(1),
    "durations": "poisson",
    "max_duration": 8,
    "n_init": 1,
    "tol": 0.0,
    "pseudocount": 0.1,
    "input_effects__transitions": ["turn"],
    "input_effects__emissions": ["move"],
    "input_effects__first_state": ["turn"],
    "input_effects__ridge": 0.5,
}


def log_posterior(model: HSMM, X: sm.Sequences, at: torch.Tensor) -> float:
    """What ``fit`` maximises at unconstrained numbers, from ``log_prob``, which knows nothing of gradients."""
    objective, _, _ = model._objective_at(model._setting().examples(Data.of(X, None, None)))
    other = copy.copy(model)
    other.parameters_ = objective.coordinates.at(at)[0]
    prior = objective.prior.pseudocount.log_prior(other.parameters_)
    return float(other.log_prob(X).sum() + prior + objective.prior.inputs.log_prior(other.parameters_))


@pytest.mark.slow
@pytest.mark.parametrize("left_censored", [False, True])
@pytest.mark.parametrize("of_durations", [None, ["move"]])
def test_em_rises_to_where_the_gradient_is_zero(of_durations: list[str] | None, left_censored: bool) -> None:
    X, chosen = given((60,) * 4, 2), {**CHOSEN, "input_effects__durations": of_durations}
    model = made(HSMM, 3, left_censored=left_censored, max_iter=60, **chosen).fit(X)
    assert np.diff(model.history_["objective"]).min() > -1e-11
    objective, _, _ = model._objective_at(model._setting().examples(Data.of(X, None, None)))
    n = objective.coordinates.n
    n_slopes = 0 if of_durations is None else 3
    # Rows, first state and states, each with slopes.
    assert n == model.n_parameters_ == 3 * (1 + 1) + (2 + 2) + 3 * 4 + n_slopes
    step = 1e-4 * torch.eye(n, dtype=torch.float64)
    far = torch.tensor(0.05 * np.random.default_rng(0).normal(size=n))
    for at, atol in ((torch.zeros_like(far), 2e-2), (far, 1e-5)):
        slopes = [(log_posterior(model, X, at + e) - log_posterior(model, X, at - e)) / 2e-4 for e in step]
        expected = torch.zeros_like(far) if atol > 1e-3 else objective.gradient(at)
        assert_allclose(slopes, expected, rtol=1e-5, atol=atol)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("left_censored", [False, True])
@pytest.mark.parametrize("family", ["poisson", "negative-binomial", "logarithmic", "categorical"])
def test_em_of_durations_given_inputs(family: str, left_censored: bool) -> None:
    """The objective never falls, and its gradient is that of differences, with tied durations and known states."""
    X = given((40, 1, 30), 4)
    options = {**CHOSEN, "durations": family, "left_censored": left_censored, "input_effects__durations": True}
    model = made(HSMM, 3, max_iter=12, tied_durations=[0, 1, 0], **options)
    model.fit(X, states=[np.where(np.arange(len(x)) == 3, 1, -1) for x in X])
    assert np.diff(model.history_["objective"]).min() > -1e-11
    slopes = model.duration_slopes_
    assert slopes.all()
    assert slopes[0].tolist() == slopes[2].tolist() != slopes[1].tolist()
    objective, _, _ = model._objective_at(model._setting().examples(Data.of(X, None, None)))
    rng = np.random.default_rng(1)
    at, step = (torch.tensor(0.02 * rng.normal(size=objective.coordinates.n)) for _ in range(2))
    up, down = (objective.value_and_gradient(at + sign * 1e-3 * step)[0] for sign in (1, -1))
    assert_allclose((up - down) / 2e-3, float(objective.gradient(at) @ step), rtol=1e-5)
    moved = objective.coordinates.at(at)[0].duration_slopes
    assert moved is not None
    assert moved[0].tolist() == moved[2].tolist() != torch.as_tensor(slopes[0]).tolist()
    kept = copy.copy(model).set_params(warm_start=True, max_iter=2, training__frozen=["durations"]).fit(X)
    assert_allclose(kept.duration_slopes_, slopes, rtol=1e-15)
    assert not np.allclose(kept.emission_slopes_, model.emission_slopes_, rtol=1e-9)


@pytest.mark.parametrize("left_censored", [False, True])
def test_the_m_step_of_durations_has_the_gradient_of_the_objective(
    left_censored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gradient, by the slopes of states that share durations, is that of differences; steps share inputs."""
    X, weights, tied = given((30, 1, 20, 40), 4), [1.0, 2.0, 1.0, 2.0], [0, 1, 0]
    assert X.inputs is not None
    X = sm.Sequences(X.items, inputs=[4 * np.round(u / 4) for u in X.inputs], input_names=X.input_names)
    options = {**CHOSEN, "left_censored": left_censored, "tied_durations": tied, "input_effects__durations": True}
    model = made(HSMM, 3, max_iter=3, **options).fit(X, sample_weight=weights)
    seen = list[DurationRegression]()
    monkeypatch.setattr(
        expectations, "DurationRegression", lambda *args: (seen.append(DurationRegression(*args)), seen[-1])[1]
    )
    copy.copy(model).set_params(warm_start=True, max_iter=1).fit(X, sample_weight=weights)
    p, (objective, _, _) = model.parameters_, model._objective_at(model._setting().examples(Data.of(X, None, None)))
    log_pmf = model._emission.durations(p.table).log_pmf
    none, groups = torch.zeros(0, log_pmf.shape[1]).double(), [[0, 2], [1]]
    assert p.duration_slopes is not None
    assert len(seen) == 2

    def value(alike: list[int], column: int, change: float) -> float:
        other, slopes = copy.copy(model), p.duration_slopes.clone()
        slopes[alike, column] += change
        other.parameters_ = replace(p, duration_slopes=slopes)
        return float(other.log_prob(X) @ weights + objective.prior.inputs.log_prior(other.parameters_))

    for regression, alike in zip(seen, groups, strict=True):
        _, gradient, _ = regression.terms(log_pmf[alike[0]], none, none, p.duration_slopes[alike[0]])
        expected = [(value(alike, u, 1e-4) - value(alike, u, -1e-4)) / 2e-4 for u in range(2)]
        assert_allclose(gradient, expected, rtol=1e-5)
    rng = np.random.default_rng(1)
    at, step = (torch.tensor(0.02 * rng.normal(size=objective.coordinates.n)) for _ in range(2))
    up, down = (objective.value_and_gradient(at + sign * 1e-3 * step)[0] for sign in (1, -1))
    assert_allclose((up - down) / 2e-3, float(objective.gradient(at) @ step), rtol=1e-5)


def test_slopes_of_durations_are_found() -> None:
    """Two states in turn, whose Poisson rates depend on an input of a segment's first step."""
    rng, items, inputs = np.random.default_rng(0), [], []
    for _ in range(30):
        u, states = rng.normal(size=(80, 1)), list[int]()
        while len(states) < 80:
            state = 0 if not states else 1 - states[-1]
            rate = [4.0, 9.0][state] * np.exp([0.5, -0.3][state] * u[len(states), 0])
            states += [state] * int(1 + rng.poisson(rate))
        items.append(3.0 * np.array(states[:80])[:, None] + rng.normal(size=(80, 1)))
        inputs.append(10.0 + 2.0 * u)
    X = sm.Sequences(items, inputs=inputs, input_names=["heat"])
    chosen: dict[str, Any] = {"durations": "poisson", "max_duration": 40, "n_init": 1, "tol": 1e-9}
    model = made(HSMM, 2, observation=sm.GaussianMixture(1), input_effects__durations=True, **chosen).fit(X)
    model = model.reorder("mean")
    frame = model.standard_errors(X).query("name == 'duration_slopes'")
    assert frame["feature"].tolist() == ["heat", "heat"]
    assert_allclose(model.duration_slopes_[:, 0], [0.25, -0.15], atol=3 * float(frame["standard_error"].max()))
    assert float(frame["standard_error"].max()) < 0.03
    low, high = model.profile_interval(X, "duration_slopes", 0, "heat")
    assert_allclose([low, high], frame[["ci_low", "ci_high"]].iloc[0], atol=5e-3)
    values = [7.0, 10.0, 13.0]
    effects = model.effects(X, "heat", "durations", values=values)
    expected = model.durations_at([[v] for v in values]) @ np.arange(1.0, 41)
    assert_allclose(effects["estimate"], expected.ravel(), rtol=1e-10)
    assert (effects["ci_low"] < effects["estimate"]).all()
    assert sm.plot.effects(effects).get_ylabel() == "mean duration in steps"
    shares = model.effects(X, "heat", "stationary", values=values)  # of two states that follow each other
    assert_allclose(shares["estimate"], (expected / expected.sum(1, keepdims=True)).ravel(), rtol=1e-10)
    draw = model.sample(1, length=4000, inputs={"heat": np.full(4000, 13.0)}, random_state=1)[0]
    again = model.decode(sm.Sequences([draw], inputs=[np.full((4000, 1), 13.0)], input_names=["heat"]))[0]
    assert_allclose([np.mean(again == 0)], [(expected / expected.sum(1, keepdims=True))[2, 0]], atol=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["gradient", "stepwise"])
def test_other_algorithms_find_slopes_of_durations(algorithm: str) -> None:
    X = given((40,) * 6, 2)
    options = {**CHOSEN, "input_effects__durations": ["move"]}
    by_em = made(HSMM, 3, max_iter=40, **options).fit(X)
    rounds = {"max_iter": 150, "training__lr": 0.05} if algorithm == "gradient" else {"max_iter": 20}
    other = made(HSMM, 3, algorithm=algorithm, **{**options, **rounds}).fit(X)
    by_em, other = by_em.reorder("mean"), other.reorder("mean")
    assert_allclose(other.score(X), by_em.score(X), atol=5e-3)
    assert_allclose(other.duration_slopes_, by_em.duration_slopes_, atol=0.03)
    partly = made(HSMM, 3, **options).partial_fit(X[:3]).partial_fit(X[3:])
    assert partly.duration_slopes_[:, list(partly.input_names_).index("move")].all()


@pytest.mark.slow
def test_standard_errors_are_those_of_a_numerical_hessian() -> None:
    """Of transitions and their slopes; what is frozen has no row, and is as it was."""
    X = given((60,) * 4, 2)
    model = made(HSMM, 3, max_iter=10, **CHOSEN).fit(X)
    before = model.means_, model.emission_slopes_, model.initial_, model.initial_slopes_, model.duration_rates_
    frozen = Frozen(initial=True, emission=True, durations=True)
    model.set_params(training__frozen=frozen, warm_start=True, max_iter=200, tol=1e-11).fit(X)
    after = model.means_, model.emission_slopes_, model.initial_, model.initial_slopes_, model.duration_rates_
    for old, new in zip(before, after, strict=True):
        assert_allclose(new, old, rtol=1e-14)
    frame, eye = model.standard_errors(X), 1e-3 * torch.eye(6, dtype=torch.float64)
    assert model.n_parameters_ == 6
    assert frame["name"].tolist() == ["transition"] * 6 + ["transition_slopes"] * 3
    assert frame["note"].eq("").all()
    hessian = np.empty((6, 6))
    for i, j in itertools.combinations_with_replacement(range(6), 2):
        signs = itertools.product((1, -1), (1, -1))
        terms = [a * b * log_posterior(model, X, a * eye[i] + b * eye[j]) for a, b in signs]
        hessian[i, j] = hessian[j, i] = sum(terms) / 4e-6
    covariance = np.linalg.inv(-hessian)[3:, 3:]  # of slopes for standardised inputs
    scale = model.input_scaling_.scale[list(model.input_names_).index("turn")]
    slopes = frame.query("name == 'transition_slopes'")
    assert_allclose(slopes["standard_error"], np.sqrt(np.diag(covariance)) / scale, rtol=1e-4)
    assert_allclose(slopes["estimate"], model.transition_slopes_[[0, 1, 2], [2, 2, 1], 0])
    low, high = model.profile_interval(X, "transition_slopes", 0, (2, "turn"))
    assert low < slopes["estimate"].iloc[0] < high
    assert_allclose((high - low) / 2, 1.96 * slopes["standard_error"].iloc[0], rtol=0.2)


@pytest.mark.slow
def test_weights_known_states_several_starts_and_warm_starts() -> None:
    X = given((30, 20, 1), 3)
    options: dict[str, Any] = {**CHOSEN, "max_iter": 3, "pseudocount": 0.0, "input_effects__ridge": 0.0}
    options["input_effects__first_state"] = None
    model = made(HSMM, 3, **options).fit(X).set_params(warm_start=True, max_iter=2)
    weighted = copy.copy(model).fit(X, sample_weight=[2.0, 1.0, 0.0])
    halved = copy.copy(model).fit(X[:2], sample_weight=[1.0, 0.5])
    for name in ("transition_slopes", "table_slopes"):
        found, expected, before = (getattr(each.parameters_, name) for each in (weighted, halved, model))
        assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
        assert not torch.allclose(found, before, rtol=1e-6)
    states = [np.full(len(x), -1) for x in X]
    states[0][4:6] = 2
    known = made(HSMM, 3, **{**options, "n_init": 2}).fit(X, states=states)
    assert len(known.starts_) == 2
    assert np.isfinite(known.log_prob(X)).all()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("durations", "observation"),
    [
        ("negative-binomial", sm.Categorical(0.01)),
        ("categorical", sm.Columns([(sm.Poisson(), 1), (sm.Bernoulli(0.1), 1)])),
    ],
)
def test_other_emissions_files_and_orders_of_states(observation: Any, durations: str, tmp_path: Path) -> None:
    X, symbols = given((25, 15), 5), isinstance(observation, sm.Categorical)
    level = [np.clip(np.round(x[:, 0]), 0, 5).astype(int) for x in X]
    items = level if symbols else [np.stack([x, x > 2], 1).astype(float) for x in level]
    Z = sm.Sequences(items, inputs=X.inputs, input_names=X.input_names)
    chosen = {**CHOSEN, "observation": observation, "durations": durations, "max_iter": 8, "input_effects__ridge": 1.0}
    model = made(HSMM, 3, length="given", **chosen).fit(Z)
    assert np.diff(model.history_["objective"]).min() > -1e-10
    assert model.emission_slopes_.shape == (3, 6 if symbols else 2, 2)
    model.save(tmp_path / "model.safetensors")
    assert_allclose(sm.load(tmp_path / "model.safetensors").log_prob(Z), model.log_prob(Z), rtol=1e-12)
    swapped = model.reorder([2, 0, 1])
    assert_allclose(swapped.log_prob(Z), model.log_prob(Z), rtol=1e-12)
    assert_allclose(swapped.durations_, model.durations_[[2, 0, 1]])
    assert not swapped.transition_slopes_[[0, 1, 2], [1, 0, 0]].any()  # those of the references
    objective, _, _ = model._objective_at(model._setting().examples(Data.of(Z, None, None)))
    rng = np.random.default_rng(1)
    at, step = (torch.tensor(0.02 * rng.normal(size=objective.coordinates.n)) for _ in range(2))
    up, down = (objective.value_and_gradient(at + sign * 1e-3 * step)[0] for sign in (1, -1))
    assert_allclose((up - down) / 2e-3, float(objective.gradient(at) @ step), rtol=1e-5)


def test_refused_in_words() -> None:
    X = given((12, 9), 6)
    fitted = made(HSMM, 3, max_iter=1, **CHOSEN).fit(X)
    plain = sm.Sequences(X.items)
    refused: list[tuple[Any, str]] = [
        (lambda: made(HSMM, 3, **CHOSEN).fit(plain), "reads the inputs turn, move, but the sequences have no inputs"),
        (lambda: fitted.score(plain), "reads the inputs turn, move, but the sequences have no inputs"),
        (lambda: made(HSMM, 3, length="stop", **CHOSEN).fit(X), "say how long it is"),
        (
            lambda: made(HSMM, 3, **{**CHOSEN, "durations": "geometric", "input_effects__durations": True}).fit(X),
            "geometric durations are transitions of states to themselves; name the inputs as transitions",
        ),
        (
            lambda: made(sm.HMM, 3, input_effects__durations=True).fit(X),
            "an HMM has no durations apart from its transitions",
        ),
        (lambda: fitted.durations_at([[0.0, 0.0]]), "durations depend on no inputs; see durations_"),
        (lambda: fitted.effects(X, "turn", "durations"), "no input changes the durations"),
        (
            lambda: made(HSMM, 3, durations="categorical", algorithm="variational", input_effects__durations=True).fit(
                X
            ),
            "have no conjugate prior",
        ),
        (
            lambda: copy.copy(fitted).set_params(warm_start=True, input_effects__durations=["turn"]).fit(X),
            "durations=\\['turn'\\] differs from what was fitted",
        ),
        (
            lambda: made(HSMM, 3, **CHOSEN).partial_fit(plain),
            "reads the inputs turn, move, but the sequences have no inp",
        ),
        (lambda: fitted.forecast_states(X), "reads the inputs turn, move; pass inputs="),
        (lambda: fitted.stream().update([0.0]), "reads the inputs turn, move; pass inputs="),
        (lambda: fitted.cursor().distribution(fitted.cursor().start()), "those of the next step are not known"),
        (lambda: fitted.set_params(warm_start=True, input_effects__emissions=None).fit(X), "differs from what was fit"),
    ]
    for call, match in refused:
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(AttributeError, match="transitions depend on inputs"):
        _ = fitted.stationary_
    with pytest.raises(AttributeError, match="durations that depend on no inputs"):
        _ = fitted.duration_slopes_
    with pytest.raises(AttributeError, match="durations depend on inputs"):
        _ = driven(durations=True).stationary_


def test_tables_that_do_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X = driven(durations=True), given((6,))
    monkeypatch.setattr("seqmodels.common.main_memory.main_memory", lambda: 1000.0)
    with pytest.raises(ValueError, match=r"durations of 6 steps that depend on inputs would take .* smaller max_dur"):
        model.log_prob(X)
    # Sixty steps of the same inputs take three tables: segments that the end cuts off are counted one by one.
    alike = sm.Sequences([np.zeros((60, 1))], inputs=[np.full((60, 2), 5.0)], input_names=X.input_names)
    monkeypatch.setattr("seqmodels.common.main_memory.main_memory", lambda: 4000.0)
    assert np.isfinite(model.log_prob(alike)).all()
    with pytest.raises(ValueError, match="durations of 6 steps"):
        model.log_prob(X)
