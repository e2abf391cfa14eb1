"""One argument of a public function at a time is bad: it is taken, or refused by an error of seqmodels' own."""

from __future__ import annotations

import inspect
import linecache
import math
import traceback
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from torch import nn

import seqmodels as sm
from seqmodels import data
from seqmodels.data.read import FORMATS, RECORDINGS, TABLE, TEXT
from seqmodels.evaluation import metrics

ROOT = str(Path(sm.__file__).parent)
# No machine has the memory for as many as 10^18 of anything, so it is refused before work begins.
BAD: tuple[Any, ...] = (None, 5, "x", math.nan, math.inf, -1, 10**18, 1j, True, [], object(), lambda *_: 1)
RNG = np.random.default_rng(0)
S = [RNG.integers(0, 3, 8) for _ in range(4)]
V = [RNG.normal(size=(8, 2)) for _ in range(4)]
TEXTS = ["to be", "or not", "that is", "question"]
X, Y = sm.Sequences(S), sm.Sequences(V, features=["a", "b"], clusters=list("aabb"))
FRAME = pd.DataFrame({"n": [1, 2, 4, 8], "score": [-3.0, -2.0, -1.5, -1.2], "model": "a", "unit": "frame"})
WORDS = data.Vocabulary(("<unk>", "a"))


@cache
def models() -> dict[str, Any]:
    symbols = sm.HMM(2, max_iter=1).fit(S)
    vectors = sm.HMM(2, max_iter=1, observation=sm.GaussianMixture(1)).fit(V)
    return {"symbols": symbols, "vectors": vectors, "forecast": vectors.forecast(V[:1], 2, n=5)}


def used(cls: type, use: Callable[[Any], Any]) -> Callable[..., Any]:
    """What makes an object and uses it, with the arguments of the constructor."""

    def call(**arguments: Any) -> Any:
        return use(cls(**arguments))

    call.__signature__ = inspect.signature(cls)  # type: ignore[attr-defined]
    return call


def fitted_with(name: str, X: Any) -> Callable[[Any], Any]:
    return lambda value: sm.HMM(2, max_iter=1, **{name: value}).fit(X)


def first(**arguments: Any) -> Any:
    """The first that is generated."""
    return next(models()["symbols"].generate(**arguments))


