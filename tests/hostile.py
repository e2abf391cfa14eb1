"""Malicious files with correct hashes: too large once read, invalid numbers, names that lead elsewhere."""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

import seqmodels as sm
from seqmodels.common import storage
from seqmodels.evaluation.coding.arithmetic import arithmetic_here
from seqmodels.evaluation.coding.container import N_CHECK, Container, _varint
from seqmodels.evaluation.comparison import saved_comparison
from seqmodels.evaluation.runs.run_config import RunConfig
from seqmodels.training import checkpoint

FIXTURES = Path(__file__).parent / "fixtures" / "0.1.0"
LATER = "../next/"  # models that the first version did not have
Kind = Literal["model", "checkpoint", "comparison", "run.toml", "container"]
Content = dict[str, Any]
READERS: dict[Kind, Callable[[Path], Any]] = {
    "model": sm.load,
    "checkpoint": checkpoint.read,
    "comparison": sm.evaluation.Comparison.load,
    "run.toml": RunConfig.read,
    "container": lambda path: Container.of_bytes(path.read_bytes()),
}


class Payload:
    """What a pickle can do: this one would write a file."""

    def __reduce__(self) -> Any:
        return os.system, ("touch written-by-a-pickle",)


def files(folder: Path, every: int = 1) -> Iterator[tuple[str, Kind, Path]]:
    """Write each, or one in ``every``; what it is, how it is read, where it is."""
    made: list[tuple[str, Kind, Callable[[Path], Any]]] = [(name, "model", make) for name, make in models().items()]
    for number, (name, kind, make) in list(enumerate([*made, *others()]))[::every]:
        path = folder / str(number)
        make(path)
        yield name, kind, path


# -- models ---------------------------------------------------------------------------------------------------


def changed(name: str, change: Callable[[Content], Any], path: Path) -> None:
    """A fixture whose content was changed, with hashes that are right."""
    content = storage.read(FIXTURES / f"{name}.safetensors")
    change(content)
    storage.write(path, content)


def param(name: str, key: str, value: Any) -> Callable[[Path], None]:
    """A model with another hyperparameter."""
    return partial(changed, name, lambda content: content["model"]["params"].update({key: value}))


def put(name: str, place: str, value: Any) -> Callable[[Path], None]:
    """A model with something else at a place of its content, given as keys with slashes between."""

    def change(content: Content) -> None:
        *outer, last = place.split("/")
        for key in outer:
            content = content[key]
        content[last] = value

    return partial(changed, name, change)


def filled(name: str, place: str, value: float) -> Callable[[Path], None]:
    """A model in which the first number of an array is another."""

    def change(content: Content) -> None:
        found: Any = content
        for key in place.split("/"):
            found = found[key]
        found.reshape(-1)[0] = value

    return partial(changed, name, change)


def without(name: str, key: str) -> Callable[[Path], None]:
    """A model that lacks a part of its content."""
    return partial(changed, name, lambda content: content.pop(key))


def raw(name: str, change: Callable[[Content], Any]) -> Callable[[Path], None]:
    """A model of the oldest format, which has no hashes, whose header was changed."""

    def make(path: Path) -> None:
        data = (FIXTURES / f"{name}.safetensors").read_bytes()
        n = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8 : 8 + n])
        change(header)
        new = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(new)) + new + data[8 + n :])

    return make


def relabelled(name: str, tensor: str, dtype: str) -> Callable[[Path], None]:
    """A tensor that claims to be of another dtype."""
    return raw(name, lambda header: header[tensor].update(dtype=dtype))


def of_bytes(header: bytes, length: int | None = None, rest: bytes = b"") -> Callable[[Path], None]:
    """A file with such a header."""

    def write(path: Path) -> None:
        path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + rest)

    return write


def _nested_classifier(content: Content) -> None:
    content["models"]["0"] = {**copy.deepcopy(content), "models": {}}


def _structure(name: str, **sizes: int) -> Callable[[Path], None]:
    """A structural time series of another component."""
    return param(f"{LATER}system-arima", "structure", [{"class": name, "params": sizes}])


