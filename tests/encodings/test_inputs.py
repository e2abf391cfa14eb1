from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqmodels import Sequences
from seqmodels.encodings.inputs import InputScaling

RAW = np.array([[1.0, 10.0], [3.0, 30.0], [5.0, 20.0]])
X = Sequences([np.zeros((3, 1))], inputs=[RAW], input_names=["a", "b"])


def test_standardised_by_name() -> None:
    scaling = InputScaling.learn(X, ["b", "a"])
    (encoded,) = scaling.encode(X)
    assert np.allclose(encoded.mean(0), 0)
    assert np.allclose(encoded.std(0), 1)
    assert np.allclose(encoded[:, 0], (RAW[:, 1] - 20.0) / RAW[:, 1].std())
    for given in (RAW[:, ::-1], {"a": RAW[:, 0], "b": RAW[:, 1]}, pd.DataFrame(RAW, columns=["a", "b"])):
        assert np.array_equal(scaling.encode_steps(given, 3), encoded)
    again = InputScaling.of_state(scaling.state())
    assert again.names == ("b", "a")
    assert np.array_equal(again.encode(X)[0], encoded)


def test_refused() -> None:
    with pytest.raises(ValueError, match=r"'a' is 0\.1 at every step"):
        InputScaling.learn(Sequences([np.zeros((7, 1))], inputs=[[0.1] * 7], input_names=["a"]), ["a"])
    with pytest.raises(ValueError, match="have the inputs a, b"):
        InputScaling.learn(X, ["c"])
    scaling = InputScaling.learn(X, ["a", "b"])
    with pytest.raises(ValueError, match="have no inputs"):
        scaling.check(Sequences([np.zeros((3, 1))]))
    bad: list[tuple[Any, str]] = [
        (None, "pass inputs="),
        ({"a": [1.0]}, "no 'b'"),
        (RAW[:2], r"pass \(3, 2\)"),
        (RAW[:, 0], r"pass \(3, 2\)"),
        (np.where(RAW == 30.0, np.nan, RAW), "'b' is nan at step 1"),
        ("ab", "no numbers"),
    ]
    for inputs, match in bad:
        with pytest.raises(ValueError, match=match):
            scaling.encode_steps(inputs, 3)
    for state in ({"scale": np.zeros(2)}, {"names": ["a", "a"]}, {"mean": np.zeros(3)}):
        with pytest.raises(ValueError, match=r"scales|different names|mean and a scale"):
            InputScaling.of_state({**scaling.state(), **state})


def test_times_are_an_input_counted_in_steps() -> None:
    dates = np.datetime64("2024-03-01") + np.array([0, 7, 8]).astype("timedelta64[D]")
    X = Sequences([np.zeros((3, 1)), np.zeros((1, 1))], times=[dates, dates[:1]])
    weekly, by_two_days = InputScaling.of_times("W"), InputScaling.of_times("D", 2.0)
    for scaling, gaps in ((weekly, [1.0, 1 / 7]), (by_two_days, [3.5, 0.5])):
        np.testing.assert_allclose(np.diff(scaling.encode(X)[0][:, 0]), gaps, rtol=1e-9)
        np.testing.assert_array_equal(scaling.encode_steps(dates), scaling.encode(X)[0])
        np.testing.assert_array_equal(scaling.encode_steps({"time": dates}, 3), scaling.encode(X)[0])
        again = InputScaling.of_state(scaling.state())
        assert (again.date_unit, again.names) == (scaling.date_unit, ("time",))
        np.testing.assert_array_equal(again.encode(X)[0], scaling.encode(X)[0])
    without = Sequences([np.zeros((3, 1))])
    np.testing.assert_array_equal(by_two_days.encode(without)[0], [[0.0], [1.0], [2.0]])
    assert np.isnan(by_two_days.encode_steps(None, 2)).all()
    with pytest.raises(ValueError, match="pass length=, or the times of the steps"):
        weekly.encode_steps(None)
    with pytest.raises(ValueError, match="go back at step 1"):
        weekly.encode_steps([2.0, 1.0])
    with pytest.raises(ValueError, match="date_unit is 'fortnight'"):
        InputScaling.of_state({**weekly.state(), "date_unit": "fortnight"})


