"""The k most probable paths of sequences as a model gives them, in raw units."""

from __future__ import annotations

import itertools
import re
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


# -- forced alignment --------------------------------------------------------------------------------------------------


def through(model: HMM, word: np.ndarray, groups: list[tuple[int, ...]]) -> tuple[float, list[list[int]]]:
    """The best log p(x, path) of all that go through these groups, and the ends of all segmentations that reach it."""
    scores = {}
    for cuts in itertools.combinations(range(1, len(word)), len(groups) - 1):
        ends = [*cuts, len(word)]
        each = [group for group, n in zip(groups, np.diff([0, *ends]), strict=True) for _ in range(n)]
        every = list(itertools.product(*each))
        scores[tuple(ends)] = max(model.path_log_prob([word] * len(every), every))
    best = max(scores.values())
    return best, [list(ends) for ends, score in scores.items() if score > best - 1e-9]


@pytest.mark.parametrize("final", [False, True])
def test_an_alignment_is_the_best_of_all(final: bool) -> None:
    model, words = symbols(final, seed=3), [np.array([0, 2, 1, 2, 0, 1]), np.array([1]), np.array([2, 2, 0])]
    labels: list[list[Any]] = [[0, (1, 2), np.int64(0)], [[0, 2]], [{1}, range(2)]]
    for word, label, aligned in zip(words, labels, model.align(words, labels), strict=True):
        groups = [tuple(each) if isinstance(each, tuple | list | set | range) else (int(each),) for each in label]
        best, segmentations = through(model, word, groups)
        assert_allclose(aligned.log_prob, best, rtol=1e-12)
        assert aligned.ends.tolist() in segmentations
        assert aligned.starts.tolist() == [0, *aligned.ends[:-1]]
        for group, first, after in zip(groups, aligned.starts, aligned.ends, strict=True):
            assert set(aligned.states[first:after]) <= set(group)
        assert_allclose(model.path_log_prob([word], [aligned.states]), [best], rtol=1e-12)


def test_an_alignment_to_the_runs_of_the_best_path_is_this_path() -> None:
    x = [1e3 * item for item in frames(np.random.default_rng(1), lengths=[120, 3, 700])]
    model = HMM(3, observation=GaussianMixture(1), max_iter=5, dtype="float64").fit(x)
    paths = model.decode(x)
    starts = [np.flatnonzero(np.diff(path, prepend=-1)) for path in paths]
    aligned = model.align(x, [path[first] for path, first in zip(paths, starts, strict=True)])
    assert all(each.states.tolist() == path.tolist() for each, path in zip(aligned, paths, strict=True))
    assert all(each.starts.tolist() == first.tolist() for each, first in zip(aligned, starts, strict=True))
    assert_allclose([each.log_prob for each in aligned], model.path_log_prob(x, paths), rtol=1e-12)


def test_a_label_that_comes_twice_begins_the_second_time_as_late_as_possible() -> None:
    model = HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]], emission=[[0.9, 0.1], [0.2, 0.8]])
    (aligned,) = model.align([np.array([0, 0, 0, 1, 1])], [[0, 0, 1]])
    assert aligned.ends.tolist() == [2, 3, 5]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (3, "labels is "),
        ([[0]], "there are 2 sequences but labels of 1"),
        ([[0], 1], "the labels of sequence 1 are "),
        ([[0], []], "sequence 1 has no labels"),
        ([[0], [0, 1]], "sequence 1 has 1 steps but 2 labels"),
        ([[0, 3], [0]], "label 1 of sequence 0 is 3; the model has states 0 to 2"),
        ([[0, -1], [0]], "label 1 of sequence 0 is -1; the model has states 0 to 2"),
        ([[0, "a"], [0]], "label 1 of sequence 0 is 'a'; pass a state, as 2, or a group"),
        ([[(), 1], [0]], "label 0 of sequence 0 is (); pass a state, as 2, or a group"),
    ],
)
def test_labels_that_are_none_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        symbols().align([np.array([0, 1]), np.array([2])], labels)


def test_labels_that_no_path_goes_through_are_refused() -> None:
    model = HMM(3, topology="left-to-right", observation=GaussianMixture(1), max_iter=2).fit(
        frames(np.random.default_rng(0), lengths=[40, 40])
    )
    x = frames(np.random.default_rng(0), lengths=[9, 9])
    assert model.align(x, [[0, 1, 2], [0]])[1].ends.tolist() == [9]
    with pytest.raises(ValueError, match="no path of sequence 1 goes through its labels in their order"):
        model.align(x, [[0, 1, 2], [0, 2]])
