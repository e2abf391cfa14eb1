"""Symbols: ``p(x = v) = softmax(logits)_v``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.observations.base import Observation
from seqmodels.observations.chosen import chosen_log_prob


@dataclass(eq=False, repr=False)
class Categorical(Observation):
    """One of V symbols; the output parameters are its V logits: unnormalised log-probabilities.

    Args:
        pseudocount: added to every expected count in an M-step (a symmetric Dirichlet prior with parameter
            ``1 + pseudocount``), so that a symbol unseen in training is not impossible; networks do not need it.
    """

    pseudocount: float = 0.0
    emits = "symbols"

    def is_valid(self, table: Tensor, size: int) -> Tensor:
        return table.logsumexp(-1, keepdim=True).isfinite()  # so none is NaN or inf; -inf is a true zero

    def n_output_parameters(self, size: int) -> int:
        return size

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        if output_parameters.requires_grad and output_parameters.shape[:-1] == x.shape:
            return chosen_log_prob(output_parameters, x)
        log_p = self.log_probs(output_parameters)  # (..., V)
        shape = torch.broadcast_shapes(log_p.shape[:-1], x.shape)
        return log_p.expand(*shape, -1).gather(-1, x.expand(shape).unsqueeze(-1)).squeeze(-1)

    def log_probs(self, output_parameters: Tensor) -> Tensor:
        return torch.log_softmax(output_parameters, dim=-1)

    def tempered(self, output_parameters: Tensor, temperature: float) -> Tensor:
        return output_parameters / temperature

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        return torch.multinomial(torch.softmax(output_parameters, dim=-1), 1, generator=generator).squeeze(-1)
