"""A network between its embedding and its head, from raw steps to the output parameters of the observation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.generation.given_inputs import refuse_without_inputs
from seqmodels.neural.network import Network, Source, State
from seqmodels.neural.ops.linear import apply_linear
from seqmodels.neural.ops.tied_linear import TiedLinear
from seqmodels.observations import LinearOutputs, Observation
from seqmodels.sequences.measure import Values

REACH = 10.0  # encoded units up to which the end of an interval is read unchanged


@dataclass(frozen=True)
class IOSpec:
    """The sizes and kinds of inputs and outputs that a network's embedding and head (output layer) must fit.

    Attributes:
        reads: ``"vectors"`` or ``"symbols"``, the kind of a step.
        size: number of features D of vectors, or number of symbols V.
        conditional: True for a model of p(y | x).
        has_end: True if the model predicts the end of a sequence.
        tied_scale: for symbols, the factor of embeddings if they share a matrix with the output layer; None if they do
            not.
        source: the kind of a source's steps in a network with an encoder, or None if it is the same as the target's.
        has_missing: True if features of vectors may be missing (NaN), which is then marked in a mask that is an input
            too.
        has_first: True if the linear skip of vectors (a direct map from the last vector to the outputs) has a constant
            of its own for the first step, which has no last vector.
        n_exogenous: how many exogenous inputs are known at each step.
    """

    reads: Literal["vectors", "symbols"]
    size: int
    conditional: bool
    has_end: bool
    tied_scale: float | None = None
    source: SourceSpec | None = None
    has_missing: bool = False
    has_first: bool = False
    n_exogenous: int = 0


@dataclass(frozen=True)
class SourceSpec:
    """The kind of a source's steps, for a source that has an embedding of its own in an encoder.

    Attributes:
        reads: ``"vectors"`` or ``"symbols"``.
        size: number of features D of vectors, or number of symbols V.
        values: for vectors, the kind of values that each feature has, such as ``"reals"`` or ``"counts"``.
    """

    reads: Literal["vectors", "symbols"]
    size: int
    values: tuple[Values, ...] = ()


class LogCounts(nn.Module):
    """A map of count features n to ``log(1 + n)``, which keeps large counts in range; other features stay as they are.

    Args:
        values: the kind of values of each feature; those of kind ``"counts"`` are mapped.
    """

    def __init__(self, values: tuple[Values, ...]) -> None:
        super().__init__()
        self.register_buffer("counts", torch.tensor([value == "counts" for value in values]), persistent=False)

    def forward(self, frames: Tensor) -> Tensor:
        return torch.where(self.get_buffer("counts"), torch.log1p(frames), frames)


class NearEnds(nn.Module):
    """A map that clips the ends of intervals to ±10, because infinite ends are encoded as much larger numbers."""

    def forward(self, frames: Tensor) -> Tensor:
        """Return ``frames (..., 2D)``, lower and upper ends of D intervals, clipped to ``-10 .. 10`` (``REACH``)."""
        return frames.clamp(-REACH, REACH)


class Embedding(nn.Module):
    """An embedding ``(..., d_model)`` of symbols ``(...)`` by a table, or of D features ``(..., D)`` by a linear map.

    Args:
        spec: kind of the steps, and number of symbols or features.
        d_model: width of the embedding.
    """

    def __init__(self, spec: IOSpec | SourceSpec, d_model: int) -> None:
        super().__init__()
        tied_scale = spec.tied_scale if isinstance(spec, IOSpec) else None
        self.map = nn.Embedding(spec.size, d_model) if spec.reads == "symbols" else nn.Linear(spec.size, d_model)
        n_inputs = spec.size if spec.reads == "vectors" else 1 if tied_scale is None else d_model
        nn.init.normal_(self.map.weight, std=n_inputs**-0.5)
        self.scale = 1.0 if tied_scale is None else tied_scale

    def forward(self, steps: Tensor, is_start: Tensor | None = None, begin: Tensor | None = None) -> Tensor:
        """Return the embeddings ``(..., d_model)`` of steps, with the start vector in place of some.

        Args:
            steps: symbols ``(...)`` or vectors ``(..., D)`` of D features.
            is_start: True where the start vector is the input, ``(...)``; None: nowhere.
            begin: the start vector, ``(d_model,)``.
        """
        embedded = self._embed(steps, is_start, begin)
        return embedded if self.scale == 1 else embedded * self.scale

    def table(self, steps: Tensor, is_start: Tensor, begin: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embeddings of all V symbols as a table, whose last row is the start vector, and each step's row.

        Args:
            steps: symbols, ``(...)``.
            is_start: True where the input is the start vector, ``(...)``.
            begin: the start vector, ``(d_model,)``.

        Returns:
            The table without the factor of scaled embeddings, ``(V + 1, d_model)``, and the row of each step,
            ``(...)``.
        """
        table = torch.cat([self.map.weight, begin[None]])
        return table, torch.where(is_start, len(table) - 1, steps)

    def _embed(self, steps: Tensor, is_start: Tensor | None, begin: Tensor | None) -> Tensor:
        if is_start is None or begin is None:
            out: Tensor = self.map(steps)
            return out
        if isinstance(self.map, nn.Linear) or steps.numel() < self.map.num_embeddings:
            return torch.where(is_start.unsqueeze(-1), begin, self.map(steps))
        # A start is one more row of the table, which is cheaper than choosing among more embeddings than it has rows.
        table, row_ids = self.table(steps, is_start, begin)
        return F.embedding(row_ids, table)


