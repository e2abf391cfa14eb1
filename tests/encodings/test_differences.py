from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

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
    holes = x.copy()
    holes[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"NaN at frame 3, and this model cannot sum out .* no difference"):
        fitted().check(0, holes)
    with pytest.raises(ValueError, match="NaN at frame 3"):
        sm.HMM(2, encoding=Differences(1)).fit([holes])
    with pytest.raises(ValueError, match="has 3 features but the model was fitted on 2"):
        fitted().check(0, np.ones((4, 3)))
    with pytest.raises(ValueError, match=r"sequence 1 has 4 frames, but Differences.* pass at least 6"):
        Differences(1, 4).fit(sm.Sequences([x[:2], x[:4]]))
    with pytest.raises(ValueError, match="changes nothing"):
        Differences(0).fit(sm.Sequences([x]))
    with pytest.raises(ValueError, match="season is 1"):
        Differences(1, 1).fit(sm.Sequences([x]))
    with pytest.raises(ValueError, match="feature 1 is constant, or changes by one amount"):
        Differences(1).fit(sm.Sequences([np.stack([x[:, 0], np.arange(6.0)], axis=1)]))


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
