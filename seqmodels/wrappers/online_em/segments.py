"""Online EM by segments: the expectations of the segment just read, and the M-step (Le Corff and Fort 2013).

Within a segment parameters do not change. After it forward-backward, from what the steps before it say of the state at
its beginning, gives the expected sufficient statistics of the segment's steps, which never count anything that comes
later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seqmodels.hmm.cursor import HMMCursor, HMMState
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.learning.constraints import Frozen
from seqmodels.hmm.learning.em import Expectations, MAPObjective, m_step
from seqmodels.hmm.parameters import Parameters
from seqmodels.inference.chains.forward_backward import forward_backward_pass
from seqmodels.inference.chains.scratch import Scratch
from seqmodels.inference.chains.segments import Segments
from seqmodels.inference.chains.trellis import Trellis


@torch.no_grad()
def expectations_of_segment(cursor: HMMCursor, emission: Emission, before: HMMState, x: Tensor) -> Expectations | None:
    """The E-step on consecutive steps of one sequence, given those before them, by the cursor's parameters.

    Args:
        cursor: of the HMM.
        emission: the EM side of its observation.
        before: the state of this one sequence before the segment; a transition into the segment counts.
        x: (S, D) or (S,), the segment.

    Returns:
        Expected transitions and statistics of the emissions; of starts and ends none. None where the segment has
        probability zero, or statistics are too large to be numbers.
    """
    p = cursor.parameters
    x = x.to(p.initial.device)
    if emission.observation.emits == "vectors":
        x = x.to(cursor.dtype)
    past = cursor.past_of_each(before, x[None])[0]
    past = None if past is None else past[0]
    scratch = Scratch()
    densities, memo = emission.evaluate(p.table, x, past, cursor.dtype, scratch)
    whole = Segments.whole([len(x)], x.device)
    first = torch.softmax(before.log_predicted, -1)  # (1, K); NaN where the steps before are impossible
    posterior = forward_backward_pass(Trellis.of(first, p.transition, densities, whole, scratch=scratch))
    if not bool(posterior.log_prob.isfinite().all()):
        return None
    statistics = emission.statistics(p.table, x, past, posterior.gamma, memo)
    xi = posterior.xi
    if before.log_alpha is not None:
        ratio = (posterior.gamma[:1].double().log() - before.log_predicted).exp()  # (1, K)
        ratio = torch.where(posterior.gamma[:1] > 0, ratio, 0.0)
        xi = xi + p.transition * (before.log_alpha.exp().T @ ratio)
    nothing = torch.zeros_like(p.initial)
    expectations = Expectations(float(posterior.log_prob[0]), nothing, xi, nothing, statistics)
    return expectations if all(bool(each.isfinite().all()) for each in (xi, *statistics)) else None


@dataclass(frozen=True)
class OnlineRule:
    """``θ = argmax Q(train + weight · read) + log prior``, with ``read ← (1 - decay) read + segment``.

    Attributes:
        fitted: the parameters that every sequence starts with.
        train: expectations of the training part under them.
        weight: how many steps of training a step that was read counts as.
        decay: from 0 to 1.
        objective: whose M-step is taken.
        frozen: what stays as fitted, besides what the objective says.
    """

    fitted: Parameters
    train: Expectations
    weight: float
    decay: float
    objective: MAPObjective
    frozen: Frozen

    def add(self, read: Expectations | None, segment: Expectations | None) -> Expectations | None:
        """What was read, with one segment more; a segment that is None teaches nothing, and nothing is forgotten."""
        if segment is None or read is None:
            return read if segment is None else segment
        return read.scaled(1 - self.decay) + segment

    @torch.no_grad()
    def parameters(self, read: Expectations | None) -> Parameters:
        """After the M-step; the fitted ones where nothing was read."""
        if read is None:
            return self.fitted
        updated = m_step(self.fitted, self.train + read.scaled(self.weight), self.objective)
        return self.frozen.keep(self.fitted, updated)


@dataclass(frozen=True)
class LearningState:
    """One sequence, or several that were the same so far, at the beginning of a segment.

    Attributes:
        cursor: with the parameters that the segment is read with.
        read: expectations of the segments before.
        hmm_state: before the segment, of one sequence.
    """

    cursor: HMMCursor
    read: Expectations | None
    hmm_state: HMMState

    def learn(self, rule: OnlineRule, x: Tensor, after: HMMState) -> LearningState:
        """At the beginning of the next segment, from the segment ``x (S, ...)`` and the state after it."""
        segment = expectations_of_segment(self.cursor, rule.objective.emission, self.hmm_state, x)
        if segment is None:
            return replace(self, hmm_state=after)
        read = rule.add(self.read, segment)
        cursor = replace(self.cursor, parameters=rule.parameters(read))
        return LearningState(cursor, read, cursor.predict_again(after))
