"""Hidden states of sequences as one long data frame with a row for each step."""

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
    """Return the hidden states of sequences as a data frame with one row for each step, in order.

    Args:
        encoding: encoding that turns symbols and texts into steps.
        scored: the sequences that have states; for pairs, the targets.
        paths: state of each step of each sequence, integer arrays ``(T,)``. If a source comes before the target, only
            the last steps, which are the target's, are used.
        posteriors: probability of each of K states at each step of each sequence, arrays ``(T, K)``.

    Returns:
        Columns ``sequence`` (number of the sequence, from 0), ``name``, ``position`` (from 1), the times under their
        own name if the sequences have times, ``symbol`` for symbols and texts, ``state``, and ``probability`` (that of
        this state at this step).
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
    """Return ``states`` with the number of each state replaced by its name; unchanged if ``names`` is None.

    Args:
        states: numbers of states from 0.
        names: a name for each state, in the order of the numbers.
        n_states: number of states of the model.

    Raises:
        ValueError: if there are not ``n_states`` names, or two of them are equal.
    """
    if names is None:
        return states
    if len(names) != n_states or len(set(names)) != n_states:
        raise ValueError(f"state_names are {list(names)}; pass {n_states} different names, one for each state")
    return states.map(dict(enumerate(names)))
