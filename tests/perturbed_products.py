"""Another processor simulated: every product of torch is the next float above or below what it is here.

    python -m pytest -p tests.perturbed_products tests/hmm

Libraries add the terms of a product in an order that depends on the processor, the number of threads, and where in
memory an array lies. As a plugin of pytest this module multiplies each element of the result of each product of floats
by 1 ± eps/2 of its dtype, with a sign that is drawn anew at each call; zeros, infinities and NaN are kept. A test that
fails then asserts what no user can rely on, or shows where rounding decides an outcome.

Products of NumPy and SciPy, and decompositions, are not reached: ``OPENBLAS_CORETYPE=Haswell`` and
``MKL_CBWR=COMPATIBLE`` are for them (``make other-machine``). Of a test the signs are always the same. A test that
decodes by the very numbers that coded is marked ``products_repeat``, and its products are left as they are. What its
module has cached of other tests is computed anew.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
import torch
from torch import Tensor

# What einsum, matmul, linear, tensordot and the modules come to on a CPU; of those with several results the first is
# the product.
PRODUCTS = (
    *("mm", "mm.out", "addmm", "addmm_", "addmm.out", "_addmm_activation", "addbmm", "addbmm_"),
    *("bmm", "bmm.out", "baddbmm", "baddbmm_", "baddbmm.out"),
    *("mv", "addmv", "addmv_", "addmv.out", "dot", "vdot"),
    *("convolution", "mkldnn_rnn_layer", "_scaled_dot_product_flash_attention_for_cpu"),
)
SIGNS = torch.Generator()
REPEAT = Event()  # set where products are left as they are


def perturb_(product: Tensor) -> None:
    """Multiply each element by 1 ± eps/2, in place; integers, zeros, infinities and NaN are kept."""
    if product.is_floating_point() and not REPEAT.is_set():
        sign = torch.randint(2, product.shape, generator=SIGNS, dtype=torch.int8).mul_(2).sub_(1)
        change = product * sign * (torch.finfo(product.dtype).eps / 2)
        product += change.where(product.isfinite(), 0.0)


def perturbed(name: str) -> Callable[..., Any]:
    """The kernel of ``aten::name`` with its result perturbed."""
    kernel = torch.library.get_kernel(f"aten::{name}", "CPU")

    def compute(keys: Any, *args: Any, **kwargs: Any) -> Any:
        result = kernel.call_boxed(keys, *args, **kwargs)
        perturb_(result if isinstance(result, Tensor) else result[0])
        return result

    return compute


def start() -> torch.library.Library:
    """Replace the kernels of all products, in all threads of the process, as long as the result is kept."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that a kernel is replaced
        for name in PRODUCTS:
            library.impl(name, perturbed(name), "CPU", with_keyset=True)
    return library


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[pytest.StashKey[torch.library.Library]()] = start()


def forget_results(item: pytest.Item) -> None:
    """Clear what the test's module, and all that it takes from others, keep of computations with other products."""
    for value in vars(item.getparent(pytest.Module).obj).values():  # type: ignore[union-attr]
        if hasattr(value, "cache_clear"):
            value.cache_clear()


def pytest_runtest_setup(item: pytest.Item) -> None:
    SIGNS.manual_seed(zlib.crc32(item.nodeid.encode()))
    if item.get_closest_marker("products_repeat"):
        if not REPEAT.is_set():
            forget_results(item)
        REPEAT.set()
    else:
        REPEAT.clear()
