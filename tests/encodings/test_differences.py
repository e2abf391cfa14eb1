from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal, norm

import seqmodels as sm
from seqmodels.encodings import Differences
from seqmodels.encodings.step_maps import decoded_after


def walks(*lengths: int, n_features: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [50 + np.cumsum(rng.normal(0.3, 2.0, size=(n, n_features)), axis=0) for n in lengths]


def fitted(order: int = 1, season: int | None = None) -> Differences:
    return Differences(order, season).fit(sm.Sequences(walks(60, 40)))


@pytest.mark.parametrize(("order", "season"), [(1, None), (2, None), (0, 4), (1, 4), (2, 3)])
def test_differences_are_those_of_numpy_and_are_added_up_again(order: int, season: int | None) -> None:
    encoding, (x,) = fitted(order, season), walks(20)
    expected = np.diff(x, n=order, axis=0)
    if season is not None:
        expected = expected[season:] - expected[:-season]
    assert encoding.n_initial == order + (season or 0)
    assert_allclose(encoding.encode(x), expected, atol=1e-12)
    for n_past in (encoding.n_initial, 9):
        steps = encoding.encode(x)[n_past - encoding.n_initial :]
        (raw,) = decoded_after(encoding.step_encoder(x[:n_past]), steps[None])
        assert_allclose(raw, x[n_past:], rtol=1e-12)


def test_first_frames_have_the_density_that_is_documented() -> None:
    items = walks(60, 40)
    encoding, first, every = fitted(1, 2), np.stack([x[0] for x in items]), np.concatenate(items)
    mean = (first.sum(0) + every.mean(0)) / 3
    variance = (((first - mean) ** 2).sum(0) + every.var(0) + (every.mean(0) - mean) ** 2) / 3
    changes = np.concatenate([np.diff(x, axis=0) for x in items])
    (x,) = walks(10)
    x = x + 1
    log_prob = [norm.logpdf(x[0], mean, np.sqrt(variance)).sum()]
    log_prob += [norm.logpdf(x[t], x[t - 1] + changes.mean(0), changes.std(0)).sum() for t in (1, 2)]
    assert_allclose(encoding.of_each_frame(x), [*log_prob, *[0.0] * 7], rtol=1e-12)
    assert_allclose(encoding.of_each_frame(x[:2]), log_prob[:2], rtol=1e-12)
    for t in range(3):
        step = encoding.step_encoder(x[:t]).map
        assert not step.is_modelled
        assert_allclose(norm.logpdf(step.encode(x[t][None])).sum() + step.log_det(x[t][None])[0], log_prob[t])


def test_an_hmm_of_differences_has_the_log_probability_of_a_random_walk() -> None:
    items = walks(200, 50, n_features=1)
    model = sm.HMM(1, observation=sm.GaussianMixture(1), encoding=Differences(1), dtype="float64").fit(items)
    assert isinstance(model.encoding_, Differences)
    changes = np.concatenate([np.diff(x, axis=0) for x in items])
    for x, steps in zip(items, model.log_prob_steps(items), strict=True):
        first = norm.logpdf(x[0], model.encoding_.mean, model.encoding_.scale)
        rest = norm.logpdf(np.diff(x[:, 0]), changes.mean(), changes.std())
        assert_allclose(steps, [*first, *rest], atol=1e-9)


def test_what_has_no_difference_is_refused() -> None:
    (x,) = walks(6)
    with pytest.raises(ValueError, match="has 3 features but the model was fitted on 2"):
        fitted().check(0, np.ones((4, 3)))
    with pytest.raises(ValueError, match=r"sequence 1 has 4 frames, but Differences.* pass at least 6"):
        Differences(1, 4).fit(sm.Sequences([x[:2], x[:4]]))
    with pytest.raises(ValueError, match="changes nothing"):
        Differences(0).fit(sm.Sequences([x]))
    with pytest.raises(ValueError, match="season is 1"):
        Differences(1, 1).fit(sm.Sequences([x]))
    with pytest.raises(ValueError, match="feature 1 is constant, or changes by a constant amount"):
        Differences(1).fit(sm.Sequences([np.stack([x[:, 0], np.arange(6.0)], axis=1)]))


ORDERS = [(1, None), (2, None), (0, 4), (1, 4), (2, 3)]


def with_holes(x: np.ndarray) -> dict[str, np.ndarray]:
    """``x (T, 2)``, T at least 24, with values missing in several ways."""
    n = len(x)
    frames, random = np.arange(n), np.random.default_rng(1).random(x.shape)
    masks = {
        "one": frames == 9,
        "first": frames == 0,
        "all first ones": frames < 8,
        "last": frames >= n - 3,
        "long": (frames >= 7) & (frames < 20),
        "every other": frames % 2 == 1,
        "all": frames >= 0,
    }
    holes = {name: np.where(mask[:, None], np.nan, x) for name, mask in masks.items()}
    for name in ("first", "all first ones", "long", "all"):
        holes[f"{name}, of a feature"] = np.column_stack([holes[name][:, 0], x[:, 1]])
    return {**holes, "scattered": np.where(random < 0.4, np.nan, x)}


HOLES = list(with_holes(np.zeros((24, 2))))


def gaussian_of(encoding: Differences, n: int, feature: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean ``(n,)`` and covariance ``(n, n)`` of a feature whose differences are independent, as its changes are."""
    polynomial = np.ones(1)
    for lag in [1] * encoding.order + ([] if encoding.season is None else [encoding.season]):
        polynomial = np.convolve(polynomial, [1.0, *[0.0] * (lag - 1), -1.0])
    noise = np.zeros((n, n))  # matrix M: M x is noise
    for t in range(n):
        row = polynomial if t >= encoding.n_initial else np.array([1.0, -1.0][: t + 1])
        noise[t, t - len(row) + 1 : t + 1] = row[::-1]
    step = encoding.step_mean[feature]
    mean = encoding.mean[feature] + step * np.arange(n)
    scale = np.array([encoding.scale[feature], *[encoding.step_scale[feature]] * (n - 1)])
    root = np.linalg.solve(noise, np.diag(scale))
    return mean, root @ root.T


@pytest.mark.parametrize(("order", "season"), ORDERS)
@pytest.mark.parametrize("case", HOLES)
def test_what_is_missing_is_summed_out_of_independent_differences(case: str, order: int, season: int | None) -> None:
    encoding, x = fitted(order, season), with_holes(walks(24)[0])[case]
    growth = encoding.encode(encoding.step_mean * np.arange(24)[:, None])[0]
    of_z = norm.logpdf(encoding.encode(x), growth, encoding.step_scale)
    values = encoding.of_each_value(x)
    values[encoding.n_initial :] += np.where(np.isnan(of_z), 0.0, of_z)
    assert_array_equal(values[np.isnan(x)], 0.0)
    for feature in range(2):
        mean, covariance = gaussian_of(encoding, 24, feature)
        seen = np.flatnonzero(~np.isnan(x[:, feature]))
        for n in range(1, len(seen) + 1):  # each by the chain rule
            at = seen[:n]
            expected = multivariate_normal.logpdf(x[at, feature], mean[at], covariance[np.ix_(at, at)])
            assert_allclose(values[at, feature].sum(), expected, rtol=1e-8)


@pytest.mark.parametrize(("order", "season"), ORDERS)
@pytest.mark.parametrize("case", HOLES)
def test_with_values_missing_maps_do_not_depend_on_how_the_past_was_read(
    case: str, order: int, season: int | None
) -> None:
    encoding, x = fitted(order, season), with_holes(walks(24)[0])[case]
    steps, of_frames = encoding.encode(x), encoding.of_each_frame(x)
    missing = np.isnan(x)
    assert_array_equal(np.isnan(steps), missing[encoding.n_initial :])
    one_by_one = encoding.step_encoder(x[:0])
    others = [with_holes(walks(24)[0])[name] for name in ("scattered", case, "one")]
    together = encoding.step_encoder(x[:0]).select(np.zeros(3, dtype=int))
    for t, frame in enumerate(x):
        for encoder in (encoding.step_encoder(x[:t]), together.select(np.array([1, 1]))):
            assert_allclose(encoder.map.shift[:1], one_by_one.map.shift, rtol=1e-12)
            assert_allclose(encoder.map.scale[:1], one_by_one.map.scale, rtol=1e-12)
        z = one_by_one.map.encode(frame[None])[0]
        assert one_by_one.map.is_modelled == (t >= encoding.n_initial)
        if one_by_one.map.is_modelled:
            assert_allclose(z, steps[t - encoding.n_initial], rtol=1e-12, atol=1e-12)
            assert_allclose(one_by_one.map.log_det(frame[None])[0], of_frames[t], rtol=1e-12, atol=1e-12)
            assert_allclose(one_by_one.map.decode(z[None])[0], frame, rtol=1e-12)
        else:
            log_prob = np.nansum(norm.logpdf(z)) + one_by_one.map.log_det(frame[None])[0]
            assert_allclose(log_prob, of_frames[t], rtol=1e-12, atol=1e-12)
        one_by_one = one_by_one.after(frame[None])
        together = together.after(np.stack([other[t] for other in others]))


def test_after_a_gap_a_difference_has_the_unit_of_one() -> None:
    encoding, (x,) = fitted(), walks(8)
    c, x[4:6] = encoding.step_mean, np.nan
    assert_allclose(encoding.encode(x)[5], c + (x[6] - x[3] - 3 * c) / np.sqrt(3), rtol=1e-12)
    assert_allclose(encoding.of_each_frame(x)[4:], [0.0, 0.0, -np.log(3), 0.0], rtol=1e-12)
    seasonal, (x,) = fitted(0, 4), walks(20)
    filled = x.copy()
    filled[9] = x[5] + 4 * seasonal.step_mean
    x[9] = np.nan
    expected = seasonal.encode(filled)
    expected[9] = 4 * c + (expected[9] - 4 * c) / np.sqrt(2)
    expected[5] = np.nan
    assert_allclose(seasonal.encode(x), expected, rtol=1e-12)


def test_gaps_in_training_frames_are_steps_of_a_random_walk() -> None:
    items = walks(400, 300)
    complete, rng = Differences(1).fit(sm.Sequences(items)), np.random.default_rng(2)
    holes = [np.where(rng.random(x.shape) < 0.3, np.nan, x) for x in items]
    encoding = Differences(1).fit(sm.Sequences(holes))
    assert_allclose(encoding.step_mean, complete.step_mean, atol=0.01)
    assert_allclose(encoding.step_scale, complete.step_scale, rtol=0.05)

    def log_prob(step_mean: np.ndarray, step_scale: np.ndarray) -> float:
        state = {**encoding.state(), "step_mean": step_mean, "step_scale": step_scale}
        other = Differences(1).restore(state)
        changes = [norm.logpdf(other.encode(x), step_mean, step_scale) for x in holes]
        # Without the first value of each, which has a density of its own.
        return sum(float(np.nansum(z) + other.of_each_frame(x)[2:].sum()) for x, z in zip(holes, changes, strict=True))

    c, r = encoding.step_mean, encoding.step_scale
    best = log_prob(c, r)
    assert all(log_prob(*each) < best for each in ((c + 0.01, r), (c - 0.01, r), (c, 1.01 * r), (c, 0.99 * r)))
    far = [np.where(np.arange(len(x))[:, None] == 0, np.nan, x) for x in items]
    first, every = np.stack([x[1] for x in items]), np.concatenate([x[1:] for x in items])
    mean = (first.sum(0) + every.mean(0)) / 3
    assert_allclose(Differences(1).fit(sm.Sequences(far)).mean, mean, rtol=1e-12)


def test_features_of_which_nothing_is_known_are_refused() -> None:
    (x,) = walks(10)
    with pytest.raises(ValueError, match="feature 1 is missing in every frame"):
        Differences(1).fit(sm.Sequences([np.column_stack([x[:, 0], np.full(10, np.nan)])]))
    with pytest.raises(ValueError, match="feature 1 is constant, or changes by a constant amount"):
        Differences(1).fit(sm.Sequences([np.column_stack([x[:, 0], np.where(np.arange(10) == 3, 1.0, np.nan)])]))


def test_the_map_after_a_past_does_not_depend_on_how_it_was_read() -> None:
    encoding, (x,) = fitted(1, 4), walks(12)
    one_by_one = encoding.step_encoder(x[:0])
    for t, frame in enumerate(x):
        at_once = encoding.step_encoder(x[:t])
        assert one_by_one.map.is_modelled == at_once.map.is_modelled == (t >= 5)
        assert_array_equal(one_by_one.map.shift, at_once.map.shift)
        assert_array_equal(one_by_one.map.scale, at_once.map.scale)
        one_by_one = one_by_one.after(frame[None])
    two = encoding.step_encoder(x).select(np.array([0, 0]))
    assert two.map.shift.shape == (2, 2)


def test_a_file_keeps_what_was_learned_and_refuses_what_cannot_be() -> None:
    encoding = fitted(1, 4)
    again = Differences(1, 4).restore(encoding.state())
    (x,) = walks(9)
    assert_array_equal(again.of_each_frame(x), encoding.of_each_frame(x))
    with pytest.raises(ValueError, match="'scale' has 0"):
        Differences(1, 4).restore({**encoding.state(), "scale": np.zeros(2)})
    with pytest.raises(ValueError, match="'step_mean' is an array of"):
        Differences(1, 4).restore({**encoding.state(), "step_mean": np.zeros(3)})
