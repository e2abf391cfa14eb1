"""Measure how much a score depends on the variance floor, and decide whether the floor and not the data set it.

If values repeat, a variance shrinks until its floor stops it, and the density there is as high as the floor allows: the
score then depends on the floor, which is a setting, and not on the data. Reasonable settings of a floor differ by a
factor of 1000, ten doublings, so a difference of less than ten times the effect of one doubling depends on which
setting was taken.
"""

from __future__ import annotations

import math

from seqmodels.encodings.raw_data import Data
from seqmodels.model import SequenceModel

FLOOR_FACTORS = (2.0, 0.5)
MAX_FLOOR_EFFECT = 0.05  # nats per unit by which a floor may move a score, however large the difference to the baseline
MAX_FLOOR_SHARE = 0.1  # share of the difference to the baseline by which a floor may move a score
MIN_FLOOR_EFFECT = 0.001  # nats per unit: a smaller effect is ignored, however small the difference


def floor_effect(model: SequenceModel, score: float, test: Data) -> float:
    """Return the largest change of a model's score when its variance floors are doubled or halved, in nats per unit.

    A variance floor is the least value that a variance may have. The model is not fitted again: variances at the floor
    move with it, and variances below a doubled floor are raised to it. The effect is 0.0 if no variance is at its floor
    or if the score is not finite.

    Args:
        model: a fitted model.
        score: its score on the test data.
        test: the test data.
    """
    history = model.history_
    if not len(history) or not history["floor_hits"].iloc[-1] > 0 or not math.isfinite(score):
        return 0.0
    return max(abs(model._with_floor(factor).score(test.X, test.y) - score) for factor in FLOOR_FACTORS)


def is_set_by_floor(effect: float, difference: float) -> bool:
    """Return True if a score depends so much on the variance floor that it says little about the data.

    A variance floor is the least value that a variance may have.

    Args:
        effect: change of the score when the floor is doubled or halved, in nats per unit.
        difference: score minus the baseline's, in nats per unit; NaN or 0 means that there is none to compare with.
    """
    apart = abs(difference) if math.isfinite(difference) and difference else math.inf
    return effect > min(MAX_FLOOR_EFFECT, max(MIN_FLOOR_EFFECT, MAX_FLOOR_SHARE * apart))
