"""States in stages last as sums of geometric times do, and are found in data that a geometric duration fits worse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels import HMM, Bernoulli
from seqmodels.hmm import ChainTraining, Series
from tests.made import made

STAGES, STATES = 3, 2
K = STAGES * STATES
TIED = Series(STAGES).tied(K)


def chain(stay: float) -> np.ndarray:
    """Every stage stays with the same probability; from the last one goes to the other state."""
    return stay * np.eye(K) + (1 - stay) * np.roll(np.eye(K), 1, axis=1)


def bits(n: int) -> list[np.ndarray]:
    """Runs of 3 to 6 frames in turn: never short, which a geometric duration would most often be."""
    rng = np.random.default_rng(0)
    return [np.repeat(np.arange(12) % 2, rng.integers(3, 7, size=12)).astype(float)[:, None] for _ in range(n)]


def test_a_visit_lasts_as_long_as_scipys_negative_binomial() -> None:
    stay = 0.7
    inside, mass = chain(stay)[:STAGES, :STAGES], np.eye(STAGES)[0]
    leaving, found = 1 - inside.sum(1), []
    for _ in range(40):
        found.append(mass @ leaving)
        mass = mass @ inside
    durations = np.arange(1, 41)
    assert_allclose(found, scipy.stats.nbinom.pmf(durations - STAGES, STAGES, 1 - stay), atol=1e-15)
    allowed = Series(STAGES).transition_mask(K).numpy()
    assert ((chain(stay) > 0) == allowed).all()


def test_em_keeps_the_stages_and_one_emission_a_state() -> None:
    options: dict[str, Any] = {"observation": Bernoulli(0.1), "length": "given", "dtype": "float64", "tol": 0}
    model = made(HMM, K, topology=Series(STAGES), training=ChainTraining(tied=TIED), max_iter=30, **options).fit(
        bits(8)
    )
    assert (np.diff(model.history_["objective"]) > -1e-10).all()
    assert not model.transition_[~Series(STAGES).transition_mask(K).numpy()].any()
    assert not model.initial_[[1, 2, 4, 5]].any()
    assert (model.probabilities_[0::3] == model.probabilities_[2::3]).all()
    geometric = made(HMM, STATES, max_iter=30, **options).fit(bits(8))
    assert model.score(bits(9)[8:]) > geometric.score(bits(9)[8:]) + 0.05
    states = model.decode(bits(9)[8:])[0] // STAGES
    seen = bits(9)[8][:, 0]
    assert (states == seen).all() or (states == 1 - seen).all()


def test_stages_can_be_saved_and_other_numbers_of_states_are_refused(tmp_path: Path) -> None:
    model = HMM(
        K, topology=Series(STAGES), training=ChainTraining(tied=TIED), observation=Bernoulli(0.1), max_iter=2
    ).fit(bits(2))
    model.save(tmp_path / "model")
    assert sm.load(tmp_path / "model").get_params()["topology__stages"] == STAGES
    assert TIED == [0, 0, 0, 1, 1, 1]
    for n_states, stages in ((5, 2), (4, 0)):
        with pytest.raises(ValueError, match=f"n_states is {n_states}, no multiple of the {stages}"):
            HMM(n_states, topology=Series(stages)).fit(bits(2))
