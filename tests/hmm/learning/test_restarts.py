"""Several starts: each ends where it would alone, the best wins, and data are packed once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from numpy.testing import assert_allclose

from seqmodels import HMM, AutoregressiveGaussian, Categorical, Columns, GaussianMixture, Poisson, load
from seqmodels.hmm import fitting
from seqmodels.hmm.corpus import Corpus, PackedBatch
from seqmodels.hmm.emissions import emission_of
from seqmodels.hmm.learning.constraints import Constraints, Frozen, Tying
from seqmodels.hmm.learning.em import BaumWelch, MAPObjective, e_step
from seqmodels.hmm.learning.initialise import starts
from seqmodels.hmm.learning.priors import Pseudocounts
from seqmodels.hmm.learning.restarts import starts_table, warn_of_disagreement
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.topology import LeftToRight, Topology
from seqmodels.inference.chains import parallel_segments as segments
from seqmodels.observations import Observation
from seqmodels.training import FitResult, StopRule, run_em
from tests.made import made

LENGTHS = (20, 1, 9, 20, 14)
WEIGHTS = [1.0, 2.0, 0.5, 1.0, 0.0]
F64 = torch.float64


@pytest.fixture(autouse=True, scope="module")
def _few_starts() -> None:
    """Not here: ``"auto"`` is what it is for users."""


def series(*lengths: int, size: int = 1, seed: int = 0) -> list[np.ndarray]:
    """Two noisy levels."""
    rng = np.random.default_rng(seed)
    levels = [np.cumsum(rng.random(n) < 0.1) % 2 for n in lengths]
    return [2.0 * level[:, None] + rng.normal(size=(len(level), size)) for level in levels]


def holed() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [np.where(rng.random(frames.shape) < 0.2, np.nan, frames) for frames in series(*LENGTHS, size=2)]


def counts() -> list[np.ndarray]:
    return [np.floor(np.exp(frames)) for frames in series(*LENGTHS, size=2)]


def symbols() -> list[np.ndarray]:
    return [np.clip(frames[:, 0] + 1, 0, 3).astype(int) for frames in series(*LENGTHS)]


def labels() -> list[np.ndarray]:
    return [np.where(np.arange(n) % 5, -1, np.arange(n) % 3) for n in LENGTHS]


CASES: dict[str, tuple[Observation, int, list[np.ndarray]]] = {
    "gaussian": (GaussianMixture(1), 2, series(*LENGTHS, size=2)),
    "full, holes": (GaussianMixture(2, "full"), 2, holed()),
    "symbols": (Categorical(0.1), 4, symbols()),
    "counts": (Poisson(), 2, counts()),
    "columns": (Columns([(GaussianMixture(2), 1), (Poisson(), 1)]), 2, counts()),
}


def each_start(
    case: tuple[Observation, int, list[np.ndarray]],
    n: int = 3,
    states: list[np.ndarray] | None = None,
    topology: Topology | None = None,
    constraints: Constraints | None = None,
    max_iter: int = 12,
    together: bool = True,
) -> list[FitResult[Parameters]]:
    """EM of three states from n starts, together or one after the other."""
    observation, size, x = case
    emission = emission_of(observation, size)
    corpus = Corpus(x, WEIGHTS[: len(x)], states, observation.n_past, 3, 4, torch.device("cpu"), F64)
    tying = None if constraints is None else constraints.tying
    seeds = [torch.Generator().manual_seed(i) for i in range(n)]
    first = list(starts(emission, corpus.batches, 3, has_final=True, generators=seeds, topology=topology, tying=tying))

    objective = MAPObjective(emission, Pseudocounts.even(0.1), constraints or Constraints.none(3), 1.0, 0.0)

    def run(some: list[Parameters]) -> list[FitResult[Parameters]]:
        return run_em(BaumWelch.on_batches(objective, corpus.batches, F64), some, StopRule(max_iter, 0.3))

    return run(first) if together else [run([one])[0] for one in first]


def assert_same(together: list[FitResult[Parameters]], alone: list[FitResult[Parameters]]) -> None:
    for a, b in zip(together, alone, strict=True):
        assert_allclose(a.history["objective"], b.history["objective"], rtol=1e-9)
        assert a.converged == b.converged
        assert_allclose(a.parameters.table, b.parameters.table, rtol=1e-6, atol=1e-9)
        assert_allclose(a.parameters.transition, b.parameters.transition, rtol=1e-6, atol=1e-9)
        assert a.kept is not None
        assert b.kept is not None
        assert_allclose(a.kept.mean.xi, b.kept.mean.xi, rtol=1e-6, atol=1e-9)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("name", "known"), [*((name, False) for name in CASES), ("symbols", True)])
def test_every_start_ends_where_it_would_alone(name: str, known: bool) -> None:
    states = labels() if known else None
    together, alone = (each_start(CASES[name], states=states, together=side) for side in (True, False))
    assert_same(together, alone)


def test_what_has_converged_drops_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chains of each E-step are those whose histories go on."""
    together: list[int] = []

    def counted(chains: list[Parameters], *rest: Any) -> Any:
        together.append(len(chains))
        return e_step(chains, *rest)

    monkeypatch.setattr("seqmodels.hmm.learning.em.e_step", counted)
    lengths = [len(fitted.history) for fitted in each_start(CASES["counts"], n=4)]
    assert len(set(lengths)) > 1
    assert together == [sum(i < n for n in lengths) for i in range(max(lengths))]


