"""The E-step of one autoregression with missing values: weights count sequences, sums are of all frames."""

from __future__ import annotations

import numpy as np
import torch
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.hmm.corpus import Corpus
from seqmodels.hmm.emissions.autoregressive import AutoregressiveEmission
from seqmodels.hmm.learning.em import Expectations
from seqmodels.hmm.learning.one_regression import regression_batches, smoothed_e_step
from seqmodels.hmm.missing_past import PastFilter
from seqmodels.hmm.parameters import Parameters


def test_a_weight_counts_a_sequence_so_often() -> None:
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(n, 2)) for n in (12, 9, 3, 7)]
    for each in x[:3]:
        each[rng.random(each.shape) < 0.2] = np.nan
    observation = sm.AutoregressiveGaussian(2, background=0.0)
    emission = AutoregressiveEmission(observation, 2)
    row = 0.1 * torch.as_tensor(rng.normal(size=observation.n_output_parameters(2)))
    one = torch.ones(1, dtype=torch.float64)
    parameters = Parameters(one, 0.9 * one[None], 0.1 * one, row[None])

    def expectations(sequences: list[np.ndarray], weights: list[float]) -> Expectations:
        filtered_by = PastFilter(observation, row)
        device, dtype = torch.device("cpu"), torch.float64
        corpus = Corpus(sequences, weights, None, 2, 1, 50, device, dtype, past_filter=filtered_by)
        return smoothed_e_step(regression_batches(corpus, emission), emission, parameters)

    weighted = expectations(x, [2.0, 1.0, 0.0, 1.0])
    repeated = expectations([x[0], x[0], x[1], x[3]], [1.0] * 4)
    assert_allclose(weighted.log_prob, repeated.log_prob, rtol=1e-12)
    assert_allclose(weighted.emission[0], repeated.emission[0], rtol=1e-12)
    assert (float(weighted.initial), float(weighted.xi), float(weighted.final)) == (4.0, 36.0, 4.0)
    # The last feature is 1: all frames but the first two of each sequence.
    assert_allclose(weighted.emission[0][0, -1], 2 * 10 + 7 + 5)
