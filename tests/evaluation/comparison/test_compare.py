"""compare: one table, paired, that says what it cannot know; and sequences in two parts of the data."""

import math
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.evaluation.comparison.comparison_frame import TIMES
from seqmodels.evaluation.comparison.formatted_table import formatted_table, how_to_read
from seqmodels.evaluation.comparison.overlap import n_shared, warn_of_overlap


@pytest.fixture(scope="module")
def draws():
    x, truth = sm.data.hmm_draws(60, 20, n_states=3, n_features=2, random_state=4)
    return x.split(0.5, random_state=1), truth


def hmms():
    return {"one": sm.HMM(1, max_iter=5), "three": sm.HMM(3, observation=sm.GaussianMixture(1), max_iter=10)}


@pytest.fixture(scope="module")
def result(draws):
    (train, test), _ = draws
    return sm.compare(hmms(), train, test=test, baseline="one", title="Draws", iid=False)


def test_table_is_sorted_and_holds_the_models_own_scores(result, draws):
    (_, test), _ = draws
    frame = result.frame
    assert frame["model"].tolist() == ["three", "one"]
    for row in frame.itertuples():
        assert row.score == pytest.approx(result.models[row.model].score(test), abs=1e-12)
        assert row.bits == pytest.approx(-row.score / math.log(2))
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


def test_an_interval_leaves_out_zero_where_the_p_beside_it_is_below_a_twentieth():
    """Of the row alone; the correction for the number of models stands in a column of its own, and in the note under
    the table.
    """
    rng, found = np.random.default_rng(0), []
    models = {"base": sm.HMM.from_parameters([1.0], [[1.0]], emission=[[0.5, 0.5]])}
    models |= {
        f"{p}": sm.HMM.from_parameters([1.0], [[1.0]], emission=[[p, 1 - p]]) for p in (0.4, 0.45, 0.48, 0.52, 0.55)
    }
    for n in (6, 15, 30):
        test = [(rng.uniform(size=length) < rng.uniform(0.2, 0.7)).astype(int) for length in rng.integers(2, 60, n)]
        found.append(sm.compare(models, test))
    rows = pd.concat([result.frame[result.frame["model"] != "base"] for result in found])
    excludes = (rows["ci_low"] > 0) | (rows["ci_high"] < 0)
    assert ((rows["p_value"] < 0.05) == excludes).all()
    assert (rows["p_holm"] >= rows["p_value"]).all()
    assert (excludes & (rows["p_holm"] > 0.05)).any()  # what stood side by side without a word
    assert found[0].table().columns.tolist()[4:7] == ["95 % interval", "p", "p (Holm)"]
    said = found[0].how_to_read()
    assert (
        "p: two-sided, of that model alone, as its interval is: below 0.05 where the interval leaves out zero" in said
    )
    assert "p (Holm): corrected for the number of models" in said


def test_one_model_beside_the_baseline_has_one_p_and_so_has_a_table_of_before(result):
    assert "p (Holm)" not in result.table()
    assert "Holm" not in result.how_to_read()
    before = result.frame.drop(columns="p_holm")
    before.attrs = result.frame.attrs
    assert [c for c in formatted_table(before) if c.startswith("p")] == ["p (Holm)", "parameters"]
    assert "p (Holm): corrected" in how_to_read(before, result.measure, result.test)


def test_fitted_models_are_scored_as_they_are(result, draws):
    (_, test), _ = draws
    again = sm.compare(result.models, test, baseline="one")
    assert again.frame["score"].tolist() == pytest.approx(result.frame["score"].tolist(), abs=1e-12)
    assert again.frame["train_score"].isna().all()


def test_unfitted_models_without_a_test_part_are_a_failure(draws):
    (train, _), _ = draws
    with pytest.raises(ValueError, match=r"none of the models is fitted, and there is no test part .* pass test="):
        sm.compare({"one": sm.HMM(1), "two": sm.HMM(2)}, train)


