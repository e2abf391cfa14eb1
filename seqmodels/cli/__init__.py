"""The command line: one file per command, listed in ``app.py``."""

from seqmodels.cli.app import app

__all__ = ["app"]