def test_times_beside_other_inputs() -> None:
    X = Sequences([np.zeros((3, 1))], times=[[1.0, 4.0, 4.5]], inputs=[[[5.0], [7.0], [6.0]]], input_names=["heat"])
    heat = InputScaling.learn(X, ["heat"])
    both = InputScaling.of_times("D").beside(heat, ["heat", "time"])
    encoded = both.encode(X)[0]
    np.testing.assert_array_equal(encoded[:, :1], heat.encode(X)[0])
    np.testing.assert_array_equal(encoded[:, 1], [1.0, 4.0, 4.5])
    np.testing.assert_array_equal(both.of(["time"]).encode(X)[0], encoded[:, 1:])
    np.testing.assert_array_equal(both.of(["heat"]).encode(X)[0], encoded[:, :1])
    given = {"heat": [5.0, 7.0, 6.0], "time": [1.0, 4.0, 4.5]}
    np.testing.assert_array_equal(both.encode_steps(given, 3), encoded)
    assert np.isnan(both.encode_steps({"heat": [5.0]}, 1)[0]).tolist() == [False, True]


def timed(times: Any, time_unit: str | None = None) -> Sequences:
    return Sequences([np.zeros((len(times), 1))], times=[times], time_unit=time_unit)


HOURS = np.array([0.0, 5.0, 31.0])
DATES = np.datetime64("2024-02-28T07") + HOURS.astype("timedelta64[h]")
OF_TIMES = {
    "hours": timed(HOURS, "h"),
    "dates": timed(DATES),
    "durations": timed(HOURS.astype("timedelta64[h]")),
    "seconds": timed(HOURS * 3600, "seconds"),
    "days": timed(HOURS / 24, "days"),
    "beats": timed(HOURS, "beat"),
    "numbers": timed(HOURS),
}
CONVERTIBLE = ["hours", "dates", "durations", "seconds", "days"]


@pytest.mark.parametrize("name", OF_TIMES)
def test_times_are_counted_as_those_of_training(name: str) -> None:
    learned = InputScaling.of_times("D", 2.0, OF_TIMES[name])
    scaling = InputScaling.of_state(learned.state())
    (expected,) = scaling.encode(OF_TIMES[name])
    for other, X in OF_TIMES.items():
        if other == name or {name, other} <= set(CONVERTIBLE):
            np.testing.assert_allclose(np.diff(scaling.encode(X)[0], axis=0), np.diff(expected, axis=0), rtol=1e-9)
            times = X.times[0] if X.times else None
            of_steps = scaling.encode_steps({"time": times}, 3, after=X)
            np.testing.assert_array_equal(of_steps, scaling.encode(X)[0])
        else:
            with pytest.raises(ValueError, match=r"the times are .*, but the model was fitted to .*; (pass|say)"):
                scaling.encode(X)
    with pytest.raises(ValueError, match="the times of the sequences are dates, but those of the steps that follow"):
        scaling.encode_steps({"time": HOURS}, 3, after=OF_TIMES["dates"])
    if name in CONVERTIBLE:  # numbers that follow nothing count what the model does
        unit = {"hours": 1.0, "seconds": 3600.0}.get(name, 1 / 24)
        steps = scaling.encode_steps({"time": HOURS * unit}, 3)
        np.testing.assert_allclose(np.diff(steps, axis=0), np.diff(expected, axis=0), rtol=1e-9)


def test_without_a_known_unit_nothing_is_checked() -> None:
    scaling = InputScaling.of_times("h")  # as files of earlier versions have it
    for name in ("hours", "numbers", "beats"):
        np.testing.assert_array_equal(scaling.encode(OF_TIMES[name])[0].ravel(), HOURS)
    np.testing.assert_array_equal(np.diff(scaling.encode(OF_TIMES["dates"])[0].ravel()), np.diff(HOURS))
    assert "time_unit" not in scaling.state()
    with pytest.raises(ValueError, match="time_unit is 3"):
        InputScaling.of_state({**scaling.state(), "time_unit": 3})
