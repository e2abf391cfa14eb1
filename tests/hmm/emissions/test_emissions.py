"""What EM needs of each observation, against the observation itself, by hand, and by search."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from seqmodels.hmm.emissions import Emission, emission_of, quadratic
from seqmodels.hmm.emissions.base import SUMMED, add_sums
from seqmodels.inference.chains import products
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.observations import AutoregressiveGaussian, Categorical, GaussianMixture, Observation, gaussian
from tests.past_steps import past_steps

K, D, V, N = 3, 2, 5, 40
F64 = torch.float64
OBSERVATIONS: list[Observation] = [
    GaussianMixture(1),
    GaussianMixture(3, "diag"),
    GaussianMixture(1, "full"),
    GaussianMixture(3, "full"),
    AutoregressiveGaussian(1, "full", background=0.0),
    AutoregressiveGaussian(2, "diag", background=0.0),
    AutoregressiveGaussian(3, "full", unit_root=5.0, background=0.0),
    Categorical(0.5),
    GaussianMixture(1, "spherical"),
    GaussianMixture(3, "spherical"),
]
TIED = GaussianMixture(3, "tied")
every_observation = pytest.mark.parametrize("observation", OBSERVATIONS, ids=repr)
every_one_and_tied = pytest.mark.parametrize("observation", [*OBSERVATIONS, TIED], ids=repr)


def random_case(observation: Observation, seed: int = 0) -> tuple[Emission, Tensor, Tensor, Tensor | None, Tensor]:
    """An emission, a table for it, N frames, their past, and posteriors."""
    generator = torch.Generator().manual_seed(seed)
    size = V if observation.emits == "symbols" else D
    emission = emission_of(observation, size)
    gamma = torch.rand(N, K, generator=generator, dtype=F64) ** 3
    gamma = gamma / gamma.sum(1, keepdim=True)
    if observation.emits == "symbols":
        x, past = torch.randint(V, (N,), generator=generator), None
        table = torch.randn(K, V, generator=generator, dtype=F64)
        return emission, torch.log_softmax(table, 1), x, past, gamma
    x = torch.randn(N, D, generator=generator, dtype=F64).cumsum(0) / 4
    past = past_steps(x.unsqueeze(0), observation.n_past)
    past = None if past is None else past.squeeze(0)
    table = 0.5 * torch.randn(K, observation.n_output_parameters(D), generator=generator, dtype=F64)
    if isinstance(observation, AutoregressiveGaussian):
        table[:, -D - gaussian.n_shape_parameters(observation.shape_type, D) :] = table[
            0, -D - gaussian.n_shape_parameters(observation.shape_type, D) :
        ]  # shared by all states
    if observation.get_params().get("covariance_type") == "tied":
        table[:, -D * (D + 1) // 2 :] = table[0, -D * (D + 1) // 2 :]
    return emission, table, x, past, gamma


def statistics(emission: Emission, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor) -> tuple[Tensor, ...]:
    return emission.statistics(table, x, past, gamma, emission.evaluate(table, x, past, gamma.dtype, Scratch())[1])


def expected(emission: Emission, table: Tensor, x: Tensor, past: Tensor | None, gamma: Tensor) -> float:
    """What the M-step maximises, but for the hidden components: ``Σ γ log p(x | state) + log prior``."""
    observation = emission.observation
    before = None if past is None else past.unsqueeze(1)
    each = observation.log_prob(table, x.unsqueeze(1), before)
    return float((gamma * each).sum()) + float(emission.log_prior(table))


# -- E-step ------------------------------------------------------------------------------------------------


@every_one_and_tied
def test_log_prob_is_the_observations(observation: Observation) -> None:
    emission, table, x, past, _ = random_case(observation)
    before = None if past is None else past.unsqueeze(1)
    wanted = observation.log_prob(table, x.unsqueeze(1), before)
    assert wanted.shape == (N, K)
    assert_allclose(emission.log_prob(table, x, past, F64), wanted, rtol=1e-10, atol=1e-10)


@every_one_and_tied
def test_floors_bind_in_both(observation: Observation) -> None:
    floored = observation.clone()
    if isinstance(floored, Categorical):
        return
    floored.set_params(min_covariance=2.0)
    emission, table, x, past, _ = random_case(floored)
    before = None if past is None else past.unsqueeze(1)
    wanted = floored.log_prob(table, x.unsqueeze(1), before)
    assert (wanted - observation.log_prob(table, x.unsqueeze(1), before)).abs().max() > 0.01
    assert_allclose(emission.log_prob(table, x, past, F64), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["diag", "full"])
@pytest.mark.parametrize("autoregressive", [False, True])
def test_narrow_densities_are_exact_in_float32(kind: Any, autoregressive: bool) -> None:
    """Deviations of 1e-3 around 3: x² and its coefficient are large, the exponent is not."""
    generator, mean = torch.Generator().manual_seed(1), torch.full((1, D), 3.0, dtype=F64)
    shape = torch.zeros(1, gaussian.n_shape_parameters(kind, D), dtype=F64)
    shape[:, :D] = math.log(1e-6) if kind == "diag" else -0.5 * math.log(1e-6)
    x, past = (3 + 1e-3 * torch.randn(20, D, generator=generator)), None
    observation: Observation
    if autoregressive:
        ar = observation = AutoregressiveGaussian(1, kind, min_covariance=1e-8, background=0.0)
        table, past = ar.pack(torch.eye(D, dtype=F64).unsqueeze(0), 0 * mean, shape, mean, shape), x[:, None].roll(1, 0)
    else:
        mixture = observation = GaussianMixture(1, kind, min_covariance=1e-8)
        table = mixture.pack(0 * mean[:, :1], mean[:, None], shape[:, None])
    wanted = observation.log_prob(table, x.double().unsqueeze(1), None if past is None else past.double().unsqueeze(1))
    assert_allclose(emission_of(observation, D).log_prob(table, x, past, torch.float32), wanted, atol=1e-5)


@every_one_and_tied
def test_statistics_add(observation: Observation) -> None:
    emission, table, x, past, gamma = random_case(observation)
    whole = statistics(emission, table, x, past, gamma)
    parts = [
        statistics(emission, table, x[rows], None if past is None else past[rows], gamma[rows])
        for rows in torch.arange(N).split(11)
    ]
    for total, *pieces in zip(whole, *parts, strict=True):
        assert total.dtype == F64
        assert_allclose(torch.stack(pieces).sum(0), total, rtol=1e-12, atol=1e-12)


def test_float32_sums_are_kept_short() -> None:
    ones = torch.ones(1, 300_000)
    total = torch.zeros(1, 1, dtype=F64)
    add_sums(total, ones * 0.1, ones)
    assert total.item() == pytest.approx(300_000 * float(torch.tensor(0.1)), rel=1e-5)


@every_one_and_tied
def test_float32_statistics_are_close(observation: Observation) -> None:
    emission, table, x, past, gamma = random_case(observation)
    narrow = x if x.dtype == torch.int64 else x.float()
    found = statistics(emission, table, narrow, None if past is None else past.float(), gamma.float())
    for a, b in zip(found, statistics(emission, table, x, past, gamma), strict=True):
        assert_allclose(a, b, rtol=1e-4, atol=1e-4)


# -- M-step by hand ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_mixture_m_step_by_hand(kind: Any) -> None:
    emission, table, x, _, gamma = random_case(GaussianMixture(3, kind))
    observation = emission.observation
    assert isinstance(observation, GaussianMixture)
    log_weights, means, shapes = observation.unpack(table, D)
    components = log_weights + gaussian.log_density(x[:, None, None], means, shapes, kind, observation.min_covariance)
    share = (gamma.unsqueeze(-1) * torch.softmax(components, -1)).numpy()  # (N, K, M)
    new = emission.maximise(statistics(emission, table, x, None, gamma), table)
    raw = emission.raw_parameters(new, np.zeros(D), np.ones(D))
    for k in range(K):
        for m in range(3):
            r = share[:, k, m]
            mean = r @ x.numpy() / r.sum()
            covariance = (r[:, None] * (x.numpy() - mean)).T @ (x.numpy() - mean) / r.sum()
            assert_allclose(raw["weights_"][k, m], r.sum() / share[:, k].sum(), rtol=1e-10)
            assert_allclose(raw["means_"][k, m], mean, rtol=1e-10)
            wanted = covariance if kind == "full" else np.diag(covariance)
            assert_allclose(raw["covariances_"][k, m], wanted, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("unit_root", [0.0, 0.7])
@pytest.mark.parametrize("kind", ["diag", "full"])
def test_autoregressive_m_step_by_hand(kind: Any, unit_root: float) -> None:
    emission, table, x, past, gamma = random_case(
        AutoregressiveGaussian(2, kind, ridge=0.3, unit_root=unit_root, background=0.0)
    )
    assert past is not None
    new = emission.maximise(statistics(emission, table, x, past, gamma), table)
    raw = emission.raw_parameters(new, np.zeros(D), np.ones(D))
    z = np.hstack([past[2:].flatten(1).numpy(), np.ones((N - 2, 1))])
    for k in range(K):
        g = gamma[2:, k].numpy()
        root = np.sqrt(g)[:, None]
        # pseudo-frames: of the ridge sqrt(0.3) e_i, target zero; of the unit root both steps alike, no constant
        alike = np.sqrt(unit_root) * np.hstack([np.eye(D), np.eye(D), np.zeros((D, 1))])
        regressors = np.vstack([root * z, np.sqrt(0.3) * np.eye(4, 5), alike])
        target = np.vstack([root * x[2:].numpy(), np.zeros((4, D)), np.sqrt(unit_root) * np.eye(D)])
        solution = np.linalg.lstsq(regressors, target, rcond=None)[0]
        residual = target - regressors @ solution
        covariance = residual.T @ residual / g.sum()
        assert_allclose(raw["coefficients_"][k], solution[:4].T, rtol=1e-8, atol=1e-11)
        assert_allclose(raw["intercepts_"][k], solution[4], rtol=1e-8)
        assert_allclose(
            raw["covariances_"][k], covariance if kind == "full" else np.diag(covariance), rtol=1e-8, atol=1e-11
        )


@pytest.mark.parametrize(
    "options", [{"covariance_type": "tied"}, {"covariance_type": "tied", "intercept": False}, {"intercept": False}]
)
@pytest.mark.parametrize("n_visited", [K, K - 1])
def test_regressions_that_share_a_covariance_or_have_no_intercept_are_optimal(
    options: dict[str, Any], n_visited: int
) -> None:
    """The slope of the objective is zero along every number that may change; a state without frames stays."""
    observation = AutoregressiveGaussian(2, ridge=0.3, unit_root=0.7, **options, background=0.0)
    emission, table, x, past, gamma = random_case(observation)
    table = emission.tie(table)
    gamma[:, n_visited:] = 0.0
    before = expected(emission, table, x, past, gamma)
    best = emission.maximise(statistics(emission, table, x, past, gamma), table)
    assert expected(emission, best, x, past, gamma) > before + 1
    assert torch.equal(emission.tie(best), best)
    leaf = best.clone().requires_grad_()
    frames = past.unsqueeze(1) if past is not None else None
    value = (gamma * observation.log_prob(emission.tie(leaf), x.unsqueeze(1), frames)).sum()
    (value + emission.log_prior(emission.tie(leaf))).backward()
    assert leaf.grad is not None
    matrix, intercept, shape, *_ = observation.unpack(leaf.grad, D)
    assert_allclose(torch.cat([matrix.flatten(1), intercept, shape], 1)[:n_visited], 0.0, atol=1e-9)
    kept, was = (observation.unpack(t[n_visited:], D)[:2] for t in (best, table))
    assert all(torch.equal(a, b) for a, b in zip(kept, was, strict=True))


def test_categorical_m_step_by_hand() -> None:
    emission, table, x, _, gamma = random_case(Categorical(0.5))
    new = emission.maximise(statistics(emission, table, x, None, gamma), table).exp().numpy()
    for k in range(K):
        counts = np.bincount(x, weights=gamma[:, k], minlength=V) + 0.5
        assert_allclose(new[k], counts / counts.sum(), rtol=1e-12)


@pytest.mark.parametrize("observation", [GaussianMixture(1), *OBSERVATIONS[2:3], *OBSERVATIONS[4:-1]], ids=repr)
def test_no_step_from_the_m_step_goes_up(observation: Observation) -> None:
    emission, table, x, past, gamma = random_case(observation)
    best = emission.maximise(statistics(emission, table, x, past, gamma), table)
    top, generator = expected(emission, best, x, past, gamma), torch.Generator().manual_seed(2)
    assert top > expected(emission, table, x, past, gamma) + 1
    for _ in range(50):
        step = 1e-3 * torch.randn(best.shape, generator=generator, dtype=F64)
        if isinstance(observation, AutoregressiveGaussian):  # the first steps' Gaussian is no part of the M-step
            step[:, -D - gaussian.n_shape_parameters(observation.shape_type, D) :] = 0.0
        assert expected(emission, best + step, x, past, gamma) < top


@pytest.mark.parametrize("floor", [0.05, 0.3, 3.0])
def test_full_covariance_floor_is_the_constrained_optimum(floor: float) -> None:
    emission, table, x, _, gamma = random_case(GaussianMixture(1, "full", min_covariance=floor))
    assert isinstance(emission.observation, GaussianMixture)
    x = x @ torch.tensor([[1.0, 0.6], [0.6, 0.4]], dtype=F64)  # nearly on a line that is no axis
    best = emission.maximise(statistics(emission, table, x, None, gamma), table)
    assert emission.floor_hits(best).all()
    found = emission.raw_parameters(best, np.zeros(D), np.ones(D))
    assert_allclose(np.linalg.eigvalsh(found["covariances_"]).min(), floor, rtol=1e-9)
    rng = np.random.default_rng(3)
    for k in range(K):
        g, mean = gamma[:, k].numpy(), found["means_"][k, 0]
        scatter = (g[:, None] * (x.numpy() - mean)).T @ (x.numpy() - mean) / g.sum()
        top = _concentrated(found["covariances_"][k, 0], scatter)
        for size in (1e-3, 1e-2, 0.3):
            for _ in range(100):
                step = rng.normal(scale=size, size=(D, D))
                other = found["covariances_"][k, 0] + step + step.T
                values, vectors = np.linalg.eigh(other)
                feasible = vectors @ np.diag(values.clip(floor)) @ vectors.T
                assert _concentrated(feasible, scatter) <= top + 1e-12


def _concentrated(covariance: np.ndarray, scatter: np.ndarray) -> float:
    return float(-np.linalg.slogdet(covariance)[1] - np.trace(np.linalg.solve(covariance, scatter)))


# -- floors, zeros, missing --------------------------------------------------------------------------------


def test_floor_hits_see_every_direction() -> None:
    """A covariance on the floor along a diagonal: no single feature's variance is low."""
    for observation in (GaussianMixture(1, "full", 1e-2), AutoregressiveGaussian(1, "full", 1e-2, background=0.0)):
        emission = emission_of(observation, D)
        turned = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=F64) / math.sqrt(2)
        tables = []
        for low in (1e-2, 1.1e-2):
            shape = gaussian.shape_of_covariance(turned @ torch.diag(torch.tensor([1.0, low], dtype=F64)) @ turned)
            if isinstance(observation, GaussianMixture):
                tables.append(observation.pack(torch.zeros(1, dtype=F64), torch.zeros(1, D, dtype=F64), shape[None]))
            else:
                zeros = torch.zeros(D, dtype=F64)
                tables.append(observation.pack(torch.zeros(D, D, dtype=F64), zeros, shape, zeros, 0 * shape))
        assert emission.floor_hits(torch.stack(tables)).tolist() == [True, False]


