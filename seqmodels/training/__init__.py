"""Training: the gradient loop, the EM driver, and their parts."""

from seqmodels.training.callbacks import Callback, TensorBoard
from seqmodels.training.checkpoint import Checkpoints, Resumable, checkpoints_of_fit
from seqmodels.training.em import EMProblem, FitResult, Row, RunOfStarts, Starts, StopRule, run_em, show_row
from seqmodels.training.em_training import EMTraining
from seqmodels.training.gradient_training import GradientTraining
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
    "EMProblem",
    "EMTraining",
    "FitResult",
    "GradientTraining",
    "Interruption",
    "Muon",
    "Objective",
    "Optimizer",
    "Parallel",
    "Perturbation",
    "Resumable",
    "Row",
    "RunOfStarts",
    "Schedule",
    "Starts",
    "StopRule",
    "TensorBoard",
    "TrainConfig",
    "Transformation",
    "Trapezoid",
    "checkpoints_of_fit",
    "interruptible",
    "run_em",
    "show_row",
    "train",
    "whole_weights",
]
