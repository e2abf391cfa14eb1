"""A reordered model goes on as the first would have: what was said of single states moves with them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from seqmodels import HMM, GaussianMixture, LeftToRight, Standardize
from seqmodels.hmm import Arcs, Frozen, Pseudocounts
from seqmodels.hmm.state_queries import reordered_topology
from seqmodels.observations import PseudoFrames
from tests.made import made

K, ORDER = 4, [2, 0, 3, 1]
RNG = np.random.default_rng(0)
RING = (np.eye(K) + np.roll(np.eye(K), 1, axis=1)).astype(bool)
BELIEF = PseudoFrames(RNG.uniform(1, 3, (K, 1)), RNG.normal(size=(K, 1, 2)), RNG.uniform(0.5, 1, (K, 1, 2)))
COUNTS = Pseudocounts(RNG.uniform(size=K), RNG.uniform(size=(K, K)), RNG.uniform(size=K), 0.2)
CHOICES: dict[str, dict[str, Any]] = {
    "mask": {"topology": RING},
    "left-to-right": {"topology": "left-to-right"},
    "ends last": {"topology": LeftToRight(1, end="last"), "length": "stop"},
    "arcs": {"topology": Arcs(RING, initial=[1, 1, 0, 0], final=[0, 1, 1, 1]), "length": "stop"},
    "tied": {"training__tied": [7, 7, 1, 1]},
    "frozen": {"training__frozen": Frozen(transition=[0, 3], emission=[1])},
    "frozen tables": {"training__frozen": ("initial", "emission")},
    "counts": {"pseudocount": COUNTS},
    "frames": {"observation": GaussianMixture(1, prior=BELIEF)},
    "shared frames": {"observation": GaussianMixture(1, prior=PseudoFrames(2.0, [0.5, 0.0]))},
}


def speech() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [np.cumsum(rng.normal(size=(n, 2)), 0) for n in (30, 17, 23)]


def fit(choice: dict[str, Any], n: int) -> HMM:
    options: dict[str, Any] = {
        "observation": GaussianMixture(1),
        "length": "given",
        "encoding": Standardize(),
        **choice,
    }
    return made(HMM, K, max_iter=n, tol=0, dtype="float64", **options).fit(speech())


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_em_goes_on_as_it_would_have(choice: dict[str, Any]) -> None:
    first = fit(choice, 2).set_params(warm_start=True, max_iter=4)
    turned = first.reorder(ORDER)
    kept = repr(first)
    other = turned.fit(speech())
    assert repr(first) == kept
    straight = first.fit(speech()).reorder(ORDER)
    assert other.n_parameters_ == straight.n_parameters_ == first.n_parameters_
    for name in ("initial_", "transition_", "final_", "means_", "covariances_"):
        assert_allclose(getattr(other, name), getattr(straight, name), rtol=1e-7, atol=1e-10)
    assert_allclose(other.history_["objective"], first.history_["objective"], rtol=1e-9)


def test_order_and_back_is_the_model_itself() -> None:
    model = fit(CHOICES["arcs"] | CHOICES["counts"] | CHOICES["tied"], 1)
    back = model.reorder(ORDER).reorder(np.argsort(ORDER))
    assert back.get_params()["topology__transition"] == RING.tolist()
    assert_allclose(back.get_params()["pseudocount__transition"], COUNTS.transition)
    assert back.training.tied == [7, 7, 1, 1]
    assert_allclose(back.transition_, model.transition_)


def test_an_order_may_be_read_only_and_one_that_cannot_be_is_refused_with_a_way_out() -> None:
    model = HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], rates=[[4.0], [1.0]])
    order = np.argsort(model.state_summary()["rates"])  # a column of pandas, which cannot be written to
    assert_allclose(model.reorder(order).rates_, [[1.0], [4.0]])
    assert_allclose(model.reorder("mean").rates_, [[1.0], [4.0]])
    symbols = HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], emission=[[0.9, 0.1], [0.2, 0.8]])
    with pytest.raises(ValueError, match=r"a permutation, such as np.argsort of a column of state_summary\(\)"):
        symbols.reorder("mean")


def test_a_topology_that_looks_the_same_stays_what_it_was() -> None:
    assert reordered_topology("ergodic", np.array(ORDER)) == "ergodic"
    chosen = LeftToRight(1)
    assert reordered_topology(chosen, np.arange(K)) is chosen
    turned = reordered_topology(chosen, np.array(ORDER))
    assert isinstance(turned, Arcs)
    assert not turned.is_ordered


def test_partial_fit_starts_anew_from_a_reordered_model() -> None:
    """What it remembers goes by the old numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = HMM(K, observation=GaussianMixture(1), dtype="float64").partial_fit(speech()[:1])
    fresh = HMM.from_parameters(
        model.initial_,
        model.transition_,
        weights=model.weights_,
        means=model.means_,
        covariances=model.covariances_,
        dtype="float64",
        encoding=model.encoding_,
    )
    turned = model.reorder(ORDER).partial_fit(speech()[1:])
    assert_allclose(turned.means_, fresh.partial_fit(speech()[1:]).means_[ORDER], rtol=1e-8)
