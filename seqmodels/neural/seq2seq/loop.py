"""An LSTM decoder whose previous state attends, with a backward pass of our own.

``c_t = attention(q_t)``, ``q_t = Q h_{t-1} + b``; gates ``= driven_t + F c_t + V h_{t-1}``. What is not
needed to go from step to step is done for all steps at once: gates' slopes before the way back, the gradients of the
weights after it, each as one product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqmodels.neural.seq2seq.scores import AdditiveScoring, DotScoring, Scoring


@dataclass(frozen=True)
class Memories:
    """What is attended to, for each of G groups: a sequence, or a head of one.

    Attributes:
        key: (G, S, d) as the score takes them.
        value: (G, S, d_head).
        barred: (G, S), 0 where real and -inf where padded.
        energy: (d,) of the additive score; None: the dot product.
    """

    key: Tensor
    value: Tensor
    barred: Tensor
    energy: Tensor | None


@dataclass(frozen=True)
class Query:
    """``q = Q h + b``: ``weight`` (m, d) and ``bias`` (m,); without, the state is itself the query."""

    weight: Tensor | None
    bias: Tensor | None


@dataclass(frozen=True)
class Weights:
    """Of the recurrence.

    Attributes:
        state: V and Q (4 d + m, d), what reads the previous state; m = 0: it is itself the query.
        context: F (4 d, d).
        bias: of the query (m,).
    """

    state: Tensor
    context: Tensor
    bias: Tensor

    @classmethod
    def of(cls, state: Tensor, context: Tensor, query: Query) -> Weights:
        """From those of an LSTM, V (4 d, d) and F (4 d, d), and what makes its queries."""
        if query.weight is None or query.bias is None:
            return cls(state, context, state.new_zeros(0))
        return cls(torch.cat([state, query.weight]), context, query.bias)


def attentive_lstm(
    driven: Tensor, h: Tensor, c: Tensor, weights: Weights, memories: Memories
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All steps of the decoder.

    Args:
        driven: (T, B, 4 d), what inputs and biases add to the gates, in torch's order; its precision is that of the products.
        h, c: (B, d), the state before.
        weights: of the recurrence.
        memories: what is attended to, G = B times the heads.

    Returns:
        States (T, B, d), contexts (T, B, d), weights (T, G, S) through which no gradient flows, and the last cell (B, d).
    """
    low = [x.to(driven.dtype) for x in (weights.state, weights.context, weights.bias, memories.key, memories.value)]
    energy = None if memories.energy is None else memories.energy.to(driven.dtype)
    keep = torch.is_grad_enabled()
    return _AttentiveLSTM.apply(keep, driven, h.to(driven.dtype), c, *low, memories.barred, energy)


