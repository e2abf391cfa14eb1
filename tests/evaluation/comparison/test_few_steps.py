"""What decided a comparison: the share of the largest steps, Pareto k, stacking weights, effective parameters."""

from __future__ import annotations

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.evaluation.comparison.formatted_table import decided_by_few
from seqmodels.evaluation.statistics.stacking import stacking_weights
from seqmodels.evaluation.statistics.tails import StepTails


def series(jump: float) -> sm.Sequences:
    """One sequence of 600 steps, whose last part has one jump."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 1))
    x[550] += jump
    return sm.Sequences([x])


@pytest.fixture(scope="module")
def jumping() -> sm.evaluation.Comparison:
    train, test = series(40.0).split(0.3)
    models = {"narrow": sm.HMM(1, observation=sm.GaussianMixture(1)), "broad": sm.HMM(1)}
    models["two"] = sm.HMM(2, observation=sm.GaussianMixture(1), max_iter=5)
    return sm.compare(models, train, test=test, baseline="narrow")


def steps_of(result: sm.evaluation.Comparison, name: str) -> np.ndarray:
    return np.concatenate(result.log_prob_steps[name])


def test_the_columns_are_those_of_the_steps(jumping: sm.evaluation.Comparison) -> None:
    frame = jumping.frame.set_index("model")
    for name in ("broad", "two", "iid"):
        d = steps_of(jumping, name) - steps_of(jumping, "narrow")
        tails = StepTails.of([d], len(d))
        found = frame.loc[name, ["largest_share", "difference_of_rest", "pareto_k"]].astype(float)
        np.testing.assert_allclose(found, [tails.share, tails.rest, tails.shape])
    assert frame.loc["narrow", ["largest_share", "difference_of_rest", "pareto_k"]].isna().all()
    tested = ["narrow", "broad", "two"]
    weights = stacking_weights(np.stack([steps_of(jumping, name) for name in tested], axis=1))
    np.testing.assert_allclose(frame.loc[tested, "stacking_weight"].astype(float), weights, atol=1e-6)
    assert np.isnan(frame.loc["iid", "stacking_weight"])


def test_a_difference_that_one_step_decides_is_named_in_table_words_and_page(jumping, tmp_path) -> None:
    row = jumping.frame.set_index("model").loc["broad"]
    assert row["pareto_k"] > 0.5
    assert row["largest_share"] > 0.9
    table = jumping.table().set_index("model")
    assert table.loc["broad", "Pareto k"] == f"{row['pareto_k']:.2f}"
    assert table.loc["broad", "largest 1 %"] == f"{100 * row['largest_share']:.0f} %"
    sentence = "The 1 % of steps where broad and narrow differ most make"
    assert sentence in jumping.how_to_read()
    assert "No interval of it is to be trusted: its variance is infinite" in jumping.how_to_read()
    jumping.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count(sentence) == 2  # in the summary and the notes


def test_the_added_reference_is_in_no_sentence() -> None:
    train, test = series(40.0).split(0.3)
    result = sm.compare({"broad": sm.HMM(1)}, train, test=test)
    assert result.frame.set_index("model").loc["iid", "pareto_k"] > 0.5
    assert len(decided_by_few(result.frame)) == 0


def test_a_difference_of_all_steps_has_no_such_words() -> None:
    train, test = series(0.0).split(0.3)
    models = {"narrow": sm.HMM(1), "wrong": sm.HMM(1, encoding=sm.Standardize())}
    fitted = {name: model.fit(train) for name, model in models.items()}
    fitted["wrong"] = sm.HMM(1).fit(sm.Sequences([2 * series(0.0)[0]]))
    result = sm.compare(fitted, test, iid=False)
    assert len(decided_by_few(result.frame)) == 0
    assert "Pareto k" not in result.table()
    assert "trusted" not in result.how_to_read()
    assert list(result.table()["weight"]) == ["1.00", "0.00"]
    assert "weight: that of the mixture of the models, mixed anew at each step" in result.how_to_read()


def test_an_older_table_has_no_such_columns(jumping: sm.evaluation.Comparison) -> None:
    new = ["largest_share", "difference_of_rest", "pareto_k", "stacking_weight", "n_effective"]
    older = jumping.frame.drop(columns=new)
    older.attrs = dict(jumping.frame.attrs)
    result = sm.evaluation.Comparison(older, jumping.measure, jumping.log_prob_steps, {}, {}, jumping.test)
    assert "weight" not in result.table()
    assert "trusted" not in str(result)


def test_the_effective_number_of_parameters_is_the_excess_on_the_training_part() -> None:
    rng = np.random.default_rng(0)
    data = list(rng.integers(0, 20, size=(120, 25)))
    models = {"pairs": sm.NGram(2), "hmm": sm.HMM(2, max_iter=5)}
    frame = sm.compare(models, data[:60], test=data[60:]).frame.set_index("model")
    assert frame.loc["iid", "n_effective"] == frame.loc["iid", "n_parameters"]
    excess = 60 * 25 * (frame["train_score"] - frame["score"])
    expected = excess - excess["iid"] + frame.loc["iid", "n_parameters"]
    np.testing.assert_allclose(frame["n_effective"].astype(float), expected.astype(float))
    assert frame.loc["hmm", "n_effective"] < frame.loc["pairs", "n_effective"] < 400
    without = sm.compare(models, data[60:], iid=False).frame
    assert without["n_effective"].isna().all()


def test_models_of_pieces_are_mixed_for_each_sequence() -> None:
    texts = ["the cat sat on the mat", "a cat and a rat", "the rat sat", "on a mat", "that cat", "the hat"]
    models = {"pieces": sm.NGram(2, encoding=sm.BPE(262)), "bytes": sm.NGram(2)}
    result = sm.compare(models, texts * 4, test=[f"{text}." for text in texts], iid=False)
    log_probs = [[steps.sum() for steps in result.log_prob_steps[name]] for name in models]
    found = result.frame.set_index("model").loc[list(models), "stacking_weight"]
    np.testing.assert_allclose(found.astype(float), stacking_weights(np.transpose(log_probs)), atol=1e-6)
    assert "mixed anew for each sequence" in result.how_to_read()
    one = sm.compare(result.models, ["the cat sat on that mat"], iid=False)
    assert one.frame["stacking_weight"].isna().all()


def test_one_model_alone_has_no_weight() -> None:
    data = list(np.random.default_rng(0).normal(size=(8, 30, 1)))
    result = sm.compare({"one": sm.HMM(1)}, data[:4], test=data[4:], iid=False)
    assert result.frame["stacking_weight"].isna().all()
    assert "weight" not in result.table()


def test_inference_data_have_the_steps_of_every_model(jumping: sm.evaluation.Comparison) -> None:
    pytest.importorskip("xarray")
    likelihood = jumping.to_inference_data()["log_likelihood"]
    assert set(likelihood.data_vars) == {"narrow", "broad", "two", "iid"}
    assert likelihood["two"].dims == ("chain", "draw", "step")
    np.testing.assert_array_equal(likelihood["two"].values[0, 0], steps_of(jumping, "two"))
    np.testing.assert_array_equal(likelihood["position"].values, np.arange(1, 181))
    assert (likelihood["sequence"].values == 0).all()
