"""Budgets of a fit, and the choice of hyperparameters on the training part alone."""
