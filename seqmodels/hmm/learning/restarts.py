"""Several starts, of EM, stepwise EM or training by gradient: how many, which is the best, where each ended.

The start with the best objective wins, but one that ends on a floor loses to one that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from seqmodels.common.array_checks import array_of
from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.distributed import is_rank_zero
from seqmodels.common.progress import ProgressBar, Verbose
from seqmodels.hmm.corpus import Corpus
from seqmodels.hmm.learning.em import FitResult, Row
from seqmodels.hmm.learning.options import Algorithm
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.topology import Topology
from seqmodels.observations import Observation
from seqmodels.training import Checkpoints, interruptible

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


def in_groups(starts: Sequence[Parameters], size: int) -> list[Sequence[Parameters]]:
    """At most ``size`` in each."""
    return [starts[i : i + size] for i in range(0, len(starts), size)]


def best_of(
    groups: Sequence[Sequence[Parameters]],
    run: Callable[..., list[FitResult]],
    *,
    max_iter: int,
    verbose: Verbose,
    checkpoints: Checkpoints | None = None,
    device: torch.device | None = None,
) -> FitResult:
    """The result of highest rank of ``run(starts, callback=..., checkpoints=...)`` for every group of starts.

    Args:
        groups: starts that are run together; where ``checkpoints`` resume an earlier run, those that it had left take
            their place.
        run: EM, stepwise EM or training by gradient.
        max_iter: of each start, for the progress bar.
        verbose: show a progress bar for each group.
        checkpoints: where to write how far it came, and what to resume from.
        device: of the starts that are resumed.

    Raises:
        KeyboardInterrupt: a signal came before any start had a row of history.
    """
    checkpoints = checkpoints or Checkpoints()
    n_done, best, running, state = 0, None, None, checkpoints.state
    if state is not None:
        device = device or torch.device("cpu")
        remaining = [Parameters.from_arrays(state["starts"][str(i)]).to(device) for i in range(len(state["starts"]))]
        groups, n_done, running = in_groups(remaining, state["together"]), state["n_before"], state["running"]
        best = None if state["best"] is None else FitResult.from_arrays(state["best"], device)
    with interruptible() as interruption:
        for i, group in enumerate(groups):
            inner = checkpoints.within(
                {} if checkpoints.path is None else _restarts_state(groups[i:], n_done, best), running
            )
            n_done, running = n_done + len(group), None
            name = f"EM {n_done}" if len(group) == 1 else f"EM {n_done - len(group) + 1} to {n_done}"
            with ProgressBar(max_iter, verbose if is_rank_zero() else False, name) as bar:
                results = run(group, callback=partial(_update, bar), checkpoints=inner)
            best = _best_so_far(best, results)
            if len(results) < len(group) or any(result.interrupted for result in results):
                break
            if checkpoints.path is not None and (interruption.requested or i == len(groups) - 1):
                checkpoints.write(_restarts_state(groups[i + 1 :], n_done, best))
            if interruption.requested:
                break
    if best is None:
        raise KeyboardInterrupt
    return best


def _best_so_far(best: FitResult | None, results: Sequence[FitResult]) -> FitResult | None:
    """The one of highest rank, with the last rows of all."""
    rows = () if best is None else best.starts
    numbered = [replace(result, start=len(rows) + i) for i, result in enumerate(results)]
    winner = max([*([] if best is None else [best]), *numbered], key=lambda result: result.rank, default=None)
    return None if winner is None else replace(winner, starts=(*rows, *(result.last_row for result in results)))


def _restarts_state(groups: Sequence[Sequence[Parameters]], n_before: int, best: FitResult | None) -> dict[str, Any]:
    """To be stored: the starts that are left, those under way first."""
    remaining = [start.to(torch.device("cpu")).arrays() for start in chain(*groups)]
    return {
        "starts": {str(i): arrays for i, arrays in enumerate(remaining)},
        "together": len(groups[0]) if groups else 1,
        "n_before": n_before,
        "best": None if best is None else best.arrays(),
        "running": None,
    }


def _update(bar: ProgressBar, row: Row) -> None:
    bar.move(row["step"], f"{row['log_prob']:.4f} nats per unit")


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


def warn_of_floor(result: FitResult, observation: Observation) -> None:
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


def warn_of_disagreement(table: pd.DataFrame, best: FitResult, n_units: float) -> None:
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