@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(Frozen(transition=[0], emission=[2]), Tying.from_argument(None, 3)),
        Constraints(Frozen(initial=True), Tying.from_argument([0, 1, 0], 3)),
    ],
    ids=["frozen", "tied"],
)
def test_constraints_hold_for_each(constraints: Constraints) -> None:
    case = CASES["gaussian"]
    assert_same(each_start(case, constraints=constraints), each_start(case, constraints=constraints, together=False))


def test_a_chain_with_zeros_beside_another() -> None:
    case, shape = CASES["gaussian"], LeftToRight(skips=1)
    together = each_start(case, topology=shape)
    assert_same(together, each_start(case, topology=shape, together=False))
    assert (together[1].parameters.transition.tril(-1) == 0).all()


@pytest.mark.parametrize("T", [700, 3000], ids=["whole", "cut"])
def test_one_long_sequence(T: int) -> None:
    case = (GaussianMixture(1), 1, series(T))
    assert_same(each_start(case, n=2, max_iter=2), each_start(case, n=2, max_iter=2, together=False))


# -- the model ---------------------------------------------------------------------------------------------


def fit(monkeypatch: pytest.MonkeyPatch, together: int, x: list[np.ndarray], **options: Any) -> tuple[HMM, list[int]]:
    """The model, and how many starts each run of EM had."""
    sizes: list[int] = []

    def counted(problem: Any, starts: Any, **named: Any) -> Any:
        group = list(starts)
        sizes.append(len(group))
        return run_em(problem, group, **named)

    monkeypatch.setattr(segments, "_has_numba", lambda: False)  # loops run one start after the other
    monkeypatch.setattr(fitting, "STARTS_AT_ONCE", together)
    monkeypatch.setattr(fitting, "run_em", counted)
    return made(HMM, 3, dtype="float64", **options).fit(x), sizes


def test_the_best_of_groups_is_the_best_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    x, n = series(30, 20), 4
    options: dict[str, Any] = {"observation": GaussianMixture(1), "n_init": n, "max_iter": 8, "device": "cpu"}
    alone, one_by_one = fit(monkeypatch, 0, x, **options)
    by_three, threes = fit(monkeypatch, 3 * 3 * 50, x, **options)
    together, all_at_once = fit(monkeypatch, 1 << 20, x, **options)
    assert (one_by_one, threes, all_at_once) == ([1] * n, [3, 1], [n])
    for model in (by_three, together):
        assert_allclose(model.history_["objective"], alone.history_["objective"], rtol=1e-9)
        assert_allclose(model.means_, alone.means_, rtol=1e-6)


@pytest.mark.parametrize(
    ("observation", "algorithm"),
    [(GaussianMixture(1, "tied"), "em"), (AutoregressiveGaussian(1), "em"), (GaussianMixture(1), "stepwise")],
)
def test_what_cannot_share_a_table_runs_alone(
    observation: Observation, algorithm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"observation": observation, "algorithm": algorithm, "n_init": 2, "max_iter": 2}
    model, sizes = fit(monkeypatch, 1 << 20, series(30, 20), **options)
    assert sizes == ([1, 1] if algorithm == "em" else [])
    assert np.isfinite(model.score(series(10)))


