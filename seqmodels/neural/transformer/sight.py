"""What the queries of one forward pass may see, and from where: worked out once, for all layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from seqmodels.neural.transformer.relative import Rotation, ScoreBias, computed_in


@dataclass(frozen=True)
class Sight:
    """What to do with the scores of one forward pass.

    Attributes:
        bias: added to scores, -inf where nothing is seen; broadcastable to (B, H, T, S). ``None``: all is seen.
        causal: queries and keys are the same steps and none sees a later one; in place of a bias.
        rotation: turns queries and keys.
        first: the first key that any query sees; those before may be left out.
        explicit: write the products out instead of calling the fused kernel.
    """

    bias: Tensor | None = None
    causal: bool = False
    rotation: Rotation | None = None
    first: int = 0
    explicit: bool = False


@dataclass(frozen=True)
class Outlook:
    """What a stack's sight depends on besides the inputs.

    Attributes:
        causal: no query sees a later key.
        window: see ``TransformerOptions``.
    """

    causal: bool
    window: int | None

    def sight(
        self,
        x: Tensor,
        past: int,
        mask: Tensor | None = None,
        relative: ScoreBias | None = None,
        turn: Rotation | None = None,
        *,
        explicit: bool = False,
    ) -> Sight:
        """The sight of inputs (B, T, d) that stand behind ``past`` others, real where ``mask`` (B, T) is, if given."""
        length = x.shape[1]
        first = 0 if self.window is None or not self.causal else max(0, past - self.window + 1)
        if mask is None and relative is None and self._sees_all(length, past + length - first):
            return Sight(None, False, turn, first, explicit)
        square = self.causal and past == 0 and mask is None and relative is None and not explicit
        if square and (self.window is None or self.window >= length):
            return Sight(None, True, turn, first, explicit)
        return Sight(self._bias(x, past, first, mask, relative), False, turn, first, explicit)

    def _sees_all(self, n_queries: int, n_keys: int) -> bool:
        if self.window is not None and n_keys > self.window:
            return False
        return n_queries == 1 or not self.causal

    def _bias(self, x: Tensor, past: int, first: int, mask: Tensor | None, relative: ScoreBias | None) -> Tensor:
        steps = torch.arange(first, past + x.shape[1], device=x.device)
        query, key, dtype = steps[past - first :], steps, computed_in(x)
        distance = query[:, None] - key  # (T, S)
        allowed = self._allowed(distance, mask)  # (1 or B, 1, T, S)
        scores = x.new_zeros((), dtype=dtype) if relative is None else relative(distance).to(dtype)  # (H, T, S)
        return torch.where(allowed, scores, -torch.inf)

    def _allowed(self, distance: Tensor, mask: Tensor | None) -> Tensor:
        allowed = torch.ones_like(distance, dtype=torch.bool) if not self.causal else distance >= 0
        if self.window is not None:
            allowed = allowed & (distance.abs() < self.window)
        allowed = allowed[None, None]
        # What is padded must see something too, lest a softmax over nothing makes a NaN of it: itself.
        return allowed if mask is None else allowed & mask[:, None, None, :] | (distance == 0)


def padding_sight(mask: Tensor, x: Tensor, *, explicit: bool) -> Sight:
    """The sight of all that is real of a source, ``mask`` (B, S), by queries computed like ``x``."""
    zero = torch.zeros((), dtype=computed_in(x), device=mask.device)
    return Sight(torch.where(mask[:, None, None, :], zero, -torch.inf), explicit=explicit)


def explicit_pays(x: Tensor, attention_dropout: float) -> bool:
    """Whether two matrix products beat the fused kernel.

    They do on a CPU where the kernel's backward pass in bfloat16 is several times slower, where it has no dropout, and for
    single queries, which it treats as a block of many. Compiled, products are written out always: what torch knows of the
    kernel's strides (2.13) is right for the length that it was compiled at only.
    """
    if x.device.type != "cpu":
        return False
    if torch.compiler.is_compiling():
        return True
    one = x.shape[1] == 1 and not torch.is_grad_enabled()
    return one or attention_dropout > 0 or (computed_in(x) == torch.bfloat16 and torch.is_grad_enabled())