def test_a_component_without_weight_is_no_hit() -> None:
    observation = GaussianMixture(2, min_covariance=0.1)
    log_variances = torch.tensor([[0.0], [math.log(0.1)]], dtype=F64)
    for share, hit in ((0.5, True), (0.0, False)):
        weights = torch.tensor([1 - share, share], dtype=F64).log()
        table = observation.pack(weights, torch.zeros(2, 1, dtype=F64), log_variances)
        assert emission_of(observation, 1).floor_hits(table[None]).tolist() == [hit]


@every_observation
def test_a_state_without_frames_stays(observation: Observation) -> None:
    emission, table, x, past, gamma = random_case(observation)
    gamma[:, 1] = 0.0
    new = emission.maximise(statistics(emission, table, x, past, gamma), table)
    raw = [emission.raw_parameters(t, np.zeros(D), np.ones(D)) for t in (table, new)]
    for name in raw[0]:
        assert np.isfinite(raw[1][name]).all()
        if not isinstance(observation, Categorical):  # the pseudocounts make it uniform
            assert_allclose(raw[1][name][1], raw[0][name][1], rtol=1e-12)
            is_fixed = name.startswith("first_")  # of an autoregression's first steps, which EM leaves as they are
            assert not np.allclose(raw[1][name][0], raw[0][name][0]) or raw[0][name][0].size == 1 or is_fixed


