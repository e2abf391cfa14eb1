"""HMMs given inputs: transitions that they drive."""

from __future__ import annotations

import copy
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.common import storage
from seqmodels.data import hmm_draws
from tests.made import made

LENGTHS = (9, 1, 14, 6)


def drawn(
    seed: int, lengths: tuple[int, ...] = LENGTHS, slope: float = 2.0, *, symbols: bool = False, scale: float = 3.0
) -> sm.Sequences:
    """Two states that are left the more readily the larger an input is; a second input says nothing."""
    rng = np.random.default_rng(seed)
    items, inputs = [], []
    for n in lengths:
        u, z, states = rng.normal(size=n), int(rng.integers(2)), []
        for t in range(n):
            if t and rng.random() < 1 / (1 + np.exp(2.0 - slope * u[t])):
                z = 1 - z
            states.append(z)
        values = rng.normal(size=(n, 1)) + 4.0 * np.array(states)[:, None]
        items.append(np.where(rng.random(n) < 0.1, 2, states) if symbols else values)
        inputs.append(np.stack([20.0 + scale * u, rng.normal(size=n)], 1))
    return sm.Sequences(items, inputs=inputs, input_names=["heat", "noise"])


def fitted(X: sm.Sequences, **options: Any) -> sm.HMM:
    vectors = X.kind == "vectors"
    observation = sm.GaussianMixture(1) if vectors else sm.Categorical(0.01)
    chosen = {
        "max_iter": 5,
        "n_init": 1,
        "input_effects__transitions": True,
        "dtype": "float64",
        "observation": observation,
    }
    return made(sm.HMM, 2, **(chosen | options)).fit(X)


@pytest.mark.parametrize("symbols", [False, True])
def test_all_ways_of_scoring_and_every_path_agree(symbols: bool) -> None:
    X = drawn(0, symbols=symbols)
    model = fitted(X)
    assert X.inputs is not None
    for item, inputs, steps in zip(X, X.inputs, model.log_prob_steps(X), strict=True):
        stream = model.stream()
        streamed = [stream.update(x, inputs=u) for x, u in zip(item, inputs, strict=True)]
        np.testing.assert_allclose(steps, streamed, atol=1e-10)
        transitions = model.transition_at(inputs)
        table = model.parameters_.table.unsqueeze(1)
        encoded = torch.as_tensor(model.encoding_.encode(item))
        log_b = model.observation_.log_prob(table, encoded).T.numpy()
        log_b = log_b + np.broadcast_to(model.encoding_.log_det(item), len(item))[:, None]
        if len(item) > 9:
            continue
        total = 0.0
        for path in itertools.product(range(2), repeat=len(item)):
            p = model.initial_[path[0]] * np.exp(log_b[0, path[0]])
            for t in range(1, len(item)):
                p *= transitions[t, path[t - 1], path[t]] * np.exp(log_b[t, path[t]])
            total += p
        assert steps.sum() == pytest.approx(np.log(total), abs=1e-10)


def test_em_only_rises_and_recovers_what_was_drawn() -> None:
    X = drawn(1, (400,) * 5)
    model = fitted(X, max_iter=60, tol=1e-7)
    assert np.diff(model.history_["objective"]).min() > -1e-12
    slopes = model.transition_slopes_  # (K, K, U), of raw inputs
    leaving = slopes[[0, 1], [1, 0]]
    np.testing.assert_allclose(leaving[:, 0], 2.0 / 3.0, atol=0.15)
    assert np.abs(leaving[:, 1]).max() < 0.2
    at_mean = model.transition_at({"heat": [20.0], "noise": [0.0]})[0]
    np.testing.assert_allclose(at_mean[[0, 1], [1, 0]], 1 / (1 + np.exp(2.0)), atol=0.03)
    one = fitted(X, max_iter=60, tol=1e-7, input_effects__transitions=["heat"])
    plain = fitted(X, max_iter=60, tol=1e-7, input_effects__transitions=None, start="free")
    assert (plain.n_parameters_, one.n_parameters_, model.n_parameters_) == (7, 9, 11)
    assert plain.score(X) < one.score(X) - 0.02
    assert one.score(X) <= model.score(X) + 1e-7
    test = drawn(2, (400,))
    assert one.score(test) > plain.score(test)


def test_the_states_of_sequences() -> None:
    X = drawn(3)
    model = fitted(X)
    for gamma, belief in zip(model.posterior(X), model.filter(X), strict=True):
        np.testing.assert_allclose(gamma.sum(1), 1.0)
        np.testing.assert_allclose(belief[-1], gamma[-1], atol=1e-12)
    paths = model.decode(X)
    assert (model.path_log_prob(X, paths) <= model.log_prob(X)).all()
    draws = model.sample_states(X, 4000)
    share = np.mean(draws[0] == 1, axis=0)
    np.testing.assert_allclose(share, model.posterior(X)[0][:, 1], atol=0.04)
    swapped = model.reorder([1, 0])
    np.testing.assert_allclose(swapped.log_prob(X), model.log_prob(X))
    np.testing.assert_allclose(swapped.transition_slopes_[0, 1], model.transition_slopes_[1, 0])


