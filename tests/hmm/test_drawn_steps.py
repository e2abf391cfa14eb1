"""Steps drawn states first have the model's own distribution: every short path as often as it is probable."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.hmm import drawn_steps
from seqmodels.hmm.markov_switching.cursor import MarkovSwitchingCursor

INITIAL = [0.6, 0.4]
TRANSITION = [[0.5, 0.2], [0.3, 0.5]]
FINAL = [0.3, 0.2]
EMISSION = [[0.7, 0.3, 0.0], [0.1, 0.2, 0.7]]
ENDING = sm.HMM.from_parameters(INITIAL, TRANSITION, final=FINAL, emission=EMISSION)
SEGMENTS = sm.hmm.HSMM.from_parameters(
    INITIAL, [[0.0, 0.7], [0.6, 0.0]], final=[0.3, 0.4], duration_rates=[0.5, 1.2], max_duration=3, emission=EMISSION
)
ENDLESS = sm.HMM.from_parameters(INITIAL, [[0.9, 0.1], [0.4, 0.6]], emission=EMISSION)


@cache
def with_gaps() -> sm.hmm.ContinuousTimeHMM:
    return sm.hmm.ContinuousTimeHMM.from_parameters([[-0.5, 0.5], [2.0, -2.0]], INITIAL, emission=EMISSION)


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
@pytest.mark.parametrize("model", [ENDING, SEGMENTS], ids=["chain", "segments"])
def test_sequences_that_may_end(model: sm.HMM | sm.hmm.HSMM, prefix: list[int] | None) -> None:
    n, start = 20_000, tuple(prefix or ())
    drawn = Counter(tuple(x.tolist()) for x in model.sample(n, prefix=prefix, max_length=4, random_state=1))
    short = {path: c for path, c in drawn.items() if len(path) <= len(start) + 2}
    paths = [start + end for m in range(3) for end in product(range(3), repeat=m) if start + end]
    p_start = 1.0
    if start:
        stream = model.stream()
        p_start = np.exp(sum(stream.update(symbol) for symbol in start))
    expected = dict(zip(paths, np.exp(model.log_prob([np.array(path) for path in paths])) / p_start, strict=True))
    assert worst_deviation(Counter(short), expected, n) < 4.5


@pytest.mark.usefixtures("at_once")
def test_sequences_of_a_given_length() -> None:
    n = 20_000
    drawn = Counter(tuple(x.tolist()) for x in ENDLESS.sample(n, length=3, random_state=2))
    paths = list(product(range(3), repeat=3))
    expected = dict(zip(paths, np.exp(ENDLESS.log_prob([np.array(path) for path in paths])), strict=True))
    assert worst_deviation(drawn, expected, n) < 4.5


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("prefix", [None, [2, 0]])
@pytest.mark.parametrize("times", [[0.0, 0.1, 3.0, 3.4], None])
def test_steps_at_their_times(times: list[float] | None, prefix: list[int] | None) -> None:
    n, start = 20_000, tuple(prefix or ())
    n_new = 4 - len(start)
    given = {"times": times} if times else {"length": n_new}
    drawn = Counter(tuple(x.tolist()) for x in with_gaps().sample(n, prefix=prefix, random_state=2, **given))
    paths = [start + path for path in product(range(3), repeat=n_new)]
    p = np.exp(
        with_gaps().log_prob(sm.Sequences([np.array(path) for path in paths], times=[times or range(4)] * len(paths)))
    )
    assert worst_deviation(drawn, dict(zip(paths, p / p.sum(), strict=True)), n) < 4.5


@pytest.mark.quick_cases(1)
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("order", [1, 2])
def test_regressions_on_deviations_are_drawn_as_step_by_step(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Means, variances, products of neighbours and log-probabilities, within five standard errors."""
    lags = np.array([[[0.6, 0.3], [-0.3, 0.2]], [[0.2, -0.5], [0.1, 0.4]]])[:, :order]
    model = sm.hmm.MarkovSwitchingAR.from_parameters(
        [[0.6, 0.4], [0.7, 0.3]], means=[[4.0, -3.0], [0.0, 3.0]], autoregression=lags, variances=[[0.5, 1], [2, 0.2]],
        first_means=[1.0, 2.0], first_variances=[1.0, 3.0], initial=[0.8, 0.2], switching_ar=True,
        switching_variance=True,
    )  # fmt: skip
    for prefix in (None, np.array([[4.0, -3.0], [0.5, 3.0], [1.0, 0.0]])):

        def numbers(seed: int, prefix: np.ndarray | None = prefix) -> np.ndarray:
            drawn = model.sample(1500, prefix=prefix, length=6, random_state=seed)
            x = np.stack(drawn)[:, -6:]  # (n, 6, 2)
            products = x[:, 1:] * x[:, :-1]
            each = [x, x**2, products, model.log_prob(drawn)[:, None]]
            return np.concatenate([e.reshape(len(x), -1) for e in each], 1)

        found = numbers(1)
        with monkeypatch.context() as patch:
            patch.setattr(MarkovSwitchingCursor, "draw_path", lambda *_, **__: None)
            expected = numbers(2)
        error = np.sqrt((found.var(0) + expected.var(0)) / len(found))
        assert np.abs((found.mean(0) - expected.mean(0)) / error).max() < 5.0


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
    with pytest.raises(ValueError, match="no sequence that continues after step 2 is possible"):
        model.sample(2, length=3, prefix=[1, 0])


def test_what_is_yielded_one_by_one_is_what_is_drawn_together() -> None:
    text = sm.HMM(2, max_iter=1, n_init=1).fit(["a text of some letters, and more of them"])
    assert "".join(text.generate(max_length=40, random_state=5, length=40)) == text.sample(length=40, random_state=5)[0]
