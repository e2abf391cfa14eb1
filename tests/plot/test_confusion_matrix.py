"""The confusion matrix: what is counted, how it is drawn."""

from __future__ import annotations

import io

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot

import seqmodels as sm


def counts(ax) -> np.ndarray:
    n = len(ax.get_xticklabels())
    found = np.zeros((n, n), dtype=int)
    for text in ax.texts:
        column, row = map(int, text.get_position())
        found[row, column] = int(text.get_text().replace(",", ""))
    return found


def test_the_cells_are_the_counts_and_their_shade_the_share_of_the_row() -> None:
    from sklearn.metrics import confusion_matrix

    rng = np.random.default_rng(0)
    labels, predicted = (np.array(["down", "left", "up"])[rng.integers(0, 3, 60)] for _ in range(2))
    ax = sm.plot.confusion(labels, predicted)
    expected = confusion_matrix(labels, predicted)
    np.testing.assert_array_equal(counts(ax), expected)
    np.testing.assert_allclose(ax.images[0].get_array(), expected / expected.sum(1, keepdims=True))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["down", "left", "up"]
    right = (labels == predicted).sum()
    assert ax.get_title(loc="left") == f"{right} of 60 right ({right / 60:.1%})".replace("%", " %")


def test_the_order_of_the_labels_may_be_given_and_one_may_be_missing() -> None:
    ax = sm.plot.confusion([2, 2, 0], [2, 0, 0], classes=[2, 1, 0], title="digits")
    np.testing.assert_array_equal(counts(ax), [[1, 0, 1], [0, 0, 0], [0, 0, 1]])
    assert ax.get_title(loc="left") == "digits"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["2", "1", "0"]


def test_it_draws_where_it_is_told_to_and_leaves_the_settings_alone() -> None:
    before = dict(matplotlib.rcParams)
    mine = matplotlib.figure.Figure().subplots()
    assert sm.plot.confusion(["a", "b"], ["a", "a"], ax=mine) is mine
    assert pyplot.get_fignums() == []
    ax = sm.plot.confusion(["a", "b"], ["a", "a"])
    assert pyplot.get_fignums() == [ax.figure.number]
    for form, start in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        buffer = io.BytesIO()
        ax.figure.savefig(buffer, format=form)
        assert buffer.getvalue().startswith(start)
    assert dict(matplotlib.rcParams) == before


def test_many_labels_have_no_numbers() -> None:
    labels = [f"word {i}" for i in range(40)]
    ax = sm.plot.confusion(labels, labels)
    assert len(ax.texts) == 0
    assert ax.images[0].get_array().shape == (40, 40)


def test_what_cannot_be_drawn_is_refused() -> None:
    for labels, predicted, options, said in (
        (["a"], ["a", "b"], {}, "1 labels and 2 predictions"),
        ([], [], {}, "0 labels"),
        (["a"], ["b"], {"classes": ["a"]}, "the label 'b' is not in classes"),
    ):
        with pytest.raises(ValueError, match=said):
            sm.plot.confusion(labels, predicted, **options)
