"""Tied and spherical covariances and missing values: against hmmlearn, by hand, and by brute force over the missing."""

from __future__ import annotations

from typing import Any

import hmmlearn.hmm
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import logsumexp
from torch import Tensor

import seqmodels as sm
from seqmodels import HMM, GaussianMixture
from seqmodels.encodings import Standardize
from seqmodels.hmm.emissions import Emission, emission_of, missing
from seqmodels.observations.gaussian import CovarianceType
from tests.inference.chains.enumeration import enumerate_paths

K, M, D = 3, 2, 3
F64 = torch.float64
LENGTHS = (9, 1, 14, 6)
KINDS: list[CovarianceType] = ["diag", "full", "tied", "spherical"]
every_kind = pytest.mark.parametrize("kind", KINDS)


def frames(seed: int, d: int = D, holes: float = 0.0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(d, d)) + np.eye(d)
    x = [3 * rng.integers(2, size=(n, 1)) + rng.normal(size=(n, d)) @ mix for n in LENGTHS]
    for item in x:
        item[rng.random(item.shape) < holes] = np.nan
    return x


def case(kind: CovarianceType, holes: float = 0.0, m: int = M, floor: float = 1e-6) -> tuple[Emission, Tensor, Tensor]:
    """An emission, a table that EM would reach from some data in a step, and frames of them."""
    emission = emission_of(GaussianMixture(m, kind, floor), D)
    x = torch.as_tensor(np.concatenate(frames(1, holes=holes) + frames(2, holes=holes)))
    generator = torch.Generator().manual_seed(0)
    table = emission.from_labels(x, None, torch.arange(len(x)) % K, K, generator)
    gamma = torch.softmax(torch.randn(len(x), K, generator=generator, dtype=F64), 1)
    return emission, emission.maximise(emission.statistics(table, x, None, gamma), table), x


def posteriors(x: Tensor) -> Tensor:
    return torch.softmax(2 * torch.randn(len(x), K, generator=torch.Generator().manual_seed(3), dtype=F64), 1)


def raw(emission: Emission, table: Tensor) -> dict[str, np.ndarray]:
    """Weights, means and ``(K, M, D, D)`` matrices."""
    found = emission.raw_parameters(table, np.zeros(D), np.ones(D))
    weights, means, sigma = found["weights_"], found["means_"], found["covariances_"]
    if sigma.shape == means.shape:
        sigma = sigma[..., None] * np.eye(D)
    return {"weights": weights, "means": means, "sigma": np.broadcast_to(sigma, (*means.shape, D))}


# -- against hmmlearn --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tied", "spherical"])
@pytest.mark.parametrize("n_iter", [1, 8])
def test_em_is_hmmlearns(kind: Any, n_iter: int) -> None:
    x, rng = frames(4), np.random.default_rng(5)
    initial, transition, means = rng.dirichlet(np.ones(K)), rng.dirichlet(np.ones(K), K), 2 * rng.normal(size=(K, D))
    half = rng.normal(size=(D, D))
    covariances = half @ half.T + np.eye(D) if kind == "tied" else rng.uniform(2, 9, size=K)
    unit = Standardize().identity(D)  # one variance for all features is one in these units
    our = HMM.from_parameters(
        initial,
        transition,
        means=means,
        covariances=covariances,
        covariance_type=kind,
        encoding=unit,
        **{"warm_start": True, "max_iter": n_iter, "tol": 0.0, "dtype": "float64"},
    ).fit(x)
    their = hmmlearn.hmm.GaussianHMM(K, kind, init_params="", n_iter=n_iter, tol=-np.inf, min_covar=0, covars_prior=0)
    their.means_weight, their.covars_weight = 0, 0 if kind == "tied" else 1
    their.startprob_, their.transmat_, their.means_ = initial, transition, means
    their.n_features, their.covars_ = D, covariances
    their.fit(np.concatenate(x), LENGTHS)
    assert_allclose(our.transition_, their.transmat_, rtol=1e-7, atol=1e-10)
    assert_allclose(our.means_[:, 0], their.means_, rtol=1e-7)
    wanted = their._covars_ if kind == "tied" else their._covars_[:, None]
    assert_allclose(our.covariances_, wanted, rtol=1e-6)
    assert_allclose(our.log_prob(x).sum(), their.score(np.concatenate(x), LENGTHS), rtol=1e-9)


