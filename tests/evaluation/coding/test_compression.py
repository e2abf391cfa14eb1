"""``compress``: what comes back, how long it is, and what is refused in which words."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import seqmodels as sm
from seqmodels.evaluation.coding import n_code_bytes
from seqmodels.evaluation.coding.arithmetic import N_BYTES, arithmetic_here
from seqmodels.evaluation.coding.container import N_DIGEST

pytestmark = pytest.mark.products_repeat
TEXTS = ["abracadabra " * 8, "a bar", "né €"]
NGRAM = sm.NGram(2).fit(TEXTS)
SYMBOLS = [np.array(item) for item in ([0, 1, 2, 1, 0, 0, 1], [2], [1, 1, 2, 0])]


def test_texts_come_back_in_as_many_bits_as_they_are_worth() -> None:
    data = sm.compress(NGRAM, TEXTS)
    assert sm.decompress(data, NGRAM) == TEXTS
    bits = -NGRAM.log_prob(TEXTS).sum() / np.log(2)
    assert 8 * len(data) <= 1.001 * bits + 8 * 64
    assert abs(8 * n_code_bytes(data) - bits) <= 0.001 * bits + 9


@pytest.mark.slow
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_sequences_come_back(items: list[list[int]]) -> None:
    model = small_models()[len(items) % 3]
    arrays = [np.array(item) for item in items]
    for item, back in zip(arrays, sm.decompress(sm.compress(model, arrays), model), strict=True):
        assert_array_equal(back, item)


@cache
def small_models() -> list[sm.SequenceModel]:
    return [
        sm.NGram(2, adaptive=True).fit(SYMBOLS),
        sm.HMM(2, max_iter=2, n_init=1, length="given").fit(SYMBOLS),
        sm.ContextTree(3).fit(SYMBOLS),
    ]


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None)
def test_symbols_that_were_never_seen_come_back(item: list[int]) -> None:
    for encoding in (sm.encodings.OpenSymbols(), sm.encodings.OpenSymbols(n_symbols=2**41)):
        model = sm.NGram(1, encoding=encoding).fit([[5, 5, 2, 2, 2]])
        values = [np.array(item), np.array([5, 2, 3, 0])]
        data = sm.compress(model, values)
        assert [each.tolist() for each in sm.decompress(data, model)] == [each.tolist() for each in values]
        bits = -model.log_prob(values).sum() / np.log(2)
        assert abs(8 * n_code_bytes(data) - bits) <= 0.001 * bits + 9


@pytest.mark.parametrize("value", [2**20, 2**21 - 1])
def test_symbols_that_were_never_seen_cost_what_they_are_scored(value: int) -> None:
    model = sm.NGram(1, encoding=sm.encodings.OpenSymbols()).fit([[5, 5, 2, 2, 2]])
    item = np.full(100, value)
    bits = -model.log_prob([item])[0] / np.log(2)
    assert abs(8 * n_code_bytes(sm.compress(model, [item])) - bits) <= 9


def test_names_and_pairs_come_back() -> None:
    words = [["sit", "walk", "sit"], ["lie", "lie"]]
    model = sm.NGram(2).fit(words)
    assert [item.tolist() for item in sm.decompress(sm.compress(model, words), model)] == words
    pairs = sm.NGram(2).fit(SYMBOLS, SYMBOLS[::-1])
    data = sm.compress(pairs, SYMBOLS, SYMBOLS[::-1])
    for item, back in zip(SYMBOLS[::-1], sm.decompress(data, pairs, SYMBOLS), strict=True):
        assert_array_equal(back, item)
    with pytest.raises(ValueError, match=r"p\(y \| x\): pass X too"):
        sm.decompress(data, pairs)
    with pytest.raises(ValueError, match="2 sources, but 3 sequences were coded"):
        sm.decompress(data, pairs, SYMBOLS[:2])


def models() -> dict[str, sm.SequenceModel]:
    """Of each way to compute: counts, compiled loops, products of matrices in float32 and float64."""
    return {
        "ngram": NGRAM,
        "mixing": sm.ContextMixing().fit(TEXTS),
        "hmm": sm.HMM(3, max_iter=2, n_init=1).fit(TEXTS),
        "lstm": sm.LSTM(d_model=24, n_layers=2, max_steps=2).fit(TEXTS),
        "transformer": sm.Transformer(d_model=24, n_layers=2, n_heads=2, context=8, max_steps=2).fit(TEXTS),
        "mixture": sm.Mixture([sm.NGram(2), sm.GRU(d_model=8, max_steps=2)]).fit(TEXTS),
    }


DECODE = """
import sys
from pathlib import Path
import torch
import seqmodels as sm
torch.set_num_threads(2)
for path in map(Path, sys.argv[1:]):
    items = sm.decompress(path.with_suffix(".sqm").read_bytes(), sm.load(path))
    path.with_suffix(".txt").write_text("|".join(items), encoding="utf-8")
