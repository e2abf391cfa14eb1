"""The gain of adaptive models over static ones, by position in the sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from seqmodels.model import SequenceModel

if TYPE_CHECKING:
    import pandas as pd


def octave_edges(longest: int) -> np.ndarray:
    """Return the first position of each octave up to position ``longest``: 1, 2, 4, ..., then ``longest + 1``.

    An octave has the positions from 2^i to 2^(i+1) - 1.

    >>> octave_edges(5).tolist()
    [1, 2, 4, 6]
    """
    n = max(1, int(longest)).bit_length()
    return np.array([*(2**i for i in range(n)), max(1, int(longest)) + 1])


def gain_by_position(model: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> pd.DataFrame:
    """Average ``log p`` under one model minus ``log p`` under another over the steps of each octave of positions.

    An octave has the positions from 2^i to 2^(i+1) - 1 in their sequence.

    Args:
        model, other: log-probability of each step of each test sequence, a list of ``(T,)`` arrays in nats.

    Returns:
        A frame with columns ``first`` and ``last`` (positions, from 1), ``n_steps``, ``n_sequences``, ``gain`` (nats
        per step) and ``share`` of the sum over all steps (NaN if the sum is zero). Steps that are -inf under one of the
        two are left out.
    """
    import pandas as pd

    edges = octave_edges(max(map(len, model), default=1))
    total, count, reached = (np.zeros(len(edges) - 1) for _ in range(3))
    for a, b in zip(model, other, strict=True):
        both = np.isfinite(a) & np.isfinite(b)
        bins = np.searchsorted(edges, np.flatnonzero(both) + 1, side="right") - 1
        total += np.bincount(bins, weights=np.asarray(a, dtype=float)[both] - b[both], minlength=len(total))
        n_in_bin = np.bincount(bins, minlength=len(total))
        count += n_in_bin
        reached += n_in_bin > 0
    mean = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    everything = float(total.sum())
    return pd.DataFrame(
        {
            "first": edges[:-1],
            "last": edges[1:] - 1,
            "n_steps": count.astype(int),
            "n_sequences": reached.astype(int),
            "gain": mean,
            "share": total / everything if everything else np.full(len(total), np.nan),
        }
    )


def counterparts(frame: pd.DataFrame, models: Mapping[str, SequenceModel]) -> dict[str, str]:
    """Return the static model that each adaptive model should be compared with, by the adaptive model's name.

    An adaptive model changes its parameters with what it reads of a sequence; a static one does not. It is the
    best-ranked of the models that the adaptive one is made of or that have the same settings; if none has a rank, the
    best static model. The dictionary is empty if no static model has a rank.

    Args:
        frame: the frame of the comparison, best first, with columns ``model``, ``rank`` and ``memory``.
        models: the fitted models by name.
    """
    ranked = frame[frame["rank"].notna()]
    static = [name for name in ranked.loc[ranked["memory"] == "static", "model"] if name in models]
    adaptive = [name for name in ranked.loc[ranked["memory"] == "adaptive", "model"] if name in models]
    return {name: _counterpart(models[name], static, models) for name in adaptive} if static else {}


def _counterpart(model: SequenceModel, static: list[str], models: Mapping[str, SequenceModel]) -> str:
    members = list(model._members().values())
    settings = {repr(member) for member in members}
    of_members = [name for name in static if models[name] in members or repr(models[name]) in settings]
    return [*of_members, *static][0]
