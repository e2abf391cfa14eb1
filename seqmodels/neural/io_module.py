"""A network between its embedding and its head: raw steps in, output parameters of the observation out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.measure import Values
from seqmodels.neural.batches import PaddedBatch
from seqmodels.neural.network import CarriedState, Network, Source
from seqmodels.neural.ops.cross_entropy import linear_log_prob
from seqmodels.neural.ops.tied_linear import TiedLinear
from seqmodels.observations import Categorical, Observation

LARGE_VOCABULARY = 1_024  # symbols, from which on the output layer and its softmax are computed together, in blocks


@dataclass(frozen=True)
class IOSpec:
    """What the embedding and the head of a network must fit.

    Attributes:
        reads: what a step is.
        size: D or V.
        conditional: whether it is p(y | x).
        stops: whether the end of a sequence is an event.
        tied_scale: symbols only: the embedding's table is the output layer's too, and embeddings are multiplied by
            this; None: each has its own.
        source: of a network with an encoder; None: sources are read as targets are.
    """

    reads: Literal["vectors", "symbols"]
    size: int
    conditional: bool
    stops: bool
    tied_scale: float | None = None
    source: SourceSpec | None = None


@dataclass(frozen=True)
class SourceSpec:
    """What a step of a source is, where it has an embedding of its own.

    D or V, and of vectors what each feature may be.
    """

    reads: Literal["vectors", "symbols"]
    size: int
    values: tuple[Values, ...] = ()


class LogCounts(nn.Module):
    """Counts n as ``log(1 + n)``, other features as they are.

    Counts of any size are read, since no encoding standardises them.
    """

    def __init__(self, values: tuple[Values, ...]) -> None:
        super().__init__()
        self.register_buffer("counts", torch.tensor([value == "counts" for value in values]), persistent=False)

    def forward(self, frames: Tensor) -> Tensor:
        """``(..., D)`` -> ``(..., D)``."""
        return torch.where(self.get_buffer("counts"), torch.log1p(frames), frames)


class Embedding(nn.Module):
    """Symbols by table, vectors by a linear map: ``(...)`` or ``(..., D)`` -> ``(..., d_model)``."""

    def __init__(self, spec: IOSpec | SourceSpec, d_model: int) -> None:
        super().__init__()
        tied_scale = spec.tied_scale if isinstance(spec, IOSpec) else None
        self.map = nn.Embedding(spec.size, d_model) if spec.reads == "symbols" else nn.Linear(spec.size, d_model)
        n_inputs = spec.size if spec.reads == "vectors" else 1 if tied_scale is None else d_model
        nn.init.normal_(self.map.weight, std=n_inputs**-0.5)
        self.scale = 1.0 if tied_scale is None else tied_scale

    def forward(self, steps: Tensor, is_start: Tensor | None = None, begin: Tensor | None = None) -> Tensor:
        """``begin (d_model,)`` stands where ``is_start (...)``."""
        embedded = self._embed(steps, is_start, begin)
        return embedded if self.scale == 1 else embedded * self.scale

    def table(self, steps: Tensor, is_start: Tensor, begin: Tensor) -> tuple[Tensor, Tensor]:
        """Symbols: the table with ``begin`` for its last row, not scaled, and which row each step is."""
        table = torch.cat([self.map.weight, begin[None]])
        return table, torch.where(is_start, len(table) - 1, steps)

    def _embed(self, steps: Tensor, is_start: Tensor | None, begin: Tensor | None) -> Tensor:
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

    The linear skip S from the last vector is there for vectors only. Under ``stops`` one more output is the logit of
    the end.
    A network that does not read the past has no x for an input, and there is no S: ``parameters_t = W hidden_t + b``.
    """

    def __init__(self, network: Network, observation: Observation, spec: IOSpec, generator: torch.Generator) -> None:
        super().__init__()
        d, n_outputs = network.d_model, observation.n_output_parameters(spec.size) + spec.stops
        self.network = network
        self.spec = spec
        self.shared = observation.shared(spec.size)
        self.transform = _transform(spec.reads, observation.values(spec.size))
        # Without a past to read the one embedding is the source's.
        source = spec.source if network.reads_past else None
        self.embedding = Embedding(spec if network.reads_past else spec.source or spec, d)
        self.begin = nn.Parameter(torch.zeros(d)) if network.reads_past else None
        self.segment = nn.Parameter(torch.zeros(2, d)) if spec.conditional and not network.reads_source else None
        self.source_embedding = None if source is None else Embedding(source, d)
        self.source_transform = (
            self.transform if spec.source is None else _transform(spec.source.reads, spec.source.values)
        )
        self.no_source = nn.Parameter(torch.zeros(d)) if network.reads_source and not spec.conditional else None
        self.head = _head(self.embedding, n_outputs, spec, d)
        with torch.no_grad():
            self.head.bias.zero_()
            self.head.bias[: n_outputs - spec.stops] = observation.starting_point(spec.size, generator)
            if spec.stops:
                self.head.bias[-1] = -3.0  # sequences rarely end
        skips = spec.reads == "vectors" and network.reads_past
        self.skip = nn.Linear(spec.size, n_outputs, bias=False) if skips else None
        if self.skip is not None:
            nn.init.zeros_(self.skip.weight)

    @torch.no_grad()
    def fit_bias(self, observation: Observation, total: Tensor, n: float) -> None:
        """Let an untrained network predict about what training frames are: ``n`` of them that sum to ``total (D,)``."""
        bias = self.head.bias[: len(self.head.bias) - self.spec.stops]
        bias.copy_(observation.starting_near(bias, total, n))

    def start(self, n: int, source: Tensor | None, mask: Tensor | None) -> CarriedState:
        """The network's state before the first step, for a batch of n."""
        if self.no_source is not None:
            values = self.no_source.expand(n, 1, -1)
            return self.network.start(n, Source(values, torch.ones(n, 1, dtype=torch.bool, device=values.device)))
        if source is None:
            return self.network.start(n)
        assert mask is not None
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        return self.network.start(n, Source(embedding(self.source_transform(source)) * mask.unsqueeze(-1), mask))

    def embed(self, inputs: Tensor, is_start: Tensor, is_target: Tensor) -> Tensor:
        """What the network reads, ``(B, T, d_model)``."""
        if not self.network.reads_past:
            return self.head.bias.new_zeros(*is_start.shape, self.network.d_model)
        embedded: Tensor = self.embedding(self.transform(inputs), is_start, self.begin)
        if self.segment is not None:
            embedded = embedded + self.segment[is_target.long()]
        return embedded

    def hidden(
        self, inputs: Tensor, is_start: Tensor, is_target: Tensor, memory: CarriedState
    ) -> tuple[Tensor, CarriedState]:
        """Hidden states ``(B, T, d_model)``, and the network's state after the last step."""
        if self.training and self.spec.reads == "symbols" and self.segment is None and self.begin is not None:
            table, rows = self.embedding.table(inputs, is_start, self.begin)
            if rows.numel() > len(table):
                return self.network.read(table * self.embedding.scale, rows, memory)
        states: tuple[Tensor, CarriedState] = self.network(self.embed(inputs, is_start, is_target), memory)
        return states

    def forward(
        self, inputs: Tensor, is_start: Tensor, is_target: Tensor, memory: CarriedState
    ) -> tuple[Tensor, CarriedState]:
        """Output parameters (and the end's logit) of each step, ``(B, T, P)``, and the state after the last."""
        hidden, memory = self.hidden(inputs, is_start, is_target, memory)
        outputs = self.head(hidden)
        if self.skip is not None:
            outputs = outputs + self.skip(torch.where(is_start.unsqueeze(-1), 0.0, self.transform(inputs)))
        return outputs, memory


