"""compare: one table, paired, honest about what it cannot say."""

import math

import numpy as np
import pytest

import seqmodels as sm


@pytest.fixture(scope="module")
def draws():
    x, truth = sm.data.hmm_draws(60, 20, n_states=3, n_features=2, random_state=4)
    return x.split(0.5, random_state=1), truth


def hmms():
    return {"one": sm.HMM(1, max_iter=5), "three": sm.HMM(3, observation=sm.GaussianMixture(1), max_iter=10)}


@pytest.fixture(scope="module")
def result(draws):
    (train, test), _ = draws
    return sm.compare(hmms(), train, test=test, baseline="one", title="Draws")


def test_table_is_sorted_and_holds_the_models_own_scores(result, draws):
    (_, test), _ = draws
    frame = result.frame
    assert frame["model"].tolist() == ["three", "one"]
    for row in frame.itertuples():
        assert row.score == pytest.approx(result.models[row.model].score(test), abs=1e-12)
        assert row.bits == pytest.approx(row.score / math.log(2))
    best = frame.iloc[0]
    assert best["difference"] == pytest.approx(frame["score"].iloc[0] - frame["score"].iloc[1], abs=1e-9)
    assert best["ci_low"] < best["difference"] < best["ci_high"]
    assert best["ci_low"] > 0
    assert best["p_value"] < 0.05
    assert best["n_clusters"] == len(test)


def test_the_true_model_is_not_beaten(result, draws):
    (_, test), truth = draws
    ideal = sm.HMM.from_parameters(
        truth.initial, truth.transition, means=truth.means, covariances=truth.covariances, dtype="float64"
    )
    assert ideal.score(test) > result.frame["score"].max()


def test_fitted_models_are_scored_as_they_are(result, draws):
    (_, test), _ = draws
    again = sm.compare(result.models, test, baseline="one")
    assert again.frame["score"].tolist() == pytest.approx(result.frame["score"].tolist(), abs=1e-12)
    assert again.frame["train_score"].isna().all()


def test_unfitted_models_without_a_test_part_are_a_failure(draws):
    (train, _), _ = draws
    with pytest.warns(UserWarning, match="failed"), pytest.raises(ValueError, match="not fitted"):
        sm.compare({"one": sm.HMM(1)}, train)


def test_one_failure_does_not_lose_the_others(draws):
    (train, test), _ = draws
    models = {**hmms(), "wrong": sm.HMM(2, observation=sm.Categorical())}
    with pytest.warns(UserWarning, match="wrong failed"):
        result = sm.compare(models, train, test=test, baseline="one")
    failed = result.frame.set_index("model").loc["wrong"]
    assert "emits symbols" in failed["error"]
    assert math.isnan(failed["score"])
    assert result.frame["model"].tolist()[-1] == "wrong"
    assert "wrong failed" in str(result)
    assert result.frame["score"].notna().sum() == 2


def test_different_measures_do_not_share_a_table(draws):
    (train, test), _ = draws
    models = {"given": sm.HMM(1, max_iter=2), "stop": sm.HMM(1, max_iter=2, length="stop")}
    with pytest.raises(sm.IncomparableError, match="length is 'stop' for 'stop'"):
        sm.compare(models, train, test=test)


def test_clusters_are_the_independent_units(draws):
    (train, test), _ = draws
    grouped = sm.Sequences(test.items, clusters=[i % 6 for i in range(len(test))])
    by_cluster = sm.compare(hmms(), train, test=grouped, baseline="one").frame
    assert by_cluster["n_clusters"].max() == 6
    assert by_cluster["method"].iloc[0] == "t"
    few = sm.Sequences(test.items, clusters=[i % 3 for i in range(len(test))])
    with pytest.warns(UserWarning, match="no interval"):
        frame = sm.compare(hmms(), train, test=few, baseline="one").frame
    assert frame["ci_low"].isna().all()


