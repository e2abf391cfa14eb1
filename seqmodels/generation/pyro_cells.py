"""A Pyro distribution over the next raw frame, for models that predict the cell of a partition in which it lies.

It is in a module of its own because Pyro is slow to import.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from seqmodels.encodings.cells import ProductCells, shares_within
from seqmodels.encodings.step_maps import StepMap


class CellDistribution(TorchDistribution):
    """A Pyro distribution over raw vectors x, for a model that predicts the cell in which their encoded values z lie.

    A cell is an interval of values for each feature. The density is ``P(cell of z) p(z | cell of z) |dz / dx|``.

    Args:
        step: map between x and z for one frame, with the partition into cells.
        log_probs: normalised log-probabilities of the V cells, ``(V,)`` float64.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012 (torch declares it so)
    support = constraints.real_vector

    def __init__(self, step: StepMap, log_probs: Tensor) -> None:
        self.step, self.log_probs = step, log_probs
        super().__init__(event_shape=torch.Size(step.shift.shape[1:]), validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        x = np.asarray(value.detach().cpu(), dtype=np.float64).reshape(-1, self.event_shape[0])
        is_possible = np.isfinite(self.step.scaled(x)).all(1)
        result = np.full(len(x), -np.inf)
        known = x[is_possible]
        result[is_possible] = self.log_probs.numpy()[self.step.encode(known)] + self.step.log_det(known)
        return torch.as_tensor(result).reshape(value.shape[:-1])

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draw independent vectors ``(*sample_shape, D)`` with torch's global generator, as Pyro does."""
        shape = torch.Size(sample_shape)
        symbols = torch.multinomial(self.log_probs.exp(), max(1, shape.numel()), replacement=True).numpy()
        rng = np.random.default_rng(int(torch.randint(2**31, ())))
        x = self.step.decode(symbols, shares_within(rng, (len(symbols), *self.event_shape)))
        return torch.as_tensor(x).view(*shape, -1)

    @property
    def mean(self) -> Tensor:
        """The mean of each of the D features in raw units, ``(D,)``.

        Raises:
            NotImplementedError: if the encoding takes powers.
        """
        return self._moments()[0]

    @property
    def variance(self) -> Tensor:
        """The variance of each of the D features in raw units, ``(D,)``.

        Raises:
            NotImplementedError: if the encoding takes powers.
        """
        return self._moments()[1]

    def _moments(self) -> tuple[Tensor, Tensor]:
        if self.step.powers is not None or self.step.cells is None:
            raise NotImplementedError("the moments after a power transformation have no closed form; take forecast")
        mean, variance = _moments_of_cells(self.step.cells, self.log_probs.exp().numpy())
        scale = self.step.scale[0]
        return torch.as_tensor(self.step.shift[0] + scale * mean), torch.as_tensor(scale**2 * variance)


def _moments_of_cells(cells: ProductCells, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the variance of each of D features, each ``(D,)``, given the probabilities of V cells.

    Args:
        cells: the cells, combinations of one interval of values for each feature.
        probabilities: probability of each cell, ``(V,)``.
    """
    marginals = cells.marginals(probabilities)
    each = zip(cells.features, marginals, strict=True)
    mean = np.array([p @ c.means for c, p in each])
    within = zip(cells.features, marginals, mean, strict=True)
    return mean, np.array([p @ (c.variances + (c.means - m) ** 2) for c, p, m in within])
