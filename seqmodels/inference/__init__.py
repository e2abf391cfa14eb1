"""Inference algorithms for hidden Markov chains and linear-Gaussian systems, as functions of arrays."""
