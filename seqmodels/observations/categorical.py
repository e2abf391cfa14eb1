"""A distribution over V symbols, ``p(x = v) = softmax(logits)_v``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqmodels.common.parameters import NotNegativeFloat, refuse_wrong_arguments
from seqmodels.observations.base import Observation


@dataclass(eq=False, repr=False)
class Categorical(Observation):
    """A distribution over V symbols; its output parameters are V logits, which are unnormalised log-probabilities.

    Args:
        pseudocount: number added to every expected count in an M-step (a symmetric Dirichlet prior with parameter ``1 +
            pseudocount``), so that a symbol unseen in training does not get probability zero. Networks do not use it.
    """

    pseudocount: NotNegativeFloat = 0.0
    emits = "symbols"

    def check(self, size: int) -> None:
        refuse_wrong_arguments(self)

    def starting_near(self, start: Tensor, total: Tensor, n: float) -> Tensor:
        """Return logits from which training starts, moved by the log-frequencies of the symbols in the training data.

        Half a count is added to the count of each of the V symbols.

        Args:
            start: logits before the change, ``(V,)``.
            total: number of times each symbol occurs, ``(V,)``.
            n: number of training steps.
        """
        return start + torch.log((total + 0.5) / (n + 0.5 * len(total))).to(start.dtype)

    def is_valid(self, table: Tensor, size: int) -> Tensor:
        return table.logsumexp(-1, keepdim=True).isfinite()  # so none is NaN or inf; -inf is a true zero

    def locations(self, size: int) -> list[slice]:
        return [slice(0, size)]

    def n_output_parameters(self, size: int) -> int:
        return size

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        if output_parameters.requires_grad and output_parameters.shape[:-1] == x.shape:
            return categorical_log_prob(output_parameters, x)
        log_p = self.log_probs(output_parameters)  # (..., V)
        # broadcast_tensors instead of broadcast_shapes, because the latter imports sympy: a second and 50 MB.
        log_p, index = torch.broadcast_tensors(log_p, x.unsqueeze(-1))  # each (..., V)
        selected: Tensor = log_p.gather(-1, index[..., :1])
        return selected.squeeze(-1)

    def step_log_prob(self, output_parameters: np.ndarray, x: np.ndarray) -> float:
        if type(self) is not Categorical:  # a subclass may define other probabilities
            return super().step_log_prob(output_parameters, x)
        logits = output_parameters - np.maximum.reduce(output_parameters)
        return float(logits[int(x)]) - math.log(np.add.reduce(np.exp(logits)))

    def log_probs(self, output_parameters: Tensor) -> Tensor:
        return torch.log_softmax(output_parameters, dim=-1)

    def tempered(self, output_parameters: Tensor, temperature: float) -> Tensor:
        return output_parameters / temperature

    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        return torch.multinomial(torch.softmax(output_parameters, dim=-1), 1, generator=generator).squeeze(-1)


class _CategoricalLogProb(torch.autograd.Function):
    """The function ``log softmax(logits)_x`` in nats with a gradient of its own; it can be differentiated once.

    Its arguments are logits ``(..., V)`` of V symbols, and the symbols x ``(...)``. The gradient
    ``onehot(x) - softmax(logits)`` is written into one array. Autograd would first fill an array of zeros with the
    gradient of the selected entries and then pass over it again.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, x: Tensor) -> Tensor:
        log_p = torch.log_softmax(logits, -1)
        ctx.save_for_backward(log_p, x)
        return log_p.gather(-1, x.unsqueeze(-1)).squeeze(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        log_p, x = ctx.saved_tensors
        g = gradient.unsqueeze(-1)
        return log_p.exp().mul_(-g).scatter_add_(-1, x.unsqueeze(-1), g), None


categorical_log_prob: Callable[[Tensor, Tensor], Tensor] = _CategoricalLogProb.apply
