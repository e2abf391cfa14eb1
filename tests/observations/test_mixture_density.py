from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp
from torch import Tensor

from seqmodels.observations import GaussianMixture, gaussian
from seqmodels.observations.gaussian import CovarianceType

TYPES: list[CovarianceType] = ["diag", "full", "tied", "spherical"]
M, D, FLOOR = 3, 2, 1e-4


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def covariances(kind: CovarianceType, n: int = M, d: int = D) -> Tensor:
    a = normal(n, d, d, seed=5)
    full = a @ a.mT + 0.3 * torch.eye(d, dtype=torch.float64)
    if kind == "spherical":
        return full[:, :1, :1] * torch.eye(d, dtype=torch.float64)
    if kind == "tied":
        return full[:1].expand(n, d, d)
    return full if kind == "full" else torch.diag_embed(full.diagonal(dim1=-2, dim2=-1))


def is_full(kind: CovarianceType) -> bool:
    return kind in ("full", "tied")


def shapes_of(kind: CovarianceType, matrices: Tensor) -> Tensor:
    return gaussian.shape_of_covariance(matrices) if is_full(kind) else matrices.diagonal(dim1=-2, dim2=-1).log()


def mixture(kind: CovarianceType) -> tuple[GaussianMixture, Tensor, Tensor, Tensor, Tensor]:
    observation = GaussianMixture(M, kind, FLOOR)
    weights, means, matrices = torch.softmax(normal(M, seed=1), -1), 2 * normal(M, D, seed=2), covariances(kind)
    return observation, observation.pack(weights.log(), means, shapes_of(kind, matrices)), weights, means, matrices


def by_scipy(x: Tensor, weights: Tensor, means: Tensor, matrices: Tensor) -> np.ndarray:
    parts = [
        float(w.log()) + stats.multivariate_normal(m.numpy(), c.numpy()).logpdf(x.numpy())
        for w, m, c in zip(weights, means, matrices, strict=True)
    ]
    return logsumexp(parts, axis=0)


@pytest.mark.parametrize("kind", TYPES)
def test_density_is_scipys(kind: CovarianceType) -> None:
    observation, output_parameters, *truth = mixture(kind)
    x = 2 * normal(7, D)
    np.testing.assert_allclose(observation.log_prob(output_parameters, x), by_scipy(x, *truth), rtol=1e-10)
    each = observation.log_prob(output_parameters.expand(4, 1, -1), x)  # states by steps
    np.testing.assert_allclose(each, np.tile(by_scipy(x, *truth), (4, 1)), rtol=1e-10)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("size", [1, 3])
def test_shapes_describe_covariances(kind: CovarianceType, size: int) -> None:
    matrices = covariances(kind, 4, size)
    shapes = shapes_of(kind, matrices)
    assert shapes.shape == (4, gaussian.n_shape_parameters(GaussianMixture(1, kind).shape_type, size))
    back = (
        gaussian.covariance_of_shape(shapes, size, FLOOR)
        if is_full(kind)
        else torch.diag_embed(gaussian.variances_of_shape(shapes, FLOOR))
    )
    torch.testing.assert_close(back, matrices)


@pytest.mark.parametrize("kind", TYPES)
def test_pack_undoes_unpack(kind: CovarianceType) -> None:
    observation, output_parameters, *_ = mixture(kind)
    assert output_parameters.shape == (observation.n_output_parameters(D),)
    torch.testing.assert_close(observation.pack(*observation.unpack(output_parameters, D)), output_parameters)


@pytest.mark.parametrize("kind", TYPES)
def test_draws_have_the_mixtures_moments(kind: CovarianceType) -> None:
    observation, output_parameters, weights, means, matrices = mixture(kind)
    drawn = observation.sample(output_parameters.expand(40_000, -1), None, torch.Generator().manual_seed(0))
    mean = weights @ means
    spread = torch.einsum("m,mij->ij", weights, matrices + means.unsqueeze(-1) * means.unsqueeze(-2)) - torch.outer(
        mean, mean
    )
    torch.testing.assert_close(drawn.mean(0), mean, rtol=0, atol=0.05)
    torch.testing.assert_close(torch.cov(drawn.T), spread, rtol=0.03, atol=0.05)


