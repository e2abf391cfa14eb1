from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from seqmodels.encodings.examples import Example
from seqmodels.neural.batches import Batching, PaddedBatch, Row, StepRange, Windowing, assemble

CPU = torch.device("cpu")


def symbols(*lengths: int, first: int = 0, ends: bool = False, weight: float = 1.0) -> list[Row]:
    return [Row(np.arange(1, n + 1), min(first, n - 1), None, weight, ends) for n in lengths]


def sourced(*lengths: tuple[int, int]) -> list[Row]:
    """Rows of an encoder: lengths of source and target."""
    return [Row(np.arange(1, t + 1), 0, np.arange(1, s + 1), 1.0, True) for s, t in lengths]


def cut(rows: list[Row], ranges: list[StepRange], n_past: int = 0) -> PaddedBatch:
    return assemble(rows, ranges, n_past, CPU, torch.float64)


# -- rows ----------------------------------------------------------------------------------------------------------


def test_a_source_is_read_by_an_encoder_or_comes_first() -> None:
    example = Example(np.array([5, 6]), np.array([1, 2, 3]), weight=0.5)
    encoded = Row.from_example(example, reads_source=True, has_end=True)
    assert (encoded.values.tolist(), encoded.first, encoded.n_steps, encoded.weight) == ([5, 6], 0, 3, 0.5)
    assert encoded.source is example.source
    joined = Row.from_example(example, reads_source=False, has_end=False)
    assert (joined.values.tolist(), joined.first, joined.n_steps, joined.source) == ([1, 2, 3, 5, 6], 3, 5, None)
    assert Row.from_example(Example(np.array([1])), reads_source=False, has_end=True).n_steps == 2