def _container(*numbers: bytes) -> Callable[[Path], None]:
    """A container with a check that is right and these numbers in its head."""

    def write(path: Path) -> None:
        like = Container("model", arithmetic_here(), bytes(8), bytes(8), 0, None, b"").to_bytes()
        data = like[: -N_CHECK - 1] + b"".join(numbers)
        path.write_bytes(data + zlib.crc32(data).to_bytes(N_CHECK, "little"))

    return write


def _deep(header: Content) -> None:
    begin, n = '{"class":"GenerativeClassifier","params":{"model":', 400
    header["__metadata__"]["content"] = '{"model":' + begin * n + "1" + "}}" * n + "}"


def _tokenizer(**changes: Any) -> Callable[[Path], None]:
    def change(content: Content) -> None:
        tokenizer = json.loads(content["encoding"]["state"]["tokenizer"])
        for key, value in changes.items():
            tokenizer[key] = value(tokenizer[key]) if callable(value) else value
        content["encoding"]["state"]["tokenizer"] = json.dumps(tokenizer)

    return partial(changed, "ngram-bpe", change)


def _with_far_piece(model: Content) -> Content:
    return {**model, "vocab": {**model["vocab"], "aaaa": 10**12}}


def _many_layers(content: Content) -> None:
    content["model"]["params"]["n_layers"] = 100_000
    content["state"]["padding"] = np.zeros(11_000, np.float32)  # 45 KB


