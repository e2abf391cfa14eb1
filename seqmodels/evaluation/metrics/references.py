"""Pair hypotheses with their references, of which each may have several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def references_of(entry: Any) -> list[Any]:
    """Return the references of one hypothesis as a list.

    Args:
        entry: a single reference (a text or an integer sequence), or a list of several.
    """
    is_list = isinstance(entry, list | tuple) and len(entry) > 0
    return list(entry) if is_list and (isinstance(entry[0], str) or np.ndim(entry[0]) > 0) else [entry]


def reference_pairs(references: Sequence[Any], hypotheses: Sequence[Any]) -> tuple[np.ndarray, list[Any], list[Any]]:
    """Pair every reference with its hypothesis.

    Args:
        references: a text or an integer sequence for each hypothesis, or a list of several.
        hypotheses: decoded texts or integer sequences.

    Returns:
        Three values of equal length: the index of the hypothesis of each reference, the references, and their
        hypotheses.

    Raises:
        ValueError: one text is given instead of a list, the numbers of references and hypotheses differ, or both are
            empty.
    """
    if isinstance(references, str) or isinstance(hypotheses, str):
        raise ValueError("one text is given where a list of them is expected; pass [text]")
    if len(references) != len(hypotheses) or not len(hypotheses):
        raise ValueError(f"there are {len(references)} references but {len(hypotheses)} hypotheses; pass one for each")
    groups = [references_of(entry) for entry in references]
    index = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return index, [item for group in groups for item in group], [hypotheses[i] for i in index.tolist()]
