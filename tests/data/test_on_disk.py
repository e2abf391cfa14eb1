"""Files that stay on disk: formats, folders, what is refused, and the same figures as in memory from every model."""

from __future__ import annotations

import os
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.data import on_disk
from seqmodels.hmm.learning.stepwise import e_step_of_batch
from seqmodels.sequences.mapped import MappedArray
from tests.made import made


def frames(n: int = 400) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.repeat(rng.normal(size=(n // 10, 2)), 10, axis=0) + 0.3 * rng.normal(size=(n, 2))


def test_arrays_tokens_and_texts(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", frames().astype(np.float32))
    np.arange(7, dtype=np.uint32).tofile(tmp_path / "b.bin")
    (tmp_path / "c.txt").write_bytes(b"\xef\xbb\xbfn\xc3\xa9\r\n")
    vectors, tokens, text = (on_disk(tmp_path / name, dtype="uint32") for name in ("a.npy", "b.bin", "c.txt"))
    assert (vectors.kind, vectors.n_features, vectors.names) == ("vectors", 2, ["a.npy"])
    assert (tokens.kind, np.asarray(tokens[0]).tolist()) == ("symbols", list(range(7)))
    assert (text.kind, text.n_units.tolist(), bytes(np.asarray(text[0]))) == ("text", [5], b"n\xc3\xa9\r\n")
    assert all(isinstance(x[0], MappedArray) for x in (vectors, tokens, text))
    assert "n\u00e9" in text._repr_html_()


def test_amounts_of_0_have_no_determinant_on_disk_either(tmp_path: Path) -> None:
    x = np.where(np.arange(400) % 3 == 0, 0.0, np.abs(frames())[:, 0])[:, None].astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    inflated = sm.observations.ZeroInflated(sm.observations.Gamma())
    model = sm.HMM(2, observation=inflated, max_iter=3, n_init=1, dtype="float64").fit([x])
    mapped = sm.HMM(2, observation=inflated, max_iter=3, n_init=1, dtype="float64").fit(on_disk(tmp_path / "x.npy"))
    assert_allclose(mapped.score(on_disk(tmp_path / "x.npy")), model.score([x]), rtol=1e-6)
    assert_allclose(mapped.history_["log_prob"], model.history_["log_prob"], rtol=1e-6)


def test_a_folder_is_a_sequence_a_file(tmp_path: Path) -> None:
    for name in ("b/2.txt", "a.txt", "b/1.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    x = on_disk(tmp_path)
    assert x.names == ["a.txt", "b/1.txt", "b/2.txt"]
    assert bytes(np.asarray(x["b/1.txt"])) == b"b/1.txt"
    train, _ = x.split(0.4)
    assert train.kind == "text"


def test_the_hash_of_what_is_on_disk_is_that_of_what_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqmodels.sequences.mapped.BLOCK_BYTES", 48)
    x = frames().astype(np.float32)
    x[3] = np.nan
    np.save(tmp_path / "x.npy", x)
    assert sm.data.sha256(on_disk(tmp_path / "x.npy")) == sm.data.sha256(sm.Sequences([x]))
    np.save(tmp_path / "x.npy", np.arange(90, dtype=np.uint16))
    assert sm.data.sha256(on_disk(tmp_path / "x.npy")) == sm.data.sha256(sm.Sequences([np.arange(90)]))
    (tmp_path / "x.txt").write_text("to be or not to be" * 9)
    assert sm.data.sha256(on_disk(tmp_path / "x.txt")) == sm.data.sha256(sm.Sequences(["to be or not to be" * 9]))


def test_models_are_compared_on_data_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = frames()
    np.save(tmp_path / "train.npy", x[:300])
    np.save(tmp_path / "test.npy", x[300:])
    options: dict[str, Any] = {"algorithm": "stepwise", "max_iter": 2}
    models = [{"one": made(sm.HMM, 1, **options), "two": made(sm.HMM, 2, **options)} for _ in range(2)]
    whole = sm.compare(models[0], [x[:300]], test=[x[300:]])
    monkeypatch.setattr("seqmodels.sequences.mapped.BLOCK_BYTES", 50 * 16)
    result = sm.compare(models[1], on_disk(tmp_path / "train.npy"), test=on_disk(tmp_path / "test.npy"))
    assert result.frame["model"].tolist() == whole.frame["model"].tolist()
    assert_allclose(result.frame["score"], whole.frame["score"], rtol=1e-4)
    assert result.frame.attrs["n_near_duplicates"] == whole.frame.attrs["n_near_duplicates"]


def test_one_column_is_vectors_or_symbols_as_is_said(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(5))
    assert on_disk(tmp_path / "x.npy").kind == "symbols"
    assert on_disk(tmp_path / "x.npy", kind="vectors").n_features == 1
    np.save(tmp_path / "x.npy", np.arange(5) / 2)
    assert on_disk(tmp_path / "x.npy").kind == "vectors"
    np.frombuffer(b"to be", np.uint8).tofile(tmp_path / "x.bin")
    assert on_disk(tmp_path / "x.bin", dtype="uint8", kind="text").kind == "text"


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"abc", "x.bin", "3 bytes, which is not a whole number of uint16"),
        (b"", "x.txt", "is empty"),
        (b"", "x.bin", "is empty; leave it out"),
        (b"", "x.npy", "cannot be mapped"),
        (b"a\xff", "x.txt", "not UTF-8 at byte 1"),
        (b"no array", "x.npy", "cannot be mapped"),
    ],
)
def test_files_that_are_refused(content: bytes, name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        on_disk(tmp_path / name)


def test_a_copy_that_the_disk_has_no_room_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    pq.write_table(pa.table({"a": [0.5, 1.5]}), tmp_path / "x.parquet")
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=15))
    with pytest.raises(
        ValueError, match=r"x.parquet has 2 rows of 1 columns, whose copy takes 16 bytes, but there are 15"
    ):
        on_disk(tmp_path / "x.parquet")
    (tmp_path / "y.parquet").write_bytes((tmp_path / "x.parquet").read_bytes()[:-6])
    with pytest.raises(ValueError, match=r"y.parquet is not what its ending says"):
        on_disk(tmp_path / "y.parquet")


def test_the_type_of_tokens_is_that_of_integers(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(8))
    for dtype in ("float32", "object", "U2", "tokens"):
        with pytest.raises(ValueError, match=f"dtype is '{dtype}'; pass that of the symbols of a .bin file"):
            on_disk(tmp_path / "x.bin", dtype=dtype)


def test_folders_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        on_disk(tmp_path / "nothing")
    with pytest.raises(ValueError, match="has no files"):
        on_disk(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.md").write_text("b")
    with pytest.raises(ValueError, match=r"several formats, .md, .txt"):
        on_disk(tmp_path)


def test_a_folder_of_more_files_than_may_be_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    limits, kind = [(600, 700)], resource.RLIMIT_NOFILE
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, new: limits.append(new) if which == kind else None)
    for i in range(100):
        (tmp_path / f"{i}.txt").write_text("a")
    on_disk(tmp_path)
    assert limits == [(600, 700), (612, 700)]
    limits.append((600, 610))
    with pytest.raises(ValueError, match="there are 100 files, but this process may have no more than 610 open"):
        on_disk(tmp_path)


def test_values_that_are_refused_are_named_by_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqmodels.sequences.mapped.BLOCK_BYTES", 64)
    x = frames()
    x[333, 1] = np.inf
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(ValueError, match="infinite value at frame 333"):
        on_disk(tmp_path / "x.npy")
    x[333, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(ValueError, match="NaN at frame 333"):
        sm.GRU(d_model=4, max_steps=1).fit([frames()]).log_prob(on_disk(tmp_path / "x.npy"))
    if np.dtype(np.longdouble).itemsize > 8:
        np.save(tmp_path / "x.npy", frames().astype(np.longdouble))
        with pytest.raises(ValueError, match=r"is of float\d+ in its file; write it to one of float64"):
            on_disk(tmp_path / "x.npy")
    np.save(tmp_path / "s.npy", np.array([0] * 50 + [-3]))
    with pytest.raises(ValueError, match="negative symbol -3 at position 50"):
        on_disk(tmp_path / "s.npy")


def test_a_table_is_copied_once(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    table = pa.table({"a": [1.0, None, 3.0], "word": ["x", "y", "z"], "n": [4, 5, 6]})
    for name, write in (("t.parquet", parquet.write_table), ("t.feather", feather.write_feather)):
        folder = tmp_path / name
        folder.mkdir()
        write(table, folder / name, **({"compression": "uncompressed"} if name == "t.feather" else {}))
        x = on_disk(folder / name)
        assert_allclose(np.asarray(x[0]), [[1, 4], [np.nan, 5], [3, 6]])
        assert np.asarray(on_disk(folder / name, columns="n", cache=folder / "cache")[0]).tolist() == [4, 5, 6]
        copy = folder / f"{name}.npy"
        written = copy.stat().st_mtime_ns
        assert len(on_disk(folder / name)) == len(on_disk(folder)) == 1
        assert copy.stat().st_mtime_ns == written
        os.utime(folder / name, ns=(written + 10**9, written + 10**9))
        on_disk(folder / name)
        assert copy.stat().st_mtime_ns > written
        with pytest.raises(ValueError, match=r"'word' of .* holds no numbers but string; number what it holds"):
            on_disk(folder / name, columns=["word"])


TABLES = ("parquet", "feather", "arrow", "stream")


def table_name(kind: str) -> str:
    return "x.arrow" if kind == "stream" else f"x.{kind}"


def write_table(folder: Path, kind: str, columns: dict[str, Any], rows: int = 37) -> Path:
    """In batches or groups of ``rows``, the first of which and one in the middle are empty."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    table = pa.table(columns)
    path = folder / table_name(kind)
    whole = (table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)])[0]
    edges = [0, *range(0, table.num_rows, rows), table.num_rows]
    edges.insert(len(edges) // 2, edges[len(edges) // 2])
    parts = [whole.slice(a, b - a) for a, b in pairwise(edges)]
    if kind == "feather":
        feather.write_feather(table, path, chunksize=rows)
    elif kind == "parquet":
        with parquet.ParquetWriter(path, table.schema) as writer:
            for part in parts:
                writer.write_table(pa.Table.from_batches([part]))
    else:
        with (pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file)(str(path), table.schema) as writer:
            for part in parts:
                writer.write_batch(part)
    return path


@pytest.mark.parametrize("kind", TABLES)
def test_columns_of_tables_are_read_whatever_holds_the_numbers(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    module = import_module("seqmodels.data.on_disk")  # the package has the function by this name
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 25)  # a batch of rows is read in two parts
    x = frames()
    x[3] = x[250, 1] = np.nan
    single, half = x[:, 0].astype(np.float32), x[:, 1].astype(np.float16)
    columns = {
        "single": pa.array(single, from_pandas=True),
        "half": pa.array(half, from_pandas=True),
        "numbered": pa.array(x[:, 0].round(1), from_pandas=True).dictionary_encode(),
        "whole": pa.array([None if t == 5 else t % 7 for t in range(400)], pa.int8()),
        "truth": pa.array([None if t == 6 else t % 3 == 0 for t in range(400)]),
        "words": pa.array(["a", "b"] * 200).dictionary_encode(),
        "lists": pa.array([[[1.0], [2.0]]] * 400),
    }
    read = np.asarray(on_disk(write_table(tmp_path, kind, columns))[0])
    truth = np.arange(400) % 3 == 0
    expected = np.stack([single, half, x[:, 0].round(1), np.arange(400) % 7, truth], axis=1).astype(np.float64)
    expected[5, 3] = expected[6, 4] = np.nan
    assert_allclose(read, expected, rtol=0)
    chosen = on_disk(tmp_path / table_name(kind), columns=["half", "single"])
    assert_allclose(np.asarray(chosen[0]), expected[:, [1, 0]], rtol=0)


@pytest.mark.parametrize("kind", TABLES)
def test_tables_that_are_refused(kind: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    lists = pa.array([[[1.0], [2.0]], [[3.0]]])
    words = pa.array(["x", "y"]).dictionary_encode()
    for columns, chosen, message in (
        ({"a": lists}, None, r"no column of numbers; it has a \(list<"),
        ({"a": lists, "b": [1.0, 2.0]}, "a", r"'a' of .* holds no numbers but list<.*; give each value a row"),
        ({"a": words, "b": [1.0, 2.0]}, "a", r"'a' of .* holds no numbers but dictionary<.*; number what it holds"),
        ({"a": pa.array([1, None])}, None, "'a' of .* has missing values; a symbol cannot be missing"),
        ({"a": pa.array([1, 2**63], pa.uint64())}, None, "the symbol 9223372036854775808, which int64 cannot hold"),
        ({"a": pa.array([], pa.float64())}, None, "has no rows; leave it out"),
        ({"b": [1.0]}, "a", "has no column 'a'; it has b"),
    ):
        path = write_table(tmp_path, kind, columns)
        with pytest.raises(ValueError, match=message):
            on_disk(path, columns=chosen)
        assert not list(tmp_path.glob("*.npy"))
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="is empty; leave it out"):
        on_disk(path)


def test_the_copy_of_a_table_is_no_other_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    np.save(tmp_path / "x.npy", frames())
    write_table(tmp_path, "arrow", {"a": [1.0, 2.0], "b/c": [3.0, 4.0], "d,e": [5.0, 6.0]})
    write_table(tmp_path, "parquet", {"a": [7.0, 8.0]})
    assert np.asarray(on_disk(tmp_path / "x.parquet")[0]).tolist() == [[7.0], [8.0]]
    assert np.asarray(on_disk(tmp_path / "x.arrow")[0]).tolist() == [[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]]
    assert np.asarray(on_disk(tmp_path / "x.arrow", columns=["d,e", "b/c"])[0]).tolist() == [[5.0, 3.0], [6.0, 4.0]]
    assert np.load(tmp_path / "x.npy").shape == (400, 2)


# -- the same figures --------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"d_model": 8, "max_steps": 3, "dropout": 0.0}


@pytest.mark.filterwarnings("ignore::UserWarning")  # of values that repeat, as whole numbers do
@pytest.mark.parametrize("stored", ["<f8", ">f8", ">f4", "<f2", ">i2", "u1", "?", "fortran", "[::2]", "[::-1]"])
def test_however_vectors_are_stored_they_score_as_in_memory(
    stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqmodels.sequences.mapped.BLOCK_BYTES", 700)
    x = frames()
    steps = {"[::2]": slice(None, None, 2), "[::-1]": slice(None, None, -1)}.get(stored, slice(None))
    if stored == "fortran":
        np.save(tmp_path / "x.npy", np.asfortranarray(x))
    elif steps != slice(None):
        np.save(tmp_path / "x.npy", x)
    else:
        x = x if np.dtype(stored).kind == "f" else (10 * x).clip(0)
        np.save(tmp_path / "x.npy", x.astype(stored))
        x = x.astype(stored).astype(np.float64)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    stays = on_disk(tmp_path / "x.npy") if steps == slice(None) else sm.Sequences([mapped[steps]])
    assert isinstance(stays[0], MappedArray)
    for model in (sm.HMM(2, algorithm="stepwise", max_iter=2), sm.LSTM(**SMALL)):
        model.fit([x]).set_params(dtype="float64")
        assert_allclose(model.score(stays), model.score([x[steps]]), rtol=1e-12)


def stored_symbols(folder: Path, stored: str, x: np.ndarray) -> sm.Sequences:
    """The same symbols in a file of this format or type; in a folder as letters, in three texts."""
    if stored in TABLES:
        return on_disk(write_table(folder, stored, {"a": x.astype(np.uint16)}))
    if stored == "folder":
        for i, part in enumerate(np.array_split(x, 3)):
            (folder / f"{i}.txt").write_bytes((part + 97).astype(np.uint8).tobytes())
        return on_disk(folder)
    if stored == "?":
        np.save(folder / "x.npy", x.astype(bool))
        return on_disk(folder / "x.npy")
    x.astype(stored).tofile(folder / "x.bin")
    return on_disk(folder / "x.bin", dtype=stored)


@pytest.mark.parametrize("stored", ["<u2", ">u2", "u1", ">i8", ">u8", "?", "parquet", "feather", "arrow", "stream"])
def test_however_symbols_are_stored_they_score_as_in_memory(
    stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqmodels.sequences.mapped.BLOCK_BYTES", 90)
    x = np.cumsum(np.random.default_rng(0).random(400) < 0.3) % 2
    stays = stored_symbols(tmp_path, stored, x)
    assert isinstance(stays[0], MappedArray)
    for model in (sm.NGram(3), sm.HMM(2, algorithm="stepwise", max_iter=2), sm.LSTM(**SMALL)):
        model.fit([x]).set_params(dtype="float64")
        assert_allclose(model.score(stays), model.score([x]), rtol=1e-12)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "model",
    [
        sm.HMM(2, algorithm="stepwise", max_iter=2),
        sm.HMM(2, observation=sm.AutoregressiveGaussian(2), algorithm="stepwise", max_iter=2),
        sm.LSTM(**SMALL),
        sm.LSTM(
            **SMALL, observation=sm.AutoregressiveGaussian(2), training=sm.training.GradientTraining(linear_start=True)
        ),
        sm.Transformer(**SMALL, n_heads=1, context=16),
    ],
    ids=["hmm", "ar-hmm", "lstm", "ar-lstm", "transformer"],
)
@pytest.mark.parametrize("missing", [False, True])
def test_vectors_on_disk_give_the_figures_of_vectors_in_memory(
    model: sm.SequenceModel, missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = frames()
    if missing:
        x[50:60, 0] = x[200, 1] = x[0, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    expected = model.clone().fit([x])
    monkeypatch.setattr("seqmodels.sequences.mapped.BLOCK_BYTES", 30 * 16)
    monkeypatch.setattr("seqmodels.sequences.mapped.MAX_STEPS_IN_MEMORY", 100)
    monkeypatch.setattr("seqmodels.hmm.corpus.ELEMENTS_READ", 14)  # seven frames
    fitted = model.clone().fit(on_disk(tmp_path / "x.npy"))
    for column in ("log_prob", "validation"):
        assert_allclose(fitted.history_[column], expected.history_[column], rtol=1e-6)
    monkeypatch.setattr("seqmodels.hmm.corpus.ELEMENTS_FROM_DISK", 600)  # 100 frames at once, or more
    steps, one = fitted.log_prob_steps(on_disk(tmp_path / "x.npy"))[0], fitted.log_prob_steps([x])[0]
    assert isinstance(steps, MappedArray)
    assert_allclose(steps, one, rtol=2e-5, atol=2e-5)
    monkeypatch.setattr(MappedArray, "temporary", None)  # no step is kept for a sum
    assert_allclose(fitted.score(on_disk(tmp_path / "x.npy")), fitted.score([x]), rtol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        sm.HMM(2, algorithm="stepwise", max_iter=2),
        sm.NGram(3),
        sm.GRU(**SMALL),
        sm.Transformer(**SMALL, n_heads=1, context=16),
        sm.GRU(**SMALL, encoding=sm.Characters()),  # read into memory
    ],
    ids=["hmm", "ngram", "gru", "transformer", "characters"],
)
def test_texts_on_disk_give_the_figures_of_texts_in_memory(
    model: sm.SequenceModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "to be or not to be, that is the question: \u20ac5 " * 12
    (tmp_path / "x.txt").write_text(text, encoding="utf-8")
    expected = model.clone().fit([text])
    monkeypatch.setattr("seqmodels.sequences.mapped.BLOCK_BYTES", 50)
    monkeypatch.setattr("seqmodels.sequences.mapped.MAX_STEPS_IN_MEMORY", 100)
    fitted = model.clone().fit(on_disk(tmp_path / "x.txt"))
    assert fitted.measure_ == expected.measure_
    assert_allclose(fitted.history_["log_prob"], expected.history_["log_prob"], rtol=1e-6)
    assert_allclose(fitted.log_prob_steps(on_disk(tmp_path / "x.txt"))[0], fitted.log_prob_steps([text])[0], atol=2e-5)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("stored", ["<u2", "parquet", "arrow", "folder"])
def test_many_ranges_are_shuffled_by_blocks_and_training_is_resumed_in_one(
    stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqmodels.neural.batches.MAX_RANGES", 10)
    monkeypatch.setattr("seqmodels.neural.batches.STRETCHES", 3)
    (tmp_path / "data").mkdir()
    x = stored_symbols(tmp_path / "data", stored, np.random.default_rng(0).integers(0, 5, 900))
    file = str(tmp_path / "run")
    options: dict[str, Any] = {**SMALL, "n_heads": 1, "context": 8, "batch_size": 4, "max_steps": 20}
    whole = sm.Transformer(**options).fit(x, validation=None)
    seen: list[float] = []

    def stop(row: dict[str, float]) -> None:
        seen.append(row["step"])
        if row["step"] >= 9:
            raise RuntimeError("stopped")

    model = sm.Transformer(**options, training=sm.training.GradientTraining(checkpoint=file, checkpoint_seconds=0.0))
    with pytest.raises(RuntimeError, match="stopped"):
        model.clone().set_params(training__callbacks=(stop,)).fit(x, validation=None)
    resumed = model.clone().set_params(training__resume_from=file).fit(x, validation=None)
    assert max(seen) < 20
    assert_allclose(resumed.history_["log_prob"], whole.history_["log_prob"], rtol=1e-5)  # products of float32


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("stored", ["<u2", "parquet", "arrow", "folder"])
def test_mini_batches_from_all_over_are_resumed(stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqmodels.hmm.corpus.ELEMENTS_FROM_DISK", 1 << 14)  # subsequences, in groups
    (tmp_path / "data").mkdir()
    x = stored_symbols(tmp_path / "data", stored, np.cumsum(np.random.default_rng(0).random(9000) < 0.3) % 5)
    options: dict[str, Any] = {"algorithm": "stepwise", "training__batches": 3, "max_iter": 4, "tol": 0.0, "n_init": 1}
    whole = made(sm.HMM, 2, **options).fit(x, validation=None)
    n_taken = [0]

    def stopped(*arguments: Any) -> Any:
        n_taken[0] += 1
        if n_taken[0] == 6:  # the last of the second epoch
            raise RuntimeError("stopped")
        return e_step_of_batch(*arguments)

    path = str(tmp_path / "run")
    options |= {"training__checkpoint": path, "training__checkpoint_seconds": 0.0}
    model = made(sm.HMM, 2, **options)
    monkeypatch.setattr("seqmodels.hmm.fitting.e_step_of_batch", stopped)
    with pytest.raises(RuntimeError, match="stopped"):
        model.clone().fit(x, validation=None)
    resumed = model.clone().set_params(training__resume_from=path).fit(x, validation=None)
    assert n_taken[0] == 6 + 7
    assert_allclose(resumed.history_["log_prob"], whole.history_["log_prob"], rtol=1e-12)  # products of float64
