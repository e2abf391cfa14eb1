"""Bad inputs into every kind of model, fitted and scored: refused in words, answered rightly, or neither.

An input is a list of sequences (or what someone passes instead of one). It is answered rightly if the figure is that of
what it means (``same``: a tensor means its array), or, where it means itself (values that float32 cannot hold), that of
the model in float64. A refusal is right if it is a ``ValueError`` in words. All else is wrong: an error of another kind
(``foreign``), or a figure that is NaN, infinite or another one (``garbage``).
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy.sparse
import torch

import seqmodels as sm
from tests.families import N_SYMBOLS, Row, fitted, rows
from tests.faults.promise import Promise, main

Outcome = Literal["refused", "right", "garbage", "foreign"]
REFUSED = object()  # what can only be refused
ITSELF = object()  # what has a figure of its own, if it is not refused
RNG = np.random.default_rng(5)
FRAMES = [50.0 + RNG.standard_normal((n, 2)) * (1e3, 2e-2) for n in (7, 4, 9)]
COUNTS = [RNG.poisson(2.0, (n, 2)).astype(float) for n in (7, 4, 9)]
SYMBOLS = [RNG.integers(0, N_SYMBOLS, n) for n in (7, 4, 9)]
TEXTS = ["né to", "be a", "nota"]


@dataclass(frozen=True)
class Bad:
    """One input: how it is made of good sequences, and what it means."""

    name: str
    make: Callable[[list[Any]], Any]
    same: Any = REFUSED  # REFUSED, ITSELF, or a function of the good sequences


def _put(value: Any) -> Callable[[list[Any]], Any]:
    """The good sequences with one value of the second replaced."""

    def make(good: list[Any]) -> list[Any]:
        item = np.array(good[1], dtype=np.result_type(good[1], np.asarray(value)))
        item[(1, 0)[: item.ndim]] = value
        return [good[0], item, *good[2:]]

    return make


def _each(change: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    return lambda good: [change(x) for x in good]


def _second(change: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    return lambda good: [good[0], change(good[1]), *good[2:]]


def _as_is(good: list[Any]) -> list[Any]:
    return good


def _masked(x: np.ndarray, value: Any) -> Any:
    mask = np.zeros(x.shape, dtype=bool)
    mask.flat[1] = True
    filled = x.copy()
    filled.flat[1] = value
    return np.ma.MaskedArray(filled, mask=mask)


def _missing(x: np.ndarray) -> np.ndarray:
    filled = x.astype(float)
    filled.flat[1] = np.nan
    return filled


class Text(str):
    """A subclass of str."""


ANY = [
    Bad("None", lambda good: None),
    Bad("5", lambda good: 5),
    Bad("5.5", lambda good: 5.5),
    Bad("True", lambda good: True),
    Bad("nan", lambda good: np.nan),
    Bad("a string in place of a list", lambda good: "to be"),
    Bad("bytes in place of a list", lambda good: b"to be"),
    Bad("an object", lambda good: object()),
    Bad("a function", lambda good: len),
    Bad("a class", lambda good: dict),
    Bad("an empty list", lambda good: []),
    Bad("an empty tuple", lambda good: ()),
    Bad("an empty dictionary", lambda good: {}),
    Bad("a dictionary", lambda good: {"a": good[0], "b": good[1]}),
    Bad("a set", lambda good: {1, 2}),
    Bad("a dictionary's keys", lambda good: {"a": 1}.keys()),
    Bad("a generator", lambda good: (x for x in good), _as_is),
    Bad("an iterator", lambda good: iter(good), _as_is),
    Bad("a tuple", lambda good: tuple(good), _as_is),
    Bad("a DataFrame", lambda good: pd.DataFrame({"a": [1.0, 2.0]})),
    Bad("a Series of sequences", lambda good: pd.Series(list(good)), _as_is),
    Bad("a list of None", lambda good: [None]),
    Bad("a sequence that is None", _second(lambda x: None)),
    Bad("a list of 5", lambda good: [5]),
    Bad("a list of 5.5", lambda good: [5.5]),
    Bad("a sequence that is 5", _second(lambda x: 5)),
    Bad("a list of objects", lambda good: [object()]),
    Bad("a list of dictionaries", lambda good: [{"a": 1}]),
    Bad("a sequence that is a dictionary", _second(lambda x: {0: 1, 1: 2})),
    Bad("a sequence that is a set", _second(lambda x: {0, 1})),
    Bad("a sequence that is a generator", _second(lambda x: (v for v in x))),
    Bad("a list of bytes", lambda good: [b"ab", b"ba"]),
    Bad("a bytearray", _second(lambda x: bytearray(b"ab"))),
    Bad("an empty sequence", _second(lambda x: x[:0])),
    Bad("a list of empty lists", lambda good: [[], []]),
    Bad("a 0-d array", lambda good: np.array(3.0)),
    Bad("a list of 0-d arrays", lambda good: [np.array(3)]),
    Bad("an empty array", lambda good: np.array([])),
    Bad("a 3-d array", lambda good: np.zeros((2, 3, 2))),
    Bad("a list of 3-d arrays", lambda good: [np.zeros((2, 3, 2))]),
    Bad("complex numbers", _second(lambda x: np.ones(3 if np.ndim(x) == 1 else (3, 2), dtype=complex))),
    Bad("dates", _second(lambda x: np.array(["2020-01-01"] * 2, dtype="datetime64[D]"))),
    Bad("a list of dates", lambda good: [datetime(2020, 1, 1)]),
    Bad("structured arrays", _second(lambda x: np.zeros(3, dtype=[("a", int), ("b", float)]))),
    Bad("ragged lists", _second(lambda x: [[1, 2], [1]])),
    Bad("strings among numbers", _second(lambda x: ["1", "2"])),
    Bad("arrays of strings", _second(lambda x: np.array(["a", "b"]))),
    Bad("a sparse matrix", lambda good: scipy.sparse.csr_matrix(np.eye(2))),
    Bad("a sequence that is sparse", _second(lambda x: scipy.sparse.csr_matrix(np.eye(2)))),
    Bad("NaT", _second(lambda x: np.array(["NaT"], dtype="datetime64[s]"))),
    Bad("pandas NA", _second(lambda x: pd.array([1, None], dtype="Int64"))),
]

NUMBERS = [
    Bad("tensors", _each(torch.as_tensor), _as_is),
    Bad("lists of lists", _each(lambda x: x.tolist()), _as_is),
    Bad("memory views", _each(lambda x: memoryview(np.ascontiguousarray(x))), _as_is),
    Bad("arrays of objects", _each(lambda x: x.astype(object)), _as_is),
    Bad("an array of objects that holds None", _put(None)),
    Bad("arrays that cannot be written to", _each(lambda x: (y := x.copy()).setflags(write=False) or y), _as_is),
    Bad("arrays of another byte order", _each(lambda x: x.astype(x.dtype.newbyteorder())), _as_is),
    Bad("reversed views", _each(lambda x: x[::-1].copy()[::-1]), _as_is),
    Bad("infinity", _put(np.inf)),
    Bad("minus infinity", _put(-np.inf)),
]

VECTORS = [
    Bad("tensors that have a gradient", _each(lambda x: torch.as_tensor(x).requires_grad_()), _as_is),
    Bad(
        "bfloat16 tensors",
        _each(lambda x: torch.as_tensor(x).bfloat16()),
        _each(lambda x: torch.as_tensor(x).bfloat16().double().numpy()),
    ),
    Bad(
        "float16 arrays",
        _each(lambda x: np.clip(x, -9, 9).astype(np.float16)),
        _each(lambda x: np.clip(x, -9, 9).astype(np.float16).astype(float)),
    ),
    Bad("long doubles", _each(lambda x: x.astype(np.longdouble)), _as_is),
    Bad("long doubles beyond float64", _put(np.longdouble("1e4000"))),
    Bad("data frames", _each(pd.DataFrame), _as_is),
    Bad("masked arrays", _second(lambda x: _masked(x, -1e9)), _second(_missing)),
    Bad("masked arrays that mask nothing", _each(np.ma.asarray), _as_is),
    Bad(
        "masked arrays of whole numbers",
        _second(lambda x: _masked(np.rint(x).astype(int), -999)),
        _second(lambda x: _missing(np.rint(x))),
    ),
    Bad("vectors that are matrices", _each(np.asmatrix), _as_is),
    Bad("a bare matrix", lambda good: good[0]),
    Bad("1e20", _put(1e20), ITSELF),
    Bad("-1e20", _put(-1e20), ITSELF),
    Bad("1e38", _put(1e38), ITSELF),
    Bad("1e150", _put(1e150), ITSELF),
    Bad("1e200", _put(1e200), ITSELF),
    Bad("1e300", _put(1e300), ITSELF),
    Bad("the largest float64", _put(np.finfo(float).max), ITSELF),
    Bad("the smallest float64", _put(5e-324), ITSELF),
    Bad("1e20 everywhere", _each(lambda x: np.full_like(x, 1e20)), ITSELF),
    Bad("times 1e200", _each(lambda x: x * 1e200), ITSELF),
    Bad("times 1e-200", _each(lambda x: x * 1e-200), ITSELF),
    Bad("plus 1e15", _each(lambda x: x + 1e15), ITSELF),
    Bad("plus 1e18", _each(lambda x: x + 1e18), ITSELF),
    Bad("missing everywhere", _each(lambda x: np.full_like(x, np.nan)), ITSELF),
    Bad("a sequence that is missing", _second(lambda x: np.full_like(x, np.nan)), ITSELF),
    Bad("another width", _second(lambda x: x[:, :1])),
    Bad("no features", _second(lambda x: x[:, :0])),
    Bad("one-dimensional", _second(lambda x: x[:, 0])),
    Bad("constants", _each(lambda x: np.ones_like(x)), ITSELF),
    Bad("booleans", _each(lambda x: x > x.mean()), _each(lambda x: (x > x.mean()).astype(float))),
]

SYMBOL = [
    Bad("lists of tensors", _each(lambda x: list(torch.as_tensor(x))), _as_is),
    Bad("whole floats", _each(lambda x: x.astype(float)), _as_is),
    Bad("fractions", _put(0.5)),
    Bad("missing", _put(np.nan)),
    Bad("negative", _put(-1)),
    Bad("2**40", _put(2**40)),
    Bad("2**62", _put(2**62)),
    Bad("2**63, unsigned", _second(lambda x: np.array([1, 2**63], dtype=np.uint64))),
    Bad("10**30", _second(lambda x: [0, 10**30])),
    Bad("1e300", _put(1e300)),
    Bad("booleans", _each(lambda x: x > 0), _each(lambda x: (x > 0).astype(int))),
    Bad("bytes that are small integers", _each(lambda x: x.astype(np.uint8)), _as_is),
    Bad("masked arrays", _second(lambda x: _masked(x, 1))),
    Bad("masked arrays that mask nothing", _each(np.ma.asarray), _as_is),
    Bad("Series", _each(pd.Series), _as_is),
    Bad("ranges", lambda good: [range(3), range(2)], lambda good: [np.arange(3), np.arange(2)]),
    Bad("vectors among symbols", _second(lambda x: np.zeros((3, 2)))),
]

TEXT = [
    Bad("a lone surrogate", _second(lambda x: "n\ud800")),
    Bad("an empty text", _second(lambda x: "")),
    Bad("numpy strings", _each(np.str_), _as_is),
    Bad("an array of strings", lambda good: np.array(good), _as_is),
    Bad("an array of objects", lambda good: np.array(good, dtype=object), _as_is),
    Bad("a subclass of str", _each(Text), _as_is),
    Bad("a null character", _second(lambda x: "a\0b"), ITSELF),
    Bad("a text of another plane", _second(lambda x: "\U0010ffff"), ITSELF),
    Bad("lists of characters", _each(list)),
    Bad("numbers among texts", _second(lambda x: np.array([1, 2]))),
    Bad("a missing text", _second(lambda x: np.nan)),
]

COUNT = [
    Bad("counts of 1e20", _put(1e20), ITSELF),
    Bad("counts of 1e300", _put(1e300), ITSELF),
    Bad("counts of the largest float64", _put(np.finfo(float).max), ITSELF),
    Bad("counts of 0.5", _put(0.5)),
    Bad("counts below zero", _put(-1.0)),
]

FAMILIES = {
    "vectors": "hmm-diag hmm-full hmm-tied hmm-spherical hmm-ar hmm-tied-prior hmm-series hmm-gradient elman-tanh lstm "
    "lstm-diag lstm-lowrank lstm-ar gru lstm-seq2seq-additive transformer-pre transformer-modern transformer-ar "
    "transformer-seq2seq-pre lstm-tagger",
    "symbols": "ngram-kneser-ney hmm-categorical hmm-series alignment lstm transformer-pre transformer-binary "
    "transformer-seq2seq-pre lstm-tagger hmm-tagger-from-symbols",
    "text": "ngram-witten-bell hmm-categorical lstm transformer-pre alignment",
    "counts": "hmm-poisson lstm-poisson",
}
GOOD = {"vectors": FRAMES, "symbols": SYMBOLS, "text": TEXTS, "counts": COUNTS}
BAD = {
    "vectors": [*ANY, *NUMBERS, *VECTORS],
    "symbols": [*ANY, *NUMBERS, *SYMBOL],
    "text": [*ANY, *TEXT],
    "counts": [*ANY, *NUMBERS, *COUNT],
}


def pairs(quick: bool) -> list[Row]:
    """37 models, each with its kind of data."""
    found = []
    for kind, names in FAMILIES.items():
        wanted = names.split()[:: 9 if quick else 1]
        for name in wanted:
            fits = [r for r in rows(kind) if r.family.name == name]  # type: ignore[arg-type]
            found.append(next((r for r in fits if not r.conditional and r.length == "stop"), fits[0]))
    return found


def _asked(row: Row, X: Any) -> tuple[Any, Any]:
    """``X`` and ``y``: what is bad is the source of a model that needs one."""
    if not row.conditional:
        return X, None
    return X, GOOD[row.kind]


def _figure(model: sm.SequenceModel, row: Row, X: Any) -> np.ndarray:
    return model.log_prob(*_asked(row, X))


def _score(model: sm.SequenceModel, row: Row, bad: Any) -> np.ndarray:
    return _figure(model, row, bad)


def _fit(model: sm.SequenceModel, row: Row, bad: Any) -> np.ndarray:
    new = row.model.set_params(dtype=model.dtype)
    new.fit(*_asked(row, bad), validation=None)
    return _figure(new, row, GOOD[row.kind])


def outcome(ask: Callable[..., np.ndarray], model: sm.SequenceModel, row: Row, bad: Bad) -> tuple[Outcome, str]:
    """What came of one input, and a few words on it."""
    good = GOOD[row.kind]
    made = bad.make(good)
    try:
        figure = ask(model, row, made)
    except ValueError as error:
        return ("refused", str(error)) if len(str(error).split()) >= 4 else ("foreign", repr(error))
    except Exception as error:  # whatever comes is what is measured
        return "foreign", repr(error)[:150]
    if (
        np.isnan(figure).any()
        or np.isposinf(figure).any()
        or (row.kind in ("vectors", "counts") and np.isinf(figure).any())
    ):
        return "garbage", str(figure)
    if bad.same is REFUSED:
        return "garbage", f"{figure} for what means nothing"
    meant = made if bad.same is ITSELF else bad.same(good)
    exact = copy.deepcopy(model).set_params(dtype="float64")
    try:
        expected = ask(exact if bad.same is ITSELF and ask is _score else model, row, meant)
    except ValueError as error:
        return "garbage", f"{figure}, but what it means is refused: {error}"
    if not np.allclose(figure, expected, rtol=1e-4, atol=1e-3):
        return "garbage", f"{figure} for {expected}"
    return "right", str(figure)


def measure(quick: bool) -> list[Promise]:
    """All inputs into all pairs, in float32."""
    torch.set_num_threads(1)
    counts: Counter[Outcome] = Counter()
    wrong: list[str] = []
    n_inputs = len({(kind, bad.name) for kind in GOOD for bad in BAD[kind]})
    chosen = pairs(quick)
    for row in chosen:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = copy.deepcopy(fitted(row)).set_params(dtype="float32")
            for ask in (_score, _fit):
                for bad in BAD[row.kind]:
                    came, words = outcome(ask, model, row, bad)
                    counts[came] += 1
                    if came in ("garbage", "foreign"):
                        wrong.append(f"{ask.__name__[1:]} {row}, {bad.name}: {came}: {words}")
    print(f"{n_inputs} inputs, {len(chosen)} pairs: {dict(counts)}")
    print("\n".join(wrong[:400]))
    total = sum(counts.values())
    return [
        Promise(
            f"silent garbage from {n_inputs} bad inputs into {len(chosen)} pairs of model and data, fitted and scored "
            f"({total:,} calls)",
            "0",
            str(counts["garbage"]),
            counts["garbage"] == 0,
        ),
        Promise(
            "refusals of them that are no ValueError in words", "0", str(counts["foreign"]), counts["foreign"] == 0
        ),
    ]


if __name__ == "__main__":
    main(measure)
