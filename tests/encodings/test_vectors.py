from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels import (
    HMM,
    LSTM,
    Bernoulli,
    Columns,
    Features,
    GaussianMixture,
    IncomparableError,
    Poisson,
    Sequences,
    Standardize,
)
from seqmodels.encodings.defaults import default_encoding
from seqmodels.encodings.vectors import robust_units
from seqmodels.sequences.measure import check_comparable, space_of

SHIFT, SCALE = np.array([100.0, -2.0, 0.0]), np.array([20.0, 0.01, 3.0])
MIXED = np.array([[1.0, 10.0, 0.0, 3.0], [3.0, np.nan, 1.0, 0.0], [2.0, 30.0, np.nan, 7.0]])
KINDS: Any = ["reals", "reals", "bits", "counts"]


def vectors(*lengths: int) -> Sequences:
    rng = np.random.default_rng(0)
    return Sequences([SHIFT + SCALE * rng.normal(size=(n, 3)) for n in lengths])


def with_holes() -> Sequences:
    x = [np.array(item) for item in vectors(30, 20)]
    x[0][3, 0] = x[1][4, :2] = x[1][5] = np.nan
    return Sequences(x)


@pytest.mark.parametrize("x", [vectors(30, 20), with_holes()], ids=["whole", "holes"])
def test_encoded_frames_have_mean_zero_and_variance_one(x: Sequences) -> None:
    encoding = Standardize().fit(x)
    frames = np.concatenate([encoding.encode(item) for item in x])
    assert encoding.size == 3
    np.testing.assert_allclose(np.nanmean(frames, 0), 0, atol=1e-9)
    np.testing.assert_allclose(np.nanstd(frames, 0), 1)


def test_decode_undoes_encode_and_affine_says_how() -> None:
    x = with_holes()
    encoding = Standardize().fit(x)
    shift, scale = encoding.affine()
    for item in x:
        steps = encoding.encode(item)
        np.testing.assert_allclose(np.asarray(encoding.decode(steps)), np.asarray(item), rtol=1e-12)
        np.testing.assert_allclose(shift + scale * steps, np.asarray(item), rtol=1e-12)
        assert encoding.last_unit(steps).tolist() == list(range(len(steps)))


def test_log_det_is_that_of_the_jacobian_of_what_was_observed() -> None:
    x = with_holes()
    encoding = Standardize().fit(x)
    for item in x:
        frames = np.asarray(item)
        log_det = np.asarray(encoding.log_det(item))
        assert log_det.shape == (len(frames),)
        for t, frame in enumerate(frames):
            seen = np.flatnonzero(~np.isnan(frame))
            jacobian = np.zeros((len(seen), len(seen)))
            for column, feature in enumerate(seen):
                moved = frames.copy()
                moved[t, feature] += 1e-3
                jacobian[:, column] = ((encoding.encode(moved) - encoding.encode(item))[t, seen]) / 1e-3
            assert log_det[t] == pytest.approx(np.linalg.slogdet(jacobian)[1], abs=1e-6)


def test_rescaling_by_a_power_of_two_changes_no_bit_of_what_a_model_sees() -> None:
    x = vectors(30, 20)
    larger = Sequences([8 * np.asarray(item) for item in x])
    here, there = Standardize().fit(x), Standardize().fit(larger)
    for a, b in zip(x, larger, strict=True):
        np.testing.assert_array_equal(here.encode(a), there.encode(b))
        np.testing.assert_allclose(there.log_det(b), np.asarray(here.log_det(a)) - 3 * np.log(8))


def test_features_without_information_are_refused() -> None:
    x = np.asarray(vectors(30)[0]).copy()
    x[:, 1] = np.nan
    with pytest.raises(ValueError, match="feature 1 is missing in every frame"):
        Standardize().fit(Sequences([x]))
    for value in (0.0, 0.1, 1e9):  # 0.1 has rounding noise around its mean
        x[:, 1] = value
        with pytest.raises(ValueError, match="feature 1 is constant over the training data"):
            Standardize().fit(Sequences([x]))


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9])
def test_a_constant_feature_on_disk_is_refused_as_one_in_memory_is(value: float, tmp_path: Path) -> None:
    x = np.asarray(vectors(30)[0]).copy()
    x[:, 1] = value
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(ValueError, match="feature 1 is constant over the training data"):
        Standardize().fit(sm.data.on_disk(tmp_path / "x.npy"))


