from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
import torch

from seqmodels.generation import Decoding, Search, beam_search, sample_steps
from tests.generation.markov import CHAIN, FIRST, Markov, seeded

EMPTY = np.zeros(0, dtype=np.int64)


def enumerated(end: float | None, longest: int, alpha: float = 0.0) -> list[tuple[tuple[int, ...], float, float]]:
    """Every sequence, its log-probability and its score, best first."""
    shortest, found = longest if end is None else 1, []
    for n in range(shortest, longest + 1):
        for s in product(range(3), repeat=n):
            p = float(FIRST[s[0]]) * np.prod([float(CHAIN[a, b]) for a, b in pairwise(s)])
            p *= 1 if end is None else (1 - end) ** (n - 1) * end
            if p > 0:
                found.append((s, float(np.log(p)), float(np.log(p) / ((6 + n) / 6) ** alpha)))
    return sorted(found, key=lambda each: -each[2])


@pytest.mark.parametrize("end", [None, 0.1, 0.6])
@pytest.mark.parametrize("alpha", [0.0, 0.7, 3.0])
def test_a_beam_of_all_beginnings_is_exhaustive(end: float | None, alpha: float) -> None:
    longest, n = 4, 12
    how = Search(3**longest + 1, n, None if end else longest, longest, alpha)
    found, expected = beam_search(Markov(end), how, prefix=EMPTY), enumerated(end, longest, alpha)
    scores = [how.score(h.log_prob, len(h.steps)) for h in found]
    np.testing.assert_allclose(scores, [score for _, _, score in expected[:n]], rtol=0, atol=1e-6)
    log_prob = {s: p for s, p, _ in expected}
    np.testing.assert_allclose(
        [h.log_prob for h in found], [log_prob[tuple(h.steps)] for h in found], rtol=0, atol=1e-6
    )
    assert len({tuple(h.steps) for h in found}) == n


def test_a_search_for_the_best_few_stops_early_and_misses_nothing() -> None:
    everything = beam_search(Markov(0.6), Search(1000, 500, max_length=5), prefix=EMPTY)
    for n in (1, 3, 7):
        few = beam_search(Markov(0.6), Search(1000, n, max_length=5), prefix=EMPTY)
        assert [h.log_prob for h in few] == [h.log_prob for h in everything[:n]]
    assert len(beam_search(Markov(0.6), Search(3, max_length=10**9), prefix=EMPTY)) == 1


@pytest.mark.parametrize(("end", "length"), [(None, 6), (0.1, None), (0.45, None)])
def test_width_one_is_greedy(end: float | None, length: int | None) -> None:
    greedy = sample_steps(
        Markov(end),
        1,
        prefix=EMPTY,
        source=None,
        length=length,
        max_length=6,
        generator=seeded(),
        decoding=Decoding(temperature=0),
    )
    found = beam_search(Markov(end), Search(1, 1, length, 6), prefix=EMPTY)
    assert [h.steps.tolist() for h in found] == [x.tolist() for x in greedy]


def test_a_wider_beam_finds_what_greed_misses() -> None:
    narrow, wide = (beam_search(Markov(0.3), Search(w, 1, max_length=4), prefix=np.array([0]))[0] for w in (1, 2))
    assert len(narrow.steps) == 4  # going on was always likelier than ending
    assert wide.steps.tolist() == [0]
    assert narrow.log_prob < wide.log_prob


def test_a_prefix_is_kept_and_counted() -> None:
    found = beam_search(Markov(0.25), Search(50, 50, max_length=4), prefix=np.array([0, 2]))
    expected = [(s, p) for s, p, _ in enumerated(0.25, 4) if s[:2] == (0, 2)]
    assert sorted(tuple(h.steps) for h in found) == sorted(s for s, _ in expected)
    np.testing.assert_allclose([h.log_prob for h in found], [p for _, p in expected], rtol=0, atol=1e-6)
    exact = beam_search(Markov(0.25), Search(50, 50, length=2), prefix=np.array([0, 2]))
    assert [h.steps.tolist() for h in exact] == [[0, 2]]
    assert exact[0].log_prob == pytest.approx(np.log(0.2 * 0.3 * 0.75 * 0.25), abs=1e-6)


def test_a_length_asked_for_is_kept_to_with_the_end_after_it() -> None:
    found = beam_search(Markov(0.9), Search(27, 5, length=3), prefix=EMPTY)
    assert {len(h.steps) for h in found} == {3}
    best = max(p for s, p, _ in enumerated(0.9, 3) if len(s) == 3)
    assert found[0].log_prob == pytest.approx(best, abs=1e-6)


def test_a_source_reaches_the_start() -> None:
    found = beam_search(Markov(), Search(9, 1, 2), prefix=EMPTY, source=np.array([1]))
    assert found[0].steps.tolist() == [1, 1]


def test_what_is_impossible_is_not_found() -> None:
    found = beam_search(Markov(), Search(100, 100, 2), prefix=np.array([2]))
    assert [h.steps.tolist() for h in found] == [[2, 1]]
    assert torch.isneginf(torch.tensor(found[0].log_prob)).item() is False


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"width": 0}, "n_beams is 0"),
        ({"n_best": 0}, "n is 0"),
        ({"length": 0}, "sequences of 0 steps"),
        ({"alpha": -1.0}, "alpha is -1.0"),
        ({"alpha": float("nan")}, "alpha is nan"),
    ],
)
def test_numbers_out_of_range_are_named(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Search(**wrong)  # type: ignore[arg-type]


def test_a_prefix_longer_than_the_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="the prefix has 3 steps, the sequences at most 2"):
        beam_search(Markov(), Search(1, 1, 2), prefix=np.array([0, 1, 2]))
