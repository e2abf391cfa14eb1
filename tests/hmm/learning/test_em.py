"""EM never lowers its objective, keeps its constraints, and is the same however the sequences are dealt out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels.hmm import corpus
from seqmodels.hmm.corpus import Corpus, PackedBatch
from seqmodels.hmm.emissions import Emission, emission_of
from seqmodels.hmm.learning.constraints import Constraints
from seqmodels.hmm.learning.em import BaumWelch, Expectations, MAPObjective, e_step, m_step
from seqmodels.hmm.learning.initialise import starts
from seqmodels.hmm.learning.priors import Pseudocounts
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains import segments
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.observations import AutoregressiveGaussian, Categorical, GaussianMixture, Observation
from seqmodels.training import FitResult, StopRule, run_em
from tests.inference.chains.enumeration import enumerate_paths

D, V = 2, 4
LENGTHS = (30, 1, 12, 25, 2)
CPU, F64 = torch.device("cpu"), torch.float64


def vectors(seed: int, kind: str) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    if kind == "repeated":  # eight distinct frames: variances collapse
        atoms = rng.normal(size=(8, D))
        return [atoms[np.sort(rng.integers(8, size=n))] for n in LENGTHS]
    x = [np.cumsum(rng.normal(size=(n, D)), axis=0) / 3 for n in LENGTHS]
    if kind == "clusters":  # most frames in tiny clusters, the rest far away
        x = [np.round(frames) + 1e-4 * rng.normal(size=frames.shape) for frames in x]
    if kind == "missing":
        for frames in x:
            frames[rng.random(frames.shape) < 0.3] = np.nan
    return x


def symbols(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.sort(rng.integers(V, size=n)) for n in LENGTHS]


def deal(
    x: list[np.ndarray], observation: Observation, weights: list[float] | None = None
) -> tuple[Emission, list[PackedBatch]]:
    emission = emission_of(observation, V if observation.emits == "symbols" else D)
    return emission, Corpus(x, weights or [1.0] * len(x), None, observation.n_past, 3, 4, CPU, F64).batches


def objective_of(
    emission: Emission, k: int, pseudocount: float = 0.0, n_units: float = 1.0, log_det: float = 0.0
) -> MAPObjective:
    return MAPObjective(emission, Pseudocounts.even(pseudocount), Constraints.none(k), n_units, log_det)


def run(
    first: Parameters,
    emission: Emission,
    dealt: list[PackedBatch],
    steps: int,
    dtype: torch.dtype = F64,
    **change: float,
) -> FitResult[Parameters]:
    objective = objective_of(emission, len(first.initial), **change)
    return run_em(BaumWelch.on_batches(objective, dealt, dtype), [first], StopRule(steps, 0.0))[0]


def expect(parameters: Parameters, emission: Emission, dealt: list[PackedBatch]) -> Expectations:
    (found,) = e_step([parameters], emission, dealt, F64) or []
    return found


def begin(emission: Emission, dealt: list[PackedBatch], k: int = 4, has_end: bool = False, seed: int = 0) -> Parameters:
    return next(starts(emission, dealt, k, has_final=has_end, generators=[torch.Generator().manual_seed(seed)]))


def assert_never_down(fitted: FitResult[Parameters]) -> None:
    objective = fitted.history["objective"].to_numpy()
    assert (np.diff(objective) >= -1e-10 * np.abs(objective[1:])).all(), np.diff(objective).min()
    assert objective[-1] > objective[0]


# -- monotone ----------------------------------------------------------------------------------------------

GAUSSIANS = [
    GaussianMixture(1),
    GaussianMixture(3),
    GaussianMixture(1, "full"),
    GaussianMixture(3, "full"),
    GaussianMixture(3, "tied"),
    GaussianMixture(3, "spherical"),
    AutoregressiveGaussian(1),
    AutoregressiveGaussian(2),
    AutoregressiveGaussian(1, "diag"),
    AutoregressiveGaussian(2, "diag", ridge=2.0),
    AutoregressiveGaussian(1, "tied", ridge=2.0),
    AutoregressiveGaussian(2, "tied", unit_root=1.0, intercept=False),
]


@pytest.mark.parametrize(
    ("kind", "floor"),
    [("plain", 1e-6), ("plain", 0.5), ("repeated", 1e-6), ("repeated", 1e-2), ("clusters", 1e-2)],
)
@pytest.mark.parametrize("observation", GAUSSIANS, ids=repr)
def test_vectors_never_go_down(observation: Observation, kind: str, floor: float) -> None:
    emission, dealt = deal(vectors(0, kind), observation.clone().set_params(min_covariance=floor))
    fitted = run(begin(emission, dealt, has_end=floor == 1e-2), emission, dealt, 10)
    assert_never_down(fitted)
    assert fitted.history["floor_hits"].iloc[-1] > 0 or floor < 0.5


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("floor", [1e-6, 0.3])
@pytest.mark.parametrize("kind", ["diag", "full", "tied", "spherical"])
def test_missing_values_never_go_down(kind: Any, m: int, floor: float) -> None:
    emission, dealt = deal(vectors(1, "missing"), GaussianMixture(m, kind, min_covariance=floor))
    assert_never_down(run(begin(emission, dealt, k=3), emission, dealt, 20))


@pytest.mark.parametrize("has_end", [False, True])
@pytest.mark.parametrize(("emitted", "moved"), [(0.0, 0.0), (0.7, 0.0), (0.0, 0.3), (0.5, 2.0)])
def test_symbols_never_go_down(emitted: float, moved: float, has_end: bool) -> None:
    emission, dealt = deal(symbols(2), Categorical(emitted), weights=[1.0, 2.0, 0.5, 0.0, 1.0])
    first = begin(emission, dealt, has_end=has_end)
    assert_never_down(run(first, emission, dealt, 15, pseudocount=moved))


def test_a_wrong_step_would_be_seen() -> None:
    emission, dealt = deal(vectors(0, "plain"), GaussianMixture(1))
    fitted = run(begin(emission, dealt), emission, dealt, 20)
    worse = replace(fitted.parameters, transition=torch.full((4, 4), 0.25, dtype=F64))
    again = run(worse, emission, dealt, 0)
    rows = [*fitted.rows[:-1], {**fitted.rows[-1], "objective": again.rows[0]["objective"]}]
    with pytest.raises(AssertionError):
        assert_never_down(replace(fitted, rows=rows))


# -- constraints -------------------------------------------------------------------------------------------


def left_to_right(emission: Emission, dealt: list[PackedBatch]) -> Parameters:
    first = begin(emission, dealt, k=3, has_end=True)
    initial = torch.tensor([1.0, 0.0, 0.0], dtype=F64)
    transition = torch.tensor([[0.6, 0.3, 0.0], [0.0, 0.6, 0.3], [0.0, 0.0, 0.6]], dtype=F64)
    return Parameters(initial, transition, torch.tensor([0.1, 0.1, 0.4], dtype=F64), first.table)


@pytest.mark.parametrize("pseudocount", [0.0, 0.5])
def test_structural_zeros_stay_zero(pseudocount: float) -> None:
    emission, dealt = deal(vectors(3, "plain"), GaussianMixture(2))
    first = left_to_right(emission, dealt)
    fitted = run(first, emission, dealt, 10, pseudocount=pseudocount)
    assert_never_down(fitted)
    after, final = fitted.parameters, fitted.parameters.final
    assert final is not None
    assert torch.equal(after.transition == 0, first.transition == 0)
    assert torch.equal(after.initial, first.initial)
    assert_allclose(after.transition.sum(1) + final, 1, rtol=1e-12)
    assert not torch.allclose(after.transition, first.transition)


@pytest.mark.parametrize(
    "observation", [GaussianMixture(3), GaussianMixture(2, "full"), AutoregressiveGaussian(1)], ids=repr
)
def test_floors_hold_and_are_counted(observation: Any) -> None:
    floored = observation.clone().set_params(min_covariance=0.2)
    emission, dealt = deal(vectors(4, "repeated"), floored)
    fitted = run(begin(emission, dealt, k=3), emission, dealt, 15)
    raw = emission.raw_parameters(fitted.parameters.table, np.zeros(D), np.ones(D))["covariances_"]
    if floored.covariance_type == "full":
        smallest = np.linalg.eigvalsh(raw).reshape(3, -1).min(1)
    else:
        smallest = raw.reshape(3, -1).min(1)
    assert smallest.min() >= 0.2 * (1 - 1e-9)
    assert fitted.history["floor_hits"].iloc[-1] == (smallest <= 0.2 * (1 + 1e-6)).sum() > 0


def test_a_state_out_of_reach_keeps_its_row() -> None:
    emission, dealt = deal(symbols(5), Categorical())
    first = begin(emission, dealt, k=3)
    transition = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], dtype=F64)
    first = Parameters(torch.tensor([0.5, 0.5, 0.0], dtype=F64), transition, None, first.table)
    after = run(first, emission, dealt, 5).parameters
    assert torch.equal(after.transition[2], transition[2])
    assert torch.equal(after.table[2], first.table[2])
    assert torch.isfinite(after.transition).all()


# -- E- and M-step against every path ----------------------------------------------------------------------


def test_one_step_by_enumeration() -> None:
    """Expected counts from every path of states, and the maximiser written out."""
    x = [np.array([0, 2, 1, 1]), np.array([3, 0]), np.array([2])]
    weights, pseudocount = [1.0, 0.5, 2.0], 0.3
    emission, dealt = deal(x, Categorical(0.7), weights)
    before = begin(emission, dealt, k=3, has_end=True)
    assert before.final is not None
    initial, transition, final = (p.numpy() for p in (before.initial, before.transition, before.final))
    b = before.table.exp().numpy()
    starts, arcs, ends, emitted, total = np.zeros(3), np.zeros((3, 3)), np.zeros(3), np.zeros((3, V)), 0.0
    for item, weight in zip(x, weights, strict=True):
        one = enumerate_paths(initial, transition, b[:, item].T, final)
        total += weight * one.log_prob
        starts, ends, arcs = starts + weight * one.gamma[0], ends + weight * one.gamma[-1], arcs + weight * one.xi
        for t, symbol in enumerate(item):
            emitted[:, symbol] += weight * one.gamma[t]
    found, objective = expect(before, emission, dealt), objective_of(emission, 3, pseudocount)
    assert len(dealt) == 3
    assert_allclose(found.log_prob, total, rtol=1e-12)
    after = m_step(before, found, objective)
    assert after.final is not None
    rows = np.column_stack([arcs, ends]) + pseudocount
    rows /= rows.sum(1, keepdims=True)
    assert_allclose(after.initial, (starts + pseudocount) / (starts + pseudocount).sum(), rtol=1e-10)
    assert_allclose(after.transition, rows[:, :3], rtol=1e-10)
    assert_allclose(after.final, rows[:, 3], rtol=1e-10)
    assert_allclose(after.table.exp(), (emitted + 0.7) / (emitted + 0.7).sum(1, keepdims=True), rtol=1e-10)
    prior = (
        pseudocount * (np.log(initial).sum() + np.log(transition).sum() + np.log(final).sum()) + 0.7 * np.log(b).sum()
    )
    assert_allclose(objective.log_prior(before), prior, rtol=1e-12)


# -- the same however it is dealt --------------------------------------------------------------------------


@pytest.mark.parametrize("observation", [GaussianMixture(2), AutoregressiveGaussian(2)], ids=repr)
def test_batch_size_changes_nothing(observation: Observation, monkeypatch: pytest.MonkeyPatch) -> None:
    x = vectors(6, "plain")
    emission, one = deal(x, observation)
    first = begin(emission, one)
    whole = run(first, emission, one, 5)
    monkeypatch.setitem(corpus.ELEMENTS_AT_ONCE, "cpu", 80)
    _, many = deal(x[::-1], observation)
    assert (len(one), len(many)) == (1, 3)
    assert sorted(i for batch in many for i in batch.indices) == [0, 1, 2, 3, 4]
    assert_allclose(run(first, emission, many, 5).parameters.table, whole.parameters.table, rtol=1e-8, atol=1e-10)


def test_weights_are_copies() -> None:
    x = vectors(7, "plain")
    emission, weighted = deal(x, GaussianMixture(2), [2.0, 1.0, 0.0, 3.0, 1.0])
    first = begin(emission, weighted)
    copies = list(itertools.chain(*([s] * n for s, n in zip(x, (2, 1, 0, 3, 1), strict=True))))
    a, b = run(first, emission, weighted, 5), run(first, emission, deal(copies, GaussianMixture(2))[1], 5)
    assert_allclose(a.parameters.table, b.parameters.table, rtol=1e-8, atol=1e-10)
    assert_allclose(a.history["log_prob"], b.history["log_prob"], rtol=1e-10)


def test_history_is_of_the_parameters_returned() -> None:
    emission, dealt = deal(symbols(8), Categorical(0.2))
    fitted = run(begin(emission, dealt), emission, dealt, 4, n_units=7.0, log_det=-3.0, pseudocount=0.1)
    last, p = fitted.history.iloc[-1], fitted.parameters
    log_prob, prior = expect(p, emission, dealt).log_prob, objective_of(emission, 4, 0.1).log_prior(p)
    assert_allclose(last["log_prob"], (log_prob - 3) / 7, rtol=1e-12)
    assert_allclose(last["objective"], (log_prob - 3 + prior) / 7, rtol=1e-12)
    assert fitted.history["step"].tolist() == [0, 1, 2, 3, 4]
    assert (fitted.history["seconds"].diff()[1:] > 0).all()
    assert not fitted.converged


def test_float32_ends_where_float64_does() -> None:
    emission, wide = deal(vectors(9, "plain"), GaussianMixture(2))
    narrow = Corpus(vectors(9, "plain"), [1.0] * len(LENGTHS), None, 0, 3, 4, CPU, torch.float32).batches
    first = begin(emission, wide, k=2)
    a, b = run(first, emission, wide, 10), run(first, emission, narrow, 10, dtype=torch.float32)
    assert_allclose(b.history["objective"], a.history["objective"], rtol=1e-4)


def test_a_batch_has_its_part_of_the_memory_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "memory_of_process", lambda device: 128.0 * (1 << 30))

    def most(dtype: torch.dtype) -> int:
        x = vectors(9, "plain")
        return Corpus(x, [1.0] * len(x), None, 0, 3, 4, torch.device("cuda"), dtype).frames_at_once

    assert (most(torch.float32), most(torch.float64)) == ((1 << 30) // 4, (1 << 29) // 4)


def test_the_past_of_each_frame() -> None:
    x = [np.arange(6.0).reshape(3, 2), np.array([[9.0, 9.0]])]
    (batch,) = Corpus(x, [1.0, 1.0], None, 2, 3, 4, CPU, F64).batches
    assert batch.past is not None
    long, short = (batch.segments.split(batch.past)[batch.indices.index(i)] for i in (0, 1))
    nan = [np.nan, np.nan]
    assert_allclose(long, np.array([[nan, nan], [nan, [0, 1]], [[0, 1], [2, 3]]]))
    assert torch.isnan(short).all()


# -- in several threads ------------------------------------------------------------------------------------


@pytest.fixture
def _three_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(corpus, "WORTH_A_RECURSION", {torch.float32: 0, torch.float64: 0})
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("observation", [Categorical(), GaussianMixture(2), AutoregressiveGaussian(2)], ids=repr)
@pytest.mark.usefixtures("_three_threads")
def test_sequences_dealt_to_threads_give_the_same_sums_every_time(observation: Observation) -> None:
    x = symbols(3) if observation.emits == "symbols" else vectors(3, "plain")
    emission, batches = deal(x, observation, weights=[2.0, 1.0, 2.0, 2.0, 2.0])
    chains = [begin(emission, batches, seed=seed) for seed in (0, 1)]
    assert sorted(len(batch.dealt(2, 4, F64)) for batch in batches) == [1, 3]  # one has but one sequence
    found, again = (e_step(chains, emission, batches, F64) or [] for _ in range(2))
    torch.set_num_threads(1)
    expected = e_step(chains, emission, batches, F64) or []
    for ours, repeated, theirs in zip(found, again, expected, strict=True):
        assert_allclose(ours.log_prob, repeated.log_prob, rtol=1e-13)  # products are equal to rounding only
        assert_allclose(ours.log_prob, theirs.log_prob, rtol=1e-13)
        for name in ("initial", "xi", "final"):
            assert_allclose(getattr(ours, name), getattr(repeated, name), rtol=1e-12, atol=1e-15)
            assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-9, atol=1e-12)
        for one, two, three in zip(ours.emission, repeated.emission, theirs.emission, strict=True):
            assert_allclose(one, two, rtol=1e-12, atol=1e-12)
            assert_allclose(one, three, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("_three_threads")
def test_known_states_are_dealt_with_their_sequences() -> None:
    x = symbols(4)
    states = [np.arange(len(frames)) % 3 for frames in x]
    emission = emission_of(Categorical(), V)
    batches = Corpus(x, [1.0] * len(x), states, 0, 3, 4, CPU, F64).batches
    found = expect(begin(emission, batches, k=3), emission, batches)
    counts = torch.zeros(3, 3)
    for labels in states:
        counts.index_put_(tuple(torch.as_tensor(a) for a in (labels[:-1], labels[1:])), torch.ones(()), accumulate=True)
    assert_allclose(found.xi, counts, atol=1e-9)


@pytest.mark.usefixtures("_three_threads")
def test_the_first_impossible_sequence_is_named_whichever_thread_has_it() -> None:
    x = [np.zeros(9, int), np.ones(4, int), np.ones(7, int), np.zeros(8, int)]
    emission, batches = deal(x, Categorical(pseudocount=0.0))
    table = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=F64).log().expand(3, -1)
    even = torch.full((3, 3), 1 / 3, dtype=F64)
    with pytest.raises(ValueError, match="sequence 1 has probability zero"):
        e_step([Parameters(even[0], even, None, table)], emission, batches, F64)


@pytest.mark.usefixtures("_three_threads")
def test_only_sequences_that_are_whole_and_worth_it_are_dealt(monkeypatch: pytest.MonkeyPatch) -> None:
    (batch,) = deal(symbols(5), Categorical())[1]
    assert [part.indices for part in batch.dealt(1, 3, F64)] == [[0, 4], [3, 1], [2]]
    assert batch.dealt(1, 3, F64) is batch.dealt(1, 3, F64)
    cut = replace(batch, segments=Segments.of_size(batch.segments.lengths, 16, 16))
    assert cut.dealt(1, 3, F64) == [cut]
    monkeypatch.setattr(corpus, "WORTH_A_RECURSION", {F64: 100})
    assert batch.dealt(1, 3, F64) == [batch]
    assert len(batch.dealt(12, 3, F64)) == 3


@pytest.mark.usefixtures("_three_threads")
def test_sequences_are_dealt_where_the_loops_of_many_states_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="without numba the loops are not compiled")
    monkeypatch.setattr(corpus, "WORTH_A_RECURSION", {F64: 1 << 30})
    monkeypatch.setattr(segments, "FEWEST_FRAMES_COMPILED", 1)
    emission, (batch,) = deal(symbols(5), Categorical())
    assert [len(batch.dealt(1, k, F64)) for k in (3, 16, 17, 64, 65)] == [1, 1, 3, 3, 1]
    monkeypatch.setattr(segments, "FEWEST_FRAMES_COMPILED", len(batch.x))
    assert len(batch.dealt(1, 17, F64)) == 1  # what each had would not be compiled
    monkeypatch.setattr(segments, "FEWEST_FRAMES_COMPILED", 1)
    first = begin(emission, [batch], k=17)
    found = expect(first, emission, [batch])
    torch.set_num_threads(1)
    expected = expect(first, emission, [batch])
    monkeypatch.setattr(segments, "FEWEST_FRAMES_COMPILED", 1 << 30)
    plain = expect(first, emission, [batch])
    for theirs in (expected, plain):
        assert_allclose(found.log_prob, theirs.log_prob, rtol=1e-13)
        assert_allclose(found.xi, theirs.xi, rtol=1e-9, atol=1e-12)
        assert_allclose(found.emission[0], theirs.emission[0], rtol=1e-9, atol=1e-12)
