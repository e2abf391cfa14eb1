"""The forms of the recursions over time that small problems run in."""

from __future__ import annotations

import pytest

from seqmodels.inference.chains import parallel_segments


@pytest.fixture(params=["loops", "tensors"])
def recursions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test with compiled loops, and with the tensor operations that take their place without numba."""
    if request.param == "tensors":
        monkeypatch.setattr(parallel_segments, "_has_numba", lambda: False)
    return str(request.param)
