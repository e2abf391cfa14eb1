"""The command line: a file a command, listed in ``app.py``."""

from seqmodels.cli.app import app

__all__ = ["app"]