class _AttentiveLSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        keep: bool,
        driven: Tensor,
        h: Tensor,
        c: Tensor,
        weight: Tensor,
        feed: Tensor,
        bias: Tensor,
        key: Tensor,
        value: Tensor,
        barred: Tensor,
        energy: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        (n_steps, n_rows, four), d = driven.shape, h.shape[1]
        scoring = make_scoring(key, energy, n_steps if keep else 0)
        states, cells = driven.new_empty(n_steps + 1, n_rows, d), _wide(c).new_empty(n_steps + 1, n_rows, d)
        states[0], cells[0] = h, c
        asked = driven.new_empty(n_steps if keep else 1, n_rows, len(weight))
        gates, squashed = driven.new_empty(driven.shape), torch.empty_like(cells[1:])
        contexts, attended = torch.empty_like(states[1:]), barred.new_empty(n_steps, *barred.shape)
        into, fed = weight.t(), feed.t()
        for t in range(n_steps):
            product = torch.mm(states[t], into, out=asked[t if keep else 0])  # addmm copies the bias to every row first
            query = (product[:, four:].add_(bias) if len(weight) > four else states[t]).reshape(len(key), -1)
            torch.softmax(scoring.score(query, t) + barred, -1, dtype=barred.dtype, out=attended[t])
            context = contexts[t].view(len(key), 1, -1)
            torch.bmm(attended[t, :, None].to(value.dtype), value, out=context)
            gate = torch.mm(contexts[t], fed, out=gates[t]).add_(driven[t]).add_(product[:, :four])
            _activate(gate, d)
            i, f, g, o = gate.to(cells.dtype).chunk(4, 1)
            torch.addcmul(f * cells[t], i, g, out=cells[t + 1])
            torch.tanh(cells[t + 1], out=squashed[t])
            states[t + 1] = o * squashed[t]
        if keep:
            ctx.save_for_backward(states, cells, gates, squashed, contexts, attended, asked, weight, feed, value)
            ctx.scoring, ctx.precision, ctx.has_energy = scoring, (h.dtype, c.dtype), energy is not None
        ctx.mark_non_differentiable(attended)
        return states[1:], contexts, attended, cells[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *received: Tensor) -> tuple[Tensor | None, ...]:
        states, cells, gates, squashed, contexts, attended, asked, weight, feed, value = ctx.saved_tensors
        above, context_above, _, cell_above = received
        scoring: Scoring = ctx.scoring
        scoring.begin_backward()
        (n_steps, n_rows, four), d = gates.shape, states.shape[2]
        enter, leave, through, keep = _factors(gates, squashed, cells)
        delta = torch.empty_like(asked)
        pulled, slopes = torch.empty_like(contexts), torch.empty_like(attended)
        both, asks = torch.cat([feed, weight[:four]], 1), weight[four:]
        carried, cell = torch.zeros_like(above[0]), cell_above.to(gates.dtype)
        for t in range(n_steps - 1, -1, -1):
            carried = carried + above[t]
            cell = torch.addcmul(cell, carried, through[t])
            gate = delta[t, :, :four].unflatten(1, (4, d))
            torch.mul(enter[t], cell[:, None], out=gate[:, :3])
            torch.mul(leave[t], carried, out=gate[:, 3])
            cell = cell * keep[t]
            context, carried = (delta[t, :, :four] @ both).split(d, 1)
            torch.add(context, context_above[t], out=pulled[t])
            weighed = torch.bmm(value, pulled[t].view(len(value), -1, 1))[..., 0]
            torch.mul(attended[t], weighed - (attended[t] * weighed).sum(-1, keepdim=True), out=slopes[t])
            query = scoring.pull(slopes[t].to(value.dtype), t).view(n_rows, -1)
            delta[t, :, four:] = query[:, : asked.shape[2] - four]
            carried = carried + (query @ asks if len(asks) else query)
        low, before = slopes.to(value.dtype), states[:-1].flatten(0, 1)
        queries = (asked[..., four:] if len(asks) else states[:-1]).reshape(n_steps, len(value), -1)
        key, energy = scoring.gradients(low, queries)
        flat = delta.flatten(0, 1).t()
        d_value = torch.bmm(
            attended.to(value.dtype).permute(1, 2, 0), pulled.view(n_steps, len(value), -1).transpose(0, 1)
        )
        return (
            None,
            delta[..., :four],
            carried.to(ctx.precision[0]),
            cell.to(ctx.precision[1]),
            flat @ before,
            flat[:four] @ contexts.flatten(0, 1),
            flat[four:].sum(1),
            key,
            d_value,
            None,
            energy,
        )


def make_scoring(key: Tensor, energy: Tensor | None, n_steps: int) -> Scoring:
    """Additive with an ``energy``, otherwise the dot product."""
    return DotScoring(key) if energy is None else AdditiveScoring(key, energy, n_steps)


def _activate(gates: Tensor, d: int) -> None:
    """In place: σ but for the third, the candidate."""
    gates[:, : 2 * d].sigmoid_()
    gates[:, 2 * d : 3 * d].tanh_()
    gates[:, 3 * d :].sigmoid_()


def _factors(gates: Tensor, squashed: Tensor, cells: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What gradients are multiplied by at every step.

    (T, B, 3, d) from the cell to the first three gates, (T, B, d) from the state to the last, from the state to the cell, and
    from the cell to the one before.
    """
    i, f, g, o = gates.unflatten(-1, (4, -1)).unbind(2)
    low = squashed.to(gates.dtype)
    enter = torch.stack([g * i * (1 - i), cells[:-1].to(gates.dtype) * f * (1 - f), i * (1 - g * g)], 2)
    return enter, low * o * (1 - o), o * (1 - low * low), f


def _wide(c: Tensor) -> Tensor:
    return c.to(torch.promote_types(c.dtype, torch.float32))