def test_missing_values_are_summed_out() -> None:
    emission, table, x, _, _ = random_case(GaussianMixture(3))
    observation = emission.observation
    holes = x.clone()
    holes[::3, 0], holes[1::5, 1] = torch.nan, torch.nan
    missing = torch.isnan(holes)
    assert (missing.all(1)).any()
    found = emission.log_prob(table, holes, None, F64)
    assert (found[missing.all(1)].abs() < 1e-12).all()
    # the marginal density by integration over the missing feature
    grid = torch.linspace(-40, 40, 40_001, dtype=F64)
    for row in (3, 11):
        alone = int(missing[row].nonzero())
        filled = holes[row].expand(len(grid), D).clone()
        filled[:, alone] = grid
        density = observation.log_prob(table, filled.unsqueeze(1)).exp()
        assert_allclose(found[row].exp(), torch.trapezoid(density, grid, dim=0), rtol=1e-6)


def test_missing_values_in_the_m_step() -> None:
    emission, table, x, _, gamma = random_case(GaussianMixture(1))
    x[::3, 0] = torch.nan
    raw = emission.raw_parameters(
        emission.maximise(statistics(emission, table, x, None, gamma), table), np.zeros(D), np.ones(D)
    )
    seen = ~torch.isnan(x[:, 0]).numpy()
    for k in range(K):
        g, values = gamma[seen, k].numpy(), x[seen, 0].numpy()
        mean = g @ values / g.sum()
        assert_allclose(raw["means_"][k, 0, 0], mean, rtol=1e-10)
        assert_allclose(raw["covariances_"][k, 0, 0], g @ (values - mean) ** 2 / g.sum(), rtol=1e-9)


