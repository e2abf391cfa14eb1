"""Statistics of a single test sequence whose steps are on disk; ``paired`` and ``confidence_set`` compute in memory.

Sums run over blocks of steps, so that a comparison on one sequence of a billion steps holds a few blocks of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from seqmodels.sequences.mapped import MappedArray, parts_of

STEPS_READ = 1 << 18  # number of steps that are read at a time


@dataclass(frozen=True)
class LongSteps:
    """The log-probability of each step of one sequence under each seed, ``(S, T)`` in nats, read part by part.

    Attributes:
        read: function of ``start`` and ``stop`` that returns the steps between them, ``(S, stop - start)``.
        n_seeds: number S of seeds.
        n: number T of steps.
    """

    read: Callable[[int, int], np.ndarray]
    n_seeds: int
    n: int

    @classmethod
    def of(cls, steps: np.ndarray) -> LongSteps:
        """Wrap log-probabilities of T steps under S seeds, an array ``(S, T)`` on disk or in memory."""
        rows = list(steps)

        def read(start: int, stop: int) -> np.ndarray:
            return np.stack([r.read(start, stop) if isinstance(r, MappedArray) else r[start:stop] for r in rows])

        return cls(read, len(rows), steps.shape[1])

    def minus(self, other: LongSteps) -> LongSteps:
        """Return these log-probabilities minus those of ``other``, step by step and seed by seed.

        If one of the two has one seed, it is paired with each seed of the other.
        """
        return LongSteps(lambda a, b: self.read(a, b) - other.read(a, b), max(self.n_seeds, other.n_seeds), self.n)

    def averaged(self) -> LongSteps:
        """Average the log-probability of each step over seeds; return a ``LongSteps`` with one seed."""
        return LongSteps(lambda a, b: self.read(a, b).mean(axis=0, keepdims=True), 1, self.n)

    def each_minus_mean(self) -> list[LongSteps]:
        """Return, for each seed, its log-probabilities minus the mean over seeds, each with one seed."""

        def of_seed(i: int) -> LongSteps:
            def read(start: int, stop: int) -> np.ndarray:
                steps = self.read(start, stop)
                return np.asarray(steps[i : i + 1] - steps.mean(axis=0))

            return LongSteps(read, 1, self.n)

        return [of_seed(i) for i in range(self.n_seeds)]

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[np.ndarray]:
        """Yield steps ``start`` to ``stop - 1`` in arrays ``(S, n)`` that fit in memory; None means the last step."""
        stop = self.n if stop is None else stop
        return (self.read(t, min(t + STEPS_READ, stop)) for t in range(start, stop, STEPS_READ))

    @property
    def is_finite(self) -> bool:
        return all(np.isfinite(block).all() for block in self.blocks())

    def sums(self) -> np.ndarray:
        """Return the sum of log p over all steps for each of S seeds, ``(S,)``."""
        return np.asarray(sum(block.sum(axis=1) for block in self.blocks()))

    @property
    def means_of_seeds(self) -> np.ndarray:
        """Mean of log p over steps for each of S seeds, ``(S,)``."""
        return self.sums() / self.n

    @property
    def mean(self) -> float:
        return float(self.means_of_seeds.mean())

    def autocovariance(self, longest: int) -> np.ndarray:
        """Return the autocovariances of log p, averaged over seeds, at lags 0 to ``longest``, shape ``(longest + 1,)``.

        They are computed by Fourier transforms of each block with the steps that follow it.
        """
        from scipy import fft

        mean, total, size = self.mean, np.zeros(longest + 1), fft.next_fast_len(STEPS_READ + longest, True)
        for t in range(0, self.n, STEPS_READ):
            following = self.read(t, min(t + STEPS_READ + longest, self.n)).mean(axis=0) - mean
            spectrum = np.conj(fft.rfft(following[:STEPS_READ], size)) * fft.rfft(following, size)
            total += fft.irfft(spectrum, size)[: longest + 1]
        return total / self.n

    def moving_block_error(self, block: int) -> float:
        """Return the standard error of the mean over seeds and steps, estimated from all overlapping blocks.

        Args:
            block: number of steps of a block.
        """
        mean = self.mean
        last = sum(float((part.mean(axis=0) - mean).sum()) for part in self.blocks(0, block))
        squares = last**2
        for a in range(0, self.n - block, STEPS_READ):
            b = min(a + STEPS_READ, self.n - block)
            sums = last + np.cumsum((self.read(a + block, b + block) - self.read(a, b)).mean(axis=0))
            squares, last = squares + float((sums**2).sum()), float(sums[-1])
        return float(np.sqrt(squares / (block * (self.n - block + 1) * (self.n - block))))

    def block_sums(self, starts: np.ndarray, block: int) -> np.ndarray:
        """Sum the steps over all blocks of each of B bootstrap draws; return sums, ``(B, S)`` for S seeds.

        Args:
            starts: first step of each block, ``(B, blocks)``.
            block: number of steps of a block, which goes on with the first step of the sequence after the last.
        """
        positions = np.unique(np.concatenate([starts.ravel(), (starts + block).ravel() % self.n]))
        before = np.zeros((self.n_seeds, len(positions)))  # the sum of all steps before each position
        t, total = 0, np.zeros((self.n_seeds, 1))
        for part in self.blocks():
            cumulative = total + np.concatenate([np.zeros((self.n_seeds, 1)), np.cumsum(part, axis=1)], axis=1)
            low, high = np.searchsorted(positions, (t, t + part.shape[1]))
            before[:, low:high] = cumulative[:, positions[low:high] - t]
            t, total = t + part.shape[1], cumulative[:, -1:]
        first, after = (np.searchsorted(positions, at) for at in (starts, (starts + block) % self.n))
        each = before[:, after] - before[:, first] + total[..., None] * (starts + block >= self.n)
        return np.asarray(each.sum(axis=2).T)


def all_finite(steps: np.ndarray) -> bool:
    """Return True if all log-probabilities are finite.

    Args:
        steps: log-probability of T steps under S seeds, ``(S, T)``, on disk or in memory.
    """
    return LongSteps.of(steps).is_finite if is_long([steps]) else bool(np.isfinite(steps).all())


def is_long(log_probs: Sequence[np.ndarray]) -> bool:
    """Return True if any of the arrays of log-probabilities is on disk."""
    return any(isinstance(each, MappedArray) and each.is_on_disk for each in log_probs)


def rows_of_seeds(steps: Sequence[np.ndarray]) -> np.ndarray:
    """Stack the log-probabilities of T steps of one sequence under S seeds to an array ``(S, T)``.

    The array is on disk if the steps are on disk.

    Args:
        steps: an array ``(T,)`` for each seed.
    """
    if len(steps) == 1:
        return np.asanyarray(steps[0])[None]
    if not is_long(steps):
        return np.stack(list(steps))
    n = len(steps[0])
    rows = MappedArray.temporary(len(steps) * n)
    for i, each in enumerate(steps):
        for t, part in parts_of(each):
            rows.write(i * n + t, part)
    return rows.reshape(len(steps), n)


def mean_over_seeds(steps: Sequence[np.ndarray]) -> np.ndarray:
    """Average the log-probability of each of T steps of one sequence over seeds, ``(T,)``; on disk if the steps are.

    Args:
        steps: an array ``(T,)`` for each seed.
    """
    if not is_long(steps):
        return np.asarray(np.mean(list(steps), axis=0))
    rows = LongSteps.of(rows_of_seeds(steps))
    mean, t = MappedArray.temporary(rows.n), 0
    for block in rows.blocks():
        mean.write(t, block.mean(axis=0))
        t += block.shape[1]
    return mean
