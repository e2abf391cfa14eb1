"""Times of steps: read from the index of a frame, and carried on to the steps that follow."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqmodels.data import table
from seqmodels.sequences import Sequences
from seqmodels.sequences.times import times_ahead

DAYS = pd.date_range("2024-03-01", periods=6, freq="D")
FRAME = pd.DataFrame({"a": np.arange(6.0) ** 2, "b": np.cos(np.arange(6.0))}, index=DAYS)


@pytest.mark.parametrize("read", [Sequences.from_frame, table, lambda frame: Sequences([frame])])
@pytest.mark.parametrize("name", [None, "day", "a"])
def test_an_index_of_dates_is_the_time(read: Any, name: str | None) -> None:
    x = read(FRAME.rename_axis(name))
    np.testing.assert_array_equal(x.times[0], DAYS.to_numpy())
    np.testing.assert_array_equal(x[0], FRAME.to_numpy())
    assert x.features in (("a", "b"), None)
    assert x.time_name == (name if name == "day" or (name and x.features is None) else "time")


def test_other_indices_that_are_times() -> None:
    seconds = Sequences.from_frame(FRAME.set_axis(pd.timedelta_range("1s", periods=6, freq="500ms")))
    assert seconds.times is not None
    assert seconds.times[0].tolist() == [1, 1.5, 2, 2.5, 3, 3.5]
    assert seconds.time_unit == "s"
    months = Sequences.from_frame(FRAME.set_axis(pd.period_range("2024-01", periods=6, freq="M")))
    assert months.times is not None
    assert str(months.times[0][-1])[:10] == "2024-06-01"
    numbers = Sequences.from_frame(FRAME.set_axis(pd.Index(np.arange(6) * 2, name="t")))
    assert (numbers.times is not None and numbers.times[0].tolist(), numbers.time_name) == ([0, 2, 4, 6, 8, 10], "t")
    zoned = Sequences([FRAME.tz_localize("Europe/Berlin")])
    assert zoned.times is not None
    assert zoned.time_unit == "Europe/Berlin"  # days are steps of its calendar
    assert str(zoned.times[0][0])[:16] == "2024-03-01T00:00"


@pytest.mark.parametrize("index", [pd.RangeIndex(6), pd.Index(list("uvwxyz")), pd.Index(np.arange(6), name="row")])
def test_an_index_that_is_no_time_is_none(index: pd.Index) -> None:
    frame = FRAME.set_axis(index)
    assert Sequences.from_frame(frame).times is None
    assert Sequences([frame]).times is None
    assert table(frame).times is None


@pytest.mark.parametrize("read", [Sequences.from_frame, table])
def test_levels_of_an_index_are_columns(read: Any) -> None:
    frame = FRAME.assign(who=list("uuvvvv")).set_index("who", append=True)
    x = read(frame, by="who")
    assert (x.names, x.n_units.tolist(), x.time_name, x.features) == (["u", "v"], [2, 4], "time", ("a", "b"))
    np.testing.assert_array_equal(x.times[1], DAYS[2:].to_numpy())


def test_a_column_that_is_named_is_the_time() -> None:
    x = Sequences.from_frame(FRAME[::-1].assign(n=np.arange(6)), time="n")
    assert (x.time_name, x.features) == ("n", ("a", "b"))
    back = Sequences.from_frame(FRAME[::-1].rename_axis("day"), time="day")  # said, so it orders the rows
    np.testing.assert_array_equal(back[0], FRAME.to_numpy())


def test_times_of_an_index_that_go_back_are_refused() -> None:
    with pytest.raises(ValueError, match=r"index go back at row 1, .*sort_index.*by=.*reset_index"):
        Sequences.from_frame(FRAME[::-1])
    twice = pd.concat([FRAME, FRAME]).assign(who=list("uuuuuuvvvvvv"))
    with pytest.raises(ValueError, match="go back at row 6"):
        Sequences.from_frame(twice, columns=["a", "b"])
    assert len(Sequences.from_frame(twice, by="who")) == 2
    with pytest.raises(ValueError, match="sequence 0 go back at step 1"):
        Sequences([FRAME[::-1]])
    with pytest.raises(ValueError, match=r"sequence 0 holds times, but that of sequence 1 none.*reset_index"):
        Sequences([FRAME, FRAME.reset_index(drop=True)])
    with pytest.raises(ValueError, match="row 5 of the frame has no time"):
        Sequences.from_frame(FRAME.set_axis([*DAYS[:-1], pd.NaT]))


def test_to_frame_is_the_inverse() -> None:
    x = Sequences.from_frame(FRAME.rename_axis("day"))
    again = Sequences.from_frame(x.to_frame(), by="sequence", time="day")
    np.testing.assert_array_equal(again.times or [], x.times or [])
    np.testing.assert_array_equal(again[0], x[0])


FREQUENCIES = ["D", "B", "h", "15min", "W-WED", "MS", "ME", "2MS", "QE", "YS"]


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_dates_go_on_by_their_frequency(frequency: str) -> None:
    dates = pd.date_range("2023-11-04", periods=15, freq=frequency).to_numpy()
    ahead = times_ahead(dates[:12], 3)
    assert ahead is not None
    assert ahead.dtype == dates.dtype
    np.testing.assert_array_equal(ahead, dates[12:])


def test_numbers_go_on_by_their_step() -> None:
    ahead = times_ahead(np.arange(300) * 0.01, 2)
    assert ahead is not None
    np.testing.assert_allclose(ahead, [3.0, 3.01])
    since_1970 = 1.7e9 + np.arange(300) * 0.01  # whose differences float64 rounds to 2.4e-7
    ahead = times_ahead(since_1970[:-2], 2)
    assert ahead is not None
    np.testing.assert_allclose(ahead, since_1970[-2:], rtol=0, atol=1e-6)
    whole = times_ahead(np.array([3, 5, 7]), 2)
    assert whole is not None
    assert whole.tolist() == [9, 11]


@pytest.mark.parametrize(
    "times",
    [
        np.array([1.0]),
        np.array([1.0, 1.0]),
        np.array([0, 1, 3]),
        np.array([0.0, 1.0, 2.001]),
        pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-04"]).to_numpy(),
        pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-02"]).to_numpy(),
    ],
)
def test_irregular_times_do_not_go_on(times: np.ndarray) -> None:
    assert times_ahead(times, 2) is None


def test_with_a_past_go_its_times() -> None:
    times = np.array([0.0, 1.0, 1.5, 4.0, 9.0, 9.5])
    X = Sequences([np.arange(6.0)[:, None]], times=[times])
    train, test = X.split(0.5, past=2)
    assert train.past_times is None
    assert test.past_times is not None
    assert test.past_times[0] is not None
    np.testing.assert_array_equal(test.past_times[0], [1.0, 1.5])
    tail = test.segments([(0, 1, 3)], past=None)
    np.testing.assert_array_equal(tail.past_times[0], [1.0, 1.5, 4.0])
    pieces = X.chunks(2, past=None)
    assert pieces.past_times is not None
    assert [None if each is None else len(each) for each in pieces.past_times] == [None, 2, 4]
    np.testing.assert_array_equal(pieces.take([2]).past_times[0], times[:4])
    np.testing.assert_array_equal(Sequences.joined([test, pieces[2:]]).past_times[1], times[:4])
    np.testing.assert_array_equal(pieces.with_past_of(1).past_times[2], times[3:4])
    assert pieces.without_past().past_times is None
    assert Sequences([np.zeros((2, 1))], past=[np.zeros((1, 1))]).segments([(0, 1, 2)], past=None).past_times is None
    halved = pieces[2:].with_metadata(pieces[2:].metadata)
    np.testing.assert_array_equal(halved.past_times[0], times[:4])


def test_past_times_are_checked() -> None:
    x, past = [np.zeros((2, 1)), np.zeros((1, 1))], [np.zeros((2, 1)), None]
    times = [[3.0, 4.0], [0.0]]
    made = Sequences(x, times=times, past=past, past_times=[[1.0, 3.0], None])
    assert made.past_times is not None
    np.testing.assert_array_equal(made.past_times[0], [1.0, 3.0])
    assert made.past_times[1] is None
    bad: list[tuple[dict[str, Any], str]] = [
        ({"past_times": [[1.0, 3.5], None]}, "goes on to 3.5, but it begins at 3.0"),
        ({"past_times": [[1.0], None]}, "shape"),
        ({"past_times": [[1.0, 2.0]]}, "pass an array, or None, for each"),
        ({"past_times": [DAYS[:2], None]}, "not of one kind"),
        ({"past_times": [[1.0, 3.0], None], "times": None}, "past_times need sequences with a past and times"),
        ({"past_times": [[1.0, 3.0], None], "past": None}, "past_times need sequences with a past and times"),
    ]
    for options, match in bad:
        with pytest.raises(ValueError, match=match):
            Sequences(x, **({"times": times, "past": past} | options))
