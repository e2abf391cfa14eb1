"""Hidden chains as values: what the states of a sequence follow, and everything that models compute from it."""
