"""One model of a comparison: whether a floor made its score, and its peak memory."""

import math
import warnings

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.evaluation.comparison.report.ranking import summary
from seqmodels.evaluation.comparison.variance_floor import floor_effect, is_set_by_floor
from seqmodels.observations import gaussian

RNG = np.random.default_rng(0)


def rainy(n, length=40):
    """One smooth feature and one that is nearly always 0."""
    wet = RNG.random((n, length)) < 0.05
    rain = np.where(wet, RNG.gamma(2.0, size=(n, length)), 0.0)
    return sm.Sequences(list(np.stack([RNG.normal(size=(n, length)), rain], axis=2)))


@pytest.fixture(scope="module")
def parts():
    return rainy(12), rainy(8)


def floored(train, **options):
    model = sm.HMM(3, observation=sm.GaussianMixture(1, **options), max_iter=10)
    with pytest.warns(UserWarning, match=r"feature 1 is 0 in 9\d% of the frames|ended on the floor"):
        return model.fit(train)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_a_floor_under_a_spike_moves_the_score_by_half_a_logarithm_a_frame(parts, covariance_type):
    """Nearly every frame has one variance on the floor: doubled, it costs log 2 / 2 nats a frame."""
    train, test = parts
    model = floored(train, covariance_type=covariance_type)
    score = model.score(test)
    effect = floor_effect(model, score, Data.of(test))
    assert effect == pytest.approx(0.5 * math.log(2), rel=0.1)
    assert model.score(test) == pytest.approx(score, rel=1e-12)  # the model is as it was
    assert model._with_floor(1.0).score(test) == pytest.approx(score, abs=1e-9)


def test_a_network_that_stands_on_its_floor_moves_too(parts):
    train, test = parts
    with pytest.warns(UserWarning, match="feature 1 is 0 in"):
        model = sm.GRU(d_model=4, max_steps=3, observation=sm.GaussianMixture(1, min_covariance=2.0)).fit(train)
    assert model.history_["floor_hits"].iloc[-1] > 0
    assert floor_effect(model, model.score(test), Data.of(test)) > 0.2


def test_a_model_off_its_floor_is_not_scored_again(parts, monkeypatch):
    train = sm.Sequences([RNG.normal(size=(50, 2)) for _ in range(4)])
    model = sm.HMM(2, observation=sm.GaussianMixture(1), max_iter=3).fit(train)
    monkeypatch.setattr(sm.HMM, "score", lambda *_: pytest.fail("scored again"))
    assert floor_effect(model, -2.8, Data.of(train)) == 0.0


@pytest.mark.parametrize(
    ("effect", "difference", "expected"),
    [
        (0.3, -9.0, True),
        (0.04, -9.0, False),
        (0.04, 0.3, True),  # more than a tenth of the difference
        (0.02, 0.3, False),
        (0.0005, 0.001, False),
        (0.0, 0.0, False),
        (0.04, math.nan, False),
        (0.06, math.nan, True),
    ],
)
def test_what_is_too_much(effect, difference, expected):
    assert is_set_by_floor(effect, difference) is expected


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_variances_on_the_floor_go_with_it(factor):
    """Those on the floor go to its new place, those between are lifted, all others stay."""
    floor = 1e-2
    variances = torch.tensor([floor, 1.5 * floor, 0.7], dtype=torch.float64)
    wanted = torch.tensor([factor * floor, max(1.5, factor) * floor, 0.7], dtype=torch.float64)
    found = gaussian.on_floor(variances.log(), 3, "diag", floor, factor)
    torch.testing.assert_close(found.exp(), wanted)
    basis = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).Q
    shape = gaussian.shape_of_covariance((basis * variances) @ basis.T)
    moved = gaussian.covariance_of_shape(gaussian.on_floor(shape, 3, "full", floor, factor), 3, 1e-9)
    torch.testing.assert_close(moved, (basis * wanted) @ basis.T)


@pytest.mark.parametrize(
    "observation",
    [
        sm.GaussianMixture(2, "tied", min_covariance=0.5),
        sm.GaussianMixture(2, "spherical", min_covariance=0.5),
        sm.AutoregressiveGaussian(min_covariance=0.5),
        sm.AutoregressiveGaussian(covariance_type="diag", min_covariance=0.5),
        sm.Columns([(sm.GaussianMixture(1, min_covariance=0.5), 1), (sm.GaussianMixture(1), 1)]),
    ],
    ids=repr,
)
def test_every_observation_with_a_floor_has_it_moved(observation):
    """A slow sine predicts itself to less than half its variance, in every cluster: all stand on this floor."""
    t = np.arange(400) * 0.1
    train = sm.Sequences([np.stack([np.sin(t), np.cos(t)], axis=1)])
    model = sm.HMM(6, observation=observation, max_iter=5)
    with pytest.warns(UserWarning, match="ended on the floor"):
        model.fit(train)
    assert floor_effect(model, model.score(train), Data.of(train)) > 0.1
    assert model._with_floor(1.0).score(train) == pytest.approx(model.score(train), abs=1e-6)