def joint(model: sm.HMM, item: Any, inputs: np.ndarray) -> dict[tuple[int, ...], float]:
    """log p(x, path) of every path of states of one sequence, in raw units."""
    transitions, k = model.transition_at(inputs), len(model.initial_)
    encoded = torch.as_tensor(model.encoding_.encode(item))
    log_b = model.observation_.log_prob(model.parameters_.table.unsqueeze(1), encoded).T.numpy()
    log_b = log_b + np.broadcast_to(model.encoding_.log_det(item), len(item))[:, None]
    result = {}
    for path in itertools.product(range(k), repeat=len(item)):
        log_p = np.log(model.initial_[path[0]]) + log_b[range(len(item)), path].sum()
        steps = zip(transitions[1:], path, path[1:], strict=False)
        result[path] = log_p + sum(np.log(a[i, j]) for a, i, j in steps)
    return result


@pytest.mark.parametrize("topology", ["ergodic", "left-to-right"])
def test_the_best_paths_and_alignments_are_those_of_all_paths(topology: str) -> None:
    X = drawn(12, (7, 1, 5, 7))
    options: dict[str, Any] = {
        "observation": sm.GaussianMixture(1),
        "input_effects__transitions": True,
        "topology": topology,
    }
    model = made(sm.HMM, 3, **options, max_iter=2, n_init=1, dtype="float64").fit(X)
    assert X.inputs is not None
    labels: list[Any] = [[0, (1, 2)], [(0, 1, 2)], [(0, 1), (1, 2), 2], [0, 1, (0, 2)]]
    labels = labels if topology == "ergodic" else [[0, (1, 2)], [0], [(0, 1), (1, 2), 2], [0, 1, 2]]
    found = zip(X, X.inputs, model.decode(X, k=40), model.align(X, labels), labels, strict=True)
    for item, inputs, paths, aligned, groups in found:
        with np.errstate(divide="ignore"):
            log_p = joint(model, item, inputs)
        possible = sorted((p for p in log_p if np.isfinite(log_p[p])), key=lambda p: -log_p[p])
        assert [tuple(path.states.tolist()) for path in paths] == possible[:40]
        np.testing.assert_allclose([path.log_prob for path in paths], [log_p[p] for p in possible[:40]], atol=1e-10)
        through = [p for p in possible if _goes_through(p, [np.atleast_1d(g).tolist() for g in groups])]
        assert tuple(aligned.states.tolist()) == through[0]
        assert aligned.log_prob == pytest.approx(log_p[through[0]], abs=1e-10)
        assert aligned.ends[-1] == len(item)
        parts = zip(aligned.starts, aligned.ends, groups, strict=True)
        assert all(np.isin(aligned.states[a:b], group).all() and b > a for a, b, group in parts)


def _goes_through(path: tuple[int, ...], groups: list[list[int]]) -> bool:
    """Whether a path can be cut into one part or more steps for each group."""
    if not groups:
        return not path
    lengths = itertools.takewhile(lambda n: path[n - 1] in groups[0], range(1, len(path) + 1))
    return any(_goes_through(path[n:], groups[1:]) for n in lengths)


