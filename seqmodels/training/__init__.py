"""Training by gradient: the loop, and what it is made of."""

from seqmodels.training.callbacks import Callback, TensorBoard
from seqmodels.training.checkpoint import Checkpoints, Resumable, check_checkpoint_arguments, checkpoints_of_fit
from seqmodels.training.interruption import Interruption, interruptible
from seqmodels.training.loop import BatchResult, CarriesState, Objective, TrainConfig, train
from seqmodels.training.optimizers import AdamW, Muon, Optimizer
from seqmodels.training.parallel import Parallel, whole_weights
from seqmodels.training.perturbation import Perturbation, Transformation
from seqmodels.training.schedules import Cosine, Schedule, Trapezoid

__all__ = [
    "AdamW",
    "BatchResult",
    "Callback",
    "CarriesState",
    "Checkpoints",
    "Cosine",
    "Interruption",
    "Muon",
    "Objective",
    "Optimizer",
    "Parallel",
    "Perturbation",
    "Resumable",
    "Schedule",
    "TensorBoard",
    "TrainConfig",
    "Transformation",
    "Trapezoid",
    "check_checkpoint_arguments",
    "checkpoints_of_fit",
    "interruptible",
    "train",
    "whole_weights",
]
