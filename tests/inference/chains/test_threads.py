from threading import Barrier, Thread

import pytest
import torch

from seqmodels.inference.chains.threads import WORTH_SHARING, in_threads, one_thread_if_small


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


@pytest.mark.usefixtures("_two_threads")
def test_each_item_has_a_thread_of_its_own_and_results_stand_in_order() -> None:
    both = Barrier(2, timeout=10)

    def run(item: int) -> tuple[int, int, bool]:
        both.wait()
        return item, torch.get_num_threads(), torch.is_grad_enabled()

    assert in_threads([5, 3], run) == [(5, 1, False), (3, 1, False)]
    assert torch.get_num_threads() == 2


def test_what_one_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        in_threads([1, 0], lambda item: 1 // item)