def test_one_failure_does_not_lose_the_others(draws):
    (train, test), _ = draws
    models = {**hmms(), "wrong": sm.HMM(2, observation=sm.Categorical())}
    with pytest.warns(UserWarning, match="wrong failed"):
        result = sm.compare(models, train, test=test, baseline="one")
    failed = result.frame.set_index("model").loc["wrong"]
    assert "emits symbols" in failed["error"]
    assert math.isnan(failed["score"])
    assert result.frame["model"].tolist()[-1] == "wrong"
    assert result.frame["rank"].tolist() == pytest.approx([1, 2, 3, math.nan], nan_ok=True)
    assert "wrong failed" in str(result)
    assert result.frame["score"].notna().sum() == 3  # with iid


def test_a_model_without_a_seed_fails_alone(draws):
    (train, test), _ = draws
    models = {"one": sm.HMM(1, max_iter=2), "wrong": sm.HMM(2, random_state=None)}
    with pytest.warns(UserWarning, match="wrong failed: random_state is None"):
        result = sm.compare(models, train, test=test, seeds=2)
    assert result.frame.set_index("model").loc["one", "error"] == ""


def test_different_measures_do_not_share_a_table(draws):
    (train, test), _ = draws
    models = {"given": sm.HMM(1, max_iter=2), "stop": sm.HMM(1, max_iter=2, length="stop")}
    with pytest.raises(sm.IncomparableError, match="length is 'stop' for 'stop'"):
        sm.compare(models, train, test=test)


def test_a_part_without_a_value_is_refused(draws):
    """Every model gives it 0.0 nats."""
    (train, test), _ = draws
    nothing = [np.full((4, 2), np.nan)] * 3
    with pytest.raises(ValueError, match=r"every value of the test part is missing, so that every model would score 0"):
        sm.compare(hmms(), train, test=nothing)
    with pytest.raises(ValueError, match=r"every value of the validation part is missing"):
        sm.compare(hmms(), train, test=test, validation=nothing)


def test_parts_are_dithered_alike_or_not_at_all():
    rng = np.random.default_rng(0)
    train, test = (sm.Sequences([rng.choice(v, (60, 1)) for _ in range(6)]) for v in ([0.0, 0.3, 1.3], [0.0, 1.0, 2.0]))
    models = {"one": sm.HMM(1, max_iter=1)}
    noisy = train.dithered()
    for part in (test.dithered(), test):  # by a grid of its own, 1.0 for 0.3; not at all
        with pytest.raises(
            ValueError, match=r"the training part is dithered over a grid of \(0.3,\) but the test part"
        ):
            sm.compare(models, noisy, test=part)
    right = test.dithered(like=noisy)
    with pytest.raises(ValueError, match="but the validation part"):
        sm.compare(models, noisy, test=right, validation=test.dithered())
    found = sm.compare(models, noisy, test=right)
    assert found.measure.grid == noisy.grid
    wider = sm.HMM(1, max_iter=1).fit(test.dithered())
    with pytest.raises(sm.IncomparableError, match="grid is"):
        sm.compare({"one": models["one"], "wider": wider}, [np.asarray(x) for x in right])
    with pytest.raises(ValueError, match=r"test\.dithered"):
        wider.score(right)


def test_clusters_are_the_independent_units(draws):
    (train, test), _ = draws
    grouped = sm.Sequences(test.items, clusters=[i % 6 for i in range(len(test))])
    by_cluster = sm.compare(hmms(), train, test=grouped, baseline="one").frame
    assert by_cluster["n_clusters"].max() == 6
    assert by_cluster["method"].iloc[0].startswith("t over clusters")
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
    assert f"moving blocks of {block} steps" in result.how_to_read()
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


