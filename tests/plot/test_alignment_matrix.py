import io

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

import seqmodels as sm
from seqmodels.plot.alignment_matrix import MAX_LABELS

WEIGHTS = np.array([[0.7, 0.2, 0.1], [0.0, 0.0, 1.0]])


@pytest.fixture(autouse=True)
def closed():
    pyplot.close("all")
    yield
    pyplot.close("all")


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_rows_are_targets_and_columns_sources():
    axes = sm.plot.alignment(WEIGHTS, "abc", [7, 8], title="one pair")
    assert labels(axes.xaxis) == ["a", "b", "c"]
    assert labels(axes.yaxis) == ["7", "8"]
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), WEIGHTS)
    assert image.get_clim() == (0.0, 1.0)
    assert axes.yaxis_inverted()  # the first step of the target on top
    assert axes.get_title() == "one pair" or axes.get_title(loc="left") == "one pair"


def test_a_text_encoded_in_bytes_has_a_label_a_byte():
    axes = sm.plot.alignment(WEIGHTS, "aé")
    assert len(labels(axes.xaxis)) == 3
    assert labels(axes.xaxis)[0] == "a"


def test_vectors_and_long_sides_are_numbered():
    many = np.full((MAX_LABELS + 1, 3), 1 / 3)
    axes = sm.plot.alignment(many, np.zeros((3, 2)), "y" * len(many))
    assert "y" not in labels(axes.yaxis)
    assert len(labels(axes.xaxis)) > 0


def test_labels_are_the_steps_that_the_model_reads_its_pieces_under_bpe():
    x, y = ["low lower"] * 3, ["hoch höher"] * 3
    encodings = {"encoding": sm.BPE(258), "source_encoding": sm.BPE(262)}
    model = sm.hmm.AlignmentHMM(max_iter=1, **encodings).fit(x, y)
    (weights,) = model.align(x[:1], y[:1])
    axes = sm.plot.alignment(weights, x[0], y[0], model=model)
    columns = [step.replace(" ", "␣") for step in model.source_encoding_.pieces(x[0])]
    assert "".join(columns) == "low␣lower"
    assert 1 < len(columns) < len(x[0])
    assert [label for label in labels(axes.xaxis) if label != "∅"] == columns
    assert labels(axes.yaxis) == [step.replace(" ", "␣") for step in model.encoding_.pieces(y[0])]
    assert 1 < len(labels(axes.yaxis)) < len(y[0].encode())


def test_it_can_be_drawn_and_leaves_settings_alone():
    before = dict(matplotlib.rcParams)
    sm.plot.alignment(WEIGHTS, ["one", "two", "three"], "né"[:2]).figure.savefig(io.BytesIO(), format="png")
    assert dict(matplotlib.rcParams) == before


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"weights have shape \(3,\)"):
        sm.plot.alignment(WEIGHTS[0])
    with pytest.raises(ValueError, match="x has 2 steps, but the weights have 3"):
        sm.plot.alignment(WEIGHTS, "ab")


def test_it_is_drawn_on_given_axes():
    figure = Figure(layout="constrained")
    ax = figure.add_subplot(1, 2, 2)
    assert sm.plot.alignment(WEIGHTS, ax=ax) is ax
    assert figure.get_figwidth() == Figure().get_figwidth()
    assert pyplot.get_fignums() == []
