"""Held-out steps, on which the weights of a mixture are learned and its members are not trained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from seqmodels.encodings import Bytes, Encoding
from seqmodels.encodings.examples import Example
from seqmodels.encodings.series import SeriesEncoding

SHORTEST = 20  # fewest steps of a single sequence that is cut


def hold_out_steps(
    examples: list[Example], fraction: float, encoding: Encoding, random_state: int
) -> tuple[list[Example], list[Example]]:
    """Split training sequences into a part for the members of a mixture and a held-out part for its weights.

    Whole sequences are drawn, among those that have a weight; of a single sequence the head is held out. Nothing is
    held out of a single sequence that has a source or fewer than ``SHORTEST`` steps.

    Args:
        examples: encoded training sequences.
        fraction: share of the steps to hold out.
        encoding: their encoding; text is cut between characters.
        random_state: seed of the draw.

    Returns:
        The rest and the held-out sequences.
    """
    usable = [i for i, example in enumerate(examples) if example.weight > 0]
    if len(usable) > 1:
        order = np.random.default_rng(random_state).permutation(usable)
        lengths = np.array([len(examples[i].values) for i in order])
        before = np.cumsum(lengths) - lengths
        n_held_out = max(1, int((before < fraction * lengths.sum()).sum()))
        chosen = set(order[: min(n_held_out, len(usable) - 1)].tolist())
        rest = [example for i, example in enumerate(examples) if i not in chosen]
        return rest, [examples[i] for i in sorted(chosen)]
    only = examples[usable[0]]
    length = len(only.values)
    if only.source is not None or length < SHORTEST:
        return examples, []
    at = min(length - 1, max(1, round(fraction * length)))
    if isinstance(encoding, Bytes):
        at = next_character(only.values, at)
    return [segment(only, at, length, encoding)], [segment(only, 0, at, encoding)]


def next_character(values: np.ndarray, at: int) -> int:
    """Return the first position from ``at`` on where one of the UTF-8 bytes ``values`` begins a character.

    It is ``at`` if there is none.
    """
    begins = np.flatnonzero((np.asarray(values[at:]) & 0xC0) != 0x80)
    return at + int(begins[0]) if len(begins) else at


def segment(example: Example, begin: int, end: int, encoding: Encoding) -> Example:
    """Return steps ``begin`` to ``end - 1`` of a sequence without a source, as a sequence of its own.

    Args:
        example: the encoded sequence.
        begin, end: the steps.
        encoding: its encoding, by which the number of raw units of the part is found.
    """
    values = np.asarray(example.values)[begin:end]
    states = None if example.states is None else example.states[begin:end]
    inputs = None if example.inputs is None else example.inputs[begin:end]
    if isinstance(encoding, SeriesEncoding):  # log-determinants depend on earlier frames, so that steps get equal parts
        part = len(values) / len(example.values)
        n_units = round(part * example.n_units)
        total = part * example.log_det
        return replace(example, values=values, n_units=n_units, log_det=total, states=states, inputs=inputs)
    last = encoding.last_unit(values)
    log_det = np.broadcast_to(encoding.log_det(encoding.decode(values)), len(values)) if values.ndim == 2 else 0.0
    n_units, total = int(last[-1]) + 1, float(np.sum(log_det))
    return replace(example, values=values, n_units=n_units, log_det=total, states=states, inputs=inputs)
