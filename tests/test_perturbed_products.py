"""The plugin that rounds products otherwise: what it changes, what it keeps, and that it waits to be started."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import pytest
import torch
from numpy.testing import assert_array_equal
from torch import Tensor

from tests import perturbed_products

DRAWS = torch.Generator().manual_seed(0)
A, X = torch.rand(30, 30, generator=DRAWS).double(), torch.rand(30, generator=DRAWS).double()
STACKED, SEQUENCES = A.expand(3, 30, 30), torch.rand(2, 5, 4, generator=DRAWS)
WEIGHTS = torch.rand(30, 30, generator=DRAWS).requires_grad_()
KEPT = torch.tensor([[0.0, torch.inf, torch.nan]])


def products(lstm: torch.nn.LSTM) -> Iterator[Tensor]:
    """One of each kind: by operators, functions, modules, backwards, in other dtypes, and in another thread."""
    yield from (A @ A, A @ X, X @ X, torch.addmm(A, A, A), torch.addmv(X, A, X), STACKED @ STACKED)
    yield from (torch.baddbmm(STACKED, STACKED, STACKED), torch.einsum("ij,kj->ik", A, A), A.clone().addmm_(A, A))
    yield from (torch.mm(A, A, out=torch.empty_like(A)), A.float() @ A.float(), A.bfloat16() @ A.bfloat16())
    yield from (torch.nn.functional.linear(A, A, X), lstm(SEQUENCES)[0].detach())
    (gradient,) = torch.autograd.grad((WEIGHTS @ WEIGHTS).sum(), WEIGHTS)
    yield gradient
    with torch.inference_mode():
        yield torch.nn.functional.linear(A, A)
    found: list[Tensor] = []
    thread = Thread(target=lambda: found.append(A @ A))
    thread.start()
    thread.join()
    yield found[0]


def test_it_changes_the_last_digit_of_products_and_nothing_else(pytestconfig: pytest.Config) -> None:
    if pytestconfig.pluginmanager.has_plugin("tests.perturbed_products"):
        pytest.skip("products are perturbed already")
    with torch.random.fork_rng():
        lstm = torch.nn.LSTM(4, 4)
    state, before = torch.get_rng_state(), list(products(lstm))
    assert torch.equal(A @ A, before[0])
    library = perturbed_products.start()
    try:
        perturbed_products.SIGNS.manual_seed(0)
        for one, other in zip(before, products(lstm), strict=True):
            change = ((other.double() - one.double()) / one.double()).abs().max() / torch.finfo(one.dtype).eps
            assert 0.4 < change < 20  # a gradient is two products, and an LSTM several
        assert not torch.equal(A @ A, A @ A)
        assert_array_equal(torch.ones(1, 1) @ KEPT, KEPT)
        assert (torch.full((1, 1), 3) @ torch.full((1, 1), 3)).tolist() == [[9]]
    finally:
        library._destroy()
    assert torch.equal(A @ A, before[0])
    assert torch.equal(state, torch.get_rng_state())
