"""Context mixing: one probability whatever the alphabet; compiled or not, in whatever order, from whatever thread."""

from __future__ import annotations

import copy
import importlib.util
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.counts.context_mixing import (
    contexts,
    fields,
    learner,
    mixing,
    picture_and_sound,
    reader,
    reading_state,
    records,
    tables,
    undo,
)
from seqmodels.counts.context_mixing.histories import N_HISTORIES, transitions
from seqmodels.counts.context_mixing.tables import BUCKET
from seqmodels.encodings.binary_code import BinaryCode, log_odds_of_path
from seqmodels.encodings.raw_data import Data

TEXT = "the cat sat on the mat.\nThe dog sat on the log,\nand the cat saw it.\n"


def symbols(n_symbols: int, n: int = 30, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(n_symbols, size=n)


def fit(X: list[Any], **options: Any) -> sm.ContextMixing:
    return sm.ContextMixing(**({"n_buckets": 256, "dtype": "float64"} | options)).fit(X)


def all_log_probs(model: sm.ContextMixing, item: Any) -> np.ndarray:
    """``(T, V)``, under ``stop`` ``(T + 1, V + 1)``, nats of all that could come next at each step of a raw item."""
    return model._event_log_probs(model._setting().examples(Data.of([item])))[0]


# -- one probability ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_symbols", [1, 2, 3, 8, 256, 257, 1000])
@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("n_buckets", [2, 1024])
def test_all_symbols_and_the_end_sum_to_one(n_symbols: int, length: str, n_buckets: int) -> None:
    X = [symbols(n_symbols), symbols(n_symbols, 7, 1)]
    model = fit(X, encoding=sm.Symbols(n_symbols), length=length, n_buckets=n_buckets)
    item = symbols(n_symbols, 9, 2)
    steps, each = model.log_prob_steps([item])[0], all_log_probs(model, item)
    assert each.shape == (9 + (length == "stop"), n_symbols + (length == "stop"))
    assert_allclose(np.exp(each).sum(1), 1, rtol=0, atol=1e-12)
    assert_allclose(each[np.arange(9), item], steps[:9], rtol=0, atol=1e-12)
    if length == "stop":
        assert np.isneginf(each[0, -1])
        assert np.isfinite(each[1:]).all()
        assert_allclose(each[9, -1], steps[9], rtol=0, atol=1e-12)
    stream = model.stream()
    assert_allclose([stream.update(x) for x in item], steps[:9], rtol=0, atol=1e-11)


@pytest.mark.parametrize("n_symbols", [1, 2, 3, 8, 257])
@pytest.mark.parametrize("length", ["given", "stop"])
def test_log_odds_of_decisions_are_those_of_all_symbols(n_symbols: int, length: str) -> None:
    """Whose end is the first decision, not one below symbol 0."""
    X = [symbols(n_symbols), symbols(n_symbols, 7, 1)]
    model = fit(X, encoding=sm.Symbols(n_symbols), length=length)
    items = [symbols(n_symbols, 9, 2), np.zeros(4, int)]
    code, examples = BinaryCode(n_symbols, length == "stop"), model._setting().examples(Data.of(items))
    each = zip(examples, model._event_log_probs(examples), model._decision_log_odds(code, examples), strict=True)
    for example, log_p, found in each:
        assert_allclose(found, log_odds_of_path(code, log_p, example.values), rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_symbols", [1, 2, 3, 5])
def test_probabilities_of_all_short_strings_sum_to_one(n_symbols: int) -> None:
    """Of all up to three symbols, with the shares of those that go on."""
    model = fit([symbols(n_symbols, 5, seed) for seed in range(3)], encoding=sm.Symbols(n_symbols))
    strings = [np.array(s) for n in (1, 2, 3) for s in product(range(n_symbols), repeat=n)]
    steps = model.log_prob_steps(strings)
    whole = [each.sum() if len(s) < 3 else each[:3].sum() for s, each in zip(strings, steps, strict=True)]
    assert abs(np.exp(whole).sum() - 1) < 1e-12


def test_unseen_symbols_and_bytes_have_a_probability() -> None:
    steps = fit([TEXT]).log_prob_steps(["\x00\x01€ zzzz"])[0]
    assert np.isfinite(steps).all()
    seldom = fit([np.zeros(200, int)], encoding=sm.Symbols(1000)).log_prob_steps([np.array([0, 999, 0])])[0]
    assert seldom[1] < -2 < seldom[0]
    assert np.isfinite(seldom).all()


# -- compiled or not ---------------------------------------------------------------------------------------------


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The modules of compiled functions once more, as plain Python."""
    monkeypatch.setattr("seqmodels.common.compiled.is_compiling", lambda: False)
    loaded = {}
    for module in (reading_state, fields, records, contexts, undo, picture_and_sound, mixing, reader):
        name = module.__name__
        spec = importlib.util.spec_from_file_location(name, module.__file__)
        assert spec is not None
        assert spec.loader is not None
        again = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, again)
        spec.loader.exec_module(again)
        loaded[name.rpartition(".")[2]] = again
    return loaded


def read_twice(coding_: Any, registers_: Any, undo_: Any, text: str) -> list[np.ndarray]:
    """Everything that reading a text changes, and what it predicts of it and of all symbols; then rolled back."""
    values = np.frombuffer(text.encode(), np.uint8).astype(np.int64)
    spelling = [bytes([b]) for b in range(256)]
    learned = tables.empty(256, len(values), 64, np.zeros(0, np.int64), spelling)
    known, recent = np.zeros(registers_.N_REGISTERS, np.int64), np.zeros(100, np.int64)
    log = undo_.new_log(100, coding_.changes_per_step(learned))
    registers_.begin(learned, known)
    decisions, log_prob = coding_.new_decisions(learned), np.zeros(len(values) + 1)
    events = np.append(values, 256)
    coding_.read(learned, known, recent, events, 1, True, decisions, log, True, log_prob)
    each = np.zeros(257)
    coding_.log_probs_of_all(learned, known, recent, 1, decisions, each)
    after = [log_prob, each, learned.counters.copy(), learned.floats.copy(), learned.integers.copy(), known.copy()]
    undo_.roll_back(log, learned, known, 3)
    return [*after, learned.counters, learned.floats, learned.integers, known]


def test_compiled_functions_compute_what_they_say(plain: dict[str, ModuleType]) -> None:
    """The same as in plain Python: probabilities, every table, and what rolling back makes of them."""
    text = TEXT[:40]
    compiled = read_twice(mixing, reading_state, undo, text)
    in_python = read_twice(plain["mixing"], plain["reading_state"], plain["undo"], text)
    for a, b in zip(compiled, in_python, strict=True):
        if a.dtype == np.float64:
            assert_allclose(a, b, rtol=0, atol=1e-10)
        else:
            assert_array_equal(a, b)


# -- adaptive or frozen ------------------------------------------------------------------------------------------


def test_an_adaptive_model_learns_within_a_sequence_and_forgets_between_them() -> None:
    new = "qxzj " * 12
    adaptive, frozen = fit([TEXT]), fit([TEXT], adaptive=False)
    assert (adaptive.memory_, frozen.memory_) == ("adaptive", "static")
    assert (adaptive.measure_.memory, frozen.measure_.memory) == ("adaptive", "static")
    assert adaptive.score([new]) > frozen.score([new]) + 1
    first = adaptive.log_prob_steps([new])[0]
    assert_array_equal(first[:1], frozen.log_prob_steps([new])[0][:1])  # nothing was learned yet
    for each in adaptive.log_prob_steps([new, TEXT, new])[::2]:
        assert_array_equal(each, first)


@pytest.mark.parametrize("n_log_steps", [1, 5, 4096])
def test_order_and_threads_change_nothing(n_log_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether sequences are undone by the log or, longer than it, by copying the tables anew."""
    monkeypatch.setattr(reader, "MAX_LOG_STEPS", n_log_steps)
    X = [TEXT[i : i + n] for i, n in ((0, 3), (5, 20), (9, 1), (2, 40), (30, 12))]
    model = fit([TEXT])
    before = copy.deepcopy(model.tables_)
    alone = [copy.deepcopy(model).log_prob_steps([x])[0] for x in X]
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(model.log_prob_steps, X[::-1] if i % 2 else X) for i in range(8)]
    for i, job in enumerate(jobs):
        for found, expected in zip(job.result()[:: -1 if i % 2 else 1], alone, strict=True):
            assert_array_equal(found, expected)
    for name in ("counters", "floats", "integers", "symbols"):
        assert_array_equal(getattr(model.tables_, name), getattr(before, name))


@pytest.mark.parametrize("n_log_steps", [2, 4096])
@pytest.mark.parametrize("n_readers", [1, 3])
def test_a_cursor_goes_on_from_any_state(n_log_steps: int, n_readers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward, back to where two sequences part, and to others, with fewer readers than sequences."""
    monkeypatch.setattr(reader, "MAX_LOG_STEPS", n_log_steps)
    monkeypatch.setattr(learner, "MAX_READERS", n_readers)
    model = fit([TEXT])
    cursor = model.cursor()
    state = cursor.start(n=1)
    states = {"": state}
    for text in ("the cat", "the dog", "a cat", "the cats", "the"):
        for n in range(1, len(text) + 1):
            if text[:n] not in states:
                states[text[:n]] = cursor.advance(states[text[: n - 1]], torch.tensor([ord(text[n - 1])]))
    order = np.random.default_rng(0).permutation(sorted(states))
    for text in order:
        expected = all_log_probs(model, f"{text}.")[len(text)]
        found = cursor.distribution(states[str(text)]).log_probs()[0].numpy()
        assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_a_saved_model_goes_on_learning_as_before(tmp_path: Any) -> None:
    model = fit([TEXT, TEXT[:5]], n_buckets=2)
    model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    assert loaded.memory_ == "adaptive"
    assert loaded.n_parameters_ == model.n_parameters_
    assert_array_equal(loaded.log_prob_steps([TEXT])[0], model.log_prob_steps([TEXT])[0])


# -- what it learns ----------------------------------------------------------------------------------------------


def test_what_is_repeated_is_predicted() -> None:
    """The match model sees a string again that is longer than every other context."""
    rng = np.random.default_rng(0)
    item = np.tile(rng.integers(4, size=200), 2)
    steps = sm.ContextMixing(length="given").fit([rng.integers(4, size=50)]).log_prob_steps([item])[0]
    assert steps[:200].mean() == pytest.approx(-np.log(4), abs=0.15)
    assert steps[300:].mean() > -0.1


def test_weights_repeat_sequences() -> None:
    X = [TEXT[:20], TEXT[20:]]
    twice = sm.ContextMixing(n_buckets=256).fit(X, sample_weight=[2, 0])
    again = sm.ContextMixing(n_buckets=256).fit([X[0], X[0]])
    assert_array_equal(twice.log_prob(X), again.log_prob(X))
    with pytest.raises(ValueError, match="pass whole numbers"):
        sm.ContextMixing().fit(X, sample_weight=[0.5, 1])


def test_bit_histories_are_closed_and_near_their_counts() -> None:
    after, probability = transitions()
    assert len(after) == len(probability) <= N_HISTORIES
    assert ((after >= 1) & (after < len(after))).all()  # no bit leads back to the empty history
    for bit, most in ((0, 0.02), (1, 0.02)):
        state = 0
        for _ in range(100):
            state = after[state, bit]
        assert abs(probability[state] - bit) < most
        assert after[state, bit] == state
        surprised = after[state, 1 - bit]
        assert abs(probability[surprised] - bit) > abs(probability[state] - bit)


def test_counters_stay_in_their_buckets() -> None:
    """Checks are where they were put: no counter was written over one."""
    model = fit([TEXT * 3], n_buckets=2)
    checks = model.tables_.counters.reshape(-1, BUCKET)[:, 0]
    assert (checks >= 0).all()
    first, mask = model.tables_.first_bucket, model.tables_.bucket_mask
    assert first[-1] + mask[-1] + 1 == len(checks)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"adaptive": "yes"}, "adaptive is 'yes'"),
        ({"n_buckets": 1}, "n_buckets is 1"),
        ({"warm_start": True}, "nothing to start from"),
        ({"observation": sm.GaussianMixture()}, "leave observation='auto'"),
    ],
)
def test_options_that_cannot_be_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.ContextMixing(**wrong).fit([TEXT])


def test_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match="the sequences are vectors"):
        sm.ContextMixing().fit([np.zeros((3, 1))])


def test_room_that_a_file_claims_is_taken_when_it_is_used(tmp_path: Path) -> None:
    X = [symbols(3)]
    model = fit(X, n_buckets=2**17)  # 30 MB, nearly all of it new
    model.save(path := tmp_path / "model.safetensors")
    tracemalloc.start()
    try:
        loaded = sm.load(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * path.stat().st_size + 2**24
    assert loaded.score(X) == model.score(X)
    assert_array_equal(loaded.tables_.counters, model.tables_.counters)
