"""hmmlearn's names for what ``HMM`` calls otherwise: an error about one of them says what to write."""

from __future__ import annotations

PRIOR = "observation=GaussianMixture(prior=observations.PseudoFrames(...))"
ARGUMENTS = {
    "n_components": "n_states=... (GaussianMixture(n_components=...) are the components of one state)",
    "n_iter": "max_iter=...",
    "n_mix": "observation=GaussianMixture(n_components=...)",
    "covariance_type": "observation=GaussianMixture(1, covariance_type=...)",
    "min_covar": "observation=GaussianMixture(1, min_covariance=...), in variances of the training data",
    "n_features": "encoding=Symbols(n_symbols=...), if some symbols do not come in training",
    "startprob_prior": "pseudocount=hmm.Pseudocounts(initial=...), counts: less by 1",
    "transmat_prior": "pseudocount=hmm.Pseudocounts(transition=...), counts: less by 1",
    "emissionprob_prior": "observation=Categorical(pseudocount=...), counts: less by 1",
    "weights_prior": PRIOR,
    "means_prior": PRIOR,
    "means_weight": PRIOR,
    "covars_prior": PRIOR,
    "covars_weight": PRIOR,
    "params": "training=ChainTraining(frozen=...), the names of what EM leaves as it is",
    "init_params": "HMM.from_parameters(..., warm_start=True), whose fit goes on from these",
    "implementation": "nothing: there is one implementation",
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
    """What to add to the error about an attribute that does not exist.

    >>> hint_of_attribute("transmat_"), hint_of_attribute("other_")
    ("; hmmlearn's transmat_ is transition_ here", '')
    """
    return f"; hmmlearn's {name} is {ATTRIBUTES[name]} here" if name in ATTRIBUTES else ""
