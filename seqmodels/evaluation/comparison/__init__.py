"""Comparison of models with ``compare``: fitting, scoring, significance tests, the result table, and its saved files."""
