"""The plots of a comparison: on given axes or new ones, of what was compared or was loaded."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

import seqmodels as sm
from seqmodels.evaluation.calibration import histogram, pit

PLOTS = ["plot_ranking", "plot_curves", "plot_by_position", "plot_calibration"]


@pytest.fixture(autouse=True)
def closed():
    pyplot.close("all")
    yield
    pyplot.close("all")


@pytest.fixture(scope="module", params=["symbols", "vectors"])
def result(request):
    rng = np.random.default_rng(0)
    if request.param == "symbols":
        data = [np.cumsum(rng.random(30) < 0.3) % 3 for _ in range(25)]
    else:
        data = [rng.normal(size=(30, 2)).cumsum(0) for _ in range(25)]
    models = {"one": sm.HMM(1), "two": sm.HMM(2, max_iter=5)}
    return sm.compare(models, data[:20], test=data[20:], baseline="one", title="Two models")


def content(ax):
    """What is drawn, without where."""
    drawn = [line for line in ax.lines if line.get_gid() != "diagonal" and line.get_clip_on()]  # not those of labels
    lines = [np.array(line.get_xydata()).tolist() for line in drawn]
    steps = [patch.get_data().values.tolist() for patch in ax.patches if patch.get_gid() == "model"]
    return lines, steps, [text.get_text() for text in ax.texts], ax.get_xlabel(), ax.get_ylabel()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("plot", PLOTS)
def test_a_loaded_comparison_draws_on_given_axes_what_the_first_drew(result, plot, tmp_path):
    result.save(tmp_path / "saved")
    loaded = sm.evaluation.Comparison.load(tmp_path / "saved")
    figure = Figure(layout="constrained")
    below = figure.subplots(2, 1)[1]
    below.set_title("mine")
    assert getattr(loaded, plot)(below) is below
    assert pyplot.get_fignums() == []
    assert below.get_title() == "mine"
    assert figure.get_supxlabel() == ""
    alone = getattr(result, plot)()
    assert content(alone) == content(below)
    assert len(content(alone)[0] + content(alone)[1]) >= 2
    for suffix in ("pdf", "svg"):
        figure.savefig(tmp_path / f"plot.{suffix}")
        assert (tmp_path / f"plot.{suffix}").stat().st_size > 3000


def test_the_figures_of_the_report_are_the_same_plots(result):
    for figure, ax in (
        (result.ranking_figure(), result.plot_ranking()),
        (result.curves_figure(), result.plot_curves()),
    ):
        lines, _, texts, _, label = content(figure.axes[0])
        assert (lines, texts, label) == (content(ax)[0], content(ax)[2], content(ax)[4])
        assert figure.get_supxlabel() in ax.get_xlabel()
        assert ax.get_title(loc="left") == "Two models"


@pytest.mark.slow
def test_transforms_of_calibrated_vectors_are_flat():
    model = sm.HMM.from_parameters([1.0], [[1.0]], means=[[0.0]], covariances=[[4.0]])
    data = model.sample(40, length=100, random_state=0)
    wide = sm.HMM.from_parameters([1.0], [[1.0]], means=[[0.0]], covariances=[[40.0]])
    ax = sm.compare({"right": model, "wide": wide}, data, baseline="right").plot_calibration()
    right, humped = (np.array(patch.get_data().values) for patch in ax.patches if patch.get_gid() == "model")
    for model_drawn, drawn in ((model, right), (wide, humped)):
        np.testing.assert_array_equal(drawn, histogram(pit(model_drawn, data))[0])
    assert right.std() < 0.4 < humped.std()  # of some 500 values in 20 bins
    assert ax.get_legend().get_texts()[1].get_text().startswith("wide  (0.")