def models() -> dict[str, Callable[[Path], Any]]:
    """By what is wrong with them."""
    regex = {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "(a|a)*$"}}]}
    lists = b'{"a":[' + b",".join([b"[]"] * 4_000_000) + b"]}"
    tensor = b'{"x":{"dtype":"F32","shape":[%s],"data_offsets":[%d,%d]}}'
    return {
        # too large
        "100,000 layers": partial(changed, "lstm-vectors", _many_layers),
        "10^9 layers of a Transformer": param("transformer-vectors", "n_layers", 10**9),
        "10^9 layers of a masked one": param("masked", "n_layers", 10**9),
        "d_model=20000": param("lstm-vectors", "d_model", 20_000),
        "d_model=10^12": param("transformer-vectors", "d_model", 10**12),
        "10^9 heads": param("transformer-vectors", "n_heads", 10**9),
        "d_feedforward=10^9": param("transformer-vectors", "d_feedforward", 10**9),
        "10^9 learned positions": param("transformer-text", "context", 10**9),
        "n_states=10^9": param("hmm-diag", "n_states", 10**9),
        "10^9 states a label": param("hmm-tagger", "n_states_per_label", 10**9),
        "10^9 components": put("hmm-diag", "observation/params/n_components", 10**9),
        "10^9 components of a network": put("lstm-vectors", "observation/params/n_components", 10**9),
        "rank 10^9": put("lstm-lowrank", "observation/params/rank", 10**9),
        "10^9 hidden numbers of chords": put("lstm-chords", "observation/params/n_hidden", 10**9),
        "10^9 regressors": put("hmm-autoregressive", "observation/params/order", 10**9),
        "window 10^9": param("alignment", "window", 10**9 + 1),
        "jumps of 10^9": param("alignment", "max_jump", 10**9),
        "an alphabet of 10^18": put("hmm-symbols", "encoding/state/size", 10**18),
        "an alphabet of 10^18 of a network": put("gru-symbols", "encoding/state/size", 10**18),
        "an alphabet of 10^8 of a network": put("gru-symbols", "encoding/state/size", 10**8),
        "10^8 states and their durations": param(f"{LATER}hsmm-vectors-x-given", "max_duration", 10**8),
        "an autoregression of order 10^8": _structure("ARIMA", p=10**8),
        "differences of order 10^8": _structure("ARIMA", d=10**8),
        "10^5 seasons of 10^5 steps": _structure("ARIMA", seasonal_p=10**5, season=10**5),
        "a season of 10^8": _structure("Seasonal", period=10**8),
        "10^9 particles": param(f"{LATER}switching-system-vectors-x-given", "n_particles", 10**9),
        "an alphabet of 10^8 of mixed contexts": put(f"{LATER}context-mixing-symbols", "encoding/state/size", 10**8),
        "10^8 steps that were read": put(f"{LATER}context-mixing-symbols", "state/n_steps", 10**8),
        "2^70 steps that were learned from": put(f"{LATER}context-mixing-symbols", "state/n_learned", 2**70),
        "order 2^70": param("ngram-witten-bell", "order", 2**70),
        "an alphabet of -1": put("ngram-witten-bell", "encoding/state/size", -1),
        "labels of 4 GB": put("classifier-hmm", "classes/dtype", "<U1000000000"),
        "a classifier in a classifier": partial(changed, "classifier-ngram", _nested_classifier),
        "400 classifiers in one another": raw("classifier-ngram", _deep),
        # headers
        "a header of 2^40 bytes": of_bytes(b"{}", 2**40),
        "a header of 2^63 bytes": of_bytes(b"{}", 2**63),
        "a header of 10^5 brackets": of_bytes(b"[" * 100_000),
        "4 million lists": of_bytes(lists),
        "a number of 10^6 digits": of_bytes(b'{"a":' + b"9" * 1_000_000 + b"}"),
        "a name twice": of_bytes(b'{"a":1,"a":2}'),
        "a tensor of 2^80 numbers": of_bytes(tensor % (b"1099511627776,1099511627776", 0, 8), rest=bytes(8)),
        "a tensor beyond the file": of_bytes(tensor % (b"1000000000", 0, 4 * 10**9)),
        "a shape of 10^5 axes": of_bytes(tensor % (b",".join([b"1"] * 100_000), 0, 4), rest=bytes(4)),
        "a negative shape": of_bytes(tensor % (b"-1,-1", 0, 4), rest=bytes(4)),
        # numbers that cannot be
        "NaN transitions": filled("hmm-diag", "state/transition", np.nan),
        "a negative probability": filled("hmm-diag", "state/initial", -0.5),
        "probabilities that sum to more": filled("hmm-symbols", "state/transition", 7.0),
        "ends that make it more": filled("hmm-full", "state/final", 0.9),
        "a variance of e^inf": filled("hmm-diag", "state/table", np.inf),
        "NaN log-probabilities": filled("hmm-symbols", "state/table", np.nan),
        "a rate of infinity": filled("hmm-poisson", "state/table", np.inf),
        "NaN log-odds": filled("hmm-bernoulli", "state/table", np.nan),
        "NaN in a column's parameters": filled("hmm-columns", "state/table", np.nan),
        "NaN weights": filled("lstm-vectors", "state/head.bias", np.nan),
        "infinite weights": filled("masked", "state/head.bias", np.inf),
        "a scale of 0": filled("lstm-vectors", "encoding/state/scale", 0.0),
        "a negative scale": filled("hmm-diag", "encoding/state/scale", -1.0),
        "a mean of NaN": filled("hmm-diag", "encoding/state/mean", np.nan),
        "a negative share": filled("ngram", "state/0/share", -0.1),
        "shares that sum to more": filled("ngram", "state/1/share", 0.99),
        "codes that lead out of the table": filled("ngram", "state/1/contexts", -5),
        "a negative jump": filled("alignment", "state/jumps/weights", -1.0),
        "p above one": filled("alignment", "state/ladder/0/p", 3.0),
        "a negative jump prior": filled("alignment", "state/pull/0/factors", -1.0),
        "NaN priors": filled("classifier-hmm", "priors", np.nan),
        "a temperature of 0": put("classifier-hmm", "temperature", 0.0),
        # dtypes
        "doubles said to be integers": relabelled("hmm-diag", "/state/transition", "I64"),
        "floats said to be integers": relabelled("lstm-vectors", "/state/head.bias", "I32"),
        "integers said to be doubles": relabelled("ngram", "/state/0/grams", "F64"),
        "an unknown dtype": relabelled("hmm-diag", "/state/transition", "Q1024"),
        # other things than models
        "a newer format": raw("hmm-diag", lambda header: header["__metadata__"].update(format="seqmodels-3")),
        "a format of its own": raw("hmm-diag", lambda header: header["__metadata__"].update(format="seqmodels-1e9")),
        "a pickle": lambda path: path.write_bytes(pickle.dumps(Payload())),
        "a zip": _zip,
        "a pipe": os.mkfifo,
        "a folder": Path.mkdir,
        "a tokenizer with a regular expression": _tokenizer(pre_tokenizer=regex),
        "a tokenizer with a far piece": _tokenizer(model=_with_far_piece),
        "a tokenizer of another kind": _tokenizer(model={"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 0}),
        "a tokenizer that is no JSON": put("ngram-bpe", "encoding/state/tokenizer", "{"),
        # malformed content
        "content that is a list": raw("hmm-diag", lambda header: header["__metadata__"].update(content="[]")),
        "content that is no JSON": raw("hmm-diag", lambda header: header["__metadata__"].update(content="{]")),
        "no content": raw("hmm-diag", lambda header: header["__metadata__"].pop("content")),
        "metadata of numbers": raw("hmm-diag", lambda header: header["__metadata__"].update(content=3)),
        **{
            f"no {key}": without("lstm-vectors", key)
            for key in ("model", "encoding", "observation", "measure", "history", "state")
        },
        "an unknown class": put("hmm-diag", "model/class", "os.system"),
        "a class that is a list": put("hmm-diag", "model/class", ["HMM"]),
        "an observation for a model": put("hmm-diag", "model", {"class": "Poisson", "params": {}}),
        "a model for an encoding": put("hmm-diag", "encoding/class", "HMM"),
        "hyperparameters in a list": put("hmm-diag", "model/params", [1, 2]),
        "an unknown hyperparameter": param("hmm-diag", "shell", "touch it"),
        "states that are a word": param("hmm-diag", "n_states", "3"),
        "states that are true": param("hmm-diag", "n_states", True),
        "an observation that reads text": put("hmm-diag", "observation", {"class": "Categorical", "params": {}}),
        "a history that is a list": put("hmm-diag", "history", [1.0]),
        "a history of words": put("hmm-diag", "history", {"step": ["a"]}),
        "a history of unequal columns": put("hmm-diag", "history", {"step": [1], "seconds": [1, 2]}),
        "a measure of something else": put("hmm-diag", "measure/length", "long"),
        "a measure with more to it": put("hmm-diag", "measure/weight", 2.0),
        "converged for a while": put("hmm-diag", "converged", "for a while"),
        "weights that are a list": put("lstm-vectors", "state/head.bias", [0.0]),
        "weights too many": put("lstm-vectors", "state/head.more", np.zeros(2, np.float32)),
        "a state that is a list": put("ngram", "state", []),
        "a state without levels": put("ngram", "state", {}),
        "a lost tensor": put("hmm-diag", "state/initial", {"__array__": True}),
    }


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("archive/data.pkl", bytes(10_000_000))


# -- comparisons, checkpoints, runs ---------------------------------------------------------------------------


def comparison(change: Callable[[Content], Any], path: Path) -> None:
    """A comparison whose table was changed; the hash is right."""
    whole = path.parent / "whole"
    if not whole.exists():
        sm.evaluation.Comparison.load(FIXTURES / "comparison").save(whole)
    shutil.copytree(whole, path)
    main = path / saved_comparison.MAIN
    content = json.loads(main.read_text(encoding="utf-8"))
    change(content)
    content[saved_comparison.OWN_HASH] = saved_comparison.BLANK_HASH
    text = json.dumps(content, indent=1)
    main.write_text(text.replace(saved_comparison.BLANK_HASH, saved_comparison.sha256(text), 1), encoding="utf-8")


def old_comparison(change: Callable[[Path], Any], path: Path) -> None:
    """One of the oldest format, which has no hashes."""
    shutil.copytree(FIXTURES / "comparison", path)
    change(path)


def _packed_bomb(path: Path) -> None:
    """0.2 MB that would be 0.2 GB."""
    with (
        zipfile.ZipFile(path / "steps.npz", "w", zipfile.ZIP_DEFLATED) as packed,
        packed.open("values 0.npy", "w") as file,
    ):
        for _ in range(200):
            file.write(bytes(1_000_000))


def _long_array(path: Path) -> None:
    """A few bytes that say they are 10^11 numbers."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(path / "steps.npz", "w") as packed:
        packed.writestr("names.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)


def _pickled_array(path: Path) -> None:
    np.savez(path / "steps.npz", names=np.array([Payload()], dtype=object))  # type: ignore[arg-type]


def _linked(path: Path) -> None:
    (path / "test.json").unlink()
    (path / "test.json").symlink_to("/etc/passwd")


def _piped(path: Path) -> None:
    (path / "test.json").unlink()
    os.mkfifo(path / "test.json")


def _main(text: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path / saved_comparison.MAIN).write_text(text, encoding="utf-8")

    return partial(old_comparison, change)


def _model_elsewhere(name: str) -> Callable[[Path], None]:
    def change(content: Content) -> None:
        first = next(iter(content["models"]))
        content["files"][name] = content["files"][content["models"][first]]
        content["models"][first] = name

    return partial(comparison, change)


def _frame(**changes: Any) -> Callable[[Path], None]:
    return partial(comparison, lambda content: content["frame"].update(changes))


def others() -> Iterator[tuple[str, Kind, Callable[[Path], Any]]]:
    """What else is read."""
    yield "../ in a comparison's model", "comparison", _model_elsewhere("../../../model.safetensors")
    yield "a comparison's model anywhere", "comparison", _model_elsewhere("/etc/passwd")
    yield (
        "../ in a comparison's folder",
        "comparison",
        partial(comparison, lambda content: content.update(folder="../..")),
    )
    yield "../ in an old comparison", "comparison", partial(old_comparison, _old_model_elsewhere)
    yield "a table of 10^12 rows", "comparison", _frame(n=10**12)
    yield "an empty table of 10^12 rows", "comparison", _frame(n=10**12, columns=[])
    yield (
        "a column of 4 GB",
        "comparison",
        _frame(n=1, columns=[{"name": "a", "dtype": "U1000000000", "values": ["a"]}]),
    )
    yield "a table without attributes", "comparison", _frame(attrs={})
    yield "no table", "comparison", partial(comparison, lambda content: content.pop("frame"))
    yield "no models", "comparison", partial(comparison, lambda content: content.pop("models"))
    yield "a newer comparison", "comparison", _main('{"format": "seqmodels-comparison-3"}')
    yield "a comparison that is a list", "comparison", _main("[]")
    yield "a comparison of 10^5 brackets", "comparison", _main("[" * 100_000)
    yield "a packed bomb", "comparison", partial(old_comparison, _packed_bomb)
    yield "a long array", "comparison", partial(old_comparison, _long_array)
    yield "a pickled array", "comparison", partial(old_comparison, _pickled_array)
    yield "a link that leaves the folder", "comparison", partial(old_comparison, _linked)
    yield "a pipe for a file", "comparison", partial(old_comparison, _piped)
    yield "a container of 10^9 sequences", "container", _container(_varint(10**9 << 1))
    yield "a container of 2^60 steps", "container", _container(_varint(3), _varint(2**60))
    yield "a number of 4 MB", "container", _container(b"\x80" * 4_000_000 + b"\1")
    yield "a model for a checkpoint", "checkpoint", partial(changed, "hmm-diag", lambda content: None)
    yield "a pickle for a checkpoint", "checkpoint", lambda path: path.write_bytes(pickle.dumps(Payload()))
    yield "a run of 10^5 brackets", "run.toml", lambda path: path.write_text("a = " + "[" * 100_000)
    yield "a run of an unknown class", "run.toml", lambda path: path.write_text('[data.a]\nclass = "os.system"\n')
    yield "a run that is a number", "run.toml", lambda path: path.write_text("data = 3\n")


def _old_model_elsewhere(path: Path) -> None:
    content = json.loads((path / saved_comparison.MAIN).read_text(encoding="utf-8"))
    content["models"] = {"hmm/1": "../model.safetensors"}
    (path / saved_comparison.MAIN).write_text(json.dumps(content), encoding="utf-8")
