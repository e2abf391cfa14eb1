"""Inference in hidden semi-Markov chains, in which each state has its own distribution of how many steps it lasts.

A state that is entered emits a segment of d steps, ``d ~ p_j(d)``, ``1 <= d <= D``, and then the next state is drawn:
``p(segments, x) = π(j_1) Π_n p_{j_n}(d_n) Π_t b_{j_n}(x_t) Π_n a(j_n, j_{n+1})`` (Yu 2010, *Hidden semi-Markov models*,
Artificial Intelligence 174). With ``u_t(j)`` the probability that a segment of j begins at step t,

    ended_t(j) = Σ_d u_{t-d+1}(j) p_j(d) Π b_j(x_{t-d+1} .. x_t),        u_{t+1}(j) = Σ_i ended_t(i) a_ij,

and similarly backwards. A step takes ``K D + K²`` terms, and its messages are K numbers. The densities of all open
segments of a state change by one factor, so that this factor is kept apart (``_Open.level``), and a step multiplies D
numbers by the distribution of durations. Everything is in float64 logarithms: exponentials are taken of the D numbers
of a state relative to their largest, and a sum so small that underflow could matter is computed again from logarithms.
Few sequences of many steps run in compiled loops, if numba is installed (``compiled_semi_markov``).

If the end is no event, the last segment of a sequence may go on after it, and counts with the probability of lasting at
least as long as was seen. If the end is an event, a sequence ends where a segment does, with probability ``final``.

Transitions and durations may differ from step to step: then those of a segment are the ones of its first step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.compiled import is_compiling
from seqmodels.inference.chains.given_inputs import distinct_rows, log_durations
from seqmodels.inference.chains.log_space import LogProduct
from seqmodels.inference.chains.log_weights import finite, relative_to_largest
from seqmodels.inference.chains.packing import Packing

LEAST_EXACT = 1e-285  # sums of exponentials below this may have lost something that matters to underflow
MOST_SEQUENCES_COMPILED = 64  # mean number of running sequences above which tensors are as fast
LEAST_LOG = -700.0  # least logarithm of a probability that exponentials keep
TABLES_OF_STEP = 8  # tables of durations of a step that are held at once, if they depend on inputs
COLUMNS_AHEAD = 64  # smallest number of steps between two moves of the window of open segments


@dataclass(frozen=True)
class Durations:
    """The distributions of the durations of segments (stays in one state), of up to D steps, in nats.

    They are the same for all segments, or differ by the segment's first step.

    Attributes:
        log_pmf: log p(d) of d = 1 .. D steps, ``(K, D)``, or R tables of them, ``(R, K, D)``.
        log_longer: log p(more than d steps), in the shape of ``log_pmf``.
        log_first: ``log_pmf`` of the number of steps that are left of the first segment, ``(K, D)``, or of each of n
            sequences by rank (longest first), ``(n, K, D)``; it differs if that segment may have begun before the
            sequence did.
        log_first_longer: ``log_longer`` of the number of steps that are left of the first segment, in the shape of
            ``log_first``.
        is_left_censored: True if the first segment of a sequence may have begun before the sequence.
        table_of_row: which of the R tables is that of a segment that begins at each of N packed rows, ``(N,)``; None if
            the distributions are the same for all segments.
    """

    log_pmf: Tensor
    log_longer: Tensor
    log_first: Tensor
    log_first_longer: Tensor
    is_left_censored: bool = False
    table_of_row: Tensor | None = None

    @classmethod
    def of(
        cls, log_pmf: Tensor, *, left_censored: bool = False, table_of_row: Tensor | None = None, n_sequences: int = 0
    ) -> Durations:
        """Return the distributions of durations with the given log-probabilities.

        Args:
            log_pmf: log p(d) in nats, ``(K, D)``, or R tables of them, ``(R, K, D)``; the probabilities of all d sum to
                one.
            left_censored: True if the sequence is cut out of a process that had gone on for long: the probability that
                r steps of the first segment are left is then ``P(d >= r) / E[d]``. False if the first segment begins
                with the sequence.
            table_of_row: which of R tables is that of segments that begin at each of N packed rows, ``(N,)``.
            n_sequences: number of sequences, whose first steps are the first of the N rows; read only if there are N.
        """
        log_pmf = log_pmf.double()
        at_least, log_longer = _log_tails(log_pmf)
        of_first = slice(None) if table_of_row is None else table_of_row[:n_sequences]
        if not left_censored:
            return cls(log_pmf, log_longer, log_pmf[of_first], log_longer[of_first], table_of_row=table_of_row)
        at_least = at_least[of_first]
        log_first = at_least - torch.logsumexp(at_least, -1, keepdim=True)  # E[d] = Σ P(d >= n)
        return cls(log_pmf, log_longer, log_first, _log_tails(log_first)[1], True, table_of_row)

    @property
    def differ(self) -> bool:
        """True if the distribution of a segment's duration differs by the segment's first step."""
        return self.table_of_row is not None

    @property
    def log_pmf_of_rows(self) -> Tensor:
        """The log-probabilities of durations, ``(K, D)``, or of segments that begin at each row, ``(N, K, D)``."""
        return self.log_pmf if self.table_of_row is None else self.log_pmf[self.table_of_row]

    def given_inputs(
        self, slopes: Tensor, inputs: Tensor, n_sequences: int, tables: tuple[Tensor, Tensor] | None = None
    ) -> Durations:
        """Return the distributions of segments that begin at N steps with given inputs, of which these are at zero.

        Args:
            slopes: change of ``log p(d) / (d - 1)`` with each of U inputs before probabilities are normalised,
                ``(K, U)``.
            inputs: inputs of each step, ``(N, U)``.
            n_sequences: number of sequences, whose first steps are the first of the N steps.
            tables: what ``distinct_tables`` returns for these slopes and inputs, if it is known.
        """
        rows, table = distinct_tables(slopes, inputs) if tables is None else tables
        log_pmf = log_durations(self.log_pmf, slopes, inputs[rows])
        return Durations.of(log_pmf, left_censored=self.is_left_censored, table_of_row=table, n_sequences=n_sequences)

    @property
    def log_at_least(self) -> Tensor:
        """The log-probability that a segment lasts at least n steps, log P(d >= n), ``(K, D)`` for n from 1 to D."""
        return torch.logaddexp(self.log_pmf, self.log_longer)

    @property
    def log_first_at_least(self) -> Tensor:
        """The log-probability that at least n steps of the first segment are left, ``(K, D)`` for n from 1 to D."""
        return torch.logaddexp(self.log_first, self.log_first_longer)


def distinct_tables(slopes: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return a row of each of R distinct tables of durations given inputs, ``(R,)``, and the table of each, ``(N,)``.

    Rows that differ only where all slopes are zero have one table, unless derivatives by slopes are needed.

    Args:
        slopes: as in ``Durations.given_inputs``, ``(K, U)``.
        inputs: inputs of each step, ``(N, U)``.
    """
    return distinct_rows(inputs[:, (slopes != 0).any(0) | slopes.requires_grad])