# -- windows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("n_steps", [1, 2, 7, 8, 9, 23])
def test_windows_score_each_step_once_with_enough_past(n_steps: int, context: int) -> None:
    found = Windowing(context).windows(n_steps)
    assert [t for _, end, scored_from in found for t in range(scored_from, end)] == list(range(n_steps))
    assert all(0 < end - begin <= context for begin, end, _ in found)
    assert all(scored_from - begin == context - max(1, context // 2) for begin, _, scored_from in found[1:])


def test_windows_do_not_depend_on_what_comes_later() -> None:
    for n in range(1, 30):
        begins = [b for b, *_ in Windowing(6).windows(n)]
        assert begins == [b for b, *_ in Windowing(6).windows(40)][: len(begins)]


# -- epochs ----------------------------------------------------------------------------------------------------------

CASES = {
    "short": symbols(3, 1, 5, 2),
    "long": symbols(100),
    "ragged": symbols(7, 40, 8, 23, 1, 9, ends=True),
    "conditional": symbols(7, 40, 8, 23, 2, 9, first=6, ends=True),
    "mostly source": symbols(50, 60, first=45),
    "encoded": sourced((5, 3), (2, 9), (5, 1), (40, 4), (41, 12)),
}


@pytest.mark.parametrize("carries_state", [True, False])
@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_an_epoch_scores_each_step_once(name: str, batch_size: int, carries_state: bool) -> None:
    rows = CASES[name]
    batching = Batching(batch_size, 8, carries_state)
    rng = np.random.default_rng(0)
    for _ in range(3):
        times = [np.zeros(row.n_steps, dtype=int) for row in rows]
        for ranges, _ in batching.epoch(rows, rng):
            assert len(ranges) <= batch_size
            step_weights = cut(rows, ranges).step_weights
            assert step_weights.shape[1] <= 8
            for line, steps in zip(step_weights, ranges, strict=True):
                for j in torch.nonzero(line).flatten().tolist():
                    times[steps.row][steps.begin + j] += 1
        for row, count in zip(rows, times, strict=True):
            assert count.tolist() == [0] * row.first + [1] * (row.n_steps - row.first)


@pytest.mark.parametrize("name", CASES)
def test_steps_that_continue_begin_where_the_last_ended(name: str) -> None:
    rows, before = CASES[name], list[StepRange]()
    for ranges, continues in Batching(3, 8, carries_state=True).epoch(rows, np.random.default_rng(0)):
        if continues:
            assert [(s.row, s.begin) for s in ranges] == [(s.row, s.end) for s in before]
        else:
            assert all(s.begin < s.end for s in ranges)
        before = ranges


def test_without_carry_nothing_continues() -> None:
    assert not any(c for _, c in Batching(3, 8, carries_state=False).epoch(CASES["ragged"], np.random.default_rng(0)))


def test_one_long_sequence_is_read_at_several_places_side_by_side() -> None:
    first = next(iter(Batching(4, 8, carries_state=True).epoch(symbols(4000), np.random.default_rng(0))))[0]
    assert len(first) == 4


def test_epochs_differ_and_repeat_by_seed() -> None:
    batching, rows = Batching(2, 8, carries_state=False), CASES["ragged"]
    rng = np.random.default_rng(0)
    first, second = list(batching.epoch(rows, rng)), list(batching.epoch(rows, rng))
    assert first != second
    assert list(batching.epoch(rows, np.random.default_rng(0))) == first
    assert batching.n_batches(rows) == len(first)


def test_batches_are_of_like_sources_and_among_those_of_like_targets() -> None:
    lengths = [(s, t) for s in (3, 4, 7) for t in (1, 2, 10, 20)] * 5
    rows = sourced(*np.random.default_rng(1).permutation(lengths).tolist())
    batches = [ranges for ranges, _ in Batching(10, 64, carries_state=False).epoch(rows, np.random.default_rng(0))]
    for ranges in batches:
        sources, targets = (
            [f(rows[s.row]) for s in ranges] for f in (lambda r: len(r.source), lambda r: len(r.values))
        )
        assert len(set(sources)) == 1
        assert len({t > 2 for t in targets}) == 1
    assert sorted(s.row for ranges in batches for s in ranges) == list(range(60))


def test_long_sources_of_about_one_length_are_ordered_by_target() -> None:
    rows = sourced(*[(1000 + i // 2, 1 + 9 * (i % 2)) for i in range(20)])
    for ranges, _ in Batching(10, 64, carries_state=False).epoch(rows, np.random.default_rng(0)):
        assert len({len(rows[steps.row].values) for steps in ranges}) == 1


@pytest.mark.parametrize("length", [3, 8, 12, 2000])
def test_very_many_ranges_are_cut_into_blocks_of_all_steps(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqmodels.neural.batches.MAX_RANGES", 20)
    monkeypatch.setattr("seqmodels.neural.batches.STRETCHES", 4)
    rows, batching = symbols(*[length] * (100 if length < 20 else 4)), Batching(4, 8, carries_state=False)
    n_ranges = len(rows) * -(-length // 8)
    blocks = list(batching._blocks(rows, np.random.default_rng(0)))
    assert len(blocks) == n_ranges // 20
    assert all(15 <= sum(-(-(b - a) // 8) for _, a, b in block) <= 30 for block in blocks)
    times = [np.zeros(length, dtype=int) for _ in rows]
    for i, a, b in (each for block in blocks for each in block):
        times[i][a:b] += 1
    assert (np.array(times) == 1).all()
    assert batching.n_batches(rows) == n_ranges // 4


# -- padded batches
# ----------------------------------------------------------------------------------------------------------


def test_inputs_are_the_steps_before_the_targets() -> None:
    rows = [Row(np.array([7, 8, 9]), 0, None, 0.5, True), Row(np.array([5]), 0, None, 2.0, True)]
    batch = cut(rows, [StepRange(0, 0, 4), StepRange(1, 0, 2)])
    assert batch.inputs[0, 1:].tolist() == [7, 8, 9]
    assert batch.targets[0, :3].tolist() == [7, 8, 9]
    assert (batch.inputs[1, 1].item(), batch.targets[1, 0].item()) == (5, 5)
    assert batch.is_start.tolist() == [[True, False, False, False]] * 2
    assert batch.is_end[0].tolist() == [False, False, False, True]
    assert batch.is_end[1, :2].tolist() == [False, True]
    assert batch.may_end[0].tolist() == [False, True, True, True]  # no sequence is empty
    assert batch.step_weights.tolist() == [[0.5] * 4, [2.0, 2.0, 0.0, 0.0]]
    assert batch.n_steps == 4  # ends are no units
    assert (batch.rows, batch.past, batch.source) == ([0, 1], None, None)


def test_padding_is_a_valid_value() -> None:
    batch = cut(symbols(2, 9), [StepRange(0, 0, 2), StepRange(1, 0, 9), StepRange(1, 9, 9)])
    for values in (batch.inputs, batch.targets):
        assert ((values >= 1) & (values <= 9)).all()
    assert (batch.step_weights > 0).sum(1).tolist() == [2, 9, 0]


def test_a_batch_from_the_middle_of_a_row() -> None:
    (row,) = symbols(10, first=4, ends=True)
    batch = cut([row], [StepRange(0, 3, 7)])
    assert batch.inputs.tolist() == [[3, 4, 5, 6]]
    assert batch.targets.tolist() == [[4, 5, 6, 7]]
    assert not batch.is_start.any()
    assert not batch.is_end.any()
    assert batch.is_after_source.tolist() == [[False, True, True, True]]
    assert batch.step_weights.tolist() == [[0.0, 1.0, 1.0, 1.0]]
    assert batch.may_end.tolist() == [[False, False, True, True]]  # y cannot end before its first step


def test_where_lengths_are_given_nothing_ends() -> None:
    batch = cut(symbols(4), [StepRange(0, 0, 4)])
    assert not batch.is_end.any()
    assert not batch.may_end.any()


@pytest.mark.parametrize("begin", [0, 2])
def test_past_is_what_came_before_in_the_row(begin: int) -> None:
    values = np.arange(12.0).reshape(6, 2)
    batch = cut([Row(values, 0, None, 1.0, False)], [StepRange(0, begin, 5)], n_past=3)
    assert batch.past is not None
    padded = np.concatenate([np.full((3, 2), np.nan), values])
    expected = np.stack([padded[t : t + 3] for t in range(begin, 5)])
    np.testing.assert_array_equal(batch.past[0], expected)


def test_vectors_come_in_the_dtype_of_computation() -> None:
    values = np.ones((3, 2))
    batch = assemble([Row(values, 0, values, 1.0, False)], [StepRange(0, 0, 3)], 1, CPU, torch.float32)
    found: list[Any] = [batch.inputs, batch.targets, batch.past, batch.source]
    assert [tensor.dtype for tensor in found] == [torch.float32] * 4
    assert batch.step_weights.dtype == torch.float64


def test_sources_are_padded_and_masked() -> None:
    rows = [Row(np.array([1]), 0, np.arange(1, n + 1), 1.0, False) for n in (2, 4)]
    batch = cut(rows, [StepRange(1, 0, 1), StepRange(0, 0, 1)])
    assert batch.source is not None
    assert batch.source_mask is not None
    assert batch.source_mask.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.source[batch.source_mask].tolist() == [1, 2, 3, 4, 1, 2]
