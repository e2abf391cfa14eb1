"""Fits from several starts: how many to run, which one wins, and a table of where each ended.

The start with the best objective wins, but a start that ends on a floor loses to one that does not.
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
DENSITIES_OF_ALL = 1 << 20  # densities of all starts in one E-step, which take a CPU tens of milliseconds
CLEAR_GAP = 0.05  # nats per unit; starts disagree clearly if the best is ahead of all others by more
CLEAR_TOTAL = 10.0  # nats in all that the best must be ahead too, because few frames vary more per unit
FEWEST_COMPARED = 4  # fewest starts among which a single best one is worth a warning

COLUMNS: Mapping[str, type] = {"objective": np.float64, "log_prob": np.float64, "floor_hits": np.int64}


def n_starts(n_init: int | Literal["auto"], algorithm: Algorithm, topology: Topology, corpus: Corpus) -> int:
    """Return the number of random starts that the argument ``n_init`` of a model stands for.

    ``"auto"`` allows as many starts as together compute at most ``DENSITIES_OF_ALL`` emission densities in one E-step,
    at most ``MOST_STARTS``. It is one where starts hardly differ, which is under an ordered topology or with known
    states, and one for stepwise EM and training by gradient.

    Args:
        n_init: a number of starts, which is returned, or ``"auto"``.
        algorithm: algorithm of the fit.
        topology: which transitions are possible.
        corpus: the training sequences.
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
    """Return the best result of fits from ``n`` starts.

    Args:
        starts: function that makes the parameters of all starts; every process then takes those of process 0.
        n: number of starts.
        run: the algorithm, a function that fits from some of the starts.
        max_iter: most steps of each start, for the progress bar.
        verbose: True to show a progress bar.
        checkpoints: where to write progress, and what to resume from.
        device: device of parameters that are read from a checkpoint.
        together: how many starts are run side by side.

    Raises:
        KeyboardInterrupt: if a signal came before any start had a row in its history.
    """

    @cache
    def made() -> list[Parameters]:
        # All starts are made at once, because the joined frames that they are guessed from can then be freed.
        return [start.of_first_process() for start in starts()]

    store = ParameterStore(device)
    best, _ = Starts(n, lambda i: made()[i], run, store, max_iter, verbose, together).best(checkpoints)
    return best


# -- the table of starts -----------------------------------------------------------------------------------------------


def starts_table(results: Sequence[Mapping[str, float]], best: int | None) -> pd.DataFrame:
    """Return a data frame that says where each start of a fit ended, with one row for each start.

    The columns are ``start`` (its number), ``objective`` and ``log_prob`` in nats per frame, byte or symbol,
    ``floor_hits`` (number of states at a lower bound), and ``chosen``, which is True for the start whose result was
    kept.

    Args:
        results: the last row of the history of each start.
        best: number of the start that was kept; None if no start was.
    """
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
    """Return the largest minus the smallest objective at the end of several starts of a fit, in nats per unit.

    ``starts`` holds the last row of the history of each start; units are frames, bytes or symbols.
    """
    objectives = [row["objective"] for row in starts]
    return max(objectives) - min(objectives)


def starts_arrays(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the columns of the data frame of ``starts_table`` as arrays, in the form in which a file stores them."""
    columns = {name: table[name].to_numpy(dtype) for name, dtype in COLUMNS.items()}
    return {**columns, "chosen": table["chosen"].to_numpy(bool)}


def starts_from_arrays(arrays: Mapping[str, np.ndarray] | None) -> pd.DataFrame:
    """Return the data frame of starts that ``starts_arrays`` turned into ``arrays``.

    None, for files of earlier versions that hold no starts, gives a table without rows.

    Raises:
        ValueError: if the arrays are not what ``starts_arrays`` writes.
    """
    if arrays is None:
        return starts_table([], None)
    if not isinstance(arrays, Mapping) or arrays.keys() != {*COLUMNS, "chosen"}:
        raise ValueError(f"the starts of an HMM are the arrays {', '.join([*COLUMNS, 'chosen'])}; the file has others")
    n = len(np.atleast_1d(arrays["chosen"]))
    for name, dtype in {**COLUMNS, "chosen": np.bool_}.items():
        array_of(arrays, name, dtype, (n,))
    if arrays["chosen"].sum() != min(n, 1):
        raise ValueError("exactly one start of an HMM is chosen; the file has none or several")
    rows = [{name: arrays[name][i] for name in COLUMNS} for i in range(n)]
    return starts_table(rows, int(arrays["chosen"].argmax()) if n else None)


# -- warnings ----------------------------------------------------------------------------------------------------------


def warn_of_floor(result: FitResult[Parameters], observation: Observation) -> None:
    """Warn, at the line that called ``fit``, if variances or scales of some states are at their lower bound at the end
    of a fit.

    Args:
        result: result of the fit.
        observation: the emission distribution, whose parameters name the bounds.
    """
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
    """Warn, at the line that called ``fit``, if the best of several starts is far ahead of every other start.

    It is far ahead if the gap to the next is more than ``CLEAR_GAP`` nats per unit and more than ``CLEAR_TOTAL`` nats
    over all ``n_units`` units. Then a better optimum may exist that no start found. There is no warning for fewer than
    ``FEWEST_COMPARED`` starts, or if the best one did not converge.

    Args:
        table: where each start ended, as ``starts_table`` returns it.
        best: result of the best start.
        n_units: number of frames, bytes or symbols of the training data.
    """
    if len(table) < FEWEST_COMPARED or not best.converged:
        return
    objective = float(table.loc[table["chosen"], "objective"].iloc[0])
    gap = objective - float(table.loc[~table["chosen"], "objective"].max())
    if gap > CLEAR_GAP and gap * n_units > CLEAR_TOTAL:
        warn_caller(
            f"the best of {len(table)} starts was found once, {gap:.2f} nats per unit ahead of the next (starts_), so "
            f"a better one may not have been found; pass n_init={4 * len(table)}, or fewer states",
        )
