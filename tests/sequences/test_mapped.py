"""Arrays on disk: what one pass tells of them, which pages stay in memory, and where steps of long sequences are."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from seqmodels.sequences import mapped
from seqmodels.sequences.mapped import (
    MappedArray,
    StepsSum,
    Summary,
    any_mapped,
    steps_arrays,
    total,
    totals,
    write_steps,
)


def on_disk(folder: Path, array: np.ndarray) -> MappedArray:
    np.save(folder / "array.npy", array)
    return MappedArray.of(np.load(folder / "array.npy", mmap_mode="r"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("block", [1, 3, 1000])
def test_a_summary_is_that_of_the_whole(
    dtype: type, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = (1000 + 5 * np.random.default_rng(0).normal(size=(31, 3))).astype(dtype)
    if x.dtype.kind == "f":
        x[7, 1] = x[20] = np.nan
    array = on_disk(tmp_path, x)
    monkeypatch.setattr(mapped, "BLOCK_BYTES", block * x[0].nbytes)
    summary, whole = array.summary, x.astype(np.float64)
    n = (~np.isnan(whole)).sum(0)
    assert summary.n == 31
    assert summary.n_missing.tolist() == (31 - n).tolist()
    assert summary.first_missing == (7 if x.dtype.kind == "f" else None)
    assert_allclose(summary.mean, np.nanmean(whole, axis=0), rtol=1e-14)
    assert_allclose(summary.squares, n * np.nanvar(whole, axis=0), rtol=1e-10)
    assert_allclose([summary.lowest, summary.highest], [np.nanmin(whole, axis=0), np.nanmax(whole, axis=0)])


def test_an_infinite_value_and_a_feature_without_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((10, 2))
    x[:, 1] = np.nan
    x[6, 0] = -np.inf
    array = on_disk(tmp_path, x)
    monkeypatch.setattr(mapped, "BLOCK_BYTES", 4 * 16)
    assert (array.summary.first_infinite, array.summary.first_missing) == (6, 0)
    assert np.isnan(array.summary.lowest[1])
    assert np.isnan(array.summary.highest[1])


@pytest.mark.parametrize("block", [1, 2, 3, 100])
def test_the_first_byte_that_is_no_utf8(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "BLOCK_BYTES", block)
    for raw, bad in ((b"n\xc3\xa9e \xe2\x82\xac", None), (b"n\xc3\xa9\xffe", 3), (b"ab\xe2\x82", 2), (b"ab\xe2x", 2)):
        (tmp_path / "text").write_bytes(raw)
        array = MappedArray.of(np.memmap(tmp_path / "text", np.uint8, "r"), is_text=True)
        assert array.summary.bad_byte == bad
        assert array[1:].is_text


def resident(path: Path) -> float:
    """Megabytes of the mappings of a file that are in memory."""
    kilobytes, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and ":" not in line.split()[0]:
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            kilobytes += int(line.split()[1])
    return kilobytes / 1024


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="tells of pages on Linux only")
def test_pages_that_were_read_are_given_back(tmp_path: Path) -> None:
    file = tmp_path / "array.npy"
    array = on_disk(tmp_path, np.zeros((1 << 20, 4)))  # 32 MB
    assert float(np.asarray(array).sum()) == 0
    assert resident(file) > 30
    for _, block in array.blocks():
        assert not block.any()
    assert resident(file) < 1
    assert array.summary.n == 1 << 20
    assert resident(file) < 1


def test_a_private_mapping_keeps_what_was_changed(tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.zeros(5000))
    array = MappedArray.of(np.load(tmp_path / "array.npy", mmap_mode="c"))
    array.write(10, np.ones(100))
    assert array.read(0, 5000).sum() == 100
    assert total(array) == 100


def test_what_is_computed_from_an_array_is_in_memory(tmp_path: Path) -> None:
    array = on_disk(tmp_path, np.arange(12.0).reshape(6, 2))
    assert type(array + 1) is np.ndarray
    assert type(array[[0, 2]]) is np.ndarray
    assert array[2:5].is_on_disk
    assert array[2:5].read(1, 2).tolist() == [[6.0, 7.0]]
    assert array[:, 1:].read(1, 3).tolist() == [[3.0], [5.0]]


def test_many_steps_are_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "MAX_STEPS_IN_MEMORY", 100)
    monkeypatch.setattr(mapped, "BLOCK_BYTES", 80)
    for lengths, are_in_a_file in (([100], False), ([60, 40], False), ([101], True), ([60, 41], True)):
        arrays = steps_arrays(lengths)
        assert [len(array) for array in arrays] == lengths
        for k, array in enumerate(arrays):
            assert isinstance(array, MappedArray) == are_in_a_file
            write_steps(array, 7, (1 + k) * np.arange(5.0))
        assert totals(arrays).tolist() == [10.0 * (1 + k) for k in range(len(arrays))]


def test_a_sum_keeps_no_steps() -> None:
    steps = StepsSum()
    write_steps(steps, 0, np.arange(5.0))
    write_steps(steps, 5, np.ones(3))
    assert total(steps) == 13.0


def test_a_summary_of_what_is_in_memory() -> None:
    x = np.random.default_rng(1).normal(size=(9, 2))
    assert_allclose(Summary.of(x).mean, x.mean(0))


@pytest.mark.parametrize("longest", [9, 400])
def test_many_totals_are_each_total_to_the_last_bit(longest: int) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=n) * 10.0 ** rng.integers(-8, 8) for n in rng.integers(1, longest, 700)]
    assert_array_equal(totals(arrays), [array.sum() for array in arrays])
    assert totals([]).shape == (0,)


def test_totals_of_arrays_on_disk(tmp_path: Path) -> None:
    arrays = [on_disk(tmp_path, np.arange(5.0)), *(np.ones(5) for _ in range(99))]
    assert any_mapped(arrays)
    assert not any_mapped(arrays[1:])
    assert totals(arrays).tolist() == [10.0, *[5.0] * 99]


def test_a_pickle_is_the_place_in_the_file(tmp_path: Path) -> None:
    array = on_disk(tmp_path, np.arange(60_000, dtype=np.float32).reshape(-1, 3))
    parts = [array, array[7:1007], array[5000:5001], array[9:]]
    pickled = pickle.dumps(parts)
    assert len(pickled) < 2_000
    again = pickle.loads(pickled)
    for part, read in zip(parts, again, strict=True):
        assert_array_equal(read, part)
        assert read.dtype == part.dtype
        assert (read.is_on_disk, read.mode) == (True, "r")
    assert mapped._mapping(again[0]) is mapped._mapping(again[1])
    assert_array_equal(pickle.loads(pickle.dumps(again[1][3:])), array[10:1007])
    (tmp_path / "text").write_bytes("né".encode())
    text = MappedArray.of(np.memmap(tmp_path / "text", np.uint8, "r"), is_text=True)
    assert pickle.loads(pickle.dumps(text[1:])).is_text
    assert pickle.loads(pickle.dumps(text[1:])).tobytes() == "é".encode()


def test_what_no_file_holds_is_pickled_by_value(tmp_path: Path) -> None:
    temporary = MappedArray.temporary(5)
    temporary.write(1, np.ones(2))
    np.save(tmp_path / "private.npy", np.zeros(4))
    private = MappedArray.of(np.load(tmp_path / "private.npy", mmap_mode="c"))
    private[2] = 5.0
    np.save(tmp_path / "gone.npy", np.arange(3))
    gone = MappedArray.of(np.load(tmp_path / "gone.npy", mmap_mode="r"))
    (tmp_path / "gone.npy").unlink()
    for array in (temporary, private, gone, on_disk(tmp_path, np.arange(6.0))[::2]):
        again = pickle.loads(pickle.dumps(array))
        assert_array_equal(again, array)
        assert not again.is_on_disk
