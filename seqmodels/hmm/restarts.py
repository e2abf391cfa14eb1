"""EM from several starts: the best objective wins, but a start that ends on a floor loses to one that does not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tqdm import tqdm

from seqmodels.hmm.baum_welch import Fitted
from seqmodels.hmm.parameters import Parameters
from seqmodels.observations import Observation


def in_groups(starts: Sequence[Parameters], size: int) -> list[Sequence[Parameters]]:
    """At most ``size`` in each."""
    return [starts[i : i + size] for i in range(0, len(starts), size)]


def best_of(
    groups: Sequence[Sequence[Parameters]], run: Callable[..., list[Fitted]], *, max_iter: int, verbose: bool
) -> Fitted:
    """``run(starts, observe=...)`` for every group of starts, with a bar each if ``verbose``; the one of highest rank."""
    best, n = list[Fitted](), 0
    for group in groups:
        n += len(group)
        name = f"EM {n}" if len(group) == 1 else f"EM {n - len(group) + 1} to {n}"
        with tqdm(total=max_iter, disable=not verbose, desc=name) as bar:
            found = run(group, observe=partial(_show, bar))
        best = [max([*best, *found], key=lambda fitted: fitted.rank)]
    return best[0]


def warn_of_floor(fitted: Fitted, observation: Observation) -> None:
    """Warn, at the line that called ``fit``, if a floor bounds what was found."""
    hits = int(fitted.history["floor_hits"].iloc[-1])
    if hits:
        floors = {v for name, v in observation.get_params().items() if name.endswith("min_covariance")}
        warnings.warn(
            f"{hits} state(s) ended on the floor of the variances, min_covariance={min(floors)}, which then sets the score; "
            "use fewer states or components, or raise min_covariance",
            UserWarning,
            stacklevel=5,
        )


def _show(bar: Any, row: dict[str, float]) -> None:
    bar.set_postfix_str(f"{row['log_prob']:.4f} nats per unit")
    bar.update(int(row["step"]) - bar.n)
