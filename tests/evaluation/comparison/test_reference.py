"""The row of independent steps: of the same measure as the others, no contestant, and left out where it cannot be."""

import math

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.evaluation.statistics.paired import holm
from seqmodels.observations import LogNormal, ZeroInflated

RNG = np.random.default_rng(0)
VECTORS = [RNG.normal(size=(12, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]]) for _ in range(16)]


def test_it_is_one_gaussian_of_the_training_part():
    train, test = VECTORS[:10], VECTORS[10:]
    result = sm.compare({"lone": sm.HMM(2, observation=sm.GaussianMixture(1), max_iter=2)}, train, test=test)
    frame = result.frame.set_index("model")
    seen, unseen = np.concatenate(train), np.concatenate(test)
    mean, covariance = seen.mean(0), np.cov(seen.T, bias=True)
    left = unseen - mean
    wanted = -0.5 * (
        np.einsum("ti,ij,tj->t", left, np.linalg.inv(covariance), left) + np.log(np.linalg.det(covariance))
    )
    assert frame.loc["iid", "score"] == pytest.approx((wanted - math.log(2 * math.pi)).mean(), abs=1e-5)
    assert result.models["iid"].n_states == 1
    assert "iid: one Gaussian" in result.how_to_read()


def test_it_is_no_contestant():
    """Its row is not tested, and the others' p-values are those of a table without it."""
    train, test = VECTORS[:8], VECTORS[8:]
    models = {f"hmm-{k}": sm.HMM(k, observation=sm.GaussianMixture(1), max_iter=3) for k in (1, 2, 3)}
    here = sm.compare(models, train, test=test).frame.set_index("model")
    there = sm.compare(models, train, test=test, iid=False).frame.set_index("model")
    assert set(here.index) - set(there.index) == {"iid"}
    assert here.loc["iid", ["p_value", "ci_low", "ci_high"]].isna().all()
    assert here.loc["iid", "method"] == "none: a reference, not tested"
    for column in ("score", "difference", "ci_low", "ci_high", "p_value", "p_holm"):
        expected = pytest.approx(there[column].tolist(), nan_ok=True, rel=1e-9, abs=1e-12)
        assert here.loc[there.index, column].tolist() == expected
    raw = there["p_value"].dropna()
    assert len(raw) == 2
    assert np.isfinite(holm(raw)).all()


@pytest.mark.filterwarnings("ignore:.*also occur in the training part", "ignore:no interval")
@pytest.mark.parametrize(
    ("data", "model", "words"),
    [
        (["abab", "baba", "aab"] * 4, lambda: sm.HMM(2, max_iter=1), "independent bytes"),
        ([[0, 1, 2], [2, 2, 1, 0]] * 5, lambda: sm.HMM(2, max_iter=1, encoding=sm.Symbols(5)), "independent symbols"),
        (
            [np.eye(3)[RNG.integers(0, 3, 9)] for _ in range(9)],
            lambda: sm.HMM(2, observation=sm.Bernoulli(), max_iter=1),
            "independent frames",
        ),
        (
            [np.column_stack([x, RNG.poisson(3.0, len(x))]) for x in VECTORS],
            lambda: sm.HMM(2, observation=sm.Columns([(sm.GaussianMixture(1), 2), (sm.Poisson(), 1)]), max_iter=1),
            "independent frames",
        ),
        (
            [np.where(np.abs(x) < 0.5, 0.0, np.abs(x)) for x in VECTORS],
            lambda: sm.HMM(2, observation=ZeroInflated(LogNormal()), max_iter=1),
            "independent frames",
        ),
        (VECTORS, lambda: sm.HMM(1, max_iter=1, length="stop"), "one Gaussian"),
    ],
    ids=["text", "symbols", "bits", "columns", "amounts", "stop"],
)
def test_it_has_the_measure_of_the_others(data, model, words):
    result = sm.compare({"model": model()}, data[:-3], test=data[-3:])
    assert result.models["iid"].measure_ == result.models["model"].measure_
    assert result.frame.attrs["iid_words"] == words


@pytest.mark.filterwarnings("ignore:no interval")
def test_of_pairs_it_does_not_look_at_the_sources():
    X = [RNG.normal(size=(4, 1)) for _ in range(12)]
    y = ["ab" if x.mean() > 0 else "ba" for x in X]
    model = sm.LSTMSeq2Seq(d_model=4, max_steps=2)
    result = sm.compare({"model": model}, X[:8], y[:8], test=(X[8:], y[8:]))
    assert result.frame.set_index("model").loc["iid", "source"] == "ignored"
    assert result.models["iid"].measure_.conditional


@pytest.mark.filterwarnings("ignore:.*on the floor of the variances", "ignore:the floor of the variances, not the data")
def test_what_is_worse_is_said():
    train, test = VECTORS[:10], VECTORS[10:]
    poor = sm.HMM(1, observation=sm.GaussianMixture(1, min_covariance=9.0), max_iter=1)
    result = sm.compare({"good": sm.HMM(1, observation=sm.GaussianMixture(1, "full")), "poor": poor}, train, test=test)
    assert "Worse than one Gaussian: poor." in str(result)


def test_a_users_own_takes_its_place_and_is_tested():
    train, test = VECTORS[:10], VECTORS[10:]
    own = sm.HMM(1, observation=sm.GaussianMixture(1))
    result = sm.compare({"two": sm.HMM(2, max_iter=2), "iid": own}, train, test=test)
    assert len(result.frame) == 2
    assert result.models["iid"] is own
    assert np.isfinite(result.frame.set_index("model").loc["iid", "p_value"])


def test_where_it_cannot_be_a_note_says_so():
    fitted = {"one": sm.HMM(1, max_iter=1).fit(VECTORS)}
    result = sm.compare(fitted, VECTORS)
    assert result.frame["model"].tolist() == ["one"]
    assert "No row 'iid': there is no training part to fit one to." in result.how_to_read()
    assert "iid" not in sm.compare(fitted, VECTORS, iid=False).how_to_read()
    assert list(fitted) == ["one"]  # what was passed in is as it was
