"""The prior of ``Columns``, whose groups of features are independent: a prior of each group by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from seqmodels.hmm.conjugate.family import ConjugateFamily, EmissionPrior, conjugate_of
from seqmodels.hmm.conjugate.prior import ConjugatePrior
from seqmodels.hmm.emissions import Emission, Statistics
from seqmodels.hmm.emissions.columns import ColumnsEmission, merged
from seqmodels.observations import Columns


class ColumnsFamily(ConjugateFamily):
    """The prior of ``Columns``, an emission distribution of independent groups of features: a prior of each group by
    itself.

    The hyperparameters of the groups stand side by side, in one row for each state. The family is conjugate if that of
    every group is.

    Args:
        parts: prior of each group of features.
    """

    def __init__(self, parts: Sequence[EmissionPrior]) -> None:
        observation = Columns([(part.emission.observation, part.size) for part in parts])
        size = sum(part.size for part in parts)
        super().__init__(ColumnsEmission(observation, size, [part.emission for part in parts]))
        self.parts, self.observation, self.groups = parts, observation, list(observation.parts())

    @property
    def _conjugate(self) -> list[ConjugateFamily]:
        conjugate = [part for part in self.parts if isinstance(part, ConjugateFamily)]
        assert len(conjugate) == len(self.parts), "variational Bayes refuses the others"
        return conjugate

    @property
    def takes_missing(self) -> bool:
        return all(part.takes_missing for part in self._conjugate)

    def _split(self, hyper: Tensor) -> tuple[Tensor, ...]:
        return torch.split(hyper, [part.prior(ConjugatePrior(), 1).shape[1] for part in self.parts], 1)

    def _of_each(self, of: Callable[[ConjugateFamily, Tensor], Tensor], hyper: Tensor) -> Tensor:
        return torch.cat([of(*each) for each in zip(self._conjugate, self._split(hyper), strict=True)], 1)

    def _statistics(self, statistics: Statistics) -> Iterator[Statistics]:
        for part in self.parts:
            yield statistics[: part.emission.n_statistics]
            statistics = statistics[part.emission.n_statistics :]

    def prior(self, prior: ConjugatePrior, n_states: int) -> Tensor:
        return torch.cat([part.prior(prior, n_states) for part in self.parts], 1)

    def log_density(self, table: Tensor, hyper: Tensor) -> Tensor:
        each = zip(self.groups, self.parts, self._split(hyper), strict=True)
        return torch.stack([part.log_density(table[:, g.outputs], of_part) for g, part, of_part in each]).sum(0)

    def near(self, table: Tensor, prior: Tensor, statistics: Statistics) -> Tensor:
        each = zip(self.groups, self.parts, self._split(prior), self._statistics(statistics), strict=True)
        return torch.cat([part.near(table[:, g.outputs], of_part, s) for g, part, of_part, s in each], 1)

    def updated(self, prior: Tensor, statistics: Statistics) -> Tensor:
        each = zip(self._conjugate, self._split(prior), self._statistics(statistics), strict=True)
        return torch.cat([part.updated(of_part, s) for part, of_part, s in each], 1)

    def expected(self, hyper: Tensor) -> tuple[Tensor, Tensor]:
        tables, offsets = zip(
            *(part.expected(of_part) for part, of_part in zip(self._conjugate, self._split(hyper), strict=True)),
            strict=True,
        )
        return torch.cat(tables, 1), torch.cat(offsets, 1)

    def expected_emission(self, hyper: Tensor, fixed: Tensor) -> tuple[Emission, Tensor]:
        emissions, places, at = [], [], self.groups[-1].outputs.stop
        for g, part, of_part in zip(self.groups, self._conjugate, self._split(hyper), strict=True):
            emission, table = part.expected_emission(of_part, fixed[:, g.outputs])
            outputs = list(range(g.outputs.start, g.outputs.stop))
            n_offsets = table.shape[1] - len(outputs)
            emissions.append(emission)
            places.append([*outputs, *range(at, at + n_offsets)])
            at += n_offsets
        of_all = ColumnsEmission(self.observation, self.size, emissions, places)
        return of_all, torch.cat(self.expected(hyper), 1)

    def divergence(self, hyper: Tensor, prior: Tensor) -> Tensor:
        each = zip(self._conjugate, self._split(hyper), self._split(prior), strict=True)
        return torch.stack([part.divergence(of_part, of_prior) for part, of_part, of_prior in each]).sum(0)

    def mean(self, hyper: Tensor) -> Tensor:
        return self._of_each(lambda part, of_part: part.mean(of_part), hyper)

    def draw(self, hyper: Tensor, generator: torch.Generator) -> Tensor:
        return self._of_each(lambda part, of_part: part.draw(of_part, generator), hyper)

    def raw(self, hyper: Tensor, shift: np.ndarray, scale: np.ndarray) -> Mapping[str, np.ndarray]:
        """Return the hyperparameters of parameters in raw units, arrays by name; a name that several groups have gets a
        number.

        Args:
            hyper: hyperparameters of each of K states, ``(K, H)``, for encoded data.
            shift: number to add to each of D encoded features times ``scale``, which gives its raw value, ``(D,)``.
            scale: factor of each encoded feature, ``(D,)``.
        """
        each = zip(self.groups, self._conjugate, self._split(hyper), strict=True)
        raw = [part.raw(of_part, shift[g.columns], scale[g.columns]) for g, part, of_part in each]
        return merged(raw)


@conjugate_of.register(Columns)
def _(observation: Columns, size: int) -> ConjugateFamily:
    return ColumnsFamily([conjugate_of(group.observation, group.size) for group in observation.parts()])
