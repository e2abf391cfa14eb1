import numpy as np
import pytest
from matplotlib import pyplot

import seqmodels as sm


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def test_a_column_is_the_input_and_a_row_the_step_it_predicts():
    axes = sm.plot.attention(np.tril(np.ones((3, 3))), [7, 8, 9], title="a sequence")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["start", "7", "8"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["7", "8", "9"]
    (image,) = axes.images
    assert image.get_array()[0].tolist() == [1, 0, 0]


def test_steps_that_are_vectors_are_numbered():
    axes = sm.plot.attention(np.eye(2), np.zeros((2, 3)))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("input", "predicted step")


@pytest.mark.parametrize(("shape", "labels"), [((2, 3), None), ((2, 2, 2), None), ((2, 2), "abc")])
def test_what_does_not_fit_is_refused(shape, labels):
    with pytest.raises(ValueError, match=r"steps"):
        sm.plot.attention(np.zeros(shape), labels)
