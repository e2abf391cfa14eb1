"""Stepwise EM: pieces of a long text are the text, one batch an epoch is EM, and a step is an average."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from seqmodels import HMM, AutoregressiveGaussian, GaussianMixture, Sequences, Standardize
from seqmodels.hmm import HSMM, ChainInputEffects, ChainTraining, ContinuousTimeHMM, MarkovSwitchingAR
from seqmodels.hmm import corpus as corpus_module
from seqmodels.hmm.corpus import ELEMENTS_AT_ONCE, Corpus, MiniBatch, Subsequence, cut
from seqmodels.hmm.emissions import Emission, emission_of
from seqmodels.hmm.learning.constraints import Constraints
from seqmodels.hmm.learning.em import Expectations, MAPObjective, RunningStatistics, e_step
from seqmodels.hmm.learning.initialise import starts
from seqmodels.hmm.learning.priors import Pseudocounts
from seqmodels.hmm.learning.stepwise import BatchUpdate, e_step_of_batch, e_step_of_subsequences
from seqmodels.hmm.parameters import Parameters
from seqmodels.observations import Categorical, Observation
from tests.made import made

CPU, F64, K = torch.device("cpu"), torch.float64, 4
TABLES = ("initial_", "transition_", "final_", "emission_")


def text(seed: int, *lengths: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.cumsum(rng.random(n) < 0.4) % 3 + 3 * (rng.random(n) < 0.1) for n in lengths]


def corpus(x: list[np.ndarray], n_past: int = 0, states: list[np.ndarray] | None = None) -> Corpus:
    weights = [1.0 + 0.5 * (i % 2) for i in range(len(x))]
    return Corpus(x, weights, states, n_past, K, K, CPU, F64)


def begin(c: Corpus, observation: Observation, size: int, has_end: bool) -> tuple[Emission, Parameters, Expectations]:
    """Parameters after a little EM, and the statistics of whole sequences under them."""
    emission = emission_of(observation, size)
    first = next(starts(emission, c.batches, K, has_final=has_end, generators=[torch.Generator().manual_seed(0)]))
    (found,) = e_step([first], emission, c.batches, F64) or []
    return emission, first, found


def total(parameters: Parameters, emission: Emission, c: Corpus, batches: list[MiniBatch]) -> Expectations:
    found = [e_step_of_batch(parameters, emission, c, batch) for batch in batches]
    return sum(found[1:], start=found[0])


def assert_same(one: Expectations, other: Expectations, rtol: float = 1e-9) -> None:
    assert_allclose(one.log_prob, other.log_prob, rtol=rtol)
    for a, b in zip((one.initial, one.xi, one.final), (other.initial, other.xi, other.final), strict=True):
        assert_allclose(a, b, rtol=rtol, atol=1e-9)
    for a, b in zip(one.emission, other.emission, strict=True):
        assert_allclose(a, b, rtol=rtol, atol=1e-8)


# -- pieces ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_end", [False, True])
def test_pieces_sum_to_the_text(has_end: bool) -> None:
    c = corpus(text(0, 9000, 30, 1700))
    emission, first, whole = begin(c, Categorical(), 6, has_end)
    batches = c.mini_batches(3, torch.Generator().manual_seed(0))
    n_pieces = sum(len(group) for batch in batches for group in batch)
    assert (len(batches), n_pieces) == (3, 11 + 1 + 2)
    assert_same(total(first, emission, c, batches), whole)


def test_pieces_with_a_past_and_with_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    x = [np.cumsum(rng.normal(size=(n, 2)), 0) / 9 for n in (2500, 40)]
    known = [np.where(rng.random(len(s)) < 0.1, rng.integers(K, size=len(s)), -1) for s in x]
    c = corpus(x, n_past=2, states=known)
    emission, first, whole = begin(c, AutoregressiveGaussian(2), 2, has_end=True)
    monkeypatch.setitem(ELEMENTS_AT_ONCE, "cpu", 4000)
    batches = c.mini_batches(2, torch.Generator().manual_seed(0))
    assert max(len(batch) for batch in batches) > 1  # groups that memory can hold
    assert_same(total(first, emission, c, batches), whole)


def test_what_surrounds_a_subsequence_matters() -> None:
    """Without the warm-up the sums are not those of the text."""
    c = corpus(text(0, 5000))
    emission, first, whole = begin(c, Categorical(), 6, has_end=False)
    alone = corpus([c.sequences[0][i : i + 1000] for i in range(0, 5000, 1000)])
    broken = total(first, emission, alone, alone.mini_batches(1, torch.Generator()))
    assert abs(float(broken.xi.sum() - whole.xi.sum())) > 1


def test_a_sequence_is_cut_into_equal_parts() -> None:
    assert cut(7, 10, 4) == [Subsequence(7, 0, 5, 10), Subsequence(7, 5, 10, 10)]
    assert cut(0, 7, 4) == [Subsequence(0, 0, 7, 7)]
    middle = Subsequence(0, 500, 900, 1000)
    assert (middle.warm_up_before, middle.warm_up_after) == (
        Subsequence(0, 300, 500, 1000),
        Subsequence(0, 900, 1000, 1000),
    )
    assert corpus_module.WARM_UP == 200


def test_a_chain_that_never_forgets_is_not_cut() -> None:
    x = [np.sort(s) for s in text(3, 1800, 1700)]
    options: dict[str, Any] = {
        "topology": "left-to-right",
        "length": "stop",
        "dtype": "float64",
        "max_iter": 3,
        "tol": 0,
    }
    plain, batch = (
        made(HMM, K, **options).fit(x),
        made(HMM, K, algorithm="stepwise", training=ChainTraining(batches=1), **options),
    )
    assert_allclose(batch.fit(x).transition_, plain.transition_, rtol=1e-6)


def test_a_chain_whose_parts_hardly_lead_to_one_another_is_not_cut() -> None:
    """A warm-up of 200 frames cannot tell in which part a sequence began."""
    transition = np.array([[1.0, 1e-60], [1e-60, 1.0]])
    x = [np.repeat([0, 2], [1700, 900]), np.repeat([1, 2], [1500, 1100])]  # of the last symbol both states say the same
    chain = ([0.5, 0.5], transition)
    emission = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]
    options: dict[str, Any] = {"warm_start": True, "dtype": "float64", "max_iter": 1, "tol": 0}
    plain = made(HMM.from_parameters, *chain, emission=emission, **options).fit(x)
    batch = made(
        HMM.from_parameters, *chain, emission=emission, algorithm="stepwise", training__batches=1, **options
    ).fit(x)
    assert_allclose(batch.emission_, plain.emission_, rtol=1e-9, atol=1e-12)


# -- steps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", ["given", "stop"])
def test_one_batch_an_epoch_is_em(length: Any) -> None:
    x = text(4, 2500, 60, 8)
    first = HMM(K, length=length, max_iter=0, dtype="float64").fit(x)
    p = (first.initial_, first.transition_, first.final_ if length == "stop" else None)
    options: dict[str, Any] = {"warm_start": True, "max_iter": 5, "tol": 0, "dtype": "float64"}
    em = made(HMM.from_parameters, *p, emission=first.emission_, **options).fit(x)
    batch = made(
        HMM.from_parameters, *p, emission=first.emission_, algorithm="stepwise", training__batches=1, **options
    ).fit(x)
    for name in TABLES:
        assert_allclose(getattr(batch, name), getattr(em, name), rtol=1e-8, atol=1e-12)
    assert_allclose(batch.history_["objective"], em.history_["objective"][:5], rtol=1e-10)


def test_a_partial_fit_on_all_data_is_one_step_of_em() -> None:
    x = text(5, 2500, 60, 8)
    first = HMM(K, max_iter=0, dtype="float64").fit(x)
    p = (first.initial_, first.transition_, first.final_)
    options: dict[str, Any] = {"warm_start": True, "max_iter": 1, "tol": 0, "dtype": "float64"}
    em = made(HMM.from_parameters, *p, emission=first.emission_, **options).fit(x)
    part = made(HMM.from_parameters, *p, emission=first.emission_, **options).partial_fit(x)
    for name in TABLES:
        assert_allclose(getattr(part, name), getattr(em, name), rtol=1e-8, atol=1e-12)
    assert_allclose(part.history_["log_prob"], em.history_["log_prob"][:1], rtol=1e-10)


def test_a_step_is_the_average_of_cappe_and_moulines() -> None:
    c = corpus(text(6, 50, 70))
    emission, first, _ = begin(c, Categorical(0.1), 6, has_end=False)
    a, b = (e_step_of_batch(first, emission, c, [[Subsequence(i, 0, n, n)]]) for i, n in ((0, 50), (1, 70)))
    statistics = RunningStatistics.first(a, 50.0).add(b, 70.0, decay=0.7)
    rate = 3**-0.7
    assert_allclose(statistics.mean.xi, (1 - rate) * a.xi / 50 + rate * b.xi / 70, rtol=1e-12)
    assert (statistics.n_batches, statistics.n_frames) == (2, 120.0)
    update = BatchUpdate(MAPObjective(emission, Pseudocounts.even(0.3), Constraints.none(K), 1.0, 0.0), decay=0.7)
    after, kept = update(first, RunningStatistics.first(a, 50.0), b, 70.0)
    counts = 120 * statistics.mean.xi + 0.3
    assert_allclose(after.transition, counts / counts.sum(1, keepdim=True), rtol=1e-12)
    assert kept.n_batches == 2
    never_less = RunningStatistics.first(a, 50.0).add(b, 70.0, decay=0.7, min_rate=0.9)
    assert_allclose(never_less.mean.initial, 0.1 * a.initial / 50 + 0.9 * b.initial / 70, rtol=1e-12)


def test_batches_get_further_in_as_many_epochs() -> None:
    rng = np.random.default_rng(7)
    z = [np.repeat(rng.integers(3, size=100), 4) for _ in range(24)]
    x = [np.array([[0.0, 0], [2, 0], [0, 2]])[s] + rng.normal(size=(400, 2)) for s in z]
    options: dict[str, Any] = {"observation": GaussianMixture(1), "max_iter": 3, "tol": 0}
    em = made(HMM, 3, **options).fit(x).score(x)
    assert made(HMM, 3, algorithm="stepwise", **options).fit(x).score(x) > em + 1e-4


def test_a_stream_of_batches_is_learned() -> None:
    rng = np.random.default_rng(8)
    model = HMM(3, observation=GaussianMixture(1))
    for _ in range(12):
        z = np.repeat(rng.integers(3, size=40), 5)
        model.partial_fit([np.array([[0.0, 0], [9, 0], [0, 9]])[z] + rng.normal(size=(200, 2))])
    assert_allclose(np.sort(model.means_[:, 0].sum(1)), [0, 9, 9], atol=0.5)
    assert len(model.history_) == 12
    assert not model.converged_


def test_after_a_fit_more_data_move_it_a_little() -> None:
    x, more = text(9, 900), text(10, 90)
    model = HMM(K, max_iter=20).fit(x)
    before = model.transition_.copy()
    model.partial_fit(more)
    alone = HMM(K, max_iter=20).fit(x)
    alone.statistics_ = None  # type: ignore[assignment]
    alone.partial_fit(more)
    assert 0 < np.abs(model.transition_ - before).max() < 0.5 * np.abs(alone.transition_ - before).max()


def test_a_partial_fit_that_fails_changes_nothing() -> None:
    model = HMM(K)
    with pytest.raises(ValueError, match="states of sequence 0"):
        model.partial_fit(text(11, 20), states=[np.zeros(3, dtype=int)])
    assert not model.__sklearn_is_fitted__()
    fitted = HMM(K, max_iter=2).fit(text(11, 20))
    with pytest.raises(ValueError, match="symbol 9"):
        fitted.partial_fit([np.array([9])])
    assert len(fitted.history_) <= 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_memory_mapped_array_is_read_a_piece_at_a_time(
    dtype: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(12)
    frames = (np.repeat(rng.normal(size=(500, 2)), 12, axis=0) + 0.3 * rng.normal(size=(6000, 2))).astype(dtype)
    frames.tofile(tmp_path / "frames")
    mapped = np.memmap(tmp_path / "frames", dtype=dtype, mode="r", shape=frames.shape)
    options: dict[str, Any] = {"observation": GaussianMixture(1), "algorithm": "stepwise", "max_iter": 2}
    whole = made(HMM, K, **options).fit([frames])
    monkeypatch.setattr("seqmodels.sequences.mapped.BLOCK_BYTES", 1000 * frames[0].nbytes)
    read: list[int] = []
    encode = Standardize.encode

    def counted(self: Standardize, item: Any) -> np.ndarray:
        read.append(len(item))
        return encode(self, item)

    monkeypatch.setattr(Standardize, "encode", counted)
    model = made(HMM, K, **options).fit([mapped])
    assert max(read) <= 1000  # pieces, never the whole
    assert_allclose(model.means_, whole.means_, rtol=1e-5)
    assert_allclose(model.history_["log_prob"], whole.history_["log_prob"], rtol=1e-6)


@pytest.mark.slow
def test_a_mini_batch_from_disk_is_worked_on_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(12)
    frames = np.repeat(rng.normal(size=(2000, 2)), 12, axis=0) + 0.3 * rng.normal(size=(24_000, 2))
    frames.tofile(tmp_path / "frames")
    mapped = np.memmap(tmp_path / "frames", dtype=np.float64, mode="r", shape=frames.shape)
    model = HMM(K, observation=GaussianMixture(1), algorithm="stepwise", training=ChainTraining(batches=2), max_iter=2)
    whole = model.clone().fit([mapped])
    monkeypatch.setattr("seqmodels.hmm.corpus.FRAMES_FROM_DISK", 2000)
    sizes: list[int] = []

    def counted(parameters: Any, emission: Any, corpus: Any, parts: list[Subsequence]) -> Any:
        sizes.append(sum(map(len, parts)))
        return e_step_of_subsequences(parameters, emission, corpus, parts)

    monkeypatch.setattr("seqmodels.hmm.learning.stepwise.e_step_of_subsequences", counted)
    model.fit([mapped])
    assert max(sizes) <= 2000
    assert sum(sizes) == 2 * len(frames)
    assert_allclose(model.means_, whole.means_, rtol=1e-6)
    assert_allclose(model.history_["log_prob"], whole.history_["log_prob"], rtol=1e-6)
    assert_allclose(model.score([mapped]), whole.score([frames]), rtol=1e-6)


def test_memory_mapped_symbols(tmp_path: Path) -> None:
    x = text(13, 3000)[0].astype(np.uint8)
    x.tofile(tmp_path / "symbols")
    mapped = np.memmap(tmp_path / "symbols", dtype=np.uint8, mode="r")
    options: dict[str, Any] = {"algorithm": "stepwise", "max_iter": 2}
    model, whole = made(HMM, K, **options).fit([mapped]), made(HMM, K, **options).fit([x])
    assert_allclose(model.emission_, whole.emission_, rtol=1e-6)
    assert_allclose(model.log_prob([mapped]), whole.log_prob([x]), rtol=1e-6)


def mapped_visits(folder: Path) -> tuple[list[np.ndarray], list[Any]]:
    rng = np.random.default_rng(5)
    frames = 3.0 * np.tile(np.repeat([0.0, 1.0], 5), 6)[:, None] + rng.normal(size=(60, 1))
    frames.tofile(folder / "frames")
    mapped = np.memmap(folder / "frames", dtype=np.float64, mode="r", shape=frames.shape)
    parts = [slice(0, 25), slice(25, 60)]
    return [frames[part] for part in parts], [mapped[part] for part in parts]


CHAINS: dict[str, Any] = {
    "HSMM": HSMM(2, max_duration=8, observation=GaussianMixture(1)),
    "ContinuousTimeHMM": ContinuousTimeHMM(2, start="free", observation=GaussianMixture(1)),
    "MarkovSwitchingAR": MarkovSwitchingAR(2),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", CHAINS)
def test_every_chain_is_plain_em_with_one_batch_in_memory_and_from_disk(name: str, tmp_path: Path) -> None:
    times = [np.cumsum(0.5 + np.arange(n) % 3) for n in (25, 35)]

    def data(items: list[Any]) -> Any:
        return Sequences(items, times=times) if name == "ContinuousTimeHMM" else items

    x, mapped = mapped_visits(tmp_path)
    em = CHAINS[name].clone().set_params(max_iter=3, tol=0.0, n_init=1)
    stepwise = em.clone().set_params(algorithm="stepwise", training=ChainTraining(batches=1))
    fits = [em.fit(data(x)), stepwise.fit(data(x)), stepwise.clone().fit(data(mapped)), em.clone().fit(data(mapped))]
    for model in fits[1:]:
        assert_allclose(model.means_, em.means_, rtol=1e-6)
        assert_allclose(model.transition_, em.transition_, rtol=1e-6)
    # Means over frames, whatever the number of epochs: in partial_fit they say how much the past weighs. Plain EM has
    # them once more after its last step.
    more = stepwise.clone().set_params(max_iter=4).fit(data(x))
    assert_allclose(more.statistics_.mean.xi, em.statistics_.mean.xi, rtol=1e-6)
    assert_allclose(em.log_prob(data(mapped)), em.log_prob(data(x)), rtol=1e-9)
    assert all((a == b).all() for a, b in zip(em.decode(data(mapped)), em.decode(data(x)), strict=True))


# -- given inputs ------------------------------------------------------------------------------------------


RATE = 3**-0.7  # weight of the second batch


def regressed(seed: int, n: int) -> Sequences:
    """Two sequences of two states, left the more readily the larger an input is, with means that the input moves."""
    rng = np.random.default_rng(seed)
    inputs = [rng.normal(size=n) for _ in range(2)]
    states = [np.cumsum(rng.random(n) < 1 / (1 + np.exp(1 - u))) % 2 for u in inputs]
    items = [4.0 * z[:, None] + u[:, None] + rng.normal(size=(n, 1)) for z, u in zip(states, inputs, strict=True)]
    return Sequences(items, inputs=inputs)


def test_two_batches_are_one_regression_in_which_they_have_their_weights() -> None:
    """Least squares of emissions, and the logistic transitions of known states that scipy finds."""
    batches, states = [regressed(seed, 30) for seed in (0, 1)], np.repeat([0, 1, 0, 0, 1, 1], 5)
    effects = ChainInputEffects(emissions=True, transitions=True)
    model = HMM(2, observation=GaussianMixture(1), input_effects=effects, dtype="float64")
    for batch in batches:
        model.partial_fit(batch, states=[states] * 2)
    weights = np.repeat([(1 - RATE) / 60, RATE / 60], 60)
    x, u = (
        np.concatenate([np.ravel(each) for b in batches for each in of(b)]) for of in (lambda b: b.items, inputs_of)
    )
    z = np.tile(states, 4)
    for k in range(2):
        design, root = np.stack([np.ones_like(u), u], 1)[z == k], np.sqrt(weights[z == k])[:, None]
        slope = np.linalg.lstsq(root * design, root[:, 0] * x[z == k], rcond=None)[0][1]
        assert_allclose(model.emission_slopes_[k, 0, 0], slope, rtol=1e-9)
        is_from = (np.roll(z, 1) == k) & (np.arange(120) % 30 > 0)
        leaves, given, w = (z != k)[is_from], u[is_from], weights[is_from]

        def loss(b: np.ndarray, leaves: Any = leaves, given: Any = given, w: Any = w) -> float:
            logit = b[0] + b[1] * given
            return float((w * (np.logaddexp(0, logit) - leaves * logit)).sum())

        best = minimize(loss, np.zeros(2), tol=1e-12)
        assert_allclose(model.transition_slopes_[k, 1 - k, 0], best.x[1], rtol=1e-4)


def inputs_of(X: Sequences) -> Any:
    return X.inputs


GIVEN: dict[str, Any] = {
    "HMM": HMM,
    "HSMM": partial(HSMM, max_duration=5),
    "ContinuousTimeHMM": ContinuousTimeHMM,
    "MarkovSwitchingAR": partial(MarkovSwitchingAR, start="free"),
}


@pytest.mark.parametrize("name", GIVEN)
def test_one_batch_given_inputs_is_em_in_every_chain(name: str) -> None:
    X, effects = regressed(2, 25), ChainInputEffects(emissions=True, transitions=True, first_state=True)
    options: dict[str, Any] = {"n_init": 1, "tol": 0.0, "dtype": "float64", "input_effects": effects}
    options |= {} if name == "MarkovSwitchingAR" else {"observation": GaussianMixture(1)}
    first = GIVEN[name](2, max_iter=1, **options).fit(X)
    em, step = (copy.copy(first).set_params(warm_start=True, max_iter=2) for _ in range(2))
    em.fit(X)
    step.set_params(algorithm="stepwise", training__batches=1).fit(X)
    once = copy.copy(first).partial_fit(X).partial_fit(X)  # the second step averages two batches of other posteriors
    for parameters in ("transition", "table", "table_slopes", "transition_slopes", "initial_slopes"):
        of_em, of_step = (getattr(each.parameters_, parameters) for each in (em, step))
        assert_allclose(of_step, of_em, rtol=1e-6, atol=1e-8, err_msg=parameters)
    assert first.score(X) < once.score(X) < em.score(X) + 0.05
    assert len(step.statistics_.given_inputs) == 1  # which forgets what has no weight
    of_both = once.statistics_
    again = RunningStatistics.from_arrays(of_both.arrays(), CPU)
    assert again is not None
    assert_allclose([w for w, _ in again.given_inputs], [(1 - RATE) / 50, RATE / 50])
    assert_same(again.expectations(50.0), of_both.expectations(50.0))
    assert again.arrays().keys() == of_both.arrays().keys()