def _transform(reads: str, values: tuple[Values, ...]) -> nn.Module:
    return LogCounts(values) if reads == "vectors" and "counts" in values else nn.Identity()


def _head(embedding: Embedding, n_outputs: int, spec: IOSpec, d_model: int) -> nn.Linear | TiedLinear:
    if spec.tied_scale is not None:
        assert isinstance(embedding.map, nn.Embedding), "vectors have no table to share"
        return TiedLinear(embedding.map, spec.size, n_outputs - spec.size)
    head = nn.Linear(d_model, n_outputs)
    # Symbols learn faster from logits of order one; a density must start near its starting point to be stable.
    nn.init.normal_(head.weight, std=(1.0 if spec.reads == "symbols" else 0.1) * d_model**-0.5)
    return head


def split_end(outputs: Tensor, may_end: Tensor, stops: bool) -> tuple[Tensor, Tensor | None]:
    """Output parameters and the log-odds of the end (-inf where it cannot be; None where lengths are given)."""
    if not stops:
        return outputs, None
    # The gradients of a split are joined, those of slices padded with zeros.
    output_parameters, end = outputs.split((outputs.shape[-1] - 1, 1), -1)
    return output_parameters, torch.where(may_end, end[..., 0], -torch.inf)


def autocast(device: torch.device, precision: torch.dtype | None) -> torch.autocast:
    """Within, products are in this precision; None: in that of the weights.

    Without torch's cache of weights in low precision: one for all threads, which whoever comes first to the end of a
    step empties. A weight that is read twice in a step would be cast once or twice as it happens, and its gradient
    rounded once or twice.
    """
    return torch.autocast(device.type, dtype=precision, enabled=precision is not None, cache_enabled=False)


