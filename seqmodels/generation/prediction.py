"""What a model says of the next step: a mixture of K observations, and the end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from seqmodels.observations import Observation


@dataclass(frozen=True)
class Prediction:
    """The next step of n sequences at once.

    Attributes:
        observation: how a component emits the step.
        output_parameters: ``(n, K, P)``, of the observation in each component.
        log_weights: ``(n, K)`` of the components, normalised, -inf everywhere where no next step is possible; None
            where K is 1.
        past: ``(n, p, D)`` the last steps, for observations that look at them, or None.
        log_end: ``(n,)`` log-probability that the sequence has ended; None where its length is given.
        exact_log_continue: ``(n,)`` log-probability that it goes on, where that is known to more digits than
            ``log(1 - exp(log_end))`` has.
    """

    observation: Observation
    output_parameters: Tensor
    log_weights: Tensor | None
    past: Tensor | None
    log_end: Tensor | None
    exact_log_continue: Tensor | None = None

    @torch.no_grad()
    def log_prob(self, x: Tensor) -> Tensor:
        """``(n,)`` log-probability that the sequence goes on, and with ``x``."""
        return self._sum_components(self.log_prob_by_component(x)) + self.log_continue

    def log_prob_by_component(self, x: Tensor) -> Tensor:
        """``(n, K)`` log-probability of ``x`` in each component."""
        past = None if self.past is None else self.past.unsqueeze(1)
        x = x.to(self.output_parameters.dtype) if x.is_floating_point() else x  # a stream's steps come in float64
        return self.observation.log_prob(self.output_parameters, x.unsqueeze(1), past)

    def log_probs(self, *, with_end: bool = True) -> Tensor:
        """``(n, V)`` float64 log-probability of every symbol; where ends are events ``(n, V + 1)``, the end last.

        Without ``with_end`` given that the sequences go on, ``(n, V)``.
        """
        log_probs = self._sum_components(self.observation.log_probs(self.output_parameters.double()))  # (n, V)
        if not with_end or self.log_end is None:
            return log_probs
        log_continue = torch.as_tensor(self.log_continue).double()
        return torch.cat([log_probs + log_continue.unsqueeze(-1), self.log_end.double().unsqueeze(-1)], dim=-1)

    def _sum_components(self, log_prob: Tensor) -> Tensor:
        """The mixture's log-probabilities ``(n, ...)`` of those in each component, ``(n, K, ...)``."""
        if self.log_weights is None:
            return log_prob.squeeze(1)
        log_weights = self.log_weights.view(*self.log_weights.shape, *[1] * (log_prob.ndim - 2))
        return torch.logsumexp(log_weights + log_prob, dim=1)

    @property
    def log_continue(self) -> Tensor | float:
        """``(n,)`` log-probability that the sequence goes on."""
        if self.exact_log_continue is not None:
            return self.exact_log_continue
        return 0.0 if self.log_end is None else torch.log(-torch.expm1(self.log_end))

    @property
    def has_no_next_step(self) -> Tensor:
        """``(n,)`` bool: no next step has any probability (the sequence must end, or is impossible already)."""
        if self.log_weights is None:
            return torch.zeros(len(self.output_parameters), dtype=torch.bool, device=self.output_parameters.device)
        return torch.isneginf(self.log_weights).all(-1)

    def weights(self) -> Tensor:
        """``(n, K)`` of the components; uniform where there is no next step, so that every row can be drawn from."""
        if self.log_weights is None:
            return self.output_parameters.new_ones(len(self.output_parameters), 1)
        return torch.where(self.has_no_next_step.unsqueeze(-1), 1 / self.log_weights.shape[-1], self.log_weights.exp())

    def _log_weights(self) -> Tensor:
        """The logarithm of ``weights``, finite also where a weight underflows."""
        if self.log_weights is None:
            return self.output_parameters.new_zeros(len(self.output_parameters), 1)
        return torch.where(self.has_no_next_step.unsqueeze(-1), -math.log(self.log_weights.shape[-1]), self.log_weights)

    def as_distribution(self, shift: Tensor, scale: Tensor) -> Any:
        """The first sequence's prediction as a Pyro distribution over raw values.

        Symbols whose length is not given have one more category, the last: the end. Vectors: given that they go on. In
        both its ``p_end`` is the probability that the sequence ends here, 0 where lengths are given.
        """
        import pyro.distributions as dist

        if self.has_no_next_step[0] and (self.log_end is None or self.log_end[0] < 0):
            raise ValueError("what came before has probability zero, so the model says nothing of what comes next")
        past = None if self.past is None else self.past[:1]
        weights = self._log_weights()[0].to(self.output_parameters.dtype)  # an HMM's belief is float64
        try:
            result = self.observation.distribution(self.output_parameters[0], weights, past, shift, scale)
        except ValueError as error:  # parameters that are no number, or infinite
            raise ValueError(
                "after what came before, what comes next has a distribution that "
                f"{self.output_parameters.dtype} cannot hold; rescale the values that are far from the training data"
            ) from error
        if self.log_end is None:
            result.p_end = 0.0
            return result
        if self.observation.emits == "symbols":
            log_continue = torch.as_tensor(self.log_continue)[0]
            result = dist.Categorical(
                logits=torch.cat([result.logits + log_continue, self.log_end[:1]]), validate_args=True
            )
        result.p_end = float(self.log_end[0].exp())
        return result