def test_unknown_observations_are_refused() -> None:
    class Other(GaussianMixture.__base__):  # type: ignore[name-defined]
        pass

    Other.__abstractmethods__ = frozenset()
    with pytest.raises(ValueError, match="EM cannot fit Other"):
        emission_of(Other(), 2)


def test_clipping_leaves_what_is_above_the_floor() -> None:
    covariance = torch.tensor([[[2.0, 0.5], [0.5, 1.0]]], dtype=F64)
    assert torch.equal(quadratic.clip_eigenvalues(covariance, 0.1), covariance)


# -- float32 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["diag", "full", "tied", "spherical"])
@pytest.mark.parametrize("size", [1, 13, 39])
@pytest.mark.parametrize("ratio", [2.0, 8.0, 30.0, 300.0])  # of a mean to its deviation
def test_float32_is_right_to_a_thousandth_of_a_nat(kind: Any, size: int, ratio: float) -> None:
    generator = torch.Generator().manual_seed(0)
    observation = GaussianMixture(1, kind, min_covariance=1e-8)
    means = 2 * torch.randn(K, 1, size, generator=generator, dtype=F64)
    mix = torch.randn(size, size, generator=generator, dtype=F64) / math.sqrt(size) + torch.eye(size, dtype=F64)
    covariance = (mix @ mix.T if kind in ("full", "tied") else torch.eye(size, dtype=F64)) * (2 / ratio) ** 2
    full = gaussian.shape_of_covariance(covariance)
    shape = full if kind in ("full", "tied") else covariance.diagonal().log()
    table = observation.pack(torch.zeros(K, 1, dtype=F64), means, shape.expand(K, 1, -1))
    noise = torch.randn(100, K, size, generator=generator, dtype=F64)
    x = (means[:, 0] + noise @ torch.linalg.cholesky(covariance).T).flatten(0, 1).float()
    wanted = observation.log_prob(table, x.double().unsqueeze(1))
    found = emission_of(observation, size).log_prob(table, x, None, torch.float32)
    own = wanted > -1000
    assert own.any(1).all()
    assert_allclose(found[own], wanted[own], rtol=0, atol=1e-3)


