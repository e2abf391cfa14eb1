"""Search: the same trials for every model, on the training part alone, and what is drawn."""

import math

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.evaluation.tuning.search import Search, best_of, cross_validation_folds


@pytest.fixture(scope="module")
def parts():
    x, _ = sm.data.hmm_draws(36, 15, n_states=3, n_symbols=4, random_state=4)
    return x.split(0.4, random_state=1)


def test_settings_are_drawn_without_replacement_by_seed():
    search = Search({"a": {"u": [1, 2, 3], "v": ["x", "y", "z"]}}, trials=5)
    drawn = search.settings("a")
    assert drawn == search.settings("a")
    assert len({tuple(setting.values()) for setting in drawn}) == 5
    assert drawn != search.settings("a", random_state=1)
    assert len(Search({"a": {"u": [1, 2]}}, trials=5).settings("a")) == 2
    assert search.settings("b") == []


def test_a_large_grid_is_never_written_out():
    huge = {f"k{i}": list(range(10)) for i in range(18)}
    assert len(Search({"a": huge}, trials=3).settings("a")) == 3


def test_the_best_trial_is_refitted_on_all_of_the_training_part(parts):
    train, test = parts
    models = {"one": sm.HMM(1, max_iter=2), "hmm": sm.HMM(1, max_iter=15)}
    grids = {"one": {"max_iter": [1, 2]}, "hmm": {"n_states": [1, 3]}}
    lines = []
    result = sm.compare(models, train, test=test, search=Search(grids, folds=2), progress=lines.append)
    assert models["hmm"].n_states == 3
    row = result.frame.set_index("model").loc["hmm"]
    assert (row["trials"], row["settings"]) == (2, "n_states=3")
    assert row["score"] == pytest.approx(sm.HMM(3, max_iter=15).fit(train).score(test), rel=1e-9)
    assert result.search["model"].tolist() == ["one", "one", "hmm", "hmm"]
    assert result.search.query("best")["settings"].tolist()[-1] == "n_states=3"
    assert len(lines) == 6
    assert "trials" in result.table()
    assert "folds of the training part" in result.how_to_read()


def test_a_trials_score_is_that_of_its_folds(parts):
    train, test = parts
    grid = {"hmm": {"n_states": [2]}}
    result = sm.compare({"hmm": sm.HMM(1, max_iter=4)}, train, test=test, search=Search(grid, folds=3), random_state=5)
    folds = cross_validation_folds(Data.of(train), 3, 5)
    total = sum(float(sm.HMM(2, max_iter=4).fit(fitted.X).log_prob(held.X).sum()) for fitted, held in folds)
    assert result.search["score"].iloc[0] == pytest.approx(total / train.n_units.sum(), rel=1e-9)


def test_the_search_never_looks_at_the_test_part(parts):
    train, test = parts
    other = sm.Sequences([(np.asarray(item) + 1) % 4 for item in test])
    grids = {"hmm": {"n_states": [1, 2, 3]}}
    found = [
        sm.compare({"hmm": sm.HMM(1, max_iter=5)}, train, test=part, search=Search(grids, folds=2)).search
        for part in (test, other)
    ]
    pd.testing.assert_frame_equal(
        found[0].drop(columns="seconds"), found[1].drop(columns="seconds"), rtol=1e-9, atol=1e-9
    )