# -- M-steps by hand ---------------------------------------------------------------------------------------


def expected_by_hand(emission: Emission, table: Tensor, x: Tensor, gamma: Tensor) -> dict[str, np.ndarray]:
    """``n (K, M)``, ``first (K, M, D)``, ``second (K, M, D, D)``: frame by frame, component by component."""
    p, frames_ = raw(emission, table), x.numpy()
    n, first, second = np.zeros((K, M)), np.zeros((K, M, D)), np.zeros((K, M, D, D))
    for frame, posterior in zip(frames_, gamma.numpy(), strict=True):
        o = ~np.isnan(frame)
        for k in range(K):
            parts = [
                np.log(p["weights"][k, m])
                + (
                    stats.multivariate_normal(p["means"][k, m][o], p["sigma"][k, m][np.ix_(o, o)]).logpdf(frame[o])
                    if o.any()
                    else 0
                )
                for m in range(M)
            ]
            share = posterior[k] * np.exp(parts - logsumexp(parts))
            for m in range(M):
                mu, sigma = p["means"][k, m], p["sigma"][k, m]
                slope = sigma[:, o] @ np.linalg.inv(sigma[np.ix_(o, o)])
                mean = mu + slope @ (frame[o] - mu[o])
                n[k, m] += share[m]
                first[k, m] += share[m] * mean
                second[k, m] += share[m] * (np.outer(mean, mean) + sigma - slope @ sigma[o])
    return {"n": n, "first": first, "second": second}


@pytest.mark.parametrize("holes", [0.0, 0.4])
@pytest.mark.parametrize("kind", ["full", "tied", "spherical"])
def test_m_step_by_hand(kind: CovarianceType, holes: float) -> None:
    emission, table, x = case(kind, holes)
    assert (torch.isnan(x).all(1)).any() == bool(holes)
    gamma = posteriors(x)
    new = raw(emission, emission.maximise(emission.statistics(table, x, None, gamma), table))
    e = expected_by_hand(emission, table, x, gamma)
    assert_allclose(new["weights"], e["n"] / e["n"].sum(1, keepdims=True), rtol=1e-8)
    if kind == "spherical" and holes:  # missing features are left out, not filled in: see the next test
        return
    mean = e["first"] / e["n"][..., None]
    scatter = e["second"] - e["n"][..., None, None] * mean[..., :, None] * mean[..., None, :]
    assert_allclose(new["means"], mean, rtol=1e-7)
    wanted = {
        "full": scatter / e["n"][..., None, None],
        "tied": np.broadcast_to(scatter.sum((0, 1)) / e["n"].sum(), scatter.shape),
        "spherical": np.einsum("kmii->km", scatter)[..., None, None] / (D * e["n"][..., None, None]) * np.eye(D),
    }[kind]
    assert_allclose(new["sigma"], wanted, rtol=1e-6, atol=1e-10)


def test_spherical_m_step_with_missing_values_by_hand() -> None:
    emission, table, x = case("spherical", 0.4, m=1)
    gamma = posteriors(x)
    new = emission.raw_parameters(
        emission.maximise(emission.statistics(table, x, None, gamma), table), np.zeros(D), np.ones(D)
    )
    seen = ~np.isnan(x.numpy())
    values = np.nan_to_num(x.numpy())
    for k in range(K):
        g = gamma[:, k].numpy()[:, None] * seen
        mean = (g * values).sum(0) / g.sum(0)
        assert_allclose(new["means_"][k, 0], mean, rtol=1e-9)
        assert_allclose(new["covariances_"][k, 0], (g * (values - mean) ** 2).sum() / g.sum(), rtol=1e-9)


