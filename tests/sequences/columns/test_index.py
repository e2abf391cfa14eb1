"""Indices of frames: words that hold no times, and dates that repeat."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from seqmodels.data import table
from seqmodels.sequences import Sequences

Y = np.arange(24.0) ** 2
HOURS = pd.date_range("2019-01-01", periods=24, freq="h")


@pytest.mark.parametrize("words", ["{} BC", "c. {}"])
def test_an_index_of_words_with_digits_is_left_out_with_a_warning(words: str) -> None:
    frame = pd.DataFrame({"y": Y, "z": 1 - Y}, index=[words.format(1990 + i) for i in range(24)])
    for read in (lambda: Sequences([frame]), lambda: Sequences.from_frame(frame), lambda: table(frame, kind="vectors")):
        with pytest.warns(UserWarning, match="the index holds words that are not dates, such as '.*1990"):
            assert read().times is None


def test_dates_that_repeat_in_a_frame_of_a_list_are_refused() -> None:
    clocks_set_back = pd.DataFrame({"y": Y}, index=HOURS[[*range(12), *range(11, 23)]])
    with pytest.raises(ValueError, match="sequence 1: 'time' is 2019-01-01 11:00:00 in row 11 and in row 12"):
        Sequences([pd.DataFrame({"y": Y}, index=HOURS), clocks_set_back])


def test_names_of_sequences_that_differ_by_spaces_or_capitals_are_warned_of() -> None:
    frame = pd.DataFrame({"shop": ["b", "b ", "a", "a"], "t": [0, 1, 0, 1], "y": [1.0, 2.0, 4.0, 3.0]})
    with pytest.warns(UserWarning, match="'shop' has 'b' and 'b ', which differ by spaces or capitals alone"):
        assert len(Sequences.from_frame(frame, by="shop", time="t")) == 3
    with pytest.warns(UserWarning, match="'shop' has 'a' and 'A'"):
        Sequences.from_frame(frame.assign(shop=["b", "b", "a", "A"]), by="shop", time="t")


def test_ten_digits_are_hours_and_no_seconds_since_1970() -> None:
    digits = HOURS.strftime("%Y%m%d%H")
    for cells in (digits, digits.astype(int)):
        x = table(pd.DataFrame({"date": cells, "y": Y, "z": 1 - Y}), kind="vectors")
        assert x.times is not None
        np.testing.assert_array_equal(x.times[0].astype("datetime64[s]"), HOURS.to_numpy().astype("datetime64[s]"))
