"""Sets of notes as sequences of their members, closed by an end symbol: ``p(x) = Π_k p(n_k | n_1 .. n_{k-1})``."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.common.parameters import PositiveInt, refuse_wrong_arguments
from seqmodels.common.randomness import Dropout
from seqmodels.observations.base import Observation
from seqmodels.sequences.measure import Values


class ChordWeights(nn.Module):
    """The learned weights of ``Chords``, which names the notes of a set one after another.

    They are an embedding of each of D notes, E, and a projection V to the logits of the next note. The logits of the
    k-th note are ``biases + V relu(numbers + Σ_{j<k} E[n_j])``. There are D + 1 of them: one for each note, from 0 to D
    - 1, and a last one for the end of the set. ``numbers (..., H)`` and ``biases (..., D + 1)`` are the output
    parameters of a step.
    """

    def __init__(self, size: int, n_hidden: int, dropout: float) -> None:
        super().__init__()
        self.notes = nn.Parameter(torch.empty(size, n_hidden).normal_(std=0.1))  # E
        self.out = nn.Linear(n_hidden, size + 1, bias=False)  # V
        self.dropout = Dropout(dropout)
        nn.init.normal_(self.out.weight, std=n_hidden**-0.5)

    def log_softmax(self, numbers: Tensor, biases: Tensor, last: Tensor) -> Tensor:
        """Return the log-probabilities of the next note of a set and of its end in nats, ``(..., D + 1)``.

        Args:
            numbers: hidden vectors, the first H output parameters plus the embeddings of the notes so far,
                ``(..., H)``.
            biases: bias of the logit of each of D notes and of the end, ``(..., D + 1)``.
            last: the note before, -1 at the start, ``(...)``; notes up to and including it get -inf.
        """
        logits = biases + self.out(self.dropout(F.relu(numbers)))
        is_earlier = torch.arange(logits.shape[-1], device=last.device) <= last.unsqueeze(-1)
        return torch.log_softmax(logits.masked_fill(is_earlier, -torch.inf), dim=-1)


@dataclass(eq=False, repr=False)
class Chords(Observation):
    """The distribution of the set of features that are on, such as the keys of a piano roll, for networks.

    The D features are called notes. The set is coded as a chain of its members in order, closed by an end symbol. Each
    factor is a softmax over the notes that may still come and the end, so a frame of four notes has five factors, and
    the probabilities of all ``2^D`` frames sum to one. Unlike under ``Bernoulli``, the notes depend on each other.

    Args:
        n_hidden: H, width of the hidden vector in which the notes so far are summed.
        order: order in which notes are named: ``"descending"`` starts with the last feature (the highest note),
            ``"ascending"`` with the first.
        dropout: fraction of the H hidden numbers dropped in training.

    The output parameters of a step are H numbers, to which every named note adds its own, and D + 1 biases of the notes
    and the end. The weights (``ChordWeights``) are learned and the same at every step, so only networks can use this
    observation; an HMM refuses it. Missing values are refused too. References: Larochelle and Murray (2011), *The
    neural autoregressive distribution estimator*; Boulanger-Lewandowski et al. (2012) for its use after a recurrent
    network.
    """

    n_hidden: PositiveInt = 128
    order: Literal["descending", "ascending"] = "descending"
    dropout: float = 0.0
    emits = "vectors"
    _weights: ChordWeights | None = field(default=None, init=False)

    def values(self, size: int) -> tuple[Values, ...]:
        bits: Values = "bits"
        return (bits,) * size

    def check(self, size: int) -> None:
        refuse_wrong_arguments(self)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; pass a fraction from 0 up to 1")

    # -- weights that all steps share ----------------------------------------------------------------------

    def shared(self, size: int) -> ChordWeights:
        return ChordWeights(size, self.n_hidden, self.dropout)

    def bound(self, shared: nn.Module | None) -> Chords:
        assert isinstance(shared, ChordWeights)
        result = self.clone()
        result._weights = shared
        return result

    def on_cpu(self) -> Chords:
        return self.bound(copy.deepcopy(self.weights).cpu())

    @property
    def weights(self) -> ChordWeights:
        """The learned weights, which a network has set by ``bound``.

        Raises:
            ValueError: if no weights have been set.
        """
        if self._weights is None:
            raise ValueError(
                f"{self!r} has no learned weights yet, because they belong to a network; set them with bound() first"
            )
        return self._weights

    # -- Observation ---------------------------------------------------------------------------------------

    def n_output_parameters(self, size: int) -> int:
        return self.n_hidden + size + 1

    def log_prob(self, output_parameters: Tensor, x: Tensor, past: Tensor | None = None) -> Tensor:
        shape = torch.broadcast_shapes(output_parameters.shape[:-1], x.shape[:-1])
        numbers, biases = self._split(output_parameters.expand(*shape, -1).reshape(-1, output_parameters.shape[-1]))
        notes, mask = ordered_members(self._in_order(x.expand(*shape, -1).reshape(-1, x.shape[-1]) > 0))  # (N, K)
        last = F.pad(notes[:, :-1], (1, 0), value=-1)
        before = self._embedded(notes[:, :-1]).cumsum(1)  # (N, K - 1, H)
        states = numbers.unsqueeze(1) + F.pad(before, (0, 0, 1, 0))
        # The softmax is computed for real factors only, because it is the expensive part and chords differ in size.
        real_biases = biases.unsqueeze(1).expand(-1, notes.shape[1], -1)[mask]
        log_p = self.weights.log_softmax(states[mask], real_biases, last[mask])
        each = log_p.gather(-1, notes[mask].unsqueeze(-1)).squeeze(-1)
        return torch.zeros_like(states[..., 0]).masked_scatter(mask, each).sum(1).view(shape)

    @torch.no_grad()
    def sample(self, output_parameters: Tensor, past: Tensor | None, generator: torch.Generator) -> Tensor:
        numbers, biases = self._split(output_parameters)
        size = biases.shape[-1] - 1
        drawn = torch.zeros_like(biases)
        last = torch.full(biases.shape[:1], -1, device=biases.device)
        for _ in range(size + 1):
            p = self.weights.log_softmax(numbers, biases, last).exp()
            note = torch.multinomial(p, 1, generator=generator)  # (n, 1)
            drawn.scatter_(1, note, 1.0)
            if bool(drawn[:, size].all()):
                break
            numbers = numbers + self._embedded(note[:, 0])
            last = note[:, 0].clamp(max=size - 1)  # after the end nothing but the end
        return self._in_order(drawn[:, :size])

    def _split(self, output_parameters: Tensor) -> tuple[Tensor, Tensor]:
        return output_parameters[..., : self.n_hidden], output_parameters[..., self.n_hidden :]

    def _in_order(self, frames: Tensor) -> Tensor:
        """Return frames with features in the order in which notes are named, ``(..., D)``; its own inverse."""
        return frames.flip(-1) if self.order == "descending" else frames

    def _embedded(self, notes: Tensor) -> Tensor:
        """Return the embedding of each note, which is added to the hidden vector, ``(..., H)``.

        The end symbol gets the embedding of the last note, which has no effect because no note follows the end.

        Args:
            notes: numbers of notes, or the number D for the end, ``(...)``.
        """
        return F.embedding(notes.clamp(max=len(self.weights.notes) - 1), self.weights.notes)


def ordered_members(on: Tensor) -> tuple[Tensor, Tensor]:
    """Return the members of each set in ascending order, followed by an end symbol, and a mask of the real entries.

    Args:
        on: True for the members of each of N sets, ``(N, D)``.

    Returns:
        The members, padded to the length L of the longest row, ``(N, L)``; the end symbol and the padding are the
            number D. The mask, ``(N, L)``, which is True for members and the end symbol.

    >>> notes, mask = ordered_members(torch.tensor([[True, False, True], [False, False, False]]))
    >>> notes.tolist(), mask.sum(1).tolist()
    ([[0, 2, 3], [3, 3, 3]], [3, 1])
    """
    row, note = on.nonzero(as_tuple=True)  # sorted by row, then by note
    counts = on.sum(1)
    position = torch.arange(len(row), device=on.device) - (counts.cumsum(0) - counts)[row]
    longest = int(counts.max()) + 1
    notes = torch.full((len(on), longest), on.shape[1], device=on.device)
    notes[row, position] = note
    return notes, torch.arange(longest, device=on.device) <= counts.unsqueeze(1)