def _log_tails(log_pmf: Tensor) -> tuple[Tensor, Tensor]:
    """Return log P(d >= n) and log P(d > n) for n from 1 to D, each in the shape of ``log_pmf (..., D)``.

    They are views of one array, without derivatives.
    """
    flipped = log_pmf.detach().flip(-1)
    if log_pmf.dim() == 3 and log_pmf.numel() and float(finite(flipped).min()) > LEAST_LOG:
        flipped.exp_().cumsum_(-1).log_()  # which takes less time, where nothing underflows
    else:
        flipped = flipped.logcumsumexp(-1)
    tails = torch.nn.functional.pad(flipped.flip(-1), (0, 1), value=-torch.inf)
    return tails[..., :-1], tails[..., 1:]


@dataclass(frozen=True)
class EndingTables:
    """Log-probabilities of the durations of segments of one sequence of T steps, looked up where segments end.

    Attributes:
        of_later: a table of all segments but the first, ``(K, D)``, or R tables, ``(R, K, D)``.
        of_first: the table of the first segment, ``(K, D)``.
        of_step: which of R tables is that of segments that begin at each step, ``(T,)``; None if there is one table.
    """

    of_later: np.ndarray
    of_first: np.ndarray
    of_step: np.ndarray | None = None

    def at(self, first_steps: np.ndarray) -> np.ndarray:
        """Return the entries of segments of 1 .. m steps that end at one step, ``(m, K)``, shortest first.

        ``first_steps`` has the first step of each, ``(m,)``.
        """
        m = len(first_steps)
        if self.of_step is None:
            entries: np.ndarray = self.of_later[:, :m].T.copy()
        else:
            entries = self.of_later[self.of_step[first_steps], :, np.arange(m)]
        if first_steps[-1] == 0:
            entries[-1] = self.of_first[:, m - 1]
        return entries

    def with_end(self, log_final: np.ndarray) -> EndingTables:
        """Return the tables with log-probabilities of the end of the sequence after each state, ``(K,)``, added."""
        return replace(self, of_later=self.of_later + log_final[:, None], of_first=self.of_first + log_final[:, None])


