"""Inference, arrays in and arrays out: hidden Markov chains, and linear-Gaussian systems."""
