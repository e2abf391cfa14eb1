"""The states of given sequences as one long table, with a row for each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqmodels.encodings import Encoding
from seqmodels.encodings.examples import n_states_of
from seqmodels.encodings.text import encoded_steps
from seqmodels.sequences import Sequences
from seqmodels.sequences.zones import with_zone

if TYPE_CHECKING:
    import pandas as pd


def states_frame(
    encoding: Encoding, scored: Sequences, paths: Sequence[np.ndarray], posteriors: Sequence[np.ndarray]
) -> pd.DataFrame:
    """Return a row for each step of ``scored``, the sequences that have states, in their order.

    Args:
        encoding: by which symbols and texts become steps.
        scored: the sequences, or the targets of pairs.
        paths: states of each sequence ``(T,)``, integers; only the last steps count where a source comes before.
        posteriors: probabilities of the states of each, ``(T, K)``.

    Returns:
        Columns ``sequence`` (its number, from 0), ``name``, ``position`` (from 1), the times by their name where the
        sequences have some, ``symbol`` of symbols and texts, ``state``, and ``probability``, that of the state at this
        step.
    """
    import pandas as pd

    parts = []
    for i, (item, path, posterior) in enumerate(zip(scored, paths, posteriors, strict=True)):
        n = n_states_of(encoding, item)
        states = path[len(path) - n :]
        part = pd.DataFrame({"sequence": i, "name": scored.names[i], "position": range(1, n + 1)})
        if scored.times is not None:
            part[scored.time_name] = with_zone(scored.times[i], scored.time_unit)
        if scored.kind != "vectors":
            part["symbol"] = encoded_steps(encoding, item)
        part["state"] = states
        part["probability"] = posterior[len(posterior) - n :][range(n), states]
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def named_states(states: pd.Series, names: Sequence[str] | None, n_states: int) -> pd.Series:
    """Return the names of the states in place of their numbers, or the numbers where ``names`` is None.

    Raises:
        ValueError: names that are not ``n_states``, or of which two are the same.
    """
    if names is None:
        return states
    if len(names) != n_states or len(set(names)) != n_states:
        raise ValueError(f"state_names are {list(names)}; pass {n_states} different names, one for each state")
    return states.map(dict(enumerate(names)))
