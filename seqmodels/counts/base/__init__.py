"""The parts that models based on counts share: their base class, the sequences of events that they read, learners and a
cursor.
"""

from seqmodels.counts.base.cursor import LearningCursor, merged, prediction_of_symbols
from seqmodels.counts.base.event_row import EventRow
from seqmodels.counts.base.learner import Learner, Learners, ReadHistory, StepLearner
from seqmodels.counts.base.model import CountModel, n_weighted_units

__all__ = [
    "CountModel",
    "EventRow",
    "Learner",
    "Learners",
    "LearningCursor",
    "ReadHistory",
    "StepLearner",
    "merged",
    "n_weighted_units",
    "prediction_of_symbols",
]
