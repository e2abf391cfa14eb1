"""Maximum a posteriori estimates: counts plus pseudocounts; the objective has the prior as a term, and rises."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from numpy.testing import assert_allclose

from seqmodels import HMM, GaussianMixture
from seqmodels.hmm import ChainTraining, Pseudocounts
from seqmodels.hmm.emissions import emission_of
from seqmodels.hmm.emissions.pseudo_frames import pseudo_frame_log_density, pseudo_frame_sums
from seqmodels.observations import PseudoFrames
from tests.inference.chains.enumeration import enumerate_paths
from tests.made import made

K, D, M = 3, 2, 2
RNG = np.random.default_rng(0)
ASYMMETRIC = Pseudocounts(
    initial=[3.0, 0.0, 1.0], transition=RNG.uniform(0, 2, (K, K)), sticky=[0.0, 5.0, 1.0], final=0.5
)


def words() -> list[np.ndarray]:
    return [np.array([0, 0, 1, 2, 1]), np.array([2, 1, 1]), np.array([0])]


def speech() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [np.cumsum(rng.normal(size=(n, D)), 0) for n in (20, 7, 13)]


# -- the chain ---------------------------------------------------------------------------------------------


def test_one_step_by_hand() -> None:
    """Expected counts by enumeration, the believed ones added, normalised."""
    first = HMM(K, length="stop", max_iter=0, dtype="float64").fit(words())
    start = (first.initial_, first.transition_, first.final_)
    options: dict[str, Any] = {"warm_start": True, "max_iter": 1, "dtype": "float64"}
    model = made(HMM.from_parameters, *start, emission=first.emission_, pseudocount=ASYMMETRIC, **options).fit(words())
    starts, arcs, ends = np.zeros(K), np.zeros((K, K)), np.zeros(K)
    for item in words():
        one = enumerate_paths(start[0], start[1], first.emission_[:, item].T, start[2])
        starts, arcs, ends = starts + one.gamma[0], arcs + one.xi, ends + one.gamma[-1]
    starts += np.array([3.0, 0.0, 1.0])
    rows = np.column_stack([arcs + ASYMMETRIC.transition + np.diag([0.0, 5.0, 1.0]), ends + 0.5])
    assert_allclose(model.initial_, starts / starts.sum(), rtol=1e-10)
    assert_allclose(np.column_stack([model.transition_, model.final_]), rows / rows.sum(1, keepdims=True), rtol=1e-10)


def test_the_prior_is_dirichlets_density() -> None:
    """Up to its constant: differences between two chains are scipy's."""
    chains = [HMM(K, length="stop", max_iter=n, dtype="float64").fit(words()) for n in (0, 1)]
    believed = np.column_stack([ASYMMETRIC.transition + np.diag(ASYMMETRIC.sticky), np.full(K, 0.5)])
    ours, theirs = [], []
    for chain in chains:
        rows = np.column_stack([chain.transition_, chain.final_])
        each = [scipy.stats.dirichlet.logpdf(r / r.sum(), 1 + c) for r, c in zip(rows, believed, strict=True)]
        starts = scipy.stats.dirichlet.logpdf(chain.initial_ / chain.initial_.sum(), 1 + np.array(ASYMMETRIC.initial))
        theirs.append(sum(each) + starts)
        ours.append(ASYMMETRIC.log_prior(chain.parameters_))
    assert_allclose(ours[1] - ours[0], theirs[1] - theirs[0], rtol=1e-9)


@pytest.mark.parametrize("topology", ["ergodic", "left-to-right"])
def test_the_objective_rises_and_shows_the_prior_apart(topology: str) -> None:
    options: dict[str, Any] = {"topology": topology, "length": "stop", "dtype": "float64", "max_iter": 15, "tol": 0}
    model = made(HMM, K, pseudocount=ASYMMETRIC, **options).fit(words())
    history = model.history_
    assert (np.diff(history["objective"]) >= -1e-12).all()
    n = sum(map(len, words()))
    assert_allclose((history["objective"] - history["log_prob"]).iloc[-1] * n, ASYMMETRIC.log_prior(model.parameters_))
    assert_allclose(history["log_prob"].iloc[-1], model.score(words()))  # scoring knows no prior


