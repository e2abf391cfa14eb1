"""The random draws of a fit, from its own generator: torch's global one is neither read nor moved, in any thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

# Of the fit that runs in this thread; None: what draws takes torch's default generator.
_GENERATOR: ContextVar[torch.Generator | None] = ContextVar("generator", default=None)

# All that draws when modules are made. Those of nn.init are named too, since a mode sees them and not what
# they call.
_DRAWS = frozenset(
    (
        torch.Tensor.normal_,
        torch.Tensor.uniform_,
        torch.Tensor.random_,
        torch.Tensor.bernoulli_,
        torch.Tensor.exponential_,
        torch.Tensor.cauchy_,
        torch.Tensor.log_normal_,
        torch.Tensor.geometric_,
        torch.normal,
        torch.bernoulli,
        torch.multinomial,
        torch.rand,
        torch.randn,
        torch.randint,
        torch.randperm,
        nn.init.normal_,
        nn.init.uniform_,
        nn.init.trunc_normal_,
        nn.init.kaiming_uniform_,
        nn.init.kaiming_normal_,
        nn.init.xavier_uniform_,
        nn.init.xavier_normal_,
        nn.init.orthogonal_,
        nn.init.sparse_,
    )
)
# Packages may put functions of the same names in the place of those of nn.init, as transformers does while it makes a
# model; they take a generator too.
_INIT_NAMES = frozenset(
    getattr(draw, "__name__", "") for draw in _DRAWS if getattr(draw, "__module__", "") == nn.init.__name__
)


class InitialDraws(TorchFunctionMode):
    """Within the context, new modules draw their weights from ``generator``, as from torch's own of the same seed.

    Args:
        generator: on the CPU.

    >>> generator = torch.Generator().manual_seed(1)
    >>> with InitialDraws(generator):
    ...     layer = nn.Linear(3, 2)
    >>> with InitialDraws(torch.Generator().manual_seed(1)):
    ...     torch.equal(nn.Linear(3, 2).weight, layer.weight)
    True
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a function of torch; one that draws gets the generator unless it names one."""
        named = kwargs or {}
        draws = func in _DRAWS or getattr(func, "__name__", "") in _INIT_NAMES
        if draws and named.get("generator") is None:
            named = {**named, "generator": self.generator}
        return func(*args, **named)


@contextmanager
def training_draws(
    generator: torch.Generator, device: torch.device, *, compiled: bool = False
) -> Iterator[torch.Generator]:
    """Within the context dropout in this thread draws from the generator yielded, whose state checkpoints keep.

    On a CPU that is ``generator`` itself. Kernels that take no generator (compiled code, and those of other devices)
    draw from their device's default one: it is seeded alike and put back as it was, so there one fit at a time repeats
    exactly.
    """
    if device.type == "cpu" and not compiled:
        token = _GENERATOR.set(generator)
        try:
            yield generator
        finally:
            _GENERATOR.reset(token)
        return
    cuda = [torch.empty(0, device=device).device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        if device.type == "cpu":
            torch.set_rng_state(generator.get_state())
        else:
            torch.manual_seed(generator.initial_seed())
        yield torch.cuda.default_generators[cuda[0].index] if cuda else torch.default_generator


def fit_generator() -> torch.Generator | None:
    """The generator of the fit that runs in this thread; None: there is none, or its kernels take none."""
    return None if torch.compiler.is_compiling() else _GENERATOR.get()


def torch_dropout(x: Tensor, p: float) -> Tensor:
    """``F.dropout(x, p)`` in training, to the bit, with a mask from the generator of the fit in this thread."""
    generator = fit_generator()
    if generator is None:
        return F.dropout(x, p)
    return x * torch.empty_like(x).bernoulli_(1 - p, generator=generator).div_(1 - p)


class Dropout(nn.Module):
    """``nn.Dropout``, by ``torch_dropout``.

    Args:
        p: fraction dropped in training.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """``x`` with a fraction ``p`` dropped; unchanged outside of training."""
        return torch_dropout(x, self.p) if self.training and self.p else x
