"""What adaptation gained: within each kind of model, across the two, and by position in the sequence."""

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.evaluation.comparison.adaptation import counterparts, gain_by_position, octave_edges
from seqmodels.evaluation.comparison.report import adaptation
from tests.evaluation.adaptive_model import CountCache


@pytest.fixture(scope="module")
def result():
    rng = np.random.default_rng(0)
    x = [rng.choice(5, size=int(rng.integers(20, 80)), p=rng.dirichlet(np.full(5, 0.4))) for _ in range(50)]
    models = {"hmm": sm.HMM(2, max_iter=5), "gram": sm.NGram(2), "cache": CountCache(sm.NGram(2))}
    models["half"] = CountCache(sm.HMM(2, max_iter=5), rate=0.1)
    models["other"] = CountCache(sm.NGram(1))
    return sm.compare(models, x[:30], test=x[30:], baseline="gram")


def test_gains_are_means_over_octaves():
    assert octave_edges(1).tolist() == [1, 2]
    assert octave_edges(8).tolist() == [1, 2, 4, 8, 9]
    model, other = [np.arange(1.0, 8), np.array([1.0, -np.inf])], [np.zeros(7), np.zeros(2)]
    gain = gain_by_position(model, other)
    assert gain[["first", "last"]].to_numpy().tolist() == [[1, 1], [2, 3], [4, 7]]
    assert gain["n_steps"].tolist() == [2, 2, 4]
    assert gain["n_sequences"].tolist() == [2, 1, 1]
    assert gain["gain"].tolist() == [1.0, 2.5, 5.5]
    assert gain["share"].to_numpy() == pytest.approx(np.array([2, 5, 22]) / 29)


def test_the_gain_by_position_sums_to_the_difference(result):
    gain = result.gain_by_position("cache", "gram")
    total = (gain["gain"] * gain["n_steps"]).sum() / result.test.n_units.sum()
    row = result.frame.set_index("model").loc["cache"]
    assert row["memory"] == "adaptive"
    assert total == pytest.approx(row["difference"], abs=1e-12)
    assert gain["gain"].iloc[0] < 0.1 < gain["gain"].iloc[-1]  # it pays later


def test_an_adaptive_model_is_compared_with_the_model_inside_it(result):
    assert counterparts(result.frame, result.models) == {"cache": "gram", "half": "hmm", "other": best_static(result)}
    assert counterparts(result.frame[result.frame["memory"] == "adaptive"], result.models) == {}
    inner = result.models["cache"].model_
    assert counterparts(result.frame, {**result.models, "hmm": inner})["cache"] in ("gram", "hmm")


def best_static(result):
    return result.frame.loc[result.frame["memory"] == "static", "model"].iloc[0]


def test_the_report_compares_within_each_kind(result):
    kinds = adaptation.within_kinds(result)
    assert kinds.groupby("memory", sort=False)["model"].apply(list).to_dict() == {
        "static": [name for name in result.ranked if name in ("hmm", "gram")],
        "adaptive": [name for name in result.ranked if name in ("cache", "half", "other")],
    }
    assert kinds["rank"].tolist() == ["1", "2", "1", "2", "3"]
    first, second = kinds["model"].iloc[:2]
    assert float(kinds["difference"].iloc[1].replace("−", "-")) == pytest.approx(
        result.difference(second, first).difference, abs=1e-4
    )
    body = str(adaptation.section(result).body)
    assert "over gram" in body
    gain = result.gain_by_position("cache", "gram")
    assert f"{gain['gain'].iloc[-1]:+.4f}" in body
    assert f"{gain['first'].iloc[-1]} to {gain['last'].iloc[-1]}" in body


def test_a_table_of_static_models_has_no_such_section(result):
    static = sm.compare({name: result.models[name] for name in ("hmm", "gram")}, result.test)
    assert adaptation.section(static) is None


def test_the_plot_has_the_gains(result):
    axes = result.plot_gain_by_position("cache", "gram")
    drawn = [line.get_ydata().tolist() for line in axes.lines if line.get_marker() == "o"]
    assert drawn == [result.gain_by_position("cache", "gram")["gain"].tolist()]
    assert "gain over gram" in axes.get_ylabel()
