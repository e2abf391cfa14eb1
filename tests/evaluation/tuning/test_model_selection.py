"""choose: the number of states that data were drawn with, by cross-validation, BIC and AIC; what is refused."""

import io
import math

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.evaluation.tuning.model_selection import standard_error
from seqmodels.evaluation.tuning.search import FoldScore, cross_validation_folds


@pytest.fixture(scope="module")
def chain():
    x, _ = sm.data.hmm_draws(25, 30, n_states=3, n_features=1, separation=6.0, random_state=0)
    return x


@pytest.fixture(scope="module")
def hmm():
    return sm.HMM(max_iter=15, observation=sm.GaussianMixture(1))


@pytest.fixture(scope="module")
def selection(hmm, chain):
    return sm.choose(hmm, chain, n_states=[1, 2, 3, 4], folds=5)


def test_data_of_three_states_are_given_three(selection):
    assert (selection.chosen, selection.by("bic"), selection.best) == (3, 3, 3)
    assert selection.model.n_states == 3


def test_independent_steps_are_given_one(hmm):
    rng = np.random.default_rng(1)
    found = sm.choose(hmm, [rng.normal(size=(30, 1)) for _ in range(20)], n_states=[1, 2, 3], folds=4)
    assert (found.chosen, found.by("bic")) == (1, 1)


def test_the_figures_are_those_of_the_fits(selection, hmm, chain):
    row = selection.frame.set_index("value").loc[2]
    two = hmm.clone().set_params(n_states=2)
    folds = cross_validation_folds(Data.of(chain), 5)
    scores = [two.clone().fit(train.X).score(test.X) for train, test in folds]  # folds of five sequences of 30 frames
    assert row["cv"] == pytest.approx(np.mean(scores))
    assert row["cv_se"] == pytest.approx(np.std(scores, ddof=1) / math.sqrt(5))
    fitted = two.clone().fit(chain)
    assert row["train"] == pytest.approx(fitted.score(chain), rel=1e-9)
    assert (row["bic"], row["aic"]) == pytest.approx((fitted.bic(chain), fitted.aic(chain)), rel=1e-9)
    assert row["n_parameters"] == fitted.n_parameters_
    assert selection.models[1].score(chain) == pytest.approx(fitted.score(chain), rel=1e-9)
    assert selection.n_units == 750


def test_the_difference_is_paired(selection, hmm, chain):
    scores = {}
    for n in (2, selection.best):
        folds = cross_validation_folds(Data.of(chain), 5)
        scores[n] = [hmm.clone().set_params(n_states=n).fit(train.X).score(test.X) for train, test in folds]
    differences = np.subtract(scores[2], scores[selection.best])
    row = selection.frame.set_index("value").loc[2]
    assert row["difference"] == pytest.approx(differences.mean())
    assert row["difference_se"] == pytest.approx(np.std(differences, ddof=1) / math.sqrt(5))
    assert selection.frame["difference"].max() == 0.0


def test_the_error_of_a_ratio_is_that_of_the_jackknife_where_folds_differ_little():
    rng = np.random.default_rng(0)
    folds = [FoldScore(-2.0 * n + rng.normal(), n) for n in rng.integers(90, 110, 200).tolist()]
    nats, units = np.array([f.log_prob for f in folds]), np.array([f.n_units for f in folds])
    left_out = (nats.sum() - nats) / (units.sum() - units)
    jackknife = math.sqrt(199 / 200 * ((left_out - left_out.mean()) ** 2).sum())
    assert standard_error(folds) == pytest.approx(jackknife, rel=0.01)
    assert math.isnan(standard_error(folds[:1]))


def selection_with(scores, errors, rule, paired=None):
    """The row that a rule chooses of figures that are made up, one parameter more in each row."""
    import pandas as pd

    from seqmodels.evaluation.tuning.model_selection import _best_and_chosen

    columns = {"cv": scores, "cv_se": errors, "difference_se": paired or errors, "n_parameters": range(len(scores))}
    return _best_and_chosen(pd.DataFrame({**columns, "error": [""] * len(scores)}), "cv", rule)


def test_rules():
    scores = [-3.0, -2.0, -1.5, -1.4]
    assert selection_with(scores, [1.0, 0.1, 0.1, 0.2], "one_se") == (3, 2)
    assert selection_with(scores, [1.0, 0.1, 0.1, 0.7], "one_se") == (3, 1)
    assert selection_with(scores, [1.0, 0.1, 0.1, 0.05], "one_se") == (3, 3)
    assert selection_with(scores, [1.0] * 4, "best") == (3, 3)
    assert selection_with(scores, [2.0] * 4, "paired_se", [0.1, 0.7, 0.2, 0.0]) == (3, 1)
    assert selection_with([-1.0, -1.0], [0.0, 0.0], "one_se") == (0, 0)


def test_of_equally_many_parameters_proposals_prefer_the_score():
    import pandas as pd

    from seqmodels.evaluation.tuning.model_selection import _best_and_chosen

    columns = {"cv": [-1.2, -1.1, -1.0], "difference_se": [0.5] * 3, "n_parameters": [2, 2, 3], "error": [""] * 3}
    frame = pd.DataFrame(columns)
    assert _best_and_chosen(frame, "cv", "paired_se") == (2, 0)
    assert _best_and_chosen(frame, "cv", "paired_se", prefers_score=True) == (2, 1)


