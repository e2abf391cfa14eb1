"""How an HMM's parameters are found: Baum-Welch, stepwise EM, and training by gradient."""
