"""``HiddenStateModel``: what models with hidden states say of the states of sequences, and of how many there are."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from seqmodels.common.parameters import Seed, checked
from seqmodels.model import SequenceModel


class HiddenStateModel(SequenceModel):
    """``p(x) = Σ_z p(x, z)``: a model of sequences whose steps have K hidden states.

    To add one, define what ``SequenceModel`` asks for and the abstract methods here. Of a sequence with a past they
    return what is of the sequence itself, and they raise ``ValueError``, naming it, for one of probability zero.
    """

    @abstractmethod
    def _smoothed_states(self, X: Any, y: Any) -> list[np.ndarray]:
        """For each sequence what ``posterior`` returns."""

    @abstractmethod
    def _filtered_states(self, X: Any, y: Any) -> list[np.ndarray]:
        """For each sequence what ``filter`` returns; of one of probability zero too."""

    @abstractmethod
    def _drawn_states(self, X: Any, y: Any, n: int, seed: int) -> list[np.ndarray]:
        """For each sequence ``(T, n)`` independent draws from p(z | x)."""

    def posterior(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """``(T, K)`` p(z_t | x_1 .. x_T): each state at each step, given the whole sequence (smoothing).

        Raises:
            ValueError: a sequence of probability zero, named.
        """
        return self._smoothed_states(X, y)

    def predict_proba(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """``posterior``, by the name that it has in hmmlearn."""
        return self.posterior(X, y)

    def filter(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """``(T, K)`` p(z_t | x_1 .. x_t), given what came so far; rows of zeros once that is impossible.

        Of a sequence that comes step by step: ``stream().filtered``, after each ``update``.
        """
        return self._filtered_states(X, y)

    @checked
    def sample_states(self, X: Any, n: int = 1, *, y: Any = None, random_state: Seed | None = None) -> list[np.ndarray]:
        """``(n, T)`` paths of states of each sequence, drawn independently from p(z | x): exact, by forward filtering
        and backward sampling.

        Args:
            n: draws of each sequence.
            random_state: seed; None takes the model's.

        Raises:
            ValueError: a sequence of probability zero, named.
        """
        if n < 1:
            raise ValueError(f"n is {n}; pass at least 1")
        seed = self.random_state if random_state is None else random_state
        return [path.T for path in self._drawn_states(X, y, n, seed)]
