"""The interval of the bits of a unit, which is that of the mean of what a unit costs."""

from __future__ import annotations

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.evaluation.statistics.paired import moving_block_difference, paired_difference


def test_of_clusters_it_is_that_of_their_costs() -> None:
    rng = np.random.default_rng(0)
    data = sm.Sequences([rng.integers(0, 4, n) for n in rng.integers(5, 30, 24)], clusters=np.repeat(range(8), 3))
    model = sm.NGram(2).fit(data)
    row = sm.compare({"pairs": model}, data, iid=False).frame.iloc[0]
    costs = -model.log_prob(data) / np.log(2)
    expected = paired_difference(costs, np.zeros(24), data.n_units, data.clusters)
    assert row["bits"] == pytest.approx(expected.difference)
    np.testing.assert_allclose([row["bits_low"], row["bits_high"]], [expected.low, expected.high])
    assert row["bits_low"] < row["bits"] < row["bits_high"]


def test_of_one_sequence_it_is_that_of_moving_blocks() -> None:
    x = np.random.default_rng(0).integers(0, 4, 400)
    model = sm.NGram(1, length="given").fit([x])
    row = sm.compare({"one": model}, [x], iid=False).frame.iloc[0]
    costs = -model.log_prob_steps([x])[0] / np.log(2)
    expected = moving_block_difference(costs, np.zeros(400))
    np.testing.assert_allclose([row["bits_low"], row["bits_high"]], [expected.low, expected.high])


def test_where_there_is_none_it_is_nan() -> None:
    data = list(np.random.default_rng(0).integers(0, 4, (5, 50)))
    with pytest.warns(UserWarning, match="no interval"):
        frame = sm.compare({"one": sm.NGram(1), "two": sm.NGram(2)}, data[:2], test=data[2:]).frame
    assert frame[["bits_low", "bits_high"]].isna().all().all()