@dataclass(frozen=True)
class SemiMarkovTrellis:
    """A problem of inference in a hidden semi-Markov chain: n packed sequences and K states with durations.

    Attributes:
        initial: probability that the first segment (stay in one state) is of each state, ``(K,)`` float64, or
            ``(n, K)`` with one row for each sequence in the caller's order.
        transition: probabilities of the state of the next segment, ``(K, K)`` float64; each row plus its ``final`` sums
            to one.
        final: probability that the sequence ends after a segment of each state, ``(K,)`` float64; None if the length
            has no probability.
        durations: distributions of the durations.
        log_b: log-densities in nats, ``(N, K)``, in the rows of ``packing``.
        packing: how the N rows make up the n sequences.
        log_transitions: log-probabilities of the transitions into a segment that begins at each row, ``(N, K, K)``
            float64, if they differ from step to step; first frames are not read. None if ``transition`` holds at all
            steps.
    """

    initial: Tensor
    transition: Tensor
    final: Tensor | None
    durations: Durations
    log_b: Tensor
    packing: Packing
    log_transitions: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of sequences, the number of states, and the longest duration that fits into a sequence."""
        longest = min(self.durations.log_pmf.shape[-1], len(self.packing.blocks))
        return self.packing.n_sequences, len(self.transition), longest

    @property
    def log_initial(self) -> Tensor:
        """The log-probabilities of the state of each sequence's first segment, ``(n, K)`` by rank (longest first)."""
        rows = self.initial if self.initial.dim() == 1 else self.initial[self.packing.order]
        return rows.log().expand(self.packing.n_sequences, -1)

    @property
    def log_matrices(self) -> Tensor:
        """The log-probabilities of transitions between segments, ``(1, K, K)``.

        They are ``(N, K, K)``, into each row, if transitions differ from step to step.
        """
        return self.transition.log()[None] if self.log_transitions is None else self.log_transitions

    @cached_property
    def matrices(self) -> Tensor:
        """The transition probabilities between segments and their logarithms, stacked: ``(2, 1, K, K)``.

        They are ``(2, N, K, K)``, into each row, if transitions differ from step to step.
        """
        if self.log_transitions is None:
            return torch.stack([self.transition, self.transition.log()]).unsqueeze(1)
        return torch.stack([self.log_transitions.exp(), self.log_transitions])

    @property
    def log_matrices_of_each(self) -> list[Tensor]:
        """The log-probabilities of transitions for each sequence, in the caller's order.

        They are ``(1, K, K)``, or ``(T, K, K)`` if transitions differ from step to step.
        """
        if self.log_transitions is None:
            return [self.log_matrices] * self.packing.n_sequences
        return self.packing.split(self.log_transitions)

    @property
    def tables_of_each(self) -> list[tuple[EndingTables, EndingTables]]:
        """Log-probabilities of a duration, and of lasting at least as long, of each sequence in the caller's order."""
        d, rank, n = self.durations, self.packing.rank, self.packing.n_sequences
        later = [table.cpu().numpy() for table in (d.log_pmf, d.log_at_least)]
        if d.table_of_row is None:
            first = [table.cpu().numpy() for table in (d.log_first, d.log_first_at_least)]
            return [(EndingTables(later[0], first[0]), EndingTables(later[1], first[1]))] * n
        of_steps = [table.cpu().numpy() for table in self.packing.split(d.table_of_row)]
        firsts = [table[rank].cpu().numpy() for table in (d.log_first, d.log_first_at_least)]
        return [
            (EndingTables(later[0], pmf, of_step), EndingTables(later[1], at_least, of_step))
            for pmf, at_least, of_step in zip(*firsts, of_steps, strict=True)
        ]

    def products(self, *, is_backward: bool = False) -> Callable[[Tensor, int, int], Tensor]:
        """Return a function ``f(log_weights, low, high)`` that multiplies weights of states by transitions.

        It takes log-weights of states before the rows ``low .. high - 1``, ``(high - low, K)``, and returns log-weights
        of states in them. If ``is_backward``, it takes log-weights in these rows to those before them.
        """
        if self.log_transitions is None:
            product = LogProduct(self.transition.T.contiguous() if is_backward else self.transition)
            return lambda log_weights, low, high: product(log_weights)
        log_a = self.log_transitions.mT if is_backward else self.log_transitions
        return lambda log_weights, low, high: torch.logsumexp(log_weights[:, :, None] + log_a[low:high], 1)

    def entries_of_open(self, *tables: Tensor) -> Callable[[int, int, slice], list[Tensor]]:
        """Return a function ``f(t, columns, ranks)`` that looks up durations of segments whose last step is t.

        The function returns the entries of durations up to ``columns``, the shortest last, from each table, ``(K,
        columns)``. They are ``(m, K, columns)``, of the m sequences at ``ranks``, if durations differ.

        Args:
            tables: ``log_pmf``, ``log_longer`` or other tables of their shape.
        """
        longest, of_row, offsets = self.shape[2], self.durations.table_of_row, self.packing.offsets
        if of_row is None:
            flipped = torch.stack(tables)[..., :longest].flip(-1)
            return lambda t, columns, ranks: list(flipped[..., longest - columns :])
        n_states = len(self.transition)
        side_by_side = torch.cat([table[..., :longest] for table in tables], 1).mT.flatten(0, 1)  # (R D, G K)
        every_rank = torch.arange(self.packing.n_sequences, device=of_row.device)[:, None]

        def entries(t: int, columns: int, ranks: slice) -> list[Tensor]:
            lasted = torch.arange(columns - 1, -1, -1, device=of_row.device)
            entry = of_row[offsets[t - lasted] + every_rank[ranks]] * longest + lasted
            looked_up = side_by_side.index_select(0, entry.flatten()).view(*entry.shape, -1)  # (m, columns, G K)
            return list(looked_up.mT.split(n_states, 1))

        return entries

    @cached_property
    def relative(self) -> tuple[Tensor, Tensor]:
        """The log-densities less the largest of each frame, ``(N, K)`` float64, and that largest, ``(N,)``."""
        log_b, peak = relative_to_largest(self.log_b.double())
        return log_b, peak[:, 0]

    @property
    def runs_compiled(self) -> bool:
        """True if compiled loops are faster than tensor operations.

        They are where few sequences run at each time, and where durations differ, because tensors would be filled with
        a number for each step, state and duration.
        """
        are_few = self.packing.n_frames <= len(self.packing.blocks) * MOST_SEQUENCES_COMPILED
        return (are_few or self.durations.differ) and not self.log_b.is_cuda and is_compiling()

    def stacked(self, *tables: Tensor) -> Tensor:
        """Return G tables of durations that fit into a sequence, ``(G, 1, K, D)``, or ``(G, R, K, D)``."""
        of_each = torch.stack([table[..., : self.shape[2]] for table in tables])
        return of_each if self.durations.differ else of_each.unsqueeze(1)

    @cached_property
    def longest_first(self) -> tuple[np.ndarray, np.ndarray]:
        """The probabilities that a segment ends after d steps and that it lasts longer, and their logarithms.

        Each is ``(2, R, K, D)``, the longest d first; R is 1 if durations do not differ.
        """
        d = self.durations
        tables = [self.stacked(table)[0].numpy()[..., ::-1] for table in (d.log_pmf, d.log_longer)]
        logs = np.stack(tables)
        return torch.from_numpy(logs).exp().numpy(), logs

    @property
    def table_of_row(self) -> Tensor:
        """The number of the table of segments that begin at each row, ``(N,)``, or ``(1,)`` if there is one table."""
        of_row = self.durations.table_of_row
        return torch.zeros(1, dtype=torch.int64) if of_row is None else of_row

    @cached_property
    def has_zeros(self) -> bool:
        """True if some state cannot have emitted some frame."""
        return bool(torch.isneginf(self.log_b).any())


@dataclass(frozen=True)
class SemiMarkovFiltered:
    """The result of the forward pass in a hidden semi-Markov chain, with N packed rows and K states.

    Attributes:
        steps: log p(x_t | x_<t) in nats, ``(N,)`` float64; -inf from the first impossible frame on.
        log_start: log p(a segment of state j begins at t | x_<t), ``(N, K)``.
        log_ended: log p(a segment of j has t as its last step | x_<=t), ``(N, K)``.
        log_continues: log p(a segment of j is open and has more steps | x_<=t), ``(N, K)``.
        ends: log p(end | x) of each sequence, ``(n,)``; zeros if the length has no probability.
        log_scale: log p(x_t | x_<t) relative to the largest density of the frame, ``(N,)``.
    """

    steps: Tensor
    log_start: Tensor
    log_ended: Tensor
    log_continues: Tensor
    ends: Tensor
    log_scale: Tensor

    @property
    def log_beliefs(self) -> Tensor:
        """The log-probability of each state given the steps so far, log p(z_t | x_<=t), ``(N, K)``."""
        return torch.logaddexp(self.log_ended, self.log_continues)


