"""The largest size whose count is within a limit."""

import pytest

from seqmodels.model.size_for_budget import largest_size


@pytest.mark.parametrize("most", [1, 2, 49, 63, 64, 65, 1000])
def test_largest_is_what_trying_every_size_finds(most):
    assert largest_size(lambda k: k * k, most, 1, "k") == max(k for k in range(1, 40) if k * k <= most)
