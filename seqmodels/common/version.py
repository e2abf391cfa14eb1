"""The version of this package, written into saved files, checkpoints and reports."""

__version__ = "0.2.0"