@dataclass(frozen=True)
class SemiMarkovPosterior:
    """The result of forward-backward in a hidden semi-Markov chain, with N packed rows and K states.

    Attributes:
        log_prob: log p(x) of each sequence in nats, ``(n,)`` float64, including its end if that has a probability.
        gamma: p(z_t | x), ``(N, K)``; rows sum to one. They are differences of the expected numbers of segments that
            have begun and ended, exact to about 1e-15 times the number of steps.
        xi: expected transitions from segment to segment, ``(K, K)``, or into a segment that begins at each row,
            ``(N, K, K)``, where transitions differ from step to step.
        initial: expected number of sequences that begin in each state, ``(K,)``.
        final: expected number of sequences that end in each state, ``(K,)``.
        durations: expected number of segments of each duration, ``(K, D)``. A segment that is cut off by the end of its
            sequence counts with the probabilities of the durations that it may have in full.
        first_durations: the same for what is left of first segments, ``(K, D)``, if they may have begun before the
            sequence; they are then not in ``durations``. Zeros otherwise. If durations differ from step to step, they
            are of each sequence by rank (longest first), ``(n, K, D)``.
        segments: expected number of the segments of ``durations`` that begin at each row, ``(N, K)``; empty if
            durations do not differ from step to step.
        steps: expected number of steps, all but the first, of these segments in full, ``(N, K)``; empty as well.
    """

    log_prob: Tensor
    gamma: Tensor
    xi: Tensor
    initial: Tensor
    final: Tensor
    durations: Tensor
    first_durations: Tensor
    segments: Tensor
    steps: Tensor


@dataclass(frozen=True)
class _Counts:
    """Expected numbers of segments, in which those that begin with their sequence are apart from the others.

    Attributes:
        ended: those that end within their sequence, of each duration, ``(K, D)``.
        first_ended: the same of segments that begin with the sequence, ``(K, D)``; if durations differ from step to
            step, ``(n, K, D)`` by rank.
        cut_off: those that go on after the end of their sequence, by the steps that they have lasted, ``(K, D)``; if
            durations differ, by the row that they begin at, ``(N, K)``.
        first_cut_off: the same of segments that begin with the sequence, ``(K, D)``; empty if durations differ, because
            their rows are the first of ``cut_off``.
        begun: segments that begin at each row, ``(N, K)`` if durations differ.
        steps: steps but the first of those that begin at each row and end within the sequence, ``(N, K)`` if durations
            differ; not of segments that begin with the sequence.
    """

    ended: Tensor
    first_ended: Tensor
    cut_off: Tensor
    first_cut_off: Tensor
    begun: Tensor
    steps: Tensor


class _Open:
    """The log-weights of the segments that have begun and not ended, of n sequences and K states, by first step.

    The log-weights are ``window + level``: a table for the last D first steps, the newest last, and a term that all
    open segments of a state have in common. Rows are in the order of ranks, the sequences that run longest first.
    """

    def __init__(self, n: int, k: int, longest: int, like: Tensor) -> None:
        self.longest = longest
        self.width = longest + max(longest, COLUMNS_AHEAD)
        self.weights = like.new_full((n, k, self.width), -torch.inf)
        self.level = like.new_zeros(n, k)
        self.stop = 0  # number of columns in use

    def begin(self, log_weight: Tensor) -> None:
        """Begin a new segment in each state of m sequences, with log-weights ``log_weight (m, K)``."""
        if self.stop == self.width:
            kept = self.longest - 1
            self.weights[:, :, :kept] = self.weights[:, :, self.width - kept :] + self.level.unsqueeze(-1)
            self.level.zero_()
            self.stop = kept
        m = len(log_weight)
        self.weights[:m, :, self.stop] = log_weight - self.level[:m]
        self.weights[m:, :, self.stop] = -torch.inf
        self.stop += 1

    def multiply(self, log_factor: Tensor, *, has_zeros: bool) -> None:
        """Multiply the weights of all open segments of each state by a factor, ``exp(log_factor)``, ``(m, K)``.

        A factor of -inf ends the open segments of a state. ``has_zeros`` must be True if any factor is -inf.
        """
        m = len(log_factor)
        if has_zeros:
            is_zero = torch.isneginf(log_factor)
            self.weights[:m, :, max(0, self.stop - self.longest) : self.stop].masked_fill_(
                is_zero.unsqueeze(-1), -torch.inf
            )
            log_factor = log_factor.masked_fill(is_zero, 0.0)
        self.level[:m] += log_factor

    def window(self, m: int) -> Tensor:
        """Return the log-weights of the open segments less their common ``level``, ``(m, K, columns)``.

        There are at most D columns, one for each number of steps that segments have lasted, the shortest last. ``m`` is
        the number of sequences that are running.
        """
        return self.weights[:m, :, max(0, self.stop - self.longest) : self.stop]


def _log_sums(window: Tensor, tables: list[Tensor]) -> list[Tensor]:
    """Return ``log Σ_c exp(window + table)``, ``(m, K)``, for each of several tables.

    ``window`` is ``(m, K, c)``, and each of ``tables`` is ``(K, c)`` or ``(m, K, c)``.
    """
    peak = finite(window.amax(-1, keepdim=True))
    scaled = (window - peak).exp_()
    results = []
    for table in tables:
        is_of_rows = table.dim() == 3
        sums = torch.einsum("mkc,mkc->mk" if is_of_rows else "mkc,kc->mk", scaled, table.exp())
        log_sums = sums.log().add_(peak[..., 0])
        is_small = sums < LEAST_EXACT * window.shape[-1]
        if is_small.any():
            rows, states = is_small.nonzero(as_tuple=True)
            of_table = table[rows, states] if is_of_rows else table[states]
            log_sums[rows, states] = torch.logsumexp(window[rows, states] + of_table, -1)
        results.append(log_sums)
    return results


def of_first(table: Tensor, ranks: slice, t: int) -> Tensor:
    """Return the entry of ``t + 1`` steps of first segments, ``(K,)``, or if durations differ ``(m, K)`` of m ranks.

    ``table`` is ``log_first`` or another table of its shape.
    """
    return table[..., t] if table.dim() == 2 else table[ranks, :, t]


