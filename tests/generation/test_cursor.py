from __future__ import annotations

import numpy as np
import pytest

from seqmodels.generation import source_of_each, stacked_sources


def test_stacked_sources() -> None:
    one, two = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
    assert stacked_sources(None, 3) is None
    np.testing.assert_array_equal(stacked_sources(one, 3), [one] * 3)
    np.testing.assert_array_equal(stacked_sources([one, two], 2), [one, two])
    with pytest.raises(ValueError, match=r"2 sources of \[1\] steps for 3 sequences"):
        stacked_sources([one, two], 3)
    with pytest.raises(ValueError, match=r"\[1, 2\] steps"):
        stacked_sources([one, np.ones((2, 2))], 2)


def test_source_of_each() -> None:
    one, two = np.array([1, 2]), np.array([3])
    assert source_of_each(None, 2) == [None, None]
    assert source_of_each(one, 2) == [one, one]
    assert source_of_each([one, two], 2) == [one, two]
    with pytest.raises(ValueError, match="2 sources for 3 sequences"):
        source_of_each([one, two], 3)