def test_sticky_states_last() -> None:
    loose, sticky = (HMM(K, length="given", pseudocount=Pseudocounts(sticky=s)).fit(words()) for s in (0.0, 100.0))
    assert np.diag(sticky.transition_).min() > 0.9 > np.diag(loose.transition_).min()


# -- Gaussian mixtures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["diag", "full", "tied"])
def test_the_estimate_is_that_of_frames_seen_and_believed(kind: Any) -> None:
    """Frames that have the moments of the belief are added to those seen, in every state and component alike."""
    mean, variance, count = np.array([0.5, -1.0]), np.array([0.3, 2.0]), 4
    rng = np.random.default_rng(2)
    seen = torch.as_tensor(rng.normal(size=(30, D)))
    corners = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    believed = torch.as_tensor(mean + np.sqrt(variance) * corners)  # four frames of exactly these moments
    gamma = torch.as_tensor(rng.dirichlet(np.ones(K), size=30))
    plain = emission_of(GaussianMixture(1, kind), D)
    with_prior = emission_of(GaussianMixture(1, kind, prior=PseudoFrames(count, mean, variance)), D)
    table = torch.zeros(K, plain.observation.n_output_parameters(D), dtype=torch.float64)
    found = with_prior.maximise(with_prior.statistics(table, seen, None, gamma), table)
    both, shares = torch.cat([seen, believed]), torch.cat([gamma, torch.ones(4, K, dtype=torch.float64)])
    expected = plain.maximise(plain.statistics(table, both, None, shares), table)
    assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_gauvain_and_lees_formulas() -> None:
    """Weights, means and variances of a mixture, written out from its statistics (their equations 49 to 51)."""
    rng = np.random.default_rng(3)
    x, gamma = torch.as_tensor(rng.normal(size=(40, D))), torch.ones(40, 1, dtype=torch.float64)
    tau, mean, variance = np.array([[2.0, 7.0]]), rng.normal(size=(1, M, D)), rng.uniform(0.5, 2, (1, M, D))
    emission = emission_of(GaussianMixture(M, "diag", prior=PseudoFrames(tau, mean, variance)), D)
    table = emission.from_labels(x, None, torch.zeros(40, dtype=torch.int64), 1, torch.Generator().manual_seed(0))
    (s,) = emission.statistics(table, x, None, gamma)
    count, first, second = s[0, :, -1].numpy(), s[0, :, :D].numpy(), s[0, :, D : 2 * D].numpy()
    found = emission.raw_parameters(emission.maximise((s,), table), np.zeros(D), np.ones(D))
    total, t = (count + tau[0])[:, None], tau[0][:, None]
    m = (t * mean[0] + first) / total
    scatter = second - 2 * m * first + count[:, None] * m**2
    assert_allclose(found["weights_"][0], total[:, 0] / total.sum(), rtol=1e-10)
    assert_allclose(found["means_"][0], m, rtol=1e-10)
    assert_allclose(found["covariances_"][0], (t * variance[0] + scatter + t * (mean[0] - m) ** 2) / total, rtol=1e-10)


@pytest.mark.parametrize("kind", ["diag", "full", "tied"])
def test_the_prior_of_a_mixture_is_the_log_density_of_the_frames_believed_in(kind: Any) -> None:
    rng = np.random.default_rng(4)
    prior = PseudoFrames(4, [0.5, -1.0], [0.3, 2.0])
    w, mu = torch.as_tensor(rng.dirichlet(np.ones(M), size=K)), torch.as_tensor(rng.normal(size=(K, M, D)))
    root = torch.as_tensor(rng.normal(size=(K, M, D, D)))
    full = root @ root.transpose(-1, -2) + torch.eye(D)
    sigma = {"diag": full.diagonal(dim1=-2, dim2=-1), "full": full, "tied": full[:1, :1]}[kind]
    corners = np.array([0.5, -1.0]) + np.sqrt([0.3, 2.0]) * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    expected = 4 * D / 2 * np.log(2 * np.pi) * K * M
    for k in range(K):
        for m in range(M):
            matrix = np.diag(sigma[k, m]) if kind == "diag" else sigma.expand_as(full)[k, m].numpy()
            expected += scipy.stats.multivariate_normal(mu[k, m].numpy(), matrix).logpdf(corners).sum()
            expected += 4 * np.log(float(w[k, m]))
    assert_allclose(pseudo_frame_log_density(prior, w.log(), mu, sigma, diagonal=kind == "diag"), expected, rtol=1e-10)


