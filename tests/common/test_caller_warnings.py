from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.common.caller_warnings import warn_caller

RNG = np.random.default_rng(0)
DAYS = pd.date_range("2024-01-01", periods=60).delete(20)
SQUARES = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(20) ** 2, "D")
GAPS = sm.Sequences([RNG.normal(size=(59, 1))], times=[DAYS.to_numpy()])
IRREGULAR = sm.Sequences([RNG.normal(size=(59, 1))], times=[np.cumsum(RNG.exponential(1.0, 59))])
SPIKES = [np.where(RNG.random((60, 1)) < 0.4, 0.0, RNG.normal(size=(60, 1))) for _ in range(3)]
SYMBOLS = [RNG.integers(0, 3, 12) for _ in range(6)]
TABLE = pd.DataFrame({"x": RNG.normal(size=20), "said": [f"word {i % 3}" for i in range(20)]})
HMM = sm.HMM(2, max_iter=3, n_init=1, random_state=0)
BITS = sm.HMM.from_parameters([1.0, 0.0], np.eye(2), emission=np.eye(2))
# Fitted before the call, whose warnings alone are read; not while tests are collected.
FITTED = cache(lambda: sm.LinearGaussian.local_level(max_iter=2).fit(list(IRREGULAR)))

# What warns of something, each in one line.
CALLS: dict[str, Callable[[Path], object]] = {
    "fit": lambda _: HMM.clone().fit(SPIKES),
    "fit, of times": lambda _: HMM.clone().fit(GAPS),
    "filter": lambda _: BITS.filter([np.array([0, 1])]),
    "forecast": lambda _: sm.forecast(TABLE, 2),
    "forecast, by dates": lambda _: sm.forecast(TABLE["x"].set_axis(SQUARES), 2),
    "forecast of a model": lambda _: FITTED().forecast(IRREGULAR, 2),
    "backtest": lambda _: sm.backtest({"hmm": HMM}, SPIKES, horizon=2, first=50),
    "choose": lambda _: sm.choose(HMM, SPIKES, n_states=[1, 2], folds=2),
    "compare": lambda _: sm.compare({"a": HMM}, SYMBOLS, test=SYMBOLS[:2]),
    "read": lambda path: sm.data.read(path),
    "table": lambda _: sm.data.table(TABLE),
    "from_frame": lambda _: sm.Sequences.from_frame(TABLE),
    "anomalies": lambda _: sm.Anomalies(HMM, quantile=0.9).fit(SPIKES),
    "mixture": lambda _: sm.Mixture([HMM, HMM.clone()]).fit(SPIKES[:1]),
}


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", CALLS)
def test_a_warning_names_the_line_that_called_the_library(name: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    TABLE.to_csv(path, index=False)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        CALLS[name](path)
    assert given
    line = CALLS[name].__code__.co_firstlineno
    assert {(each.filename, each.lineno) for each in given} == {(__file__, line)}


def test_it_is_given_once_a_line_and_as_what_it_is() -> None:
    def warned(times: int) -> None:
        for _ in range(times):
            warn_caller(DeprecationWarning("old"))

    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("default")
        warned(3)
    assert [(each.category, str(each.message)) for each in given] == [(DeprecationWarning, "old")]


def test_nothing_in_the_library_counts_the_calls_between() -> None:
    counting = {
        path.name
        for path in (Path(sm.__file__).parent).rglob("*.py")
        if re.search(r"warnings\.warn\(|stacklevel=", path.read_text(encoding="utf-8"))
    }
    assert counting == set()
