"""The version of this package, which saved files, checkpoints and reports name."""

__version__ = "0.1.0"