@pytest.mark.parametrize(("baseline", "difference"), [("sharp", math.inf), ("smooth", -math.inf)])
def test_who_holds_a_test_sequence_to_be_impossible_is_infinitely_worse(baseline, difference):
    """The difference is the model minus the baseline: +inf, not -inf, where only the baseline has a -inf."""
    train, test = [[0, 1, 0], [1, 0]] * 5, [[0, 1, 1], [2, 0]] * 5
    models = {
        "smooth": sm.HMM(1, observation=sm.Categorical(pseudocount=0.1), encoding=sm.Symbols(3)),
        "sharp": sm.HMM(1, encoding=sm.Symbols(3)),
    }
    with pytest.warns(UserWarning, match="sharp: log p is -inf for sequence 1, 3") as caught:
        result = sm.compare(models, train, test=test, baseline=baseline)
    assert not any("smooth" in str(w.message) for w in caught)
    row = result.frame.set_index("model").loc[({"smooth", "sharp"} - {baseline}).pop()]
    assert row["difference"] == difference
    assert "'sharp'" in row["method"]
    assert "'smooth'" not in row["method"]
    assert f"{difference:+.4f}" in str(result)


def test_of_two_that_hold_test_sequences_to_be_impossible_nothing_can_be_said():
    train, test = [[0, 1, 0], [1, 0]] * 5, [[0, 1, 1], [2, 0]] * 5
    models = {"one": sm.HMM(1, encoding=sm.Symbols(3)), "two": sm.HMM(2, encoding=sm.Symbols(3), max_iter=2)}
    with pytest.warns(UserWarning, match="log p is -inf for sequence 1, 3"):
        result = sm.compare(models, train, test=test)
    row = result.frame.set_index("model").loc["two"]
    assert math.isnan(row["difference"])
    assert row["score"] == -math.inf
    shown = result.table().set_index("model").loc["two"]
    assert (shown["difference"], shown["score"]) == ("", "-inf")  # the print says what the frame says


def test_no_row_is_made_of_what_is_no_number(draws, monkeypatch):
    (train, test), _ = draws
    broken = sm.HMM(1, max_iter=1)
    steps = [np.array([0.0, np.nan])] * len(test)
    monkeypatch.setattr(type(broken), "log_prob_steps", lambda self, X, y=None: steps)
    with (
        pytest.warns(UserWarning, match="broken failed"),
        pytest.raises(ValueError, match="log p is nan at step 1 of test sequence 0"),
    ):
        sm.compare({"broken": broken}, train, test=test)


def test_seeds_are_averaged_and_their_spread_shown(draws):
    (train, test), _ = draws
    models = {"one": sm.HMM(1, max_iter=2), "two": sm.HMM(2, max_iter=2)}
    result = sm.compare(models, train, test=test, seeds=2)
    frame = result.frame.set_index("model")
    single = [sm.HMM(2, max_iter=2, random_state=s).fit(train).score(test) for s in (0, 1)]
    assert frame.loc["two", "score"] == pytest.approx(np.mean(single), abs=1e-12)
    assert frame.loc["two", "score_sd"] == pytest.approx(np.std(single, ddof=1), abs=1e-12)
    steps = result.steps.query("model == 'two'")["log_prob"]
    assert steps.sum() / test.n_units.sum() == pytest.approx(np.mean(single), abs=1e-12)
    assert frame.loc["two", "difference"] == pytest.approx(np.mean(single) - frame.loc["one", "score"], abs=1e-12)
    assert "hold the spread over both" in result.how_to_read()


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
    with pytest.raises(ValueError, match="seeds is 0"):
        sm.compare(hmms(), train, test=test, seeds=0)
    with pytest.raises(ValueError, match=r"budget is 60; pass Budget\(seconds=60\)"):
        sm.compare(hmms(), train, test=test, budget=60)


EVERY_FAMILY = {
    "hmm": lambda: sm.HMM(2, max_iter=9),
    "ngram": lambda: sm.NGram(2),
    "lstm": lambda: sm.LSTM(d_model=4),
    "transformer": lambda: sm.Transformer(d_model=8, n_layers=1, context=6),
    "seq2seq": lambda: sm.LSTMSeq2Seq(d_model=4),
}