@pytest.mark.parametrize("kind", ["diag", "spherical", "full"])
def test_the_mean_and_the_covariance_have_counts_of_their_own(kind: Any) -> None:
    """The posterior mode of a normal-Wishart with κ = 0.5 and 3 frames of variance, written out (Gauvain and Lee)."""
    rng = np.random.default_rng(2)
    x, gamma = rng.normal(size=(30, D)), rng.dirichlet(np.ones(K), size=30)
    mean, variance = np.array([0.5, -1.0]), np.array([0.3, 2.0])
    observation = GaussianMixture(1, kind, prior=PseudoFrames(3.0, mean, variance, mean_count=0.5))
    emission = emission_of(observation, D)
    table = torch.zeros(K, observation.n_output_parameters(D), dtype=torch.float64)
    (sums,) = emission.statistics(table, torch.as_tensor(x), None, torch.as_tensor(gamma))
    found = emission.raw_parameters(emission.maximise((sums,), table), np.zeros(D), np.ones(D))
    for k, share in enumerate(gamma.T):
        m = (share @ x + 0.5 * mean) / (share.sum() + 0.5)
        scatter = (share[:, None] * (x - m)).T @ (x - m) + 0.5 * np.outer(mean - m, mean - m) + 3 * np.diag(variance)
        covariance = scatter / (share.sum() + 3)
        diagonal = np.diag(covariance)
        expected = {"full": covariance, "diag": diagonal, "spherical": np.full(D, diagonal.mean())}[kind]
        assert_allclose(found["means_"][k, 0], m, rtol=1e-10)
        assert_allclose(found["covariances_"][k, 0], expected, rtol=1e-10)


def test_the_automatic_covariance_shares_the_volume_out() -> None:
    """Of K M components in D features each has the volume of the training data over K M."""
    table = torch.zeros(K, GaussianMixture(M).n_output_parameters(D), dtype=torch.float64)
    variance = float(K * M) ** (-2 / D)
    results = []
    for covariance in ("auto", variance):
        emission = emission_of(GaussianMixture(M, prior=PseudoFrames(5.0, covariance=covariance)), D)
        x = torch.as_tensor(np.random.default_rng(7).normal(size=(20, D)))
        statistics = emission.statistics(table, x, None, torch.full((20, K), 1 / K, dtype=torch.float64))
        results.append(emission.maximise(statistics, table))
    assert_allclose(results[0], results[1], rtol=1e-12)
    assert variance**D == pytest.approx(1 / (K * M) ** 2)


