from __future__ import annotations

import pytest
import torch

from seqmodels.hmm.threads import WORTH_SHARING, one_if_small


@pytest.mark.parametrize(("n", "within"), [(10, 1), (WORTH_SHARING, 2)])
def test_small_products_run_on_one_thread_and_the_number_is_given_back(n: int, within: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_if_small(torch.eye(3), n):
            assert torch.get_num_threads() == within
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
