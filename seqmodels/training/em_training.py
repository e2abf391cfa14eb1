"""``EMTraining``: the rarer options of a fit by EM."""

from __future__ import annotations

from dataclasses import dataclass

from seqmodels.training.checkpoint import Resumable


@dataclass(kw_only=True, eq=False, repr=False)
class EMTraining(Resumable):
    """The rarer options of a fit by EM: the argument ``training`` of a model that is fitted by EM.

    Args:
        checkpoint: file to which the fit writes its state, all random starts included; None writes none.
        checkpoint_seconds: seconds from one checkpoint to the next; 0 writes one after every step.
        resume_from: a checkpoint from which the fit resumes; ``"auto"``: ``checkpoint`` if that file exists; None
            starts anew.
    """