def test_folds_are_clusters(hmm):
    rng = np.random.default_rng(2)
    x = sm.Sequences([rng.normal(size=(20, 1)) for _ in range(6)], clusters=list("aabbcc"))
    with pytest.raises(ValueError, match="3 clusters to fit to, too few for 5 folds; pass folds=3 or fewer"):
        sm.choose(hmm, x, n_states=[1])
    assert sm.choose(hmm, x, n_states=[1], folds=3).folds == 3


def test_one_long_sequence_and_nested_parameters():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 1)) + 6 * rng.integers(0, 2, (100, 1))
    found = sm.choose(sm.HMM(1, max_iter=10, observation=sm.GaussianMixture(1)), [x], observation__n_components=[1, 2])
    assert found.chosen == 2
    assert found.model.observation.n_components == 2


def test_text_of_an_ngram_without_cross_validation():
    text = ["abracadabra " * 10, "abra " * 20]
    found = sm.choose(sm.NGram(), text, order=[1, 2, 3], folds=None, criterion="bic")
    assert found.frame["cv"].isna().all()
    assert found.chosen == found.frame["value"].iloc[found.frame["bic"].argmin()]
    assert "cross-validation" not in repr(found)
    assert "bytes" in repr(found)
    found.plot()


def test_targets_given_sources():
    rng = np.random.default_rng(0)
    X = [rng.integers(0, 3, 8) for _ in range(9)]
    found = sm.choose(sm.HMMTagger(max_iter=2), X, X, folds=3, n_states_per_label=[1, 2])
    assert found.frame["error"].eq("").all()
    assert found.unit == "symbol"


def test_what_it_says(selection):
    said = repr(selection)
    assert said.startswith("n_states = 3\n")
    assert "5 folds" in said
    assert "by BIC: 3" in said
    assert "n = 750 frames" in said
    assert "largest that was tried" not in said


def test_the_largest_value_is_no_end(hmm, chain):
    assert "try more than 2" in repr(sm.choose(hmm, chain, n_states=[1, 2], folds=2))


def test_a_value_that_fails_is_a_row():
    x = [np.array([0, 1, 2, 3, i % 4]) for i in range(6)]
    lines = []
    encodings = [sm.Symbols(4), sm.Symbols(3)]
    found = sm.choose(sm.NGram(2), x, encoding=encodings, folds=3, progress=lines.append)
    assert found.chosen is encodings[0]
    assert "n_symbols is 3" in found.frame["error"].iloc[1]
    assert "Symbols(n_symbols=3) failed: ValueError" in repr(found)
    assert "failed" in lines[1]
    assert found.models[1] is None
    found.plot()
    with pytest.raises(ValueError, match="every value failed, the first by"):
        sm.choose(sm.NGram(2), x, encoding=encodings[1:], folds=3)


def test_held_out_zeros_are_said():
    x = [np.array([0, 0, 1]), np.array([0, 1]), np.array([2, 2, 2])]
    model = sm.HMM(max_iter=2, observation=sm.Categorical(pseudocount=0.0), encoding=sm.Symbols(3))
    with pytest.raises(ValueError, match="observation=Categorical"):
        sm.choose(model, x, folds=3, n_states=[1, 2])


def test_what_cannot_be_chosen_is_refused_before_any_work(hmm, chain):
    for options, said in (
        ({}, "no hyperparameter to choose"),
        ({"n_states": [1], "max_iter": [1]}, "n_states, max_iter are several"),
        ({"states": [1]}, "no parameter 'states'"),
        ({"n_states": 3}, r"pass its values, such as n_states=\[3\]"),
        ({"n_states": []}, "no values"),
        ({"n_states": [0, 1]}, "n_states"),
        ({"n_states": [1], "folds": 1}, "folds is 1"),
        ({"n_states": [1], "folds": None}, "nothing is cross-validated"),
        ({"n_states": [1], "criterion": "dic"}, "criterion is 'dic'"),
        ({"n_states": [1], "rule": "two"}, "rule is 'two'"),
        ({"n_states": [1], "validation": chain}, "pass 'auto'"),
    ):
        with pytest.raises(ValueError, match=said):
            sm.choose(hmm, chain, **options)
    with pytest.raises(ValueError, match="which has no likelihood"):
        sm.choose(sm.MaskedTransformer(), chain, d_model=[8])


def test_the_plot_shows_every_criterion(selection):
    before = dict(matplotlib.rcParams)
    axes = selection.plot()
    assert axes.figure.number in pyplot.get_fignums()
    for form, start in (("pdf", b"%PDF"), ("svg", b"<?xml")):
        buffer = io.BytesIO()
        axes.figure.savefig(buffer, format=form)
        assert buffer.getvalue().startswith(start)
    axes.figure.savefig(io.BytesIO(), format="png")
    assert dict(matplotlib.rcParams) == before
    lines = {line.get_gid(): line for line in axes.lines if line.get_gid()}
    np.testing.assert_allclose(lines["bic"].get_ydata(), -selection.frame["bic"] / 1500)
    assert lines["chosen"].get_xdata().tolist() == [2]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "3", "4"]
    figure = matplotlib.figure.Figure()
    mine = figure.add_subplot()
    assert selection.plot(mine) is mine