@pytest.fixture(scope="module")
def compared(parts):
    """``sharp`` has a state for the frames without rain, of as little variance as its floor lets it have."""
    train, test = parts
    models = {
        "smooth": sm.HMM(1, observation=sm.GaussianMixture(1), max_iter=2),
        "sharp": sm.HMM(3, observation=sm.GaussianMixture(1), max_iter=10),
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = sm.compare(models, train, test=test, baseline="smooth")
    return result, [str(w.message) for w in caught]


def test_a_row_that_a_floor_made_has_no_rank_and_no_p_value(compared):
    result, said = compared
    assert any("which get no rank and no p-value: sharp by 0.3" in text for text in said)
    frame = result.frame.set_index("model")
    row = frame.loc["sharp"]
    assert row["difference"] > 1
    assert row[["rank", "p_value", "p_holm", "ci_low", "ci_high"]].isna().all()
    assert "floor of the variances set the score of 'sharp'" in row["method"]
    assert frame.loc[["smooth", "iid"], "rank"].sum() == 3.0
    assert result.frame["model"].iloc[-1] == "sharp"  # behind all that are ranked
    shown = result.table().set_index("model")
    assert (shown.loc["sharp", "rank"], shown.loc["sharp", "p"]) == ("", "")
    assert "Not ranked, and without p: sharp." in str(result)
    assert max(map(len, str(result).splitlines())) <= 120


def test_the_summary_names_who_is_best_of_those_that_are_ranked(compared):
    said = summary(compared[0])
    assert "sharp explains" not in said
    assert "Not ranked: sharp, for the floor of the variances, not the data, set the score." in said


def test_a_baseline_that_a_floor_made_leaves_no_p_value_at_all(compared, parts):
    result, _ = compared
    fitted = {name: result.models[name] for name in ("sharp", "smooth")}
    with pytest.warns(UserWarning, match="no rank and no p-value: sharp"):
        again = sm.compare(fitted, parts[1], baseline="sharp")
    assert again.frame["p_value"].isna().all()
    assert "As the baseline 'sharp' is one of them, no row has an interval." in again.how_to_read()
    with pytest.warns(UserWarning, match="no rank and no p-value: sharp"):
        alone = sm.compare({"sharp": fitted["sharp"]}, parts[1])
    assert summary(alone).startswith("No model can be ranked")


def test_a_model_of_no_step_of_training_has_no_rank():
    rng = np.random.default_rng(0)
    x = [rng.integers(0, 4, 30) for _ in range(30)]
    models = {"gram": sm.NGram(2), "hmm": sm.HMM(64), "lstm": sm.LSTM(d_model=8)}
    with pytest.warns(UserWarning, match="hmm: the budget ended before the first step of training"):
        result = sm.compare(models, x[:20], test=x[20:], budget=sm.Budget(seconds=1e-6))
    frame = result.frame.set_index("model")
    assert np.isnan(frame.loc["hmm", ["rank", "ci_low", "p_value", "p_holm", "p_best"]].astype(float)).all()
    assert frame.loc["hmm", "method"] == "none: no step of training was taken by 'hmm'"
    assert frame.loc[["gram", "lstm"], "rank"].notna().all()
    assert result.frame["model"].tolist()[-1] == "hmm"
    assert result.table().set_index("model").loc["hmm", "steps"] == "no step"
    assert "Not ranked, and without p: hmm (no step)" in result.how_to_read()
    assert "Not ranked: hmm, whose budget ended" in summary(result)
    assert "hmm" not in result.ranked
    assert any(text.get_text() == "no step of training" for text in result.ranking_figure().axes[0].texts)
    alone = sm.HMM(64, max_seconds=1e-6, max_iter=1000)
    with pytest.warns(UserWarning, match="no step|before the first step"):
        none = sm.compare({"hmm": alone}, x[:20], test=x[20:], iid=False)
    assert summary(none) == "No model can be ranked: no step of training was taken by hmm."
    assert np.isnan(none.frame["rank"]).all()
