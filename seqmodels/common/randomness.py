"""The random draws of a fit, taken from a generator of its own so that torch's global generator is left untouched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

# The generator of the fit that runs in this thread; None means that draws come from torch's default generator.
_GENERATOR: ContextVar[torch.Generator | None] = ContextVar("generator", default=None)

# All functions that draw when modules are made. Functions of nn.init are listed too, because a mode sees their calls
# and not the draws inside them.
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
# Names of nn.init's functions, because packages may replace those by functions of the same names, which take a
# generator too; transformers does so while it makes a model.
_INIT_NAMES = frozenset(
    getattr(draw, "__name__", "") for draw in _DRAWS if getattr(draw, "__module__", "") == nn.init.__name__
)


class InitialDraws(TorchFunctionMode):
    """A context in which new torch modules draw their initial weights from ``generator``.

    The weights are the same as with torch's default generator seeded alike.

    Args:
        generator: a generator on the CPU.

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
        """Call a torch function, and pass ``generator`` to it if it draws random numbers and was not given one."""
        named = kwargs or {}
        draws = func in _DRAWS or getattr(func, "__name__", "") in _INIT_NAMES
        if draws and named.get("generator") is None:
            named = {**named, "generator": self.generator}
        return func(*args, **named)


@contextmanager
def training_draws(
    generator: torch.Generator, device: torch.device, *, compiled: bool = False
) -> Iterator[torch.Generator]:
    """Return a context manager in which dropout of this thread draws from ``generator``.

    It yields the generator whose state is to be saved. On a CPU without compilation that is ``generator`` itself.
    Compiled code and kernels of other devices take no generator and draw from their device's default one. It is seeded
    from ``generator`` and put back afterwards, so fits repeat exactly on such a device only if they run one at a time.

    Args:
        generator: the generator of the fit.
        device: the device that the fit computes on.
        compiled: True if the training step is compiled.
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
    """Return the generator from which the fit in this thread draws its dropout masks.

    Return None if no fit runs in this thread, or if its device's kernels take no generator.
    """
    return None if torch.compiler.is_compiling() else _GENERATOR.get()


def torch_dropout(x: Tensor, p: float) -> Tensor:
    """Return ``x`` with a random part of its values set to zero and the rest scaled by ``1 / (1 - p)``, as in training.

    The mask is drawn from the generator of this thread's fit. The values equal those that ``F.dropout`` gives with a
    generator in the same state, bit for bit.

    Args:
        x: the values.
        p: probability that a value is set to zero.
    """
    generator = fit_generator()
    if generator is None:
        return F.dropout(x, p)
    return x * torch.empty_like(x).bernoulli_(1 - p, generator=generator).div_(1 - p)


class Dropout(nn.Module):
    """A dropout layer like ``nn.Dropout`` whose masks come from the generator of the fit.

    Args:
        p: fraction of the values that is set to zero in training.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with a fraction ``p`` of its values set to zero and the rest scaled by ``1 / (1 - p)``.

        Outside of training ``x`` is returned unchanged.
        """
        return torch_dropout(x, self.p) if self.training and self.p else x
