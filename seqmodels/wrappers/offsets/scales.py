"""How many times as great as a model says its errors are: a factor of standard deviations, which changes at times.

``g_t = g_{t-1}`` with probability ``1 - rate``, else it is drawn anew: a hidden Markov chain of few values, filtered
step by step (the recursion of fixed share: Herbster and Warmuth 1998, *Tracking the best expert*).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqmodels.inference.chains.log_space import finite
from seqmodels.wrappers.offsets.filtering import LinearMixture


@dataclass(frozen=True)
class ScaleChain:
    """A chain over R values.

    Attributes:
        values: ``(R,)`` what standard deviations are times.
        probabilities: ``(R,)`` of which each is drawn, at the start and anew.
        rate: probability that a step draws.
    """

    values: Tensor
    probabilities: Tensor
    rate: float

    def start(self, n: int) -> Tensor:
        """``(n, R)`` log-probabilities of the scale of the first step."""
        return self.probabilities.log().expand(n, -1)

    def widened(self, mixture: LinearMixture, log_scales: Tensor) -> LinearMixture:
        """The next step under ``log_scales (n, R)``: R J components, those of a scale side by side."""
        if len(self.values) == 1:
            return replace(mixture, factors=mixture.factors / self.values)
        n_scales = len(self.values)
        log_weights = log_scales.unsqueeze(-1) + mixture.log_weights.unsqueeze(1)  # (n, R, J)
        factors = mixture.factors.unsqueeze(1) / self.values.view(-1, 1, 1, 1)
        return LinearMixture(
            log_weights.flatten(1),
            mixture.means.repeat(1, n_scales, 1),
            mixture.slopes.repeat(1, n_scales, 1, 1),
            factors.flatten(1, 2),
        )

    def by_component(self, log_joint: Tensor) -> Tensor:
        """``(n, R J)`` of a step together with scale and component -> ``(n, J)`` with the component."""
        return torch.logsumexp(log_joint.unflatten(1, (len(self.values), -1)), 1)

    def after(self, log_joint: Tensor) -> Tensor:
        """``(n, R)`` log-probabilities of the next step's scale; from the start again where a step was impossible."""
        by_scale = torch.logsumexp(log_joint.unflatten(1, (len(self.values), -1)), 2)
        total = torch.logsumexp(by_scale, 1, keepdim=True)
        rate = self.values.new_tensor(self.rate)
        stays, draws = torch.log1p(-rate) + by_scale - finite(total), rate.log() + self.probabilities.log()
        return torch.where(total.isneginf(), self.probabilities.log(), torch.logaddexp(stays, draws.expand_as(stays)))

    def draws(self, log_scales: Tensor, log_joint: Tensor, *, is_first: bool) -> Tensor:
        """``(n, R)`` how probably the step drew its scale, and each, given it and those before it.

        Args:
            log_scales: ``(n, R)`` before the step.
            log_joint: ``(n, R J)`` of the step.
            is_first: the first step draws for certain.
        """
        by_scale = torch.logsumexp(log_joint.unflatten(1, (len(self.values), -1)), 2)
        posterior = torch.softmax(torch.where(by_scale.isneginf().all(1, keepdim=True), 0.0, by_scale), 1)
        return posterior if is_first else posterior * self.rate * (self.probabilities.log() - log_scales).exp()
