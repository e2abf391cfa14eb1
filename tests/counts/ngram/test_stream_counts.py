"""Counts of data on disk are those of data in memory, to the last digit, whatever is read at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.counts.ngram import counts_in_parts, stream_counts
from seqmodels.counts.ngram.counts import count
from seqmodels.counts.ngram.counts_in_parts import count_streams
from seqmodels.counts.ngram.events import Events
from seqmodels.counts.ngram.stream_counts import EventStream
from seqmodels.data import on_disk
from seqmodels.encodings.examples import Example


@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("has_end", [False, True])
@pytest.mark.parametrize("packs", [False, True])
@pytest.mark.parametrize("lengths", [[1], [2, 1], [60], [40, 3, 1, 7]])
def test_tables_are_those_of_all_at_once(
    order: int, has_end: bool, packs: bool, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    examples = [Example(rng.integers(0, 4, n), weight=1.0 + n % 2) for n in lengths]
    expected = count(Events.from_examples(examples, 4, has_end), order, 4)
    monkeypatch.setattr(stream_counts, "LARGEST_CODE", 2**63 if packs else 1)
    for at_once in (1, 7, 1000):
        for module, name in ((stream_counts, "EVENTS_AT_ONCE"), (counts_in_parts, "EVENTS_AT_ONCE")):
            monkeypatch.setattr(module, name, at_once)
        monkeypatch.setattr(counts_in_parts, "EVENTS_OF_PART", at_once)
        streams = [EventStream(example, 4, has_end) for example in examples]
        tables, min_count = count_streams(streams, order, "kneser-ney")
        assert min_count == 1
        assert len(tables) == len(expected)
        for table, one in zip(tables, expected, strict=True):
            for name in ("contexts", "grams", "counts", "continuation_counts"):
                assert_array_equal(getattr(table, name), getattr(one, name), err_msg=name)


@pytest.mark.parametrize("smoothing", ["kneser-ney", "witten-bell"])
@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("packs", [False, True])
def test_figures_are_those_of_data_in_memory(
    smoothing: str, length: str, packs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    x = [np.cumsum(rng.random(n) < 0.3) % 5 for n in (300, 2, 41)]
    for i, each in enumerate(x):
        np.save(tmp_path / f"{i}.npy", each.astype(np.uint16))
    monkeypatch.setattr(stream_counts, "LARGEST_CODE", 2**63 if packs else 1)
    monkeypatch.setattr(stream_counts, "EVENTS_AT_ONCE", 50)
    monkeypatch.setattr(counts_in_parts, "EVENTS_OF_PART", 50)
    monkeypatch.setattr("seqmodels.counts.ngram.stream_scoring.SCORED_AT_ONCE", 30)
    options: dict[str, Any] = {"smoothing": smoothing, "length": length, "min_count": 1 + packs}
    whole, model = sm.NGram(4, **options).fit(x), sm.NGram(4, **options).fit(on_disk(tmp_path))
    for level, one in zip(model.tables_.levels, whole.tables_.levels, strict=True):
        assert_array_equal(level.share, one.share)
        assert_array_equal(level.backoff, one.backoff)
    assert_allclose(model.history_["log_prob"], whole.history_["log_prob"], rtol=1e-13)
    for steps, expected in zip(model.log_prob_steps(on_disk(tmp_path)), whole.log_prob_steps(x), strict=True):
        assert_array_equal(steps, expected)


def test_an_adaptive_model_reads_data_into_memory(tmp_path: Path) -> None:
    x = np.random.default_rng(2).integers(0, 3, 200)
    np.save(tmp_path / "x.npy", x)
    model = sm.NGram(3, adaptive=True).fit(on_disk(tmp_path / "x.npy"))
    assert_array_equal(model.log_prob(on_disk(tmp_path / "x.npy")), sm.NGram(3, adaptive=True).fit([x]).log_prob([x]))


@pytest.mark.parametrize("smoothing", ["kneser-ney", "witten-bell"])
@pytest.mark.parametrize("packs", [False, True])
def test_the_rarest_strings_of_too_many_are_left_out(
    smoothing: str, packs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    x = [rng.integers(0, 6, n) for n in (900, 3, 80)]
    for i, each in enumerate(x):
        np.save(tmp_path / f"{i}.npy", each.astype(np.uint16))
    monkeypatch.setattr(stream_counts, "LARGEST_CODE", 2**63 if packs else 1)
    monkeypatch.setattr(counts_in_parts, "EVENTS_OF_PART", 50)
    options: dict[str, Any] = {"smoothing": smoothing}
    n = [sm.NGram(4, min_count=k, **options).fit(x).n_parameters_ for k in (3, 4)]
    most = n[0] - 6 - 1  # without single symbols and the end: one less than those that came three times
    assert n[1] < n[0] - 1
    with pytest.warns(UserWarning, match=r"left out \(min_count_\)"):
        model = sm.NGram(4, max_strings=most - 1, **options).fit(on_disk(tmp_path))
    with pytest.warns(UserWarning, match="occur less than 4 times"):
        in_memory = sm.NGram(4, max_strings=most - 1, **options).fit(x)
    expected = sm.NGram(4, min_count=4, **options).fit(x)
    assert model.min_count_ == in_memory.min_count_ == 4
    assert model.n_parameters_ == in_memory.n_parameters_ == expected.n_parameters_ == n[1]
    for level, one in zip(model.tables_.levels, expected.tables_.levels, strict=True):
        assert_array_equal(level.grams, one.grams)
        assert_allclose(level.share, one.share, rtol=1e-13)
        assert_allclose(level.backoff, one.backoff, rtol=1e-10)
    assert_allclose(model.log_prob(x), expected.log_prob(x), rtol=1e-12)
    assert_allclose(model.log_prob(on_disk(tmp_path)), expected.log_prob(x), rtol=1e-12)
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert (loaded.min_count_, loaded.max_strings) == (4, most - 1)
    assert_array_equal(loaded.log_prob(x), model.log_prob(x))
