"""Degenerate data: finite, valid parameters and a warning that names the argument, or an error with the way out."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from seqmodels import HMM, GaussianMixture, Standardize
from seqmodels.observations.gaussian import CovarianceType

KINDS: list[CovarianceType] = ["diag", "full", "tied", "spherical"]
every_kind = pytest.mark.parametrize("kind", KINDS)
either_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def walks(n: int = 4, length: int = 25, d: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.cumsum(rng.normal(size=(length, d)), 0) / 3 + 3 * rng.integers(2, size=(length, 1)) for _ in range(n)]


def fitted(x: list[np.ndarray], kind: CovarianceType, m: int = 2, k: int = 3, **options: Any) -> tuple[HMM, list[str]]:
    """A model, and what it warned of; it is told to read levels, so that walks are not warned about."""
    chosen: dict[str, Any] = {"max_iter": 8, "n_init": 2, "encoding": Standardize()} | options
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = HMM(k, observation=GaussianMixture(m, kind), **chosen).fit(x)
    assert all(w.category is UserWarning for w in caught), [str(w.message) for w in caught]
    return model, [str(w.message) for w in caught]


@cache
def plain_score(kind: CovarianceType, dtype: str) -> float:
    """Of the walks as they are."""
    return fitted(walks(), kind, dtype=dtype)[0].score(walks())


def assert_valid(model: HMM, x: list[np.ndarray]) -> None:
    for name in ("initial_", "transition_", "weights_"):
        assert_allclose(getattr(model, name).sum(-1), 1, rtol=1e-6)
        assert (getattr(model, name) >= 0).all()
    assert np.isfinite(model.means_).all()
    covariances = model.covariances_
    assert np.isfinite(covariances).all()
    square = covariances.ndim != 3  # (D, D) or (K, M, D, D)
    if square:  # scaled to ones on the diagonal, that units play no part
        deviations = np.sqrt(covariances.diagonal(axis1=-2, axis2=-1))
        covariances = np.linalg.eigvalsh(covariances / deviations[..., None, :] / deviations[..., None])
    assert (covariances > 0).all()
    objective = model.history_["objective"].to_numpy()
    assert (np.diff(objective) >= -1e-5 * np.maximum(1, np.abs(objective[1:]))).all()
    assert_streams_as_it_scores(model, x[0])


def assert_streams_as_it_scores(model: HMM, item: np.ndarray) -> None:
    stream, tight = model.stream(), 1e-9 if model.dtype == "float64" else 1e-3
    steps = model.log_prob_steps([item])[0]
    assert np.isfinite(steps).all()
    assert_allclose([stream.update(frame) for frame in item], steps, rtol=tight, atol=tight)


# -- units and offsets -------------------------------------------------------------------------------------


@every_kind
@either_dtype
@pytest.mark.parametrize("scale", [1e-30, 1e30, 1e150])
def test_a_scale_only_shifts_the_score(kind: CovarianceType, dtype: str, scale: float) -> None:
    scaled = [scale * item for item in walks()]
    model, said = fitted(scaled, kind, dtype=dtype)
    assert said == []
    assert_valid(model, scaled)
    plain, atol = plain_score(kind, dtype), 1e-6 if dtype == "float64" else 1e-3
    assert_allclose(model.score(scaled) + 2 * np.log(scale), plain, atol=atol)


@every_kind
@either_dtype
def test_an_offset_changes_nothing(kind: CovarianceType, dtype: str) -> None:
    far = [1e8 + item for item in walks()]
    model, said = fitted(far, kind, dtype=dtype)
    assert said == []
    assert_valid(model, far)
    assert_allclose(model.score(far), plain_score(kind, dtype), atol=1e-3)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_units_that_cannot_be_squared_are_named(scale: float) -> None:
    with pytest.raises(ValueError, match=r"feature 0 has standard deviation .* pass it in other units"):
        fitted([scale * item for item in walks()], "diag")


@every_kind
def test_features_of_very_different_units(kind: CovarianceType) -> None:
    x = [item * [1e-12, 1e12] for item in walks()]
    model, said = fitted(x, kind)
    assert said == []
    assert_valid(model, x)


# -- too little variation ----------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("value", [0.0, 0.1, 1e8])
def test_a_constant_column_is_refused(kind: CovarianceType, value: float) -> None:
    x = [np.column_stack([item, np.full(len(item), value)]) for item in walks()]
    with pytest.raises(ValueError, match=r"feature 2 is constant .* leave the feature out"):
        fitted(x, kind)
    with pytest.raises(ValueError, match="feature 0 is constant"):
        fitted([np.full((10, 2), value)] * 3, kind)


def test_a_column_lost_in_its_offset_says_so() -> None:
    with pytest.raises(ValueError, match="subtract its offset"):
        fitted([1e15 + item for item in walks()], "diag")


@every_kind
@either_dtype
def test_a_collapsed_component_names_the_floor(kind: CovarianceType, dtype: str) -> None:
    """Half of the frames lie within 1e-6 of a point."""
    rng = np.random.default_rng(1)
    x = [np.concatenate([item, 5 + 1e-6 * rng.normal(size=item.shape)]) for item in walks()]
    if kind == "tied":  # a covariance for all: only a collapse of all shows
        x = [np.concatenate([p + 1e-6 * rng.normal(size=(9, 2)) for p in ([0, 0], [0, 4], [3, 3])]) for _ in range(4)]
    model, said = fitted(x, kind, m=1, dtype=dtype, max_iter=20)
    assert any("min_covariance" in message for message in said)
    assert_valid(model, x)


@every_kind
def test_repeated_frames_are_warned_of(kind: CovarianceType) -> None:
    x = [np.repeat(item[:6], 4, axis=0) for item in walks()]
    model, said = fitted(x, kind)
    assert "exact copies" in said[0]
    assert "min_covariance" in said[0]
    assert_valid(model, x)


@every_kind
def test_columns_that_copy_each_other(kind: CovarianceType) -> None:
    x = [np.repeat(item[:, :1], 3, axis=1) for item in walks()]
    model, said = fitted(x, kind)
    assert any("min_covariance" in message for message in said) == (kind in ("full", "tied"))
    assert_valid(model, x)


# -- too little data ---------------------------------------------------------------------------------------


@every_kind
def test_a_hundred_sequences_of_one_frame(kind: CovarianceType) -> None:
    x = list(np.random.default_rng(2).normal(size=(100, 1, 2)))
    model, said = fitted(x, kind)
    assert said == []
    assert_valid(model, x)


@every_kind
def test_more_states_and_components_than_frames(kind: CovarianceType) -> None:
    x = [np.random.default_rng(3).normal(size=(5, 4))]
    model, said = fitted(x, kind, m=3, k=4)
    assert any("min_covariance" in message for message in said)
    assert_valid(model, x)


@every_kind
def test_a_state_that_is_never_visited(kind: CovarianceType) -> None:
    x = walks()
    given: dict[str, Any] = {"means": [[0.0, 0.0], [1.0, 1.0], [1e3, 1e3]], "covariance_type": kind}
    shape = {"diag": (3, 2), "spherical": (3,), "full": (3, 2, 2), "tied": (2, 2)}[kind]
    covariances = np.broadcast_to(np.eye(2) if kind in ("full", "tied") else 1.0, shape)
    transition = [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.3, 0.3, 0.4]]
    options: dict[str, Any] = {"warm_start": True, "max_iter": 5, "dtype": "float64"}
    model = HMM.from_parameters([0.5, 0.5, 0.0], transition, **given, covariances=covariances, **options).fit(x)
    assert_valid(model, x)
    assert_allclose(model.transition_[2], transition[2])
    assert_allclose(model.means_[2, 0], given["means"][2])


# -- far away ----------------------------------------------------------------------------------------------


@every_kind
@either_dtype
def test_an_outlier_leaves_valid_parameters(kind: CovarianceType, dtype: str) -> None:
    x = [*walks(), np.full((1, 2), 1e6)]
    model, said = fitted(x, kind, dtype=dtype)
    assert any("min_covariance" in message for message in said)
    assert_valid(model, x)


@every_kind
@either_dtype
def test_frames_far_from_all_states_are_improbable(kind: CovarianceType, dtype: str) -> None:
    model, _ = fitted(walks(), kind, dtype=dtype)
    found = [model.log_prob([np.full((3, 2), far)])[0] for far in (1e2, 1e6, 1e12, 1e30)]
    assert not np.isnan(found).any()
    assert (np.diff(found[:3]) < 0).all()
    assert found[3] < -1e30
