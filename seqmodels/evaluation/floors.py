"""Whether a floor of the variances made a score: the score with the floor doubled and halved tells.

Where values repeat, a variance shrinks until its floor stops it, and the density there is as high as the floor lets it be: the
figure is one of the floor, which is a setting, and not of the data. Settings of a floor that are all reasonable lie apart by a
factor of 1000, ten doublings; a difference less than ten times what one doubling moves depends on which was taken.
"""

from __future__ import annotations

import math

from seqmodels.model import SequenceModel
from seqmodels.preparation import Data

FACTORS = (2.0, 0.5)
MOST = 0.05  # nats a unit by which a score may move, however far ahead or behind it is
SHARE = 0.1  # of the difference to the baseline
LEAST = 0.001  # nats a unit: less is nothing, however small the difference


def floor_effect(model: SequenceModel, score: float, test: Data) -> float:
    """Nats a unit by which the score of a fitted model moves, at most, with its floors doubled or halved; 0 if it stands on none.

    Nothing is fitted again: variances on the floor go with it, and those below a doubled one are lifted.
    """
    history = model.history_
    if not len(history) or not history["floor_hits"].iloc[-1] > 0 or not math.isfinite(score):
        return 0.0
    return max(abs(model._with_floor(factor).score(test.X, test.y) - score) for factor in FACTORS)


def is_set_by_floor(effect: float, difference: float) -> bool:
    """Of a row: what ``floor_effect`` found, and its difference to the baseline (NaN or 0: there is none)."""
    apart = abs(difference) if math.isfinite(difference) and difference else math.inf
    return effect > min(MOST, max(LEAST, SHARE * apart))
