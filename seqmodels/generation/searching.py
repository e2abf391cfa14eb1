"""The most probable sequences of any fitted model of symbols or text, by beam search."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from seqmodels.generation.beam import Hypothesis, Search, beam_search, beam_searches
from seqmodels.generation.generative import Generative
from seqmodels.preparation import Data, Example
from seqmodels.sequences import Item, Sequences


@dataclass(frozen=True)
class Candidate:
    """A raw sequence that a search found; ``log_prob`` nats, as the model's; ``score``, higher is better, what ranked it.

    Where symbols have several spellings (byte pairs) ``log_prob`` is that of the spelling found.
    """

    item: Item
    log_prob: float
    score: float


@dataclass(frozen=True)
class Goal:
    """What is searched for one source: encoded ``source (S, ...)``, ``prefix (P,)`` of the target, and its length if that is given.

    The source is None to a model that ignores it.
    """

    source: np.ndarray | None
    prefix: np.ndarray
    length: int | None

    @property
    def n_source(self) -> int:
        """Steps of the source."""
        return 0 if self.source is None else len(self.source)

    def kind(self, *, pads: bool) -> tuple[bool, int, int]:
        """What those that are searched together have in common; ``pads``: their sources may have several lengths."""
        return self.length is None, len(self.prefix), 0 if pads else self.n_source


def batches(goals: Sequence[Goal], size: int, *, pads: bool) -> Iterator[list[int]]:
    """Numbers of goals that are searched together, at most ``size``, of sources of equal length, or if it ``pads`` of like lengths."""
    if size < 1:
        raise ValueError(f"batch_size is {size}; pass at least 1")
    kinds = [goal.kind(pads=pads) for goal in goals]
    for kind in sorted(set(kinds)):
        alike = sorted((i for i, each in enumerate(kinds) if each == kind), key=lambda i: goals[i].n_source)
        yield from (alike[k : k + size] for k in range(0, len(alike), size))


def _is_several(prefix: Any) -> bool:
    """Whether it is a list of prefixes, rather than one."""
    several = isinstance(prefix, list | tuple) and len(prefix) > 0
    return several and any(each is None or isinstance(each, str) or np.ndim(each) > 0 for each in prefix)


def _refuse_nothing(found: list[Hypothesis], where: str = "") -> None:
    if not found:
        raise ValueError(
            f"{where}nothing that the model holds possible begins with the prefix; pass another prefix or length"
        )


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
        alpha: float | Literal["mean"] = 0.0,
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
        search = Search(width, n, length, max_length, alpha)
        found = beam_search(self._holding(context)._cursor(), search, prefix=steps, source=context)
        _refuse_nothing(found)
        return self._candidates(found, context, search)

    def predict(
        self,
        X: Any,
        *,
        n_beams: int | None = None,
        n_best: int | None = None,
        prefix: Any = None,
        length: int | Sequence[int] | None = None,
        max_length: int = 1000,
        max_ratio: float = 0.0,
        alpha: float | Literal["mean"] = 0.0,
        batch_size: int = 64,
    ) -> list[Any]:
        """The target that the model finds most probable for each source.

        Args:
            n_beams: beginnings that are followed at once (see ``n_best``); None: one, which is greedy, unless the model can
                find the most probable of all, as an ``HMMTagger`` and taggers of independent labels can.
            n_best: a list of so many ``Candidate`` for each source, best first (fewer if there are no more), instead of a target;
                followed are at least as many beginnings.
            prefix: raw beginning of every target, or a list with one for each.
            length: steps of the targets, one number or one for each; needed under ``length="given"``, but not by taggers.
            max_ratio: steps that a target may have for each step of its source, besides ``max_length``; under ``length="stop"``.
            batch_size: sources that are searched at once; of equal length, unless a network's encoder or a neural tagger reads them.

        Raises:
            ValueError: a model that was fitted without ``y``; one of vectors; nothing possible begins with the prefix.
        """
        sources = Data.of(X).X
        if not self._setting().measure.conditional:
            raise ValueError(
                "the model was fitted without y, so there are no targets to predict; n_best(prefix=) continues"
            )
        goals = self._goals(sources, prefix, length)
        if n_beams is None and n_best is None and not any(len(goal.prefix) for goal in goals):
            exact = self._most_probable([goal.source for goal in goals])
            if exact is not None:
                return [self.encoding_.decode(steps) for steps in exact]
        width = max(n_best or 1, n_beams or 1)
        cursor, found = self._holding(*(goal.source for goal in goals))._cursor(), list[Any]([None] * len(goals))
        for numbers in batches(goals, batch_size, pads=self._pads_sources):
            part = [goals[i] for i in numbers]
            longest = [max_length + int(max_ratio * g.n_source) if g.length is None else g.length for g in part]
            search = Search(width, 1 if n_best is None else n_best, part[0].length, min(longest), alpha)
            prefixes, given = [goal.prefix for goal in part], [g.source for g in part if g.source is not None]
            hypotheses = beam_searches(cursor, search, prefixes=prefixes, sources=given or None, longest=longest)
            for i, each in zip(numbers, hypotheses, strict=True):
                _refuse_nothing(each, f"source {i}: ")
                wanted = n_best is not None
                found[i] = self._candidates(each, goals[i].source, search) if wanted else self._decoded(each[0])
        return found

    def _goals(self, sources: Sequences, prefix: Any, length: int | Sequence[int] | None) -> list[Goal]:
        lengths = [length] * len(sources) if length is None or isinstance(length, int | np.integer) else list(length)
        if len(lengths) != len(sources):
            raise ValueError(f"there are {len(sources)} sources but {len(lengths)} lengths; pass one for each")
        prefixes = list(prefix) if _is_several(prefix) else [prefix] * len(sources)
        if len(prefixes) != len(sources):
            raise ValueError(
                f"there are {len(sources)} sources but {len(prefixes)} prefixes; pass one, or one for each"
            )
        self._check_searchable()
        begun, given = [self._encode_one(each) for each in prefixes], [self._encode_source(each) for each in sources]
        return [Goal(s, p, self._length(n, s)) for s, p, n in zip(given, begun, lengths, strict=True)]

    def _candidates(self, found: list[Hypothesis], source: np.ndarray | None, search: Search) -> list[Candidate]:
        # By the batched road, so that the figures are those of log_prob.
        steps = self._holding(source)._steps([Example(h.steps, source) for h in found])
        return [
            Candidate(self._decoded(h), float(each.sum()), search.score(float(each.sum()), len(h.steps)))
            for h, each in zip(found, steps, strict=True)
        ]

    def _most_probable(self, sources: list[np.ndarray | None]) -> list[np.ndarray] | None:
        """For each encoded source the most probable target, encoded, where it is found without a search; None: it is not."""
        return None

    def _decoded(self, found: Hypothesis) -> Item:
        return self.encoding_.decode(found.steps)

    def _check_searchable(self) -> None:
        if self.encoding_.reads == "vectors":
            raise ValueError("vectors have densities, which a search cannot list; draw from the model with sample()")
