from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from seqmodels.common import storage
from seqmodels.common.parameters import Configurable
from seqmodels.encodings import Standardize, Symbols
from seqmodels.loading import CLASSES
from seqmodels.neural import LSTM
from seqmodels.observations import GaussianMixture
from seqmodels.training import GradientTraining, TensorBoard


def test_what_is_written_is_read(tmp_path: Path) -> None:
    arrays = {
        "scalar": np.array(3.0),
        "ints": np.arange(6).reshape(2, 3),
        "transposed": np.arange(6.0, dtype=np.float32).reshape(2, 3).T,
        "flags": np.array([True, False]),
        "none": np.zeros((0, 2)),
    }
    path = tmp_path / "model"
    storage.write(path, {"a": {"b": arrays, "c": [1, None, "é", float("inf")]}, "d": np.int64(4), "e": {}})
    content = storage.read(path)
    for name, array in arrays.items():
        found = content["a"]["b"][name]
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found, array)
    assert content["a"]["c"] == [1, None, "é", float("inf")]
    assert (content["d"], content["e"]) == (4, {})
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_disk(held: int) -> None:
        os.write(held, b"half")
        raise OSError("no space left")

    path = tmp_path / "model"
    storage.write(path, {"a": 1})
    with pytest.raises(TypeError, match="not JSON serializable"):
        storage.write(path, {"a": object()})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fill_disk)
        with pytest.raises(OSError, match="no space left"):
            storage.write(path, {"a": 2})
    assert storage.read(path) == {"a": 1}
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        storage.write(tmp_path / "folder", {"a": 1})
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder", "model"]


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"", b"not a model", struct.pack("<Q", 2**40) + b"{}"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a saved model"):
            storage.read(path)
    for metadata in (None, {"format": "pt"}):
        save_file({"x": np.zeros(2)}, path, metadata=metadata)
        with pytest.raises(ValueError, match="is a safetensors file, but not one that seqmodels wrote"):
            storage.read(path)
    with pytest.raises(FileNotFoundError):
        storage.read(tmp_path / "missing")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model"
    storage.write(path, {"a": np.arange(100.0)})
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="is not a saved model"):
        storage.read(path)


@pytest.mark.parametrize("thing", [GaussianMixture(3, "full", 1e-2), Standardize(), Symbols(7)])
def test_configurables_are_described_and_built(thing: Configurable) -> None:
    description = storage.describe(thing)
    built = storage.build(description, {type(thing).__name__: type(thing)})
    assert type(built) is type(thing)
    assert built.get_params() == thing.get_params()
    with pytest.raises(ValueError, match=f"holds a {type(thing).__name__}, which this version"):
        storage.build(description, {})


def test_a_hyperparameter_from_numpy_can_be_kept(tmp_path: Path) -> None:
    wanted: Any = np.int64(5)  # what a grid search over np.arange sets
    storage.write(tmp_path / "model", {"encoding": storage.describe(Symbols(wanted))})
    assert storage.read(tmp_path / "model")["encoding"]["params"] == {"n_symbols": 5}


def test_every_byte_of_a_small_file_counts(tmp_path: Path) -> None:
    path = tmp_path / "model"
    storage.write(path, {"é": np.arange(3.0), "n": 1})
    whole = path.read_bytes()
    for byte in range(len(whole)):
        damaged = bytearray(whole)
        damaged[byte] ^= 1 << (byte % 8)
        path.write_bytes(damaged)
        with pytest.raises(
            ValueError, match=r"is damaged|is not a saved model|not one that seqmodels wrote|newer version"
        ):
            storage.read(path)


def test_a_damaged_tensor_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model"
    storage.write(path, {"a": {"first": np.zeros(3), "second": np.ones(3)}})
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="damaged: the tensor '/a/second' is not what was written"):
        storage.read(path)


def test_other_readers_of_safetensors_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model"
    arrays = {"wide": np.arange(3.0), "narrow": np.array([True]), "half": np.ones((2, 2), np.float16)}
    storage.write(path, arrays)
    found = load_file(path)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[f"/{name}"], array)
    assert storage.read(path).keys() == arrays.keys()


def test_paths_and_callbacks_are_neither_described_nor_built() -> None:
    model = LSTM(
        training=GradientTraining(checkpoint="a", resume_from="b", callbacks=(print, TensorBoard("c"))), max_steps=3
    )
    description = storage.describe(model)
    inner = description["params"]["training"]["params"]
    assert not set(storage.ARGUMENTS_OF_FIT) & inner.keys()
    unwanted = {"checkpoint": "a", "callbacks": {"tuple": [{"class": "Anything", "params": {}}]}}
    inner |= unwanted
    description["params"] |= unwanted  # as files of earlier versions have them
    built = storage.build(description, CLASSES)
    assert (built.training.checkpoint, built.training.resume_from, built.training.callbacks) == (None, None, ())
    assert built.max_steps == 3


def test_what_a_file_without_groups_says_is_put_in_them() -> None:
    built = storage.build({"class": "LSTM", "params": {"patience": 7, "layer_norm": True, "lr": 0.5}}, CLASSES)
    assert repr(built) == (
        "LSTM(lr=0.5, architecture=RecurrentArchitecture(layer_norm=True), training=GradientTraining(patience=7))"
    )
    with pytest.raises(ValueError, match="patience of GradientTraining is 'long'; pass an integer from 1 on"):
        storage.build({"class": "LSTM", "params": {"patience": "long"}}, CLASSES)


def test_a_hyperparameter_of_another_type_is_refused() -> None:
    description = storage.describe(Symbols(7))
    description["params"]["n_symbols"] = "7"
    with pytest.raises(ValueError, match="n_symbols of Symbols is '7'; pass an integer or none"):
        storage.build(description, {"Symbols": Symbols})


def test_json_that_is_larger_than_its_text_is_refused() -> None:
    assert storage.parse_json('{"a": [1, "[[[[["]}', "file") == {"a": [1, "[[[[["]}
    with pytest.raises(ValueError, match=r"file is not a saved model: its JSON would take .* MB"):
        storage.parse_json("[" + ",".join(["[]"] * 1000) + "]", "file", spare=1000)
    assert storage.parse_json(json.dumps("[" * 1000), "file", spare=1000) == "[" * 1000
    with pytest.raises(ValueError, match="a name stands there twice"):
        storage.parse_json('{"a": 1, "a": 2}', "file")


def test_the_parts_of_a_file_are_checked_and_built_by_name() -> None:
    content = {"encoding": storage.describe(Symbols(3)), "seconds": 2.0, "none": {"class": "Path", "params": {}}}
    classes: dict[str, type] = {"Symbols": Symbols, "Path": Path}
    storage.check_parts(content, {"encoding": dict, "seconds": (int, float)})
    with pytest.raises(storage.MalformedPartError, match=r"its 'seconds' .*: it is 2\.0, and should be a dict"):
        storage.check_parts(content, {"encoding": dict, "seconds": dict, "missing": dict})
    assert storage.class_of_part(content, "encoding", classes) is Symbols
    assert storage.build_part(content, "encoding", classes).n_symbols == 3
    for read in (storage.class_of_part, storage.build_part):
        with pytest.raises(ValueError, match="the file holds a Path, which has no hyperparameters"):
            read(content, "none", classes)
        with pytest.raises(storage.MalformedPartError, match="its 'part/class' is not what"):
            read({"part": {}}, "part", classes)