def test_what_is_saved_is_what_was_fitted(tmp_path: Path) -> None:
    X = drawn(4)
    model = fitted(X)
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert loaded.input_names_ == ("heat", "noise") == loaded.measure_.inputs
    for x, y in zip(model.log_prob_steps(X), loaded.log_prob_steps(X), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
    again = loaded.set_params(warm_start=True, max_iter=1, tol=0.0).fit(X)
    assert again.history_["objective"].iloc[0] == pytest.approx(model.history_["objective"].iloc[-1], abs=1e-9)


def test_other_inputs_than_those_of_before_are_no_warm_start() -> None:
    X = drawn(4)
    model = fitted(X, input_effects__transitions=["heat"], warm_start=True)
    plain = fitted(X, input_effects__transitions=None, warm_start=True, start="free")
    changes: list[tuple[sm.HMM, dict[str, Any]]] = [
        (model, {"input_effects__transitions": None}),
        (model, {"input_effects__transitions": ["noise"]}),
        (model, {"input_effects__emissions": ["heat"]}),
        (model, {"input_effects__first_state": True}),
        (plain, {"input_effects__transitions": ["heat"]}),
    ]
    for fitted_model, change in changes:
        other = copy.copy(fitted_model).set_params(**change)
        with pytest.raises(ValueError, match=r"(differs from what was fitted|was fitted with the inputs heat, and)"):
            other.fit(X)
    both = fitted(X, warm_start=True)
    with pytest.raises(ValueError, match=r"fitted with the inputs heat, noise, and .* now name noise, so"):
        both.set_params(input_effects__transitions=["noise"]).fit(X)
    assert np.isfinite(model.fit(X).score(X))


def test_a_sequence_given_its_past_and_its_inputs() -> None:
    X = drawn(5, (12,))
    model = fitted(X)
    head, tail = X.segments([(0, 0, 7)]), X.segments([(0, 7, 12)], past=None)
    whole = model.log_prob_steps(X)[0]
    np.testing.assert_allclose(model.log_prob_steps(tail)[0], whole[7:], atol=1e-12)
    assert X.inputs is not None
    stream = model.stream(past=head.items[0], past_inputs=X.inputs[0][:7])
    assert stream.update(X.items[0][7], inputs=X.inputs[0][7]) == pytest.approx(whole[7], abs=1e-10)
    np.testing.assert_allclose(model.posterior(tail)[0], model.posterior(X)[0][7:], atol=1e-12)


def test_what_comes_next() -> None:
    X = drawn(6, (10, 7))
    model = fitted(X)
    assert X.inputs is not None
    inputs = X.inputs[0]
    next_step = model.predict_next(X.items[0][:4], inputs=inputs[:5])
    steps = model.log_prob_steps(X)[0]
    assert float(next_step.log_prob(torch.tensor(X.items[0][4]))) == pytest.approx(steps[4], abs=1e-6)
    by_name = {"heat": inputs[:5, 0], "noise": inputs[:5, 1]}
    torch.testing.assert_close(
        model.predict_next(X.items[0][:4], inputs=by_name).mean, next_step.mean, rtol=1e-12, atol=1e-12
    )
    stream = model.stream()
    for t in range(4):
        stream.update(X.items[0][t], inputs={"heat": inputs[t, 0], "noise": inputs[t, 1]})
    torch.testing.assert_close(stream.predict_next(inputs=inputs[4]).mean, next_step.mean, rtol=1e-12, atol=1e-12)

    ahead = [np.array([[35.0, 0.0], [20.0, 0.0], [5.0, 0.0]])] * 2
    exact = model.forecast(X, 3, inputs=ahead)
    assert set(exact.frame["method"]) == {"exact"}
    belief = model.filter(X)[1][-1]
    forecast = model.forecast_states(X, 3, inputs=ahead)[1]
    for h, a in enumerate(model.transition_at(ahead[1])):
        belief = belief @ a
        np.testing.assert_allclose(forecast.states[h], belief, atol=1e-10)
        row = exact.frame[(exact.frame["sequence"] == 1) & (exact.frame["step"] == h + 1)]
        assert float(row["mean"].iloc[0]) == pytest.approx(float(belief @ model.means_[:, 0, 0]), abs=1e-6)
    paths = np.stack(model.forecast(X, 3, inputs=ahead, n=4000).paths)
    np.testing.assert_allclose(paths[1].mean(0)[:, 0], exact.frame[exact.frame["sequence"] == 1]["mean"], atol=0.2)
    with pytest.raises(ValueError, match="pass inputs="):
        model.forecast(X, 3)
    with pytest.raises(ValueError, match=r"pass \(3, 2\)"):
        model.forecast(X, 3, inputs=[each[:2] for each in ahead])


def test_states_ahead_do_not_depend_on_the_inputs_of_emissions() -> None:
    X = drawn(6, (30, 20))
    options: dict[str, Any] = {"input_effects__transitions": False, "input_effects__emissions": ["heat"]}
    model = fitted(X, length="given", **options)
    ahead = np.array([[35.0], [20.0], [5.0]])
    forecast = model.forecast_states(X, 3, inputs=[ahead] * 2)[1]
    assert model.input_scaling_ is not None
    belief, off_mean = model.filter(X)[1][-1], ahead - model.input_scaling_.mean
    for h in range(3):
        belief = belief @ model.transition_
        np.testing.assert_allclose(forecast.states[h], belief, atol=1e-10)
        means = model.means_[:, 0] + model.emission_slopes_ @ off_mean[h]
        np.testing.assert_allclose(forecast.mean[h], belief @ means, rtol=1e-6)


def test_drawn_given_inputs() -> None:
    X = drawn(7, (300,), scale=3.0)
    model = fitted(X, max_iter=30)
    inputs = np.tile([20.0, 0.0], (60, 1))
    change = np.array([8.0, 0.0])
    calm = np.concatenate(model.sample(40, inputs=inputs - change))
    busy = np.concatenate(model.sample(40, inputs=inputs + change))
    turns = [np.mean(np.abs(np.diff(x[:, 0])) > 2.5) for x in (calm, busy)]
    assert turns[1] > turns[0] + 0.15
    (one,) = model.sample(prefix=X.items[0][:3], length=4, inputs=inputs[:7])
    assert len(one) == 7
    assert np.allclose(one[:3], X.items[0][:3])
    assert len(list(model.generate(inputs=inputs[:5]))) == 5


def test_known_at_the_step_they_drive() -> None:
    """Inputs of later steps change nothing, and none drives the transition into the first."""
    X = drawn(8, (20,))
    model = fitted(X)
    assert X.inputs is not None
    before = model.log_prob_steps(X)[0]
    changed = X.inputs[0].copy()
    changed[5:] += 10.0
    after = model.log_prob_steps(X.with_inputs([changed], X.input_names))[0]
    np.testing.assert_allclose(before[:5], after[:5], rtol=1e-12, atol=1e-12)
    assert before[5] != after[5]
    changed = X.inputs[0].copy()
    changed[0] += 10.0
    np.testing.assert_allclose(
        before, model.log_prob_steps(X.with_inputs([changed], X.input_names))[0], rtol=1e-12, atol=1e-12
    )


def test_topology_frozen_priors_and_weights() -> None:
    X = drawn(9, (60, 60))
    ordered = fitted(X, topology="left-to-right")
    assert ordered.transition_[1, 0] == 0.0 == ordered.transition_at([[30.0, 1.0]])[0, 1, 0]
    assert np.diff(ordered.history_["objective"]).min() > -1e-12
    frozen = fitted(X, training__frozen=["transition"])
    assert not frozen.transition_slopes_.any()
    ridged = fitted(X, input_effects__ridge=1e6)
    assert np.abs(ridged.transition_slopes_).max() < 1e-3
    weak, strong = (fitted(X, pseudocount=c, max_iter=20) for c in (0.0, 20.0))
    for model in (ridged, strong):
        assert np.diff(model.history_["objective"]).min() > -1e-12
    assert np.abs(strong.transition_ - 0.5).max() < np.abs(weak.transition_ - 0.5).max()
    twice = sm.HMM(
        2,
        input_effects=sm.hmm.ChainInputEffects(transitions=True),
        max_iter=5,
        n_init=1,
        observation=sm.GaussianMixture(1),
        dtype="float64",
    )
    twice.fit(X, sample_weight=[2.0, 0.0])
    once = twice.clone().fit(X[:1])
    assert twice.transition_slopes_.shape == once.transition_slopes_.shape
    states = [np.full(len(x), -1) for x in X]
    states[0][:5] = 1
    known = twice.clone().fit(X, states=states)
    assert np.isfinite(known.score(X))


def test_refused_in_words() -> None:
    X = drawn(10, symbols=True)
    model = fitted(X)
    plain = sm.Sequences(X.items)
    refused: list[tuple[Any, str]] = [
        (lambda: fitted(plain), "the sequences have none; pass Sequences"),
        (lambda: model.score(plain), "reads the inputs heat, noise, but the sequences have no inputs"),
        (
            lambda: fitted(X, input_effects__transitions=["cold"]),
            "reads the inputs cold, but the sequences have the inputs heat",
        ),
        (lambda: fitted(X, length="stop"), "say how long it is"),
        (lambda: fitted(X, algorithm="variational", observation=sm.Categorical()), "have no conjugate prior"),
        (lambda: fitted(X, start="stationary"), "pass start='free'"),
        (lambda: fitted(X, input_effects__ridge=-1.0), "ridge is -1.0"),
        (
            lambda: sm.HMM(2, input_effects=sm.hmm.ChainInputEffects(transitions=True)).partial_fit(plain),
            "the sequences have none; pass Sequences",
        ),
        (lambda: model.stationary_, "no stationary distribution"),
        (lambda: model.forecast_states(X), "pass inputs="),
        (lambda: model.stream().update(0), "reads the inputs heat, noise; pass inputs="),
        (lambda: model.predict_next([0, 1]), "pass inputs="),
        (lambda: model.sample(length=3), "pass inputs="),
        (lambda: model.cursor().distribution(model.cursor().start()), "those of the next step are not known"),
        (lambda: sm.HMM(2, max_iter=1, n_init=1).fit(X).sample(length=3, inputs=[[0.0]]), "reads no inputs"),
        (lambda: sm.HMM(2, input_effects=sm.hmm.ChainInputEffects(transitions=True)).fit(X, X), "leave y out"),
    ]
    for call, match in refused:
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(AttributeError, match="has transitions that depend on no inputs"):
        _ = fitted(X, input_effects__transitions=None).transition_slopes_


def test_all_paths_of_emissions_given_inputs() -> None:
    X = drawn(3)
    emitting = fitted(X, input_effects__transitions=None, input_effects__emissions=True)
    paths = emitting.decode(X[3:], k=64)[0]  # all of six steps; inputs of emissions do not change how they are found
    joint = emitting.path_log_prob(X[3:], [paths[0].states])
    np.testing.assert_allclose(joint, paths[0].log_prob, atol=1e-10)
    total = np.logaddexp.reduce([path.log_prob for path in paths])
    np.testing.assert_allclose(total, emitting.log_prob(X[3:])[0], atol=1e-10)


def test_who_reads_none_takes_no_notice() -> None:
    X, _ = hmm_draws(6, 20, n_states=2, n_features=2, random_state=0)
    given = X.with_inputs([np.arange(20.0)] * 6)
    models = [sm.HMM(2, max_iter=3, n_init=1).fit(each) for each in (X, given)]
    np.testing.assert_allclose(models[0].log_prob(X), models[1].log_prob(given), rtol=1e-9, atol=1e-9)
    assert models[1].measure_.inputs == ()
    assert "inputs" not in models[1].measure_.to_json()


EMITTED: list[tuple[Any, str]] = [
    (sm.GaussianMixture(1), "reals"),
    (sm.GaussianMixture(1, "full"), "reals"),
    (sm.GaussianMixture(2), "reals"),
    (sm.GaussianMixture(1, prior=sm.observations.PseudoFrames(10), background=0.01), "reals"),
    (sm.GaussianMixture(2, "tied", prior=sm.observations.PseudoFrames(2)), "reals"),
    (sm.AutoregressiveGaussian(2), "reals"),
    (sm.Poisson(), "counts"),
    (sm.Categorical(0.01), "symbols"),
    (sm.Columns([(sm.GaussianMixture(1), 1), (sm.Bernoulli(0.1), 1)]), "mixed"),
]


def emitted(kind: str, seed: int = 0, lengths: tuple[int, ...] = (40, 25, 30)) -> sm.Sequences:
    """Two states, in which an input moves what is emitted one way and the other."""
    rng = np.random.default_rng(seed)
    items, inputs = [], []
    for n in lengths:
        u, z = rng.normal(size=n), np.cumsum(rng.random(n) < 0.2) % 2
        level = np.where(z == 0, 1.0 + 0.8 * u, -1.0 - 0.4 * u)
        reals = np.stack([level, -level], 1) + 0.5 * rng.normal(size=(n, 2))
        bits = (rng.random(n) < 1 / (1 + np.exp(-2 * level))).astype(float)
        items.append(
            {
                "reals": 10.0 + 5.0 * reals,
                "counts": rng.poisson(np.exp(0.7 * level))[:, None].astype(float),
                "symbols": np.minimum(bits + (rng.random(n) < 0.2), 2).astype(int),
                "mixed": np.stack([reals[:, 0], bits], 1),
            }[kind]
        )
        inputs.append(np.stack([rng.normal(size=n), 3.0 + 2.0 * u], 1))
    return sm.Sequences(items, inputs=inputs, input_names=["noise", "heat"])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("observation", "kind"), EMITTED)
