"""A network with its two ends: raw steps in (embedding), observation parameters out (head)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.measure import Values
from seqmodels.neural.batches import Chunk
from seqmodels.neural.ops.cross_entropy import linear_log_prob
from seqmodels.neural.network import Memory, Network, Source
from seqmodels.neural.ops.tied_linear import TiedLinear
from seqmodels.observations import Categorical, Observation

LARGE = 1_024  # symbols, from which the output layer and its softmax are taken together, in pieces


@dataclass(frozen=True)
class Ends:
    """What the two ends of a network must fit: ``size`` is D or V, ``conditional`` p(y | x), ``stops`` the end is an event.

    ``source``: of a network with an encoder; without it sources are read as targets are. ``tied`` (symbols only): the table of the inputs, which are multiplied by this, is the output layer's; None: each has its own.
    """

    reads: Literal["vectors", "symbols"]
    size: int
    conditional: bool
    stops: bool
    tied: float | None = None
    source: Side | None = None


@dataclass(frozen=True)
class Side:
    """What a source is, where it is read by a table or map of its own: D or V, and of vectors what each feature may be."""

    reads: Literal["vectors", "symbols"]
    size: int
    values: tuple[Values, ...] = ()


class Logarithms(nn.Module):
    """Counts n as ``log(1 + n)``, other features as they are: counts of any size are read, since no encoding standardises them."""

    def __init__(self, values: tuple[Values, ...]) -> None:
        super().__init__()
        self.register_buffer("counts", torch.tensor([value == "counts" for value in values]), persistent=False)

    def forward(self, frames: Tensor) -> Tensor:
        """``(..., D)`` -> ``(..., D)``."""
        return torch.where(self.get_buffer("counts"), torch.log1p(frames), frames)


class Embedding(nn.Module):
    """Symbols by table, vectors by a linear map: ``(...)`` or ``(..., D)`` -> ``(..., d_model)``."""

    def __init__(self, side: Ends | Side, d_model: int) -> None:
        super().__init__()
        tied = side.tied if isinstance(side, Ends) else None
        self.map = nn.Embedding(side.size, d_model) if side.reads == "symbols" else nn.Linear(side.size, d_model)
        inputs = side.size if side.reads == "vectors" else 1 if tied is None else d_model
        nn.init.normal_(self.map.weight, std=inputs**-0.5)
        self.scale = 1.0 if tied is None else tied

    def forward(self, steps: Tensor, is_start: Tensor | None = None, begin: Tensor | None = None) -> Tensor:
        """``begin (d_model,)`` stands where ``is_start (...)``."""
        embedded = self._rows(steps, is_start, begin)
        return embedded if self.scale == 1 else embedded * self.scale

    def table(self, steps: Tensor, is_start: Tensor, begin: Tensor) -> tuple[Tensor, Tensor]:
        """Symbols: the table with ``begin`` for its last row, not scaled, and which row each step is."""
        table = torch.cat([self.map.weight, begin[None]])
        return table, torch.where(is_start, len(table) - 1, steps)

    def _rows(self, steps: Tensor, is_start: Tensor | None, begin: Tensor | None) -> Tensor:
        if is_start is None or begin is None:
            out: Tensor = self.map(steps)
            return out
        if isinstance(self.map, nn.Linear) or steps.numel() < self.map.num_embeddings:
            return torch.where(is_start.unsqueeze(-1), begin, self.map(steps))
        # A start is one more row of the table: cheaper than to choose among embeddings that are more than its rows.
        table, rows = self.table(steps, is_start, begin)
        return F.embedding(rows, table)


class SequenceModule(nn.Module):
    """``parameters_t = W hidden_t + S x_{t-1} + b``, ``hidden_t = network(start, x_1 .. x_{t-1}, source)``.

    The linear skip S from the last vector is there for vectors only. Under ``stops`` one more output is the logit of the end.
    A network that does not read the past gets no x, and there is no S: ``parameters_t = W hidden_t + b``.
    """

    def __init__(self, network: Network, observation: Observation, ends: Ends, generator: torch.Generator) -> None:
        super().__init__()
        d, n_outputs = network.d_model, observation.n_parameters(ends.size) + ends.stops
        self.network, self.ends = network, ends
        self.shared = observation.shared(ends.size)
        self.reading = _reading(ends.reads, observation.values(ends.size))
        # Without a past to read the one embedding is the source's.
        own = ends.source if network.reads_past else None
        self.embedding = Embedding(ends if network.reads_past else ends.source or ends, d)
        self.begin = nn.Parameter(torch.zeros(d)) if network.reads_past else None
        self.segment = nn.Parameter(torch.zeros(2, d)) if ends.conditional and not network.reads_source else None
        self.source_embedding = None if own is None else Embedding(own, d)
        self.source_reading = self.reading if ends.source is None else _reading(ends.source.reads, ends.source.values)
        self.no_source = nn.Parameter(torch.zeros(d)) if network.reads_source and not ends.conditional else None
        self.head = _head(self.embedding, n_outputs, ends, d)
        with torch.no_grad():
            self.head.bias.zero_()
            self.head.bias[: n_outputs - ends.stops] = observation.starting_point(ends.size, generator)
            if ends.stops:
                self.head.bias[-1] = -3.0  # sequences rarely end
        skips = ends.reads == "vectors" and network.reads_past
        self.skip = nn.Linear(ends.size, n_outputs, bias=False) if skips else None
        if self.skip is not None:
            nn.init.zeros_(self.skip.weight)

    @torch.no_grad()
    def begin_near(self, observation: Observation, total: Tensor, n: float) -> None:
        """Let an untrained network predict about what training frames are: ``n`` of them that sum to ``total (D,)``."""
        start = self.head.bias[: len(self.head.bias) - self.ends.stops]
        start.copy_(observation.starting_near(start, total, n))

    def start(self, n: int, source: Tensor | None, mask: Tensor | None) -> Memory:
        """The network's memory before the first step, for a batch of n."""
        if self.no_source is not None:
            values = self.no_source.expand(n, 1, -1)
            return self.network.start(n, Source(values, torch.ones(n, 1, dtype=torch.bool, device=values.device)))
        if source is None:
            return self.network.start(n)
        assert mask is not None
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        return self.network.start(n, Source(embedding(self.source_reading(source)) * mask.unsqueeze(-1), mask))

    def inputs(self, shown: Tensor, is_start: Tensor, is_target: Tensor) -> Tensor:
        """What the network reads, ``(B, T, d_model)``."""
        if not self.network.reads_past:
            return self.head.bias.new_zeros(*is_start.shape, self.network.d_model)
        embedded = self.embedding(self.reading(shown), is_start, self.begin)
        if self.segment is not None:
            embedded = embedded + self.segment[is_target.long()]
        return embedded

    def hidden(self, shown: Tensor, is_start: Tensor, is_target: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """States ``(B, T, d_model)``, and the memory after the last."""
        if self.training and self.ends.reads == "symbols" and self.segment is None and self.begin is not None:
            table, rows = self.embedding.table(shown, is_start, self.begin)
            if rows.numel() > len(table):
                return self.network.read(table * self.embedding.scale, rows, memory)
        return self.network(self.inputs(shown, is_start, is_target), memory)

    def forward(self, shown: Tensor, is_start: Tensor, is_target: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """Observation parameters (and the end's logit) of each step, ``(B, T, P)``, and the memory after the last."""
        hidden, memory = self.hidden(shown, is_start, is_target, memory)
        outputs = self.head(hidden)
        if self.skip is not None:
            outputs = outputs + self.skip(torch.where(is_start.unsqueeze(-1), 0.0, self.reading(shown)))
        return outputs, memory


def _reading(reads: str, values: tuple[Values, ...]) -> nn.Module:
    return Logarithms(values) if reads == "vectors" and "counts" in values else nn.Identity()


def _head(embedding: Embedding, n_outputs: int, ends: Ends, d_model: int) -> nn.Linear | TiedLinear:
    if ends.tied is not None:
        assert isinstance(embedding.map, nn.Embedding), "vectors have no table to share"
        return TiedLinear(embedding.map, ends.size, n_outputs - ends.size)
    head = nn.Linear(d_model, n_outputs)
    # Symbols learn faster from logits of order one; a density must start near its starting point to be stable.
    nn.init.normal_(head.weight, std=(1.0 if ends.reads == "symbols" else 0.1) * d_model**-0.5)
    return head


def split_end(outputs: Tensor, may_end: Tensor, stops: bool) -> tuple[Tensor, Tensor | None]:
    """Observation parameters and the log-odds of the end (-inf where it cannot be; None where lengths are given)."""
    if not stops:
        return outputs, None
    parameters, end = outputs.split((outputs.shape[-1] - 1, 1), -1)  # whose gradients are joined, not padded with zeros
    return parameters, torch.where(may_end, end[..., 0], -torch.inf)


def autocast(device: torch.device, precision: torch.dtype | None) -> torch.autocast:
    """Within, products are in this precision; None: in that of the weights.

    Without torch's cache of weights in low precision: one for all threads, which whoever comes first to the end of a step empties.
    A weight that is read twice in a step would be cast once or twice as it happens, and its gradient rounded once or twice.
    """
    return torch.autocast(device.type, dtype=precision, enabled=precision is not None, cache_enabled=False)


def chunk_log_prob(
    module: SequenceModule,
    observation: Observation,
    chunk: Chunk,
    memory: Memory,
    precision: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, Memory]:
    """``(B, T)`` log-probability of what each step was asked, the observation's parameters, and the memory.

    ``precision`` is that of the network under autocast (training only); densities are computed in at least float32.
    """
    predict = _predicted_by_pieces if has_large_vocabulary(module, observation) else _predicted
    log_prob, parameters, end, memory = predict(module, observation, chunk, memory, precision)
    if end is not None:
        # log sigmoid of -inf has a NaN gradient, so the impossible end is masked before and after.
        possible = torch.where(chunk.may_end, end, 0.0)
        goes_on = torch.where(chunk.may_end, F.logsigmoid(-possible), 0.0)
        log_prob = torch.where(chunk.is_end, F.logsigmoid(possible), log_prob + goes_on)
    return log_prob, parameters, memory


Predicted = tuple[
    Tensor, Tensor, Tensor | None, Memory
]  # log p given that it goes on, parameters, the end's log-odds, memory


def _predicted(
    module: SequenceModule, observation: Observation, chunk: Chunk, memory: Memory, precision: torch.dtype | None
) -> Predicted:
    with autocast(chunk.shown.device, precision):
        outputs, memory = module(chunk.shown, chunk.is_start, chunk.is_target, memory)
    outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    parameters, end = split_end(outputs, chunk.may_end, module.ends.stops)
    return observation.bound(module.shared).log_prob(parameters, chunk.asked, chunk.past), parameters, end, memory


def _predicted_by_pieces(
    module: SequenceModule, observation: Observation, chunk: Chunk, memory: Memory, precision: torch.dtype | None
) -> Predicted:
    """The same without ever holding the parameters; the states stand for them."""
    size, head, end = module.ends.size, module.head, None
    weight, own = (head.shared, head.own) if isinstance(head, TiedLinear) else (head.weight[:size], head.weight[size:])
    with autocast(chunk.shown.device, precision):
        hidden, memory = module.hidden(chunk.shown, chunk.is_start, chunk.is_target, memory)
        log_prob = linear_log_prob(hidden, weight, head.bias[:size], chunk.asked)
        if module.ends.stops and own is not None:
            logit = F.linear(hidden, own, head.bias[size:])[..., 0]
            end = torch.where(chunk.may_end, logit.to(log_prob.dtype), -torch.inf)
    return log_prob, hidden, end, memory


def has_large_vocabulary(module: SequenceModule, observation: Observation) -> bool:
    """Whether logits of all symbols at all steps would be by far the largest array."""
    return isinstance(observation, Categorical) and module.ends.size >= LARGE
