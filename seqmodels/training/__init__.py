"""Training by gradient: the loop, and what it is made of."""

from seqmodels.training.callbacks import TensorBoard
from seqmodels.training.interruption import Interruption, interruptible
from seqmodels.training.loop import Listener, Objective, Recall, Recipe, Step, train
from seqmodels.training.optimizers import AdamW, Muon, Optimizer
from seqmodels.training.resuming import Checkpoints, Resumable, check_checkpoint_arguments, checkpoints_of_fit
from seqmodels.training.schedules import Cosine, Schedule, Trapezoid

__all__ = [
    "AdamW",
    "Checkpoints",
    "Cosine",
    "Interruption",
    "Listener",
    "Muon",
    "Objective",
    "Optimizer",
    "Recall",
    "Recipe",
    "Resumable",
    "Schedule",
    "Step",
    "TensorBoard",
    "Trapezoid",
    "check_checkpoint_arguments",
    "checkpoints_of_fit",
    "interruptible",
    "train",
]
