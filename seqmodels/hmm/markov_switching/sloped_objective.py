"""EM of a switching autoregression whose means depend on inputs: means and slopes are one table in E- and M-steps.

So the M-step of an HMM serves, with states that share emissions or keep them.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from seqmodels.hmm.learning.em import Expectations, OwnMStep, m_step
from seqmodels.hmm.markov_switching.deviations import DeviationEmission
from seqmodels.hmm.parameters import Parameters


def joined(parameters: Parameters, emission: DeviationEmission, columns: list[int]) -> Parameters:
    """Return the parameters with the slopes of the states' means on inputs appended to the table as further columns.

    ``table_slopes`` stay unchanged.

    Args:
        parameters: parameters with ``table_slopes``.
        emission: the emission of the autoregression, which knows the columns of the table.
        columns: numbers of the inputs that means depend on.
    """
    assert parameters.table_slopes is not None, "of means that depend on inputs"
    return replace(parameters, table=emission.with_slopes(parameters.table, parameters.table_slopes[:, :, columns]))


class SlopedObjective(OwnMStep):
    """The objective of EM for an autoregression whose means depend on inputs, which learns means and slopes together.

    In the M-step the table of emissions has the slopes as further columns.
    """

    def maximised(self, parameters: Parameters, expectations: Expectations) -> Parameters:
        """Return the parameters after an M-step on means, their slopes on inputs, coefficients and variances.

        Args:
            parameters: parameters before the step.
            expectations: expected counts of the E-step.
        """
        emission, columns = self.of_chain.emission, list(self.of_chain.inputs.emission)
        assert isinstance(emission, DeviationEmission), "of this chain"
        assert parameters.table_slopes is not None, "of means that depend on inputs"
        whole = replace(joined(parameters, emission, columns), table_slopes=None)
        updated = m_step(whole, expectations, self.of_chain)
        slopes = torch.zeros_like(parameters.table_slopes)
        slopes[:, : emission.size, columns] = emission.slopes(updated.table)
        return replace(updated, table=updated.table[:, : emission.n_columns], table_slopes=slopes)
