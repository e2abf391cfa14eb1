"""Whether a floor of the variances made a score.

Where values repeat, a variance shrinks until its floor stops it, and the density there is as high as the floor
allows: the figure then depends on the floor, which is a setting, and not on the data. Reasonable settings of a floor
differ by a factor of 1000, ten doublings; a difference of less than ten times what one doubling moves depends on
which setting was taken.
"""

from __future__ import annotations

import math

from seqmodels.encodings.raw_data import Data
from seqmodels.model import SequenceModel

FLOOR_FACTORS = (2.0, 0.5)
MAX_FLOOR_EFFECT = 0.05  # nats per unit by which a floor may move a score, however large the difference to the baseline
MAX_FLOOR_SHARE = 0.1  # of the difference to the baseline
MIN_FLOOR_EFFECT = 0.001  # nats per unit: a smaller effect is ignored, however small the difference


def floor_effect(model: SequenceModel, score: float, test: Data) -> float:
    """The most that doubling or halving its floors changes a model's score, nats per unit; 0 if no variance is on one.

    Nothing is fitted again: variances on the floor move with it, and those below a doubled floor are lifted.
    """
    history = model.history_
    if not len(history) or not history["floor_hits"].iloc[-1] > 0 or not math.isfinite(score):
        return 0.0
    return max(abs(model._with_floor(factor).score(test.X, test.y) - score) for factor in FLOOR_FACTORS)


def is_set_by_floor(effect: float, difference: float) -> bool:
    """Whether a floor made a score: by ``floor_effect`` and the difference to the baseline (NaN or 0: none)."""
    apart = abs(difference) if math.isfinite(difference) and difference else math.inf
    return effect > min(MAX_FLOOR_EFFECT, max(MIN_FLOOR_EFFECT, MAX_FLOOR_SHARE * apart))
