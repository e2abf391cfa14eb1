"""What an HSMM's chain, emissions and durations are held to, and its EM in mini-batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import seqmodels as sm
from seqmodels.hmm import HSMM, Arcs, Banded, Frozen, LeftToRight, Pseudocounts
from seqmodels.hmm.semi_markov import chain as semi_markov
from seqmodels.hmm.semi_markov.durations import DurationName
from seqmodels.hmm.semi_markov.options import successors
from seqmodels.sequences.measure import Length
from tests.made import made

Array = NDArray[np.float64]
NAMES: tuple[DurationName, ...] = ("negative-binomial", "poisson", "logarithmic", "categorical", "geometric")
K = 4


def drawn(n: int, seed: int = 0, *, round_trips: int = 1) -> list[Array]:
    """Four levels in their order, of 2 to 9 steps each."""
    rng = np.random.default_rng(seed)
    levels = [np.repeat(np.tile(np.arange(4.0), round_trips), rng.integers(2, 10, 4 * round_trips)) for _ in range(n)]
    return [2 * each[:, None] + 0.5 * rng.normal(size=(len(each), 1)) for each in levels]


X = drawn(12)
ROUNDS = drawn(6, 1, round_trips=2)


def hsmm(durations: DurationName = "poisson", **options: Any) -> HSMM:
    chosen = {"max_duration": 14, "n_init": 1, "max_iter": 6, "observation": sm.GaussianMixture(1), **options}
    return made(HSMM, K, durations=durations, **chosen)


TOPOLOGIES: dict[str, Any] = {
    "left-to-right": "left-to-right",
    "skips": LeftToRight(skips=1, end="last"),
    "banded": Banded(1),
    "arcs": Arcs(np.roll(np.eye(K, dtype=int), 1, 1).tolist(), [1, 0, 1, 0]),
    "mask": np.roll(np.eye(K, dtype=bool), 1, 1),
}


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize(
    ("name", "durations", "length"),
    [  # the topologies take turns in which durations are with ends
        (name, durations, ("given", "stop")[(i + j) % 2])
        for i, name in enumerate(TOPOLOGIES)
        for j, durations in enumerate(NAMES)
    ],
)
def test_what_a_topology_rules_out_stays_zero_and_em_never_falls(
    name: str, durations: DurationName, length: Length, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semi_markov, "STEPS_OF_START", 1)
    x = X if name in ("left-to-right", "skips") else ROUNDS
    model = hsmm(durations, topology=TOPOLOGIES[name], length=length, tol=0.0, max_iter=4).fit(x)
    steps = model.get_params(deep=False)["topology"]
    mask = sm.hmm.topology.as_topology(steps, K).transition_mask(K).numpy()
    expected = mask if durations == "geometric" else mask & ~np.eye(K, dtype=bool)
    is_last = ~expected.any(1)
    if length == "given":  # a state that is never left is followed by itself
        expected = expected | np.diag(is_last)
    assert not model.transition_[~expected].any()
    assert_allclose(model.transition_.sum(1) + model.final_, 1.0, rtol=1e-12)
    if durations != "geometric" and name != "banded" and is_last.any():
        assert_allclose(model.final_[is_last], 1.0 if length == "stop" else 0.0)
    assert np.diff(model.history_["objective"]).min() > -1e-11
    if name == "left-to-right":
        assert_array_equal(model.initial_, [1.0, 0.0, 0.0, 0.0])
        assert all((np.diff(path) >= 0).all() for path in model.decode(x))
    if length == "given":
        assert np.isfinite(model.log_prob(model.sample(3, length=20, random_state=0))).all()


def test_states_of_a_row_are_followed_by_themselves_only_where_nothing_else_may_be() -> None:
    mask = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 1]], dtype=torch.bool)
    assert successors(mask, None).int().tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]
    ends = torch.tensor([False, False, True])
    assert successors(mask, ends).int().tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert successors(mask[:1, :1], ends[2:]).tolist() == [[True]]


def test_a_left_to_right_chain_sums_to_one() -> None:
    """Over all sequences of three of two symbols, where the last state goes on by itself."""
    model = HSMM.from_parameters(
        [1.0, 0.0],
        [[0.0, 1.0], [0.0, 1.0]],
        durations=[[0.5, 0.5], [0.3, 0.7]],
        emission=[[0.9, 0.1], [0.2, 0.8]],
        topology="left-to-right",
    )
    sequences = [[a, b, c] for a in range(2) for b in range(2) for c in range(2)]
    assert_allclose(np.exp(model.log_prob(sequences)).sum(), 1.0, rtol=1e-12)
    paths = model.decode(sequences, k=10)
    assert {tuple(p.states.tolist()) for p in paths[0]} == {(0, 1, 1), (0, 0, 1)}
    assert_allclose(
        [np.logaddexp.reduce([p.log_prob for p in each]) for each in paths], model.log_prob(sequences), atol=1e-12
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("algorithm", ["em", "stepwise"])
def test_what_is_frozen_stays_and_the_rest_moves(algorithm: Any) -> None:
    model = hsmm(max_iter=1, algorithm="em").fit(ROUNDS)
    before = model.parameters_
    what: dict[str, Any] = {
        "initial": ("initial",),
        "transition": ("transition",),
        "emission": ("emission",),
        "durations": ("durations",),
        "some": Frozen(transition=[1], emission=[0, 2], durations=[3]),
    }
    for name, frozen in what.items():
        other = model.reorder(range(K)).set_params(
            training__frozen=frozen, warm_start=True, max_iter=2, algorithm=algorithm, pseudocount=0.1
        )
        after = other.fit(ROUNDS).parameters_
        n = before.table.shape[1] - 1
        rows = {  # which rows stay
            "initial": [name == "initial"],
            "transition": [1] if name == "some" else [0, 1, 2, 3] if name == "transition" else [],
            "emission": [0, 2] if name == "some" else [0, 1, 2, 3] if name == "emission" else [],
            "durations": [3] if name == "some" else [0, 1, 2, 3] if name == "durations" else [],
        }
        assert torch.equal(after.initial, before.initial) == rows["initial"][0]
        same = [torch.equal(a, b) for a, b in zip(after.transition, before.transition, strict=True)]
        assert [i for i in range(K) if same[i]] == rows["transition"]
        same = [torch.equal(a, b) for a, b in zip(after.table[:, :n], before.table[:, :n], strict=True)]
        assert [i for i in range(K) if same[i]] == rows["emission"]
        same = [torch.equal(a, b) for a, b in zip(after.table[:, n:], before.table[:, n:], strict=True)]
        assert [i for i in range(K) if same[i]] == rows["durations"]


@pytest.mark.parametrize("durations", ["negative-binomial", "poisson", "categorical"])
@pytest.mark.parametrize("left_censored", [False, True])
def test_tied_states_share_and_em_never_falls(
    durations: DurationName, left_censored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semi_markov, "STEPS_OF_START", 5)
    options: dict[str, Any] = {
        "training__tied": [0, 1, 0, 1],
        "tied_durations": [0, 0, 1, 1],
        "left_censored": left_censored,
    }
    model = hsmm(durations, **options, tol=0.0).fit(ROUNDS)
    assert np.diff(model.history_["objective"]).min() > -1e-11
    assert_array_equal(model.means_[0], model.means_[2])
    assert_array_equal(model.durations_[0], model.durations_[1])
    assert (model.durations_[0] != model.durations_[2]).any()
    n_durations = {"poisson": 1, "negative-binomial": 2, "categorical": 13}[durations]
    free = hsmm(durations, max_iter=1).fit(ROUNDS)
    assert free.n_parameters_ - model.n_parameters_ == 2 * 2 + 2 * n_durations
    continued = model.set_params(warm_start=True, max_iter=1).fit(ROUNDS)
    assert_allclose(continued.history_["objective"].iloc[0], model.history_["objective"].iloc[0])


def test_what_is_frozen_in_one_state_of_a_group_is_in_all() -> None:
    options: dict[str, Any] = {"training__tied": [0, 1, 0, 1], "tied_durations": [0, 0, 1, 1]}
    model = hsmm(**options, max_iter=1).fit(ROUNDS)
    frozen = model.reorder(range(K)).set_params(warm_start=True, training__frozen=Frozen(emission=[0], durations=[3]))
    frozen.fit(ROUNDS)
    same = np.array([model.means_[k] == frozen.means_[k] for k in range(K)]).ravel()
    assert_array_equal(same, [True, False, True, False])
    assert_array_equal(model.durations_[2:], frozen.durations_[2:])
    assert (model.durations_[0] != frozen.durations_[0]).any()
    assert_array_equal(frozen.durations_[0], frozen.durations_[1])
    assert model.n_parameters_ - frozen.n_parameters_ == 2 + 1


def test_tied_durations_are_those_of_all_segments_of_the_group() -> None:
    """Of known states: the mean of the Poisson distribution is that of all their segments."""
    x = [np.repeat([0, 1, 0, 1, 0], [2, 4, 3, 6, 9])] * 3
    model = HSMM(
        2, durations="poisson", max_duration=60, tied_durations=[0, 0], length="stop", n_init=1, pseudocount=0.0
    ).fit(x, states=x)
    assert_allclose(model.mean_durations_, (2 + 4 + 3 + 6 + 9) / 5, rtol=1e-6)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("durations", NAMES)
def test_one_batch_an_epoch_is_em(durations: DurationName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(semi_markov, "STEPS_OF_START", 5)
    weights = np.where(np.arange(len(ROUNDS)) % 2, 0.5, 1.5)
    options: dict[str, Any] = {"tol": 0.0, "max_iter": 3}
    expected = hsmm(durations, **options).fit(ROUNDS, sample_weight=weights)
    found = hsmm(durations, algorithm="stepwise", training__batches=1, **options).fit(ROUNDS, sample_weight=weights)
    assert_allclose(found.history_["log_prob"], expected.history_["log_prob"][:3], rtol=1e-9)  # sizes are searched for
    assert_allclose(found.means_, expected.means_, rtol=1e-8)
    assert_allclose(found.durations_, expected.durations_, rtol=0, atol=1e-8)


def test_mini_batches_come_near_em() -> None:
    x = drawn(60, 3, round_trips=2)
    expected = hsmm(max_iter=20).fit(x)
    found = hsmm(algorithm="stepwise", training__batches=5, max_iter=6).fit(x)
    assert found.score(x) > expected.score(x) - 2e-3


def test_partial_fit_goes_on_from_batch_to_batch() -> None:
    x = drawn(60, 3, round_trips=2)
    model = hsmm(training__step_decay=0.6)
    for first in range(0, 60, 10):
        model.partial_fit(x[first : first + 10])
    assert len(model.history_) == 6
    assert model.score(x) > hsmm(max_iter=20).fit(x).score(x) - 5e-3
    one = made(
        HSMM.from_parameters,
        **_parameters(model),
        max_duration=14,
        encoding=model.encoding_,
        observation=model.observation_,
    )
    em = one.reorder(range(K)).set_params(warm_start=True, max_iter=1, tol=0.0).fit(x)
    assert_allclose(one.partial_fit(x).means_, em.means_, rtol=1e-9)  # the first is a step of EM
    assert_allclose(one.duration_rates_, em.duration_rates_, rtol=1e-9)


def test_partial_fit_after_fit_counts_what_was_fitted_by_its_steps() -> None:
    """A second batch like the first one leaves the averages, and so the parameters, about as they are."""
    model = hsmm(max_iter=40, tol=1e-9).fit(ROUNDS)
    before = model.means_.copy(), model.mean_durations_.copy(), model.transition_.copy()
    model.partial_fit(ROUNDS)
    for found, expected in zip((model.means_, model.mean_durations_, model.transition_), before, strict=True):
        assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def _parameters(model: HSMM) -> dict[str, Any]:
    names = {"initial": "initial_", "transition": "transition_", "duration_rates": "duration_rates_"}
    emitted = {"means": model.means_, "covariances": model.covariances_, "weights": model.weights_}
    return {**{name: getattr(model, attribute) for name, attribute in names.items()}, **emitted}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topology": "circle"}, "topology is 'circle'"),
        ({"training__frozen": ("duration",)}, "frozen is .* among initial, transition, emission, durations"),
        ({"training__frozen": Frozen(durations=[7])}, "frozen names state 7"),
        ({"tied_durations": [0, 1]}, "tied_durations is"),
        ({"tied_durations": "ab"}, "tied_durations is 'ab'"),
        ({"training__tied": [0, 1]}, "tied is"),
        ({"durations": "geometric", "tied_durations": [0, 0, 1, 1]}, "geometric durations are the transitions"),
        ({"durations": "geometric", "training__frozen": ("durations",)}, "geometric durations are the transitions"),
        ({"algorithm": "stepwise", "training__batches": 0}, "batches is 0"),
        ({"training__tied": [0, 0, 1, 1], "observation": sm.GaussianMixture(1, "tied")}, "covariance_type='tied'"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hsmm(**options).fit(X)


def test_an_hmm_freezes_no_durations() -> None:
    with pytest.raises(ValueError, match="for an HMM, freeze transition"):
        sm.HMM(2, training=sm.hmm.ChainTraining(frozen=Frozen(durations=[0]))).fit(X)


def test_a_warm_start_is_within_what_is_asked_for() -> None:
    model = hsmm(max_iter=1, warm_start=True).fit(ROUNDS)
    for options, message in (
        ({"topology": "left-to-right"}, "EM cannot continue"),
        ({"training__tied": [0, 0, 1, 1]}, "states that are tied have different emissions"),
        ({"tied_durations": [0, 0, 1, 1]}, "states that are tied have different durations"),
    ):
        with pytest.raises(ValueError, match=message):
            model.reorder(range(K)).set_params(**options).fit(ROUNDS)


def test_states_in_another_order_are_the_same_model() -> None:
    order = [2, 0, 3, 1]
    model = hsmm(
        topology=Arcs((np.roll(np.eye(K), 1, 1) + np.roll(np.eye(K), 2, 1)).astype(int).tolist()),
        training__frozen=Frozen(emission=[0], durations=[1]),
        tied_durations=[0, 1, 0, 2],
        pseudocount=Pseudocounts(transition=np.arange(16.0).reshape(4, 4)),
        tol=0.0,
    ).fit(ROUNDS)
    other = model.reorder(order)
    assert_allclose(other.log_prob(ROUNDS), model.log_prob(ROUNDS), rtol=1e-12)
    assert_array_equal(other.durations_, model.durations_[order])
    assert other.tied_durations == [0, 0, 2, 1]
    assert other.training.frozen.emission == [1]
    assert other.training.frozen.durations == [3]
    again, expected = (each.set_params(warm_start=True, max_iter=2).fit(ROUNDS) for each in (other, model))
    assert_allclose(again.history_["objective"], expected.history_["objective"], rtol=1e-10)
    assert_allclose(again.transition_, expected.transition_[np.ix_(order, order)], rtol=1e-8)
    assert (np.diff(model.reorder("mean").means_.ravel()) > 0).all()
    assert (np.diff(model.reorder("stationary").stationary_) <= 1e-12).all()
    with pytest.raises(ValueError, match="pass each of the states"):
        model.reorder([0, 0, 1, 2])