@pytest.mark.parametrize("kind", ["diag", "full", "spherical"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_draws_have_the_right_width(kind: CovarianceType, size: int) -> None:
    observation = GaussianMixture(M, kind)
    start = observation.starting_point(size, torch.Generator().manual_seed(0))
    assert start.shape == (observation.n_output_parameters(size),)
    assert observation.sample(start.expand(4, -1), None, torch.Generator()).shape == (4, size)
    assert not observation.floor_hits(start, size)
    means = observation.unpack(start, size)[1]
    assert len(torch.unique(means, dim=0)) == M  # equal components would stay equal


def test_number_of_parameters() -> None:
    assert GaussianMixture(3, "diag").n_output_parameters(4) == 3 * (1 + 4 + 4)
    assert GaussianMixture(3, "full").n_output_parameters(4) == 3 * (1 + 4 + 10)
    assert GaussianMixture(3, "tied").n_output_parameters(4) == 3 * (1 + 4) + 10
    assert GaussianMixture(3, "spherical").n_output_parameters(4) == 3 * (1 + 4 + 1)


def test_a_network_shares_no_covariance_and_a_type_is_one_of_four() -> None:
    with pytest.raises(ValueError, match='a network has no states; use "full"'):
        GaussianMixture(2, "tied").starting_point(2, torch.Generator())
    with pytest.raises(ValueError, match="covariance_type is 'round'; pass one of 'diag', 'spherical', 'full', 'tied'"):
        GaussianMixture(2, "round").n_output_parameters(2)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", TYPES)
def test_pyros_distribution_is_in_raw_units(kind: CovarianceType) -> None:
    observation = GaussianMixture(M, kind, FLOOR)
    noise = normal(observation.n_output_parameters(D), seed=8)
    states = torch.stack([mixture(kind)[1], mixture(kind)[1] + 0.1 * noise])
    if kind == "tied":
        states[1, -3:] = states[0, -3:]
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    shift, scale = torch.tensor([100.0, -3.0]).double(), torch.tensor([20.0, 0.1]).double()
    found = observation.distribution(states, log_weights=weights.log(), past=None, shift=shift, scale=scale)
    x = normal(6, D)
    ours = torch.logsumexp(weights.log() + observation.log_prob(states, x.unsqueeze(1)), -1) - scale.log().sum()
    torch.testing.assert_close(found.log_prob(shift + scale * x), ours)


@pytest.mark.parametrize("kind", TYPES)
def test_missing_features_are_dropped_dimensions(kind: CovarianceType) -> None:
    observation, output_parameters, weights, means, matrices = mixture(kind)
    assert observation.sums_out_missing
    x = normal(5, D)
    for kept in ([0], [1]):
        holed = torch.full_like(x, math.nan)
        holed[:, kept] = x[:, kept]
        expected = by_scipy(x[:, kept], weights, means[:, kept], matrices[:, kept][:, :, kept])
        np.testing.assert_allclose(observation.log_prob(output_parameters, holed), expected, rtol=1e-10)
    nothing = observation.log_prob(output_parameters, torch.full((1, D), math.nan, dtype=torch.float64))
    torch.testing.assert_close(nothing, torch.zeros(1, dtype=torch.float64))


@pytest.mark.parametrize("kind", TYPES)
def test_missing_features_leave_gradients_finite(kind: CovarianceType) -> None:
    observation, output_parameters, *_ = mixture(kind)
    leaf = output_parameters.clone().requires_grad_()
    observation.log_prob(leaf, torch.tensor([[math.nan, 1.0], [math.nan, math.nan]]).double()).sum().backward()
    assert leaf.grad is not None
    assert torch.isfinite(leaf.grad).all()
    assert (observation.unpack(leaf.grad, D)[1][:, 0] == 0).all()  # nothing was seen of feature 0


@pytest.mark.parametrize("kind", TYPES)
def test_a_component_of_no_weight_has_no_gradient(kind: CovarianceType) -> None:
    observation, output_parameters, weights, means, matrices = mixture(kind)
    leaf = torch.cat([torch.tensor([-torch.inf]).double(), output_parameters[1:]]).requires_grad_()
    x = normal(4, D)
    found = observation.log_prob(leaf, x)
    left = weights[1:] / weights[1:].sum()
    np.testing.assert_allclose(found.detach(), by_scipy(x, left, means[1:], matrices[1:]), rtol=1e-10)
    found.sum().backward()
    assert leaf.grad is not None
    assert torch.isfinite(leaf.grad).all()
    assert leaf.grad[0] == 0
    assert (leaf.grad[M : M + D] == 0).all()


@pytest.mark.parametrize("kind", TYPES)
def test_the_floor_bounds_the_density(kind: CovarianceType) -> None:
    observation = GaussianMixture(1, kind, FLOOR)
    n_shape = gaussian.n_shape_parameters(observation.shape_type, D)
    narrow = 1e3 if is_full(kind) else -1e3  # log-precision or log-variance
    shape = torch.zeros(n_shape).double()
    shape[:D] = narrow
    output_parameters = observation.pack(torch.zeros(1).double(), torch.zeros(1, D).double(), shape.unsqueeze(0))
    highest = -0.5 * D * math.log(2 * math.pi * FLOOR)
    assert float(observation.log_prob(output_parameters, torch.zeros(D).double())) == pytest.approx(highest)
    assert observation.floor_hits(output_parameters, D)
    drawn = observation.sample(output_parameters.expand(20_000, -1), None, torch.Generator().manual_seed(0))
    assert drawn.var(0).numpy() == pytest.approx([FLOOR, FLOOR], rel=0.05)


@pytest.mark.parametrize("kind", TYPES)
def test_floor_hits_are_counted_by_state(kind: CovarianceType) -> None:
    observation, output_parameters, *_ = mixture(kind)
    log_weights, means, shapes = observation.unpack(output_parameters, D)
    at_floor = shapes.clone()
    # what is shared is read from the first feature or component
    place = {"tied": (0, 1), "spherical": (2, 0)}.get(kind, (2, 1))
    at_floor[place] = -0.5 * math.log(FLOOR) if is_full(kind) else math.log(FLOOR)
    just_off = at_floor.clone()
    just_off[place] += -1e-3 if is_full(kind) else 1e-3
    states = torch.stack([observation.pack(log_weights, means, s) for s in (shapes, at_floor, just_off)])
    assert observation.floor_hits(states, D).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("kind", "background"), [*((kind, 0.0) for kind in TYPES), ("diag", 0.01), ("full", 0.01), ("spherical", 0.01)]
)
def test_one_step_on_arrays_is_the_same(kind: CovarianceType, background: float) -> None:
    """Also where the floor bounds it, far from all means, and with features missing."""
    observation = GaussianMixture(M, kind, min_covariance=0.1, background=background)
    for size in (1, 2, 3):
        for output_parameters in normal(4, observation.n_output_parameters(size)) * 2:
            x = normal(size, seed=1)
            for frame in (x, 1e3 * x, torch.where(torch.arange(size) == 0, torch.nan, x)):
                expected = float(observation.log_prob(output_parameters, frame))
                found = observation.step_log_prob(output_parameters.numpy(), frame.numpy())
                assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)