def test_emissions_given_inputs(observation: Any, kind: str, tmp_path: Path) -> None:
    X = emitted(kind)
    options: dict[str, Any] = {"input_effects__transitions": ["noise"], "input_effects__emissions": ["heat"]}
    model = fitted(X, observation=observation, max_iter=10, tol=0.0, **options)
    assert np.diff(model.history_["objective"]).min() > -1e-10
    assert X.inputs is not None
    steps = model.log_prob_steps(X)
    for item, inputs, of_sequence in zip(X, X.inputs, steps, strict=True):
        stream = model.stream()
        streamed = [stream.update(x, inputs=u) for x, u in zip(item, inputs, strict=True)]
        np.testing.assert_allclose(of_sequence, streamed, atol=1e-8)
    slopes = model.emission_slopes_
    assert not slopes[:, :, 0].any()
    assert slopes[:, :, 1].any()
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    for pair in zip(steps, loaded.log_prob_steps(X), strict=True):
        np.testing.assert_allclose(*pair, rtol=1e-12, atol=1e-12)
    drawn_items = model.sample(3, inputs=X.inputs[0][:6])
    assert all(len(x) == 6 and np.isfinite(x).all() for x in drawn_items)
    ahead = model.forecast(X, 2, inputs=[u[:2] for u in X.inputs], n=50)
    assert set(ahead.frame["step"]) == {1, 2}
    assert len(model.decode(X)[1]) == len(X.items[1])
    in_float32 = model.clone().set_params(dtype="float32").fit(X)
    np.testing.assert_allclose(in_float32.score(X), model.score(X), atol=1e-3)