@pytest.mark.slow
@pytest.mark.parametrize("conditional", [False, True], ids=["p(x)", "p(y|x)"])
def test_two_runs_give_the_same_table_to_the_last_digit(conditional):
    x, _ = sm.data.hmm_draws(36, 9, n_states=2, n_symbols=3, random_state=0)
    train, test = x.split(0.4)
    pairs = (*train.continuation(3), test.continuation(3)) if conditional else (train, None, test)
    families = {n: make for n, make in EVERY_FAMILY.items() if conditional or n != "seq2seq"}
    runs = []
    for _ in range(2):
        models = {name: make() for name, make in families.items()}
        runs.append(sm.compare(models, *pairs[:2], test=pairs[2], budget=sm.Budget(steps=3), seeds=2))
    here, there = (run.frame.drop(columns=list(TIMES)) for run in runs)
    pd.testing.assert_frame_equal(here, there, rtol=1e-4)
    pd.testing.assert_frame_equal(runs[0].steps, runs[1].steps, rtol=1e-4, atol=1e-4)
    assert here["error"].eq("").all()
    assert here.loc[here["model"] != "iid", "score_sd"].notna().all()


def test_the_table_says_what_was_spent(draws):
    (train, test), _ = draws
    models = {"two": sm.HMM(2), "three": sm.HMM(3, observation=sm.GaussianMixture(1))}
    budget = sm.Budget(steps=2, parameters=60)
    frame = sm.compare(models, train, test=test, budget=budget, iid=False).frame.set_index("model")
    assert (frame["n_parameters"] <= 60).all()
    assert (frame["n_parameters"] > 40).all()
    assert frame["budget"].to_dict() == {n: f"max_iter=2, n_states={m.n_states}" for n, m in models.items()}
    assert (frame["steps"] == 2).all()
    assert (frame["scoring_throughput"] > 0).all()
    assert (frame["peak_memory"] > 0).all() or frame["peak_memory"].isna().all()
    assert not frame["converged"].any()
    assert frame["perplexity"].isna().all()


def test_what_a_budget_has_no_hold_on_is_named():
    models = {"ngram": sm.NGram(2), "hmm": sm.HMM(2)}
    said = sm.compare(models, ["abab", "ba"] * 6, test=["abba"] * 5, budget=sm.Budget(steps=1)).how_to_read()
    assert "The budget has no hold on ngram." in said
    assert "no hold" not in sm.compare(models, ["abab", "ba"] * 6, test=["abba"] * 5).how_to_read()


def test_a_model_that_the_budget_cannot_hold_fails_alone(draws):
    (train, test), _ = draws
    models = {"one": sm.HMM(1, max_iter=1), "lstm": sm.LSTM()}
    with pytest.warns(UserWarning, match="lstm failed: the smallest model, with d_model=8"):
        frame = sm.compare(models, train, test=test, budget=sm.Budget(parameters=50)).frame
    assert set(frame["model"][:2]) == {"one", "iid"}
    assert frame["model"].tolist()[2:] == ["lstm"]


def test_own_settings_stand_without_a_budget(draws):
    (train, test), _ = draws
    models = hmms()
    frame = sm.compare(models, train, test=test).frame
    assert models["three"].max_iter == 10
    assert frame["budget"].eq("").all()
    assert frame["trials"].eq(0).all()


def test_validation_is_what_networks_stop_by(draws):
    (train, test), _ = draws
    held_out = train[:4]
    found = sm.compare({"gru": sm.GRU(d_model=4, max_steps=4)}, train[4:], test=test, validation=held_out, iid=False)
    wanted = sm.GRU(d_model=4, max_steps=4).fit(train[4:], validation=held_out)
    assert found.frame["score"].iloc[0] == pytest.approx(wanted.score(test), rel=1e-5)
    assert set(found.provenance["sha256"]) == {"train x", "validation x", "test x"}
    again = sm.compare(
        {"gru": sm.GRU(d_model=4, max_steps=4)}, train[4:], test=test, validation=(x for x in held_out), iid=False
    )
    wanted_history = pytest.approx(found.histories["gru"]["validation"].tolist(), rel=1e-5)
    assert again.histories["gru"]["validation"].tolist() == wanted_history
    nothing = sm.compare({"gru": sm.GRU(d_model=4, max_steps=4)}, train, test=test, validation=None)
    assert nothing.histories["gru"]["validation"].isna().all()


