"""Steps drawn states first have the model's own distribution: every short path as often as it is probable."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.hmm import drawn_steps

INITIAL = [0.6, 0.4]
TRANSITION = [[0.5, 0.2], [0.3, 0.5]]
FINAL = [0.3, 0.2]
EMISSION = [[0.7, 0.3, 0.0], [0.1, 0.2, 0.7]]
ENDING = sm.HMM.from_parameters(INITIAL, TRANSITION, final=FINAL, emission=EMISSION)
ENDLESS = sm.HMM.from_parameters(INITIAL, [[0.9, 0.1], [0.4, 0.6]], emission=EMISSION)


@pytest.fixture(params=[1, 32])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_steps, "FIRST_STEPS", request.param)
    monkeypatch.setattr(drawn_steps, "MOST_STEPS", request.param)


def worst_deviation(counts: Counter[tuple[int, ...]], probabilities: dict[tuple[int, ...], float], n: int) -> float:
    """Standard errors between a frequency and its probability, the largest; infinite for what cannot be."""
    if not counts.keys() <= {path for path, p in probabilities.items() if p > 0}:
        return np.inf
    return max(abs(counts[path] / n - p) / np.sqrt(p * (1 - p) / n) for path, p in probabilities.items() if 0 < p < 1)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("prefix", [None, [2, 0]])
def test_sequences_that_may_end(prefix: list[int] | None) -> None:
    n, start = 20_000, tuple(prefix or ())
    drawn = Counter(tuple(x.tolist()) for x in ENDING.sample(n, prefix=prefix, max_length=4, random_state=1))
    short = {path: c for path, c in drawn.items() if len(path) <= len(start) + 2}
    paths = [start + end for m in range(3) for end in product(range(3), repeat=m) if start + end]
    p_start = 1.0
    if start:
        stream = ENDING.stream()
        p_start = np.exp(sum(stream.update(symbol) for symbol in start))
    expected = dict(zip(paths, np.exp(ENDING.log_prob([np.array(path) for path in paths])) / p_start, strict=True))
    assert worst_deviation(Counter(short), expected, n) < 4.5


@pytest.mark.usefixtures("at_once")
def test_sequences_of_a_given_length() -> None:
    n = 20_000
    drawn = Counter(tuple(x.tolist()) for x in ENDLESS.sample(n, length=3, random_state=2))
    paths = list(product(range(3), repeat=3))
    expected = dict(zip(paths, np.exp(ENDLESS.log_prob([np.array(path) for path in paths])), strict=True))
    assert worst_deviation(drawn, expected, n) < 4.5


def test_a_length_that_is_given_where_sequences_may_end_says_that_they_go_on() -> None:
    """Each step is drawn given that there is one: not by a chain of states with the ends left out."""
    n, drawn = 20_000, Counter(tuple(x.tolist()) for x in ENDING.sample(20_000, length=2, random_state=3))
    expected = {}
    for path in product(range(3), repeat=2):
        p = np.exp(float(ENDING.predict_next(None).logits[path[0]]))
        following = ENDING.predict_next(list(path[:1]))
        expected[path] = p * float(following.probs[path[1]]) / (1 - following.p_end)
    assert worst_deviation(drawn, expected, n) < 4.5


def test_vectors_are_drawn_from_the_states_that_were_drawn() -> None:
    model = sm.HMM.from_parameters(
        [1.0, 0.0], [[0.0, 1.0], [1.0, 0.0]], means=[[0.0, 1.0], [100.0, -1.0]], covariances=[[1.0, 4.0], [9.0, 1.0]]
    )
    x = np.stack(model.sample(3_000, length=5, random_state=0))
    for t in range(5):
        assert np.abs(x[:, t].mean(0) - model.means_[t % 2]).max() < 0.25
        np.testing.assert_allclose(x[:, t].std(0), [[1.0, 2.0], [3.0, 1.0]][t % 2], rtol=0.06)
    assert model.sample(0, length=5) == []


def test_nothing_is_drawn_after_a_prefix_that_is_impossible() -> None:
    model = sm.HMM.from_parameters([1.0, 0.0], [[0.5, 0.5], [0.0, 1.0]], emission=[[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="no sequence that goes on after step 2 is possible here"):
        model.sample(2, length=3, prefix=[1, 0])


def test_what_is_yielded_one_by_one_is_what_is_drawn_together() -> None:
    text = sm.HMM(2, max_iter=1, n_init=1).fit(["a text of some letters, and more of them"])
    assert "".join(text.generate(max_length=40, random_state=5, length=40)) == text.sample(length=40, random_state=5)[0]