def test_regressions_of_each_state_are_recovered() -> None:
    X = emitted("reals", 1, (400,) * 5)
    model = sm.HMM(2, input_effects=sm.hmm.ChainInputEffects(emissions=True), n_init=2, tol=1e-6).fit(X)
    assert repr(model.observation_) == "GaussianMixture(n_components=1)"
    order = np.argsort(-model.means_[:, 0, 0])
    # Where heat is 3: 10 + 5 (1, -1); a unit of heat is half of one of u.
    assert model.input_scaling_ is not None
    off_mean = np.array([0.0, 3.0]) - model.input_scaling_.mean * [0, 1]
    at_three = model.means_[order, 0, 0] + model.emission_slopes_[order, 0] @ off_mean
    np.testing.assert_allclose(at_three, [15.0, 5.0], atol=0.25)
    np.testing.assert_allclose(model.emission_slopes_[order, :, 1], [[2.0, -2.0], [-1.0, 1.0]], atol=0.12)
    assert np.abs(model.emission_slopes_[:, :, 0]).max() < 0.25
    plain = sm.HMM(2, n_init=2, tol=1e-6, observation=sm.GaussianMixture(1)).fit(X)
    test = emitted("reals", 2, (200,) * 5)
    assert model.score(test) > plain.score(test) + 0.1
    assert model.n_parameters_ == plain.n_parameters_ + 2 * 2 * 2


