"""Scoring changes nothing, in the model or outside, whoever else is at work: every model of ``families.py``."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import random
import signal
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

import seqmodels as sm
from seqmodels.neural.evaluation_copy import evaluation_copy
from seqmodels.neural.inspection import gradient_by_lag
from seqmodels.neural.model import NeuralModel
from tests.families import Row, fitted, halved, marked, one_of_each_class, rows

SYMBOLS = [np.array([0, 1, 2, 1]), np.array([2, 0]), np.array([1, 1, 0, 2, 2])]
SMALL: dict[str, Any] = {"d_model": 8, "n_layers": 2, "max_steps": 3, "batch_size": 2}


def leaves(thing: Any, path: str = "", seen: frozenset[int] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Every number within, by where it stands: arrays and tensors as their bytes, of modules whether they train too."""
    if id(thing) in seen:
        return
    seen |= {id(thing)}
    if isinstance(thing, torch.Tensor):
        yield path, (thing.dtype, thing.device, thing.shape, thing.detach().cpu().numpy().tobytes())
    elif isinstance(thing, np.ndarray):
        yield path, (thing.dtype, thing.shape, thing.tobytes())
    elif isinstance(thing, pd.DataFrame):
        yield path, thing.to_csv()
    elif isinstance(thing, nn.Module):
        tensors = [*thing.named_parameters(), *thing.named_buffers()]
        parts = {name: part.training for name, part in thing.named_modules()}
        yield from leaves({"tensors": dict(tensors), "training": parts}, path, seen)
        yield from (
            (f"{path}.hooks", len(part._forward_hooks) + len(part._forward_pre_hooks)) for part in thing.modules()
        )
    elif isinstance(thing, dict):
        for name, part in thing.items():
            yield from leaves(part, f"{path}.{name}", seen)
    elif isinstance(thing, list | tuple | set | frozenset):
        for i, part in enumerate(thing):
            yield from leaves(part, f"{path}.{i}", seen)
    elif hasattr(thing, "__dict__") and not callable(thing):
        yield from leaves(vars(thing), path, seen)
    else:
        yield path, repr(thing)


def process_state() -> dict[str, Any]:
    """What belongs to the whole process."""
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": str(np.random.get_state()),  # noqa: NPY002
        "python": random.getstate(),
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "filters": list(warnings.filters),
    }


def everything_asked(model: sm.SequenceModel, row: Row) -> dict[str, Any]:
    """Of a fitted model, by the name of the method."""
    X, y = (None if items is None else items[:3] for items in row.data)
    source = row.source(3)
    first = row.scored[2][:3]
    found = {
        "log_prob_steps": model.log_prob_steps(X, y),
        "score": model.score(X, y),
        "predict_next": model.predict_next(first[:2], source=source),
        "sample": model.sample(2, source=source, length=3, random_state=1),
    }
    stream = model.stream(source=source)
    found["stream"] = [stream.update(x) for x in first]
    if row.kind == "symbols":
        found["n_best"] = model.n_best(2, source=source, n_beams=2, **({} if row.family.aligned else {"length": 3}))
        found["generate"] = list(model.generate(source=source, length=3, random_state=1))
    if isinstance(model, sm.HMM):
        found |= {"decode": model.decode(X, y), "posterior": model.posterior(X, y)}
    if isinstance(model, sm.LSTMSeq2Seq | sm.TransformerSeq2Seq) and row.conditional:
        if getattr(model, "attention", "") is not None:
            found["align"] = model.align(X, y)
    if row.conditional and row.kind == "symbols":
        found["predict"] = model.predict(X, **({} if row.family.aligned else {"length": 3}))
    return found


@pytest.fixture(autouse=True, scope="session")
def _all_is_imported() -> None:
    """What other packages set when they are first imported is theirs."""
    for row in (rows("symbols")[0], next(row for row in rows("vectors") if row.family.name == "hmm-full")):
        everything_asked(fitted(row), row)