first.__signature__ = inspect.signature(sm.HMM.generate)  # type: ignore[attr-defined]
READERS = ("is_recordings", "is_table", "is_text", "on_disk", "read", "text")
OF_FORMATS = {each.reader.__name__: each.reader for each in FORMATS if each not in (RECORDINGS, TABLE, TEXT)}
BESIDE: dict[str, Any] = {"references": TEXTS, "hypotheses": TEXTS}
METRICS = [name for name in metrics.__all__ if name not in ("edit_distances", "evaluate")]
# By name, the function and the arguments that are good; "path" is one of a text.
CASES: dict[str, Callable[[], tuple[Callable[..., Any], dict[str, Any]]]] = {
    **{name: (lambda name=name: (getattr(data, name), {"path": "text.txt"})) for name in READERS},
    **{name: (lambda reader=reader: (reader, {"path": "text.txt"})) for name, reader in OF_FORMATS.items()},
    "audio": lambda: (data.audio, {"folder": "."}),
    "pairs": lambda: (data.pairs, {"source": "text.txt"}),
    "table": lambda: (data.table, {"source": "table.csv"}),
    "table of a frame": lambda: (data.table, {"source": FRAME}),
    "from_rows": lambda: (data.from_rows, {"dataset": [{"t": "ab"}], "column": "t"}),
    "sha256": lambda: (data.sha256, {"sequences": X}),
    "deltas": lambda: (data.deltas, {"features": V[0]}),
    "hmm_draws": lambda: (data.hmm_draws, {"n_sequences": 2, "length": 3, "n_features": 1}),
    "MFCC": lambda: (used(data.MFCC, lambda mfcc: mfcc(np.sin(np.arange(800)), 8000)), {}),
    "FrameFeatures": lambda: (used(data.FrameFeatures, lambda features: features(V[0])), {}),
    "SpeechFeatures": lambda: (
        used(data.SpeechFeatures, lambda features: features(np.sin(np.arange(800) ** 1.5))),
        {"sample_rate": 8000},
    ),
    "Vocabulary": lambda: (data.Vocabulary, {"tokens": ("<unk>", "a")}),
    "Vocabulary.learn": lambda: (data.Vocabulary.learn, {"token_lists": [["a", "b"]]}),
    "Vocabulary.load": lambda: (data.Vocabulary.load, {"path": "text.txt"}),
    "Vocabulary.encode": lambda: (WORDS.encode, {"tokens": ["a"]}),
    "Vocabulary.decode": lambda: (WORDS.decode, {"symbols": [1]}),
    "Sequences": lambda: (sm.Sequences, {"items": V}),
    "from_frame": lambda: (sm.Sequences.from_frame, {"frame": FRAME[["n", "score"]]}),
    "from_lengths": lambda: (sm.Sequences.from_lengths, {"X": V[0], "lengths": [4, 4]}),
    "from_padded": lambda: (sm.Sequences.from_padded, {"array": np.zeros((2, 3, 1)), "lengths": [2, 3]}),
    "joined": lambda: (sm.Sequences.joined, {"parts": [X, X]}),
    "take": lambda: (X.take, {"index": [0]}),
    "segments": lambda: (X.segments, {"cuts": [(0, 0, 3)]}),
    "with_metadata": lambda: (X.with_metadata, {"metadata": pd.DataFrame({"a": range(4)})}),
    "split": lambda: (Y.split, {}),
    "chunks": lambda: (X.chunks, {"length": 3}),
    "dithered": lambda: (Y.dithered, {}),
    "an item": lambda: (X.__getitem__, {"index": 0}),
    **{
        name: (lambda name=name: (getattr(metrics, name), {"references": TEXTS, "hypotheses": TEXTS}))
        for name in METRICS
    },
    "track_steps": lambda: (sm.data.track_steps, {"frame": pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 2.0]})}),
    "evaluate": lambda: (sm.evaluate, {"model": models()["symbols"], "X": S, "y": S}),
    "sm.forecast": lambda: (sm.forecast, {"frame": np.arange(24.0) % 5, "horizon": 2, "max_seconds": 0.01}),
    "backtest": lambda: (
        sm.backtest,
        {"models": {"a": models()["vectors"]}, "X": V[:1], "horizon": 2, "n_origins": 1, "n": 5},
    ),
    "check": lambda: (sm.check, {"model": models()["vectors"], "X": V[:1], "n_simulations": 0}),
    "compare": lambda: (sm.compare, {"models": {"a": sm.NGram(1)}, "X": S, "test": S}),
    "window_loss": lambda: (sm.evaluation.window_loss, {"model": models()["symbols"], "X": S, "width": 3}),
    "prequential": lambda: (sm.prequential, {"model": sm.NGram(1), "X": S, "blocks": 2}),
    "code lengths": lambda: (
        sm.evaluation.prequential_code_lengths,
        {"models": {"a": sm.NGram(1)}, "X": S, "blocks": 2},
    ),
    "compress": lambda: (sm.compress, {"model": models()["symbols"], "X": S}),
    "decompress": lambda: (sm.decompress, {"data": sm.compress(models()["symbols"], S), "model": models()["symbols"]}),
    "compress_file": lambda: (sm.evaluation.compress_file, {"content": b"to be"}),
    "decompress_file": lambda: (sm.evaluation.decompress_file, {"data": sm.evaluation.compress_file(b"to be")}),
    "choose": lambda: (sm.choose, {"model": sm.NGram(), "X": S, "order": [1, 2], "folds": 2}),
    "load": lambda: (sm.load, {"path": "text.txt"}),
    "from_module": lambda: (sm.neural.from_module, {"module": lambda d: nn.Linear(d, d), "d_model": 4}),
    "from_huggingface": lambda: (sm.neural.from_huggingface, {"model": None}),
    "plot alignment": lambda: (sm.plot.alignment, {"weights": np.ones((2, 3)) / 3}),
    "plot confusion": lambda: (sm.plot.confusion, {"labels": ["a", "b"], "predicted": ["a", "b"]}),
    "plot forecast": lambda: (sm.plot.forecast, {"forecast": models()["forecast"]}),
    "plot frames": lambda: (sm.plot.frames, {"x": V[0]}),
    "plot posterior": lambda: (sm.plot.posterior, {"model": models()["symbols"], "x": S[0]}),
    "plot states": lambda: (sm.plot.states, {"model": models()["vectors"], "x": V[0]}),
    "plot track": lambda: (sm.plot.track, {"positions": V[0], "path": np.zeros(len(V[0]), dtype=int)}),
    "plot transitions": lambda: (sm.plot.transitions, {"model": models()["symbols"]}),
    "from_parameters": lambda: (
        sm.HMM.from_parameters,
        {"initial": [1.0], "transition": [[1.0]], "means": [[0.0]], "covariances": [[1.0]]},
    ),
    "from_fitted": lambda: (sm.Mixture.from_fitted, {"models": [models()["symbols"]] * 2}),
    "of_seeds": lambda: (sm.Mixture.of_seeds, {"model": sm.NGram(1), "n": 2}),
    "sample": lambda: (models()["symbols"].sample, {"length": 3}),
    "generate": lambda: (first, {"length": 3}),
    "n_best": lambda: (models()["symbols"].n_best, {"length": 3, "max_length": 3}),
    "forecast": lambda: (models()["vectors"].forecast, {"X": V[:1], "k": 2, "n": 5}),
    "log_prob_steps": lambda: (models()["symbols"].log_prob_steps, {"X": S}),
    "path_log_prob": lambda: (models()["symbols"].path_log_prob, {"X": S, "paths": models()["symbols"].decode(S)}),
    "sample_states": lambda: (models()["symbols"].sample_states, {"X": S}),
    "forecast_states": lambda: (models()["symbols"].forecast_states, {"X": S}),
    "as_pyro": lambda: (models()["vectors"].as_pyro, {"length": 3}),
    "save": lambda: (models()["symbols"].save, {"path": "model.safetensors"}),
    "GaussianMixture": lambda: (used(sm.GaussianMixture, fitted_with("observation", V)), {"n_components": 1}),
    "Categorical": lambda: (used(sm.Categorical, fitted_with("observation", S)), {}),
    "Pseudocounts": lambda: (used(sm.hmm.Pseudocounts, fitted_with("pseudocount", S)), {}),
    "Standardize": lambda: (used(sm.Standardize, fitted_with("encoding", V)), {}),
    "Symbols": lambda: (used(sm.Symbols, fitted_with("encoding", S)), {}),
}


def refused_by_another(error: Exception) -> bool:
    """Whether an error does not come from a line of seqmodels that raises one, in words."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    lines = range(last.lineno or 0, (last.end_lineno or last.lineno or 0) + 1)
    raises = any("raise " in linecache.getline(last.filename, number) for number in lines)
    return not (last.filename.startswith(ROOT) and raises and len(str(error).split()) >= 4)


@pytest.mark.quick_cases(12)
@pytest.mark.parametrize("name", CASES)
def test_an_argument_is_taken_or_refused_in_words(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("to be\tor not\nthat is\tthe question\n")
    Path("table.csv").write_text("a,b\n1.5,2\n3,4\n2,2\n")
    function, good = CASES[name]()
    foreign = []
    for argument, parameter in inspect.signature(function).parameters.items():
        if argument in ("self", "n_jobs") or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        for value in BAD:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    function(**good | {argument: value})
            except Exception as error:
                if refused_by_another(error):
                    foreign.append(f"{argument}={value!r}: {type(error).__name__}: {error}"[:200])
    plt.close("all")
    assert foreign == []
