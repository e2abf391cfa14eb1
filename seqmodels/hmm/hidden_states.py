"""``HiddenStateModel``: what models with hidden states say of the states of sequences, and of how many there are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.common.parameters import Seed, checked, checked_but
from seqmodels.encodings.text import symbol_names
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import checked_data
from seqmodels.model.states_frame import named_states, states_frame

if TYPE_CHECKING:
    import pandas as pd


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
    def decode(self, X: Any, y: Any = None) -> Any:
        """Return the most probable path of states of each sequence, ``(T,)`` integers."""

    @abstractmethod
    def _shares_and_durations(self) -> tuple[np.ndarray, np.ndarray]:
        """For each state what ``state_summary`` says of its share and mean duration, ``(K,)`` each."""

    @abstractmethod
    def _emissions_by_state(self, names: Sequence[str]) -> Mapping[str, np.ndarray]:
        """The observation's parameters in raw units, ``(K,)`` each, by column; ``names`` of features or symbols."""

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
        """``(T, K)`` p(z_t | x_1 .. x_t), given what came so far; once that is impossible rows of zeros, and a warning.

        Of a sequence that comes step by step: ``stream().filtered``, after each ``update``.
        """
        filtered = self._filtered_states(X, y)
        impossible = {i: int(np.argmin(rows.any(1))) for i, rows in enumerate(filtered) if not rows.any(1).all()}
        if impossible:
            i, t = next(iter(impossible.items()))
            warn_caller(
                f"{len(impossible)} of {len(filtered)} sequences have probability zero under this model, so their "
                f"filtered states are rows of zeros from some step on (sequence {i} from step {t}); leave them out, or "
                "keep emissions and transitions from being exactly zero (pseudocount, topology, states)",
            )
        return filtered

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
        refuse_beyond_memory(f"{n} paths of each sequence", 8.0 * n, "pass a smaller n")
        seed = self.random_state if random_state is None else random_state
        return [path.T for path in self._drawn_states(X, y, n, seed)]

    @checked_but("X", "y")
    def decode_frame(self, X: Any, y: Any = None, *, state_names: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the most probable path of each sequence as one table, a row for each step: ``decode`` and
        ``posterior`` side by side, as ``seqmodels decode --out`` writes them.

        Args:
            state_names: of the K states, which take the place of their numbers; None: the numbers.

        Returns:
            Columns ``sequence`` (its number, from 0), ``name``, ``position`` (from 1), the times by their name where
            the sequences have some, ``symbol`` of symbols and texts, ``state``, and ``probability``, that of the state
            at this step given the whole sequence: where it is low, another state would explain the step as well. Where
            there are targets, the steps are theirs.

        Raises:
            ValueError: names that are not K different ones; what ``decode`` raises.
        """
        scored = checked_data(self, X, y).scored
        frame = states_frame(self.encoding_, scored, self.decode(X, y), self.posterior(X, y))
        n_states = len(self._shares_and_durations()[0])
        return frame.assign(state=named_states(frame["state"], state_names, n_states))

    @checked
    def state_summary(self, *, state_names: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the fitted parameters of each state, a row a state, in raw units.

        Args:
            state_names: of the K states, which take the place of their numbers; None: the numbers.

        Returns:
            ``share`` of the steps that a long sequence spends in the state (``stationary_``), ``mean_duration`` of a
            visit, in steps (of ``ContinuousTimeHMM`` in units of time), and then the parameters of the observation, a
            column for each and each feature: ``mean_pulse`` and ``sd_pulse`` of Gaussians and their mixtures, where a
            feature is called pulse, ``rates_pulse`` of ``Poisson``, ``p(a)`` of a symbol. Features without names are
            x0, x1, ...; a single one has none. What depends on inputs is of inputs at their mean.

        Raises:
            ValueError: names that are not K different ones.
        """
        import pandas as pd

        share, duration = self._shares_and_durations()
        columns = {"share": share, "mean_duration": duration, **self._emissions_by_state(symbol_names(self.encoding_))}
        frame = pd.DataFrame(columns)
        frame.index = pd.Index(named_states(frame.index.to_series(), state_names, len(frame)), name="state")
        return frame
