"""What a model may spend, and its hyperparameters chosen on the training part alone."""
