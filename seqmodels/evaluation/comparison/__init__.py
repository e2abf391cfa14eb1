"""Comparison of models with ``compare``: fitting, scoring, significance tests, result table and saved files."""
