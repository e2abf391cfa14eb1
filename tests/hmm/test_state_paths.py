"""The k most probable paths of sequences as a model gives them, in raw units."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from seqmodels import HMM, GaussianMixture
from seqmodels.hmm import StatePath
from seqmodels.sequences import Sequences
from tests.hmm.test_hmm_model import frames
from tests.hmm.test_state_queries import WORDS, symbols


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_k_best_paths_are_the_best_of_all(final: bool, sparse: bool) -> None:
    model = symbols(final, seed=3, sparse=sparse)
    for word, best in zip(WORDS, model.decode(WORDS, k=6), strict=True):
        every = list(itertools.product(range(3), repeat=len(word)))
        log_prob = model.path_log_prob([word] * len(every), every)
        expected = [i for i in np.argsort(-log_prob, kind="stable")[:6] if np.isfinite(log_prob[i])]
        assert [tuple(path.states.tolist()) for path in best] == [every[i] for i in expected]
        assert_allclose([path.log_prob for path in best], log_prob[expected], rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_they_are_of_raw_units_and_the_first_is_the_best_path(dtype: str) -> None:
    x = [1e3 * item for item in frames(np.random.default_rng(1), lengths=[12, 3, 700])]
    model = HMM(3, observation=GaussianMixture(1), max_iter=3, dtype=dtype).fit(x)
    best, one = model.decode(x, k=4), model.decode(x)
    assert all(np.array_equal(paths[0].states, path) for paths, path in zip(best, one, strict=True))
    for rank in range(4):
        of_rank = [paths[rank] for paths in best]
        assert_allclose(
            [path.log_prob for path in of_rank], model.path_log_prob(x, [path.states for path in of_rank]), rtol=1e-12
        )
    assert all(np.all(np.diff([path.log_prob for path in paths]) <= 1e-7) for paths in best)


def test_with_targets_paths_are_of_both() -> None:
    rng = np.random.default_rng(0)
    X, Y = ([rng.normal(3, 2, (n, 1)) for n in lengths] for lengths in ((30, 2), (40, 1)))
    model = HMM(2, observation=GaussianMixture(1), max_iter=3, dtype="float64").fit(X, Y)
    best = model.decode(X, Y, k=2)
    assert [len(paths[1].states) for paths in best] == [70, 3]
    assert_allclose(
        [paths[1].log_prob for paths in best],
        model.path_log_prob(X, [paths[1].states for paths in best], Y),
        rtol=1e-12,
    )


def test_there_are_fewer_where_fewer_are_possible() -> None:
    model = HMM.from_parameters([1.0, 0.0], [[0.5, 0.5], [0.0, 1.0]], emission=[[0.5, 0.5]] * 2, dtype="float64")
    (found,) = model.decode([np.array([0, 1, 0])], k=10)
    assert [path.states.tolist() for path in found] == [[0, 1, 1], [0, 0, 0], [0, 0, 1]]
    assert isinstance(found[0], StatePath)


def test_what_has_no_best_paths_is_refused() -> None:
    model = HMM.from_parameters([1.0, 0.0], np.eye(2), emission=np.eye(2))
    with pytest.raises(ValueError, match="sequence 1 has probability zero"):
        model.decode([np.array([0, 0]), np.array([0, 1, 0])], k=2)
    wrong: Any
    for wrong in (0, -1, 2.0, "3"):
        with pytest.raises(ValueError, match="pass the number of paths of each sequence, at least 1"):
            model.decode([np.array([0, 0])], k=wrong)
    later = Sequences([np.array([0, 0])], past=[np.array([0])])
    with pytest.raises(ValueError, match="decode with k reads whole sequences"):
        model.decode(later, k=2)
