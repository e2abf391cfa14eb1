"""An encoding of real values by the numbers of their cells, so that models of symbols give a density of raw values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np

from seqmodels.common.array_checks import array_of, check_between
from seqmodels.common.parameters import NotNegativeFloat, Range
from seqmodels.encodings.base import State, names_of_state, names_to_state
from seqmodels.encodings.cells import Cells, Placement, ProductCells
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.step_maps import ConstantEncoder, StepMap, as_frames
from seqmodels.encodings.vectors import SMALLEST_SCALE, moments, refuse_infinite
from seqmodels.sequences import Item, Sequences

MAX_SYMBOLS = 1 << 14  # combinations of the cells of all features


@dataclass(eq=False, repr=False)
class Quantize(SeriesEncoding):
    """An encoding of vectors as symbols: the number of the cell of a partition that each frame falls into.

    The density of a frame is ``log p(x) = log P(cell of x) + log p(x | cell of x)``. For each feature, a partition of
    the line into cells is learned from the training values. For one feature, the symbols are the cells from the lowest
    up; for several features there is one symbol for each combination of their cells, given which the features are
    independent. The density is uniform within a cell and exponential beyond the outermost edges, with the mean of the
    training values there. So it integrates to one, and no value has probability zero. A model of symbols then gives a
    density of raw values, in nats per frame, which is comparable with any other model of vectors; what it draws or
    forecasts is a value within the cell.

    As the last encoding of a ``Chain``, it quantised what the encodings before it return: changes in
    ``Chain([Differences(1), Quantize()])``, and whatever changes a series has in ``Chain([AutoSeries(), Quantize()])``.

    Args:
        n_cells: largest number of cells of each feature; there are fewer if there are fewer different values, or
            because of ``min_width``. ``"auto"`` makes the number of symbols of all features together about the cube
            root of the number of training frames, the rate of the best histogram (Scott 1979, *On optimal and
            data-based histograms*), with at least two cells for each feature.
        placement: how the edges are placed. ``"quantiles"`` puts about as many training values in each cell;
            ``"widths"`` makes cells of equal width, from the smallest to the largest training value; ``"lloyd-max"``
            minimises the squared distance to the mean of the cell (Lloyd 1982; Max 1960).
        min_width: smallest width of a cell in standard deviations of the training values; it bounds the density if
            values are repeated.

    Missing values are refused.

    Raises:
        ValueError: if a feature is constant over the training data, or if features and cells make more than 16,384
            symbols.

    >>> from seqmodels import NGram, Sequences
    >>> from seqmodels.encodings import Quantize
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
    >>> Quantize(3).fit(Sequences([x])).encode(x).tolist()
    [0, 0, 1, 1, 2, 2]
    >>> NGram(2, encoding=Quantize(3)).fit([x]).measure_.space
    'R^1'
    """

    n_cells: Annotated[int, Range(2, MAX_SYMBOLS)] | Literal["auto"] = "auto"
    placement: Placement = "quantiles"
    min_width: NotNegativeFloat = 1e-3

    @property
    def emits(self) -> Literal["vectors", "symbols"]:
        return "symbols"

    @property
    def n_features(self) -> int:
        return len(self.cells.features)

    @property
    def has_constant_map(self) -> bool:
        return True

    def fit(self, sequences: Sequences) -> Self:
        _, scale, _ = moments(sequences, np.ones(sequences.n_features, dtype=bool))
        frames = np.concatenate([as_frames(item) for item in sequences])
        known = [column[~np.isnan(column)] for column in frames.T]
        n_cells = self._n_cells(*frames.shape)
        cells = [
            Cells.learn(values, n_cells, self.placement, max(self.min_width * float(s), SMALLEST_SCALE))
            for values, s in zip(known, scale, strict=True)
        ]
        return self._of(cells)

    def _n_cells(self, n_frames: int, n_features: int) -> int:
        if self.n_cells == "auto":
            return max(2, int(n_frames ** (1 / (3 * n_features)) + 1e-9))
        return self.n_cells

    def _of(self, cells: list[Cells]) -> Self:
        self.cells = ProductCells(tuple(cells))
        self.size = self.cells.n_symbols
        if self.size > MAX_SYMBOLS:
            raise ValueError(
                f"the cells of {len(cells)} features together make {self.size} symbols, but at most {MAX_SYMBOLS} are "
                "allowed; pass fewer cells, or use a model of vectors"
            )
        return self

    def check_values(self, i: int, frames: np.ndarray) -> None:
        refuse_infinite(i, frames)

    def check_finite(self, sequences: Sequences) -> None:
        for i, item in enumerate(sequences):
            refuse_infinite(i, item)

    def encode(self, item: Item) -> np.ndarray:
        return self.cells.symbols(as_frames(item))

    def decode(self, steps: np.ndarray) -> Item:
        """Return the medians of the cells that symbols stand for, ``(S, D)``.

        Args:
            steps: symbols, each the number of a cell or combination of cells, ``(S,)``.
        """
        return self.step_encoder(np.zeros((0, self.n_features))).map.decode(np.asarray(steps, dtype=np.int64))

    def of_each_value(self, frames: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(frames), 0.0, self.cells.log_density(frames))

    def step_encoder(self, past: np.ndarray) -> ConstantEncoder:
        size = 1, self.n_features
        return ConstantEncoder(StepMap(np.zeros(size), np.ones(size), cells=self.cells))

    def state(self) -> State:
        each = {str(i): {"edges": cells.edges, "tails": cells.tails} for i, cells in enumerate(self.cells.features)}
        return {"cells": each, **names_to_state(self.names)}

    def restore(self, state: State) -> Self:
        each = state.get("cells") if isinstance(state, dict) else None
        if not isinstance(each, dict) or not each or set(each) != set(map(str, range(len(each)))):
            raise ValueError("the file should have the cells of each feature")
        self._of([_restored(each[str(i)]) for i in range(len(each))])
        self.names = names_of_state(state, self.n_features)
        return self


def _restored(state: State) -> Cells:
    """Return the cells of one feature from the arrays ``edges`` and ``tails`` that a file holds.

    Raises:
        ValueError: if the numbers do not describe cells.
    """
    edges = check_between("edges", array_of(state, "edges", np.float64, (None,)), -np.inf)
    if not len(edges) or (np.diff(edges) <= 0).any():
        raise ValueError("'edges' should be increasing numbers, at least one")
    tails = array_of(state, "tails", np.float64, (2,))
    return Cells(edges, check_between("tails", tails, SMALLEST_SCALE))
