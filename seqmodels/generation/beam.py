"""Beam search on the cursor: the most probable whole sequences that a beam of ``width`` beginnings comes upon."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation.cursor import Cursor, CursorState


@dataclass(frozen=True)
class Hypothesis:
    """A whole sequence of encoded ``steps (T,)``, prefix included; ``log_prob`` in nats, with the end where ends are events."""

    steps: np.ndarray
    log_prob: float


@dataclass(frozen=True)
class Search:
    """What is searched for, and how.

    Args:
        width: beginnings that are followed at once.
        n_best: how many sequences are wanted.
        length: number of steps; None: where ends are events, sequences of at most ``max_length`` steps.
        max_length: see ``length``.
        alpha: sequences of several lengths are compared by ``log_prob / ((5 + units) / 6)^alpha``, units being the steps and one for
            the end (Wu et al. 2016, *Google's neural machine translation system*, eq. 14). 0: the most probable wins, which is
            often a short one.

    Raises:
        ValueError: a number out of its range.
    """

    width: int = 5
    n_best: int = 1
    length: int | None = None
    max_length: int = 1000
    alpha: float = 0.0

    def __post_init__(self) -> None:
        if self.width < 1 or self.n_best < 1:
            raise ValueError(f"n_beams is {self.width} and n is {self.n_best}; pass at least 1 of each")
        if self.longest < 1:
            raise ValueError(f"sequences of {self.longest} steps are asked for; pass a length of at least 1")
        if not 0 <= self.alpha < float("inf"):
            raise ValueError(f"alpha is {self.alpha}; pass a finite number, 0 (no normalisation) or more")

    @property
    def longest(self) -> int:
        """Most steps of a sequence."""
        return self.max_length if self.length is None else self.length

    def score(self, log_prob: float, n_steps: int) -> float:
        """What ranks a sequence; higher is better."""
        return float(log_prob / ((6 + n_steps) / 6) ** self.alpha)


@dataclass(frozen=True)
class Beam:
    """The beginnings that are alive, ``steps (m, t)``, their ``log_prob (m,)`` float64, the cursor's state, and whether ends are events."""

    steps: Tensor
    log_prob: Tensor
    state: CursorState
    stops: bool


@torch.inference_mode()
def beam_search(
    cursor: Cursor, search: Search, *, prefix: np.ndarray, source: np.ndarray | None = None
) -> list[Hypothesis]:
    """The best of the sequences of symbols found that begin with ``prefix``, best first; fewer than asked for if there are no more.

    At each step the most probable ways on are kept; one that ends leaves the beam. Where ends are events a sequence is whole
    with its end, and the probability of that end counts, also where ``length`` or ``max_length`` sets it. The search stops when
    what is alive can no longer better what has ended. Width 1 is greedy; a width of all beginnings is exhaustive.

    Raises:
        ValueError: a prefix longer than the sequences.
    """
    if len(prefix) > search.longest:
        raise ValueError(
            f"the prefix has {len(prefix)} steps, the sequences at most {search.longest}; raise the length"
        )
    beam, found = _first(cursor, prefix, source), list[Hypothesis]()
    for _ in range(len(prefix), search.longest):
        beam, ended = _extend(cursor, beam, search)
        found += ended
        if not len(beam.log_prob) or _settled(found, beam, search):
            break
    else:
        found += _finished(cursor, beam)
    return sorted(found, key=lambda h: search.score(h.log_prob, len(h.steps)), reverse=True)[: search.n_best]


def _first(cursor: Cursor, prefix: np.ndarray, source: np.ndarray | None) -> Beam:
    """One beginning: the prefix, with its own log-probability."""
    state, log_prob, stops = cursor.start(source, 1), torch.zeros(1, dtype=torch.float64), False
    for symbol in torch.as_tensor(prefix).unsqueeze(1):
        prediction = cursor.distribution(state)
        log_prob = log_prob + prediction.log_prob(symbol.to(prediction.parameters.device)).double().cpu()
        state, stops = cursor.advance(state, symbol), prediction.log_end is not None
    return Beam(torch.as_tensor(prefix).unsqueeze(0), log_prob, state, stops)


def _extend(cursor: Cursor, beam: Beam, search: Search) -> tuple[Beam, list[Hypothesis]]:
    """The most probable ways on, and those that ended instead; the end counts against going on even where it may not come."""
    prediction = cursor.distribution(beam.state)
    n_symbols = prediction.parameters.shape[-1]
    log_probs = prediction.log_probs().cpu()  # (m, V), or (m, V + 1) with the end
    if search.length is not None:
        log_probs = log_probs[:, :n_symbols]
    log_prob, order = (beam.log_prob.unsqueeze(1) + log_probs).flatten().sort(descending=True, stable=True)
    n_kept = min(search.width, int((log_prob > -torch.inf).sum()))
    log_prob, order = log_prob[:n_kept], order[:n_kept]
    parent, symbol = order // log_probs.shape[1], order % log_probs.shape[1]
    ends = symbol == n_symbols
    ended = _hypotheses(beam.steps[parent[ends]], log_prob[ends])
    parent, symbol, device = parent[~ends], symbol[~ends], prediction.parameters.device
    stops = prediction.log_end is not None
    steps = torch.cat([beam.steps[parent], symbol.unsqueeze(1)], dim=1)
    if not len(parent):
        return Beam(steps, log_prob[~ends], None, stops), ended
    state = cursor.advance(cursor.select(beam.state, parent.to(device)), symbol.to(device))
    return Beam(steps, log_prob[~ends], state, stops), ended


def _finished(cursor: Cursor, beam: Beam) -> list[Hypothesis]:
    """What is alive at the last step ends there."""
    # Of the step after the last a tagger says nothing, so it is asked only if the end is one.
    log_end = cursor.distribution(beam.state).log_end if beam.stops else None
    log_prob = beam.log_prob if log_end is None else beam.log_prob + log_end.double().cpu()
    return [h for h in _hypotheses(beam.steps, log_prob) if h.log_prob > -np.inf]


def _hypotheses(steps: Tensor, log_prob: Tensor) -> list[Hypothesis]:
    return [Hypothesis(s, p) for s, p in zip(steps.numpy(), log_prob.tolist(), strict=True)]


def _settled(found: list[Hypothesis], beam: Beam, search: Search) -> bool:
    """Whether nothing alive can come to be among the best."""
    if len(found) < search.n_best:
        return False
    scores = sorted((search.score(h.log_prob, len(h.steps)) for h in found), reverse=True)
    # Log-probabilities are not positive: divided by the most they come nearest to zero.
    return scores[search.n_best - 1] >= search.score(float(beam.log_prob.max()), search.longest)