def test_every_step_is_a_row(result, draws):
    (_, test), _ = draws
    steps = result.steps
    assert list(steps.columns) == ["model", "sequence", "name", "cluster", "position", "log_prob"]
    assert len(steps) == 2 * test.n_units.sum()
    totals = steps.groupby(["model", "sequence"])["log_prob"].sum()
    np.testing.assert_allclose(totals["three"], result.models["three"].log_prob(test), rtol=1e-12)
    assert steps.groupby("sequence")["position"].agg(["min", "max"]).iloc[3].tolist() == [1, len(test[3])]
    assert steps["cluster"].isna().all()


def test_steps_carry_names_and_clusters(draws):
    (train, test), _ = draws
    metadata = pd.DataFrame({"name": [f"s{i}" for i in range(30)], "speaker": [i % 6 for i in range(30)]})
    named = sm.Sequences(test.items, metadata=metadata)
    steps = sm.compare({"one": sm.HMM(1, max_iter=1)}, train, test=named, cluster="speaker").steps
    row = steps.query("sequence == 7").iloc[0]
    assert (row["name"], row["cluster"]) == ("s7", 1)


def test_the_source_and_where_it_all_came_from_are_kept():
    x, _ = sm.data.hmm_draws(20, 8, n_states=2, n_symbols=3, random_state=0)
    (X, y), test = (part.continuation(4) for part in x.split(0.5))
    result = sm.compare({"hmm": sm.HMM(2, max_iter=1)}, X, y, test=test, random_state=3, seeds=2)
    assert result.source is test[0]
    assert result.test is test[1]
    said = result.provenance
    assert said["sha256"]["test y"] == sm.data.sha256(test[1])
    assert said["models"]["hmm"]["params"]["n_states"] == 2
    assert (said["random_state"], said["seeds"], said["budget"]) == (3, 2, None)
    assert said["versions"]["seqmodels"]
    assert sm.compare(result.models, *test).source is test[0]


def test_perplexity_of_symbols():
    result = sm.compare(
        {"iid": sm.HMM(1, max_iter=1), "two": sm.HMM(2, max_iter=3)}, ["abab", "ba"] * 6, test=["abba"] * 5
    )
    row = result.frame.iloc[0]
    assert row["perplexity"] == pytest.approx(math.exp(-row["score"]))
    assert "perplexity" in result.table()
    assert "per byte; lower is better" in result.how_to_read()
    assert row["bits"] == pytest.approx(math.log2(row["perplexity"]))  # what a unit costs, as in evaluate


def test_the_printed_table_fits_a_screen(draws):
    (train, test), _ = draws
    symbols = ["ab ba", "ba", "a b", "abba"] * 5
    models = {name: sm.HMM(k, max_iter=3) for k, name in enumerate(("iid", "hmm-of-two-states", "three"), 1)}
    models["transformer-short"] = sm.Transformer(d_model=8, n_layers=1, context=4)
    many = {"validation": None, "seeds": 2, "budget": sm.Budget(steps=2)}
    of_text = sm.compare(models, symbols, test=[f"{text} {i}" for i, text in enumerate(symbols)], **many)
    assert {"perplexity", "context", "sd of seeds"} <= set(of_text.table().columns)
    of_vectors = sm.compare(hmms(), train, test=test, title="x" * 20)
    assert "perplexity" not in of_vectors.table()
    for shown in (of_text, of_vectors):
        assert max(len(line) for line in str(shown).splitlines()) <= 120
        assert shown.to_markdown().splitlines()[0].count("|") == len(shown.table().columns) + 1