@pytest.mark.parametrize("floor", [1.0, 5.0])
def test_a_tied_covariance_on_its_floor_is_the_constrained_optimum(floor: float) -> None:
    emission, table, x = case("tied", floor=floor, m=1)
    gamma = posteriors(x)
    best = emission.maximise(emission.statistics(table, x, None, gamma), table)
    found = raw(emission, best)
    assert emission.floor_hits(best).tolist() == [True] * K
    assert_allclose(np.linalg.eigvalsh(found["sigma"][0, 0])[0], floor, rtol=1e-9)
    gone = x.numpy()[:, None] - found["means"][:, 0]  # (N, K, D)
    scatter = np.einsum("nk,nki,nkj->ij", gamma.numpy(), gone, gone) / len(x)

    def objective(sigma: np.ndarray) -> float:
        return float(-np.linalg.slogdet(sigma)[1] - np.trace(np.linalg.solve(sigma, scatter)))

    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 0.3):
        for _ in range(100):
            step = rng.normal(scale=size, size=(D, D))
            values, vectors = np.linalg.eigh(found["sigma"][0, 0] + step + step.T)
            feasible = vectors @ np.diag(values.clip(floor)) @ vectors.T
            assert objective(feasible) <= objective(found["sigma"][0, 0]) + 1e-12


def test_a_tied_state_without_frames_keeps_its_means_and_shares_the_rest() -> None:
    emission, table, x = case("tied")
    gamma = posteriors(x)
    gamma[:, 1] = 0.0
    new = emission.maximise(emission.statistics(table, x, None, gamma), table)
    before, after = raw(emission, table), raw(emission, new)
    assert_allclose(after["means"][1], before["means"][1], rtol=1e-12)
    assert_allclose(after["weights"][1], before["weights"][1], rtol=1e-12)
    assert torch.isfinite(new).all()
    assert not np.allclose(after["sigma"], before["sigma"])
    assert (after["sigma"] == after["sigma"][0, 0]).all()
    nobody = emission.maximise(emission.statistics(table, x, None, 0 * gamma), table)
    torch.testing.assert_close(nobody, table)


# -- missing values ----------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_scores_are_sums_over_paths_of_marginals(kind: CovarianceType, dtype: str) -> None:
    x = frames(6, holes=0.4)
    model = HMM(K, observation=GaussianMixture(M, kind), max_iter=3, dtype=dtype).fit(x)
    sigma = model.covariances_
    sigma = sigma[..., None] * np.eye(D) if sigma.shape == model.means_.shape else np.broadcast_to(sigma, (K, M, D, D))
    item = x[3]
    b = np.ones((len(item), K))
    for t, frame in enumerate(item):
        o = ~np.isnan(frame)
        for k in range(K if o.any() else 0):
            normals = [
                stats.multivariate_normal(model.means_[k, m][o], sigma[k, m][np.ix_(o, o)]).pdf(frame[o])
                for m in range(M)
            ]
            b[t, k] = model.weights_[k] @ normals
    wanted = enumerate_paths(model.initial_, model.transition_, b)
    tight = 1e-9 if dtype == "float64" else 1e-4
    assert_allclose(model.log_prob_steps([item])[0], wanted.steps, rtol=tight, atol=tight)
    assert_allclose(model.posterior([item])[0], wanted.gamma, rtol=tight, atol=tight)
    stream = model.stream()
    assert_allclose([stream.update(frame) for frame in item], wanted.steps, rtol=tight, atol=tight)


@every_kind
def test_whole_missing_frames_are_no_evidence(kind: CovarianceType) -> None:
    x = frames(7)
    model = HMM(K, observation=GaussianMixture(M, kind), max_iter=3, dtype="float64").fit(x)
    gap = np.concatenate([x[0][:4], np.full((3, D), np.nan), x[0][4:]])
    steps = model.log_prob_steps([gap])[0]
    assert_allclose(steps[4:7], 0, atol=1e-12)
    assert_allclose(steps[:4], model.log_prob_steps([x[0]])[0][:4], rtol=1e-12)


