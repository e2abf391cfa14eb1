"""All pairs of models: the differences that the table has, corrected for their number; figures of several seeds."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.evaluation.statistics.paired import holm, moving_block_difference, paired_difference
from seqmodels.evaluation.statistics.pairwise import model_difference, pairwise_frame


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    items = [np.cumsum(rng.random(30) < rng.uniform(0.2, 0.5)) % 4 for _ in range(40)]
    return items[:25], items[25:]


@pytest.fixture(scope="module")
def seeded(data):
    models = {"gram": sm.NGram(2), "three": sm.HMM(3, n_init=1, max_iter=3), "four": sm.HMM(4, max_iter=3)}
    return sm.compare(models, data[0], test=data[1], seeds=3)


def test_every_pair_has_the_difference_of_the_table(data):
    models = {
        name: model.fit(data[0]) for name, model in (("one", sm.HMM(1)), ("gram", sm.NGram(2)), ("two", sm.HMM(2)))
    }
    result = sm.compare(models, data[1], baseline="one")
    pairs = result.pairwise()
    assert len(pairs) == 3
    assert (pairs["difference"] >= 0).all()  # the better one first
    assert pairs["p_holm"].tolist() == holm(pairs["p_value"]).tolist()
    for row in pairs.itertuples():
        table = sm.compare(models, data[1], baseline=row.other).frame.set_index("model").loc[row.model]
        for column in ("difference", "ci_low", "ci_high", "p_value"):
            assert getattr(row, column) == pytest.approx(table[column], rel=1e-9)
    assert result.confidence_set(0.05) == list(result.frame.loc[result.frame["p_best"] >= 0.05, "model"])
    assert "one" not in result.confidence_set()
    with pytest.raises(ValueError, match="alpha"):
        result.confidence_set(0)
    with pytest.raises(ValueError, match="'wrong' is not among"):
        result.difference("one", "wrong")


def test_a_reference_that_was_added_and_rows_without_a_rank_are_no_pairs(data):
    models = {"gram": sm.NGram(2), "hmm": sm.HMM(3, max_iter=4), "failed": sm.HMM(2, observation=sm.GaussianMixture())}
    with pytest.warns(UserWarning, match="failed"):
        result = sm.compare(models, data[0], test=data[1])
    assert {*result.pairwise()["model"], *result.pairwise()["other"]} == {"gram", "hmm"}
    assert "*" not in str(result.table())  # of two models the p-value says all


def test_intervals_hold_the_spread_of_seeds(seeded, data):
    by_seed = seeded.log_prob_by_seed
    assert {name: each.shape for name, each in by_seed.items() if name != "iid"} == dict.fromkeys(
        ("gram", "three", "four"), (3, 15)
    )
    row = seeded.frame.set_index("model").loc["three"]
    units = [len(item) for item in data[1]]
    expected = paired_difference(by_seed["three"], by_seed["gram"], units)
    assert (row["ci_low"], row["ci_high"], row["p_value"]) == (expected.low, expected.high, expected.p_value)
    assert "seeds" in row["method"]
    mean = paired_difference(by_seed["three"].mean(0), by_seed["gram"].mean(0), units)
    assert expected.high - expected.low > mean.high - mean.low


def check_differences_of_scores(result: sm.evaluation.Comparison) -> None:
    score = result.frame.set_index("model")["score"]
    assert_allclose(result.frame["difference"], result.frame["score"] - score[result.baseline], rtol=0, atol=1e-12)
    for model in score.index:
        for other in score.index:
            assert_allclose(result.difference(model, other).difference, score[model] - score[other], atol=1e-12)
    pairs = result.pairwise()
    assert_allclose(
        pairs["difference"], score[pairs["model"]].to_numpy() - score[pairs["other"]].to_numpy(), atol=1e-12
    )


def test_every_difference_is_that_of_the_scores_over_seeds(data, tmp_path):
    """Also of the reference, a row of one seed, to a baseline whose seeds differ."""
    models = {"three": sm.HMM(3, max_iter=2), "gram": sm.NGram(2)}
    result = sm.compare(models, data[0], test=data[1], seeds=3)
    assert result.frame.set_index("model")["score_sd"]["three"] > 0
    assert len(result.log_prob_by_seed["iid"]) == 1
    check_differences_of_scores(result)
    result.save(tmp_path)
    check_differences_of_scores(sm.evaluation.Comparison.load(tmp_path))


def test_a_row_of_one_seed_is_compared_with_each_seed_of_the_other():
    rng = np.random.default_rng(3)
    once, often, units = rng.normal(size=(1, 8)), rng.normal(size=(3, 8)), np.arange(1.0, 9)
    found = model_difference(once, often, units, None, ("once", "often"))
    assert found == paired_difference(np.repeat(once, 3, axis=0), often, units)
    assert found.difference == pytest.approx((once.sum() - often.mean(axis=0).sum()) / units.sum(), rel=1e-14)
    assert "seeds" in found.method
    turned = model_difference(often, once, units, None, ("often", "once"))
    assert (turned.difference, turned.low, turned.high) == pytest.approx((-found.difference, -found.high, -found.low))
    with pytest.raises(ValueError, match=r"shapes \(2, 8\) and \(3, 8\); pass as many seeds"):
        model_difference(often[:2], often, units, None, ("two", "three"))


def test_seeds_are_saved(seeded, tmp_path):
    seeded.save(tmp_path / "saved")
    loaded = sm.evaluation.Comparison.load(tmp_path / "saved")
    assert loaded.pairwise().equals(seeded.pairwise())
    assert loaded.confidence_set() == seeded.confidence_set()
    assert loaded.frame.equals(seeded.frame)


def test_saved_seeds_of_another_test_part_are_refused(seeded, tmp_path):
    fewer = {name: rows[:, 1:] for name, rows in seeded.log_prob_by_seed.items()}
    replace(seeded, log_prob_by_seed=fewer).save(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"the seeds of 'gram' have \[14, 14, 14\] figures, but there are 15"):
        sm.evaluation.Comparison.load(tmp_path / "saved")


def test_one_long_sequence_has_moving_blocks_over_seeds():
    rng = np.random.default_rng(1)
    text = "".join(rng.choice(list("abc"), 900, p=[0.6, 0.3, 0.1]))
    models = {"gram": sm.NGram(2), "hmm": sm.HMM(3, max_iter=1)}
    result = sm.compare(models, [text[:600]], test=[text[600:]], seeds=2)
    row = result.frame.set_index("model").loc["hmm"]
    assert row["method"].endswith("steps and seeds")
    steps = result.log_prob_by_seed
    expected = moving_block_difference(steps["hmm"], steps["gram"], n_units=300)
    assert (row["ci_low"], row["ci_high"]) == (expected.low, expected.high)
    assert "steps and seeds" in result.how_to_read()
    check_differences_of_scores(result)
    turned = sm.compare(
        {"hmm": sm.HMM(2, max_iter=2, n_init=1), "gram": sm.NGram(1)}, [text[:600]], test=[text[600:]], seeds=2
    )
    assert turned.frame.set_index("model")["score_sd"]["hmm"] > 0
    check_differences_of_scores(turned)


def test_pairs_of_impossible_scores():
    a, b, c = np.zeros((1, 6)), np.full((1, 6), -np.inf), np.arange(6.0)[None] - 3
    frame = pairwise_frame({"a": a, "b": b, "c": c}, np.ones(6), None)
    assert frame["difference"].tolist()[0] == np.inf
    assert frame["difference"].tolist()[2] == -np.inf
    assert frame["p_holm"].notna().tolist() == [False, True, False]
    assert np.isnan(model_difference(b, b, np.ones(6), None, ("b", "b")).difference)
