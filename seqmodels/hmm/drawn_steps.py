"""Steps drawn from a chain of hidden states: first the path of states, then their emissions, many steps at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from seqmodels.generation import Draws
from seqmodels.observations import Observation

FIRST_STEPS, MOST_STEPS = 32, 256  # drawn at once, twice as many each time, because sequences may end early
NUMBERS_AT_ONCE = 1 << 22  # output parameters that are held at once

# Draws the emissions ``(T, n, ...)`` of states ``(T, n)``.
Emit = Callable[[Tensor, torch.Generator], Tensor]


class DrawnStates(Protocol):
    """Protocol of the hidden states of n sequences, drawn at random some steps at a time.

    ``is_impossible`` is True for sequences in which neither a step nor the end can follow, ``(n,)``.
    """

    is_impossible: Tensor  # (n,) True where neither a step nor the end can follow

    def draw(self, n_steps: int, generator: torch.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the next T states of n sequences, ``(T, n)``, and a mask of those before which the sequence ended.

        Args:
            n_steps: number of steps T.
            generator: random generator.
        """


class StatesOfChain:
    """The hidden states of n sequences of a Markov chain of K states, drawn some steps at a time (``DrawnStates``).

    Args:
        log_first: logarithms of unnormalised probabilities of the K states of the next step, and last of the end,
            ``(n, K + 1)``.
        transitions: transition probabilities ``(K, K)``, or several matrices ``(G, K, K)``.
        final: probability of the end after each state, ``(K,)``; None means that sequences do not end.
        which: index of the matrix of the transition into each of the next T steps, ``(T, n)`` int64; None means that
            one matrix holds at all steps.
        states: states of the last steps, ``(n,)`` int64, from which the next states are drawn instead of ``log_first``.
    """

    def __init__(
        self,
        log_first: Tensor,
        transitions: Tensor,
        final: Tensor | None,
        which: np.ndarray | None = None,
        states: Tensor | None = None,
    ) -> None:
        self._first, self.is_impossible = _weights(log_first)
        n, k = len(log_first), transitions.shape[-1]
        self._matrices, self._final = transitions.reshape(-1, k, k).contiguous().numpy(), _ends(final, transitions)
        self._which = which
        self._states = np.full(n, -1) if states is None else states.numpy().copy()

    def draw(self, n_steps: int, generator: torch.Generator) -> tuple[np.ndarray, np.ndarray]:
        from seqmodels.inference.chains.compiled_draws import draw_states

        shape = n_steps, len(self._states)
        which = np.zeros(shape, np.int64) if self._which is None else self._which[:n_steps]
        self._which = None if self._which is None else self._which[n_steps:]
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64).numpy()
        drawn, ended = np.empty(shape, np.int64), np.empty(shape, np.bool_)
        draw_states(self._first, self._matrices, which, self._final, self._states, uniform, drawn, ended)
        return drawn, ended


class StatesOfSegments:
    """The hidden states of n sequences of a semi-Markov chain, drawn some steps at a time (``DrawnStates``).

    A segment is a visit to one of K states; it lasts 1 to D steps.

    Args:
        log_first: logarithms of unnormalised probabilities of the pairs of state and number of steps left in its
            segment at the next step, and last of the end, ``(n, K D + 1)``.
        transition: transition probabilities between segments, ``(K, K)``.
        final: probability of the end after a segment, ``(K,)``; None means that sequences do not end.
        log_pmf: log-probabilities of durations 1 .. D, ``(K, D)``.
    """

    def __init__(self, log_first: Tensor, transition: Tensor, final: Tensor | None, log_pmf: Tensor) -> None:
        self._first, self.is_impossible = _weights(log_first)
        self._chain = transition.contiguous().numpy(), _ends(final, transition), log_pmf.exp().contiguous().numpy()
        self._at = np.full(len(log_first), -1), np.zeros(len(log_first), np.int64)

    def draw(self, n_steps: int, generator: torch.Generator) -> tuple[np.ndarray, np.ndarray]:
        from seqmodels.inference.chains.compiled_draws import draw_segments

        shape = n_steps, len(self._first)
        uniform = torch.rand((2, *shape), generator=generator, dtype=torch.float64).numpy()
        drawn, ended = np.empty(shape, np.int64), np.empty(shape, np.bool_)
        draw_segments(self._first, *self._chain, *self._at, uniform, drawn, ended)
        return drawn, ended


def _weights(log_weights: Tensor) -> tuple[np.ndarray, Tensor]:
    """Return the exponentials of log-weights, divided by the largest of each row, and a mask of rows of zeros.

    Args:
        log_weights: logarithms of weights, ``(n, S)``.

    Returns:
        The weights ``(n, S)``, and a mask ``(n,)`` that is True for rows whose weights are all zero.

    Raises:
        ValueError: a log-weight is NaN.
    """
    if bool(torch.isnan(log_weights).any()):
        raise ValueError("the probability of a next state is NaN, so that no state can be drawn; fit the model again")
    peak = log_weights.amax(-1, keepdim=True)
    return torch.nan_to_num((log_weights - peak).exp()).numpy(), torch.isneginf(peak[:, 0])


def _ends(final: Tensor | None, transitions: Tensor) -> np.ndarray:
    ends: np.ndarray = (transitions.new_zeros(transitions.shape[-1]) if final is None else final).numpy()
    return ends


def emitted_by(observation: Observation, table: Tensor) -> Emit:
    """Return a function that draws what states emit, independently at each step.

    The function takes states ``(T, n)`` and a random generator, and returns vectors ``(T, n, D)`` or symbols
    ``(T, n)``.

    Args:
        observation: family of the distributions of the states.
        table: output parameters of the states: the P numbers that the observation takes for each, ``(K, P)``.
    """
    return partial(_emitted, observation, table)


def _emitted(observation: Observation, table: Tensor, states: Tensor, generator: torch.Generator) -> Tensor:
    x: Tensor = observation.sample(table[states.flatten()], None, generator).unflatten(0, states.shape)
    return x


def drawn_steps(
    states: DrawnStates, emit: Emit, numbers_of_step: int, n_steps: int, generator: torch.Generator, *, may_end: bool
) -> Iterator[Draws]:
    """Yield random draws of the next ``n_steps`` steps of n sequences, some steps at a time, on the CPU.

    Args:
        states: the hidden states, which draw themselves.
        emit: function that draws what states emit, as ``emitted_by`` returns it.
        numbers_of_step: number of output parameters that one step of all sequences needs in memory, which bounds how
            many steps are drawn at a time.
        n_steps: number of steps, drawn whether sequences end or not.
        generator: random generator on the CPU.
        may_end: True if sequences may end.
    """
    size, most = FIRST_STEPS, max(1, NUMBERS_AT_ONCE // max(1, numbers_of_step))
    while n_steps > 0:
        drawn, ended = states.draw(min(size, most, n_steps), generator)
        x = emit(torch.from_numpy(drawn), generator)
        yield Draws(x, torch.from_numpy(ended) if may_end else None, states.is_impossible.expand(len(drawn), -1))
        n_steps, size = n_steps - len(drawn), min(2 * size, MOST_STEPS)
