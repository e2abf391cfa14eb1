"""What makes likelihoods comparable: every model of ``families.py`` through every rule."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.interpolate import CubicSpline

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.evaluation.coding import n_code_bytes
from seqmodels.evaluation.model_check import cdfs_by_cursor, cdfs_of_steps
from seqmodels.generation import CursorState, encode_source
from seqmodels.hmm import corpus
from seqmodels.neural import scoring
from seqmodels.neural.batches import Batching
from seqmodels.neural.model import NeuralModel, _Objective, _steps_to_units
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import check_comparable
from tests.families import (
    CELL,
    DISCRETE,
    LENGTHS,
    N_SYMBOLS,
    OFFSET,
    SCALES,
    SOME_REALS,
    TEXTS,
    Row,
    fitted,
    halved,
    make_data,
    marked,
    of_each_class,
    one_of_each_class,
    quartered,
    rough,
    rows,
    scored_rows,
)
from tests.made import made

LONGEST = 4  # of the strings that are enumerated: past the context of two of the Transformers
NODES = np.linspace(-5.5, 5.5, 111)
GRID = OFFSET + SCALES[0] * np.sinh(NODES)  # raw values, fine in the middle and 122 deviations wide


Part = Callable[[list[Row]], list[Row]]  # quartered and those after it


def each(part: Part, table: list[Row], where: Callable[[Row], bool] = lambda row: True) -> pytest.MarkDecorator:
    """The rows of a table, as far as a test is about them."""
    cases = [case for case in marked(table, part) if where(case.values[0])]
    return pytest.mark.parametrize("row", cases, ids=str)


def in_both_dtypes(part: Part, table: list[Row], float64: float, float32: float) -> pytest.MarkDecorator:
    """With a tolerance for each; in float32 rows with ends, which do more, of each class: its code is one for both."""
    with_ends = [row for row in halved(table) if row.length == "stop"]
    cases = marked(table, part, "float64", float64)
    cases += marked(with_ends, one_of_each_class, "float32", float32)
    return pytest.mark.parametrize(("row", "dtype", "tolerance"), cases, ids=str)


@cache
def in_float32(row: Row) -> sm.SequenceModel:
    return copy.deepcopy(rough(row)).set_params(dtype="float32")


MODELS = {"float64": rough, "float32": in_float32}


@cache
def steps_in(dtype: str, row: Row) -> list[np.ndarray]:
    """Of the data of the row, which the model has just been fitted to: not to be changed."""
    return MODELS[dtype](row).log_prob_steps(*row.data)


def has_network(model: sm.SequenceModel) -> bool:
    """Or has a part that is one."""
    given = model.get_params(deep=False)
    return any(isinstance(part, NeuralModel) for part in (model, given.get("model"), *given.get("models", ())))


def n_steps(row: Row, item: Any) -> int:
    n_units = len(item.encode()) if isinstance(item, str) else len(item)
    return n_units + (row.length == "stop")


def close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """To ``tolerance`` of the largest step."""
    assert_allclose(found, expected, rtol=0, atol=tolerance * max(1.0, float(np.abs(expected).max())))


def global_state() -> tuple[bytes, str]:
    """Of the random numbers that the library has no business with."""
    return torch.get_rng_state().numpy().tobytes(), str(np.random.get_state())  # noqa: NPY002


def test_parts_of_the_table_have_each_family_and_each_class_with_and_without_targets_and_ends() -> None:
    table = scored_rows()

    def met(part: list[Row], by: Callable[[Row], Any]) -> set[tuple[Any, str, bool | str]]:
        return {(by(row), row.kind, value) for row in part for value in (row.conditional, row.length)}

    def class_of(row: Row) -> type:
        return type(row.model)

    assert met(halved(table), lambda row: row.family.name) == met(table, lambda row: row.family.name)
    assert met(quartered(table), class_of) == met(of_each_class(table), class_of) == met(table, class_of)
    assert {(r.family.name, r.kind) for r in quartered(table)} == {(r.family.name, r.kind) for r in table}
    one = one_of_each_class(table)
    assert {(class_of(row), row.kind) for row in one} == {(class_of(row), row.kind) for row in table}
    assert {value for r in one for value in (r.conditional, r.length)} == {False, True, "given", "stop"}
    parts = [len(part) / len(table) for part in (halved(table), quartered(table), of_each_class(table), one)]
    assert (np.array(parts) < [0.6, 0.4, 0.25, 0.15]).all()


# -- one probability ---------------------------------------------------------------------------------------------


@cache
def outcomes(row: Row) -> tuple[list[np.ndarray], np.ndarray]:
    """Every string that a draw cut off at ``LONGEST`` symbols can give, and its log-probability."""
    shortest = LONGEST if row.length == "given" else 1
    letters = range(N_SYMBOLS) if row.kind == "symbols" else list(product([0, 1], repeat=2))
    strings = [np.array(s) for n in range(shortest, LONGEST + 1) for s in product(letters, repeat=n)]
    steps = rough(row).log_prob_steps(*row.ask(strings))
    # Of the longest strings the end is left out: they stand for all that begin with them.
    return strings, np.array(
        [each[:LONGEST].sum() if len(s) == LONGEST else each.sum() for s, each in zip(strings, steps, strict=True)]
    )


@each(quartered, rows(*DISCRETE))
def test_probabilities_of_all_strings_sum_to_one(row: Row) -> None:
    _, log_prob = outcomes(row)
    assert abs(np.exp(log_prob).sum() - 1) < 1e-9


def integral(values: np.ndarray) -> float:
    """Of a function given on ``GRID``, over raw values."""
    return float(np.trapezoid(values * SCALES[0] * np.cosh(NODES), NODES))


def steps_of_densities(part: Part, table: list[Row]) -> pytest.MarkDecorator:
    """The first step and the fifth; the first is the same whether ends are events or not: there are none yet."""
    first = [case for case in marked(table, one_of_each_class, 0) if case.values[0].length == "given"]
    cases = [case for case in (*first, *marked(table, part, 4)) if case.values[0].family.is_smooth]
    return pytest.mark.parametrize(("row", "n_past"), cases, ids=str)


@cache
def density(row: Row, n_past: int) -> np.ndarray:
    """``log p(x_t | past)`` on ``GRID`` after the first frames of a sequence, given that it goes on."""
    past = row.scored[0][:n_past]
    steps = rough(row).log_prob_steps(*row.ask([np.append(past, [[x]], axis=0) for x in GRID]))
    return np.array([each[n_past] for each in steps]) - log_continue(row, past)


def log_continue(row: Row, past: np.ndarray) -> float:
    if row.length == "given":
        return 0.0
    stream = rough(row).stream(source=row.source(len(past) + 1))
    for x in past:
        stream.update(x)
    return float(np.log1p(-np.exp(stream.log_end())))


@steps_of_densities(quartered, rows("vectors", n_features=1))
def test_densities_integrate_to_one(row: Row, n_past: int) -> None:
    assert abs(integral(np.exp(density(row, n_past))) - 1) < 1e-9


# -- the past alone ----------------------------------------------------------------------------------------------


def altered(item: Any, t: int) -> Any:
    """Another item of the same length that begins with the same t units."""
    if isinstance(item, str):
        return item[:t] + item[t:].swapcase()
    changed = item.copy()
    if item.ndim == 1:
        changed[t:] = (item[t:] + 1) % N_SYMBOLS
    else:
        whole = (item == np.rint(item)).all(axis=0)
        reals = np.where(np.abs(item[t:]) < np.pi, 0.9 * item[t:], 2 * OFFSET - 3 * item[t:])  # proportions, angles too
        changed[t:] = np.where(whole, 1 - np.minimum(item[t:], 1), reals)
    return changed


@each(one_of_each_class, scored_rows())
def test_the_future_leaves_the_past_unchanged(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    item = row.scored[3]  # nine steps, in text of one byte each
    changed = [altered(item, t) for t in range(1, 9)]
    for chunk in (2_048, 3) if has_network(row.model) else (2_048,):  # networks alone are called for parts
        monkeypatch.setattr(scoring, "MAX_STEPS_PER_CALL", chunk)
        old, *after = rough(row).log_prob_steps(*row.ask([item, *changed]))
        for t, new in enumerate(after, 1):
            assert_allclose(new[:t], old[:t], rtol=1e-9, atol=1e-9)
            assert (new[t:9] != old[t:9]).any()


@cache
def given_their_past(row: Row) -> tuple[sm.Sequences, sm.Sequences, sm.Sequences]:
    """Whole sequences; the second parts of two, each with the first as its past, and one without; their sources."""
    items, cuts = [row.scored[i] for i in (3, 4, 2)], [4, 1, 0]  # the second text has a character of three bytes

    def rest(whole: list[Any]) -> sm.Sequences:
        each = list(zip(whole, cuts, strict=True))
        return sm.Sequences([x[t:] for x, t in each], past=[x[:t] for x, t in each])

    sources = row.ask(items)[0]
    return sm.Sequences(items), rest(items), rest(sources) if row.family.aligned else sm.Sequences(sources)


def asked(row: Row, scored: sm.Sequences, sources: sm.Sequences) -> tuple[sm.Sequences, sm.Sequences | None]:
    return (sources, scored) if row.conditional else (scored, None)


@each(one_of_each_class, scored_rows())
@pytest.mark.products_repeat
def test_a_sequence_given_its_past_has_the_last_steps_of_the_whole(row: Row) -> None:
    model, (whole, rest, sources) = rough(row), given_their_past(row)
    X, y = asked(row, rest, sources)
    steps = model.log_prob_steps(X, y)
    for item, each, of_whole in zip(rest, steps, model.log_prob_steps(*row.ask(list(whole))), strict=True):
        assert len(each) == n_steps(row, item)
        close(each, of_whole[len(of_whole) - len(each) :], 1e-10)
    log_prob = [each.sum() for each in steps]
    assert_allclose(model.log_prob(X, y), log_prob, rtol=1e-12)
    examples = model._setting().examples(Data.of(X, y))
    sums = model._sums_of_steps(examples) + [example.log_det for example in examples]
    assert_allclose(sums, log_prob, rtol=1e-9, atol=1e-9)


@each(one_of_each_class, rows())
def test_a_stream_after_a_past_goes_on_as_the_batch_does(row: Row) -> None:
    model, (_, rest, sources) = rough(row), given_their_past(row)
    past = rest.past[0]
    source = np.concatenate([sources.past[0], sources[0]]) if row.family.aligned else sources[0]
    stream = model.stream(source=source if row.conditional else None, past=past)
    streamed = [stream.update(x) for x in rest[0]]
    close(np.array(streamed), model.log_prob_steps(*asked(row, rest, sources))[0][: len(streamed)], 1e-10)


@in_both_dtypes(one_of_each_class, scored_rows(), 1e-12, 1e-5)
def test_batches_order_and_padding_change_nothing(
    row: Row, dtype: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (X, y), together = MODELS[dtype](row), row.data, steps_in(dtype, row)
    for i in (0, 1):
        alone = model.log_prob_steps(X[i : i + 1], None if y is None else y[i : i + 1])[0]
        close(alone, together[i], tolerance)
    monkeypatch.setattr(scoring, "MAX_STEPS_PER_BATCH", 16)
    monkeypatch.setattr(scoring, "MAX_STEPS_PER_CALL", 3)
    monkeypatch.setitem(corpus.ELEMENTS_AT_ONCE, "cpu", 36)  # of an HMM of 3 states: few frames
    back = model.log_prob_steps(X[::-1], None if y is None else y[::-1])[::-1]
    for i, steps in enumerate(together):
        close(back[i], steps, tolerance)


@each(of_each_class, rows())
def test_the_cursor_agrees_with_the_evaluation_in_batches(row: Row) -> None:
    model, (X, y) = rough(row), row.data
    for i in (3, 4):
        item = row.scored[i]
        stream = model.stream(source=None if y is None else X[i])
        streamed = np.array([stream.update(x) for x in item])
        if row.length == "stop":
            streamed = np.append(streamed, stream.log_end())
        first = np.cumsum([0, *(len(c.encode()) for c in item)]) if isinstance(item, str) else np.arange(len(item) + 1)
        steps = model.log_prob_steps(X[i : i + 1], None if y is None else y[i : i + 1])[0]
        close(streamed, np.add.reduceat(steps, first[: len(streamed)]), 1e-10)


@each(of_each_class, [row for row in rows() if row.kind != "text"])
def test_predictions_of_all_steps_at_once_are_those_of_the_cursor(row: Row) -> None:
    """By the cumulative probability of each feature, if it is known."""
    model = rough(row)
    examples = [e for e in model._setting().examples(Data.of(*row.data), may_have_no_steps=True) if len(e.values)]
    predictions = model._step_predictions(examples)
    if predictions is None or not (row.kind == "symbols" or model.observation_.has_marginal_cdfs):
        return
    for prediction, example, cdfs in zip(predictions, examples, cdfs_by_cursor(model, examples), strict=True):
        for found, expected in zip(cdfs_of_steps(model, prediction, example), cdfs, strict=True):
            assert_allclose(found, expected, rtol=0, atol=1e-10)


@each(one_of_each_class, rows("symbols", "text"))
def test_all_that_could_come_next_sums_to_one_and_holds_what_came(row: Row) -> None:
    model = rough(row)
    X, y = row.data
    part = Data.of(X[3:5], None if y is None else y[3:5])
    examples = model._setting().examples(part)
    for example, table, steps in zip(examples, model._event_log_probs(examples), model._steps(examples), strict=True):
        outcomes = np.asarray(example.values)
        if row.length == "stop" and not model._is_tagger:
            outcomes = np.append(outcomes, table.shape[1] - 1)
        close(np.logaddexp.reduce(table, axis=1), np.zeros(len(table)), 1e-10)
        close(table[np.arange(len(outcomes)), outcomes], steps, 1e-10)


@each(one_of_each_class, rows("vectors", "bits", "counts", "mixed", "rounded", *SOME_REALS))
def test_missing_values_are_summed_out_batched_and_one_by_one_or_refused(row: Row) -> None:
    X, y = row.data
    scored = [item.copy() for item in row.scored]
    for i, t, feature in ((0, 3, 0), (3, 2, 1), (3, 3, 0), (4, 0, 0), (5, 4, 1)):
        scored[i][t, feature] = np.nan
    scored[3][5] = np.nan  # a whole frame
    data = (scored, None) if y is None else (X, scored)
    if not (row.model._sums_out(fitted(row).observation_)):
        with pytest.raises(ValueError, match="has a NaN at frame 3, and this model cannot sum out"):
            row.model.fit(*data, validation=None)
        return
    model = row.model.fit(*data, validation=None)
    steps = model.log_prob_steps(*data)
    for i in (3, 4):
        stream = model.stream(source=None if y is None else X[i])
        streamed = np.array([stream.update(x) for x in scored[i]])
        if row.length == "stop":
            streamed = np.append(streamed, stream.log_end())
        close(streamed, steps[i], 1e-10)
        alone = model.log_prob(*((scored[i : i + 1], None) if y is None else (X[i : i + 1], scored[i : i + 1])))
        close(alone, steps[i : i + 1][0].sum(keepdims=True), 1e-9)
    drawn = model.sample(
        source=row.source(8), prefix=scored[3][:6], **({"max_length": 2} if row.length == "stop" else {"length": 2})
    )
    assert not np.isnan(drawn[0][6:]).any()


@in_both_dtypes(one_of_each_class, rows(), 1e-10, 1e-4)
def test_predict_next_is_the_next_step(row: Row, dtype: str, tolerance: float) -> None:
    pytest.importorskip("pyro")
    model, item = MODELS[dtype](row), row.scored[3]
    steps = model.log_prob_steps(*row.ask([item]))[0]
    units = np.frombuffer(item.encode(), np.uint8).astype(np.int64) if isinstance(item, str) else item
    for t in (0, 3, 8) if dtype == "float64" else (3,):
        predicted = model.predict_next(item[:t], source=row.source(len(item)))
        log_prob = float(predicted.log_prob(torch.as_tensor(units[t])))
        if row.kind in ("symbols", "text"):  # the end is among what may come next
            end = float(predicted.probs[-1]) if row.length == "stop" else 0.0
            close(np.array([predicted.p_end]), np.array([end]), tolerance)
        else:  # given that the sequence goes on
            log_prob += np.log1p(-predicted.p_end)
            expected = log_continue(row, item[:t])
            close(np.array([np.log1p(-predicted.p_end)]), np.array([expected]), tolerance)
        close(np.array([log_prob]), steps[t : t + 1], tolerance)
    if row.family.aligned:
        with pytest.raises(ValueError, match="so nothing comes next"):
            model.predict_next(item, source=row.source(len(item)))
    elif row.kind in ("symbols", "text"):
        ends = model.predict_next(item, source=row.source(len(item))).probs
        assert len(ends) == (256 if row.kind == "text" else N_SYMBOLS) + (row.length == "stop")
        assert abs(float(ends.sum()) - 1) < (1e-6 if dtype == "float32" else 1e-12)
        if row.length == "stop":
            close(ends[-1:].log().double().numpy(), steps[-1:], tolerance)
            assert model.predict_next(None, source=row.source(1)).probs[-1] == 0  # a sequence is not empty


# -- units -------------------------------------------------------------------------------------------------------


@each(one_of_each_class, rows("vectors", "positive", "amounts"))
@pytest.mark.products_repeat
def test_scaling_the_data_shifts_the_score_by_the_logarithm(row: Row) -> None:
    X, y = row.data
    same = row.family.source is not None  # sources of another kind have other units
    scaled = X if same else [32 * x for x in X], None if y is None else [32 * x for x in y]
    score = row.model.fit(*scaled, validation=None).score(*scaled)
    n_densities = np.count_nonzero(np.concatenate(row.scored)) / sum(map(len, row.scored))  # an amount of 0 has none
    assert abs(score - (fitted(row).score(X, y) - n_densities * np.log(32))) < 1e-9


@each(one_of_each_class, scored_rows())
@pytest.mark.products_repeat
def test_steps_add_up_and_there_is_one_for_each_unit_and_end(row: Row) -> None:
    model, scored, steps = rough(row), row.scored, steps_in("float64", row)
    assert [len(each) for each in steps] == [n_steps(row, item) for item in scored]
    assert all(each.dtype == np.float64 and np.isfinite(each).all() for each in steps)
    assert_allclose(model.log_prob(*row.data), [each.sum() for each in steps], rtol=1e-14)
    n_units = sum(n_steps(row, item) for item in scored) - len(scored) * (row.length == "stop")
    assert_allclose(model.score(*row.data), np.concatenate(steps).sum() / n_units, rtol=1e-13)


@each(one_of_each_class, rows())
def test_a_sequence_cannot_end_before_it_begins(row: Row) -> None:
    stream = rough(row).stream(source=row.source(1))
    if row.length == "stop":
        assert stream.log_end() == -np.inf
    else:
        with pytest.raises(ValueError, match="ends have no probability"):
            stream.log_end()


@each(of_each_class, scored_rows())
def test_the_measure_says_what_was_measured(row: Row) -> None:
    vectors = {"bits": "{0,1}^2", "counts": "N^2", "mixed": "R^1 x N^1", "rounded": "grid^2"} | dict.fromkeys(
        ("vectors", *SOME_REALS), "R^2"
    )
    vectors["amounts"] = "({0}+R)^2"
    space, unit = vectors.get(row.kind, row.kind), {"text": "byte", "symbols": "symbol"}.get(row.kind, "frame")
    model = fitted(row)
    kind = "estimate" if row.family.is_estimate else "exact" if row.family.predicts_steps else "bound"
    grid = (CELL, CELL) if row.kind == "rounded" else None
    inputs = ("time",) if row.family.reads_times else ()
    expected = sm.Measure(space, unit, row.length, kind, row.conditional, grid, model.memory_, inputs)
    assert model.measure_ == expected


@pytest.mark.parametrize(
    ("field", "value"), [("space", "R^3"), ("unit", "frame"), ("length", "given"), ("conditional", True)]
)
def test_what_differs_is_named(field: str, value: Any) -> None:
    one: dict[str, Any] = {"space": "text", "unit": "byte", "length": "stop", "kind": "exact", "conditional": False}
    check_comparable({"a": sm.Measure(**one), "b": sm.Measure(**(one | {"kind": "bound"}))})
    with pytest.raises(sm.IncomparableError, match=f"'b' and 'a' measure different things: {field} is"):
        check_comparable({"a": sm.Measure(**one), "b": sm.Measure(**(one | {field: value}))})


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: made(sm.HMM, 2, max_iter=2, **o),
        lambda **o: sm.GRU(d_model=8, max_steps=2, **o),
        lambda **o: sm.NGram(3, **o),
    ],
)
@pytest.mark.parametrize(
    ("encoding", "kind"), [(sm.Bytes(), "exact"), (sm.Characters(), "bound"), (sm.BPE(260), "bound")], ids=repr
)
def test_text_is_counted_in_bytes_however_it_is_read(make: Any, encoding: sm.encodings.Encoding, kind: str) -> None:
    texts = ["the néné", "the €", "then the"]
    model = make(encoding=encoding, dtype="float64").fit(texts, validation=None)
    steps = model.log_prob_steps(texts)
    assert (model.measure_.unit, model.measure_.kind) == ("byte", kind)
    assert_allclose(model.score(texts), np.concatenate(steps).sum() / 25, rtol=1e-13)
    for text, each in zip(texts, steps, strict=True):
        pieces = [model.encoding_.decode(s[None]) for s in model.encoding_.encode(text)]
        assert len(each) == len(text.encode()) + 1
        # Every piece stands on its last byte: there and nowhere else is a step.
        last = model.encoding_.last_unit(model.encoding_.encode(text))
        assert_array_equal(np.flatnonzero(each[:-1]), last)
        assert len(pieces) == len(last)
        assert last[-1] == len(text.encode()) - 1


# -- drawing -----------------------------------------------------------------------------------------------------


@each(one_of_each_class, rows(*DISCRETE))
def test_drawn_strings_are_as_frequent_as_they_are_probable(row: Row) -> None:
    strings, log_prob = outcomes(row)
    n, p = 2_000, np.exp(log_prob)
    given = {"length": LONGEST} if row.length == "given" else {"max_length": LONGEST}
    drawn = rough(row).sample(n, source=row.source(LONGEST), random_state=5, **given)
    index = {s.astype(int).tobytes(): i for i, s in enumerate(strings)}
    found = np.array([index[np.asarray(s).astype(int).tobytes()] for s in drawn])
    surprise = -log_prob[found]
    assert abs(surprise.mean() - -(p @ log_prob)) < 4 * surprise.std() / np.sqrt(n)
    counts = np.bincount(found, minlength=len(p))
    common = n * p > 5
    assert (np.abs(counts - n * p)[common] < 5 * np.sqrt(n * p)[common]).all()


@steps_of_densities(one_of_each_class, rows("vectors", n_features=1))
def test_drawn_vectors_have_the_entropy_of_the_density(row: Row, n_past: int) -> None:
    log_q, n = density(row, n_past), 1_000
    past = row.scored[0][:n_past]
    drawn = rough(row).sample(n, prefix=past, source=row.source(n_past + 1), length=1, random_state=6)
    assert {len(x) for x in drawn} == {n_past + 1}
    assert_allclose(np.asarray(drawn[0])[:n_past], past, rtol=1e-12)
    x = np.array([np.asarray(each)[-1, 0] for each in drawn])
    nodes = np.arcsinh((x - OFFSET) / SCALES[0])
    for f in (log_q, GRID):  # the entropy, and the mean
        f_of_x, expected = CubicSpline(NODES, f)(nodes), integral(np.exp(log_q) * f)
        assert abs(f_of_x.mean() - expected) < 4 * f_of_x.std() / np.sqrt(n)


def test_states_that_must_end_and_prefixes_that_cannot_be() -> None:
    """From state 0 a sequence ends at once; symbol 0 comes from it alone, and only first."""
    pytest.importorskip("pyro")
    model = sm.HMM.from_parameters([0.5, 0.5], [[0, 0], [0, 0.5]], [1, 0.5], emission=[[1.0, 0], [0, 1.0]])
    assert {tuple(x) for x in model.sample(40, max_length=3)} == {(0,), (1,), (1, 1), (1, 1, 1)}
    assert_allclose(model.predict_next(np.array([0])).probs, [0, 0, 1])
    with pytest.raises(ValueError, match="no sequence that continues after step 1 is possible"):
        model.sample(40, length=3)
    with pytest.raises(ValueError, match="what came before has probability zero"):
        model.predict_next(np.array([0, 1]))


@each(one_of_each_class, rows())
def test_draws_repeat_by_seed_and_have_the_length_asked_for(row: Row) -> None:
    model, before = rough(row), global_state()
    wanted = {"length": 4} if row.length == "given" else {"max_length": 6}
    first, again, other = (model.sample(16, source=row.source(4), random_state=s, **wanted) for s in (1, 1, 2))
    for a, b in zip(first, again, strict=True):
        assert a == b if isinstance(a, str) else np.allclose(a, b, rtol=1e-5, atol=1e-5)
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    if row.family.aligned:
        assert len(model.sample(source=row.source(5))[0]) == 5
        with pytest.raises(ValueError, match="the source has 5 steps and its target as many"):
            model.sample(source=row.source(5), length=4)
    elif row.length == "given":
        with pytest.raises(ValueError, match="pass length="):
            model.sample(source=row.source(4))
    if row.kind != "text":  # in text the length is one of bytes
        assert row.length == "given" or row.kind != "symbols" or len({len(x) for x in first}) > 1
        assert {len(x) for x in model.sample(4, source=row.source(3), length=3)} == {3}
    assert global_state() == before


@each(one_of_each_class, rows())
def test_what_is_generated_piece_by_piece_is_what_is_sampled(row: Row) -> None:
    model, prefix = rough(row), row.scored[3][:2]
    wanted = {"length": 4} if row.length == "given" else {"max_length": 6}
    has_temperature = row.kind not in ("counts", "mixed", "rounded", *SOME_REALS) and "chords" not in row.family.name
    for seed, decoding in ((1, {}), (2, {"temperature": 1.5} if has_temperature else {})):
        given = {"prefix": prefix, "source": row.source(6), "random_state": seed, **wanted, **decoding}
        whole, pieces = model.sample(**given)[0], list(model.generate(**given))
        if row.kind == "text":
            assert prefix + "".join(pieces) == whole
            assert "" not in pieces
        else:
            assert_allclose(np.array([*prefix, *pieces]), whole, rtol=1e-12)
            assert len(pieces) == 4 if row.length == "given" else 0 <= len(pieces) <= 6
    if row.kind != "text":
        several = model.sample(3, prefix=prefix, source=row.source(6), length=4, random_state=1)
        assert [len(x) for x in several] == [6, 6, 6]


@each(one_of_each_class, rows("symbols"))
def test_the_widest_beam_finds_the_most_probable_strings(row: Row) -> None:
    model, (strings, log_prob) = rough(row), outcomes(row)
    given = {"source": row.source(LONGEST), "n_beams": N_SYMBOLS ** (LONGEST + 1)}
    given |= {"length": LONGEST} if row.length == "given" else {"max_length": LONGEST}
    found = model.n_best(5, **given)
    # What is searched are whole strings, so the longest have their end too.
    whole = model.log_prob(*row.ask(strings)) if row.length == "stop" else log_prob
    assert_allclose([each.log_prob for each in found], np.sort(whole)[::-1][:5], rtol=0, atol=1e-9)
    assert_allclose(
        [each.log_prob for each in found], model.log_prob(*row.ask([each.item for each in found])), atol=1e-9
    )
    normalised = model.n_best(5, alpha=2.0, **given)
    scores = whole / ((6 + np.array([len(s) for s in strings])) / 6) ** 2
    assert_allclose([each.score for each in normalised], np.sort(scores)[::-1][:5], rtol=0, atol=1e-9)


@each(of_each_class, rows(), lambda row: row.conditional and not row.model.ignore_source)
def test_sources_of_one_length_start_together(row: Row) -> None:
    model = rough(row)
    cursor, sources = model.cursor(), [encode_source(model, row.data[0][i][:4]) for i in (0, 6)]
    together, alone = cursor.start(sources, 2), [cursor.start(source, 1) for source in sources]
    for step in model.encoding_.encode(row.scored[2])[:4]:
        x = torch.as_tensor(step).unsqueeze(0)
        expected = torch.cat([cursor.distribution(state).log_prob(x) for state in alone]).cpu()
        assert_allclose(cursor.distribution(together).log_prob(torch.cat([x, x])).cpu(), expected, rtol=0, atol=1e-9)
        together, alone = cursor.advance(together, torch.cat([x, x])), [cursor.advance(s, x) for s in alone]


@each(one_of_each_class, rows())
def test_states_of_a_cursor_are_values(row: Row) -> None:
    """Many sequences start from one cursor, and what is advanced or selected stays as it was."""
    model, item = rough(row), row.scored[3]
    cursor, steps = model.cursor(), [torch.as_tensor(step) for step in model.encoding_.encode(item)[:3]]
    source = encode_source(model, row.source(len(item))) if row.conditional else None

    def log_prob(state: CursorState, x: torch.Tensor) -> np.ndarray:
        return cursor.distribution(state).log_prob(x.expand(3, *x.shape)).double().cpu().numpy()

    def advanced(state: CursorState, x: torch.Tensor, n: int) -> CursorState:
        return cursor.advance(state, x.expand(n, *x.shape))

    state = advanced(cursor.start(source, 2), steps[0], 2)
    chosen = cursor.select(state, torch.tensor([1, 0, 1]))
    before = log_prob(chosen, steps[1])
    after = log_prob(advanced(chosen, steps[1], 3), steps[2])
    advanced(chosen, steps[2], 3)
    assert_allclose(log_prob(chosen, steps[1]), before, rtol=1e-9, atol=1e-9)
    assert_allclose(log_prob(advanced(chosen, steps[1], 3), steps[2]), after, rtol=1e-9, atol=1e-9)
    again = advanced(cursor.start(source, 3), steps[0], 3)
    assert_allclose(log_prob(again, steps[1]), before, rtol=0, atol=1e-10 * max(1.0, float(np.abs(before).max())))


@each(one_of_each_class, rows("symbols", "text"))
def test_a_beam_of_one_is_greedy(row: Row) -> None:
    model, prefix = rough(row), None if row.kind == "text" else row.scored[3][:2]
    wanted = {"length": 5} if row.length == "given" else {"max_length": 5}
    after = {name: n - (0 if prefix is None else len(prefix)) for name, n in wanted.items()}
    greedy = model.sample(prefix=prefix, source=row.source(5), temperature=0, **after)[0]
    found = model.n_best(1, prefix=prefix, source=row.source(5), n_beams=1, **after)[0].item
    different = np.flatnonzero([a != b for a, b in zip(found, greedy, strict=False)])
    if len(different):  # two symbols that are equally probable
        t = int(different[0])
        p = model.predict_next(greedy[:t], source=row.source(5)).probs
        assert_allclose(p[int(found[t])], p[int(greedy[t])], rtol=1e-9)
    else:
        assert np.array_equal(found, greedy)
    if row.conditional:
        first, second = row.source(5), row.data[0][0][:5]
        assert np.array_equal(
            model.predict([first], n_beams=1, **wanted)[0], model.n_best(1, source=first, n_beams=1, **wanted)[0].item
        )
        three = [first, row.data[0][7][:5], second]  # two of one length, searched together
        together = model.predict(three, n_beams=3, n_best=2, **wanted)
        for each, candidates in zip(three, together, strict=True):
            alone = model.n_best(2, source=each, n_beams=3, **wanted)
            assert all(np.array_equal(c.item, a.item) for c, a in zip(candidates, alone, strict=True))
            assert_allclose([c.log_prob for c in candidates], [a.log_prob for a in alone], rtol=0, atol=1e-9)
    else:
        with pytest.raises(ValueError, match="fitted without y"):
            model.predict(row.data[0], **wanted)


def test_a_search_and_a_draw_say_what_they_cannot() -> None:
    vectors, symbols = (next(r for r in rows(k) if r.length == "given") for k in ("vectors", "symbols"))
    for ask in ({"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.1}, {"temperature": 0}):
        with pytest.raises(ValueError, match="vectors have a density"):
            rough(vectors).sample(length=3, **ask)
    with pytest.raises(ValueError, match="draw from the model with sample"):
        rough(vectors).n_best(length=3)
    with pytest.raises(ValueError, match="stop is for text"):
        rough(symbols).sample(length=3, stop=["a"])
    with pytest.raises(ValueError, match="pass length="):
        rough(symbols).n_best()


def test_texts_end_where_they_are_told_to() -> None:
    row = next(r for r in rows("text") if r.family.name == "hmm-categorical" and not r.conditional)
    given = {"random_state": 4, "max_length": 60, "stop": ["e", " \n"], "temperature": 0.8}
    texts = rough(row).sample(20, **given)
    assert any(text.endswith("e") for text in texts)
    assert all(text.find("e") in (-1, len(text) - 1) for text in texts)
    plain = rough(row).sample(20, random_state=4, max_length=60, temperature=0.8)
    assert all(whole.startswith(text) for text, whole in zip(texts, plain, strict=True))
    assert "".join(rough(row).generate(**given)) == rough(row).sample(**given)[0]


# -- keeping and repeating ---------------------------------------------------------------------------------------


@each(one_of_each_class, scored_rows())
@pytest.mark.products_repeat
def test_a_saved_model_gives_the_same_figures(row: Row, tmp_path: Path) -> None:
    model = rough(row)
    with pytest.warns(UserWarning, match="which seqmodels does not know") if row.family.classes else nullcontext():
        model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model", classes=row.family.classes)
    assert type(loaded) is type(model)
    assert loaded.measure_ == model.measure_
    assert repr(loaded) == repr(model)
    for other in (loaded, pickle.loads(pickle.dumps(model))):  # what other processes are sent
        for found, expected in zip(other.log_prob_steps(*row.data), steps_in("float64", row), strict=True):
            assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.products_repeat
@each(one_of_each_class, [row for row in rows("symbols", "text") if not row.family.reads_times])
def test_sequences_come_back_from_as_many_bytes_as_they_are_worth(row: Row) -> None:
    model, (X, y) = rough(row), row.data
    data = sm.compress(model, X, y)
    back = sm.decompress(data, model, X if row.conditional else None)
    for found, expected in zip(back, row.scored, strict=True):
        assert_array_equal(found, expected)
    bits = -model.log_prob(X, y).sum() / np.log(2)
    assert abs(8 * n_code_bytes(data) - bits) <= 0.001 * bits + 9


@pytest.mark.parametrize(
    "content", [b"", b"a text, and a long enough one to have a header", b"\x08" + bytes(7) + b'{"a":1} ']
)
def test_what_is_no_model_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match=r"not (a saved model|one that seqmodels wrote)"):
        sm.load(tmp_path / "file")


@each(one_of_each_class, scored_rows())
@pytest.mark.products_repeat
def test_the_same_seed_fits_the_same_model_and_global_state_is_left_alone(row: Row) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)  # not the global state of the first fit
        before = global_state()
        again = row.model.fit(*row.data, validation=None)
        assert global_state() == before
    assert_allclose(again.log_prob(*row.data), fitted(row).log_prob(*row.data), rtol=1e-5)


def learns(name: str, grad: torch.Tensor | None) -> bool:
    if grad is None:
        return False
    return bool(grad.any(-1).all() if name == "segment" else grad.any())  # segments: a row for source and target each


@each(one_of_each_class, rows(), lambda row: isinstance(row.model, NeuralModel))
def test_every_weight_of_a_network_learns(row: Row) -> None:
    model = copy.deepcopy(rough(row))
    assert isinstance(model, NeuralModel)
    examples = model._setting().examples(sm.encodings.raw_data.Data.of(*row.data))
    model.module_.float()
    objective = _Objective(model, model._rows(examples), _steps_to_units(examples), None)
    batching = Batching(len(examples), model._bptt_steps(), model._carries_state)
    for batch in batching.epoch(objective.rows, np.random.default_rng(0)):
        objective(batch).weighted_log_prob.backward()
    idle = [name for name, parameter in model.module_.named_parameters() if not learns(name, parameter.grad)]
    if model.module_.network.reads_source and not row.conditional:
        # The source is one learned step, which leaves idle what goes from step to step or chooses between them.
        idle = [n for n in idle if not any(part in n for part in ("encoder", "cross", "attention", "source_previous"))]
    assert idle == []


# -- bad input ----------------------------------------------------------------------------------------------------


FRAMES = np.arange(8.0).reshape(4, 2) ** 2
NAN, INF = FRAMES + 0.5, FRAMES + 0.5
NAN[2, 1], INF[2, 1] = np.nan, np.inf
GOOD: dict[Kind, list[Any]] = {
    "vectors": [FRAMES, FRAMES[:2] + 1],
    "symbols": [np.array([0, 1, 2]), np.array([2, 0])],
    "text": ["to be", "né"],
}
BAD: list[tuple[Kind, str, Any, str, str]] = [  # kind, name, data, message, and where it shows
    ("vectors", "nan", [FRAMES, NAN], "sequence 1 of X has a NaN at frame 2", "score"),
    ("vectors", "inf", [FRAMES, INF], "sequence 1 has an infinite value at frame 2", "fit score"),
    ("vectors", "no list", [], "there are no sequences", "fit score"),
    ("vectors", "empty", [FRAMES, FRAMES[:0]], "sequence 1 is empty", "fit score"),
    ("vectors", "other width", [FRAMES, FRAMES[:, :1]], "sequence 1 has 1 features but sequence 0 has 2", "fit score"),
    ("vectors", "bare", FRAMES, r"bare array of shape \(4, 2\); for one sequence write \[X\]", "fit score"),
    ("vectors", "padded", np.zeros((2, 4, 2)), "Sequences.from_padded", "fit score"),
    ("vectors", "mixed", [FRAMES, "text"], "sequence 1", "fit score"),
    ("symbols", "negative", [np.array([1, 0]), np.array([0, -1])], "sequence 1 has the negative symbol", "fit score"),
    ("symbols", "fraction", [np.array([1, 0]), np.array([0.5])], "sequence 1 has the fractional symbol", "fit score"),
    ("symbols", "empty", [np.array([1, 0]), np.array([], int)], "sequence 1 is empty", "fit score"),
    ("symbols", "mixed", [np.array([1, 0]), FRAMES], "sequence 1 has shape", "fit score"),
    ("text", "one str", "to be", r"for one text \[text\]", "fit score"),
    ("text", "empty", ["to be", ""], "sequence 1 is empty", "fit score"),
    ("text", "surrogate", ["to be", "n\ud800"], "sequence 1 cannot be written as UTF-8 at character 1", "fit score"),
    ("text", "mixed", ["to be", np.array([1])], "sequence 1 is ndarray but the first is str", "fit score"),
    ("vectors", "other width", [FRAMES[:, :1]], "sequence 0 has 1 features but the model was fitted on 2", "score"),
    ("vectors", "other kind", ["text"], "the model was fitted on vectors but got text", "score"),
    ("symbols", "too large", [np.array([1]), np.array([0, 7])], "sequence 1 has symbol 7 at position 1", "score"),
    ("vectors", "constant", [FRAMES * [0, 1]], "feature 0 is constant over the training data", "fit"),
    ("symbols", "too large", [np.array([3])], "the data have symbol 3 but n_symbols is 3", "fit"),
]


def small_model(*, kind: Kind, network: bool, **options: Any) -> sm.SequenceModel:
    encoding: Any = sm.Symbols(3) if kind == "symbols" else "auto"
    if network:
        return sm.Transformer(d_model=8, n_heads=2, max_steps=2, encoding=encoding, **options)
    observation: Any = sm.AutoregressiveGaussian(1) if kind == "vectors" else "auto"
    return made(sm.HMM, 2, max_iter=2, observation=observation, encoding=encoding, **options)


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize(
    ("kind", "bad", "message", "where"), [pytest.param(k, *rest, id=f"{k}-{name}") for k, name, *rest in BAD]
)
def test_bad_input_is_named_and_leaves_an_earlier_fit_alone(
    kind: Kind, bad: Any, message: str, where: str, network: bool
) -> None:
    if "NaN" in message and not network:
        pytest.skip("an HMM sums missing values out")
    model = small_model(kind=kind, network=network).fit(GOOD[kind], validation=None)
    before = model.log_prob(GOOD[kind])
    for ask in where.split():
        with pytest.raises(ValueError, match=message):
            getattr(model, ask)(bad)
    assert_allclose(model.log_prob(GOOD[kind]), before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("network", [False, True])
def test_targets_are_one_for_each_sequence_and_of_its_kind(network: bool) -> None:
    X, y = GOOD["vectors"], [NAN[:2], FRAMES + 2]
    model = small_model(kind="vectors", network=network).fit(X, y, validation=None)
    before = model.log_prob(X, y)
    with pytest.raises(ValueError, match="there are 2 sequences in X but 1 in y"):
        model.fit(X, y[:1])
    with pytest.raises(ValueError, match="X is 2-dimensional vectors but y is text"):
        model.fit(X, ["to", "be"])
    if network:  # an HMM sums missing values out
        with pytest.raises(ValueError, match="sequence 1 of y has a NaN at frame 2"):
            model.log_prob(X, [FRAMES + 2, NAN])
        with pytest.raises(ValueError, match="sequence 0 of X has a NaN at frame 2"):
            model.predict_next(NAN, source=FRAMES)
    assert_allclose(model.log_prob(X, y), before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"length": "long"}, "length is 'long'"),
        ({"dtype": "float16"}, "dtype is 'float16'"),
        ({"encoding": "bytes"}, "encoding is 'bytes'"),
        ({"observation": "gaussian"}, "observation is 'gaussian'"),
        ({"d_model": 0}, "d_model is 0"),
        ({"n_heads": 3}, "n_heads=3 does not divide"),
        ({"random_state": None}, "random_state is None; pass an integer"),
        ({"positions": "cosine"}, "positions is 'cosine'"),
    ],
)
def test_a_hyperparameter_that_cannot_be_leaves_an_earlier_fit_alone(wrong: dict[str, Any], message: str) -> None:
    X = GOOD["vectors"]
    model = small_model(kind="vectors", network=True).fit(X, validation=None)
    before, kept = model.log_prob(X), model.get_params(deep=False)
    with pytest.raises(ValueError, match=message):
        model.set_params(**wrong).fit([2 * x for x in X])
    assert_allclose(model.set_params(**kept).log_prob(X), before, rtol=1e-5, atol=1e-5)


@each(one_of_each_class, rows())
def test_a_model_is_asked_for_what_it_was_fitted_to(row: Row) -> None:
    model, X, other = rough(row), row.data[0], row.scored[2]
    if row.conditional:
        with pytest.raises(ValueError, match="pass y too"):
            model.log_prob(X)
        with pytest.raises(ValueError, match="pass source="):
            model.predict_next(other)
    else:
        with pytest.raises(ValueError, match="leave y out"):
            model.log_prob(X, X)
        with pytest.raises(ValueError, match="leave source out"):
            model.stream(source=other)


def test_what_is_not_fitted_says_so() -> None:
    calls = (
        *(lambda m: m.log_prob(["a"]), lambda m: m.sample(), lambda m: m.stream(), lambda m: m.save("nowhere")),
        lambda m: m.cursor(),
    )
    for model, call in product((sm.LSTM(), sm.HMM(), sm.NGram(), sm.HMMTagger(), sm.AlignmentHMM()), calls):
        with pytest.raises(sm.NotFittedError, match="not fitted; call fit first"):
            call(model)


# -- scikit-learn's tools ----------------------------------------------------------------------------------------


@each(one_of_each_class, scored_rows())
def test_clones_and_nested_parameters(row: Row) -> None:
    from sklearn.base import clone

    model = fitted(row)
    copied = clone(model)
    assert repr(copied) == repr(model)
    assert not hasattr(copied, "measure_")
    if row.kind == "vectors" and model.observation != "auto":
        (name,) = (name for name in model.get_params() if name.startswith("observation__min_"))
        floor = model.get_params()[name]
        copied.set_params(**{name: 2 * floor})
        assert model.get_params()[name] == floor
        assert copied.get_params()[name] == 2 * floor
    with pytest.raises(ValueError, match="has no parameter 'n_nothing'"):
        copied.set_params(n_nothing=1)


@pytest.mark.products_repeat
@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("kind", ["vectors", "symbols", "text"])
def test_cross_validation_and_search_take_lists_of_sequences(kind: Kind, network: bool) -> None:
    from sklearn.model_selection import GridSearchCV, cross_val_score

    X = make_data(kind, LENGTHS, TEXTS, 0, 2)
    model = small_model(kind=kind, network=network)
    scores = cross_val_score(model, X, cv=2, error_score="raise")
    expected = [
        small_model(kind=kind, network=network).fit(X[a:b]).score(X[c:d]) for a, b, c, d in ((4, 8, 0, 4), (0, 4, 4, 8))
    ]
    assert_allclose(scores, expected, rtol=1e-12)
    name = "lr" if network else "n_states" if kind != "vectors" else "observation__order"
    search = GridSearchCV(model, {name: [1, 2]}, cv=2, error_score="raise").fit(sm.Sequences(X))
    assert search.best_estimator_.get_params()[name] == search.best_params_[name]
    assert np.isfinite(search.best_score_)
