"""EM from several starts: the best objective wins, but a start that ends on a floor loses to one that does not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from tqdm import tqdm

from seqmodels.hmm.baum_welch import Fitted
from seqmodels.hmm.parameters import Parameters
from seqmodels.observations import Observation
from seqmodels.training import Checkpoints, interruptible


def in_groups(starts: Sequence[Parameters], size: int) -> list[Sequence[Parameters]]:
    """At most ``size`` in each."""
    return [starts[i : i + size] for i in range(0, len(starts), size)]


def best_of(
    groups: Sequence[Sequence[Parameters]],
    run: Callable[..., list[Fitted]],
    *,
    max_iter: int,
    verbose: bool,
    checkpoints: Checkpoints | None = None,
    n_before: int = 0,
    best: Fitted | None = None,
) -> Fitted:
    """``run(starts, observe=..., checkpoints=...)`` for every group of starts, with a bar each if ``verbose``; the one of highest rank.

    Args:
        n_before, best: starts that an earlier run took, and the best of them, if ``checkpoints`` go on from its state.

    Raises:
        KeyboardInterrupt: a signal came before any start had a line of history.
    """
    n, kept = n_before, checkpoints or Checkpoints()
    running = None if kept.state is None else kept.state["running"]
    with interruptible() as interruption:
        for i, group in enumerate(groups):
            inner = kept.within({} if kept.path is None else _state(groups[i:], n, best), running)
            n, running = n + len(group), None
            name = f"EM {n}" if len(group) == 1 else f"EM {n - len(group) + 1} to {n}"
            with tqdm(total=max_iter, disable=not verbose, desc=name) as bar:
                found = run(group, observe=partial(_show, bar), checkpoints=inner)
            best = max([*([] if best is None else [best]), *found], key=lambda fitted: fitted.rank, default=None)
            if len(found) < len(group) or any(fitted.interrupted for fitted in found):
                break
            if interruption.asked or i == len(groups) - 1:
                kept.write(_state(groups[i + 1 :], n, best))
            if interruption.asked:
                break
    if best is None:
        raise KeyboardInterrupt
    return best


def go_on(
    state: Mapping[str, Any],
    run: Callable[..., list[Fitted]],
    device: torch.device,
    *,
    max_iter: int,
    verbose: bool,
    checkpoints: Checkpoints,
) -> Fitted:
    """``best_of`` the starts that were left in a checkpoint of it."""
    left = [Parameters.of(state["starts"][str(i)]).to(device) for i in range(len(state["starts"]))]
    best = None if state["best"] is None else Fitted.of(state["best"], device)
    n_before, groups = state["n_before"], in_groups(left, state["together"])
    return best_of(
        groups,
        run,
        max_iter=max_iter,
        verbose=verbose,
        checkpoints=checkpoints,
        n_before=n_before,
        best=best,
    )


def _state(groups: Sequence[Sequence[Parameters]], n_before: int, best: Fitted | None) -> dict[str, Any]:
    """To be stored: the starts that are left, those under way first."""
    left = [start.to(torch.device("cpu")).arrays() for start in chain(*groups)]
    return {
        "starts": {str(i): arrays for i, arrays in enumerate(left)},
        "together": len(groups[0]) if groups else 1,
        "n_before": n_before,
        "best": None if best is None else best.arrays(),
        "running": None,
    }


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