def test_one_state_is_a_regression() -> None:
    X = emitted("reals", 3, (80,))
    model = fitted(X, max_iter=2, input_effects__emissions=True, input_effects__transitions=None).reorder([1, 0])
    one = sm.HMM(1, input_effects=sm.hmm.ChainInputEffects(emissions=True), dtype="float64", max_iter=3, n_init=1).fit(
        X
    )
    assert X.inputs is not None
    x, design = X.items[0], np.concatenate([np.ones((80, 1)), X.inputs[0]], 1)
    coefficients = np.linalg.lstsq(design, x, rcond=None)[0]
    variance = np.mean((x - design @ coefficients) ** 2, axis=0)
    np.testing.assert_allclose(one.emission_slopes_[0], coefficients[1:].T, atol=1e-8)
    np.testing.assert_allclose(one.covariances_[0, 0], variance, atol=1e-8)
    assert one.score(X) == pytest.approx(-0.5 * np.log(2 * np.pi * np.e * variance).sum(), abs=1e-9)
    assert model.emission_slopes_.shape == (2, 2, 2)


@pytest.mark.parametrize("make", [sm.HMM, sm.hmm.ContinuousTimeHMM, partial(sm.hmm.HSMM, max_duration=4)])
def test_tied_states_are_one_regression(make: Any) -> None:
    """With standard errors of least squares, because states that emit the same say nothing of each other."""
    X = emitted("reals", 3, (30, 20))
    options = {"input_effects": sm.hmm.ChainInputEffects(emissions=True), "observation": sm.GaussianMixture(1)}
    model = make(2, training=sm.hmm.ChainTraining(tied=[0, 0]), n_init=1, max_iter=3, **options).fit(X)
    assert X.inputs is not None
    x, design = np.concatenate(X.items), np.insert(np.concatenate(X.inputs), 0, 1.0, axis=1)
    coefficients = np.linalg.lstsq(design, x, rcond=None)[0]
    variance = np.mean((x - design @ coefficients) ** 2, axis=0)
    np.testing.assert_allclose(model.emission_slopes_, [coefficients[1:].T] * 2, atol=1e-8)
    np.testing.assert_allclose(model.covariances_[:, 0], [variance] * 2, atol=1e-8)
    errors = model.standard_errors(X)
    of_slopes = errors["standard_error"][errors["name"] == "emission_slopes"].to_numpy(float).reshape(2, -1)
    expected = np.sqrt(variance[:, None] * np.linalg.inv(design.T @ design).diagonal()[1:]).flatten()
    np.testing.assert_allclose(of_slopes, [expected] * 2, rtol=1e-5)
    free = make(2, n_init=1, max_iter=0, **options).fit(X)
    assert model.n_parameters_ == free.n_parameters_ - 2 * 2 - 2 * 2


def test_a_tied_covariance_is_that_of_the_residuals_of_all_states() -> None:
    """The paths are known, so that the posterior is 0 or 1: each state is least squares over its own frames."""
    X = emitted("reals", 3, (30, 20))
    states = [np.arange(len(x)) % 2 for x in X.items]
    options = {"input_effects": sm.hmm.ChainInputEffects(emissions=True), "n_init": 1, "max_iter": 1}
    model = sm.HMM(2, observation=sm.GaussianMixture(1, "tied"), **options).fit(X, states=states)
    assert X.inputs is not None
    x, design = np.concatenate(X.items), np.insert(np.concatenate(X.inputs), 0, 1.0, axis=1)
    residual = np.empty_like(x)
    for k in (0, 1):
        own = np.concatenate(states) == k
        coefficients = np.linalg.lstsq(design[own], x[own], rcond=None)[0]
        residual[own] = x[own] - design[own] @ coefficients
        np.testing.assert_allclose(model.emission_slopes_[k], coefficients[1:].T, atol=1e-8)
    np.testing.assert_allclose(model.covariances_, residual.T @ residual / len(x), atol=1e-8)
    of_past = sm.HMM(2, observation=sm.AutoregressiveGaussian(1, "tied", ridge=0.0, background=0.0), **options).fit(
        X, states=states
    )
    before, later = np.concatenate([x[:-1] for x in X.items]), np.concatenate([x[1:] for x in X.items])
    design = np.concatenate([before, np.insert(np.concatenate([u[1:] for u in X.inputs]), 0, 1.0, axis=1)], 1)
    residual = np.empty_like(later)
    for k in (0, 1):
        own = np.concatenate([z[1:] for z in states]) == k
        residual[own] = later[own] - design[own] @ np.linalg.lstsq(design[own], later[own], rcond=None)[0]
    np.testing.assert_allclose(of_past.covariances_, residual.T @ residual / len(later), rtol=1e-6)


def test_emissions_refused_in_words() -> None:
    X = emitted("reals")
    with pytest.raises(ValueError, match="'lowrank' is for networks"):
        fitted(X, input_effects__emissions=True, observation=sm.GaussianMixture(1, "lowrank"))
    missing = sm.Sequences([np.where(x > 14, np.nan, x) for x in X], inputs=X.inputs)
    with pytest.raises(ValueError, match="frames without missing values"):
        fitted(missing, input_effects__emissions=True, observation=sm.AutoregressiveGaussian(1))
    assert np.isfinite(fitted(missing, input_effects__emissions=True).score(missing))


