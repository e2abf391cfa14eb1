"""Filters and smoothers of linear-Gaussian systems, as functions of arrays that return arrays."""
