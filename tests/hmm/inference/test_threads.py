from threading import Thread

import pytest
import torch

from seqmodels.hmm.inference.threads import WORTH_SHARING, one_thread_if_small


@pytest.fixture
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("n", "within"), [(1, 1), (WORTH_SHARING, 2)])
@pytest.mark.usefixtures("_two_threads")
def test_small_products_run_on_one_thread_and_the_number_is_given_back(n: int, within: int) -> None:
    with one_thread_if_small(torch.ones(1, 1), n):
        assert torch.get_num_threads() == within
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("_two_threads")
def test_other_threads_keep_theirs() -> None:
    found = []
    with one_thread_if_small(torch.ones(1, 1), 1):
        other = Thread(target=lambda: found.append(torch.get_num_threads()))
        other.start()
        other.join()
    assert found == [2]
