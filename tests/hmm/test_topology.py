"""Zeros stay exactly zero, EM never goes down under any topology, tying or freezing, and what cannot be is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels import HMM, Categorical, GaussianMixture, LeftToRight
from seqmodels.hmm import Arcs, Banded, ChainTraining, Frozen, Pseudocounts
from tests.made import made

K = 4
RING = [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]]
TOPOLOGIES: list[Any] = ["ergodic", "left-to-right", LeftToRight(skips=1), LeftToRight(1, "last"), Banded(1), RING]
TOPOLOGIES += [Arcs(RING, initial=[1, 0, 0, 0], final=[0, 0, 0, 1], ordered=True)]


def words(seed: int = 0) -> list[np.ndarray]:
    """Symbols that change slowly: five sequences of 4 to 30."""
    rng = np.random.default_rng(seed)
    return [np.sort(rng.integers(5, size=n)) for n in (30, 4, 12, 25, 6)]


def speech(seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.linspace(0, 4, n)[:, None] + rng.normal(scale=0.5, size=(n, 2)) for n in (20, 9, 14)]


def assert_rises(model: HMM) -> None:
    objective = model.history_["objective"].to_numpy()
    assert (np.diff(objective) >= -1e-10 * np.abs(objective[1:])).all(), np.diff(objective).min()
    assert objective[-1] > objective[0]


@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_zeros_stay_zero_and_the_objective_rises(topology: Any, length: Any) -> None:
    model = HMM(K, topology=topology, length=length, pseudocount=0.1, max_iter=8, tol=0, dtype="float64").fit(words())
    assert_rises(model)
    shape = sm.hmm.topology.as_topology(topology, K)
    assert_allclose(model.transition_ > 0, shape.transition_mask(K))
    assert_allclose(model.initial_ > 0, shape.initial_mask(K))
    assert_allclose(model.transition_.sum(1) + model.final_, 1, rtol=1e-12)
    if length == "stop":
        assert_allclose(model.final_ > 0, shape.final_mask(K))


def test_left_to_right_starts_by_cutting_into_equal_parts() -> None:
    x = [np.repeat([0, 1, 2], 4), np.repeat([0, 1, 2], 2)]
    model = HMM(3, topology="left-to-right", length="given", max_iter=0).fit(x)
    assert (model.emission_.argmax(1) == [0, 1, 2]).all()
    path = HMM(3, topology="left-to-right", length="given", max_iter=20).fit(x).decode(x)
    assert [p.tolist() for p in path] == [s.tolist() for s in x]


def test_free_parameters_are_those_that_exist() -> None:
    model = HMM(K, topology="left-to-right", length="stop", max_iter=1).fit(words())
    assert model.n_parameters_ == 0 + (2 + 2 + 2 + 1) + K * 4  # starts; rows with their end; emissions
    assert (
        HMM(K, length="given", training=ChainTraining(tied=[0, 0, 1, 1]), max_iter=1).fit(words()).n_parameters_
        == 3 + 12 + 2 * 4
    )


def test_sequences_too_short_for_the_last_state_are_named() -> None:
    with pytest.raises(ValueError, match=r"sequence 2 has probability zero.*topology"):
        HMM(K, topology=LeftToRight(end="last"), length="stop").fit([*words()[:2], np.array([0, 1])])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"topology": "linear"}, "topology is 'linear'"),
        ({"topology": np.ones((3, 3))}, r"shape \(3, 3\)"),
        ({"topology": Banded(-1)}, "width of the topology is -1"),
        ({"topology": LeftToRight(end="first")}, "end is 'first'"),  # type: ignore[arg-type]
        ({"topology": Arcs(np.eye(K), initial=np.zeros(K))}, "no state to start in"),
        ({"topology": np.diag([1, 1, 1, 0])}, "state 3 of the topology has no transition"),
        ({"training__tied": [0, 0, 1]}, "a group number for each of the 4 states"),
        ({"training__frozen": "emission"}, "frozen is 'emission'"),
        ({"training__frozen": ("emissions",)}, "initial, transition, emission"),
        ({"training__frozen": Frozen(emission=[4])}, "names state 4"),
        ({"pseudocount": Pseudocounts(transition=-1.0)}, "transition of the pseudocounts"),
        ({"pseudocount": Pseudocounts(sticky=[1.0, 2.0])}, "sticky of the pseudocounts has shape"),
        ({"algorithm": "online"}, "algorithm is 'online'"),
        ({"training__batches": 0}, "batches is 0"),
        ({"training__step_decay": 0.3}, "step_decay is 0.3"),
        ({"algorithm": "stepwise", "max_iter": 0}, "makes no step"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(HMM, K, **change).fit(words())


# -- ties and freezes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("observation", [GaussianMixture(2), GaussianMixture(1, "full"), sm.AutoregressiveGaussian(1)])
@pytest.mark.parametrize("topology", ["ergodic", "left-to-right"])
def test_tied_states_share_one_emission(observation: Any, topology: str) -> None:
    model = HMM(
        K,
        observation=observation,
        topology=topology,
        training=ChainTraining(tied=[7, 2, 2, 7]),
        max_iter=6,
        tol=0,
        dtype="float64",
    )
    model.fit(speech())
    assert_rises(model)
    table = model.parameters_.table
    assert (table[0] == table[3]).all()
    assert (table[1] == table[2]).all()
    assert (table[0] != table[1]).any()


def test_tied_emissions_are_those_of_the_states_together() -> None:
    """One step by hand: statistics of tied states are summed, and the prior of a shared emission counts once."""
    x, free = words(), HMM(3, length="given", observation=Categorical(0.5), max_iter=0, dtype="float64").fit(words())
    b = free.emission_[[0, 0, 2]]
    options: dict[str, Any] = {"observation": Categorical(0.5), "dtype": "float64", "warm_start": True, "max_iter": 1}
    tied = made(HMM.from_parameters, free.initial_, free.transition_, emission=b, training__tied=[0, 0, 1], **options)
    counts = np.zeros((3, 5))
    for item, gamma in zip(x, tied.posterior(x), strict=True):
        np.add.at(counts.T, item, gamma)
    tied.fit(x)
    pooled = np.array([counts[:2].sum(0), counts[2]]) + 0.5
    assert_allclose(tied.emission_, (pooled / pooled.sum(1, keepdims=True))[[0, 0, 1]], rtol=1e-10)
    n = sum(map(len, x))
    prior = 0.5 * np.log(b[1:]).sum() / n
    assert_allclose(tied.history_["objective"][0] - tied.history_["log_prob"][0], prior, rtol=1e-10)


@pytest.mark.parametrize(
    ("frozen", "still", "rows"),
    [
        (("emission",), ["emission_"], range(K)),
        (("transition", "initial"), ["transition_", "final_", "initial_"], range(K)),
        (Frozen(transition=[1], emission=[1]), ["transition_", "emission_", "final_"], [1]),
    ],
)
def test_what_is_frozen_stays(frozen: Any, still: list[str], rows: Any) -> None:
    first = HMM(K, max_iter=0, dtype="float64").fit(words())
    options: dict[str, Any] = {"max_iter": 6, "tol": 0.0, "warm_start": True, "dtype": "float64"}
    p = (first.initial_, first.transition_, first.final_)
    model = made(HMM.from_parameters, *p, emission=first.emission_, training__frozen=frozen, **options).fit(words())
    assert_rises(model)
    for name in ("initial_", "transition_", "final_", "emission_"):
        same = getattr(model, name) == getattr(first, name)
        if name in still:
            assert_allclose(getattr(model, name)[rows], getattr(first, name)[rows], rtol=1e-14)
        assert name in still or not same.all()
    assert not (model.transition_ == first.transition_).all() or "transition_" in still


@pytest.mark.parametrize(
    ("options", "n"),
    [
        ({}, 2 + 6 + 12),
        ({"training__frozen": ("transition",)}, 2 + 12),
        ({"training__frozen": ("initial", "transition")}, 12),
        ({"training__frozen": ("emission",)}, 2 + 6),
        ({"training__frozen": ("initial", "transition", "emission")}, 0),
        ({"training__frozen": Frozen(transition=[1], emission=[0, 2])}, 2 + 4 + 4),
        ({"training__frozen": Frozen(emission=[0]), "training__tied": [0, 0, 1]}, 2 + 6 + 4),  # which freezes both
        ({"training__frozen": ("emission",), "topology": "left-to-right"}, 2),
    ],
    ids=str,
)
def test_only_what_is_free_is_counted(options: dict[str, Any], n: int) -> None:
    model = made(HMM, 3, length="given", max_iter=1, **options).fit(words())
    assert model.n_parameters_ == n
    total = model.log_prob(words()).sum()
    assert model.aic(words()) == pytest.approx(2 * n - 2 * total)
    assert model.bic(words()) == pytest.approx(n * np.log(77) - 2 * total)


def test_a_chain_that_memory_cannot_hold_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"the transitions of 1000000000 states would take 14\.7 EiB of memory"):
        HMM(10**9).fit(words())
    with pytest.raises(ValueError, match=r"n_states of HMM is 20,000, but the data have 2 steps"):
        HMM(20_000).fit([np.array([0, 2**27])])


@pytest.mark.parametrize("algorithm", ["em", "stepwise"])
@pytest.mark.parametrize(
    ("cls", "observation", "of_emission"),
    [
        (HMM, "auto", "means_"),
        (HMM, Categorical(), "emission_"),
        (HMM, sm.AutoregressiveGaussian(), "coefficients_"),
        (sm.hmm.HSMM, "auto", "means_"),
        (sm.hmm.ContinuousTimeHMM, "auto", "means_"),
        (sm.hmm.MarkovSwitchingAR, "auto", "means_"),
    ],
)
def test_a_frozen_state_freezes_those_that_are_tied_to_it(
    cls: Any, observation: Any, of_emission: str, algorithm: Any
) -> None:
    x = words() if of_emission == "emission_" else speech()
    model = made(cls, 3, observation=observation, training__tied=[0, 0, 1], n_init=1, max_iter=2, tol=0).fit(x)
    before = getattr(model, of_emission)
    model.set_params(training__frozen=Frozen(emission=[1]), warm_start=True, algorithm=algorithm, max_iter=4).fit(x)
    after = getattr(model, of_emission)
    assert (after[:2] == before[:2]).all()
    assert (after[0] == after[1]).all()
    assert (after[2] != before[2]).any()
    if algorithm == "em":
        assert_rises(model)


MEANS: dict[str, Any] = {"means": [[0.0], [1.0], [2.0]], "covariances": [[1.0]] * 3}
AHEAD = [[0.5, 0.25, 0.25], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (HMM.from_parameters, {"initial": [1, 0, 0], "transition": AHEAD, **MEANS}, r"transition\[0, 2\] is 0.25"),
        (HMM.from_parameters, {"initial": [0.9, 0.1, 0], "transition": np.eye(3), **MEANS}, r"initial\[1\] is 0.1"),
        (
            sm.hmm.HSMM.from_parameters,
            {"initial": [1, 0, 0], "transition": AHEAD, **MEANS},
            r"transition\[0, 2\] is 0.25",
        ),
        (
            sm.hmm.ContinuousTimeHMM.from_parameters,
            {"generator": [[-1, 0.7, 0.3], [0, -1, 1], [0, 0, 0]], "initial": [1, 0, 0], **MEANS},
            r"generator\[0, 2\] is 0.3",
        ),
        (
            sm.hmm.MarkovSwitchingAR.from_parameters,
            {"initial": [1, 0, 0], "transition": AHEAD, "means": [[0.0], [1.0], [2.0]]}
            | {"autoregression": [[0.1]], "variances": [1.0]},
            r"transition\[0, 2\] is 0.25",
        ),
    ],
)
def test_given_parameters_that_the_topology_forbids_are_refused(make: Any, arguments: Any, message: str) -> None:
    make(**arguments)
    with pytest.raises(ValueError, match=f"^{message}, but topology='left-to-right' does not allow it; pass 0 there"):
        make(**arguments, topology="left-to-right")


def test_a_given_end_that_the_topology_forbids_is_refused() -> None:
    arguments = {"initial": [1, 0], "transition": [[0.5, 0.4], [0, 0.9]], "final": [0.1, 0.1], "emission": np.eye(2)}
    with pytest.raises(ValueError, match=r"^final\[0\] is 0.1, but topology=LeftToRight\(skips=1, end='last'\)"):
        HMM.from_parameters(**arguments, topology=LeftToRight(1, "last"))


def test_a_warm_start_that_breaks_the_topology_or_the_tie_is_refused() -> None:
    first = HMM(K, max_iter=1, warm_start=True).fit(words())
    with pytest.raises(ValueError, match="allow transitions that topology"):
        first.set_params(topology="left-to-right").fit(words())
    with pytest.raises(ValueError, match="different emissions"):
        first.set_params(topology="ergodic", training__tied=[0, 0, 1, 2]).fit(words())


def test_saved_and_loaded(tmp_path: Path) -> None:
    prior = Pseudocounts(transition=np.ones((K, K)), sticky=2.0)
    model = HMM(
        K,
        topology=Arcs(np.array(RING)),
        training=ChainTraining(tied=[0, 0, 1, 2], frozen=Frozen(emission=[0])),
        pseudocount=prior,
    )
    model.set_params(max_iter=2).fit(words()).save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    assert loaded.score(words()) == pytest.approx(model.score(words()), rel=1e-12)
    assert loaded.get_params()["topology__transition"].tolist() == RING
    assert repr(loaded.clone().fit(words())) == repr(loaded)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observation": GaussianMixture(1, "tied"), "training__tied": [0, 0, 1]}, "one covariance for all states"),
        (
            {"observation": GaussianMixture(1, "tied"), "training__frozen": Frozen(emission=[1])},
            "one covariance for all states",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    x = [np.random.default_rng(0).normal(size=(20, 2))]
    with pytest.raises(ValueError, match=message):
        made(HMM, 3, **{"observation": GaussianMixture(1), **options}).fit(x)