def test_float32_is_used_where_it_is_enough() -> None:
    for signal, size, wanted in ((1000.0, 4, torch.float32), (1e4, 4, F64), (1000.0, 39, F64)):
        assert quadratic.precise_enough(torch.tensor([1.0, signal]), torch.ones(2, size), torch.float32) == wanted
    assert quadratic.precise_enough(torch.tensor([1.0]), torch.ones(2, 4), F64) == F64
    for x, wanted in ((1e8, torch.float32), (-1e10, F64), (math.inf, F64)):
        holed = torch.tensor([[math.nan, x]])
        assert quadratic.precise_enough(torch.tensor([1.0]), holed, torch.float32) == wanted
        assert quadratic.precise_enough(torch.tensor([1.0]), holed[:, 1:], torch.float32) == wanted


@every_one_and_tied
def test_frames_far_beyond_float32_have_no_nan(observation: Observation) -> None:
    if not isinstance(observation, GaussianMixture):
        return
    emission, table, x, _, _ = random_case(observation)
    x[3], x[4, 0], x[5, 1] = 1e12, -1e30, 1e200
    for dtype in (torch.float32, F64):
        found = emission.log_prob(table, x, None, dtype)
        assert not torch.isnan(found).any()
        assert (found[3:6] < -1e20).all()
    exact = observation.log_prob(table, x[:5].unsqueeze(1))
    assert_allclose(emission.log_prob(table, x, None, F64)[:5], exact, rtol=1e-9)


