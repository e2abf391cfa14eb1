"""A warning about series that go on to new levels, which states with fixed means do not describe."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.encodings import Encoding, Standardize
from seqmodels.encodings.auto_series import SHORTEST, reaches_new_levels
from seqmodels.encodings.defaults import MOST_SERIES_BY_DEFAULT
from seqmodels.encodings.examples import Example
from seqmodels.encodings.step_maps import as_frames
from seqmodels.observations import AutoregressiveGaussian, Observation


def warn_of_new_levels(
    train: Sequence[Example], encoding: Encoding | str, learned: Encoding, observation: Observation
) -> None:
    """Warn, at the line that called ``fit``, if series move on to new levels of values and no encoding was named.

    States with fixed means do not describe such series. Only a few long series are tested.

    Args:
        train: the encoded training series; standardising keeps the order of values, so these show new levels too.
        encoding: the constructor's argument; only ``"auto"`` is warned about.
        learned: the encoding that ``encoding`` stands for.
        observation: the observation of the states; an autoregression follows a moving level and is not warned about.
    """
    is_level = (
        encoding == "auto" and type(learned) is Standardize and not isinstance(observation, AutoregressiveGaussian)
    )
    is_plain = all(e.source is None and e.states is None and e.inputs is None for e in train)
    is_in_memory = all(isinstance(e.values, np.ndarray) for e in train)
    if not (is_level and is_plain and is_in_memory) or len(train) > MOST_SERIES_BY_DEFAULT:
        return
    series = [as_frames(e.values) for e in train if len(e.values) >= SHORTEST]
    if series and reaches_new_levels(series):
        warn_caller(
            "the series goes on to levels that it never had before, which states with fixed means do not describe; "
            "pass encoding=AutoSeries() to read its changes, or encoding=Standardize() to keep levels",
        )
