"""Runs of comparisons that a file describes, so that they can be repeated: their data, models and results."""