def test_files_whose_inputs_do_not_agree_are_refused(tmp_path: Path) -> None:
    X = drawn(11)
    model = fitted(X, input_effects__transitions=["heat"], input_effects__emissions=["noise"])

    def refused(match: str, change: Any) -> None:
        content = model.content()
        change(content)
        storage.write(tmp_path / "model.safetensors", content)
        with pytest.raises(ValueError, match=match):
            sm.load(tmp_path / "model.safetensors")

    refused("are not those that the model reads", lambda c: c["measure"].pop("inputs"))
    refused("are not those that the model reads", lambda c: c.pop("inputs"))
    refused("different names", lambda c: c["inputs"].update(names=["heat"]))
    refused("scales of inputs", lambda c: c["inputs"].update(scale=np.zeros(2)))
    refused(
        "the hyperparameters name",
        lambda c: c["model"]["params"]["input_effects"]["params"].update(transitions=["cold"]),
    )
    refused(
        "the hyperparameters name", lambda c: c["model"]["params"]["input_effects"]["params"].update(transitions=None)
    )
    refused("an HMM has", lambda c: c["state"].pop("table_slopes"))
    refused("should be finite", lambda c: c["state"].update(transition_slopes=np.full((2, 2, 2), np.nan)))
    refused("transition_slopes", lambda c: c["state"].update(transition_slopes=np.zeros((2, 2, 3))))


# -- the first state ---------------------------------------------------------------------------------------------------


def started(seed: int, lengths: tuple[int, ...], slope: float = 1.5) -> sm.Sequences:
    """Two states, of which the first follows an input of the first step; a second input says nothing."""
    rng, items, inputs = np.random.default_rng(seed), [], []
    for n in lengths:
        u, z, states = rng.normal(size=(n, 2)), 0, []
        for t in range(n):
            change = 1 / (1 + np.exp(0.4 - slope * u[0, 0])) if t == 0 else 0.25
            z = 1 - z if rng.random() < change else z
            states.append(z)
        items.append(rng.normal(size=(n, 1)) + 3.0 * np.array(states)[:, None])
        inputs.append(u * [3.0, 1.0] + [20.0, 0.0])
    return sm.Sequences(items, inputs=inputs, input_names=["heat", "noise"])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "others", [{}, {"input_effects__transitions": ["noise"]}, {"input_effects__emissions": ["noise"]}]
)
def test_a_first_state_given_inputs_against_every_path(others: dict[str, Any], tmp_path: Path) -> None:
    X = started(0, (5, 1, 4, 3, 6, 2, 4))
    assert X.inputs is not None
    if not others:  # of the inputs of a sequence those are read that something depends on; cursors take no others
        X = X.with_inputs([u[:, :1] for u in X.inputs], ["heat"])
    model = fitted(
        X,
        **(
            {"input_effects__transitions": None, "input_effects__first_state": ["heat"], "input_effects__ridge": 0.1}
            | others
        ),
    )
    assert model.start_ == "free"
    steps, k = model.log_prob_steps(X), 2
    assert X.inputs is not None
    asked = (model.posterior(X), model.filter(X), model.decode(X, k=3), model.sample_states(X, 3000), steps)
    for item, inputs, gamma, belief, paths, draws, of_steps in zip(X, X.inputs, *asked, strict=True):
        initial = model.initial_at(inputs[:1])[0]
        slopes = model.initial_slopes_[1, 0]
        assert model.input_scaling_ is not None
        heat = inputs[0, 0] - model.input_scaling_.mean[0]
        odds = model.initial_[1] / model.initial_[0] * np.exp(slopes * heat)
        np.testing.assert_allclose(initial, [1 / (1 + odds), odds / (1 + odds)], rtol=1e-10)
        if "input_effects__transitions" in others:
            rows = model.transition_at(inputs)
        else:
            rows = np.broadcast_to(model.transition_, (len(item), k, k))
        means = model.means_[:, 0, 0] * np.ones((len(item), 1))
        if "input_effects__emissions" in others:
            means = means + (inputs - model.input_scaling_.mean) @ model.emission_slopes_[:, 0].T
        deviation = np.sqrt(model.covariances_[:, 0, 0])
        log_b = -0.5 * ((item - means) / deviation) ** 2 - np.log(deviation * np.sqrt(2 * np.pi))
        log_p = {}
        for path in itertools.product(range(k), repeat=len(item)):
            log_p[path] = np.log(initial[path[0]]) + log_b[range(len(item)), path].sum()
            log_p[path] += sum(np.log(a[i, j]) for a, i, j in zip(rows[1:], path, path[1:], strict=False))
        total = np.logaddexp.reduce(list(log_p.values()))
        assert of_steps.sum() == pytest.approx(total, abs=1e-10)
        share = np.array([sum(np.exp(log_p[p] - total) for p in log_p if p[t] == 1) for t in range(len(item))])
        np.testing.assert_allclose(gamma[:, 1], share, atol=1e-10)
        np.testing.assert_allclose(belief[-1], gamma[-1], atol=1e-10)
        best = sorted(log_p, key=lambda path: -log_p[path])[: len(paths)]
        assert [tuple(path.states.tolist()) for path in paths] == best
        np.testing.assert_allclose([path.log_prob for path in paths], [log_p[p] for p in best], atol=1e-10)
        np.testing.assert_allclose((draws == 1).mean(0), share, atol=0.05)
        stream = model.stream()
        streamed = [stream.update(x, inputs=u) for x, u in zip(item, inputs, strict=True)]
        np.testing.assert_allclose(of_steps, streamed, atol=1e-10)
    first = model.predict_next(inputs=X.inputs[0][:1])
    assert float(first.log_prob(torch.tensor(X.items[0][0]))) == pytest.approx(steps[0][0], abs=1e-6)
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    for pair in zip(steps, loaded.log_prob_steps(X), strict=True):
        np.testing.assert_allclose(*pair, rtol=1e-12, atol=1e-12)
    assert np.array_equal(loaded.initial_slopes_, model.initial_slopes_)
    swapped = model.reorder([1, 0])
    np.testing.assert_allclose(swapped.log_prob(X), model.log_prob(X), atol=1e-12)
    np.testing.assert_allclose(swapped.initial_slopes_, -model.initial_slopes_, atol=1e-12)  # to the other state
    in_float32 = model.clone().set_params(dtype="float32").fit(X)
    np.testing.assert_allclose(in_float32.score(X), model.score(X), atol=1e-3)


