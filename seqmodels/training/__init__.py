"""Training by gradient: the loop, and what it is made of."""

from seqmodels.training.callbacks import TensorBoard
from seqmodels.training.loop import Listener, Objective, Recall, Recipe, Step, train
from seqmodels.training.optimizers import AdamW, Muon, Optimizer
from seqmodels.training.schedules import Cosine, Schedule, Trapezoid

__all__ = [
    "AdamW",
    "Cosine",
    "Listener",
    "Muon",
    "Objective",
    "Optimizer",
    "Recall",
    "Recipe",
    "Schedule",
    "Step",
    "TensorBoard",
    "Trapezoid",
    "train",
]
