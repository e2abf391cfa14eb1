"""Mixtures of models that read one text by different encodings, over segments at whose ends all begin a symbol.

A *cut* is a byte ``x_c`` before which every encoding begins a new symbol, whatever comes after it: no symbol of any
encoding contains the pair ``x_{c-1} x_c``, both are ASCII, and ``x_{c-1}`` is no white space (because the division of
white space depends on what follows it). Whether a byte is a cut, and the symbols before it, depend on ``x_1 .. x_c``
alone. A segment ends with the byte of a cut, and the last one with the end of the text. Let ``G_k`` be the probability
of what is known at a cut,

    G_k(c) = p_k(the symbols before x_c) p_k(the next symbol is in S_k(x_c) | them)

where ``S_k(x_c)`` is, for ``BPE``, all pieces that begin with ``x_c``, and for ``Bytes`` and ``Characters`` the one
symbol that the text has there (``Characters`` could also spell a known character as a raw byte; only its usual spelling
counts). At the end, ``G_k`` is ``p_k`` of all symbols. A segment then has the probability
``p_k(segment | past) = G_k(c_j) / G_k(c_{j-1})``.

No segment that may follow a past is the beginning of another, because each ends with its first cut. Under one model,
they are events that exclude each other, so that their probabilities sum to at most one, and so do those of any mixture
whose weights depend on the past. Therefore the probabilities of all texts sum to at most one, and the figure is a
bound. This would not hold if models were mixed at every boundary of pieces: where ``a``, ``b`` and ``ab`` are pieces,
``p(a) + p(b) + p(ab)`` of a model of bytes is more than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from seqmodels.encodings import BPE, Bytes, Characters, Encoding
from seqmodels.encodings.examples import Example
from seqmodels.encodings.text import Text
from seqmodels.model import SequenceModel
from seqmodels.wrappers.mixture.weights import log_sum_exp

N_ASCII = 128
WHITE_SPACE = b"\t\n\v\f\r\x1c\x1d\x1e\x1f "
CAUSAL = (Bytes, Characters, BPE)  # encodings whose symbols before a cut do not depend on what comes after it


@dataclass(frozen=True)
class CommonCuts:
    """The positions, called cuts, at which several encodings of a text all begin a symbol.

    Attributes:
        can_cut: True for a pair of ASCII bytes if the second is a cut after the first, ``(128, 128)`` bool.
    """

    can_cut: np.ndarray

    @classmethod
    def of(cls, encodings: Sequence[Encoding]) -> CommonCuts:
        """Return the cuts, positions at which fitted encodings of a text all begin a symbol, as pairs of bytes.

        Args:
            encodings: the encodings, each ``Bytes``, ``Characters`` or ``BPE``.

        Raises:
            ValueError: If an encoding is of another class, whose symbols before a cut may depend on what comes after
                it.
        """
        can_cut = np.ones((N_ASCII, N_ASCII), dtype=bool)
        can_cut[list(WHITE_SPACE)] = False
        for encoding in encodings:
            if not isinstance(encoding, CAUSAL):
                raise ValueError(
                    f"a model reads by {encoding!r}; models of different encodings are mixed only if these are Bytes, "
                    "Characters and BPE"
                )
            for symbol in encoding.spelling():
                for a, b in pairwise(symbol):
                    if max(a, b) < N_ASCII:
                        can_cut[a, b] = False
        return cls(can_cut)

    def places(self, values: np.ndarray) -> np.ndarray:
        """Return the positions of the J cuts, ``(J,)``: bytes at which all encodings begin a symbol.

        Args:
            values: the T bytes of a text, ``(T,)``.
        """
        before, after = values[:-1], values[1:]
        is_ascii = (before < N_ASCII) & (after < N_ASCII)
        return 1 + np.flatnonzero(is_ascii & self.can_cut[before % N_ASCII, after % N_ASCII])

    def log_probs(self, member: SequenceModel, examples: list[Example]) -> list[np.ndarray]:
        """Return the log-probability in nats of each segment between two cuts, where all encodings begin a symbol.

        The result has an array ``(J + 1,)`` for each sequence with J cuts.

        Args:
            member: a fitted model of text, with an encoding of its own.
            examples: sequences of bytes.
        """
        encoding = member.encoding_
        assert isinstance(encoding, Text), "checked when the mixture was made"
        encoded = [in_encoding(example, encoding) for example in examples]
        first = np.array([symbol[0] for symbol in encoding.spelling()])
        n_bytes = np.array([len(symbol) for symbol in encoding.spelling()])
        if (n_bytes[first < N_ASCII] == 1).all():  # no pieces, so that S_k is the symbol at the cut
            each = zip(examples, encoded, member._steps(encoded), strict=True)
            return [self._of_segments(example, other, steps, encoding, None) for example, other, steps in each]
        parts = []
        for example, other in zip(examples, encoded, strict=True):
            (table,) = member._event_log_probs([other])
            values = np.asarray(other.values)
            chosen = np.append(values, encoding.size)[: len(table)]
            steps = table[np.arange(len(table)), chosen]
            parts.append(self._of_segments(example, other, steps, encoding, (table, first)))
        return parts

    def _of_segments(
        self,
        example: Example,
        encoded: Example,
        steps: np.ndarray,
        encoding: Encoding,
        events: tuple[np.ndarray, np.ndarray] | None,
    ) -> np.ndarray:
        """Return the log-probabilities of the segments of one sequence under a model, ``(J + 1,)`` for J cuts.

        A cut is a byte at which all encodings begin a symbol, and a segment is the text between two cuts.

        Args:
            example: the sequence as bytes.
            encoded: the sequence in the model's encoding.
            steps: log-probabilities of its symbols, with the end if that is an event.
            encoding: the model's encoding.
            events: log-probabilities of all symbols at each step, and the first byte of each symbol; None for an
                encoding whose ASCII symbols are single bytes.
        """
        cuts = self.places(np.asarray(example.values))
        ends = encoding.last_unit(np.asarray(encoded.values))
        at = np.searchsorted(ends, cuts)  # symbols that begin at the cuts
        assert (np.append(-1, ends)[at] == cuts - 1).all(), "symbols begin at cuts"
        total = np.append(0.0, np.cumsum(steps))
        begins = steps[at]
        if events is not None:
            table, first = events
            begins = np.array(
                [log_sum_exp(table[t, : len(first)][first == example.values[c]]) for t, c in zip(at, cuts, strict=True)]
            )
        reached = np.concatenate([[0.0], total[at] + begins, total[-1:]])
        before, after = reached[:-1], reached[1:]
        lost = np.isneginf(before)
        return np.where(lost, -np.inf, after - np.where(lost, 0.0, before))

    def on_bytes(self, example: Example, segments: np.ndarray, has_end: bool) -> np.ndarray:
        """Put the log-probability of each segment on its last byte, 0 on others: ``(T,)``, or ``(T + 1,)`` with an end.

        A segment is the text between two cuts, where all encodings begin a symbol.

        Args:
            example: sequence of T bytes with J cuts.
            segments: log-probabilities of its segments, ``(J + 1,)``.
            has_end: True if the end of the sequence is a further step; the last segment is then put on it.
        """
        steps = np.zeros(len(example.values) + has_end)
        steps[self.places(np.asarray(example.values))] = segments[:-1]
        steps[-1] += segments[-1]
        return steps


def text_of(example: Example) -> str:
    """Return the text of an encoded sequence whose values are UTF-8 bytes."""
    return bytes(np.asarray(example.values, dtype=np.uint8)).decode()


def in_encoding(example: Example, encoding: Encoding) -> Example:
    """Return a sequence of bytes, and its source, encoded by another fitted encoding of text.

    Args:
        example: the sequence, whose values are UTF-8 bytes.
        encoding: the other encoding.
    """
    source = example.source
    if source is not None:
        source = encoding.encode(bytes(np.asarray(source, dtype=np.uint8)).decode())
    return replace(example, values=encoding.encode(text_of(example)), source=source)
