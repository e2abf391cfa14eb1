"""Times with a zone: local times of days and longer steps, UTC of others, and the zone given back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqmodels import Sequences
from seqmodels.evaluation.forecasting.tables import regular_sequences
from seqmodels.evaluation.forecasting.words import DescribedSeries
from seqmodels.sequences.times import times_ahead
from seqmodels.sequences.zones import on_its_clock, with_zone, without_zone

ZONE = "Europe/Berlin"
DAYS = pd.date_range("2020-03-23", periods=21, freq="D", tz=ZONE)  # the clocks are changed on the 29th


def test_a_missing_day_beside_a_change_of_clocks_is_missing() -> None:
    x = regular_sequences(pd.Series(np.arange(21.0), DAYS).drop(DAYS[[5, 6, 7, 12]]))
    assert np.flatnonzero(np.isnan(np.asarray(x[0])[:, 0])).tolist() == [5, 6, 7, 12]
    assert x.times is not None
    np.testing.assert_array_equal(x.times[0], DAYS.tz_localize(None))
    ahead = times_ahead(x.times[0], 2)
    assert ahead is not None
    assert with_zone(ahead, x.time_unit).equals(pd.date_range("2020-04-13", periods=2, freq="D", tz=ZONE))


@pytest.mark.parametrize(
    ("dates", "season", "phase", "words"),
    [
        (pd.date_range("2019-01-01", periods=36, freq="MS", tz=ZONE), 12, 3, "in April"),
        (DAYS, 7, 0, "on Mondays"),
        (pd.date_range("2020-03-28", periods=48, freq="h", tz=ZONE), 24, 17, "at 18:00"),  # the clock as it is now
        (pd.date_range("2019-01-01", periods=12, freq="QS", tz="Asia/Tokyo"), 4, 0, "in quarter 1"),
    ],
)
def test_phases_of_a_season_are_called_as_in_the_zone(dates: Any, season: int, phase: int, words: str) -> None:
    x = regular_sequences(pd.Series(np.arange(float(len(dates))), dates))
    assert x.times is not None
    described = DescribedSeries("", np.asarray(x[0])[:, 0], on_its_clock(x.times[0], x.time_unit), None)
    assert described.phase(phase, season) == words


def test_times_that_are_regular_on_the_clock_only_are_local() -> None:
    twice = DAYS.tz_localize(None).repeat(2) + pd.to_timedelta([8, 20] * 21, unit="h")
    times, unit = without_zone([pd.Series(twice.tz_localize(ZONE))])
    assert unit == ZONE
    np.testing.assert_array_equal(times[0], twice)
    hours = pd.date_range("2020-10-24", periods=60, freq="h", tz=ZONE)  # with an hour that there is twice
    times, unit = without_zone([hours])
    assert unit == "UTC (Europe/Berlin)"
    assert with_zone(np.asarray(times[0]), unit).equals(hours)


def test_several_zones_are_utc_and_none_is_not_mixed() -> None:
    frames = [pd.DataFrame({"y": np.arange(21.0)}, DAYS), pd.DataFrame({"y": np.arange(21.0)}, DAYS.tz_convert("UTC"))]
    assert Sequences(frames).time_unit == "UTC"
    with pytest.raises(ValueError, match="sequence 0 have a time zone, and those of sequence 1 have none"):
        Sequences([frames[0], frames[1].tz_localize(None)])
    with pytest.raises(ValueError, match="times of different zones: Europe/Berlin, UTC"):
        Sequences.joined([Sequences(frames[:1]), Sequences(frames[1:])])


def test_a_past_is_in_the_zone_of_its_sequence() -> None:
    y = np.arange(21.0)[:, None]
    x = Sequences([y[7:]], times=[DAYS[7:]], past=[y[:7]], past_times=[DAYS[:7]])
    assert x.past_times is not None
    np.testing.assert_array_equal(x.past_times[0], DAYS[:7].tz_localize(None))


def test_what_an_earlier_version_saved_is_utc() -> None:
    times = np.arange("2020-01-01", "2020-01-04", dtype="datetime64[D]")
    x = Sequences([np.zeros((3, 1))], times=[times], time_unit="UTC")
    assert x.time_unit == "UTC"
    assert x.to_frame()["time"].tolist() == [*pd.date_range("2020-01-01", periods=3, tz="UTC")]