@pytest.mark.parametrize("kind", ["diag", "full", "tied"])
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize(("floor", "mean_count"), [(1e-6, None), (0.4, None), (1e-6, 0.01), (1e-6, 0.0)])
def test_em_with_a_mixtures_prior_never_goes_down(kind: Any, m: int, floor: float, mean_count: float | None) -> None:
    observation = GaussianMixture(m, kind, floor, PseudoFrames(2.0, 0.3, 0.2, mean_count))
    tied = [0, 0, 1] if floor == 0.4 and kind != "tied" else None
    model = HMM(
        K, observation=observation, training=ChainTraining(tied=tied), max_iter=12, tol=0, n_init=1, dtype="float64"
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*ended on the floor.*", UserWarning)
        model.fit(speech())
    assert model.history_["floor_hits"].iloc[-1] > 0 or floor < 0.4
    objective = model.history_["objective"].to_numpy()
    assert (np.diff(objective) >= -1e-10 * np.abs(objective[1:])).all()
    assert objective[-1] > objective[0]


def test_a_shared_covariance_pools_what_is_seen_and_believed() -> None:
    """By hand: normal distributions on the means and an inverse Wishart, ``Σ_c τ_c Σ_c`` in all, on the one matrix."""
    rng = np.random.default_rng(6)
    x = torch.as_tensor(rng.normal(size=(50, D)) @ rng.normal(size=(D, D)))
    tau, mean, variance = rng.uniform(1, 9, (K, M)), rng.normal(size=(K, M, D)), rng.uniform(0.5, 2, (K, M, D))
    emission = emission_of(GaussianMixture(M, "tied", 1e-6, PseudoFrames(tau, mean, variance)), D)
    table = emission.from_labels(x, None, torch.arange(50) % K, K, torch.Generator().manual_seed(0))
    gamma = torch.as_tensor(rng.dirichlet(np.ones(K), size=50))
    before = emission.raw_parameters(table, np.zeros(D), np.ones(D))
    each = np.zeros((50, K, M))
    for k, m in np.ndindex(K, M):
        normal = scipy.stats.multivariate_normal(before["means_"][k, m], before["covariances_"])
        each[:, k, m] = before["weights_"][k, m] * normal.pdf(x.numpy())
    each *= (gamma.numpy() / each.sum(-1))[..., None]
    counts = each.sum(0) + tau
    means = (np.einsum("nkm,nd->kmd", each, x) + tau[..., None] * mean) / counts[..., None]
    scatter = np.zeros((D, D))
    for k, m in np.ndindex(K, M):
        gone, moved = x.numpy() - means[k, m], mean[k, m] - means[k, m]
        scatter += (each[:, k, m, None] * gone).T @ gone
        scatter += tau[k, m] * (np.outer(moved, moved) + np.diag(variance[k, m]))
    after = emission.maximise(emission.statistics(table, x, None, gamma), table)
    found = emission.raw_parameters(after, np.zeros(D), np.ones(D))
    assert_allclose(found["weights_"], counts / counts.sum(1, keepdims=True), rtol=1e-9)
    assert_allclose(found["means_"], means, rtol=1e-9)
    assert_allclose(found["covariances_"], scatter / counts.sum(), rtol=1e-9)


def test_with_a_prior_no_floor_is_needed() -> None:
    x = [np.repeat(np.random.default_rng(5).normal(size=(6, D)), 5, axis=0)]  # repeated frames: variances collapse
    with pytest.warns(UserWarning, match="exact copies"):
        model = HMM(6, observation=GaussianMixture(1, prior=PseudoFrames(1.0, covariance=0.1)), max_iter=50).fit(x)
    assert model.history_["floor_hits"].iloc[-1] == 0


def test_a_component_without_weight_takes_no_part() -> None:
    log_weights = torch.tensor([[0.0, -torch.inf]], dtype=torch.float64)
    means, ones = torch.zeros(1, 2, D, dtype=torch.float64), torch.ones(1, 2, D, dtype=torch.float64)
    sums = pseudo_frame_sums(PseudoFrames(3.0), log_weights, means, ones, ones, diagonal=True)
    assert float(sums[0, 1].abs().sum()) == 0
    log_density = pseudo_frame_log_density(PseudoFrames(3.0), log_weights, means, ones, diagonal=True)
    assert_allclose(log_density, -0.5 * 3 * D)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (PseudoFrames(-1.0), "count of the pseudo-frames is -1"),
        (PseudoFrames(mean_count=-2.0), "mean_count of the pseudo-frames is -2"),
        (PseudoFrames(covariance=0.0), "covariance of the pseudo-frames is 0"),
        (PseudoFrames(covariance="wide"), "covariance of the pseudo-frames is 'wide'; pass variances, or 'auto'"),
        (PseudoFrames(mean=[0.0] * 3), r"mean of the pseudo-frames has shape \(3,\)"),
    ],
)
def test_what_cannot_be_believed_is_refused(prior: PseudoFrames, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HMM(K, observation=GaussianMixture(1, prior=prior)).fit(speech())
