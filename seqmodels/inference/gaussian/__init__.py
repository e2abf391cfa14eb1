"""Filters and smoothers of linear-Gaussian systems: arrays in, arrays out."""