def test_folds_are_whole_clusters_and_cover_all():
    x = sm.Sequences([np.array([i]) for i in range(12)], clusters=[i // 3 for i in range(12)])
    seen = []
    for fitted, held in cross_validation_folds(Data.of(x), 3):
        assert not set(fitted.X.clusters) & set(held.X.clusters)
        seen += [int(item[0]) for item in held.X]
    assert sorted(seen) == list(range(12))


def test_one_long_text_is_cut_into_consecutive_pieces():
    folds = cross_validation_folds(Data.of(["abcdefghij"]), 3)
    assert [list(held.X) for _, held in folds] == [["abc"], ["def"], ["ghij"]]
    assert [list(fitted.X) for fitted, _ in folds][1] == ["abc", "ghij"]


def test_folds_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="2 sequences to fit to, too few for 3 folds; pass folds=2 or fewer"):
        cross_validation_folds(Data.of([[0], [1]]), 3)
    with pytest.raises(ValueError, match="1 clusters to fit to, too few for 3 folds; pass more"):
        cross_validation_folds(Data.of(sm.Sequences([[0], [1], [2]], clusters=["a"] * 3)), 3)
    with pytest.raises(ValueError, match="2 steps, too few"):
        cross_validation_folds(Data.of(["ab"]), 3)


def test_a_trial_that_fails_is_a_row_and_the_search_goes_on(parts):
    train, test = parts
    grids = {"lstm": {"dropout": [0.0, 2.0]}}
    result = sm.compare({"lstm": sm.LSTM(d_model=4, max_steps=1)}, train, test=test, search=Search(grids, folds=2))
    failed = result.search.set_index("settings").loc["dropout=2.0"]
    assert "dropout is 2.0" in failed["error"]
    assert math.isnan(failed["score"])
    assert result.frame.set_index("model").loc["lstm", "settings"] == "dropout=0.0"


def test_if_every_trial_fails_the_model_fails(parts):
    train, test = parts
    models = {"hmm": sm.HMM(1, max_iter=2), "lstm": sm.LSTM(d_model=4, max_steps=1)}
    grids = {"hmm": {"n_states": [1]}, "lstm": {"dropout": [2.0]}}
    with pytest.warns(UserWarning, match="lstm failed: every trial"):
        result = sm.compare(models, train, test=test, search=Search(grids, folds=2))
    row = result.frame.set_index("model").loc["lstm"]
    assert "dropout is 2.0" in row["error"]
    assert row["trials"] == 1


def test_tuning_that_is_not_the_same_for_all_is_warned_of(parts):
    train, test = parts
    models = {"one": sm.HMM(1, max_iter=2), "hmm": sm.HMM(2, max_iter=2)}
    with pytest.warns(UserWarning, match=r"not every model has 2 trials \(one: 0\)"):
        sm.compare(models, train, test=test, search={"hmm": {"n_states": [1, 2]}})


def test_what_cannot_be_searched_is_refused_before_any_work(parts):
    train, test = parts

    def compare(search, **options):
        return sm.compare({"hmm": sm.HMM(2, max_iter=2)}, train, test=test, search=search, **options)

    with pytest.raises(ValueError, match="grid for 'lstm', which is not among the models: hmm"):
        compare({"lstm": {"lr": [1]}})
    with pytest.raises(ValueError, match="no parameter 'd_model'"):
        compare({"hmm": {"d_model": [1]}})
    with pytest.raises(ValueError, match="tunes n_states, which the budget sets"):
        compare({"hmm": {"n_states": [1]}}, budget=sm.Budget(parameters=100))
    with pytest.raises(ValueError, match="the grid of 'hmm' is empty in 'n_states'"):
        compare({"hmm": {"n_states": []}})
    with pytest.raises(ValueError, match="trials=0 and folds=3"):
        Search({}, trials=0)


def test_the_first_of_equal_trials_is_best():
    trials = [sm.evaluation.tuning.search.Trial({"a": i}, score, 0.0) for i, score in enumerate([math.nan, -1.0, -1.0])]
    assert best_of(trials).settings == {"a": 1}


def test_what_scikit_learn_searched_can_be_compared(parts):
    model_selection = pytest.importorskip("sklearn.model_selection")
    train, test = parts
    grid = model_selection.GridSearchCV(sm.LSTM(d_model=4, max_steps=2), {"lr": [1e-3, 1e-2]}, cv=2)
    best = grid.fit(list(train)).best_estimator_
    frame = sm.compare({"lstm": best, "hmm": sm.HMM(1, max_iter=1).fit(train)}, test).frame.set_index("model")
    assert frame.loc["lstm", "score"] == pytest.approx(grid.best_estimator_.score(list(test)), rel=1e-5)
    assert grid.best_params_["lr"] == best.lr


def test_folds_keep_times_inputs_and_labels():
    rng = np.random.default_rng(0)
    n, times = [20, 30, 25, 35], [np.cumsum(rng.exponential(size=k)) for k in (20, 30, 25, 35)]
    X = sm.Sequences(
        [rng.normal(size=(k, 1)).cumsum(0) for k in n], times=times, inputs=[rng.normal(size=k) for k in n], labels=n
    )
    model = sm.LinearGaussian.ornstein_uhlenbeck(time_step=1.0, max_iter=10)
    for fitted, held_out in cross_validation_folds(Data.of(X), 2):
        rows = [n.index(label) for label in fitted.X.labels]
        by_hand = sm.Sequences([X[i] for i in rows], times=[times[i] for i in rows])
        expected = model.fit(by_hand).log_prob(held_out.X)
        np.testing.assert_allclose(model.fit(fitted.X).log_prob(held_out.X), expected, rtol=1e-9)
        assert held_out.X.input_names == ("u0",)
    for fitted, held_out in cross_validation_folds(Data.of(X[3:]), 2):
        assert fitted.X.times is not None
        whole = held_out.X.including_past()
        np.testing.assert_array_equal(whole.times[0], times[3][: len(whole[0])])
        np.testing.assert_array_equal(whole.inputs[0], X.inputs[3][: len(whole[0])])
