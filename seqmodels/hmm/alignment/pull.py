"""How strongly a place of a source draws the alignment: ``v_j = Π_k v_k(context_k of place j)``, contexts ever wider.

A letter that is not pronounced is jumped over; whether it is, its neighbours say. The end has a pull too, by what stands before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from seqmodels.array_checks import array_of, check_between, check_codes
from seqmodels.hmm.alignment.ladder import NONE, Rung, find


@dataclass(frozen=True)
class Drawn:
    """Of the places of some sources, and the end: ``coarser (n, S + 1)`` factors of all contexts but the finest, and where that stands."""

    coarser: np.ndarray
    place: np.ndarray


@dataclass(frozen=True)
class Pull:
    """For each rung that looks at the source ``contexts (C,)``, sorted codes, and ``factors (C,)``."""

    contexts: tuple[np.ndarray, ...]
    factors: tuple[np.ndarray, ...]
    rungs: tuple[Rung, ...]
    n_source: int

    @property
    def n_parameters(self) -> int:
        """Factors."""
        return sum(map(len, self.factors))

    def drawn(self, around: np.ndarray) -> Drawn:
        """Where places stand, given what is around them and the end, ``(n, S + 1, window)``."""
        coarser, place = np.ones(around.shape[:-1]), np.zeros(around.shape[:-1], np.int64)
        factors = np.ones(1)
        for rung, contexts, here in zip(self.rungs, self.contexts, self.factors, strict=False):
            coarser = coarser * np.where(place == NONE, 1.0, factors[place])
            place = find(contexts, rung.codes(place, around, self.n_source))
            factors = here
        return Drawn(coarser, place)

    def at(self, drawn: Drawn) -> np.ndarray:
        """``(n, S + 1)`` pulls; that of the end is the unit."""
        finest = self.factors[-1] if self.factors else np.ones(1)
        found = drawn.coarser * np.where(drawn.place == NONE, 1.0, finest[drawn.place])
        return found / found[:, -1:]

    def __call__(self, around: np.ndarray) -> np.ndarray:
        """``(n, S + 1)`` pulls, given what is around each place and the end, ``(n, S + 1, window)``."""
        return self.at(self.drawn(around))

    def wider(self, arounds: Sequence[np.ndarray]) -> Pull:
        """With one rung more, of all contexts there are, and no pull of its own yet."""
        rung = self.rungs[len(self.contexts)]
        codes = np.concatenate([np.unique(rung.codes(self.drawn(a).place, a, self.n_source)) for a in arounds])
        contexts = np.unique(codes)
        return replace(self, contexts=(*self.contexts, contexts), factors=(*self.factors, np.ones(len(contexts))))

    def maximised(self, arrived: np.ndarray, predicted: np.ndarray, pseudocount: float) -> Pull:
        """A better fit of the finest factors: Hunter's (2004) majorisation, given arrivals ``(C,)``, expected and as predicted now."""
        factors = self.factors[-1]
        better = (arrived + pseudocount) / (predicted / factors + pseudocount)
        return replace(self, factors=(*self.factors[:-1], better))

    def log_prior(self, pseudocount: float) -> float:
        """Nats that the objective adds for the finest factors: ``pseudocount · Σ (log v - v + 1)``, 0 where there is no pull."""
        return pseudocount * float((np.log(self.factors[-1]) - self.factors[-1] + 1).sum()) if self.factors else 0.0

    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """By rung and name, to be stored."""
        pairs = zip(self.contexts, self.factors, strict=True)
        return {str(i): {"contexts": c, "factors": f} for i, (c, f) in enumerate(pairs)}

    @classmethod
    def of(cls, arrays: Mapping[str, Mapping[str, np.ndarray]], rungs: tuple[Rung, ...], n_source: int) -> Self:
        """What ``arrays`` returned; ``ValueError`` for what are no factors."""
        contexts, factors, n_before = [], [], 1
        for i, rung in zip(range(len(arrays)), rungs, strict=False):
            base = (n_source + 2) ** len(rung.columns)
            codes = array_of(arrays[str(i)], "contexts", np.int64, (None,))
            contexts.append(check_codes("contexts", codes, n_before, base))
            factors.append(check_between("factors", array_of(arrays[str(i)], "factors", np.float64, codes.shape), 0))
            n_before = len(codes)
        if len(contexts) < len(arrays):
            raise ValueError(
                f"the file has pulls of {len(arrays)} contexts, but window and pull allow for {len(rungs)}"
            )
        return cls(tuple(contexts), tuple(factors), rungs, n_source)
