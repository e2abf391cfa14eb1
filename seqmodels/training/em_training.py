"""``EMTraining``: the rarer options of a fit by EM."""

from __future__ import annotations

from dataclasses import dataclass

from seqmodels.training.checkpoint import Resumable


@dataclass(kw_only=True, eq=False, repr=False)
class EMTraining(Resumable):
    """The rarer options of a fit by EM: the argument ``training`` of a model that is fitted by EM.

    Args:
        checkpoint, checkpoint_seconds, resume_from: where the fit writes its state (all random starts included), and
            from where it resumes, as ``Resumable`` says.
    """