def test_repeated_frames_are_warned_of() -> None:
    x = np.asarray(vectors(100)[0])
    few, many = np.concatenate([x, x[:4]]), np.concatenate([x, x[:25]])
    Standardize().fit(Sequences([few]))
    with pytest.warns(UserWarning, match=re.escape("20% of the frames are exact copies") + ".*dithered"):
        Standardize().fit(Sequences([many]))


def test_dithered_values_on_a_grid_raise_no_warning() -> None:
    grid = Sequences([np.random.default_rng(0).integers(0, 4, (200, 2))])
    with pytest.warns(UserWarning, match="exact copies"):
        Standardize().fit(grid)
    Standardize().fit(grid.dithered())


def test_one_warning_names_every_feature_whose_values_repeat() -> None:
    rng = np.random.default_rng(0)
    smooth, coarse, fine = rng.normal(size=(3, 1000))
    rain = np.where(np.arange(1000) % 25 == 0, rng.gamma(2.0, size=1000), 0.0)
    frames = np.stack([smooth, np.round(5 * coarse) / 5, np.round(fine, 3), rain], axis=1)
    with pytest.warns(UserWarning, match="densities grow without bound") as caught:
        Standardize().fit(Sequences([frames]))
    (said,) = [str(w.message) for w in caught]
    assert said.startswith("feature 3 is 0 in 96% of the frames; feature 1 lies on a grid of step 0.2: ")
    Standardize().fit(Sequences([frames[:, [0, 2]]]))  # steps of a thousandth of a deviation bind no variance
    Standardize().fit(Sequences([frames[:99]]))  # of so few frames nothing is said
    with pytest.warns(UserWarning, match="feature 3 is 0 in 96%"):
        Standardize().fit(Sequences([frames[:100]]))


def test_bits_and_counts_are_no_concern_of_a_density() -> None:
    rng = np.random.default_rng(0)
    rain = np.where(np.arange(1000) % 25 == 0, rng.gamma(2.0, size=1000), 0.0)
    x = Sequences([np.stack([rng.integers(0, 2, 1000), rng.normal(size=1000), rain], axis=1)])
    with pytest.warns(UserWarning, match="feature 2 is 0 in 96% of the frames: densities"):
        Features(["bits", "reals", "reals"]).fit(x)


def test_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="sequence 4 has 2 features but the model was fitted on 3"):
        Standardize().fit(vectors(9)).check(4, np.zeros((5, 2)))
    Standardize().fit(vectors(9)).check(4, np.zeros((5, 3)))


def test_state_is_all_there_is() -> None:
    x = vectors(30)
    fitted = Standardize().fit(x)
    restored = Standardize().restore(fitted.state())
    np.testing.assert_array_equal(restored.encode(x[0]), fitted.encode(x[0]))
    assert restored.size == 3
    assert not hasattr(fitted.clone(), "size")


def test_the_identity_changes_nothing() -> None:
    x = np.asarray(vectors(9)[0])
    np.testing.assert_array_equal(Standardize().identity(3).encode(x), x)
    np.testing.assert_array_equal(Standardize().identity(3).log_det(x), np.zeros(9))


# -- features of several kinds -----------------------------------------------------------------------------


def test_reals_are_standardised_and_whole_numbers_are_not() -> None:
    encoding, reals = Features(KINDS).fit(Sequences([MIXED])), Standardize().fit(Sequences([MIXED[:, :2]]))
    np.testing.assert_array_equal(encoding.encode(MIXED)[:, :2], reals.encode(MIXED[:, :2]))
    np.testing.assert_array_equal(encoding.encode(MIXED)[:, 2:], MIXED[:, 2:])
    np.testing.assert_allclose(encoding.decode(encoding.encode(MIXED)), MIXED)
    np.testing.assert_allclose(encoding.log_det(MIXED), reals.log_det(MIXED[:, :2]))
    assert encoding.values() == ("reals", "reals", "bits", "counts")
    np.testing.assert_array_equal(Features("bits").fit(Sequences([MIXED[:, 2:3]])).log_det(MIXED[:, 2:3]), 0.0)


