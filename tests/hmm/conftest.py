"""Fixtures of the tests of hidden Markov models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seqmodels.hmm.learning import restarts


@pytest.fixture(autouse=True, scope="module")
def _few_starts() -> Iterator[None]:
    """``n_init="auto"`` is two starts of the small data here: eight cost four times as much and show no more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restarts, "MOST_STARTS", 2)
        yield
