"""EM from several starts: the best objective wins, but a start that ends on a floor loses to one that does not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tqdm import tqdm

from seqmodels.hmm.baum_welch import Fitted
from seqmodels.hmm.parameters import Parameters
from seqmodels.observations import Observation


def best_of(starts: Iterable[Parameters], run: Callable[..., Fitted], *, max_iter: int, verbose: bool) -> Fitted:
    """``run(start, observe=...)`` for every start, with a bar each if ``verbose``; the one of highest rank."""
    best: Fitted | None = None
    for i, start in enumerate(starts):
        with tqdm(total=max_iter, disable=not verbose, desc=f"EM {i + 1}") as bar:
            fitted = run(start, observe=partial(_show, bar))
        if best is None or fitted.rank > best.rank:
            best = fitted
    assert best is not None
    return best


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
