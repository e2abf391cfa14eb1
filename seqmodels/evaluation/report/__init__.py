"""One self-contained page about a comparison: it opens without a network, and fetches nothing."""

from seqmodels.evaluation.report.page import html_report

__all__ = ["html_report"]
