"""Variances pooled over all states of all labels, as a prior: few clusters (speakers) show too little of their own.

Compare regularised discriminant analysis (Friedman 1989), whose covariances of classes are shrunk towards the pooled.
"""

from __future__ import annotations

import warnings
from typing import TypeGuard

import numpy as np

from seqmodels.encodings import Encoding, Standardize
from seqmodels.hmm import HMM
from seqmodels.observations import GaussianMixture, PseudoFrames
from seqmodels.sequences import Sequences

PRIOR_COUNT = 1000.0  # frames that the pooled variances count as: states hardly have their own
MEAN_COUNT = 30.0  # frames at the mean of all that a state has seen besides its own
MAX_ITER = 5  # of the fits whose variances are pooled


def can_pool(model: object) -> TypeGuard[HMM]:
    """Whether the model's observation is the classifier's to choose, and one whose variances can be pooled."""
    return isinstance(model, HMM) and model.observation == "auto" and model.algorithm == "em"


def pooling_model(model: HMM, encoding: Encoding, sequences: Sequences, index: np.ndarray) -> HMM:
    """``model``, unfitted, whose states know the pooled variances from a short fit of each label.

    Args:
        model: of which ``can_pool`` is true.
        encoding: fitted, which the models of all labels share.
        sequences: of training.
        index: ``(n,)`` number of the label of each.
    """
    groups = [sequences.take(index == label) for label in np.unique(index)]
    short = model.clone().set_params(max_iter=min(MAX_ITER, model.max_iter), n_init=1, verbose=False)
    with warnings.catch_warnings():  # not of the models that are fitted in the end
        warnings.simplefilter("ignore")
        models = [short.clone().fit_encoded(encoding, group) for group in groups]
    observation = models[0].observation_
    if not isinstance(observation, GaussianMixture) or not isinstance(encoding, Standardize):
        return model
    prior = PseudoFrames(PRIOR_COUNT, 0.0, pooled_variances(models, groups) / encoding.scale**2, MEAN_COUNT)
    return model.clone().set_params(observation=observation.clone().set_params(prior=prior))


def pooled_variances(models: list[HMM], sequences: list[Sequences]) -> np.ndarray:
    """``(D,)`` mean of the variances of all states, by the frames in each, in raw units.

    Args:
        models: fitted, of one diagonal Gaussian a state.
        sequences: what each was fitted to.
    """
    total, n_frames = 0.0, 0.0
    for model, x in zip(models, sequences, strict=True):
        frames = np.sum([gamma.sum(axis=0) for gamma in model.posterior(x)], axis=0)  # (K,)
        total = total + frames @ model.covariances_[:, 0]
        n_frames += frames.sum()
    return np.asarray(total / n_frames)
