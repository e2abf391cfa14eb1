"""How linear-Gaussian systems are fitted: starts, sums of expectations, EM."""