@pytest.mark.parametrize(("has_numba", "cap"), [(True, 25.0), (False, 100.0)])
def test_seconds_are_shared(has_numba: bool, cap: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cap is one over all starts: loops give each its share, tensors a group that of all of its starts."""
    caps: list[float] = []

    class Watched(StopRule):
        def out_of_time(self, seconds: float) -> bool:
            assert self.max_seconds is not None
            caps.append(self.max_seconds)
            return super().out_of_time(seconds)

    monkeypatch.setattr("seqmodels.hmm.hidden_chain.StopRule", Watched)
    monkeypatch.setattr(segments, "_has_numba", lambda: has_numba)
    HMM(2, n_init=4, max_seconds=100.0, max_iter=1, device="cpu").fit(series(20))
    assert set(caps) == {cap}


def test_data_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []
    pack = Corpus._pack_whole

    def counted(self: Corpus, indices: list[int], scratch: Any) -> PackedBatch:
        packed.append(len(indices))
        return pack(self, indices, scratch)

    monkeypatch.setattr(Corpus, "_pack_whole", counted)
    HMM(2, observation=GaussianMixture(1), n_init=3, max_iter=2).fit(series(20, 30))
    assert packed == [2]


# -- how many, where each ended, and what is said of it ------------------------------------------------------------


def test_several_starts_where_data_are_small(tmp_path: Path) -> None:
    model = HMM(2, max_iter=3).fit(series(20, 30))
    assert model.starts_["start"].tolist() == list(range(8))
    assert model.starts_["chosen"].sum() == 1
    best = model.starts_[model.starts_["chosen"]].iloc[0]
    assert best["objective"] == model.starts_["objective"].max() == model.history_["objective"].iloc[-1]
    ranges = model.history_["starts_range"]
    assert ranges.iloc[:-1].isna().all()
    assert ranges.iloc[-1] == np.ptp(model.starts_["objective"]) > 0
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").starts_.equals(model.starts_)


def test_one_start_where_more_are_no_use() -> None:
    x = series(20, 30)
    states = [np.where(np.arange(len(item)) < 9, 0, 1) for item in x]
    assert len(HMM(2, n_init="auto", max_iter=2).fit(x, states=states).starts_) == 1
    assert len(HMM(2, n_init="auto", max_iter=2, topology="left-to-right").fit(x).starts_) == 1
    assert len(HMM(2, n_init="auto", max_iter=2, algorithm="gradient").fit(x).starts_) == 1
    assert len(HMM(2, max_iter=2, n_init=3).fit(x).starts_) == 3
    warm = HMM(2, n_init="auto", max_iter=2, warm_start=True).fit(x)
    assert len(warm.fit(x).starts_) == 1


def test_a_background_bounds_what_a_far_frame_costs() -> None:
    """Of a default HMM: at most the background's weight and density; of plain maximum likelihood, hundreds of nats."""
    x = series(200, 200)
    model, plain = HMM(2, max_iter=10).fit(x), HMM(2, observation=GaussianMixture(1), max_iter=10).fit(x)
    assert model.means_.shape == (2, 1, 1)
    far = [x[0].copy()]
    far[0][100] = 40.0
    mean, variance = np.concatenate(x).mean(), np.concatenate(x).var()
    most = -np.log(model.observation_.background) - scipy.stats.norm.logpdf(40.0, mean, np.sqrt(10 * variance))
    costs = [-m.log_prob_steps(far)[0][100] for m in (model, plain)]
    assert 30 < costs[0] < most + 1e-4 < 60 < 200 < costs[1]
    assert abs(model.score(x) - plain.score(x)) < 0.02


def test_a_warm_start_keeps_the_observation_of_an_older_file() -> None:
    x = series(40, 50)
    model = HMM(2, observation=GaussianMixture(4), max_iter=2, warm_start=True).fit(x)
    model.set_params(observation="auto").fit(x)
    assert model.weights_.shape == (2, 4)


def test_starts_that_disagree_clearly_are_warned_of() -> None:
    found = replace(each_start(CASES["symbols"], n=1)[0], converged=True)

    def table(*objectives: float) -> pd.DataFrame:
        rows = [{"objective": o, "log_prob": o, "floor_hits": 0} for o in objectives]
        return starts_table(rows, int(np.argmax(objectives)))

    with pytest.warns(UserWarning, match="n_init=16"):
        warn_of_disagreement(table(-1.0, -1.2, -1.3, -1.2), found, 1000)
    for silent in (table(-1.0, -1.04, -1.3, -1.2), table(-1.0, -1.02, -1.03, -1.04), table(-1.0, -2.0)):
        warn_of_disagreement(silent, found, 1000)
    warn_of_disagreement(table(-1.0, -1.2, -1.3, -1.2), found, 40)  # 8 nats in all
    warn_of_disagreement(table(-1.0, -1.2, -1.3, -1.2), replace(found, converged=False), 1000)
