"""``GradientTraining``: the rarer options of a fit by gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from seqmodels.common.parameters import NotNegativeFloat, PositiveInt, Range
from seqmodels.training.callbacks import Callback
from seqmodels.training.checkpoint import Resumable
from seqmodels.training.optimizers import Optimizer
from seqmodels.training.perturbation import Perturbation
from seqmodels.training.schedules import Schedule

Compile = bool | Literal["reduce-overhead", "max-autotune"]
DEFAULT_PATIENCE = 5


@dataclass(kw_only=True, eq=False, repr=False)
class GradientTraining(Resumable):
    """The rarer options of a fit by gradient: the argument ``training`` of a network.

    The network itself has the arguments that users change most: ``lr``, ``batch_size``, ``max_steps``, ``max_epochs``
    and ``max_seconds``. One argument is changed in place by ``model.set_params(training__patience=10)``.

    Args:
        weight_decay: decoupled decay of weight matrices. None: 0.1 for ``Transformer`` and ``TransformerSeq2Seq``, and
            0.05 for all other networks.
        patience: number of evaluations (at most 20 a run) without improvement on held-out data after which training
            stops. 5, the default, stops no recurrent network, ``Transformer`` or ``TransformerSeq2Seq`` whose
            ``max_seconds``, given alone, are less than two passes over the data.
        optimizer: the rule by which gradients change the weights; None: ``Muon(newton_schulz_steps=3)`` for
            ``TransformerSeq2Seq``, and ``AdamW()`` for all other networks.
        schedule: learning rate as a function of the progress of training; None: ``Trapezoid()``.
        accumulate: number of batches whose gradients are averaged for one step.
        averaging: the fitted weights are a running mean over the last fraction ``averaging`` of the steps; 0: the last
            weights. ``"auto"``: 0.1 if no budget is given and sequences without targets have fewer than 300,000 steps
            together, which the network would otherwise overfit, or if ``max_seconds`` alone is given and is at least
            seven passes over the data; else, and for short series, 0.
        callbacks: functions that are called with each row of the history, a dictionary.
        parallel: how several processes (``torchrun``) share the work. ``"replicate"``: each has the whole network and
            takes a part of every batch. ``"shard"``: each has a part of the weights, of the gradients and of the
            optimiser's moments too. ``"auto"``: shards if whole networks would not fit in memory. A single process
            ignores it.
        precision: ``"float32"``, ``"bfloat16"`` (autocast) or ``"auto"``: bfloat16 if the hardware has instructions for
            it. Scoring never uses it.
        compile: True trains through ``torch.compile``, and so do its modes ``"reduce-overhead"`` (CUDA graphs) and
            ``"max-autotune"``. Compiling takes a minute or more before the first step, after which a small Transformer
            trains 8 % more symbols a second (128 wide, bfloat16, one core, ``benchmarks/language_model.py``), so it
            pays in long runs. Scoring and generation are never compiled. It needs a C++ compiler.
        perturbation: vectors only: each training sequence is changed by a random affine map, so that a network trained
            on few speakers, sensors or subjects predicts others better; ``log_prob`` and ``objective`` in ``history_``
            are then those of the changed sequences. None: sequences are read as they are.
        linear_start: vectors with a ``GaussianMixture`` only: True starts training from a linear prediction of each
            vector from the last one, by least squares, with a Gaussian of its own for the first vector, and the network
            learns the rest. It saves steps if frames overlap, as in speech, and costs some elsewhere.
        checkpoint, checkpoint_seconds, resume_from: the file to which the fit writes its state, the seconds from one
            checkpoint to the next, and the file from which it resumes, as ``Resumable`` says. A run that is resumed may
            have another ``max_steps``, ``max_epochs``, ``max_seconds`` and ``patience``: from there on the learning
            rate follows the new length.

    >>> from seqmodels import LSTM
    >>> model = LSTM(max_steps=100, training=GradientTraining(patience=10))
    >>> model.set_params(training__accumulate=2)
    LSTM(max_steps=100, training=GradientTraining(patience=10, accumulate=2))
    """

    weight_decay: NotNegativeFloat | None = None
    patience: PositiveInt = DEFAULT_PATIENCE
    optimizer: Optimizer | None = None
    schedule: Schedule | None = None
    accumulate: PositiveInt = 1
    averaging: Annotated[float, Range(0, 1)] | Literal["auto"] = "auto"
    callbacks: Sequence[Callback] = ()
    parallel: Literal["auto", "replicate", "shard"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: Compile = False
    perturbation: Perturbation | None = None
    linear_start: bool = False

    _renamed: ClassVar[Mapping[str, str]] = {"training_precision": "precision"}
    _former_values: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "perturbation": {"auto": None},
        "linear_start": {"auto": False},
    }
    _listed_last: ClassVar[tuple[str, ...]] = ("checkpoint", "checkpoint_seconds", "resume_from")

    def check(self) -> None:
        super().check()
        for part in (self.optimizer, self.schedule, self.perturbation):
            if part is not None:
                part.check()
        if self.averaging == 1:
            raise ValueError("averaging is 1; pass a fraction from 0 up to 1, or 'auto'")