@torch.no_grad()
def forward_pass(trellis: SemiMarkovTrellis) -> SemiMarkovFiltered:
    """Run the forward pass in a hidden semi-Markov chain on all sequences side by side, step by step."""
    n, k, longest = trellis.shape
    packing, log_b = trellis.packing, trellis.relative[0]
    d, has_zeros, advance = trellis.durations, trellis.has_zeros, trellis.products()
    if trellis.runs_compiled:
        return _forward_compiled(trellis)
    entries = trellis.entries_of_open(d.log_pmf, d.log_longer)
    open_segments = _Open(n, k, longest, log_b)
    first = trellis.log_initial.clone()  # the first segment has its own durations
    log_start, log_ended, log_continues = (log_b.new_empty(log_b.shape) for _ in range(3))
    log_scale, row_before = log_b.new_empty(len(log_b)), 0
    for t, (low, high) in enumerate(packing.blocks):
        m = high - low
        if t:
            log_start[low:high] = advance(log_ended[row_before : row_before + m], low, high)
            open_segments.begin(log_start[low:high])
        else:
            log_start[low:high] = first
        open_segments.multiply(log_b[low:high], has_zeros=has_zeros)
        first = first[:m] + log_b[low:high]
        ended, continues = (
            (first + of_first(table, slice(m), t) for table in (d.log_first, d.log_first_longer))
            if t < longest
            else (torch.full_like(first, -torch.inf),) * 2
        )
        if t:
            window = open_segments.window(m)
            level = open_segments.level[:m]
            sums = _log_sums(window, entries(t, window.shape[-1], slice(m)))
            ended, continues = torch.logaddexp(ended, sums[0] + level), torch.logaddexp(continues, sums[1] + level)
        scale = torch.logsumexp(torch.cat([ended, continues], 1), 1)
        shift = finite(scale)[:, None]
        log_ended[low:high], log_continues[low:high], log_scale[low:high] = ended - shift, continues - shift, scale
        open_segments.level[:m] -= shift
        first -= shift
        row_before = low
    return _filtered(trellis, log_start, log_ended, log_continues, log_scale)


def _filtered(
    trellis: SemiMarkovTrellis, log_start: Tensor, log_ended: Tensor, log_continues: Tensor, log_scale: Tensor
) -> SemiMarkovFiltered:
    ends = log_scale.new_zeros(trellis.packing.n_sequences)
    if trellis.final is not None:
        ends = torch.logsumexp(log_ended[trellis.packing.last] + trellis.final.log(), 1)
    steps = log_scale + trellis.relative[1]
    return SemiMarkovFiltered(steps, log_start, log_ended, log_continues, ends, log_scale)


def _forward_compiled(trellis: SemiMarkovTrellis) -> SemiMarkovFiltered:
    from seqmodels.inference.chains import compiled_semi_markov

    longest, d, packing = trellis.shape[2], trellis.durations, trellis.packing
    log_b, into = trellis.relative[0].contiguous(), trellis.matrices.mT
    results = [log_b.new_empty(log_b.shape) for _ in range(3)] + [log_b.new_empty(len(log_b))]
    first = trellis.stacked(d.log_first, d.log_first_longer)
    given = [trellis.table_of_row, first, log_b, packing.offsets, packing.lengths[packing.order]]
    chain = *_arrays([into, trellis.log_initial]), *trellis.longest_first
    compiled_semi_markov.forward((*chain, *_arrays(given)), _arrays(results), LEAST_EXACT * longest)
    return _filtered(trellis, *results)


@torch.no_grad()
def forward_backward_pass(trellis: SemiMarkovTrellis) -> SemiMarkovPosterior:
    """Run forward-backward in a hidden semi-Markov chain.

    If a sequence has probability zero, its ``log_prob`` is -inf and its other results are arbitrary.
    """
    filtered = forward_pass(trellis)
    backward = _backward_compiled if trellis.runs_compiled else _backward
    return _posterior(trellis, filtered, *backward(trellis, filtered))


def _backward(trellis: SemiMarkovTrellis, filtered: SemiMarkovFiltered) -> tuple[Tensor, Tensor, _Counts]:
    """Return p(z_t | x), ``(N, K)``, expected transitions, and expected numbers of segments.

    Expected transitions are ``xi`` of ``SemiMarkovPosterior``.
    """
    n, k, longest = trellis.shape
    packing, log_b = trellis.packing, trellis.relative[0]
    d, has_zeros = trellis.durations, trellis.has_zeros
    ahead_of, log_a = trellis.products(is_backward=True), trellis.log_matrices
    lengths = packing.lengths[packing.order]
    at_end = _log_at_end(trellis, filtered)
    gamma = log_b.new_zeros(log_b.shape)
    xi = torch.zeros_like(log_a)
    n_durations = d.log_pmf.shape[-1]
    counts, first_counts = (log_b.new_zeros(k, n_durations) for _ in range(2))
    cut_off, first_cut_off = (log_b.new_zeros(n_durations, k) for _ in range(2))
    n_rows = len(log_b) if d.differ else 0
    begun_at, steps = (log_b.new_zeros(n_rows, k) for _ in range(2))
    if d.differ:
        first_counts, cut_off = log_b.new_zeros(n, k, n_durations), log_b.new_zeros(n_rows, k)
    open_segments = _Open(n, k, longest, log_b)
    # Log-densities up to the last step of a segment that goes on after it.
    to_end = log_b.new_full((n, k), 0.0 if trellis.final is None else -torch.inf)
    pmf, first_pmf = (table[..., :longest].flip(-1) for table in (d.log_pmf, d.log_first))
    later = log_b.new_empty(0, k)  # log p(x_t+1 .. | a segment of j begins at t + 1) / p(x_t+1 .. | x_<=t)
    begun = later.exp()  # p(a segment of j begins at t + 1 | x)
    for t in reversed(range(len(packing.blocks))):
        low, high = packing.blocks[t]
        m, n_later = high - low, len(later)
        log_ended, log_start = filtered.log_ended[low:high], filtered.log_start[low:high]
        log_beta = torch.cat([ahead_of(later, high, high + n_later), at_end[n_later:m]])
        if n_later and trellis.log_transitions is None:
            xi += (log_ended[:n_later, :, None] + log_a + later[:, None, :]).exp_().sum(0)
        elif n_later:
            after = slice(high, high + n_later)
            xi[after] = (log_ended[:n_later, :, None] + log_a[after] + later[:, None, :]).exp_()
        ended = (log_ended + log_beta).exp()
        of_frame = ended.clone()
        of_frame[:n_later] += gamma[high : high + n_later] - begun
        if trellis.final is None:
            of_frame[n_later:] += filtered.log_continues[low + n_later : high].exp()
        factor = log_b[low:high] - finite(filtered.log_scale[low:high, None])
        gamma[low:high] = of_frame.clamp_(min=0.0).masked_fill_(torch.isneginf(factor), 0.0)
        open_segments.begin(log_beta)
        open_segments.multiply(factor, has_zeros=has_zeros)
        to_end[:m] += factor
        window = open_segments.window(m)
        columns = window.shape[-1]
        table = None if d.table_of_row is None else d.table_of_row[low:high]
        of_begins = first_pmf if t == 0 else pmf if table is None else pmf[table]
        terms = window + of_begins[..., longest - columns :]
        peak = finite(terms.amax(-1))
        scaled = terms.sub_(peak.unsqueeze(-1)).exp_()
        shift = peak + open_segments.level[:m]
        # A segment that lasts to the end of the sequence has this many steps, and goes on after it.
        left = (lengths[:m] - t).clamp(max=n_durations)
        longer = d.log_longer if t else d.log_first_longer
        if table is None:
            beyond = longer.T[left - 1]
        else:
            beyond = longer[table if t else torch.arange(m, device=table.device), :, left - 1]
        continues = to_end[:m] + beyond.masked_fill((lengths[:m] - t > n_durations)[:, None], -torch.inf)
        later = torch.logaddexp(scaled.sum(-1).log_() + shift, continues)
        weights = (log_start + shift).exp_()
        if t or not d.differ:
            (counts if t else first_counts)[:, :columns] += torch.einsum("mk,mkc->kc", weights, scaled).flip(1)
        else:
            first_counts[..., :columns] = (weights.unsqueeze(-1) * scaled).flip(2)
        begun = (log_start + later).exp()
        if d.differ:
            cut_off[low:high], begun_at[low:high] = (log_start + continues).exp_(), begun
            steps[low:high] = weights * (scaled @ torch.arange(columns - 1.0, -1.0, -1.0).to(scaled))
        else:
            (cut_off if t else first_cut_off).index_add_(0, left - 1, (log_start + continues).exp_())
    if not d.differ:
        cut_off = cut_off.T
    return gamma, _summed(trellis, xi), _Counts(counts, first_counts, cut_off, first_cut_off.T, begun_at, steps)


