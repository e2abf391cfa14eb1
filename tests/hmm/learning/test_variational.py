"""Variational Bayes: its bound by enumeration of paths, that it rises, and states that are not needed."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import digamma, gammaln, logsumexp
from torch.distributions import Dirichlet, Gamma, kl_divergence

import seqmodels as sm
from seqmodels.hmm import ConjugatePrior, Frozen
from seqmodels.inference.chains import log_space
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.forward_backward import forward_backward_pass
from seqmodels.inference.chains.parallel_segments import MARGIN, Segments
from seqmodels.inference.chains.trellis import Trellis
from tests.made import made

SYMBOLS = [np.array([0, 1, 1, 0, 2]), np.array([2, 2, 1, 0])]
FLAT = ConjugatePrior(initial=1.5, transition=0.7, final=0.4, count=2.0)


def variational(n_states: int, **options: Any) -> sm.HMM:
    return made(sm.HMM, n_states, algorithm="variational", **({"dtype": "float64", "n_init": 1} | options))


def log_beta(concentrations: np.ndarray) -> float:
    return float(gammaln(concentrations).sum() - gammaln(concentrations.sum()))


def log_evidence(sequences: list[np.ndarray], k: int, n_symbols: int, *, ends: bool) -> float:
    """``log p(x)``, parameters integrated out in closed form (Dirichlet-multinomial) for every path."""
    first = np.full(k, 1.5)
    rows = np.concatenate([np.full((k, k), 0.7), np.full((k, 1), 0.4)], 1)[:, : k + ends]
    emissions = np.full((k, n_symbols), 2.0 / n_symbols)
    each = [list(itertools.product(range(k), repeat=len(x))) for x in sequences]
    terms = []
    for paths in itertools.product(*each):
        a, b, c = first.copy(), rows.copy(), emissions.copy()
        for x, z in zip(sequences, paths, strict=True):
            a[z[0]] += 1
            np.add.at(b, (z[:-1], z[1:]), 1)
            np.add.at(c, (z, x), 1)
            if ends:
                b[z[-1], k] += 1
        gained = log_beta(a) - log_beta(first)
        gained += sum(log_beta(after) - log_beta(before) for after, before in zip(b, rows, strict=True))
        terms.append(
            gained + sum(log_beta(after) - log_beta(before) for after, before in zip(c, emissions, strict=True))
        )
    return float(logsumexp(terms))


def test_evidences_of_all_sequences_sum_to_one() -> None:
    each = [log_evidence([np.array(x)], 2, 3, ends=False) for x in itertools.product(range(3), repeat=3)]
    assert logsumexp(each) == pytest.approx(0.0, abs=1e-12)


def bound_by_hand(model: sm.HMM, sequences: list[np.ndarray]) -> float:
    """``Σ log Σ_z exp(E log p(x, z)) - KL``, from the hyperparameters of a fitted model that has converged."""
    hyper = {name: np.asarray(values) for name, values in model.posterior_.items()}
    k, ends = len(hyper["initial"]), "final" in hyper
    rows = np.concatenate([hyper["transition"], hyper["final"][:, None]], 1) if ends else hyper["transition"]
    pi, a, b = (digamma(q) - digamma(q.sum(-1, keepdims=True)) for q in (hyper["initial"], rows, hyper["emission"]))
    total = 0.0
    for x in sequences:
        paths = itertools.product(range(k), repeat=len(x))
        total += logsumexp(
            [
                pi[z[0]]
                + sum(a[i, j] for i, j in itertools.pairwise(z))
                + sum(b[i, v] for i, v in zip(z, x, strict=True))
                + (a[z[-1], k] if ends else 0.0)
                for z in paths
            ]
        )
    priors = (np.full(k, 1.5), np.concatenate([np.full((k, k), 0.7), np.full((k, 1), 0.4)], 1)[:, : k + ends])
    for q, p in zip((hyper["initial"], rows, hyper["emission"]), (*priors, np.full((k, 3), 2 / 3)), strict=True):
        total -= float(kl_divergence(Dirichlet(torch.tensor(q)), Dirichlet(torch.tensor(p))).sum())
    return total


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("length", ["given", "stop"])
def test_the_bound_is_that_by_hand_and_below_the_evidence(length: Any) -> None:
    model = variational(2, length=length, training__prior=FLAT, max_iter=300, tol=0).fit(SYMBOLS)
    assert model.lower_bound_ == pytest.approx(bound_by_hand(model, SYMBOLS), rel=1e-8)
    evidence = log_evidence(SYMBOLS, 2, 3, ends=length == "stop")
    assert evidence - 4.0 < model.lower_bound_ < evidence - 1e-3


def test_the_bound_of_tied_and_frozen_states_is_that_by_hand() -> None:
    """An emission that states share has one posterior, and a frozen row is what it is."""
    held = {"training__tied": [0, 0, 1], "training__frozen": Frozen(transition=[1], emission=[2])}
    model = variational(3, length="given", training__prior=FLAT, max_iter=150, tol=0, **held)
    first = model.clone().set_params(max_iter=0).fit(SYMBOLS)
    model.fit(SYMBOLS)
    assert_allclose(model.transition_[1], first.transition_[1], rtol=1e-12)
    assert_allclose(model.emission_[2], first.emission_[2], rtol=1e-12)
    assert_allclose(model.emission_[0], model.emission_[1], rtol=1e-12)
    hyper = {name: np.asarray(values) for name, values in model.posterior_.items()}
    with np.errstate(divide="ignore", invalid="ignore"):  # the frozen row has no concentrations
        pi, a, b = (digamma(q) - digamma(q.sum(-1, keepdims=True)) for q in hyper.values())
    a[1], b[2], total = np.log(model.transition_[1]), np.log(model.emission_[2]), 0.0
    for x in SYMBOLS:
        terms = [
            pi[z[0]] + sum(a[i, j] for i, j in itertools.pairwise(z)) + sum(b[i, v] for i, v in zip(z, x, strict=True))
            for z in itertools.product(range(3), repeat=len(x))
        ]
        total += float(logsumexp(terms))
    free = [(hyper["initial"], 1.5), *((hyper["transition"][i], 0.7) for i in (0, 2)), (hyper["emission"][0], 2 / 3)]
    for q, concentration in free:
        prior = Dirichlet(torch.full((3,), concentration, dtype=torch.float64))
        total -= float(kl_divergence(Dirichlet(torch.tensor(q)), prior))
    assert model.lower_bound_ == pytest.approx(total, rel=1e-8)
    assert np.diff(model.history_["objective"]).min() > -1e-12


TIMED = sm.Sequences(SYMBOLS, times=[np.cumsum(np.arange(1.0, len(x) + 1)) for x in SYMBOLS])
KINDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "HMM": (sm.HMM, ()),
    "HSMM": (partial(sm.hmm.HSMM, durations="categorical", max_duration=3), ("durations",)),
    "ContinuousTimeHMM": (sm.hmm.ContinuousTimeHMM, ()),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_bound_of_what_is_frozen_is_its_log_probability(name: str) -> None:
    make, more = KINDS[name]
    frozen = ("initial", "transition", "emission", *more)
    options: dict[str, Any] = {"algorithm": "variational", "n_init": 1, "dtype": "float64", "length": "given"}
    model = make(2, training=sm.hmm.ChainTraining(frozen=frozen), observation=sm.Categorical(), **options).fit(TIMED)
    assert model.lower_bound_ == pytest.approx(model.log_prob(TIMED).sum(), rel=1e-12)
    drawn = model.sample_posterior(1)[0]
    assert_allclose(drawn.log_prob(TIMED), model.log_prob(TIMED), rtol=1e-12)


def test_a_warm_start_may_freeze_or_free_a_row() -> None:
    model = variational(2, warm_start=True, max_iter=5, tol=0, length="given").fit(SYMBOLS)
    row = model.transition_[0].copy()
    model.set_params(training__frozen=Frozen(transition=[0])).fit(SYMBOLS)
    assert_allclose(model.transition_[0], row, rtol=1e-12)
    assert np.diff(model.history_["objective"]).min() > -1e-12
    assert (model.posterior_["transition"] > 0).all(1).tolist() == [False, True]
    model.set_params(training__frozen=None).fit(SYMBOLS)
    assert np.abs(model.transition_[0] - row).max() > 1e-6
    assert np.diff(model.history_["objective"]).min() > -1e-12


@pytest.mark.parametrize("name", KINDS)
def test_tied_states_have_one_posterior(name: str, tmp_path: Path) -> None:
    make, more = KINDS[name]
    training = sm.hmm.ChainTraining(tied=[0, 1, 0], frozen=Frozen(transition=[1]))
    options: dict[str, Any] = {"algorithm": "variational", "n_init": 1, "dtype": "float64", "tol": 0.0, "max_iter": 20}
    options |= {"tied_durations": [0, 0, 1]} if more else {}
    model = make(3, training=training, observation=sm.Categorical(), **options).fit(TIMED)
    assert np.diff(model.history_["objective"]).min() > -1e-12
    for one in (model, model.sample_posterior(1)[0]):
        assert_allclose(one.emission_[0], one.emission_[2], rtol=1e-12)
        rows = one.generator_ if isinstance(one, sm.hmm.ContinuousTimeHMM) else one.transition_
        assert_allclose(rows[1], getattr(model, "generator_", model.transition_)[1], rtol=1e-12)
        if more:
            assert_allclose(one.durations_[0], one.durations_[1], rtol=1e-12)
    model.save(tmp_path / "model.safetensors")
    again = sm.load(tmp_path / "model.safetensors").set_params(warm_start=True, max_iter=1).fit(TIMED)  # type: ignore[attr-defined]
    assert again.history_["objective"].iloc[0] == pytest.approx(model.history_["objective"].iloc[-1], rel=1e-10)
    # A second count of what is shared, or of what is frozen, would lower the bound of the last step.
    assert again.lower_bound_ >= model.lower_bound_ - 1e-10


def chain(n: int, seed: int = 1) -> list[np.ndarray]:
    true = sm.HMM.from_parameters(
        [0.4, 0.3, 0.3],
        [[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.1, 0.1, 0.8]],
        means=[[-3.0, 0.0], [3.0, 0.0], [0.0, 3.0]],
        covariances=np.full((3, 2), 0.5),
    )
    return true.sample(n, length=100, random_state=seed)


DATA: dict[str, tuple[Any, Any]] = {
    "diagonal": (sm.GaussianMixture(1), lambda x: x),
    "missing": (sm.GaussianMixture(1), lambda x: np.where(np.abs(x) < 0.2, np.nan, x)),
    "diagonal mixture": (sm.GaussianMixture(2), lambda x: x),
    "full missing": (sm.GaussianMixture(1, "full"), lambda x: np.where(np.abs(x) < 0.2, np.nan, x)),
    "full mixture": (sm.GaussianMixture(2, "full"), lambda x: x),
    "poisson": (sm.Poisson(), lambda x: np.rint(np.abs(x))),
    "bernoulli": (sm.Bernoulli(), lambda x: (x > 0).astype(float)),
    "categorical": (sm.Categorical(), lambda x: np.rint(np.abs(x[:, 0])).astype(int)),
    "columns": (
        sm.Columns([(sm.GaussianMixture(1), 1), (sm.Poisson(), 1)]),
        lambda x: np.where(np.abs(x) < 0.2, np.nan, np.stack([x[:, 0], np.rint(np.abs(x[:, 1]))], 1)),
    ),
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("name", DATA)
def test_every_step_raises_the_bound(name: str, length: Any) -> None:
    observation, take = DATA[name]
    model = variational(4, observation=observation, length=length, max_iter=25, tol=0).fit([take(x) for x in chain(3)])
    objective = model.history_["objective"].to_numpy()
    assert len(objective) == 26
    assert np.diff(objective).min() > -1e-10
    assert objective[-1] - objective[0] > 1e-4


@pytest.mark.slow
def test_a_state_that_data_do_not_need_empties_out() -> None:
    rng, means = np.random.default_rng(0), np.array([[-6.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    states = np.repeat(rng.integers(3, size=(5, 10)), 10, axis=1)
    x = list(means[states] + rng.normal(size=(5, 100, 2)))
    kind: dict[str, Any] = {"observation": sm.GaussianMixture(1), "encoding": sm.Standardize()}
    model = made(sm.HMM, 4, algorithm="variational", n_init=8, tol=1e-6, **kind).fit(x)
    visits = np.sort(model.posterior_["transition"].sum(1) - 1)  # less the prior's
    assert visits[0] < 10 < 100 < visits[1]
    assert np.bincount(np.concatenate(model.decode(x)), minlength=4).min() < 10
    assert abs(model.score(x) - made(sm.HMM, 3, **kind).fit(x).score(x)) < 0.02


def test_scores_are_those_of_the_posterior_mean() -> None:
    x = chain(2)
    model = variational(3, observation=sm.GaussianMixture(1, "full")).fit(x)
    posterior = model.posterior_
    rows = posterior["transition"]
    assert_allclose(model.transition_, rows / rows.sum(1, keepdims=True))
    assert_allclose(model.means_, posterior["mean"])
    precisions = posterior["degrees_of_freedom"][..., None, None] * np.linalg.inv(posterior["inverse_scale"])
    assert_allclose(np.linalg.inv(model.covariances_), precisions, rtol=1e-8)
    same = sm.HMM.from_parameters(
        model.initial_,
        model.transition_,
        weights=model.weights_,
        means=model.means_,
        covariances=model.covariances_,
        covariance_type="full",
    )
    assert_allclose(model.log_prob(x), same.log_prob(x), rtol=1e-9)
    assert model.history_["log_prob"].iloc[-1] == pytest.approx(model.score(x), rel=1e-9)
    assert model.history_["log_prob"].iloc[:-1].isna().all()


def test_scaled_data_have_a_scaled_posterior_and_the_same_bound() -> None:
    x = chain(2)
    one, other = (variational(2, observation=sm.GaussianMixture(1)).fit([a * frames for frames in x]) for a in (1, 4))
    assert other.lower_bound_ == pytest.approx(one.lower_bound_ - 400 * np.log(4), rel=1e-9)
    assert_allclose(other.posterior_["mean"], 4 * one.posterior_["mean"], rtol=1e-7)
    assert_allclose(other.posterior_["precision_rate"], 16 * one.posterior_["precision_rate"], rtol=1e-7)
    assert_allclose(other.posterior_["precision_shape"], one.posterior_["precision_shape"], rtol=1e-7)


def test_a_weight_of_two_is_a_sequence_twice() -> None:
    x = [np.array([0, 1, 0, 0, 1, 2]), np.array([2, 1, 0])]
    start = sm.HMM.from_parameters([0.6, 0.4], [[0.7, 0.3], [0.2, 0.8]], emission=[[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
    bounds = []
    for data, weights in (([x[0], x[0], x[1]], None), (x, [2.0, 1.0])):
        model = sm.HMM.from_parameters(start.initial_, start.transition_, emission=start.emission_)
        model.set_params(algorithm="variational", warm_start=True, max_iter=5, tol=0, dtype="float64")
        bounds.append(model.fit(data, sample_weight=weights).lower_bound_)
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-10)


def test_a_warm_start_goes_on_from_the_posterior(tmp_path: Path) -> None:
    x = chain(2)
    model = variational(3, observation=sm.GaussianMixture(1), max_iter=1, tol=0, warm_start=True).fit(x)
    model.save(tmp_path / "model.safetensors")
    before, loaded = model.lower_bound_, sm.load(tmp_path / "model.safetensors")
    assert isinstance(loaded, sm.HMM)
    assert loaded.lower_bound_ == before
    for name, values in model.posterior_.items():
        assert_allclose(loaded.posterior_[name], values)
    again = loaded.fit(x)
    assert again.history_["objective"].iloc[0] == pytest.approx(before / 200, rel=1e-10)
    assert again.lower_bound_ > before


def test_states_are_reordered_with_their_posterior() -> None:
    x = chain(2)
    prior = ConjugatePrior(transition=[[1.0, 2.0], [3.0, 4.0]], count=[1.0, 2.0], mean=[[0.0, 1.0], [1.0, 0.0]])
    model = variational(2, observation=sm.GaussianMixture(1), training__prior=prior, warm_start=True).fit(x)
    other = model.reorder([1, 0])
    assert_allclose(other.posterior_["transition"], model.posterior_["transition"][::-1, ::-1])
    assert_allclose(other.posterior_["mean"], model.posterior_["mean"][::-1])
    assert np.asarray(other.training.prior.transition).tolist() == [[4.0, 3.0], [2.0, 1.0]]
    assert list(other.training.prior.count) == [2.0, 1.0]
    bounds = [m.set_params(max_iter=1, tol=0).fit(x).lower_bound_ for m in (model, other)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-10)


def test_draws_are_models_around_the_posterior_mean() -> None:
    x = chain(4)
    model = variational(3, observation=sm.GaussianMixture(1)).fit(x)
    drawn = model.sample_posterior(200, random_state=0)
    means = np.stack([m.means_ for m in drawn])
    posterior = model.posterior_
    variance = posterior["precision_rate"] / ((posterior["precision_shape"] - 1) * posterior["mean_count"])
    assert_allclose(means.mean(0), model.means_, atol=5 * float(np.sqrt(variance.max() / 200)))
    assert_allclose(means.var(0), variance, rtol=0.4)
    assert_allclose(drawn[0].transition_.sum(1), 1.0)
    assert drawn[0].score(x) < model.score(x) + 0.01
    again = model.sample_posterior(1, random_state=0)[0]
    assert_allclose(again.transition_, drawn[0].transition_)
    with pytest.raises(sm.NotFittedError, match="variational"):
        _ = drawn[0].lower_bound_


def test_long_sequences_of_a_chain_whose_rows_sum_to_less_than_one() -> None:
    """Cut into segments that are warmed up, and in logarithms."""
    generator = torch.Generator().manual_seed(0)
    concentrations = 5 * torch.rand(4, 4, generator=generator, dtype=torch.float64) + 0.05
    transition = (torch.digamma(concentrations) - torch.digamma(concentrations.sum(1, keepdim=True))).exp()
    initial = transition[0]
    log_b = torch.randn(2_000, 4, generator=generator, dtype=torch.float64)
    whole = Segments.whole(torch.tensor([2_000]))
    exact = log_space.forward_backward_pass(Trellis.of(initial, transition, LogDensities(log_b), whole))
    for dtype, tolerance, atol in ((torch.float32, 1e-5, 0.1), (torch.float64, 1e-11, 1e-6)):
        segments = Segments.of_size(torch.tensor([2_000]), MARGIN[dtype], MARGIN[dtype])
        assert not segments.is_whole
        packed = LogDensities(segments.packing.pack(log_b.to(dtype)))
        posterior = forward_backward_pass(Trellis.of(initial, transition, packed, segments))
        assert float(posterior.log_prob) == pytest.approx(float(exact.log_prob), rel=tolerance)
        torch.testing.assert_close(posterior.xi, exact.xi, rtol=100 * tolerance, atol=atol)


GIVEN_INPUTS = sm.Sequences(SYMBOLS, inputs=[np.linspace(0, 1, len(x))[:, None] for x in SYMBOLS])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "stationary"}, "no conjugate prior"),
        ({"pseudocount": 0.5}, "pseudocount"),
        ({"observation": sm.Categorical(0.1)}, "pseudocount"),
        ({"algorithm": "em", "training__prior": ConjugatePrior()}, "prior is for"),
        (
            {"input_effects__transitions": True, "length": "given"},
            "depend on inputs have no conjugate prior",
        ),
    ],
)
def test_choices_that_do_not_go_together_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(sm.HMM, 2, **({"algorithm": "variational"} | options)).fit(GIVEN_INPUTS)


def test_a_diagonal_mixture_with_missing_values_is_refused() -> None:
    x = [np.where(np.abs(frames) < 0.2, np.nan, frames) for frames in chain(1)]
    with pytest.raises(ValueError, match="complete frames"):
        variational(2, observation=sm.GaussianMixture(2)).fit(x)


def test_a_model_without_a_posterior_says_so() -> None:
    with pytest.raises(ValueError, match="at no maximum"):
        variational(2).fit(SYMBOLS).standard_errors(SYMBOLS)
    model = sm.HMM(2).fit(SYMBOLS)
    for name in ("posterior_", "lower_bound_"):
        with pytest.raises(sm.NotFittedError, match="variational"):
            getattr(model, name)
    with pytest.raises(ValueError, match="stepwise"):
        variational(2).partial_fit(SYMBOLS)


# -- other chains ----------------------------------------------------------------------------------------------


def test_geometric_durations_have_the_bound_of_an_hmm() -> None:
    x = [np.array([0, 0, 1, 1, 0, 2, 2]), np.array([2, 1, 1, 1])]
    hmm = variational(2, max_iter=1, length="stop").fit(x)
    options: dict[str, Any] = {"durations": "geometric", "algorithm": "variational", "n_init": 1, "max_iter": 0}
    semi = made(sm.hmm.HSMM, 2, length="stop", **options)
    semi.fit(x)
    semi._posterior, semi.parameters_ = hmm._posterior, hmm.parameters_
    one_more = [made(m.set_params, warm_start=True, max_iter=1).fit(x).lower_bound_ for m in (hmm, semi)]
    assert one_more[1] == pytest.approx(one_more[0], rel=1e-12)


LONGEST = 3


def exp_log(a: np.ndarray) -> np.ndarray:
    return np.exp(digamma(a) - digamma(a.sum(-1, keepdims=True)))


def dirichlet_divergence(q: np.ndarray, p: np.ndarray) -> float:
    return float(kl_divergence(Dirichlet(torch.tensor(q)), Dirichlet(torch.tensor(p))).sum())


def log_evidence_of_durations(sequences: list[np.ndarray]) -> float:
    """``log p(x)`` of two states that follow each other, with Dirichlet durations, first states and symbols.

    Every segmentation has one sequence of full durations for each length that the last segment may have had.
    """
    first, durations, emissions = np.full(2, 1.5), np.full((2, LONGEST), 0.8), np.full((2, 3), 2.0 / 3)
    each = []
    for x in sequences:
        lengths = itertools.chain(*(itertools.product(range(1, LONGEST + 1), repeat=m) for m in range(1, len(x) + 1)))
        full = [d for d in lengths if sum(d[:-1]) < len(x) <= sum(d)]
        each.append([(start, d) for start in (0, 1) for d in full])
    terms = []
    for paths in itertools.product(*each):
        a, b, c = first.copy(), durations.copy(), emissions.copy()
        for x, (start, lengths) in zip(sequences, paths, strict=True):
            states = [(start + i) % 2 for i in range(len(lengths))]
            a[start] += 1
            np.add.at(b, (states, np.array(lengths) - 1), 1)
            np.add.at(c, (np.repeat(states, lengths)[: len(x)], x), 1)
        gained = log_beta(a) - log_beta(first)
        for after, before in ((b, durations), (c, emissions)):
            gained += sum(log_beta(new) - log_beta(old) for new, old in zip(after, before, strict=True))
        terms.append(gained)
    return float(logsumexp(terms))


def test_the_bound_of_durations_rises_and_is_below_the_evidence() -> None:
    x = [np.array([0, 1, 1, 2]), np.array([2, 0, 0])]
    prior = ConjugatePrior(initial=1.5, transition=1.0, durations=0.8, count=2.0)
    options: dict[str, Any] = {"durations": "categorical", "max_duration": LONGEST, "length": "given", "n_init": 1}
    model = made(sm.hmm.HSMM, 2, algorithm="variational", max_iter=40, training__prior=prior, **options).fit(x)
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    assert 0 < log_evidence_of_durations(x) - model.lower_bound_ < 4
    settled = made(model.set_params, warm_start=True, max_iter=0).fit(x)
    after = {name: np.asarray(values) for name, values in settled.posterior_.items()}
    first, durations, emission = (exp_log(after[name]) for name in ("initial", "durations", "emission"))
    at_least, log_z = durations[:, ::-1].cumsum(1)[:, ::-1], 0.0
    for item in x:
        z = 0.0
        for m in range(1, len(item) + 1):
            for lengths in itertools.product(range(1, LONGEST + 1), repeat=m):
                for start in (0, 1) if sum(lengths) == len(item) else ():
                    states = np.array([(start + i) % 2 for i in range(m)])
                    of_lengths = durations[states[:-1], np.array(lengths[:-1], int) - 1].prod()
                    of_last = at_least[states[-1], lengths[-1] - 1]
                    z += first[start] * of_lengths * of_last * emission[np.repeat(states, lengths), item].prod()
        log_z += np.log(z)
    priors = {"initial": [1.5, 1.5], "durations": np.full((2, LONGEST), 0.8), "emission": np.full((2, 3), 2 / 3)}
    divergence = sum(dirichlet_divergence(after[name], np.asarray(prior)) for name, prior in priors.items())
    assert settled.lower_bound_ == pytest.approx(log_z - divergence, rel=1e-9)
    drawn = model.sample_posterior(2)[1]
    assert_allclose(drawn.durations_.sum(1), 1.0)
    with pytest.raises(ValueError, match="truncated have no conjugate prior"):
        made(model.clone().set_params, durations="poisson").fit(x)
    with pytest.raises(ValueError, match="divides by mean durations"):
        made(model.clone().set_params, left_censored=True).fit(x)


@pytest.mark.slow
def test_the_bound_of_rates_is_that_by_hand_and_below_the_evidence() -> None:
    """The evidence sums over paths at the four steps; the two rates are integrated on a grid of their logarithms."""
    from scipy import stats
    from scipy.linalg import expm

    x, times = np.array([0, 1, 1, 0]), np.array([0.0, 0.4, 1.0, 2.5])
    prior = ConjugatePrior(initial=1.5, jumps=2.0, time=1.5, count=2.0)
    model = made(sm.hmm.ContinuousTimeHMM, 2, algorithm="variational", max_iter=30, n_init=1, training__prior=prior,
                 observation=sm.Categorical()).fit(sm.Sequences([x], times=[times]))  # fmt: skip
    assert (np.diff(model.history_["objective"]) > -1e-12).all()
    # By hand: Z of exp(E log p) over the chain with the rates exp(E log q), and three divergences.
    after = {name: np.asarray(values) for name, values in model.posterior_.items()}
    shape, rate = after["jumps"][[0, 1], [1, 0]], after["time"]
    generator = np.diag(-shape / rate)
    generator[[0, 1], [1, 0]] = np.exp(digamma(shape)) / rate

    emission, alpha = exp_log(after["emission"]), exp_log(after["initial"])
    alpha = alpha * emission[:, x[0]]
    for t in range(1, len(x)):
        alpha = (alpha @ expm(generator * (times[t] - times[t - 1]))) * emission[:, x[t]]
    of_rates = Gamma(torch.full((2,), 2.0).double(), torch.full((2,), 1.5).double())
    divergence = float(kl_divergence(Gamma(torch.tensor(shape), torch.tensor(rate)), of_rates).sum())
    divergence += dirichlet_divergence(after["initial"], np.full(2, 1.5))
    divergence += dirichlet_divergence(after["emission"], np.ones((2, 2)))
    # The figures of a posterior are those of the E-step after its M-step, which one more iteration takes.
    settled = made(model.set_params, warm_start=True, max_iter=0).fit(sm.Sequences([x], times=[times]))
    assert settled.lower_bound_ == pytest.approx(np.log(alpha.sum()) - divergence, rel=1e-9)
    paths = list(itertools.product(range(2), repeat=len(x)))
    of_symbols = []
    for z in paths:
        counts = np.full((2, 2), 1.0)
        np.add.at(counts, (list(z), x), 1)
        of_symbols.append(sum(log_beta(row) - log_beta(np.ones(2)) for row in counts) + np.log(0.5))
    grid, weight = np.linspace(-6, 3.5, 40), 9.5 / 39
    density = stats.gamma(2.0, scale=1 / 1.5)
    terms = []
    for u, v in itertools.product(grid, grid):
        q = np.array([[-np.exp(u), np.exp(u)], [np.exp(v), -np.exp(v)]])
        log_steps = [np.log(expm(q * gap)) for gap in np.diff(times)]
        of_rates = density.logpdf(np.exp([u, v])).sum() + u + v + 2 * np.log(weight)
        of_paths = [
            s + sum(a[z[t], z[t + 1]] for t, a in enumerate(log_steps)) for s, z in zip(of_symbols, paths, strict=True)
        ]
        terms.append(of_rates + logsumexp(of_paths))
    assert 0 < float(logsumexp(terms)) - model.lower_bound_ < 1.5


def test_a_mean_times_a_coefficient_has_no_conjugate_prior() -> None:
    with pytest.raises(ValueError, match="as a product, so they have no conjugate prior"):
        sm.hmm.MarkovSwitchingAR(2, algorithm="variational").fit([np.zeros((5, 1))])