def test_positive_features_are_scaled_and_proportions_and_angles_are_not() -> None:
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(size=50), rng.gamma(2.0, 9.0, 50), rng.random(50), rng.uniform(-3, 3, 50)], 1)
    encoding = Features(["reals", "positive", "proportions", "angles"]).fit(Sequences([x]))
    np.testing.assert_allclose(encoding.mean, [x[:, 0].mean(), 0.0, 0.0, 0.0])
    np.testing.assert_allclose(encoding.scale, [x[:, 0].std(), x[:, 1].std(), 1.0, 1.0])
    np.testing.assert_allclose(encoding.log_det(x), -np.log(encoding.scale).sum())
    assert space_of(encoding.values()) == "R^4"
    encoding.check(0, np.full((1, 4), np.nan))
    for feature, value, words in ((1, 0.0, "above 0;"), (2, 1.0, "above 0 and below 1;"), (3, 3.2, "an angle in rad")):
        wrong = x.copy()
        wrong[7, feature] = value
        with pytest.raises(ValueError, match=rf"at frame 7, feature {feature}, which must be {words}"):
            encoding.check(0, wrong)
    x[:, 3] = 1.0
    with pytest.raises(ValueError, match="feature 3 is constant"):
        Features(["reals", "positive", "proportions", "angles"]).fit(Sequences([x]))


def test_amounts_are_scaled_and_a_zero_has_no_determinant() -> None:
    rng = np.random.default_rng(0)
    x = np.stack([np.where(rng.random(50) < 0.4, 0.0, rng.gamma(2.0, 9.0, 50)), rng.normal(size=50)], 1)
    x[3, 0] = np.nan
    encoding = Features(["amounts", "reals"]).fit(Sequences([x]))
    np.testing.assert_allclose([encoding.mean[0], encoding.scale[0]], [0.0, np.nanstd(x[:, 0])])
    expected = np.where(x[:, 0] > 0, -np.log(encoding.scale[0]), 0.0) - np.log(encoding.scale[1])
    np.testing.assert_allclose(encoding.log_det(x), expected)
    np.testing.assert_allclose(encoding.of_each_value(x).sum(1), expected)
    one_by_one = [encoding.step_encoder(x[:0]).map.log_det(frame[None])[0] for frame in x]
    np.testing.assert_allclose(one_by_one, expected)
    x[5, 0] = -1.0
    with pytest.raises(ValueError, match="has -1 at frame 5, feature 0, which must be 0 or above"):
        encoding.check(0, x)


def test_a_constant_bit_is_no_trouble_and_a_constant_real_is() -> None:
    constant = MIXED.copy()
    constant[:, 2] = 1.0
    assert Features(KINDS).fit(Sequences([constant])).size == 4
    constant[:, 0] = 1.0
    with pytest.raises(ValueError, match="feature 0 is constant"):
        Features(KINDS).fit(Sequences([constant]))
    constant[:, 3] = np.nan
    with pytest.raises(ValueError, match="feature 3 is missing in every frame"):
        Features(KINDS).fit(Sequences([constant]))
    with pytest.raises(ValueError, match="says what 1 features are but the sequences have 4"):
        Features(["bits"]).fit(Sequences([MIXED]))


@pytest.mark.parametrize("model", [HMM(2, max_iter=2), LSTM(d_model=4, max_steps=2)], ids=repr)
@pytest.mark.parametrize(
    ("observation", "value", "wanted"),
    [
        (Bernoulli(), 2, "which must be 0 or 1; mark .* another observation: Poisson for counts"),
        (Bernoulli(), 0.5, "which must be 0 or 1"),
        (Bernoulli(), -1, "which must be 0 or 1"),
        (Poisson(), -1, "which must be a count: 0, 1, 2, ...; mark .* another observation: GaussianMixture for reals"),
        (Poisson(), 0.5, "which must be a count"),
        (Columns([(GaussianMixture(1), 1), (Poisson(), 2)]), -1, "which must be a count"),
    ],
)
def test_values_that_cannot_be_are_named_before_any_work(
    model: Any, observation: Any, value: float, wanted: str
) -> None:
    rng = np.random.default_rng(0)
    good = [rng.integers(2, size=(n, 3)).astype(float) for n in (9, 8)]
    if isinstance(observation, Columns):
        for x in good:
            x[:, 0] += rng.random(len(x))
    bad = [x.copy() for x in good]
    bad[1][5, 2] = value
    message = rf"sequence 1 has {value:g} at frame 5, feature 2, {wanted}"
    fitted = model.clone().set_params(observation=observation).fit(good, validation=None)
    before = fitted.log_prob(good)
    for ask in (fitted.fit, fitted.score):
        with pytest.raises(ValueError, match=message):
            ask(bad)
    np.testing.assert_allclose(fitted.log_prob(good), before, rtol=1e-5, atol=1e-5)


