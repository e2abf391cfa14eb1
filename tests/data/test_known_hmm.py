from __future__ import annotations

import numpy as np
import pytest

from seqmodels.data import hmm_draws, sha256


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_gaussian_draws_have_the_parameters_they_come_with(kind: str) -> None:
    x, truth = hmm_draws(
        400,
        50,
        n_states=3,
        n_features=2,
        covariance_type=kind,
        random_state=1,  # type: ignore[arg-type]
    )
    assert truth.means is not None
    assert truth.covariances is not None
    frames, states = np.concatenate([np.asarray(item) for item in x]), np.concatenate(truth.states)
    for k in range(3):
        mine = frames[states == k]
        covariance = np.cov(mine.T)
        wanted = np.diag(truth.covariances[k]) if kind == "diag" else truth.covariances[k]
        np.testing.assert_allclose(mine.mean(axis=0), truth.means[k], atol=0.1)
        np.testing.assert_allclose(covariance, wanted, atol=0.1)


def test_paths_and_symbols_have_the_parameters_they_come_with() -> None:
    x, truth = hmm_draws(2000, 20, n_states=3, n_symbols=4, random_state=2)
    assert truth.emission is not None
    states, symbols = np.stack(truth.states), np.stack([np.asarray(item) for item in x])
    first = np.bincount(states[:, 0], minlength=3) / 2000
    pairs, seen = np.zeros((3, 3)), np.zeros((3, 4))
    np.add.at(pairs, (states[:, :-1].ravel(), states[:, 1:].ravel()), 1)
    np.add.at(seen, (states.ravel(), symbols.ravel()), 1)
    np.testing.assert_allclose(first, truth.initial, atol=0.04)
    np.testing.assert_allclose(pairs / pairs.sum(axis=1, keepdims=True), truth.transition, atol=0.02)
    np.testing.assert_allclose(seen / seen.sum(axis=1, keepdims=True), truth.emission, atol=0.02)
    np.testing.assert_allclose(truth.transition.sum(axis=1), 1.0)
    np.testing.assert_allclose(truth.transition.diagonal(), 0.8)


def test_draws_repeat_by_seed() -> None:
    same = [sha256(hmm_draws(5, 10, n_features=2, random_state=seed)[0]) for seed in (0, 0, 1)]
    assert same[0] == same[1] != same[2]
    x, truth = hmm_draws(3, 4, n_states=1, n_symbols=2)
    assert x.n_units.tolist() == [4, 4, 4]
    assert truth.transition.tolist() == [[1.0]]


def test_draws_refuse_what_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="n_features for vectors or n_symbols"):
        hmm_draws(5, 10)
    with pytest.raises(ValueError, match="n_features is 2 and n_symbols is 3"):
        hmm_draws(5, 10, n_features=2, n_symbols=3)
    with pytest.raises(ValueError, match="count from 1"):
        hmm_draws(5, 0, n_symbols=3)
    with pytest.raises(ValueError, match="stay is 2"):
        hmm_draws(5, 10, n_symbols=3, stay=2)
    with pytest.raises(ValueError, match='"diag" or "full"'):
        hmm_draws(5, 10, n_features=3, covariance_type="tied")  # type: ignore[arg-type]
