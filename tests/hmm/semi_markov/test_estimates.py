"""Standard errors and profile intervals of an HSMM: against an HMM, closed forms and differences of log-likelihoods."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray

import seqmodels as sm
from seqmodels.hmm import HSMM, Frozen
from seqmodels.hmm.estimates import ON_BOUNDARY
from seqmodels.hmm.semi_markov.durations import AT_END_OF_RANGE, DurationName
from seqmodels.hmm.standard_errors import NOT_IDENTIFIED
from seqmodels.sequences.measure import Length
from tests.made import made

Array = NDArray[np.float64]
NAMES: tuple[DurationName, ...] = ("negative-binomial", "poisson", "logarithmic", "categorical")


def drawn(n: int, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    levels = [np.repeat(rng.permutation(np.tile(np.arange(3.0), 2)), rng.integers(2, 7, 6)) for _ in range(n)]
    return [2 * each[:, None] + 0.5 * rng.normal(size=(len(each), 1)) for each in levels]


X = drawn(12)


def fitted(durations: DurationName, x: Any = X, **options: Any) -> HSMM:
    chosen = {"max_duration": 8, "n_init": 1, "observation": sm.GaussianMixture(1), "tol": 1e-10, "max_iter": 400}
    return made(HSMM, 3, durations=durations, **{**chosen, **options}).fit(x)


@pytest.mark.parametrize("left_censored", [False, True])
@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("durations", [*NAMES, "geometric"])
def test_the_gradient_is_that_of_the_objective(durations: DurationName, length: Length, left_censored: bool) -> None:
    """At other parameters than the maximum, where it is not zero."""
    options: dict[str, Any] = {"max_iter": 2, "left_censored": left_censored, "length": length}
    weights = np.where(np.arange(len(X)) % 2, 1.0, 2.0)
    model = fitted(durations, X, **options)
    examples = model._setting().examples(sm.encodings.raw_data.Data.of(X, None, weights))
    objective, _, _ = model._objective_at(examples)
    rng = np.random.default_rng(1)
    u = torch.tensor(0.02 * rng.normal(size=objective.coordinates.n))
    value, gradient = objective.value_and_gradient(u)
    assert float(gradient.abs().max()) > 0.1
    for _ in range(3):
        step = torch.tensor(rng.normal(size=len(u)))
        up, down = (objective.value_and_gradient(u + sign * 1e-5 * step)[0] for sign in (1, -1))
        assert_allclose((up - down) / 2e-5, float(gradient @ step), rtol=2e-6, atol=1e-6)
    other = copy.copy(model)
    other.parameters_ = objective.coordinates.at(u)[0]
    of_emission = objective.prior.emission.log_prior(other.parameters_.table)
    prior = of_emission + objective.prior.pseudocount.log_prior(other.parameters_)
    log_det = sum(w * e.log_det for w, e in zip(weights, examples, strict=True))
    assert_allclose(value, float(weights @ other.log_prob(X)) - log_det + float(prior), rtol=1e-9)


def test_geometric_durations_have_the_errors_of_an_hmm() -> None:
    model = fitted("geometric")
    hmm = sm.HMM(3, n_init=1, max_iter=1, observation=sm.GaussianMixture(1), dtype="float64").fit(X)
    hmm.parameters_ = model.parameters_
    found, expected = model.standard_errors(X), hmm.standard_errors(X)
    assert found[["name", "state", "feature", "note"]].equals(expected[["name", "state", "feature", "note"]])
    columns = ["estimate", "standard_error", "ci_low", "ci_high"]
    assert_allclose(found[columns], expected[columns], rtol=1e-4)


def test_poisson_durations_of_known_segments_have_a_closed_form() -> None:
    """Symbols tell the states, and sequences end with a segment: d - 1 is a sample of a Poisson distribution."""
    rng = np.random.default_rng(2)
    counts = rng.poisson([1.5, 4.0], (40, 2))
    x = [np.repeat([0, 1], 1 + each) for each in counts]
    observation = sm.Categorical()
    options: dict[str, Any] = {"max_duration": 60, "n_init": 1, "length": "stop", "pseudocount": 0.0, "tol": 0.0}
    model = made(HSMM, 2, durations="poisson", max_iter=5, observation=observation, **options).fit(x, states=x)
    frame = model.standard_errors(x).query("name == 'duration_rates'")
    assert_allclose(frame["estimate"], counts.mean(0), rtol=1e-6)
    assert_allclose(frame["standard_error"], np.sqrt(counts.mean(0) / 40), rtol=1e-5)
    half = 1.959963984540054 / np.sqrt(40 * counts.mean(0))
    assert_allclose(frame["ci_high"], counts.mean(0) * np.exp(half), rtol=1e-5)
    low, high = model.profile_interval(x, "duration_rates", 1)
    for end in (low, high):  # by how much the log-likelihood of the sample is below its largest
        below = 40 * (counts[:, 1].mean() * np.log(counts[:, 1].mean() / end) - counts[:, 1].mean() + end)
        assert_allclose(below, 3.841458820694124 / 2, rtol=1e-4)
    tied = made(HSMM, 2, durations="poisson", max_iter=5, observation=observation, tied_durations=[0, 0], **options)
    frame = tied.fit(x, states=x).standard_errors(x).query("name == 'duration_rates'")
    assert_allclose(frame["standard_error"], np.sqrt(counts.mean() / 80), rtol=1e-5)


def test_categorical_durations_of_known_segments_have_a_closed_form() -> None:
    x = [np.repeat([0, 1], d) for d in [(1, 2)] * 10 + [(2, 2)] * 15 + [(3, 1)] * 15]
    options: dict[str, Any] = {"max_duration": 4, "n_init": 1, "length": "stop", "pseudocount": 0.0, "tol": 0.0}
    model = made(
        HSMM, 2, durations="categorical", max_iter=5, observation=sm.Categorical(), duration_pseudocount=0.0, **options
    ).fit(x, states=x)
    frame = model.standard_errors(x).query("name == 'durations' and state == 0")
    p = np.array([10, 15, 15]) / 40
    assert frame["feature"].tolist() == [1, 2, 3, 4]
    assert_allclose(frame["standard_error"].iloc[:3], np.sqrt(p * (1 - p) / 40), rtol=1e-6)
    assert frame["note"].tolist() == ["", "", "", ON_BOUNDARY]


@pytest.mark.slow
@pytest.mark.parametrize("durations", NAMES)
def test_errors_are_about_those_of_states_that_are_known(durations: DurationName) -> None:
    """Levels are far apart."""
    x = drawn(30, 4)
    model = fitted(durations, x, max_duration=7, max_iter=2000, tol=1e-13, duration_pseudocount=0.0)
    frame = model.standard_errors(x)
    means = frame.query("name == 'means'")
    assert means["note"].eq("").all()
    known = np.array([0.5 / np.sqrt(4 * 60)] * 3)  # about 240 frames of each state, of deviation 0.5
    assert_allclose(means["standard_error"], known, rtol=0.3)
    names = {"negative-binomial": "duration_sizes", "poisson": "duration_rates", "categorical": "durations"}
    names["logarithmic"] = "duration_probabilities"
    assert (frame["name"] == names[durations]).sum() == {"categorical": 21}.get(durations, 3)
    assert frame.loc[frame["note"].eq(""), "standard_error"].gt(0).all()


def test_what_is_frozen_has_no_row_and_the_ends_of_ranges_are_said() -> None:
    model = fitted("negative-binomial", training__frozen=Frozen(transition=[0, 1, 2], emission=[0], durations=[2]))
    frame = model.standard_errors(X)
    assert set(frame["name"]) == {"initial", "means", "covariances", "duration_sizes", "duration_probabilities"}
    assert set(frame.query("name == 'means'")["state"]) == {1, 2}
    assert set(frame.query("name == 'duration_sizes'")["state"]) == {0, 1}
    size = np.log(model.duration_sizes_[:2])
    at_end = frame.query("name == 'duration_sizes'")["note"].eq(AT_END_OF_RANGE).to_numpy()
    np.testing.assert_array_equal(at_end, size > np.log(1e3) - 2e-3)


def test_a_topology_leaves_its_zeros_out() -> None:
    x = [2 * np.repeat(np.arange(3.0), d)[:, None] for d in np.random.default_rng(0).integers(2, 6, (10, 3))]
    x = [each + 0.4 * np.random.default_rng(i).normal(size=each.shape) for i, each in enumerate(x)]
    model = fitted("poisson", x, topology=sm.hmm.LeftToRight(skips=1), tol=1e-8)
    frame = model.standard_errors(x)
    rows = frame.query("name == 'transition'")[["state", "feature"]].to_numpy().tolist()
    assert rows == [[0, 1], [0, 2]]  # of the others there is one next state, and of the first state one
    assert "initial" not in set(frame["name"])
    # No segment of the last state ends before its sequence does, so that the information on its rate is zero; as
    # computed it is 1e-11, of a sign that depends on the processor.
    assert frame.query("name == 'duration_rates'")["note"].tolist() == ["", "", NOT_IDENTIFIED]


def test_levels_and_parameters_that_cannot_be_are_refused() -> None:
    model = fitted("poisson", max_iter=2)
    with pytest.raises(ValueError, match="level is 2"):
        model.standard_errors(X, level=2.0)
    with pytest.raises(ValueError, match="is no estimated parameter"):
        model.profile_interval(X, "duration_sizes", 0)
