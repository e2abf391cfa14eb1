"""Several starts, of EM, stepwise EM or training by gradient: how many, which is the best, where each ended.

The start with the best objective wins, but one that ends on a floor loses to one that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from seqmodels.common.array_checks import array_of
from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.progress import Verbose
from seqmodels.hmm.corpus import Corpus
from seqmodels.hmm.learning.em import ParameterStore
from seqmodels.hmm.learning.options import Algorithm
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.topology import Topology
from seqmodels.observations import Observation
from seqmodels.training import Checkpoints, FitResult, Row, RunOfStarts, Starts

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
    hardly differ, under an ordered topology or with known states, and one of stepwise EM and of training by gradient.
    """
    if n_init != "auto":
        return n_init
    if algorithm not in ("em", "variational") or topology.is_ordered or corpus.states is not None:
        return 1
    n_densities = corpus.n_densities * sum(map(len, corpus.sequences))
    return min(MOST_STARTS, max(1, DENSITIES_OF_ALL // max(n_densities, 1)))


# -- the best of them --------------------------------------------------------------------------------------------------


def best_of(
    starts: Callable[[], Iterable[Parameters]],
    n: int,
    run: RunOfStarts[Parameters, Parameters],
    *,
    max_iter: int,
    verbose: Verbose,
    checkpoints: Checkpoints,
    device: torch.device,
    together: int = 1,
) -> FitResult[Parameters]:
    """Return the best result of ``run`` from any of ``n`` starts.

    Args:
        starts: makes all of them, where they are needed; every process then takes those of process 0.
        n: how many there are.
        run: EM, stepwise EM or training by gradient.
        max_iter: most steps of each start, for the progress bar.
        verbose: whether to show a progress bar.
        checkpoints: where to write how far it came, and what to resume from.
        device: where parameters are that are read from a checkpoint.
        together: how many starts are run side by side.

    Raises:
        KeyboardInterrupt: a signal came before any start had a row of history.
    """

    @cache
    def made() -> list[Parameters]:
        # All at once: the frames they are guessed from, joined, need not stay.
        return [start.of_first_process() for start in starts()]

    store = ParameterStore(device)
    best, _ = Starts(n, lambda i: made()[i], run, store, max_iter, verbose, together).best(checkpoints)
    return best


# -- the table of starts -----------------------------------------------------------------------------------------------


def starts_table(results: Sequence[Mapping[str, float]], best: int | None) -> pd.DataFrame:
    """A row for each start: ``start``, ``objective``, ``log_prob`` (nats per unit), ``floor_hits``, ``chosen``."""
    return _starts_table(results, best) if results else _no_starts().copy()


@cache
def _no_starts() -> pd.DataFrame:
    return _starts_table([], None)


def _starts_table(results: Sequence[Mapping[str, float]], best: int | None) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, np.ndarray] = {
        name: np.array([row[name] for row in results], dtype) for name, dtype in COLUMNS.items()
    }
    numbers = np.arange(len(results))
    return pd.DataFrame({"start": numbers, **columns, "chosen": numbers == (-1 if best is None else best)})


def starts_range(starts: Sequence[Row]) -> float:
    """The largest objective of the last rows of some starts less the smallest, nats per unit."""
    objectives = [row["objective"] for row in starts]
    return max(objectives) - min(objectives)


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


# -- warnings ----------------------------------------------------------------------------------------------------------


def warn_of_floor(result: FitResult[Parameters], observation: Observation) -> None:
    """Warn, at the line that called ``fit``, if a floor bounds what was found."""
    hits = int(result.last_row["floor_hits"])
    if hits:
        floors: dict[str, list[float]] = {"min_covariance": [], "min_scale": []}
        for path, value in observation.get_params().items():
            floors.get(path.rpartition("__")[2], []).append(value)
        stated = {name: min(values) for name, values in floors.items() if values}
        warn_caller(
            f"{hits} state(s) ended on the floor of the {'variances' if 'min_covariance' in stated else 'scales'}, "
            f"{', '.join(f'{name}={least}' for name, least in stated.items())}, which then sets the "
            "score; use fewer states or components, or, where states are meant to be so narrow, lower "
            f"{' or '.join(stated)}",
        )


def warn_of_disagreement(table: pd.DataFrame, best: FitResult[Parameters], n_units: float) -> None:
    """Warn, at the line that called ``fit``, if the best of several converged starts is ahead of every other by more
    than ``CLEAR_GAP`` nats a unit, and ``CLEAR_TOTAL`` over all ``n_units``: other starts would hardly have found it.
    """
    if len(table) < FEWEST_COMPARED or not best.converged:
        return
    objective = float(table.loc[table["chosen"], "objective"].iloc[0])
    gap = objective - float(table.loc[~table["chosen"], "objective"].max())
    if gap > CLEAR_GAP and gap * n_units > CLEAR_TOTAL:
        warn_caller(
            f"of {len(table)} starts the best was found once, {gap:.2f} nats per unit ahead of the next (starts_), so "
            f"a better one may not have been found; pass n_init={4 * len(table)}, or fewer states",
        )
