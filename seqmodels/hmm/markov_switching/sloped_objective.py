"""EM of a switching autoregression whose means depend on inputs: means and slopes are one table in E- and M-steps.

So the M-step of an HMM serves, with states that share emissions or keep them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.em import Expectations, MAPObjective, m_step
from seqmodels.hmm.markov_switching.deviations import DeviationEmission
from seqmodels.hmm.parameters import Parameters
from seqmodels.training import Row


def joined(parameters: Parameters, emission: DeviationEmission, columns: list[int]) -> Parameters:
    """Return the parameters with the means' slopes on the inputs ``columns`` appended to the table as columns.

    ``table_slopes`` stay unchanged.
    """
    assert parameters.table_slopes is not None, "of means that depend on inputs"
    return replace(parameters, table=emission.with_slopes(parameters.table, parameters.table_slopes[:, :, columns]))


@dataclass(frozen=True)
class SlopedObjective:
    """The objective of EM for means that depend on inputs; the table has their slopes as additional columns.

    Attributes:
        of_chain: the objective of a model with the same emission, constraints and units.
    """

    of_chain: MAPObjective

    @property
    def emission(self) -> Emission:
        """The emission whose tables EM estimates."""
        return self.of_chain.emission

    def log_prior(self, parameters: Parameters) -> float:
        """Return the log-density of the prior in nats, up to a constant."""
        return self.of_chain.log_prior(parameters)

    def row(self, step: float, seconds: float, log_prob: float, log_prior: float, table: Tensor) -> Row:
        """Return a row of the fit's ``history_``: the figures after an EM step, in nats per raw unit.

        The arguments are as in ``MAPObjective.row``.
        """
        return self.of_chain.row(step, seconds, log_prob, log_prior, table)

    def maximised(self, parameters: Parameters, expectations: Expectations) -> Parameters:
        """Return the parameters after an M-step on means, slopes, coefficients and variances."""
        emission, columns = self.of_chain.emission, list(self.of_chain.inputs.emission)
        assert isinstance(emission, DeviationEmission), "of this chain"
        assert parameters.table_slopes is not None, "of means that depend on inputs"
        whole = replace(joined(parameters, emission, columns), table_slopes=None)
        updated = m_step(whole, expectations, self.of_chain)
        slopes = torch.zeros_like(parameters.table_slopes)
        slopes[:, : emission.size, columns] = emission.slopes(updated.table)
        return replace(updated, table=updated.table[:, : emission.n_columns], table_slopes=slopes)