@every_kind
def test_patterns_do_not_change_what_complete_frames_say(kind: CovarianceType) -> None:
    """The same frames as one block without holes, and in the company of some."""
    emission, table, x = case(kind)
    beside = torch.cat([x, torch.full((1, D), torch.nan, dtype=F64)])
    assert_allclose(
        emission.log_prob(table, beside, None, F64)[:-1], emission.log_prob(table, x, None, F64), rtol=1e-10
    )
    gamma = posteriors(beside)
    gamma[-1] = 0.0
    for a, b in zip(
        emission.statistics(table, beside, None, gamma), emission.statistics(table, x, None, gamma[:-1]), strict=True
    ):
        assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("d", [D, 70])
def test_patterns_partition_the_frames(d: int) -> None:
    x = torch.as_tensor(np.concatenate(frames(8, d=d, holes=0.5 if d == D else 0.02)))
    seen, rows = zip(*missing.by_pattern(x), strict=True)
    assert sorted(torch.cat(rows).tolist()) == list(range(len(x)))
    assert len({tuple(s.tolist()) for s in seen}) == len(seen)
    for s, r in zip(seen, rows, strict=True):
        assert torch.equal(~torch.isnan(x[r]), s.expand(len(r), -1))


def test_correlations_fill_in_what_is_missing() -> None:
    """A feature missing half the time, known from the other: EM sees what listwise deletion throws away."""
    rng = np.random.default_rng(9)
    z = rng.normal(size=(200, 1))
    whole = np.concatenate([z, 0.9 * z + 0.3 * rng.normal(size=z.shape)], axis=1)
    holed = whole.copy()
    holed[(z[:, 0] > 0), 1] = np.nan  # missing at random: whether x_2 is missing depends on x_1
    model = HMM(1, observation=GaussianMixture(1, "full"), tol=0.0, max_iter=40, dtype="float64").fit([holed])
    assert_allclose(model.means_[0, 0], whole.mean(0), atol=0.1)
    assert_allclose(model.covariances_[0, 0], np.cov(whole.T), atol=0.1)


# -- the model ---------------------------------------------------------------------------------------------


def test_n_parameters_count_a_shared_covariance_once() -> None:
    x = frames(10)
    chain, own = (K - 1) + K * (K - 1), K * (M - 1 + M * D)
    for kind, shapes in {"tied": D * (D + 1) // 2, "spherical": K * M, "full": K * M * D * (D + 1) // 2}.items():
        model = HMM(K, observation=GaussianMixture(M, kind), start="free", max_iter=1).fit(x)  # type: ignore[arg-type]
        assert model.n_parameters_ == chain + own + shapes
    assert HMM(K, observation=GaussianMixture(M, "tied"), max_iter=1).fit(x).covariances_.shape == (D, D)


def test_spherical_in_other_units_is_refused() -> None:
    given: dict[str, Any] = {"means": [[0.0, 0.0]], "covariances": [2.0], "covariance_type": "spherical"}
    units = Standardize().restore({"mean": np.zeros(2), "scale": np.array([1.0, 3.0])})
    with pytest.raises(ValueError, match="one number in the units of"):
        HMM.from_parameters([1.0], [[1.0]], **given, encoding=units)
    model = HMM.from_parameters([1.0], [[1.0]], **given, dtype="float64")
    assert_allclose(model.covariances_, [[[2.0, 2.0]]])
    assert_allclose(model.log_prob([[[1.0, 2.0]]]), stats.multivariate_normal([0, 0], 2).logpdf([1, 2]))


def test_a_network_refuses_a_tied_covariance() -> None:
    with pytest.raises(ValueError, match='covariance_type="tied" shares one matrix over the states of an HMM'):
        sm.LSTM(d_model=4, max_steps=1, observation=GaussianMixture(2, "tied")).fit(frames(11), validation=None)
    model = sm.LSTM(d_model=4, max_steps=2, observation=GaussianMixture(2, "spherical")).fit(
        frames(11), validation=None
    )
    assert np.isfinite(model.score(frames(12)))
