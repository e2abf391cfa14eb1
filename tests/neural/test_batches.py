from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from seqmodels.neural.batches import Batching, Chunk, Row, Span, assemble, windows
from seqmodels.preparation import Example

CPU = torch.device("cpu")


def symbols(*lengths: int, first: int = 0, ends: bool = False, weight: float = 1.0) -> list[Row]:
    return [Row(np.arange(1, n + 1), min(first, n - 1), None, weight, ends) for n in lengths]


def sourced(*lengths: tuple[int, int]) -> list[Row]:
    """Rows of an encoder: lengths of source and target."""
    return [Row(np.arange(1, t + 1), 0, np.arange(1, s + 1), 1.0, True) for s, t in lengths]


def cut(rows: list[Row], spans: list[Span], n_past: int = 0) -> Chunk:
    return assemble(rows, spans, n_past, CPU, torch.float64)


# -- rows ----------------------------------------------------------------------------------------------------------


def test_a_source_is_read_by_an_encoder_or_comes_first() -> None:
    example = Example(np.array([5, 6]), np.array([1, 2, 3]), weight=0.5)
    encoded = Row.of(example, reads_source=True, ends=True)
    assert (encoded.values.tolist(), encoded.first, encoded.n_steps, encoded.weight) == ([5, 6], 0, 3, 0.5)
    assert encoded.source is example.source
    joined = Row.of(example, reads_source=False, ends=False)
    assert (joined.values.tolist(), joined.first, joined.n_steps, joined.source) == ([1, 2, 3, 5, 6], 3, 5, None)
    assert Row.of(Example(np.array([1])), reads_source=False, ends=True).n_steps == 2


