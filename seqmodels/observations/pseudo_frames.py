"""A prior of Gaussian mixtures as frames that were not seen but are believed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqmodels.parameters import Configurable


@dataclass(eq=False, repr=False)
class PseudoFrames(Configurable):
    """Every component has also seen ``count`` frames of this mean and covariance; EM then finds the maximum a posteriori.

    It is the conjugate prior of Gauvain and Lee (1994), with their τ = ``count`` for means, weights and, by α = τ + D, covariances:
    a Dirichlet on weights, ``w ∝ frames + count``, and a normal-Wishart on the rest,
    ``mean = (Σ γ x + count mean_0) / (Σ γ + count)``; the diagonal form under diagonal covariances. Under a
    ``"tied"`` covariance the frames of all components are pooled with those seen. Networks do not use it.

    Args:
        count: a number, or ``(K, M)``, of frames; 0 or more.
        mean: a number, ``(D,)`` or ``(K, M, D)``, in units of the standardised data (0 is the mean of the training frames).
        covariance: a number, ``(D,)`` or ``(K, M, D)`` variances, in units of the standardised data; full covariances have zeros
            off the diagonal.
    """

    count: Any = 1.0
    mean: Any = 0.0
    covariance: Any = 1.0
