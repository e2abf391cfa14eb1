"""Training by gradient finds what EM finds, within the same bounds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels import HMM, AutoregressiveGaussian, Categorical, GaussianMixture, Sequences
from seqmodels.hmm import HSMM, ChainInputEffects, ChainTraining, ContinuousTimeHMM, Frozen, MarkovSwitchingAR
from seqmodels.hmm.emissions import emission_of
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.hmm.learning import gradient
from seqmodels.hmm.learning.gradient import log_densities
from seqmodels.hmm.learning.initialise import starts
from seqmodels.hmm.semi_markov.durations import CategoricalDurations, LogarithmicDurations, NegativeBinomialDurations
from seqmodels.observations import Observation, PseudoFrames
from tests.hmm.learning.test_em import CPU, F64, deal, symbols, vectors
from tests.hmm.test_inputs import emitted
from tests.made import made

OPTIONS: dict[str, Any] = {"dtype": "float64", "algorithm": "gradient", "training__lr": 0.1}


def runs(seed: int = 0) -> list[np.ndarray]:
    """States that stay for a while."""
    rng = np.random.default_rng(seed)
    states = [np.repeat(rng.integers(3, size=3), 4)[:n] for n in (12, 11, 9) * 6]  # short: a pass costs by the longest
    return [10 + 3 * z[:, None] * [1, -0.5] + rng.normal(size=(len(z), 2)) for z in states]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("observation", [GaussianMixture(1), GaussianMixture(1, "full")], ids=repr)
def test_vectors_reach_the_objective_of_em(observation: Observation, length: Any) -> None:
    x = runs()
    em = HMM(3, observation=observation, length=length, dtype="float64", tol=0.0, max_iter=60, n_init=1).fit(x)
    ours = made(HMM, 3, observation=observation, length=length, max_iter=100, **OPTIONS).fit(x)
    assert abs(ours.history_["objective"].iloc[-1] - em.history_["objective"].iloc[-1]) < 1e-3
    assert_allclose(ours.means_, em.means_, atol=0.02)
    assert_allclose(np.c_[ours.transition_, ours.final_].sum(1), 1, rtol=1e-12)


def test_symbols_reach_the_objective_of_em_with_its_priors() -> None:
    x = [np.clip(frames[:, 0] // 3, 0, 4).astype(int) for frames in runs()]
    kind: dict[str, Any] = {"observation": Categorical(0.5), "pseudocount": 0.3}
    em = made(HMM, 3, dtype="float64", tol=0.0, max_iter=60, **kind).fit(x)
    ours = made(HMM, 3, max_iter=100, **OPTIONS, **kind).fit(x)
    assert abs(ours.history_["objective"].iloc[-1] - em.history_["objective"].iloc[-1]) < 1e-3
    assert_allclose(ours.history_["log_prob"].iloc[-1], ours.score(x), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("observation", "kind"), [(GaussianMixture(1), "reals"), (Categorical(0.5), "symbols")])
def test_regressions_on_inputs_reach_the_objective_of_em_with_its_priors(observation: Observation, kind: str) -> None:
    x = emitted(kind, 1, (15,) * 12)
    given: dict[str, Any] = {
        "input_effects__emissions": ["heat"],
        "input_effects__transitions": ["noise"],
        "input_effects__first_state": ["heat"],
    }
    given |= {"observation": observation, "input_effects__ridge": 1.0, "pseudocount": 0.3}
    em = made(HMM, 2, dtype="float64", tol=0.0, max_iter=60, n_init=1, **given).fit(x)
    ours = made(HMM, 2, max_iter=120, **OPTIONS, **given).fit(x)
    assert abs(ours.history_["objective"].iloc[-1] - em.history_["objective"].iloc[-1]) < 1e-3
    assert ours.n_parameters_ == em.n_parameters_
    for name in ("emission_slopes_", "transition_slopes_", "initial_slopes_"):
        assert_allclose(getattr(ours, name), getattr(em, name), atol=0.05)
        assert ((getattr(ours, name) == 0) == (getattr(em, name) == 0)).all()
    assert_allclose(ours.history_["log_prob"].iloc[-1], ours.score(x), rtol=1e-12)
    in_float32 = ours.clone().set_params(dtype="float32", max_iter=20).fit(x)
    assert_allclose(in_float32.score(x), ours.clone().set_params(max_iter=20).fit(x).score(x), atol=1e-3)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("prior", [None, PseudoFrames(5.0, 0.2, 0.5)])
def test_a_covariance_that_states_share_stays_one(prior: PseudoFrames | None) -> None:
    x, observation = runs(), GaussianMixture(1, "tied", prior=prior)
    em = HMM(3, observation=observation, dtype="float64", tol=0.0, max_iter=60).fit(x)
    ours = made(HMM, 3, observation=observation, max_iter=100, **OPTIONS).fit(x)
    assert abs(ours.history_["objective"].iloc[-1] - em.history_["objective"].iloc[-1]) < 1e-3
    stream = ours.stream()  # reads each state's own row
    assert_allclose([stream.update(frame) for frame in x[0]], ours.log_prob_steps(x[:1])[0], rtol=1e-9)


@pytest.mark.slow
def test_regressions_share_a_covariance_and_have_no_intercept_if_told_so() -> None:
    rng, observation = np.random.default_rng(0), AutoregressiveGaussian(1, "tied", intercept=False)
    x = [rng.normal(size=(30, 2)) for _ in range(12)]
    for item in x:
        slopes = np.repeat(rng.permutation([0.95, -0.95]), 15)
        for t in range(1, len(item)):
            item[t] += slopes[t] * item[t - 1]
    em = HMM(2, observation=observation, dtype="float64", tol=0.0, max_iter=60).fit(x)
    ours = made(HMM, 2, observation=observation, max_iter=100, **OPTIONS).fit(x)
    for model in (em, ours):
        _, intercept, shape, *_ = model.observation_.unpack(model.parameters_.table, 2)
        assert torch.equal(shape[0], shape[1])
        assert not intercept.any()
        assert model.covariances_.shape == (2, 2)
        assert model.n_parameters_ == 3 + 2 * 4 + 3 + 2 + 3  # chain, coefficients, covariance, first steps
    after_first = [np.mean([steps[1:] for steps in model.log_prob_steps(x)]) for model in (em, ours)]
    assert abs(after_first[0] - after_first[1]) < 1e-3


def test_an_autoregression_is_scored_as_it_was_trained() -> None:
    x = runs()
    em = HMM(2, observation=AutoregressiveGaussian(2), dtype="float64", max_iter=40).fit(x)
    ours = made(HMM, 2, observation=AutoregressiveGaussian(2), max_iter=80, **OPTIONS).fit(x)
    *_, first_mean, first_shape = ours.observation_.unpack(ours.parameters_.table, 2)
    assert torch.equal(first_mean[0], first_mean[1])
    assert torch.equal(first_shape[0], first_shape[1])
    assert ours.score(x) > em.score(x) - 1e-3
    trained = ours.history_["log_prob"].iloc[-2]  # a mean over the last steps, which hardly move
    assert abs(trained - ours.score(x)) < 1e-3


def visits() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    states = [np.repeat([0, 1, 0], rng.integers(2, 5, 3)) for _ in range(5)]
    return [3.0 * z[:, None] + rng.normal(size=(len(z), 1)) for z in states]


ONE: dict[str, Any] = {"observation": GaussianMixture(1), "n_init": 1}
CHAINS: dict[str, Callable[..., HiddenChainModel]] = {
    "poisson": partial(HSMM, 2, durations="poisson", max_duration=6, length="stop", **ONE),
    "categorical": partial(HSMM, 2, durations="categorical", max_duration=4, duration_pseudocount=1.0, **ONE),
    "logarithmic": partial(HSMM, 2, durations="logarithmic", max_duration=6, left_censored=True, **ONE),
    "rates": partial(ContinuousTimeHMM, 2, start="stationary", **ONE),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", CHAINS)
def test_durations_and_rates_reach_the_objective_of_em(name: str) -> None:
    x = visits()
    X: Any = Sequences(x, times=[np.cumsum(0.5 + np.arange(len(i)) % 3) for i in x]) if name == "rates" else x
    em = CHAINS[name](tol=1e-7, max_iter=60).fit(X)
    ours = CHAINS[name](max_iter=70, algorithm="gradient", training=ChainTraining(lr=0.1)).fit(X)
    # Of few visits EM raises rates slowly, so that it may be behind after as many steps.
    assert -1e-3 < ours.history_["objective"].iloc[-1] - em.history_["objective"].iloc[-1] < 3e-3
    assert_allclose(ours.history_["log_prob"].iloc[-1], ours.score(X), rtol=1e-12)
    assert ours.n_parameters_ == em.n_parameters_


@pytest.mark.slow
def test_deviations_from_a_mean_are_trained_with_their_first_steps() -> None:
    x, options = visits(), {"order": 1, "n_init": 1, "switching_variance": True}
    em = MarkovSwitchingAR(2, tol=1e-7, **options).fit(x)
    ours = MarkovSwitchingAR(2, max_iter=70, algorithm="gradient", training=ChainTraining(lr=0.1), **options).fit(x)
    assert em.score(x) - 1e-3 < ours.score(x) < em.score(x) + 0.05  # EM leaves the Gaussian of the first steps
    assert_allclose(ours.history_["log_prob"].iloc[-1], ours.score(x), rtol=1e-12)


TIED: dict[str, Any] = {"training__tied": [0, 0, 1], "training__frozen": Frozen(transition=[1], emission=[2])}
HELD: dict[str, Callable[..., HiddenChainModel]] = {
    "prior": partial(HMM, 3, observation=GaussianMixture(1, prior=PseudoFrames(9.0)), pseudocount=0.3),
    "inputs": partial(HMM, 3, observation=GaussianMixture(1), input_effects=ChainInputEffects(emissions=True)),
    "durations": partial(HSMM, 3, durations="poisson", max_duration=6, observation=GaussianMixture(1)),
    "rates": partial(ContinuousTimeHMM, 3, observation=GaussianMixture(1)),
    "deviations": partial(MarkovSwitchingAR, 3, order=1, switching_ar=True, start="free"),
}


@pytest.mark.parametrize("name", HELD)
def test_tied_and_frozen_parameters_reach_the_objective_of_em(name: str) -> None:
    x, held = visits(), TIED
    if name == "durations":
        held = {"training__tied": [0, 0, 1], "tied_durations": [0, 1, 1], "training__frozen": Frozen(durations=[0])}
    times = {"times": [np.cumsum(0.5 + np.arange(len(i)) % 3) for i in x]} if name == "rates" else {}
    inputs = {"inputs": [np.sin(np.arange(len(i))) for i in x]} if name == "inputs" else {}
    X: Any = Sequences(x, **times, **inputs)
    model = HELD[name](n_init=1, tol=0.0).set_params(**held)
    first, em = (model.clone().set_params(max_iter=n).fit(X) for n in (0, 40))
    ours = model.clone().set_params(max_iter=40, algorithm="gradient", training__lr=0.1).fit(X)
    assert abs(ours.history_["objective"].iloc[-1] - em.history_["objective"].iloc[-1]) < 8e-3
    assert ours.n_parameters_ == em.n_parameters_
    assert_allclose(ours.means_[0], ours.means_[1], rtol=1e-12)
    if name == "durations":
        assert_allclose(ours.durations_[0], first.durations_[0], rtol=1e-12)
        assert_allclose(ours.durations_[1], ours.durations_[2], rtol=1e-12)
        return
    rows = "generator_" if name == "rates" else "transition_"
    for parameters, row in ((rows, 1), ("means_", 2)):
        assert_allclose(getattr(ours, parameters)[row], getattr(first, parameters)[row], rtol=1e-12)
    if name == "inputs":
        assert_allclose(ours.emission_slopes_, em.emission_slopes_, atol=0.02)
        assert (ours.emission_slopes_[2] == 0).all()


def test_numbers_of_durations_go_anywhere_and_come_back() -> None:
    numbers = torch.tensor([[-4.0, 3.0], [0.5, -2.0]], dtype=F64)
    for family in (NegativeBinomialDurations(5), CategoricalDurations(2)):
        table = family.of_unbounded(numbers)
        family.check(table)
        assert_allclose(family.of_unbounded(family.unbounded(table)), table, rtol=1e-12)
    log_p = LogarithmicDurations(5).of_unbounded(numbers[:, :1])
    assert_allclose(log_p.exp(), 1 / (1 + (-numbers[:, :1]).exp()), rtol=1e-12)
    assert_allclose(LogarithmicDurations(5).unbounded(log_p), numbers[:, :1], rtol=1e-9)


def test_zeros_stay_zero() -> None:
    x = runs()
    given: dict[str, Any] = {"means": [[10, 10], [13, 9], [16, 8.0]], "covariances": np.ones((3, 2))}
    a = [[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.1, 0.0, 0.9]]
    model = made(HMM.from_parameters, [0.5, 0.5, 0.0], a, **given, warm_start=True, max_iter=20, **OPTIONS)
    before = model.score(x)
    model.fit(x)
    assert (model.transition_[np.array(a) == 0] == 0).all()
    assert model.initial_[2] == 0
    assert model.score(x) > before + 0.1
    assert model.transition_[0, 1] not in (0.0, 0.1)
    emission = [[0.5, 0.5, 0.0], [0.0, 0.4, 0.6]]
    symbols = made(HMM.from_parameters, [1.0, 0.0], np.full((2, 2), 0.5), emission=emission, warm_start=True, **OPTIONS)
    symbols.set_params(max_iter=5).fit([np.array([0, 1, 2, 2, 1]), np.array([1, 1, 1, 2])])
    assert symbols.emission_[0, 2] == symbols.emission_[1, 0] == 0
    assert_allclose(symbols.emission_.sum(1), 1, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.*min_covariance")
def test_floors_hold() -> None:
    centres = np.random.default_rng(0).normal(size=(3, 2))
    x = [np.repeat(centres, 4, axis=0)[: len(frames)] + 1e-4 * frames for frames in runs()]
    floor = GaussianMixture(1, min_covariance=0.01)
    model = made(HMM, 3, observation=floor, max_iter=60, **OPTIONS).fit(x)
    assert model.history_["floor_hits"].iloc[-1] > 0
    assert (model.covariances_[:, 0] >= 0.01 * model.encoding_.scale**2 * (1 - 1e-12)).all()


def test_weights_no_steps_and_other_data() -> None:
    x = runs()
    plain: dict[str, Any] = {"observation": GaussianMixture(1), "max_iter": 5, **OPTIONS}
    twice, repeated = made(HMM, 2, **plain), made(HMM, 2, **plain)
    twice.fit(x[:2], sample_weight=[2.0, 1.0])
    assert np.isfinite(twice.history_["objective"].iloc[-1])
    untouched = made(HMM, 2, **(plain | {"max_iter": 0})).fit(x)
    em = HMM(2, observation=GaussianMixture(1), dtype="float64", max_iter=0, n_init=1).fit(x)
    assert_allclose(untouched.history_["log_prob"], em.history_["log_prob"], rtol=1e-12)
    torch.testing.assert_close(untouched.parameters_.table, em.parameters_.table, rtol=1e-12, atol=1e-12)
    repeated.fit(x[:2])
    again = made(HMM, 2, **plain).fit(x[:2])
    assert_allclose(repeated.parameters_.table, again.parameters_.table, rtol=1e-9, atol=1e-12)  # but for rounding


def test_what_cannot_be_is_refused() -> None:
    for bad in ({"algorithm": "sgd"}, {"training__lr": 0.0}):
        with pytest.raises(ValueError, match=next(iter(bad)).removeprefix("training__")):
            made(HMM, 2, **bad).fit(runs())
    model = made(HMM.from_parameters, [1.0], [[1.0]], emission=[[0.0, 1.0]], warm_start=True, **OPTIONS)
    with pytest.raises(ValueError, match="sequence 1 has probability zero"):
        model.fit([np.array([1, 1]), np.array([0, 1])])


@pytest.mark.parametrize(
    "observation",
    [
        GaussianMixture(2),
        GaussianMixture(2, "full"),
        AutoregressiveGaussian(2),
        AutoregressiveGaussian(1, "diag"),
        Categorical(),
    ],
    ids=repr,
)
def test_densities_are_those_of_em_however_they_are_chunked(
    observation: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = symbols(0) if observation.emits == "symbols" else vectors(0, "plain")
    emission, (block, *_) = deal(x, observation)
    table = next(starts(emission, [block], 3, has_final=False, generators=[torch.Generator().manual_seed(0)])).table
    expected, gradients = emission.log_prob(table, block.x, block.past, F64), []
    for kept in (gradient.MAX_KEPT, 0):
        monkeypatch.setattr(gradient, "MAX_KEPT", kept)
        monkeypatch.setattr(gradient, "RECOMPUTED", 5 * table.numel())
        leaf = table.clone().requires_grad_()
        found = log_densities(emission, leaf, block.x, block.past)
        assert_allclose(found.detach(), expected, rtol=1e-9, atol=1e-9)
        found.square().sum().backward()
        gradients.append(leaf.grad)
    assert_allclose(*gradients, rtol=1e-9, atol=1e-9)


def test_missing_values_are_summed_out() -> None:
    x = vectors(1, "missing")
    emission, (block, *_) = deal(x, GaussianMixture(2))
    table = next(starts(emission, [block], 3, has_final=False, generators=[torch.Generator().manual_seed(0)])).table
    leaf = table.clone().requires_grad_()
    log_b = log_densities(emission, leaf, block.x, None)
    assert_allclose(log_b.detach(), emission.log_prob(table, block.x, None, F64), rtol=1e-9, atol=1e-9)
    log_b.sum().backward()
    assert torch.isfinite(leaf.grad).all()
    assert block.x.device == CPU
    assert emission_of(GaussianMixture(2), 2).observation.sums_out_missing