def test_one_long_sequence_has_an_interval_from_moving_blocks():
    text = "the cat sat on the mat. the dog sat on the log. " * 60
    train, test = sm.Sequences([text]).split(0.3)
    result = sm.compare({"1": sm.HMM(1, max_iter=2), "4": sm.HMM(4, max_iter=5)}, train, test=test)
    best = result.frame.iloc[0]
    assert best["model"] == "4"
    assert "moving blocks" in best["method"]
    block = best["method"].split()[3]
    assert f"moving blocks of {block} to {block} steps" in result.how_to_read()
    assert best["ci_low"] < best["difference"] < best["ci_high"]


def test_an_impossible_sequence_is_counted_and_named():
    train = sm.Sequences([np.array([0, 1, 0, 1, 1]), np.array([1, 0, 0])] * 5)
    test = sm.Sequences([np.array([0, 1, 0]), np.array([2, 0])] * 5, names=[f"s{i}" for i in range(10)])
    models = {
        "smooth": sm.HMM(1, observation=sm.Categorical(pseudocount=0.1), encoding=sm.Symbols(3)),
        "sharp": sm.HMM(1, encoding=sm.Symbols(3)),
    }
    with pytest.warns(UserWarning, match="s1"):
        frame = sm.compare(models, train, test=test, baseline="smooth").frame.set_index("model")
    assert frame.loc["sharp", "n_impossible"] == 5
    assert frame.loc["sharp", "score"] == -math.inf
    assert math.isnan(frame.loc["sharp", "ci_low"])
    assert frame.loc["smooth", "n_impossible"] == 0


def test_seeds_are_averaged_and_their_spread_shown(draws):
    (train, test), _ = draws
    models = {"one": sm.HMM(1, max_iter=2), "two": sm.HMM(2, max_iter=2)}
    frame = sm.compare(models, train, test=test, seeds=2).frame.set_index("model")
    assert frame["score_sd"].notna().all()
    single = [sm.HMM(2, max_iter=2, random_state=s).fit(train).score(test) for s in (0, 1)]
    assert frame.loc["two", "score"] == pytest.approx(np.mean(single), abs=1e-12)


def test_conditional_comparison():
    x, _ = sm.data.hmm_draws(40, 12, n_states=2, n_symbols=3, random_state=0)
    (train_x, train_y), (test_x, test_y) = (part.continuation(4) for part in x.split(0.5))
    models = {"hmm": sm.HMM(2, max_iter=5), "lstm": sm.LSTM(d_model=8, max_steps=5)}
    result = sm.compare(models, train_x, train_y, test=(test_x, test_y))
    assert result.measure.conditional
    assert "of y given x" in result.how_to_read()


def test_bad_calls(draws):
    (train, test), _ = draws
    with pytest.raises(ValueError, match="no models"):
        sm.compare({}, train, test=test)
    with pytest.raises(ValueError, match="baseline 'x' is not among"):
        sm.compare(hmms(), train, test=test, baseline="x")
    with pytest.raises(ValueError, match="no column 'speaker'"):
        sm.compare(hmms(), train, test=test, cluster="speaker")


def test_what_is_written(result, tmp_path):
    result.to_csv(tmp_path / "t.csv")
    result.to_html(tmp_path / "t.html")
    page = (tmp_path / "t.html").read_text()
    assert (tmp_path / "t.csv").read_text().startswith("model,score,bits")
    assert page.count("data:image/") >= 3
    assert "://" not in page
    assert "Draws" in page
    assert result.to_markdown().count("|") > 20
    assert "(baseline)" in str(result)
    assert "higher is better" in str(result)


def test_a_baseline_that_ignores_the_source_stands_in_the_table_and_says_so():
    X, y = [[0, 1, 0]] * 8 + [[1, 1, 1]] * 8, [[0, 0]] * 8 + [[1, 1]] * 8
    models = {"read": sm.HMM(2, max_iter=2), "ignored": sm.HMM(2, max_iter=2, ignore_source=True)}
    result = sm.compare(models, X, y, test=(X, y))
    assert dict(zip(result.frame["model"], result.frame["source"], strict=True)) == {
        "read": "read",
        "ignored": "ignored",
    }
    assert "source" in result.table()
    alone = sm.compare({"one": sm.HMM(1, max_iter=2)}, y, test=y)
    assert alone.frame["source"].tolist() == [""]
    assert "source" not in alone.table()
