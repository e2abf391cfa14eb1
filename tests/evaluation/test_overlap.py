"""Sequences in two parts of the data: counted exactly, and warned of."""

import warnings

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.evaluation.overlap import n_shared, warn_of_overlap
from seqmodels.preparation import Data


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