@pytest.mark.parametrize("least", [0, products.WORTH_ONEDNN])
@pytest.mark.parametrize("kind", ["diag", "full"])
@pytest.mark.parametrize("m", [1, 3])
def test_steps_on_one_scratch_are_those_of_float64(
    m: int, kind: Any, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several blocks, by either library, while what is kept of the frames is used again."""
    for name in ("WORTH_ONEDNN", "WORTH_ONEDNN_ON_THREADS"):
        monkeypatch.setattr(products, name, least)
    generator, scratch, n = torch.Generator().manual_seed(0), Scratch(), 2 * SUMMED + 100
    emission = emission_of(GaussianMixture(m, kind), D)
    gamma = torch.softmax(torch.randn(n, K, generator=generator, dtype=F64), 1)
    x = torch.randn(n, D, generator=generator)
    with_missing = torch.where(torch.rand(n, D, generator=generator) < 0.1, torch.nan, x)
    for frames in (x, x, with_missing):
        table = 0.5 * torch.randn(K, emission.observation.n_output_parameters(D), generator=generator, dtype=F64)
        densities, memo = emission.evaluate(table, frames, None, torch.float32, scratch)
        expected, _ = emission.evaluate(table, frames.double(), None, F64, Scratch())
        assert_allclose(densities.log(), expected.log(), rtol=1e-5, atol=1e-4)
        (sums,) = emission.statistics(table, frames, None, gamma.float(), memo)
        assert_allclose(sums, emission.statistics(table, frames.double(), None, gamma)[0], rtol=1e-5, atol=1e-3)