def test_the_slopes_of_a_first_state_are_recovered() -> None:
    X = started(1, (6,) * 800)
    options: dict[str, Any] = {"input_effects__transitions": None, "max_iter": 60, "tol": 1e-8}
    model = fitted(X, input_effects__first_state=True, **options)
    assert np.diff(model.history_["objective"]).min() > -1e-12
    order = np.argsort(model.means_[:, 0, 0])
    slopes = (model.initial_slopes_[order] - model.initial_slopes_[order[0]])[1]
    np.testing.assert_allclose(slopes, [0.5, 0.0], atol=0.15)
    plain = fitted(X, start="free", **options)
    assert model.n_parameters_ == plain.n_parameters_ + 2
    assert model.score(X) > plain.score(X) + 0.01
    test = started(2, (6,) * 200)
    assert model.score(test) > plain.score(test)
    # Nothing of it hangs on the inputs of later steps.
    changed = [np.concatenate([u[:1], u[1:] + 50.0]) for u in test.inputs or []]
    np.testing.assert_allclose(
        model.log_prob(test.with_inputs(changed, test.input_names)), model.log_prob(test), rtol=1e-12, atol=1e-12
    )
    drawn_items = model.sample(2000, inputs=np.tile([[26.0, 0.0]], (2, 1)))
    near = np.mean([x[0, 0] > 1.5 for x in drawn_items])
    expected = model.initial_at([[26.0, 0.0]])[0] @ (model.means_[:, 0, 0] > 1.5)
    assert near == pytest.approx(expected, abs=0.08)


def test_a_first_state_with_a_past_an_order_a_prior_or_frozen() -> None:
    X = started(3, (9,) * 30)
    X = X.with_inputs([u[:, :1] for u in X.inputs or []], ["heat"])
    options: dict[str, Any] = {"input_effects__transitions": None, "input_effects__first_state": ["heat"]}
    model = fitted(X, **options)
    tails = X.segments([(i, 4, 9) for i in range(30)], past=None)
    whole = model.log_prob_steps(X)
    for tail, steps in zip(model.log_prob_steps(tails), whole, strict=True):
        np.testing.assert_allclose(tail, steps[4:], atol=1e-12)
    assert X.inputs is not None
    exact = model.forecast(X, 2, inputs=[u[:2] for u in X.inputs])
    belief = model.filter(X)[0][-1] @ model.transition_
    row = exact.frame[(exact.frame["sequence"] == 0) & (exact.frame["step"] == 1)]
    assert float(row["mean"].iloc[0]) == pytest.approx(float(belief @ model.means_[:, 0, 0]), abs=1e-6)
    ordered = fitted(X, topology="left-to-right", **options)
    assert ordered.initial_.tolist() == [1.0, 0.0] == ordered.initial_at([[50.0]])[0].tolist()
    assert ordered.n_parameters_ == fitted(X, topology="left-to-right", input_effects__transitions=None).n_parameters_
    assert not fitted(X, training__frozen=["initial"], **options).initial_slopes_.any()
    assert np.abs(fitted(X, input_effects__ridge=1e6, **options).initial_slopes_).max() < 1e-3
    strong = fitted(X, pseudocount=50.0, max_iter=20, **options)
    np.testing.assert_allclose(strong.initial_, 0.5, atol=0.2)
    assert np.diff(strong.history_["objective"]).min() > -1e-12
    twice = fitted(X, warm_start=True, **options)
    before = twice.history_["objective"].iloc[-1]
    assert twice.fit(X).history_["objective"].iloc[0] == pytest.approx(before, abs=1e-9)
    refused: list[tuple[Any, str]] = [
        (lambda: fitted(X, **options, start="uniform"), "leave first_state of input_effects out"),
        (lambda: fitted(X, **options, start="stationary"), "leave first_state of input_effects out"),
        (lambda: fitted(X).initial_at([[0.0]]), "see initial_"),
        (lambda: model.predict_next(), "pass inputs="),
        (lambda: model.forecast_states(X), "pass inputs="),
    ]
    for call, match in refused:
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(AttributeError, match="has a first state that depends on no inputs"):
        _ = fitted(X).initial_slopes_
