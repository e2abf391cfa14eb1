"""Statistics of paired comparison: intervals, p-values, all pairs, and the set of models that may be the best."""
