"""The most probable sequences of any fitted model of symbols or text, by beam search."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqmodels.generation.beam import Search, beam_search
from seqmodels.generation.cursor import Cursor
from seqmodels.generation.generative import Generative
from seqmodels.preparation import Data, Example
from seqmodels.sequences import Item


@dataclass(frozen=True)
class Candidate:
    """A raw sequence that a search found; ``log_prob`` nats, as the model's; ``score``, higher is better, what ranked it.

    Where symbols have several spellings (byte pairs) ``log_prob`` is that of the spelling found.
    """

    item: Item
    log_prob: float
    score: float


class Searching(Generative, ABC):
    """``n_best`` and ``predict``. What a model defines is what ``Generative`` asks for.

    >>> from seqmodels import HMM
    >>> model = HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.9, 0.1]])
    >>> [(each.item.tolist(), round(each.log_prob, 2)) for each in model.n_best(3)]
    [([0], -0.8), ([0, 0], -1.6), ([0, 0, 0], -2.4)]
    """

    def n_best(
        self,
        n: int = 5,
        *,
        prefix: Any = None,
        source: Any = None,
        n_beams: int | None = None,
        length: int | None = None,
        max_length: int = 1000,
        alpha: float = 0.0,
    ) -> list[Candidate]:
        """The ``n`` most probable whole sequences of symbols or text that begin with ``prefix``, given ``source``, by beam search.

        Args:
            n_beams: beginnings that are followed at once; None: n, and at least 5.
            length: number of encoded steps; under ``length="stop"`` None searches all that end after at most ``max_length``.
            alpha: normalisation by length (Wu et al. 2016): see ``seqmodels.generation.Search``.

        Raises:
            ValueError: a model of vectors, which cannot be listed; nothing possible begins with the prefix.
        """
        steps, context = self._encode_one(prefix), self._encode_source(source)
        self._check_searchable()
        length = self._length(length, context)
        width = max(n, 5) if n_beams is None else n_beams
        return self._search(self._cursor(), steps, context, Search(width, n, length, max_length, alpha))

    def predict(
        self,
        X: Any,
        *,
        n_beams: int | None = None,
        length: int | Sequence[int] | None = None,
        max_length: int = 1000,
        alpha: float = 0.0,
    ) -> list[Item]:
        """The target that the model finds most probable for each source.

        Args:
            n_beams: beginnings that are followed at once (see ``n_best``); None: one, which is greedy, unless the model can
                find the most probable of all, as an ``HMMTagger`` and taggers of independent labels can.
            length: steps of the targets, one number or one for each; needed under ``length="given"``, but not by taggers.

        Raises:
            ValueError: a model that was fitted without ``y``; one of vectors.
        """
        sources = Data.of(X).X
        if not self._setting().measure.conditional:
            raise ValueError(
                "the model was fitted without y, so there are no targets to predict; n_best(prefix=) continues"
            )
        lengths = [length] * len(sources) if length is None or isinstance(length, int | np.integer) else list(length)
        if len(lengths) != len(sources):
            raise ValueError(f"there are {len(sources)} sources but {len(lengths)} lengths; pass one for each")
        self._check_searchable()
        contexts = [self._encode_source(source) for source in sources]
        wanted = [self._length(each, context) for each, context in zip(lengths, contexts, strict=True)]
        exact = self._most_probable(contexts) if n_beams is None else None
        if exact is not None:
            return [self.encoding_.decode(steps) for steps in exact]
        cursor, none = self._cursor(), self._encode_one(None)
        width = 1 if n_beams is None else n_beams
        searches = [Search(width, 1, each, max_length, alpha) for each in wanted]
        found = [self._search(cursor, none, *asked)[0] for asked in zip(contexts, searches, strict=True)]
        return [each.item for each in found]

    def _most_probable(self, sources: list[np.ndarray | None]) -> list[np.ndarray] | None:
        """For each encoded source the most probable target, encoded, where it is found without a search; None: it is not."""
        return None

    def _search(self, cursor: Cursor, prefix: np.ndarray, source: np.ndarray | None, search: Search) -> list[Candidate]:
        found = beam_search(cursor, search, prefix=prefix, source=source)
        if not found:
            raise ValueError(
                "nothing that the model holds possible begins with the prefix; pass another prefix or length"
            )
        # By the batched road, so that the figures are those of log_prob.
        steps = self._steps([Example(h.steps, source) for h in found])
        return [
            Candidate(self.encoding_.decode(h.steps), float(each.sum()), search.score(float(each.sum()), len(h.steps)))
            for h, each in zip(found, steps, strict=True)
        ]

    def _check_searchable(self) -> None:
        if self.encoding_.reads == "vectors":
            raise ValueError("vectors have densities, which a search cannot list; draw from the model with sample()")