"""


@pytest.mark.slow
def test_another_process_with_two_threads_gives_back_the_same(tmp_path: Path) -> None:
    paths = []
    for name, model in models().items():
        paths.append(tmp_path / f"{name}.safetensors")
        model.save(paths[-1])
        paths[-1].with_suffix(".sqm").write_bytes(sm.compress(model, TEXTS))
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", DECODE, *map(str, paths)], check=True, env=environment)
    for path in paths:
        assert path.with_suffix(".txt").read_text(encoding="utf-8") == "|".join(TEXTS)


def test_damaged_and_foreign_data_are_refused() -> None:
    data = sm.compress(NGRAM, TEXTS)
    for t in range(0, len(data), 5):
        changed = data[:t] + bytes([data[t] ^ 16]) + data[t + 1 :]
        with pytest.raises(ValueError, match=r"damaged|not what seqmodels.compress writes"):
            sm.decompress(changed, NGRAM)
    for t in range(len(data)):
        with pytest.raises(ValueError, match=r"damaged or cut off|not what seqmodels.compress writes"):
            sm.decompress(data[:t], NGRAM)
    with pytest.raises(ValueError, match="by another model than this NGram"):
        sm.decompress(data, sm.NGram(2).fit(TEXTS[:2]))
    with pytest.raises(ValueError, match="by another model than this HMM"):
        sm.decompress(data, sm.HMM(2, max_iter=1, n_init=1).fit(TEXTS))
    with pytest.raises(ValueError, match="data is a str"):
        sm.decompress("sqm", NGRAM)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="without a model; pass them to decompress_file"):
        sm.decompress(sm.evaluation.compress_file(b"abc"), NGRAM)


def signed(data: bytes) -> bytes:
    return data[:-4] + zlib.crc32(data[:-4]).to_bytes(4, "little")


def test_another_arithmetic_is_named_and_what_it_decodes_is_checked() -> None:
    data = sm.compress(NGRAM, TEXTS)
    torch_at = 5 + 3
    newer = signed(data[:torch_at] + bytes([9, 8, 7]) + data[torch_at + 3 :])
    with pytest.raises(ValueError, match=r"coded with torch 9\.8\.7 \(here .*any_arithmetic=True"):
        sm.decompress(newer, NGRAM)
    assert sm.decompress(newer, NGRAM, any_arithmetic=True) == TEXTS
    other_code = signed(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
    with pytest.raises(ValueError, match=r"not what was coded|behind the end"):
        sm.decompress(other_code, NGRAM)
    digest_at = 5 + N_BYTES + N_DIGEST
    other_content = signed(data[:digest_at] + bytes([data[digest_at] ^ 1]) + data[digest_at + 1 :])
    with pytest.raises(ValueError, match="what was decoded is not what was coded: a prediction differs here"):
        sm.decompress(other_content, NGRAM)


@pytest.mark.parametrize(
    ("model", "X", "message"),
    [
        (
            sm.HMM(2, max_iter=1, n_init=1, observation=sm.GaussianMixture(1)),
            [np.arange(8.0)[:, None] ** 2],
            "of vectors",
        ),
        (sm.adapt.Compressor("zlib"), ["to be"], "no predictions of steps"),
        (sm.NGram(2), ["to be"], "not fitted"),
    ],
)
def test_models_that_cannot_code_are_refused(model: Any, X: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.compress(model if message == "not fitted" else model.fit(X), X)


def test_what_has_no_probability_is_named() -> None:
    model = sm.HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.5, 0.5, 0.0]])
    with pytest.raises(
        ValueError, match="sequence 1 has symbol 2 at step 1, where the model gives that probability zero"
    ):
        sm.compress(model, [[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="have a past"):
        sm.compress(NGRAM, sm.Sequences(["ab"], past=["c"]))


def test_the_arithmetic_survives_bytes_and_says_what_differs() -> None:
    here = arithmetic_here()
    assert type(here).of_bytes(here.to_bytes()) == here
    assert here.differences(here) == []
    other = type(here)(((9, 9, 9), *here.versions[1:]), b"xx", b"yy")
    assert [each.split()[0] for each in other.differences(here)] == ["seqmodels", "another", "another"]
