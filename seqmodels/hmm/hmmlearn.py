"""hmmlearn's names for arguments and attributes of ``HMM``, so that errors about them can say what to write instead."""

from __future__ import annotations

PRIOR = "observation=GaussianMixture(prior=observations.PseudoFrames(...))"
ARGUMENTS = {
    "n_components": "n_states=... (GaussianMixture(n_components=...) are the components of one state)",
    "n_iter": "max_iter=...",
    "n_mix": "observation=GaussianMixture(n_components=...)",
    "covariance_type": "observation=GaussianMixture(1, covariance_type=...)",
    "min_covar": "observation=GaussianMixture(1, min_covariance=...), in variances of the training data",
    "n_features": "encoding=Symbols(n_symbols=...), if some symbols do not occur in training",
    "startprob_prior": "pseudocount=hmm.Pseudocounts(initial=...), which are counts: subtract 1",
    "transmat_prior": "pseudocount=hmm.Pseudocounts(transition=...), which are counts: subtract 1",
    "emissionprob_prior": "observation=Categorical(pseudocount=...), which is a count: subtract 1",
    "weights_prior": PRIOR,
    "means_prior": PRIOR,
    "means_weight": PRIOR,
    "covars_prior": PRIOR,
    "covars_weight": PRIOR,
    "params": "training=ChainTraining(frozen=...), the names of the parameters that EM leaves as they are",
    "init_params": "HMM.from_parameters(..., warm_start=True), whose fit continues from these",
    "implementation": "nothing, because there is one implementation",
}
ATTRIBUTES = {
    "startprob_": "initial_",
    "transmat_": "transition_",
    "covars_": "covariances_",
    "emissionprob_": "emission_",
    "lambdas_": "rates_",
    "monitor_": "history_ and converged_",
    "score_samples": "log_prob(X) and posterior(X)",
    "get_stationary_distribution": "stationary_",
}


def hint_of_attribute(name: str) -> str:
    """Return a hint for the error about a missing attribute ``name``: what stands here for hmmlearn's attribute.

    It is empty if hmmlearn has no such attribute.

    >>> hint_of_attribute("transmat_"), hint_of_attribute("other_")
    ("; hmmlearn's transmat_ is transition_ here", '')
    """
    return f"; hmmlearn's {name} is {ATTRIBUTES[name]} here" if name in ATTRIBUTES else ""
