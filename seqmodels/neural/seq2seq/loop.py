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


@dataclass(frozen=True)
class _Trace:
    """What the way forward leaves for the way back.

    States and cells (T + 1, B, d) before each step and after the last; gates (T, B, 4 d); ``tanh`` of the cells (T, B, d); contexts
    (T, B, d); weights (T, G, S); and what each state asks (T, B, 4 d + m): its part of the gates, and the query.
    """

    states: Tensor
    cells: Tensor
    gates: Tensor
    squashed: Tensor
    contexts: Tensor
    attended: Tensor
    asked: Tensor

    @classmethod
    def room(cls, driven: Tensor, h: Tensor, c: Tensor, width: int, barred: Tensor, *, keep: bool) -> _Trace:
        """With the first state and cell in it; of what only the way back reads, one step unless it is to be kept."""
        n_steps, n_rows, _ = driven.shape
        cells = c.new_empty(n_steps + 1, *c.shape, dtype=torch.promote_types(c.dtype, torch.float32))
        states, attended = driven.new_empty(cells.shape), barred.new_empty(n_steps, *barred.shape)
        states[0], cells[0] = h, c
        asked = driven.new_empty(n_steps if keep else 1, n_rows, width)
        gates, contexts = driven.new_empty(driven.shape), torch.empty_like(states[1:])
        return cls(states, cells, gates, torch.empty_like(cells[1:]), contexts, attended, asked)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.states, self.cells, self.gates, self.squashed, self.contexts, self.attended, self.asked

    def queries(self, n_groups: int) -> Tensor:
        """(T, G, d): part of what is asked, or the states themselves."""
        four = self.gates.shape[2]
        asks = self.asked[..., four:] if self.asked.shape[2] > four else self.states[:-1]
        return asks.reshape(len(self.gates), n_groups, -1)


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
        scoring = make_scoring(key, energy, len(driven) if keep else 0)
        trace = _Trace.room(driven, h, c, len(weight), barred, keep=keep)
        four, into, fed = driven.shape[2], weight.t(), feed.t()
        for t in range(len(driven)):
            state, context, shares = trace.states[t], trace.contexts[t], trace.attended[t]
            asked = torch.mm(state, into, out=trace.asked[t if keep else 0])  # addmm copies the bias to every row first
            query = (asked[:, four:].add_(bias) if len(weight) > four else state).reshape(len(key), -1)
            torch.softmax(scoring.score(query, t) + barred, -1, dtype=barred.dtype, out=shares)
            torch.bmm(shares[:, None].to(value.dtype), value, out=context.view(len(key), 1, -1))
            torch.mm(context, fed, out=trace.gates[t]).add_(driven[t]).add_(asked[:, :four])
            _pass_gates(trace, t)
        if keep:
            ctx.save_for_backward(*trace.tensors, weight, feed, value)
            ctx.scoring, ctx.precision = scoring, (h.dtype, c.dtype)
        ctx.mark_non_differentiable(trace.attended)
        return trace.states[1:], trace.contexts, trace.attended, trace.cells[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *received: Tensor) -> tuple[Tensor | None, ...]:
        *kept, weight, feed, value = ctx.saved_tensors
        trace, scoring, four = _Trace(*kept), ctx.scoring, len(feed)
        scoring.begin_backward()
        above, context_above, _, cell_above = received
        delta, pulled, slopes, h, c = _way_back(trace, scoring, weight, feed, value, above, context_above, cell_above)
        shares, slopes = trace.attended.to(value.dtype), slopes.to(value.dtype)
        to_value = torch.bmm(shares.permute(1, 2, 0), pulled.view(len(pulled), len(value), -1).transpose(0, 1))
        to_key, to_energy = scoring.gradients(slopes, trace.queries(len(value)))
        flat = delta.flatten(0, 1).t()
        to_weight, to_feed = flat @ trace.states[:-1].flatten(0, 1), flat[:four] @ trace.contexts.flatten(0, 1)
        to_states = h.to(ctx.precision[0]), c.to(ctx.precision[1])
        to_weights = to_weight, to_feed, flat[four:].sum(1)
        return None, delta[..., :four], *to_states, *to_weights, to_key, to_value, None, to_energy


def _way_back(
    trace: _Trace,
    scoring: Scoring,
    weight: Tensor,
    feed: Tensor,
    value: Tensor,
    above: Tensor,
    context_above: Tensor,
    cell_above: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of what each state asks (gates and query), of contexts and of scores, at every step; of the first state and cell."""
    enter, leave, through, keep = _factors(trace)
    (n_steps, n_rows, four), attended = trace.gates.shape, trace.attended
    both, asks = torch.cat([feed, weight[:four]], 1), weight[four:]
    delta, pulled, slopes = (torch.empty_like(x) for x in (trace.asked, trace.contexts, attended))
    h, c = torch.zeros_like(above[0]), cell_above.to(above.dtype)
    for t in range(n_steps - 1, -1, -1):
        h = h + above[t]
        c = torch.addcmul(c, h, through[t])
        gates = delta[t, :, :four].unflatten(1, (4, -1))
        torch.mul(enter[t], c[:, None], out=gates[:, :3])
        torch.mul(leave[t], h, out=gates[:, 3])
        c = c * keep[t]
        context, h = (delta[t, :, :four] @ both).chunk(2, 1)
        torch.add(context, context_above[t], out=pulled[t])
        weighed = torch.bmm(value, pulled[t].view(len(value), -1, 1))[..., 0]
        torch.mul(attended[t], weighed - (attended[t] * weighed).sum(-1, keepdim=True), out=slopes[t])
        query = scoring.pull(slopes[t].to(value.dtype), t).view(n_rows, -1)
        delta[t, :, four:] = query[:, : len(asks)]
        h = h + (query @ asks if len(asks) else query)
    return delta, pulled, slopes, h, c


def make_scoring(key: Tensor, energy: Tensor | None, n_steps: int) -> Scoring:
    """Additive with an ``energy``, otherwise the dot product."""
    return DotScoring(key) if energy is None else AdditiveScoring(key, energy, n_steps)


def _pass_gates(trace: _Trace, t: int) -> None:
    """Sums of step t in place of its gates -> gates, cell, state."""
    gates, d = trace.gates[t], trace.states.shape[2]
    gates[:, : 2 * d].sigmoid_()
    gates[:, 2 * d : 3 * d].tanh_()
    gates[:, 3 * d :].sigmoid_()
    i, f, g, o = gates.to(trace.cells.dtype).chunk(4, 1)
    cell = torch.addcmul(f * trace.cells[t], i, g, out=trace.cells[t + 1])
    trace.states[t + 1] = o * torch.tanh(cell, out=trace.squashed[t])


def _factors(trace: _Trace) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What gradients are multiplied by at every step.

    (T, B, 3, d) from the cell to the first three gates, (T, B, d) from the state to the last, from the state to the cell, and
    from the cell to the one before.
    """
    i, f, g, o = trace.gates.unflatten(-1, (4, -1)).unbind(2)
    squashed, before = trace.squashed.to(i.dtype), trace.cells[:-1].to(i.dtype)
    enter = torch.stack([g * i * (1 - i), before * f * (1 - f), i * (1 - g * g)], 2)
    return enter, squashed * o * (1 - o), o * (1 - squashed * squashed), f
