"""Sequences scored in parts by chains slow to forget: a state all but impossible after one part may explain the
next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels import HMM
from seqmodels.data import on_disk
from seqmodels.hmm import corpus, scoring
from seqmodels.inference.chains import log_space, scaled
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.forward_backward import forward_pass
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import Trellis

K = 6


def two_blocks(between: float, dtype: Any = "float32", length: str = "given") -> HMM:
    """Of three states each, that say 0 or 1; from one to the other the chain goes with probability ``between`` a
    state."""
    rng = np.random.default_rng(0)
    transition = np.full((K, K), between)
    for states in (slice(0, 3), slice(3, 6)):
        transition[states, states] = rng.dirichlet(np.full(3, 5.0), 3)
    emission = np.array([[0.9, 0.05, 0.05]] * 3 + [[0.05, 0.9, 0.05]] * 3)
    emission[:, 2] = 0.06 + 0.01 * np.arange(K)
    emission /= emission.sum(1, keepdims=True)
    final = None if length == "given" else np.full(K, 0.01)
    kept = transition / transition.sum(1, keepdims=True) * (1.0 if final is None else 0.99)
    return HMM.from_parameters(np.full(K, 1 / K), kept, final, emission=emission, dtype=dtype)


def in_logarithms(model: HMM, x: np.ndarray) -> np.ndarray:
    """The forward pass as it is written in textbooks."""
    p, table = model.parameters_, np.log(model.emission_)
    steps, predicted, log_a = [], p.initial.log().numpy(), p.transition.log().numpy()
    for symbol in x:
        joint = predicted + table[:, symbol]
        steps.append(np.logaddexp.reduce(joint))
        predicted = np.logaddexp.reduce((joint - steps[-1])[:, None] + log_a, axis=0)
    if p.final is not None:
        steps.append(np.logaddexp.reduce(joint - steps[-1] + p.final.log().numpy()))
    return np.array(steps)


@pytest.mark.parametrize("between", [1e-60, 1e-200, 1e-6], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", ["given", "stop"])
def test_what_a_part_hands_on_holds_in_every_state(
    between: float, dtype: Any, length: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    first, second = (rng.choice(3, size=400, p=p) for p in ([0.86, 0.06, 0.08], [0.06, 0.86, 0.08]))
    x = np.concatenate([first, second, second])
    model = two_blocks(between, dtype, length)
    monkeypatch.setitem(corpus.ELEMENTS_AT_ONCE, "cpu", 400 * K)
    found, expected = model.log_prob_steps([x])[0], in_logarithms(model, x)
    assert_allclose(found.sum(), expected.sum(), rtol=1e-9 if dtype == "float64" else 1e-6)
    assert_allclose(found, expected, rtol=0, atol=1e-8 if dtype == "float64" else 1e-3)


def test_a_chain_that_hardly_connects_is_not_tried_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the segments have failed nothing but the exact pass is run."""
    model = two_blocks(1e-60)
    p = model.parameters_
    x = torch.from_numpy(np.repeat([0, 1, 0, 1], 1000))
    segments = Segments.of_size(torch.tensor([4000]), 512, 128)
    log_b = segments.packing.pack(p.table.T[x].float())
    trellis = Trellis.of(p.initial, p.transition, LogDensities(log_b), segments)
    tried: list[tuple[torch.dtype, bool]] = []

    def counted(problem: Trellis) -> scaled.ScaledForward:
        tried.append((problem.densities.dtype, problem.segments.is_whole))
        return scaled_forward(problem)

    scaled_forward = scaled.forward
    monkeypatch.setattr(scaled, "forward", counted)
    found = forward_pass(trellis)
    assert tried == [(torch.float32, False)]
    steps = trellis.segments.split(found.steps)[0].numpy()
    assert_allclose(steps.sum(), in_logarithms(model, x.numpy()).sum(), rtol=1e-6)


@pytest.mark.parametrize("between", [1e-60, 0.0, 1e-300, 1e-3], ids=str)
def test_the_exact_pass_is_that_of_textbooks(between: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = two_blocks(between, "float64"), np.repeat([0, 1, 2, 0, 1], [300, 400, 3, 700, 900])
    p = model.parameters_
    trellis = Trellis.of(p.initial, p.transition, LogDensities(p.table.T[x]), Segments.whole([len(x)]))
    expected = in_logarithms(model, x)
    assert_allclose(log_space.forward_pass(trellis).steps, expected, rtol=1e-11, atol=1e-11)
    monkeypatch.setattr(log_space, "FAR_FROM_UNDERFLOW", np.inf)  # never in scaled numbers
    assert_allclose(log_space.forward_pass(trellis).steps, expected, rtol=1e-11, atol=1e-11)


def test_a_chain_that_forgets_is_not_scored_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("not needed")

    model = two_blocks(1e-3)
    x = np.random.default_rng(0).integers(0, 3, 1500)
    expected = model.log_prob([x])
    monkeypatch.setattr(scoring, "_score_parts_in_logarithms", never)
    monkeypatch.setitem(corpus.ELEMENTS_AT_ONCE, "cpu", 400 * K)
    assert_allclose(model.log_prob([x]), expected, rtol=1e-6)


def test_a_chain_that_never_forgets_is_read_from_disk_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.repeat([0, 1, 2, 0], [300, 200, 3, 97])
    np.save(tmp_path / "x.npy", x.astype(np.uint8))
    model, sizes, pack = two_blocks(0.0, "float64"), [], corpus.Corpus.pack

    def counted(self: corpus.Corpus, parts: list[corpus.Subsequence]) -> corpus.PackedBatch:
        sizes.append(sum(map(len, parts)))
        return pack(self, parts)

    monkeypatch.setattr(corpus.Corpus, "pack", counted)
    monkeypatch.setattr(corpus, "ELEMENTS_FROM_DISK", 200 * K)
    found = model.log_prob_steps(on_disk(tmp_path / "x.npy"))[0]
    assert sum(sizes) == len(x)
    assert max(sizes) <= 200 // scoring.LOG_SHARE + 1
    assert_allclose(found, in_logarithms(model, x), rtol=1e-9)
    assert_allclose(found, model.log_prob_steps([x])[0], rtol=1e-9)