def _summed(trellis: SemiMarkovTrellis, xi: Tensor) -> Tensor:
    return xi[0] if trellis.log_transitions is None else xi


def _backward_compiled(trellis: SemiMarkovTrellis, filtered: SemiMarkovFiltered) -> tuple[Tensor, Tensor, _Counts]:
    from seqmodels.inference.chains import compiled_semi_markov

    longest, d, packing, a = trellis.shape[2], trellis.durations, trellis.packing, trellis.matrices
    factors = trellis.relative[0] - finite(filtered.log_scale[:, None])
    gamma, xi = factors.new_zeros(factors.shape), a.new_zeros(a.shape[1:])  # contiguous, whatever those are
    counts, cut_off = (factors.new_zeros(2, a.shape[-1], longest) for _ in range(2))
    n_rows, n_first = (len(factors), packing.n_sequences) if d.differ else (0, 0)
    first_counts = factors.new_zeros(n_first, a.shape[-1], longest)
    of_rows = factors.new_zeros(3, n_rows, a.shape[-1])
    first = trellis.stacked(d.log_first)[0].flip(2)
    longer = [table if d.differ else table[None] for table in (d.log_longer, d.log_first_longer)]
    given = [a, _log_at_end(trellis, filtered), first.exp(), first, *longer, trellis.table_of_row, factors]
    given += [packing.offsets, packing.lengths[packing.order]]
    given += [filtered.log_start, filtered.log_ended, filtered.log_continues]
    tables = tuple(table[0] for table in trellis.longest_first)
    results = [gamma, xi, counts, first_counts, cut_off, of_rows]
    is_cut_off = trellis.final is None
    compiled_semi_markov.backward(tables, _arrays(given), _arrays(results), LEAST_EXACT * longest, is_cut_off)
    missing = d.log_pmf.shape[-1] - longest
    counts, first_counts, cut_off = (
        torch.nn.functional.pad(each, (0, missing)) for each in (counts.flip(2), first_counts.flip(2), cut_off)
    )
    if d.differ:
        counted = _Counts(counts[0], first_counts, of_rows[2], of_rows[2, :0], of_rows[0], of_rows[1])
    else:
        counted = _Counts(counts[0], counts[1], cut_off[0], cut_off[1], of_rows[0], of_rows[1])
    return gamma, _summed(trellis, xi), counted


def _arrays(tensors: list[Tensor]) -> tuple[np.ndarray, ...]:
    return tuple(tensor.contiguous().numpy() for tensor in tensors)


def _posterior(
    trellis: SemiMarkovTrellis, filtered: SemiMarkovFiltered, gamma: Tensor, xi: Tensor, counts: _Counts
) -> SemiMarkovPosterior:
    packing, d = trellis.packing, trellis.durations
    # Impossible states are set to exactly zero, because differences are not.
    gamma[packing.rank] = gamma[packing.rank].masked_fill(trellis.initial == 0, 0.0)
    if trellis.final is not None:
        gamma[packing.last] = gamma[packing.last].masked_fill(trellis.final == 0, 0.0)
    gamma /= gamma.sum(1, keepdim=True)
    initial = gamma[packing.rank].sum(0)
    final = gamma[packing.last].sum(0)
    of_steps = (packing.totals(filtered.steps) + filtered.ends, gamma, xi, initial, final)
    if d.differ:
        return SemiMarkovPosterior(*of_steps, *_durations_by_row(packing, d, counts))
    durations = counts.ended + _in_full(counts.cut_off, d.log_pmf, d.log_longer)
    firsts = counts.first_ended + _in_full(counts.first_cut_off, d.log_first, d.log_first_longer)
    if not d.is_left_censored:
        durations, firsts = durations + firsts, torch.zeros_like(firsts)
    return SemiMarkovPosterior(*of_steps, durations, firsts, counts.begun, counts.steps)


