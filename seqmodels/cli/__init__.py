"""The command line: ``seqmodels compare | fit | score | anomalies | sample | inspect | report``."""

from seqmodels.cli.app import app

__all__ = ["app"]
