"""The command line: ``seqmodels compare | fit | score | sample | inspect | report``."""

from seqmodels.cli.app import app

__all__ = ["app"]