def test_a_baseline_that_fails_hands_over_to_the_first_that_does_not(draws):
    (train, test), _ = draws
    taken_to = "baseline 'bad' failed, so differences are taken to 'one'"
    with pytest.warns(UserWarning, match=taken_to), pytest.warns(UserWarning, match="bad failed"):
        result = sm.compare({"bad": sm.NGram(), **hmms()}, train, test=test)
    assert result.baseline == "one"


@pytest.mark.parametrize(
    "asked", [{"seeds": 2}, {"budget": sm.Budget(steps=1)}, {"search": {"one": {"n_states": [1]}}}]
)
def test_what_needs_a_fit_needs_a_test_part(result, draws, asked):
    (_, test), _ = draws
    with pytest.raises(ValueError, match=f"{next(iter(asked))} is given, but there is no test part"):
        sm.compare(result.models, test, **asked)


@pytest.mark.usefixtures("_undrawn")
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
    assert repr(result) == str(result)
    assert "higher is better" in str(result)


def test_a_baseline_that_ignores_the_source_stands_in_the_table_and_says_so():
    X, y = [[0, 1, 0]] * 8 + [[1, 1, 1]] * 8, [[0, 0]] * 8 + [[1, 1]] * 8
    models = {"read": sm.HMM(2, max_iter=2), "ignored": sm.HMM(2, max_iter=2, ignore_source=True)}
    with pytest.warns(UserWarning, match="16 of the 16 test sequences also occur in the training part"):
        result = sm.compare(models, X, y, test=(X, y), iid=False)
    assert dict(zip(result.frame["model"], result.frame["source"], strict=True)) == {
        "read": "read",
        "ignored": "ignored",
    }
    assert "source" in result.table()
    with pytest.warns(UserWarning, match="also occur"):
        alone = sm.compare({"one": sm.HMM(1, max_iter=2)}, y, test=y, iid=False)
    assert "16 of the held-out sequences also occur" in alone.how_to_read()
    assert alone.frame["source"].tolist() == [""]
    assert "source" not in alone.table()


def test_exact_duplicates_are_counted_each_time():
    assert n_shared(Data.of(["a", "b", "a", "A"]), Data.of(["a", "c"])) == 2
    assert n_shared(Data.of([[0, 1], [1]]), Data.of([[0, 1], [0]])) == 1
    frames = np.array([[0.5, np.nan], [1.0, 2.0]])
    assert n_shared(Data.of([frames, frames[:1], frames + 1e-12]), Data.of([frames])) == 1


def test_a_pair_is_shared_if_both_of_it_are():
    pairs, others = Data.of(["a", "b"], ["x", "y"]), Data.of(["a", "b"], ["x", "z"])
    assert n_shared(pairs, others) == 1