def test_of_many_short_sequences_the_wrong_one_is_named() -> None:
    items = [np.array([[0.0], [1.0], [n % 3]]) for n in range(40)]
    encoding = Features("counts").fit(Sequences(items))
    encoding.check_all(Sequences(items))
    items[37] = np.array([[2.0], [0.5]])
    with pytest.raises(ValueError, match=r"sequence 37 has 0\.5 at frame 1, feature 0"):
        encoding.check_all(Sequences(items))
    with pytest.raises(ValueError, match="sequence 0 has 2 features"):
        encoding.check_all(Sequences([np.ones((2, 2))] * 40))


def test_the_observation_says_what_it_wants() -> None:
    assert repr(default_encoding("vectors", Bernoulli(), 3)) == "Features(kinds='bits')"
    assert repr(default_encoding("vectors", GaussianMixture(), 3)) == "Standardize()"
    bits = [np.array([[0.0, 1.0], [1.0, 0.0]])]
    with pytest.raises(
        ValueError,
        match=re.escape(
            "Bernoulli() emits bits at feature 0 but the encoding Standardize() gives reals; leave encoding='auto'"
        ),
    ):
        HMM(1, observation=Bernoulli(), encoding=Standardize()).fit(bits)


def test_probabilities_and_densities_do_not_share_a_table() -> None:
    rng = np.random.default_rng(0)
    x = [rng.integers(2, size=(40, 2)) + 0.0]
    bits = HMM(1, observation=Bernoulli()).fit(x)
    with pytest.warns(UserWarning, match="exact copies"):
        reals = HMM(1, observation=GaussianMixture(1)).fit(x)
    counts = HMM(1, observation=Poisson()).fit(x)
    assert [m.measure_.space for m in (bits, reals, counts)] == ["{0,1}^2", "R^2", "N^2"]
    for other in (reals, counts):
        with pytest.raises(IncomparableError, match="space is"):
            check_comparable({"bits": bits.measure_, "other": other.measure_})


def test_positive_reals_are_scaled_and_not_shifted() -> None:
    x = Sequences([1 + np.abs(item) for item in vectors(30, 20)])
    scaled, standardised = Standardize(with_mean=False).fit(x), Standardize().fit(x)
    np.testing.assert_array_equal(scaled.scale, standardised.scale)
    assert all((scaled.encode(item) > 0).all() for item in x)
    np.testing.assert_allclose(scaled.decode(scaled.encode(x[0])), x[0], rtol=1e-14)


@pytest.mark.parametrize(
    ("rows", "hint"),
    [
        ([[0.0, 1.0], [0.0, 0.0], [0.0, np.nan]], r"all features are bits: pass observation=Bernoulli\(\), or leave"),
        ([[0.0, 7.0], [0.0, 0.0]], r"all features are counts: pass observation=Poisson\(\), or leave"),
        ([[0.0, 0.5], [0.0, 0.0]], "unbounded; leave the feature out"),
    ],
)
def test_a_constant_feature_of_whole_numbers_names_their_observation(rows: list[list[float]], hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        sm.HMM(2).fit([np.array(rows)])


def test_units_are_robust_only_where_outliers_set_the_deviation() -> None:
    rng = np.random.default_rng(0)
    clean, mostly_equal = (
        rng.normal(2.0, 3.0, 2000),
        np.where(rng.uniform(size=2000) < 0.85, 1.0, rng.normal(size=2000)),
    )
    with_outliers, equal_with_outlier = clean.copy(), mostly_equal.copy()
    with_outliers[::100], equal_with_outlier[0] = 1e6, 1e6
    frames = np.column_stack([clean, with_outliers, mostly_equal, equal_with_outlier, with_outliers])
    mean, deviation = frames.mean(0), frames.std(0)
    shift, scale = robust_units(mean, deviation, frames, [True, True, True, True, False])
    np.testing.assert_array_equal(scale[[0, 2, 4]], deviation[[0, 2, 4]])
    np.testing.assert_array_equal(shift[[0, 2, 4]], mean[[0, 2, 4]])
    np.testing.assert_allclose([shift[1], scale[1]], [np.median(with_outliers), 3.0], rtol=0.1)
    assert 0.1 < scale[3] < 2.0  # of nineteen of twenty, as four fifths are equal
    assert deviation[3] > 1e4
