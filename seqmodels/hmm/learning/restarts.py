"""Several starts of EM: how many ``"auto"`` comes to, where each ended, and a warning where they disagree."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from seqmodels.array_checks import array_of
from seqmodels.hmm.corpus import Corpus
from seqmodels.hmm.learning.em import FitResult
from seqmodels.hmm.learning.options import Algorithm
from seqmodels.hmm.topology import Topology

if TYPE_CHECKING:
    import pandas as pd

MOST_STARTS = 8
DENSITIES_OF_ALL = 1 << 20  # of all such starts together, in one E-step: what a CPU computes in tens of milliseconds
CLEAR_GAP = 0.05  # nats a unit by which the best objective is ahead of all others, from which starts disagree clearly
CLEAR_TOTAL = 10.0  # and nats in all: of few frames it takes a larger gap
FEWEST_COMPARED = 4  # starts from which being ahead of all others says something

COLUMNS: Mapping[str, type] = {"objective": np.float64, "log_prob": np.float64, "floor_hits": np.int64}


def n_starts(n_init: int | Literal["auto"], algorithm: Algorithm, topology: Topology, corpus: Corpus) -> int:
    """What ``n_init`` comes to.

    ``"auto"``: as many as have ``DENSITIES_OF_ALL`` densities together, at most ``MOST_STARTS``. One where starts
    hardly differ, under an ordered topology or with known states, and one under other algorithms than EM.
    """
    if n_init != "auto":
        return n_init
    if algorithm != "em" or topology.is_ordered or corpus.states is not None:
        return 1
    n_densities = corpus.n_densities * sum(map(len, corpus.sequences))
    return min(MOST_STARTS, max(1, DENSITIES_OF_ALL // max(n_densities, 1)))


# -- the table of starts -----------------------------------------------------------------------------------------------


def starts_table(results: Sequence[Mapping[str, float]], best: int | None) -> pd.DataFrame:
    """A row for each start: ``start``, ``objective``, ``log_prob`` (nats per unit), ``floor_hits``, ``chosen``."""
    import pandas as pd

    columns: dict[str, np.ndarray] = {
        name: np.array([row[name] for row in results], dtype) for name, dtype in COLUMNS.items()
    }
    numbers = np.arange(len(results))
    return pd.DataFrame({"start": numbers, **columns, "chosen": numbers == (-1 if best is None else best)})


def starts_range(table: pd.DataFrame) -> float:
    """The largest objective less the smallest, nats per unit; 0 of one start, NaN of none."""
    return float(table["objective"].max() - table["objective"].min())


def starts_arrays(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """The table by column, to be stored."""
    columns = {name: table[name].to_numpy(dtype) for name, dtype in COLUMNS.items()}
    return {**columns, "chosen": table["chosen"].to_numpy(bool)}


def starts_from_arrays(arrays: Mapping[str, np.ndarray] | None) -> pd.DataFrame:
    """The inverse of ``starts_arrays``; of None, which files of earlier versions have, a table without rows.

    Raises:
        ValueError: what no fit could have written.
    """
    if arrays is None:
        return starts_table([], None)
    if not isinstance(arrays, Mapping) or arrays.keys() != {*COLUMNS, "chosen"}:
        raise ValueError(f"the starts of an HMM are the arrays {', '.join([*COLUMNS, 'chosen'])}; the file has others")
    n = len(np.atleast_1d(arrays["chosen"]))
    for name, dtype in {**COLUMNS, "chosen": np.bool_}.items():
        array_of(arrays, name, dtype, (n,))
    if arrays["chosen"].sum() != min(n, 1):
        raise ValueError("of the starts of an HMM one is chosen; the file has none or several")
    rows = [{name: arrays[name][i] for name in COLUMNS} for i in range(n)]
    return starts_table(rows, int(arrays["chosen"].argmax()) if n else None)


def warn_of_disagreement(table: pd.DataFrame, best: FitResult, n_units: float) -> None:
    """Warn, at the line that called ``fit``, if the best of several converged starts is ahead of every other by more
    than ``CLEAR_GAP`` nats a unit, and ``CLEAR_TOTAL`` over all ``n_units``: other starts would hardly have found it.
    """
    if len(table) < FEWEST_COMPARED or not best.converged:
        return
    objective = float(table.loc[table["chosen"], "objective"].iloc[0])
    gap = objective - float(table.loc[~table["chosen"], "objective"].max())
    if gap > CLEAR_GAP and gap * n_units > CLEAR_TOTAL:
        warnings.warn(
            f"of {len(table)} starts the best was found once, {gap:.2f} nats per unit ahead of the next (starts_), so "
            f"a better one may not have been found; pass n_init={4 * len(table)}, or fewer states",
            UserWarning,
            stacklevel=5,
        )
