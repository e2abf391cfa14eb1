"""The effort of audits in tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from seqmodels.evaluation.auditing import auditing


@pytest.fixture(autouse=True, scope="module")
def _few_prefixes() -> Iterator[None]:
    """A quick audit looks at half as many prefixes and sequences, each as closely as it does for users."""
    quick = replace(auditing.EFFORTS["quick"], n_prefixes=2, n_sequences=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(auditing.EFFORTS, "quick", quick)
        yield
