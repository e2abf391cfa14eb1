"""The exact observed information of a hidden semi-Markov chain: minus the Hessian of its log-likelihood.

As for a first-order chain it follows from Louis' identity (``seqmodels.hmm.observed_information``), with segments
(visits to a state) in place of steps. Given the data x, segments are a Markov chain: that of state k that begins at
step t lasts d steps, and the next one begins at t + d in a state j. With c the derivatives of the log-probability of d
and of the densities of the segment's steps, and s those of the log-probability of the next transition, the expected
score of all that is to come is ::

    w_t(k) = E[c_t(k, d) + e_t+d-1(k) | k begins at t, x]     e_t(i) = E[s_t+1(i, j) + w_t+1(j) | i ends at t, x]

and the variance of the score is the sum of the variances of these two terms, weighted by the probabilities that a
segment begins or ends there. The full duration of a last segment that its sequence cuts off is hidden, as its state is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from seqmodels.hmm.observed_information import (
    BatchSteps,
    ExactObjective,
    Places,
    SequenceSteps,
    Shift,
    density_derivatives,
)
from seqmodels.hmm.semi_markov.durations import DurationFamily
from seqmodels.hmm.semi_markov.expectations import SegmentEmission, trellis_of_batch
from seqmodels.inference.chains.densities import LogDensities
from seqmodels.inference.chains.given_inputs import distinct_rows, log_durations
from seqmodels.inference.chains.log_weights import finite
from seqmodels.inference.chains.semi_markov import (
    Durations,
    SemiMarkovFiltered,
    SemiMarkovPosterior,
    SemiMarkovTrellis,
    forward_backward_pass,
    forward_pass,
)
from seqmodels.observations import Observation

LEAST_COUNT = 1e-16  # expected number of segments below which they add nothing but rounding


@dataclass(frozen=True)
class ExactSegmentObjective(ExactObjective):
    """The log-likelihood plus log-prior of an HSMM of K states, as a function of P unconstrained numbers u."""

    emission: SegmentEmission

    @cached_property
    def places(self) -> Places:
        """The places of coefficients among the unconstrained numbers.

        The A numbers of the durations of a state are the columns of their table, of which the one that inputs add to
        comes last; if there is none, what inputs add comes last.
        """
        places, units, family = self.coordinates.places, self.coordinates.units["table"], self.emission.family
        of_table, units = (self._shared(self.emission.split(each)[1]) for each in (places["table"], units))
        k, q = of_table.shape
        columns = [column for column in range(q) if column != family.tilted]
        place = torch.full((k, len(columns) + 1, 1 + self.n_inputs), -1)
        unit = torch.ones(place.shape, dtype=units.dtype)
        if family.tilted is not None:
            columns.append(family.tilted)
        place[:, : len(columns), 0], unit[:, : len(columns), 0] = of_table[:, columns], units[:, columns]
        if "duration_slopes" in places:
            place[:, -1, 1:] = self._shared(places["duration_slopes"])
        return replace(super().places, duration=place, duration_unit=unit)

    def _tables(self, steps: BatchSteps) -> tuple[Tensor, Tensor]:
        """Return one row of each of R tables of durations, ``(R,)``, and which of them is that of each row, ``(N,)``.

        Rows of one sequence have one table if they have the same inputs of durations. Those of two sequences have not,
        because shifts are of each sequence by itself.
        """
        is_read = (self.places.duration[:, -1] >= 0).any(0)
        number = steps.batch.segments.packing.sequence
        return distinct_rows(torch.cat([number[:, None].to(steps.design), steps.design[:, is_read]], 1))

    def _shared(self, array: Tensor) -> Tensor:
        """Return numbers of durations, ``(K, ...)``, in which tied states have those of the first of them."""
        constraints = self.emission.constraints
        return array if constraints is None else constraints.durations.spread(constraints.durations.one_each(array))

    def information_gradient(self, u: Tensor, covariance: Tensor) -> Tensor:
        total = torch.zeros_like(u)
        for steps in self.steps:
            predicted, shifts = self._segments_of(steps, u), steps.shifts(self.places, covariance)
            total += self._second_differences(predicted, predicted.posterior(), shifts)
        return total

    def _posterior(self, steps: BatchSteps, u: Tensor, *, second: bool = False) -> SegmentPosterior:
        return self._segments_of(steps, u, second=second).posterior()

    def _segments_of(self, steps: BatchSteps, u: Tensor, *, second: bool = False) -> PredictedSegments:
        """Return the probabilities and densities of the steps of a batch.

        Args:
            steps: the steps of the batch.
            u: the numbers, ``(P,)``.
            second: True if the information is asked for.
        """
        (p, of_numbers), inputs, batch = self.coordinates.at(u.detach()), steps.design[:, 1:], steps.batch
        if p.transition_slopes is None:  # so that there is a matrix of transitions at every step
            p = replace(p, transition_slopes=p.transition.new_zeros(*p.transition.shape, self.n_inputs))
        outputs, log_b, first, hessians = self._densities(p, steps, second=second)
        rows, table_of_row = self._tables(steps)
        trellis = trellis_of_batch(replace(p, duration_slopes=None), self.emission, batch, LogDensities(log_b))
        if p.duration_slopes is not None:
            d, n = trellis.durations, trellis.packing.n_sequences
            log_pmf = log_durations(d.log_pmf, p.duration_slopes, inputs[rows])
            durations = Durations.of(
                log_pmf, left_censored=d.is_left_censored, table_of_row=table_of_row, n_sequences=n
            )
            trellis = replace(trellis, durations=durations)
        table = self._shared(self.emission.split(of_numbers)[1])  # in which probabilities are not normalised
        of_durations = DurationDerivatives.of(self.emission.family, table)
        return PredictedSegments(steps, trellis, outputs, first, hessians, of_durations, rows)


@dataclass(frozen=True)
class DurationDerivatives:
    """Derivatives of ``h(d) + tilt (d - 1)``, the unnormalised log-probability of a duration, by A numbers of a state.

    The last number is the tilt, which is linear in the inputs, and h depends on the others.

    Attributes:
        first: the first derivatives, ``(K, D, A)``.
        second: the second derivatives, ``(K, D, A)``; mixed ones are zero.
    """

    first: Tensor
    second: Tensor

    @classmethod
    def of(cls, family: DurationFamily, table: Tensor) -> DurationDerivatives:
        """Return the derivatives of a family of durations with parameters ``table (K, Q)``."""
        columns = [column for column in range(table.shape[1]) if column != family.tilted]
        each = [family.log_weights(row)[1:] for row in table]
        first, second = (torch.stack([of_row[i][columns].T for of_row in each]) for i in (0, 1))
        later = torch.arange(first.shape[1], dtype=first.dtype).expand(len(table), -1).unsqueeze(-1)
        return cls(torch.cat([first, later], -1), torch.cat([second, torch.zeros_like(later)], -1))

    def means(self, p: Tensor) -> Tensor:
        """Return the means of the first derivatives under probabilities ``p (..., K, D)``, ``(..., K, A)``."""
        return torch.einsum("...kd,kda->...ka", p, self.first)

    def scores(self, p: Tensor) -> Tensor:
        """Return the derivatives of ``log p(d)``, ``(..., K, D, A)``, for probabilities ``p (..., K, D)``."""
        return self.first - self.means(p).unsqueeze(-2)

    def scores_of_first(self, p: Tensor) -> Tensor:
        """Return the derivatives of ``log P(d >= r) - log E[d]`` for r = 1 .. D, ``(..., K, D, A)``.

        It is the log-probability that r steps are left of a segment that began before its sequence.
        """
        return self._beyond(p, self.first) - self.means(_in_proportion(p)).unsqueeze(-2)

    def information(self, p: Tensor) -> Tensor:
        """Return minus the Hessian of ``-log Z``, ``(..., K, A, A)``, for probabilities ``p (..., K, D)``."""
        centred = self.scores(p)
        curvature = torch.einsum("...kd,kda->...ka", p, self.second)
        return torch.einsum("...kd,...kda,...kdb->...kab", p, centred, centred) + torch.diag_embed(curvature)

    def information_of_first(self, p: Tensor, counts: Tensor) -> Tensor:
        """Return minus the Hessian of ``Σ counts (log P(d >= r) - log E[d])``, ``(..., K, A, A)``.

        Args:
            p: probabilities of durations, ``(..., K, D)``.
            counts: expected numbers of segments of which r steps are left, ``(..., K, D)``.
        """
        products = torch.einsum("kda,kdb->kdab", self.first, self.first) + torch.diag_embed(self.second)
        means = self._beyond(p, self.first)
        beyond = self._beyond(p, products.flatten(-2)).unflatten(-1, products.shape[-2:])
        curvature = beyond - means.unsqueeze(-1) * means.unsqueeze(-2)
        in_all = counts.sum(-1)[..., None, None] * self.information(_in_proportion(p))
        return in_all - torch.einsum("...kd,...kdab->...kab", counts, curvature)

    def _beyond(self, p: Tensor, values: Tensor) -> Tensor:
        """Return ``E[values | d >= r]`` for r = 1 .. D, ``(..., K, D, B)``, given ``values (K, D, B)``."""
        sums = (p.unsqueeze(-1) * values).flip(-2).cumsum(-2).flip(-2)
        at_least = p.flip(-1).cumsum(-1).flip(-1).unsqueeze(-1)
        return sums / torch.where(at_least > 0, at_least, 1.0)


def _in_proportion(p: Tensor) -> Tensor:
    """Return the probabilities of durations that are observed in proportion to them, ``d p(d) / E[d]``."""
    biased = p * torch.arange(1.0, p.shape[-1] + 1, dtype=p.dtype)
    return biased / biased.sum(-1, keepdim=True)


@dataclass(frozen=True)
class PredictedSegments:
    """The probabilities and densities of N steps, from which a forward-backward pass runs.

    Attributes:
        steps: the steps of the batch.
        trellis: probabilities of transitions and durations at each step, of first states, and densities.
        outputs: output parameters of the density of each step in each state, ``(N, K, L)``.
        first: derivatives of log-densities by output parameters, ``(N, K, L)``.
        second: their second derivatives, ``(N, K, L, L)``, or None.
        of_durations: derivatives of the log-probabilities of durations.
        rows: one row of each of R tables of durations, ``(R,)``, if they depend on inputs.
    """

    steps: BatchSteps
    trellis: SemiMarkovTrellis
    outputs: Tensor
    first: Tensor
    second: Tensor | None
    of_durations: DurationDerivatives
    rows: Tensor

    def shifted(self, shift: Shift, factor: float, observation: Observation) -> PredictedSegments:
        """Return the same with linear predictors to which ``factor`` times a shift is added, without ``second``.

        Args:
            shift: the shift.
            factor: what it is multiplied by.
            observation: the emission distribution.
        """
        batch, durations = self.steps.batch, self.trellis.durations
        assert self.trellis.log_transitions is not None
        log_a = torch.add(self.trellis.log_transitions, shift.transition, alpha=factor).log_softmax(-1)
        initial = (self.trellis.initial.log() + factor * shift.initial).softmax(-1)
        if shift.duration is not None:
            later, n = self.of_durations.first[:, :, -1], self.trellis.packing.n_sequences
            moved = factor * shift.duration[self.rows].unsqueeze(-1) * later
            durations = Durations.of(
                (durations.log_pmf + moved).log_softmax(-1),
                left_censored=durations.is_left_censored,
                table_of_row=durations.table_of_row,
                n_sequences=n,
            )
        outputs, log_b, first = self.outputs, self.trellis.log_b, self.first
        if shift.table is not None:
            outputs = outputs + factor * shift.table
            log_b, first, _ = density_derivatives(observation, outputs, batch.x, batch.past, second=False)
        trellis = replace(self.trellis, log_transitions=log_a, initial=initial, durations=durations, log_b=log_b)
        return replace(self, trellis=trellis, outputs=outputs, first=first, second=None)

    def posterior(self) -> SegmentPosterior:
        """Return the results of the forward-backward pass."""
        return SegmentPosterior(self, forward_backward_pass(self.trellis))


@dataclass(frozen=True)
class SegmentPosterior:
    """The results of one forward-backward pass over a batch of N steps, from which all derivatives follow.

    Attributes:
        predicted: the probabilities and densities of the steps.
        ran: the results of the pass.
    """

    predicted: PredictedSegments
    ran: SemiMarkovPosterior

    @property
    def steps(self) -> BatchSteps:
        """The steps of the batch."""
        return self.predicted.steps

    @cached_property
    def transition(self) -> Tensor:
        """Transition probabilities into each step, ``(N, K, K)``."""
        log_transitions = self.predicted.trellis.log_transitions
        assert log_transitions is not None
        return log_transitions.exp()

    @property
    def initial(self) -> Tensor:
        """Probabilities of the first state of each of n sequences, ``(n, K)``."""
        return self.predicted.trellis.initial.expand(self.steps.batch.segments.n_sequences, -1)

    @property
    def durations(self) -> Durations:
        """The distributions of the durations."""
        return self.predicted.trellis.durations

    @cached_property
    def filtered(self) -> SemiMarkovFiltered:
        """The results of the forward pass."""
        return forward_pass(self.predicted.trellis)

    def value_and_gradient(self, places: Places) -> tuple[float, Tensor]:
        """Return the log-likelihood times the batch's weight, and its gradient ``(P,)`` by Fisher's identity."""
        design, batch, ran = self.steps.design, self.steps.batch, self.ran
        gradient, rows = design.new_zeros(places.n), batch.segments.first
        residual = ran.xi - ran.xi.sum(-1, keepdim=True) * self.transition
        score = ran.gamma.unsqueeze(-1) * self.predicted.first
        for place, values in (
            (places.transition, (residual.flatten(1).T @ design).view(places.transition.shape)),
            (places.table, places.unit * (score.flatten(1).T @ design).view(places.table.shape)),
            (places.initial, (ran.gamma[rows] - self.initial).T @ design[rows]),
            (places.duration, places.duration_unit * self._of_durations(places)),
        ):
            gradient.index_add_(0, place[place >= 0], values[place >= 0])
        return batch.weight * float(ran.log_prob.sum()), batch.weight * gradient

    def _of_durations(self, places: Places) -> Tensor:
        """Return the gradient by the coefficients of durations, in the shape of their places."""
        d, ran, of = self.durations, self.ran, self.predicted.of_durations
        p, design, later = d.log_pmf.exp(), self.steps.design, of.first[:, :, -1]
        values = design.new_zeros(places.duration.shape)
        if d.table_of_row is None:
            counted = ran.durations - ran.durations.sum(-1, keepdim=True) * p
            values[:, -1, 0] = (counted * later).sum(-1)
        else:
            begun = p.new_zeros(p.shape[:2]).index_add_(0, d.table_of_row, ran.segments)
            counted = ran.durations - torch.einsum("rk,rkd->kd", begun, p)
            values[:, -1] = (ran.steps - ran.segments * (p * later).sum(-1)[d.table_of_row]).T @ design
        values[:, :-1, 0] = torch.einsum("kd,kda->ka", counted, of.first[:, :, :-1])
        if d.is_left_censored:
            n = len(self.initial)
            of_first = of.scores_of_first(p if d.table_of_row is None else p[d.table_of_row[:n]])
            scores = torch.einsum("...kd,...kda->...ka", ran.first_durations, of_first)
            of_numbers = scores[..., :-1]
            values[:, :-1, 0] += of_numbers.sum(0) if d.differ else of_numbers
            if d.differ:
                values[:, -1] += scores[..., -1].T @ design[:n]
            else:
                values[:, -1, 0] += scores[..., -1]
        return values

    def information(self, places: Places) -> Tensor:
        """Return minus the Hessian of the log-likelihood times the batch's weight, ``(P, P)``."""
        information = self._of_densities(places)
        for number, each in enumerate(self.steps.sequences):
            information[each.used[:, None], each.used] += self._of_chain(number, each)[each.sums[:, None], each.sums]
        return 0.5 * self.steps.batch.weight * (information + information.T)

    def _of_chain(self, number: int, of: SequenceSteps) -> Tensor:
        """Return minus the expected Hessian of the chain's log-probabilities, less the variance of the score.

        Args:
            number: number of the sequence in the batch.
            of: its steps.

        Returns:
            What one sequence adds to the information of the q sums that it depends on, ``(q, q)``.
        """
        k, n, rows = self.ran.gamma.shape[1], len(of.rows), of.rows
        design, xi, a = self.steps.design[rows][:, of.read], self.ran.xi[rows], self.transition[rows]
        counts = self._segments(of)  # (T, K, D)
        begun, before = counts.sum(-1), xi.sum(-1)
        ratio = xi / torch.where(before > 0, before, 1.0).unsqueeze(-1)
        information = self.ran.gamma.new_zeros(of.n_sums, of.n_sums)
        of_density = self._density_scores(of, rows, design)
        sums = torch.cat([torch.zeros_like(of_density[:1]), of_density]).cumsum(0)  # (T + 1, K, q)
        expected = self.ran.gamma.new_zeros(n, k, of.n_sums)  # of a transition, given the state before
        of_moves = []
        for i in range(k):
            to, column = (of.places.transition[i] >= 0).nonzero(as_tuple=True)
            of_row = of.places.transition[i][to, column]
            minus_p = torch.nn.functional.one_hot(to, k).T - a[:, i, None, to]
            moves = minus_p * design[:, None, column]
            flat = ((before[:, i, None] * a[:, i]).sqrt().unsqueeze(-1) * moves).flatten(0, 1)
            information[of_row[:, None], of_row] += flat.T @ flat
            expected[:, i, of_row] += torch.einsum("tj,tjq->tq", ratio[:, i], moves)
            of_moves.append((of_row, moves))
        of_segments = self.ran.gamma.new_zeros(n, k, of.n_sums)  # expected scores of segments, but not of what follows
        segments = []
        for i in range(k):
            t, d = (counts[:, i] > LEAST_COUNT).nonzero(as_tuple=True)
            last = (t + d).clamp(max=n - 1)
            scores, of_durations = self._duration_scores(of, i, design, counts[:, i], t, d)
            information += of_durations
            scores += sums[last + 1, i] - sums[t, i]
            count = counts[t, i, d]
            of_segments[:, i].index_add_(0, t, (count / begun[t, i]).unsqueeze(-1) * scores)
            segments.append((t, last, count, scores))
        share = counts / torch.where(begun > 0, begun, 1.0).unsqueeze(-1)
        before_segments, ends = _expected_scores(of_segments, share, expected, ratio)  # w, (T, K, q), and e, (T, K, q)
        for i, (t, last, count, scores) in enumerate(segments):
            flat = count.sqrt().unsqueeze(-1) * (scores + ends[last, i] - before_segments[t, i])
            information -= flat.T @ flat
            t = (before[:, i] > LEAST_COUNT).nonzero()[:, 0]
            differences = before_segments[t] - ends[t - 1, i].unsqueeze(1)
            of_row, moves = of_moves[i]
            differences[:, :, of_row] += moves[t]
            flat = (xi[t, i].sqrt().unsqueeze(-1) * differences).flatten(0, 1)
            information -= flat.T @ flat
        return information + self._of_first(number, of, design, begun[0], before_segments[0])

    def _of_densities(self, places: Places) -> Tensor:
        """Return minus the expected Hessian of the log-densities, ``(P, P)``."""
        assert self.predicted.second is not None
        information = self.ran.gamma.new_zeros(places.n, places.n)
        for k, (place, unit) in enumerate(zip(places.table, places.unit, strict=True)):
            is_free = place >= 0
            designs = [
                self.steps.design[:, free] * of_place[free] for free, of_place in zip(is_free, unit, strict=True)
            ]
            numbers = is_free.any(1).nonzero()[:, 0].tolist()
            for a in numbers:
                for b in numbers:
                    weights = self.ran.gamma[:, k] * self.predicted.second[:, k, a, b]
                    index = (place[a][is_free[a]][:, None], place[b][is_free[b]][None])
                    information.index_put_(index, -(designs[a].T * weights) @ designs[b], accumulate=True)
        return information

    def _of_first(self, number: int, of: SequenceSteps, design: Tensor, gamma: Tensor, later: Tensor) -> Tensor:
        """Return what the first state adds to the information of the q sums of a sequence, ``(q, q)``.

        Args:
            number: number of the sequence in the batch.
            of: its steps.
            design: the columns of the inputs that it reads, of steps of which the first is that of the sequence.
            gamma: posterior of its first state, ``(K,)``.
            later: expected score of everything else given its first state, ``(K, q)``.
        """
        k, p = later.shape
        to, column = (of.places.initial >= 0).nonzero(as_tuple=True)
        of_first = design.new_zeros(k, p)
        minus_p = torch.nn.functional.one_hot(to, k).T - self.initial[number, to]
        of_first[:, of.places.initial[to, column]] = minus_p * design[0, column]
        flat = self.initial[number].sqrt().unsqueeze(-1) * of_first
        information = flat.T @ flat
        total = of_first + later
        flat = gamma.sqrt().unsqueeze(-1) * (total - gamma @ total)
        return information - flat.T @ flat

    def _density_scores(self, of: SequenceSteps, part: Tensor, design: Tensor) -> Tensor:
        """Return the derivatives of the log-densities of some steps by the q sums of a sequence, ``(T, K, q)``."""
        k = self.ran.gamma.shape[1]
        scores = design.new_zeros(len(part), k, of.n_sums)
        for i in range(k):
            which, column = (of.places.table[i] >= 0).nonzero(as_tuple=True)
            values = self.predicted.first[part][:, i, which] * design[:, column] * of.places.unit[i][which, column]
            scores[:, i].index_add_(1, of.places.table[i][which, column], values)
        return scores

    def _log_pmf(self, rows: Tensor) -> Tensor:
        """Return the log-probabilities of the durations of segments that begin at T rows, ``(T, K, D)``."""
        log_pmf, table_of_row = self.durations.log_pmf, self.durations.table_of_row
        return log_pmf.expand(len(rows), -1, -1) if table_of_row is None else log_pmf[table_of_row[rows]]

    def _segments(self, of: SequenceSteps) -> Tensor:
        """Return the expected number of segments of one sequence by first step and full duration, ``(T, K, D)``."""
        d, rows, filtered, trellis = self.durations, of.rows, self.filtered, self.predicted.trellis
        n, longest = len(rows), d.log_pmf.shape[-1]
        factor = trellis.relative[0][rows] - finite(filtered.log_scale[rows])[:, None]
        log_end = torch.zeros_like(factor)  # log p(steps after t | segment ends at t) / p(steps after t | steps to t)
        log_end[:-1] = self.ran.xi[rows[1:]].sum(-1).log() - finite(filtered.log_ended[rows[:-1]])
        log_pmf = self._log_pmf(rows)
        log_first = d.log_first[rows[0]] if d.differ else d.log_first
        log_counts = filtered.log_start[rows].unsqueeze(-1) + torch.cat([log_first[None], log_pmf[1:]])
        window = torch.zeros_like(factor)  # of the densities of the segment's steps
        for i in range(min(n, longest)):
            window[: n - i] += factor[i:]
            log_counts[: n - i, :, i] += window[: n - i] + log_end[i:]
            # What begins here and lasts longer than this ends with the sequence.
            log_counts[n - 1 - i, :, i + 1 :] += window[n - 1 - i].unsqueeze(-1)
        return log_counts.exp()

    def _duration_scores(
        self, of: SequenceSteps, i: int, design: Tensor, counts: Tensor, t: Tensor, d: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the derivatives of log-probabilities of durations by the q sums of a sequence.

        Args:
            of: the steps of the sequence.
            i: the state.
            design: the columns of the inputs that the sequence reads, ``(T, c)``.
            counts: expected numbers of segments by first step and duration, ``(T, D)``.
            t: first steps of R segments, ``(R,)``.
            d: their durations less one, ``(R,)``.

        Returns:
            The derivatives, ``(R, q)``, and minus the expected Hessian of all segments, ``(q, q)``.
        """
        derivatives, durations, first_steps = self.predicted.of_durations, self.durations, torch.unique(t)
        derivatives = DurationDerivatives(derivatives.first[i : i + 1], derivatives.second[i : i + 1])
        p = self._log_pmf(of.rows[first_steps])[:, i : i + 1].exp()  # (B, 1, D)
        counts = counts[first_steps].unsqueeze(1)
        scores = derivatives.scores(p)[:, 0]
        information = counts.sum(-1)[..., None, None] * derivatives.information(p)
        information -= torch.diag_embed(torch.einsum("bkd,kda->bka", counts, derivatives.second))
        if durations.is_left_censored and len(first_steps) and first_steps[0] == 0:
            scores[0] = derivatives.scores_of_first(p[0])[0]
            information[0] = derivatives.information_of_first(p[0], counts[0])
        which, column = (of.places.duration[i] >= 0).nonzero(as_tuple=True)
        place, unit = of.places.duration[i][which, column], of.places.duration_unit[i][which, column]
        jacobian = design.new_zeros(len(first_steps), scores.shape[-1], of.n_sums)
        jacobian[:, which, place] = design[first_steps][:, column] * unit
        row = torch.searchsorted(first_steps, t)
        of_all = jacobian.flatten(0, 1).T @ (information[:, 0] @ jacobian).flatten(0, 1)
        return (scores[row, d].unsqueeze(1) @ jacobian[row])[:, 0], of_all


def _expected_scores(of_segments: Tensor, share: Tensor, moves: Tensor, ratio: Tensor) -> tuple[Tensor, Tensor]:
    """Return expected scores of all that is to come, ``(T, K, q)`` each, where segments begin and after they end.

    Args:
        of_segments: expected scores of segments that begin at T steps, ``(T, K, q)``.
        share: probabilities of their durations given that they begin and the data, ``(T, K, D)``.
        moves: expected scores of the transition into each step given the state that ends before it, ``(T, K, q)``.
        ratio: probabilities of these transitions given that state and the data, ``(T, K, K)``.
    """
    n, k, longest = share.shape
    before_segments, ends = of_segments.clone(), of_segments.new_zeros(k, n + longest, of_segments.shape[-1])
    arrays = (before_segments.numpy(), ends.numpy(), share.numpy(), moves.numpy(), ratio.numpy())
    w, e, shares, of_moves, ratios = arrays
    for t in range(n - 1, -1, -1):
        w[t] += (shares[t][:, None] @ e[:, t : t + longest])[:, 0]
        if t:
            e[:, t - 1] = of_moves[t] + ratios[t] @ w[t]
    return before_segments, ends.transpose(0, 1)