@pytest.mark.parametrize(
    "row", marked([row for row in halved(rows()) if row.length == "given"], one_of_each_class), ids=str
)
def test_scoring_changes_nothing(row: Row) -> None:
    model = copy.deepcopy(fitted(row))
    # Fitted in float64, in which the weights of a network are not: each is asked in another dtype than what it holds.
    model.set_params(dtype="float64" if isinstance(model, NeuralModel) and row.conditional else "float32")
    before, outside = dict(leaves(model)), process_state()
    everything_asked(model, row)
    after = dict(leaves(model))
    assert {name for name in before | after if before.get(name) != after.get(name)} == set()
    assert process_state() == outside


def network() -> sm.LSTM:
    return sm.LSTM(**SMALL).fit(SYMBOLS, validation=None)


@pytest.mark.products_repeat
def test_copies_of_one_model_compute_each_in_its_own_dtype() -> None:
    single = network()
    expected = single.log_prob(SYMBOLS)
    double = sm.LSTM(**SMALL, dtype="float64").fit(SYMBOLS, validation=None).log_prob(SYMBOLS)
    assert 0 < np.abs(double - expected).max() < 1e-5
    shared = copy.copy(single).set_params(dtype="float64")
    apart = copy.deepcopy(single).set_params(dtype="float64")
    for _ in range(2):
        for model, figures in ((shared, double), (single, expected), (apart, double)):
            rtol = 1e-12 if figures is double else 1e-7  # between the two are some 1e-6
            assert_allclose(model.log_prob(SYMBOLS), figures, rtol=rtol)
    assert_allclose(single.set_params(dtype="float64").log_prob(SYMBOLS), double, rtol=1e-12)
    assert_allclose(single.set_params(dtype="float32").log_prob(SYMBOLS), expected, rtol=1e-7)


def test_what_is_kept_of_a_module_follows_its_weights_and_is_not_kept_with_it() -> None:
    model = network().set_params(dtype="float64")
    before, size = model.log_prob(SYMBOLS), len(pickle.dumps(network()))
    assert evaluation_copy(model.module_, torch.device("cpu"), torch.float64) is model._evaluation_module()
    assert abs(len(pickle.dumps(model)) - size) < 100
    with torch.no_grad():
        model.module_.head.bias += 0.5 * torch.arange(len(model.module_.head.bias))
    after = model.log_prob(SYMBOLS)
    assert np.abs(after - before).max() > 1e-3
    assert_allclose(copy.deepcopy(model).log_prob(SYMBOLS), after, rtol=1e-12)
    assert model.module_.head.bias.dtype == torch.float32


@pytest.mark.parametrize("counts_writes", [True, False])
def test_single_steps_follow_the_weights_and_hold_no_module(counts_writes: bool) -> None:
    model = network()
    kept, before = weakref.ref(model.module_), model.sample(length=20, random_state=0)
    assert_array_equal(model.sample(length=20, random_state=0), before)
    assert model.cursor().stepper is model.cursor().stepper
    bias = model.module_.head.bias
    with torch.no_grad():
        written = bias if counts_writes else bias.data  # whose writes are not counted in the weights
        written += torch.tensor([30.0] + [0.0] * (len(bias) - 1))
    after = model.sample(length=20, random_state=0)[0]
    assert len(np.unique(after)) == 1
    assert len(np.unique(before[0])) > 1
    del model, bias, written
    gc.collect()
    assert kept() is None


def test_copies_follow_an_optimiser_whose_writes_are_not_counted() -> None:
    model = network().set_params(dtype="float64")
    before = model.log_prob(SYMBOLS)
    parameters = list(model.module_.parameters())
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    torch.optim.AdamW(parameters, lr=0.1, fused=True).step()
    assert np.abs(model.log_prob(SYMBOLS) - before).min() > 1e-3


def test_a_module_that_is_left_in_training_is_scored_without_dropout_and_left_so() -> None:
    model = sm.LSTM(**SMALL, dropout=0.5).fit(SYMBOLS, validation=None)
    expected = model.log_prob(SYMBOLS)
    model.module_.train()
    assert_allclose(model.log_prob(SYMBOLS), expected, rtol=1e-5)
    assert all(part.training for part in model.module_.modules())