def test_each_two_parts_that_share_are_warned_of():
    train, test = Data.of(["a", "b"]), Data.of(["c", "d"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_of_overlap(train, Data.of(["e"]), test) == 0
    with pytest.warns(UserWarning, match="1 of the 2 test sequences also occur in the training part"):
        assert warn_of_overlap(train, None, Data.of(["a", "z"])) == 1
    with pytest.warns(UserWarning, match="1 of the 1 validation sequences also occur in the test part"):
        warn_of_overlap(train, Data.of(["c"]), test)
    with pytest.warns(UserWarning, match="validation sequences also occur in the training part"):
        warn_of_overlap(train, Data.of(["a"]), test)


def test_compare_warns_and_keeps_the_count():
    train = ["to be", "or not", "to", "that"] * 3
    with pytest.warns(UserWarning, match="2 of the 6 test sequences"):
        result = sm.compare(
            {"a": sm.HMM(1, max_iter=1), "b": sm.HMM(2, max_iter=1)},
            train,
            test=["to", "that", "is", "it", "nobler", "in"],
        )
    assert result.frame.attrs["n_duplicates"] == 2
    assert "2 of the held-out sequences also occur" in str(result)


def test_a_code_of_one_sequence_as_a_whole_has_no_interval() -> None:
    text = "to be or not to be, that is the question " * 30
    models = {"n-gram": sm.NGram(3), "zlib": sm.adapt.Compressor("zlib"), "5-gram": sm.NGram(5)}
    frame = sm.compare(models, [text], test=[text[:700]]).frame.set_index("model")
    assert frame.loc["zlib", "method"] == "none: 'zlib' gives one figure for the one sequence"
    assert np.isnan(frame.loc["zlib", ["ci_low", "p_value", "p_best"]].astype(float)).all()
    assert np.isfinite(frame.loc["zlib", "rank"])
    assert frame.loc["5-gram", "method"].startswith("moving blocks")
    parts = [text[i : i + 70] for i in range(0, 700, 70)]
    assert np.isfinite(sm.compare(models, [text], test=parts).frame.set_index("model").loc["zlib", "ci_low"])


@pytest.mark.slow
@pytest.mark.usefixtures("_undrawn")
def test_who_was_given_inputs_is_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    inputs = [np.repeat(rng.normal(size=10), 4)[:, None] for _ in range(14)]
    x = sm.Sequences([3 * u + rng.normal(size=u.shape) for u in inputs], inputs=inputs, input_names=["heat"])
    hmm = sm.HMM(2, max_iter=3, n_init=1)
    models = {"alone": hmm, "given heat": hmm.clone().set_params(input_effects__transitions=["heat"])}
    result = sm.compare(models, x[:6], test=x[6:])
    assert dict(zip(result.frame["model"], result.frame["inputs"], strict=True)) == {
        "alone": "none",
        "given heat": "heat",
        "iid": "none",
    }
    assert "nats per frame of p(x | inputs) or p(x), on" in str(result)
    assert 'with "none" of p(x)' in str(result)
    assert models["given heat"].measure_.inputs == ("heat",)
    result.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "given the same inputs where it reads some" in page
    assert "could not be drawn from" not in page
    result.save(tmp_path / "saved")
    again = sm.evaluation.Comparison.load(tmp_path / "saved")
    assert again.test.input_names == ("heat",)
    assert again.test.inputs is not None
    assert all(np.array_equal(*pair) for pair in zip(again.test.inputs, inputs[6:], strict=True))
    assert again.models["given heat"].score(again.test) == pytest.approx(models["given heat"].score(x[6:]), rel=1e-6)
    with pytest.raises(ValueError, match="audit cannot give it"):
        sm.evaluation.audit(models["given heat"], x[6:])
    without = sm.compare({"alone": hmm.clone()}, sm.Sequences(x.items[:6]), test=sm.Sequences(x.items[6:]))
    assert "inputs" not in without.frame
    assert "inputs" not in str(without)


def test_a_column_says_which_models_read_differences_where_the_data_decided() -> None:
    walk = np.cumsum(np.random.default_rng(1).normal(size=(200, 1)), axis=0)
    train, test = sm.Sequences([walk[:150]]), sm.Sequences([walk[150:]], past=[walk[:150]])
    models = {"net": sm.GRU(d_model=4, max_steps=2), "var": sm.HMM(1, observation=sm.AutoregressiveGaussian())}
    result = sm.compare(models, train, test=test, baseline="var")
    read = dict(zip(result.frame["model"], result.frame["encoding"], strict=True))
    assert read["net"] == "Chain(encodings=[Differences(), Standardize()])"
    assert read["var"] == "Standardize()"
    assert "encoding" in result.table().columns
    assert "encoding: how a model reads the series" in str(result)
    noise = np.random.default_rng(0).normal(size=(150, 1))
    level = sm.compare({"var": models["var"]}, sm.Sequences([noise[:100]]), test=sm.Sequences([noise[100:]]))
    assert "encoding" not in level.frame
