from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.generation import sample_steps
from tests.generation.markov import CHAIN, FIRST, Markov, seeded


def draw(cursor: Markov, n: int, length: int | None = None, **options: object) -> list[np.ndarray]:
    defaults: dict[str, object] = {"prefix": np.zeros(0, dtype=np.int64), "source": None, "max_length": 50}
    arguments = {**defaults, "generator": seeded(), **options}
    return sample_steps(cursor, n, length=length, **arguments)  # type: ignore[arg-type]


def test_samples_follow_the_chain() -> None:
    drawn = np.stack(draw(Markov(), 4000, length=6))
    assert drawn.shape == (4000, 6)
    np.testing.assert_allclose(np.bincount(drawn[:, 0], minlength=3) / 4000, FIRST, atol=0.03)
    counts = np.zeros((3, 3))
    np.add.at(counts, (drawn[:, :-1].ravel(), drawn[:, 1:].ravel()), 1)
    np.testing.assert_allclose(counts / counts.sum(1, keepdims=True), CHAIN, atol=0.03)


def test_lengths_are_geometric_and_at_least_one() -> None:
    lengths = np.array([len(x) for x in draw(Markov(end=0.25), 4000)])
    assert lengths.min() == 1
    for n in (1, 2, 3):
        assert (lengths == n).mean() == pytest.approx(0.25 * 0.75 ** (n - 1), abs=0.02)
    assert max(len(x) for x in draw(Markov(end=0.25), 4000, max_length=5)) == 5


def test_a_forced_length_masks_the_end() -> None:
    assert {len(x) for x in draw(Markov(end=0.9), 50, length=7)} == {7}


def test_a_prefix_is_continued() -> None:
    prefix = np.array([0, 2])
    for x in draw(Markov(), 50, length=4, prefix=prefix):
        assert x[:3].tolist() == [0, 2, 1]  # after 2 comes 1
    assert [x.tolist() for x in draw(Markov(), 2, length=0, prefix=prefix)] == [[0, 2], [0, 2]]
    assert {len(x) for x in draw(Markov(), 50, length=4, prefix=prefix)} == {6}
    assert max(len(x) for x in draw(Markov(end=0.25), 4000, max_length=3, prefix=prefix)) == 5
    assert min(len(x) for x in draw(Markov(end=0.5), 200, prefix=prefix)) == 2


def test_a_source_reaches_the_start() -> None:
    assert [x.tolist() for x in draw(Markov(), 2, length=2, source=np.array([2]))] == [[2, 2], [2, 2]]


def test_draws_repeat_by_seed() -> None:
    first = np.stack(draw(Markov(), 5, length=20))
    np.testing.assert_array_equal(np.stack(draw(Markov(), 5, length=20)), first)
    assert not np.array_equal(np.stack(draw(Markov(), 5, length=20, generator=seeded(1))), first)


def test_the_step_at_which_no_sequence_goes_on_is_counted_from_the_prefixs_beginning() -> None:
    """State 0 goes to 1, and 1 to the end: after two steps there is nothing more."""
    model = sm.HMM.from_parameters([1, 0], [[0, 1], [0, 0]], [0, 1], emission=[[1.0, 0], [0, 1.0]])
    options: Any = {"length": 3, "prefix": np.array([0])}
    with pytest.raises(ValueError, match="continues after step 2 is possible"):
        model.sample(1, **options)
    pieces = model.generate(**options)
    assert next(pieces) == 1
    with pytest.raises(ValueError, match="continues after step 2 is possible"):
        next(pieces)


def test_a_container_is_no_prefix() -> None:
    x = [np.random.default_rng(0).normal(size=(9, 1))]
    model = sm.HMM(1, max_iter=1).fit(x)
    for call in (model.predict_next, lambda prefix: model.sample(prefix=prefix, length=1)):
        with pytest.raises(ValueError, match=r"the prefix is Sequences; pass one of them, X\[0\], and its times and"):
            call(sm.Sequences(x))