def _durations_by_row(packing: Packing, d: Durations, counts: _Counts) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the fields of ``SemiMarkovPosterior`` from ``durations`` to ``steps``, if durations differ by the row.

    Args:
        packing: packing of the N rows.
        d: distributions of the durations.
        counts: expected numbers of segments.
    """
    assert d.table_of_row is not None, "durations differ by the row"
    n, longest = packing.n_sequences, d.log_pmf.shape[-1]
    left = packing.lengths[packing.sequence] - packing.time
    rows, lasts = (left < longest).nonzero()[:, 0], torch.arange(longest, device=left.device)
    is_first = rows < n
    steps, segments, firsts = counts.steps.clone(), counts.begun.clone(), counts.first_ended.clone()

    def in_full(rows: Tensor, tables: Tensor, log_pmf: Tensor, log_longer: Tensor) -> Tensor:
        """Return the expected full durations of segments that are cut off, by the rows that they begin at."""
        rate = counts.cut_off[rows].log() - finite(log_longer[tables, :, left[rows] - 1])
        return (rate.unsqueeze(-1) + log_pmf[tables]).exp().masked_fill(lasts < left[rows, None, None], 0.0)

    firsts[rows[is_first]] += in_full(rows[is_first], rows[is_first], d.log_first, d.log_first_longer)
    later = rows[~is_first]
    cut_off = in_full(later, d.table_of_row[later], d.log_pmf, d.log_longer)
    durations = counts.ended + cut_off.sum(0)
    steps[later] += cut_off @ lasts.to(cut_off)
    if d.is_left_censored:
        segments[:n] = steps[:n] = 0.0
    else:
        durations, steps[:n] = durations + firsts.sum(0), firsts @ lasts.to(firsts)
        firsts = torch.zeros_like(firsts)
    return durations, firsts, segments, steps


def _log_at_end(trellis: SemiMarkovTrellis, filtered: SemiMarkovFiltered) -> Tensor:
    """Return log p(future | a segment of state j ends with the last step) / p(future | x), ``(n, K)`` by rank.

    The future is the end of the sequence, or nothing if the length has no probability. Ranks order sequences by length,
    the longest first.
    """
    n, k, _ = trellis.shape
    if trellis.final is None:
        return trellis.initial.new_zeros(n, k)
    return trellis.final.log() - finite(filtered.ends[trellis.packing.order, None])


def _in_full(cut_off: Tensor, log_pmf: Tensor, log_longer: Tensor) -> Tensor:
    """Return the expected full durations of segments that were cut off, ``(K, D)``.

    ``cut_off``, ``(K, D)``, is how many have lasted e steps and go on: each has duration d > e with probability
    ``p(d) / P(d > e)``.
    """
    rate = (cut_off.log() - torch.where(cut_off > 0, log_longer, 0.0)).logcumsumexp(1)  # log Σ_{e <= d} n_e / P(d > e)
    before = torch.cat([torch.full_like(rate[:, :1], -torch.inf), rate[:, :-1]], 1)
    return (before + log_pmf).exp()


@torch.no_grad()
def best_segments(trellis: SemiMarkovTrellis) -> tuple[list[np.ndarray], Tensor]:
    """Return the most probable segmentation of each sequence as a path of states, and its log-probability.

    Paths are ``(T,)`` for each sequence, found by Viterbi's algorithm. Log-probabilities, ``(n,)``, are float64 nats,
    and are those of the segmentation; a path of states that do not follow themselves has only one. If a sequence has no
    possible path, its log-probability is -inf and its states are arbitrary.
    """
    if trellis.runs_compiled:
        return _best_compiled(trellis)
    n, k, longest = trellis.shape
    packing, d, has_zeros = trellis.packing, trellis.durations, trellis.has_zeros
    log_b, peaks = trellis.relative
    pmf, at_least = (trellis.entries_of_open(table) for table in (d.log_pmf, d.log_at_least))
    log_a, first_at_least = trellis.log_matrices, d.log_first_at_least
    open_segments = _Open(n, k, longest, log_b)
    first = trellis.log_initial.clone()
    lasted = np.empty(log_b.shape, np.int32)  # duration of the best segment that ends in each row and state
    state_before = np.empty(log_b.shape, np.int32)  # state before the best segment that begins in it
    best, last_state, last_lasted = log_b.new_empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
    ended = first
    never = torch.full_like(first, -torch.inf)
    for t, (low, high) in enumerate(packing.blocks):
        m = high - low
        if t:
            into = log_a if trellis.log_transitions is None else log_a[low:high]
            start, before = (ended[:m, :, None] + into).max(1)
            state_before[low:high] = before.cpu().numpy()
            open_segments.begin(start)
        open_segments.multiply(log_b[low:high], has_zeros=has_zeros)
        first = first[:m] + log_b[low:high]
        # Only the first segment can have lasted t + 1 steps, if that is no longer than D.
        ended, duration = (
            first + of_first(d.log_first, slice(m), t) if t < longest else never[:m],
            torch.full((m, k), t + 1),
        )
        n_ending = m - (packing.batch_sizes[t + 1] if t + 1 < len(packing.blocks) else 0)
        stopping = slice(m - n_ending, m)
        reached = first[stopping] + of_first(first_at_least, stopping, t) if t < longest else never[:n_ending]
        reached_after = torch.full((n_ending, k), t + 1)
        if t:
            window, level = open_segments.window(m), open_segments.level[:m]
            columns = window.shape[-1]
            score, column = (window + pmf(t, columns, slice(m))[0]).max(-1)
            ended, duration = _better(ended, duration, score + level, columns - column.cpu())
            if n_ending:
                score, column = (window[stopping] + at_least(t, columns, stopping)[0]).max(-1)
                reached, reached_after = _better(
                    reached, reached_after, score + level[stopping], columns - column.cpu()
                )
        lasted[low:high] = duration.numpy()
        if n_ending:
            if trellis.final is not None:
                reached, reached_after = ended[stopping] + trellis.final.log(), duration[stopping]
            sequences = packing.order[stopping]
            best[sequences], states = reached.max(1)
            at = sequences.cpu().numpy()
            last_state[at] = states.cpu().numpy()
            last_lasted[at] = reached_after.gather(1, states.cpu()[:, None])[:, 0].numpy()
    paths = _traced(packing, lasted, state_before, last_state, last_lasted)
    return paths, best + packing.totals(peaks)


def _best_compiled(trellis: SemiMarkovTrellis) -> tuple[list[np.ndarray], Tensor]:
    from seqmodels.inference.chains import compiled_semi_markov

    d, packed = trellis.durations, trellis.packing.arrays
    log_b, peaks = trellis.relative
    log_final = log_b.new_zeros(log_b.shape[1]) if trellis.final is None else trellis.final.log()
    tables = trellis.stacked(d.log_pmf, d.log_at_least)
    first = trellis.stacked(d.log_first, d.log_first_at_least)
    given = _arrays([trellis.log_matrices, trellis.log_initial, log_final, tables, trellis.table_of_row, first, log_b])
    path, best = np.empty(len(log_b), np.int64), np.empty(len(packed.lengths))
    lasted, state_before = np.empty(log_b.shape, np.int32), np.empty(log_b.shape, np.int32)
    results = path, best, lasted, state_before, np.array([trellis.final is None])
    compiled_semi_markov.best_segments((*given, packed.offsets, packed.lengths, packed.firsts), results)
    return packed.parts(path), torch.from_numpy(packed.by_sequence(best)) + trellis.packing.totals(peaks)


def _better(score: Tensor, duration: Tensor, other: Tensor, other_duration: Tensor) -> tuple[Tensor, Tensor]:
    is_better = other > score
    return torch.where(is_better, other, score), torch.where(is_better.cpu(), other_duration, duration)


def _traced(
    packing: Packing, lasted: np.ndarray, state_before: np.ndarray, last_state: np.ndarray, last_lasted: np.ndarray
) -> list[np.ndarray]:
    """Return the most probable path of each sequence, followed back segment by segment from its last.

    Args:
        packing: packing of the N rows.
        lasted: duration of the best segment that ends in each row and state, ``(N, K)``.
        state_before: state before the best segment that begins in each row and state, ``(N, K)``.
        last_state, last_lasted: state and duration of the last segment of each sequence, ``(n,)``.
    """
    offsets, ranks, paths = packing.offsets.tolist(), packing.rank.tolist(), []
    for rank, length, state, duration in zip(
        ranks, packing.lengths.tolist(), last_state.tolist(), last_lasted.tolist(), strict=True
    ):
        path, stop = np.empty(length, np.int64), length
        while True:
            begin = max(stop - duration, 0)
            path[begin:stop] = state
            if begin == 0:
                break
            state = int(state_before[offsets[begin] + rank, state])
            stop, duration = begin, int(lasted[offsets[begin - 1] + rank, state])
        paths.append(path)
    return paths


@torch.no_grad()
def sample_paths(trellis: SemiMarkovTrellis, n: int, generator: torch.Generator) -> tuple[list[np.ndarray], Tensor]:
    """Draw ``n`` paths of states of each sequence, ``(n, T)``, from p(z | x), and return them with log p(x).

    It filters forwards and draws segment by segment backwards: given the begin and the state of a segment, later frames
    carry no information about the segment before. log p(x) is ``(n_sequences,)`` in nats. A sequence for which it is
    -inf has no path, and its states are arbitrary.
    """
    filtered = forward_pass(trellis)
    log_prob = trellis.packing.totals(filtered.steps) + filtered.ends
    factor = trellis.relative[0] - finite(filtered.log_scale[:, None])
    split = trellis.packing.split
    paths = []
    each = split(filtered.log_start), split(factor), trellis.log_matrices_of_each, trellis.tables_of_each
    for starts, factors, log_a, (tables, at_end), total in zip(*each, log_prob.tolist(), strict=True):
        one = _Drawn(starts.cpu().numpy(), factors.cpu().numpy(), log_a.cpu().numpy())
        if trellis.final is not None:
            at_end = tables.with_end(trellis.final.log().cpu().numpy())
        is_drawn = total > -np.inf
        paths.append(np.stack([one.path(tables, at_end, generator, is_drawn=is_drawn) for _ in range(n)]))
    return paths, log_prob


def cumulated(log_factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of the finite log-factors before each step, and the number of those that are -inf.

    ``log_factor (T, K)`` is what each step contributes in each state; the results are ``(T + 1, K)``.
    """
    is_zero, none = np.isneginf(log_factor), np.zeros((1, log_factor.shape[1]))
    finite_factor = np.where(is_zero, 0.0, log_factor)
    return np.concatenate([none, finite_factor.cumsum(0)]), np.concatenate([none, is_zero.cumsum(0)])