class SequenceModule(nn.Module, Generic[State]):
    """A network with embedding and head (output layer): the outputs of step t are ``W hidden_t + S x_{t-1} + b``.

    They are the P parameters of the observation of step t and, with ``has_end``, the logit of the end. The hidden
    states are ``hidden_t = network(start, x_1 .. x_{t-1}, source)``. The linear skip S from the last vector exists for
    vectors only; with ``has_first`` one more column of S is read at the first step. A network that does not read past
    elements has no x as an input and no S: the outputs are ``W hidden_t + b``. If features may be missing, they are
    read as 0, and a linear map of the mask of missing features is added to the embedding of the step. The exogenous
    inputs u_t of step t are known when it is predicted: a linear map of them is added to the embedding of x_{t-1}, and
    for vectors another one to the output.

    Args:
        network: the network between embedding and head.
        observation: distribution of a step, whose parameters are the outputs.
        spec: kinds and sizes of inputs and outputs.
        generator: generator of the random draws for the head's initial bias.
    """

    if TYPE_CHECKING:  # nn.Module's own ``__call__`` takes and returns anything

        def __call__(
            self,
            inputs: Tensor,
            is_start: Tensor,
            is_after_source: Tensor,
            state: State,
            exogenous: Tensor | None = None,
        ) -> tuple[Tensor, State]:
            """Run ``forward``, after the hooks of the module."""

    def __init__(
        self, network: Network[State], observation: Observation, spec: IOSpec, generator: torch.Generator
    ) -> None:
        super().__init__()
        d, n_outputs = network.d_model, observation.n_output_parameters(spec.size) + spec.has_end
        self.network = network
        self.spec = spec
        self.shared = observation.shared(spec.size)
        # Symbols have no values to ask for, and a file may claim very many symbols.
        self.transform = _transform(spec.reads, observation.values(spec.size) if spec.reads == "vectors" else ())
        # Without a past to read the one embedding is the source's.
        source = spec.source if network.reads_past else None
        self.embedding = Embedding(spec if network.reads_past else spec.source or spec, d)
        self.begin = nn.Parameter(torch.zeros(d)) if network.reads_past else None
        self.segment = nn.Parameter(torch.zeros(2, d)) if spec.conditional and not network.reads_source else None
        self.source_embedding = None if source is None else Embedding(source, d)
        self.source_transform = (
            self.transform if spec.source is None else _transform(spec.source.reads, spec.source.values)
        )
        masks = spec.has_missing and network.reads_past
        self.missing = nn.Linear(spec.size, d, bias=False) if masks else None
        if self.missing is not None:
            nn.init.zeros_(self.missing.weight)
        self.no_source = nn.Parameter(torch.zeros(d)) if network.reads_source and not spec.conditional else None
        self.head = _head(self.embedding, n_outputs, spec, d)
        with torch.no_grad():
            self.head.bias.zero_()
            self.head.bias[: n_outputs - spec.has_end] = observation.starting_point(spec.size, generator)
            if spec.has_end:
                self.head.bias[-1] = -3.0  # sequences rarely end
        skips = spec.reads == "vectors" and network.reads_past
        self.skip = nn.Linear(spec.size + spec.has_first, n_outputs, bias=False) if skips else None
        if self.skip is not None:
            nn.init.zeros_(self.skip.weight)
        n_exogenous = spec.n_exogenous
        self.exogenous = nn.Linear(n_exogenous, d, bias=False) if n_exogenous else None
        self.exogenous_skip = nn.Linear(n_exogenous, n_outputs, bias=False) if n_exogenous and skips else None
        if self.exogenous is not None:
            nn.init.normal_(self.exogenous.weight, std=n_exogenous**-0.5)
        if self.exogenous_skip is not None:
            nn.init.zeros_(self.exogenous_skip.weight)

    @torch.no_grad()
    def fit_bias(self, observation: Observation, frame_sum: Tensor, n_frames: float) -> None:
        """Set the head's bias in an untrained network so that it predicts about the mean of the data.

        Args:
            observation: the observation, which knows the bias for a mean.
            frame_sum: sum of all frames, ``(D,)`` for D features; for symbols the count of each, ``(V,)`` for V
                symbols.
            n_frames: number of frames, or the sum of the counts.
        """
        bias = self.head.bias[: len(self.head.bias) - self.spec.has_end]
        bias.copy_(observation.starting_near(bias, frame_sum, n_frames))

    @torch.no_grad()
    def fit_linear(self, linear: LinearOutputs) -> None:
        """Make an untrained network predict the given linear function of the last vector, by its linear skip.

        The linear skip is a direct map from the last vector to the outputs. Hidden states contribute nothing at first.

        Args:
            linear: constant and coefficients of the outputs, as a function of the last vector.
        """
        assert self.skip is not None, "a network that reads vectors has a skip"
        n = len(linear.bias)
        self.head.weight[:n] = 0
        self.head.bias[:n] = linear.bias
        columns = [linear.skip, linear.first.unsqueeze(-1)] if self.spec.has_first else [linear.skip]
        self.skip.weight[:n] = torch.cat(columns, -1)

    def start(self, n: int, source: Tensor | None, mask: Tensor | None) -> State:
        """Return the network's state before the first step, for a batch of n; an encoder reads the source here.

        Args:
            n: number of sequences.
            source: S steps of each source, symbols ``(n, S)`` or vectors ``(n, S, D)``; None: there is none.
            mask: False at the padding of the source, ``(n, S)``; None without a source.
        """
        if self.no_source is not None:
            values = self.no_source.expand(n, 1, -1)
            return self.network.start(n, Source(values, torch.ones(n, 1, dtype=torch.bool, device=values.device)))
        if source is None:
            return self.network.start(n)
        assert mask is not None
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        return self.network.start(n, Source(embedding(self.source_transform(source)) * mask.unsqueeze(-1), mask))

    def embed(
        self, inputs: Tensor, is_start: Tensor, is_after_source: Tensor, exogenous: Tensor | None = None
    ) -> Tensor:
        """Return the inputs of the network, ``(B, T, d_model)``: the embedded element before each step, or the start.

        Args:
            inputs: the elements before each step, symbols ``(B, T)`` or vectors of D features ``(B, T, D)``.
            is_start: True where the input is the learned start vector instead, ``(B, T)``.
            is_after_source: True at steps after the source, if source and target are one row, ``(B, T)``.
            exogenous: U exogenous inputs of the steps that are predicted, ``(B, T, U)``; None if the network reads
                none.
        """
        if not self.network.reads_past:
            return self.head.bias.new_zeros(*is_start.shape, self.network.d_model)
        embedded: Tensor = self.embedding(self.transform(self._filled(inputs)), is_start, self.begin)
        if self.missing is not None:
            mask = torch.isnan(inputs) & ~is_start.unsqueeze(-1)
            embedded = embedded + self.missing(mask.to(inputs.dtype))
        if self.segment is not None:
            embedded = embedded + self.segment[is_after_source.long()]
        if self.exogenous is not None:
            refuse_without_inputs(exogenous)
            embedded = embedded + self.exogenous(exogenous)
        return embedded

    def hidden(
        self,
        inputs: Tensor,
        is_start: Tensor,
        is_after_source: Tensor,
        state: State,
        exogenous: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Return the hidden states ``(B, T, d_model)``, and the network's state after the last step.

        Args:
            inputs: the elements before each step, symbols ``(B, T)`` or vectors of D features ``(B, T, D)``.
            is_start: True where the input is the start vector instead, ``(B, T)``.
            is_after_source: True at steps after the source, if source and target are one row, ``(B, T)``.
            state: the network's state before the first step.
            exogenous: U exogenous inputs of the steps that are predicted, ``(B, T, U)``; None if the network reads
                none.
        """
        is_of_symbols = self.spec.reads == "symbols" and self.segment is None and self.exogenous is None
        if self.training and is_of_symbols and self.begin is not None and inputs.numel() > self.spec.size + 1:
            table, row_ids = self.embedding.table(inputs, is_start, self.begin)
            return self.network.forward_rows(table * self.embedding.scale, row_ids, state)
        return self.network(self.embed(inputs, is_start, is_after_source, exogenous), state)

    def forward(
        self,
        inputs: Tensor,
        is_start: Tensor,
        is_after_source: Tensor,
        state: State,
        exogenous: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Return the P outputs of each step, ``(B, T, P)``, and the network's state after the last step.

        The outputs are the observation's parameters and, with ``has_end``, the logit of the end.

        Args:
            inputs: the elements before each step, symbols ``(B, T)`` or vectors of D features ``(B, T, D)``.
            is_start: True where the input is the start vector instead, ``(B, T)``.
            is_after_source: True at steps after the source, if source and target are one row, ``(B, T)``.
            state: the network's state before the first step.
            exogenous: U exogenous inputs of the steps that are predicted, ``(B, T, U)``; None if the network reads
                none.
        """
        hidden, state = self.hidden(inputs, is_start, is_after_source, state, exogenous)
        outputs = apply_linear(self.head, hidden) if isinstance(self.head, nn.Linear) else self.head(hidden)
        if self.exogenous_skip is not None:
            outputs = outputs + self.exogenous_skip(exogenous)
        if self.skip is not None:
            start = is_start.unsqueeze(-1)
            last = torch.where(start, 0.0, self.transform(self._filled(inputs)))
            outputs = outputs + self.skip(torch.cat([last, start.to(last.dtype)], -1) if self.spec.has_first else last)
        return outputs, state

    def _filled(self, inputs: Tensor) -> Tensor:
        return inputs if self.missing is None else torch.where(torch.isnan(inputs), 0.0, inputs)


def _transform(reads: str, values: tuple[Values, ...]) -> nn.Module:
    if reads == "vectors" and "ends" in values:
        return NearEnds()
    return LogCounts(values) if reads == "vectors" and "counts" in values else nn.Identity()


def _head(embedding: Embedding, n_outputs: int, spec: IOSpec, d_model: int) -> nn.Linear | TiedLinear:
    if spec.tied_scale is not None:
        assert isinstance(embedding.map, nn.Embedding), "vectors have no table to share"
        return TiedLinear(embedding.map, spec.size, n_outputs - spec.size)
    head = nn.Linear(d_model, n_outputs)
    # Symbols learn faster from logits of order one; a density must start near its starting point to be stable.
    nn.init.normal_(head.weight, std=(1.0 if spec.reads == "symbols" else 0.1) * d_model**-0.5)
    return head


def split_end(outputs: Tensor, may_end: Tensor, has_end: bool) -> tuple[Tensor, Tensor | None]:
    """Split the outputs of a network into the observation's P parameters and the log-odds of the end.

    Args:
        outputs: outputs of each step, ``(..., P)``, or ``(..., P + 1)`` with the logit of the end last.
        may_end: False where the sequence cannot end, ``(...)``.
        has_end: True if the model predicts ends.

    Returns:
        The parameters, ``(..., P)``, and the log-odds of the end, ``(...)``, -inf where it cannot end; None without
        ends.
    """
    if not has_end:
        return outputs, None
    # The gradients of a split are joined; gradients of slices would be padded with zeros.
    output_parameters, end = outputs.split((outputs.shape[-1] - 1, 1), -1)
    return output_parameters, torch.where(may_end, end[..., 0], -torch.inf)
