from __future__ import annotations

import re

import numpy as np
import pytest

from seqmodels.encodings import Features, Standardize
from seqmodels.sequences import Sequences

SHIFT, SCALE = np.array([100.0, -2.0, 0.0]), np.array([20.0, 0.01, 3.0])


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
    Standardize().fit(Sequences([frames[:60]]))  # of so few frames nothing is said


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
    np.testing.assert_array_equal(Standardize.identity(3).encode(x), x)
    np.testing.assert_array_equal(Standardize.identity(3).log_det(x), np.zeros(9))
