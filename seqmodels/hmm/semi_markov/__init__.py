"""Hidden semi-Markov models: HMMs whose states have distributions of their own of how long they last."""