# -- windows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("n_steps", [1, 2, 7, 8, 9, 23])
def test_windows_score_each_step_once_with_enough_past(n_steps: int, context: int) -> None:
    found = windows(n_steps, context)
    assert [t for _, end, scored_from in found for t in range(scored_from, end)] == list(range(n_steps))
    assert all(0 < end - begin <= context for begin, end, _ in found)
    assert all(scored_from - begin == context - max(1, context // 2) for begin, _, scored_from in found[1:])


def test_windows_do_not_depend_on_what_comes_later() -> None:
    for n in range(1, 30):
        assert [b for b, *_ in windows(n, 6)] == [b for b, *_ in windows(40, 6)][: len(windows(n, 6))]


# -- epochs ----------------------------------------------------------------------------------------------------------

CASES = {
    "short": symbols(3, 1, 5, 2),
    "long": symbols(100),
    "ragged": symbols(7, 40, 8, 23, 1, 9, ends=True),
    "conditional": symbols(7, 40, 8, 23, 2, 9, first=6, ends=True),
    "mostly source": symbols(50, 60, first=45),
    "encoded": sourced((5, 3), (2, 9), (5, 1), (40, 4), (41, 12)),
}


@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_an_epoch_scores_each_step_once(name: str, batch_size: int, carry: bool) -> None:
    rows = CASES[name]
    batching = Batching(batch_size, 8, carry)
    rng = np.random.default_rng(0)
    for _ in range(3):
        times = [np.zeros(row.n_steps, dtype=int) for row in rows]
        for spans, _ in batching.epoch(rows, rng):
            assert len(spans) <= batch_size
            scored = cut(rows, spans).scored
            assert scored.shape[1] <= 8
            for line, span in zip(scored, spans, strict=True):
                for j in torch.nonzero(line).flatten().tolist():
                    times[span.row][span.begin + j] += 1
        for row, count in zip(rows, times, strict=True):
            assert count.tolist() == [0] * row.first + [1] * (row.n_steps - row.first)


@pytest.mark.parametrize("name", CASES)
def test_chunks_that_continue_begin_where_the_last_ended(name: str) -> None:
    rows, before = CASES[name], list[Span]()
    for spans, continues in Batching(3, 8, carry=True).epoch(rows, np.random.default_rng(0)):
        if continues:
            assert [(s.row, s.begin) for s in spans] == [(s.row, s.end) for s in before]
        else:
            assert all(s.begin < s.end for s in spans)
        before = spans


def test_without_carry_nothing_continues() -> None:
    assert not any(c for _, c in Batching(3, 8, carry=False).epoch(CASES["ragged"], np.random.default_rng(0)))


def test_one_long_sequence_becomes_parallel_streams() -> None:
    first = next(iter(Batching(4, 8, carry=True).epoch(symbols(4000), np.random.default_rng(0))))[0]
    assert len(first) == 4


def test_epochs_differ_and_repeat_by_seed() -> None:
    batching, rows = Batching(2, 8, carry=False), CASES["ragged"]
    rng = np.random.default_rng(0)
    first, second = list(batching.epoch(rows, rng)), list(batching.epoch(rows, rng))
    assert first != second
    assert list(batching.epoch(rows, np.random.default_rng(0))) == first
    assert batching.n_chunks(rows) == len(first)


def test_batches_are_of_like_sources_and_among_those_of_like_targets() -> None:
    lengths = [(s, t) for s in (3, 4, 7) for t in (1, 2, 10, 20)] * 5
    rows = sourced(*np.random.default_rng(1).permutation(lengths).tolist())
    batches = [spans for spans, _ in Batching(10, 64, carry=False).epoch(rows, np.random.default_rng(0))]
    for spans in batches:
        sources, targets = ([f(rows[s.row]) for s in spans] for f in (lambda r: len(r.source), lambda r: len(r.values)))
        assert len(set(sources)) == 1
        assert len({t > 2 for t in targets}) == 1
    assert sorted(s.row for spans in batches for s in spans) == list(range(60))


def test_long_sources_of_about_one_length_are_ordered_by_target() -> None:
    rows = sourced(*[(1000 + i // 2, 1 + 9 * (i % 2)) for i in range(20)])
    for spans, _ in Batching(10, 64, carry=False).epoch(rows, np.random.default_rng(0)):
        assert len({len(rows[span.row].values) for span in spans}) == 1


# -- chunks ----------------------------------------------------------------------------------------------------------


def test_a_chunk_shows_the_step_before_and_asks_for_the_step() -> None:
    rows = [Row(np.array([7, 8, 9]), 0, None, 0.5, True), Row(np.array([5]), 0, None, 2.0, True)]
    chunk = cut(rows, [Span(0, 0, 4), Span(1, 0, 2)])
    assert chunk.shown[0, 1:].tolist() == [7, 8, 9]
    assert chunk.asked[0, :3].tolist() == [7, 8, 9]
    assert (chunk.shown[1, 1].item(), chunk.asked[1, 0].item()) == (5, 5)
    assert chunk.is_start.tolist() == [[True, False, False, False]] * 2
    assert chunk.is_end[0].tolist() == [False, False, False, True]
    assert chunk.is_end[1, :2].tolist() == [False, True]
    assert chunk.may_end[0].tolist() == [False, True, True, True]  # no sequence is empty
    assert chunk.scored.tolist() == [[0.5] * 4, [2.0, 2.0, 0.0, 0.0]]
    assert chunk.n_steps == 4  # ends are no units
    assert (chunk.rows, chunk.past, chunk.source) == ([0, 1], None, None)


def test_padding_is_a_valid_value() -> None:
    chunk = cut(symbols(2, 9), [Span(0, 0, 2), Span(1, 0, 9), Span(1, 9, 9)])
    for values in (chunk.shown, chunk.asked):
        assert ((values >= 1) & (values <= 9)).all()
    assert (chunk.scored > 0).sum(1).tolist() == [2, 9, 0]


def test_a_chunk_from_the_middle() -> None:
    (row,) = symbols(10, first=4, ends=True)
    chunk = cut([row], [Span(0, 3, 7)])
    assert chunk.shown.tolist() == [[3, 4, 5, 6]]
    assert chunk.asked.tolist() == [[4, 5, 6, 7]]
    assert not chunk.is_start.any()
    assert not chunk.is_end.any()
    assert chunk.is_target.tolist() == [[False, True, True, True]]
    assert chunk.scored.tolist() == [[0.0, 1.0, 1.0, 1.0]]
    assert chunk.may_end.tolist() == [[False, False, True, True]]  # y cannot end before its first step


def test_where_lengths_are_given_nothing_ends() -> None:
    chunk = cut(symbols(4), [Span(0, 0, 4)])
    assert not chunk.is_end.any()
    assert not chunk.may_end.any()


@pytest.mark.parametrize("begin", [0, 2])
def test_past_is_what_came_before_in_the_row(begin: int) -> None:
    values = np.arange(12.0).reshape(6, 2)
    chunk = cut([Row(values, 0, None, 1.0, False)], [Span(0, begin, 5)], n_past=3)
    assert chunk.past is not None
    padded = np.concatenate([np.full((3, 2), np.nan), values])
    expected = np.stack([padded[t : t + 3] for t in range(begin, 5)])
    np.testing.assert_array_equal(chunk.past[0], expected)


def test_vectors_come_in_the_dtype_of_computation() -> None:
    values = np.ones((3, 2))
    chunk = assemble([Row(values, 0, values, 1.0, False)], [Span(0, 0, 3)], 1, CPU, torch.float32)
    found: list[Any] = [chunk.shown, chunk.asked, chunk.past, chunk.source]
    assert [tensor.dtype for tensor in found] == [torch.float32] * 4
    assert chunk.scored.dtype == torch.float64


def test_sources_are_padded_and_masked() -> None:
    rows = [Row(np.array([1]), 0, np.arange(1, n + 1), 1.0, False) for n in (2, 4)]
    chunk = cut(rows, [Span(1, 0, 1), Span(0, 0, 1)])
    assert chunk.source is not None
    assert chunk.source_mask is not None
    assert chunk.source_mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert chunk.source[chunk.source_mask].tolist() == [1, 2, 3, 4, 1, 2]