def batch_log_prob(
    module: SequenceModule,
    observation: Observation,
    batch: PaddedBatch,
    memory: CarriedState,
    precision: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, CarriedState]:
    """``(B, T)`` log-probability of each step's target, the output parameters, and the state after the last step.

    ``precision`` is that of the network under autocast (training only); densities are computed in at least float32.
    """
    predict = _predict_in_blocks if has_large_vocabulary(module, observation) else _predict
    log_prob, output_parameters, end, memory = predict(module, observation, batch, memory, precision)
    if end is not None:
        # log sigmoid of -inf has a NaN gradient, so the impossible end is masked before and after.
        end_logit = torch.where(batch.may_end, end, 0.0)
        log_continue = torch.where(batch.may_end, F.logsigmoid(-end_logit), 0.0)
        log_prob = torch.where(batch.is_end, F.logsigmoid(end_logit), log_prob + log_continue)
    return log_prob, output_parameters, memory


# The log-probability of targets that are no ends, output parameters, the end's log-odds, and the network's state.
Predicted = tuple[Tensor, Tensor, Tensor | None, CarriedState]


def _predict(
    module: SequenceModule,
    observation: Observation,
    batch: PaddedBatch,
    memory: CarriedState,
    precision: torch.dtype | None,
) -> Predicted:
    with autocast(batch.inputs.device, precision):
        outputs, memory = module(batch.inputs, batch.is_start, batch.is_target, memory)
    outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    output_parameters, end = split_end(outputs, batch.may_end, module.spec.stops)
    log_prob = observation.bound(module.shared).log_prob(output_parameters, batch.targets, batch.past)
    return log_prob, output_parameters, end, memory


def _predict_in_blocks(
    module: SequenceModule,
    observation: Observation,
    batch: PaddedBatch,
    memory: CarriedState,
    precision: torch.dtype | None,
) -> Predicted:
    """``_predict`` without ever holding the output parameters; the hidden states stand for them."""
    size, head, end = module.spec.size, module.head, None
    end_weight: Tensor | None
    if isinstance(head, TiedLinear):
        symbol_weight, end_weight = head.shared, head.own
    else:
        symbol_weight, end_weight = head.weight[:size], head.weight[size:]
    with autocast(batch.inputs.device, precision):
        hidden, memory = module.hidden(batch.inputs, batch.is_start, batch.is_target, memory)
        log_prob = linear_log_prob(hidden, symbol_weight, head.bias[:size], batch.targets)
        if module.spec.stops and end_weight is not None:
            logit = F.linear(hidden, end_weight, head.bias[size:])[..., 0]
            end = torch.where(batch.may_end, logit.to(log_prob.dtype), -torch.inf)
    return log_prob, hidden, end, memory


def has_large_vocabulary(module: SequenceModule, observation: Observation) -> bool:
    """Whether logits of all symbols at all steps would be by far the largest array."""
    return isinstance(observation, Categorical) and module.spec.size >= LARGE_VOCABULARY