class _Drawn:
    """A sampler of paths of states of one sequence of T steps, which draws segments from the last to the first.

    ``log_start`` is the log-probability that a segment of each state begins at each step, and ``log_factor`` the
    log-density of each step in each state over that of the step; each ``(T, K)``. ``log_a`` are log-probabilities of
    the transitions, ``(1, K, K)``, or ``(T, K, K)`` into each step.
    """

    def __init__(self, log_start: np.ndarray, log_factor: np.ndarray, log_a: np.ndarray) -> None:
        self.log_start = log_start
        self.log_a = log_a
        self.level, self.n_zeros = cumulated(log_factor)

    def path(
        self,
        tables: EndingTables,
        at_end: EndingTables,
        generator: torch.Generator,
        *,
        is_drawn: bool,
    ) -> np.ndarray:
        stop, path = len(self.log_start), np.zeros(len(self.log_start), np.int64)
        n_states = self.log_a.shape[1]
        pmf, into = at_end, np.zeros(n_states)
        while stop and is_drawn:
            longest = min(stop, pmf.of_first.shape[-1])
            first_steps = np.arange(stop - 1, stop - longest - 1, -1)  # first steps of segments of 1, 2, ... steps
            of_durations = pmf.at(first_steps)
            weights = self.log_start[first_steps] + self.level[stop] - self.level[first_steps] + of_durations + into
            weights[self.n_zeros[first_steps] < self.n_zeros[stop]] = -np.inf
            shares = np.exp(weights - weights.max()).cumsum()
            at = float(torch.rand((), generator=generator, dtype=torch.float64)) * shares[-1]
            place = min(int(np.searchsorted(shares, at, side="right")), len(shares) - 1)
            duration, state = place // n_states + 1, place % n_states
            path[stop - duration : stop] = state
            stop -= duration
            pmf, into = tables, self.log_a[stop if len(self.log_a) > 1 else 0, :, state]
        return path