def in_threads(jobs: list[Callable[[], Any]], n_calls: int, n_threads: int = 8) -> list[tuple[int, Any]]:
    """What each call gave, and of which job it was; each thread begins with another."""
    together = Barrier(n_threads)

    def run(thread: int) -> list[tuple[int, Any]]:
        together.wait()
        order = [(thread + k) % len(jobs) for k in range(n_calls)]
        return [(i, jobs[i]()) for i in order]

    with ThreadPoolExecutor(n_threads) as pool:
        return [each for found in pool.map(run, range(n_threads)) for each in found]


def weights_by_layer(cls: type[sm.LSTMSeq2Seq | sm.TransformerSeq2Seq]) -> list[Callable[[], Any]]:
    model = cls(**SMALL).fit(SYMBOLS, SYMBOLS, validation=None)
    return [lambda x=x: model.align([x], [x]) for x in SYMBOLS]


def hidden_states_and_guesses() -> list[Callable[[], Any]]:
    model = sm.MaskedTransformer(**SMALL).fit(SYMBOLS, validation=None)
    encoded = [lambda x=x, i=i: model.encode([x], layer=i) for x in SYMBOLS for i in (0, 1, 2)]
    return [*encoded, lambda: [model.pseudo_log_prob(SYMBOLS)]]


def slopes() -> list[Callable[[], Any]]:
    model = network()
    return [lambda x=x: [gradient_by_lag(model, [x], [1]).gradient] for x in SYMBOLS]


def in_two_dtypes() -> list[Callable[[], Any]]:
    single = network()
    double = copy.copy(single).set_params(dtype="float64")
    return [lambda m=m, x=x: m.log_prob_steps([x]) for m in (single, double) for x in SYMBOLS]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "jobs",
    [
        lambda: weights_by_layer(sm.TransformerSeq2Seq),
        lambda: weights_by_layer(sm.LSTMSeq2Seq),
        hidden_states_and_guesses,
        slopes,
        in_two_dtypes,
    ],
    ids=["align", "align-lstm", "encode", "gradients", "dtypes"],
)
def test_threads_do_not_see_each_other(jobs: Callable[[], list[Callable[[], Any]]]) -> None:
    asked = jobs()
    expected = [job() for job in asked]
    for i, found in in_threads(asked, n_calls=15):
        for a, b in zip(found, expected[i], strict=True):
            assert_allclose(a, b, rtol=1e-5, atol=1e-5)


DROPS = {**SMALL, "dropout": 0.4, "max_steps": 15}
FITS: list[tuple[Callable[[], Any], int]] = [  # and whether of pairs
    (
        lambda: sm.LSTM(
            **DROPS,
            architecture=sm.neural.RecurrentArchitecture(recurrent_dropout=0.2, embedding_dropout=0.1, weight_drop=0.2),
        ),
        1,
    ),
    (lambda: sm.LSTMSeq2Seq(**DROPS), 2),
    (
        lambda: sm.Transformer(
            **DROPS, context=4, architecture=sm.neural.TransformerArchitecture(attention_dropout=0.3)
        ),
        1,
    ),
    (lambda: sm.HMM(3, n_init=3, max_iter=5), 1),
]


def test_fits_side_by_side_are_those_one_after_another_and_leave_the_process_as_it_was() -> None:
    def figures(i: int) -> np.ndarray:
        make, n = FITS[i]
        data = (SYMBOLS,) * n
        found: np.ndarray = make().fit(*data, validation=None).log_prob(*data)
        return found

    before = process_state()
    serial = [figures(i) for i in range(len(FITS))]
    for _ in range(2):
        with ThreadPoolExecutor(len(FITS)) as pool:
            for found, expected in zip(pool.map(figures, range(len(FITS))), serial, strict=True):
                assert_allclose(found, expected, rtol=1e-5)
    assert process_state() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_forked_worker_scores_after_torch_computed_on_two_threads() -> None:
    model, threads = network(), torch.get_num_threads()
    expected = model.log_prob(SYMBOLS)
    torch.set_num_threads(2)
    try:
        torch.exp(torch.ones(500_000)).sum()  # wakes the second thread
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.alarm(20)  # what hangs is killed
                torch.exp(torch.ones(500_000)).sum()
                code = 0 if np.allclose(model.log_prob(SYMBOLS), expected, rtol=1e-5) else 3
            finally:
                os._exit(code)  # never on into the tests
    finally:
        torch.set_num_threads(threads)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
