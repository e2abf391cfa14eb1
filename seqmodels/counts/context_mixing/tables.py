"""The learned numbers of a context-mixing model as flat arrays: counters, probability maps, weights and positions.

Compiled functions get all arrays as one ``MixingTables``. A symbol of an alphabet of V symbols is read as ``n_bits =
ceil(log2 V)`` binary decisions, highest bit first, and one more below symbol 0 if the end of a sequence is an event:
symbol 0 or the end. The root of this binary tree is node 1; nodes ``2 n`` and ``2 n + 1`` are below node n. Counters
are in buckets, slots of a hash table, each with a key and the counters of 3 successive decisions in one context.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqmodels.counts.context_mixing.histories import N_HISTORIES, transitions

BITS_PER_BUCKET = 3  # decisions whose counters lie side by side
BUCKET = 2**BITS_PER_BUCKET  # entries of a bucket: a check, and a counter for each of its nodes
# A counter: p(bit 1) in 16 bits, the level of its confidence in 6, its bit history in 9.
NEW_COUNTER = 32_768 << 15
N_LEVELS = 64
EXACT_LEVELS = 24  # levels below it are numbers of observations
GROWTH = 1.09  # factor of the number of observations between higher levels
RATE_LIMIT = 255  # observations after which a counter's rate of adaptation is constant
INPUTS_PER_CONTEXT = 4
INPUTS_PER_MATCH = 2
N_MATCH_LENGTHS = 32
PLACES = 16  # buckets of a context for each string that it can have, if these are few
FEW_BUCKETS = 2**16  # a context with more buckets has two for each string that it can have
EARLIER_PLACES = 2  # value of PLACES for files that do not contain it
N_STRETCH = 4096  # entries of the table of log(p / (1 - p))
LARGEST_LOGIT = 12.0  # bound of a mixed prediction
REFINEMENT_POINTS = 33
N_REFINEMENTS = 3
MOST_SYMBOLS = 1 << 22  # largest alphabet of a file, because each symbol takes 16 bytes
SYMBOL_ROWS = 1024  # weight vectors selected by a symbol; in larger alphabets some symbols share one
NODE_ROWS = 4096
NODE_DEPTHS = 8  # depths of nodes that have different weight vectors
# Sizes for bytes that are numbers, see ``picture_and_sound``.
N_EXPERTS = 3
INPUTS_PER_EXPERT = 1
N_FEATURES = 24
MAX_PHASES = 4
N_LEVELS_OF_ERROR = 24
N_FITS = 2

# Contexts, by number; orders 0 to 9 stand for themselves.
WORD, TWO_WORDS, THREE_WORDS, WORD_SKIP, LAST_WORD, WORD_LINE, WORD_PUNCTUATION = 20, 21, 22, 23, 24, 25, 26
SKIP_FIRST, SKIP_FIRST_3, SKIP_FIRST_4, SKIP_SECOND, SKIP_THIRD = 30, 31, 32, 33, 34
ABOVE, COLUMN, LINE, INDIRECT_1, INDIRECT_2, INDIRECT_BOTH = 40, 41, 42, 43, 44, 45

FORMAT, FORMAT_COLUMN, WORD_PARAGRAPH = 46, 47, 48
FIRST_OF_FIELDS = 50
FIELD, FIELD_RELATION, FIELD_ABOVE, TWO_FIELDS, FIELD_BELOW, FIELD_AFTER = range(FIRST_OF_FIELDS, 56)
FIRST_OF_RECORDS = 60
RECORD_PLACE, RECORD_LEFT, RECORD_ABOVE, MASKED_3, MASKED_4, MASKED_6 = range(FIRST_OF_RECORDS, 66)

# The effect of a symbol of text on a field, see ``fields``: none, ends a part of it, ends it.
NO_SEPARATOR, ENDS_PART, SEPARATES = 0, 1, 2

# Classes of the symbols of text; 0: none yet.
LETTER, CAPITAL, NEWLINE, SPACE, OTHER = 1, 2, 3, 4, 5

# Selectors of weight vectors, by number.
BY_NODE, BY_SYMBOL, BY_MATCH, BY_SECOND_SYMBOL, BY_WORD, BY_CLASS, BY_NOTHING = range(7)
N_WORD_LENGTHS, N_CLASSES = 16, 8
N_MATCH_STATES = 2 + 2 * 9
MAX_HITS = 12  # largest number of known contexts that selects a weight vector of its own

EARLIER_TEXT_CONTEXTS = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    8,
    WORD,
    TWO_WORDS,
    WORD_SKIP,
    LAST_WORD,
    SKIP_FIRST_3,
    SKIP_SECOND,
    ABOVE,
    INDIRECT_2,
)
# Contexts for each layout of bytes (see ``byte_layout``): prose, tables and binary data, with the same orders first.
# For bytes that are numbers, contexts from ``FIRST_SAMPLE_CONTEXT`` to ``FIRST_EXTRA_CONTEXT - 1`` are replaced, and
# there are none after them.
FIRST_SAMPLE_CONTEXT, FIRST_EXTRA_CONTEXT = 5, 16
N_SAMPLE_CONTEXTS = FIRST_EXTRA_CONTEXT - FIRST_SAMPLE_CONTEXT
ORDERS = (0, 1, 2, 3, 4, 5, 6, 8)
TEXT_CONTEXTS = (
    (*EARLIER_TEXT_CONTEXTS, FORMAT_COLUMN, INDIRECT_BOTH, FORMAT, WORD_PARAGRAPH),
    (
        *(*ORDERS, WORD, TWO_WORDS, FIELD_BELOW, LAST_WORD, SKIP_FIRST_3, TWO_FIELDS, FIELD_ABOVE, INDIRECT_2),
        *(FIELD, FIELD_RELATION, FIELD_AFTER, INDIRECT_BOTH),
    ),
    (
        *(*ORDERS, WORD, MASKED_3, MASKED_4, SKIP_FIRST, SKIP_FIRST_3, SKIP_SECOND, INDIRECT_1, INDIRECT_2),
        *(MASKED_6, RECORD_PLACE, RECORD_LEFT, RECORD_ABOVE),
    ),
)
SYMBOL_CONTEXTS = (0, 1, 2, 3, 4, 5, 6, SKIP_FIRST, SKIP_FIRST_3, SKIP_SECOND, INDIRECT_2)
TEXT_SELECTORS = (BY_NODE, BY_SYMBOL, BY_MATCH, BY_SECOND_SYMBOL, BY_WORD, BY_NOTHING)
SYMBOL_SELECTORS = (BY_NODE, BY_SYMBOL, BY_MATCH, BY_SECOND_SYMBOL, BY_NOTHING)
TEXT_MATCHES = (12, 5)
SYMBOL_MATCHES = (6,)


class MixingTables(NamedTuple):
    """The arrays of a context-mixing model that compiled functions read and write, and the offsets of their parts.

    The first four arrays are learned, the others constant. There are V symbols, N contexts, K selectors (rules that
    choose the weight vector of a mixer, a weighted sum of predictions), Q match lengths (a match is an earlier string
    equal to the last symbols), and S bit-history states (summaries of the bits seen after a context). Names that end in
    ``_at`` are offsets in ``floats``, except ``indirect_at``; the probability maps of bit histories are at 0.

    Attributes:
        counters: counters of contexts, int32, in buckets (hash-table slots) of 8.
        floats: maps of bit histories to probabilities, weights and refinements, float64.
        integers: positions of strings from 0 on, then what followed symbols, int64.
        symbols: all that was trained on, each sequence followed by V, int64.
        contexts: number of each context for each layout of bytes, ``(layouts, N)``.
        first_bucket: first bucket of each context, ``(N,)``.
        bucket_mask: number of buckets of each context minus one, ``(N,)``.
        selectors: number of each selector, ``(K,)``.
        first_row: first weight vector of each selector, ``(K,)``.
        match_lengths: number of symbols that must agree in a match, ``(Q,)``.
        letters: number of each symbol's letter, the same for its capital, ``(V + 1,)``; 0 if it is not a letter.
        classes: class of each symbol, such as ``LETTER``, ``(V + 1,)``.
        separators: effect of each symbol on fields, such as ``SEPARATES``, ``(V + 1,)``; empty if lines have no fields.
        history_after: bit-history state after each bit, ``(S, 2)``.
        stretch: table of ``log(p / (1 - p))``, ``(N_STRETCH,)``.
        rates: rate of adaptation of a counter at each level of experience, ``(N_LEVELS,)``.
        level_steps: number of observations to the next level, ``(N_LEVELS,)``.
        options: learning rates and the like, in the order of ``OPTIONS``.
        n_symbols: number of symbols V.
        n_bits: number of bits of a symbol.
        n_inputs: number of inputs of a mixer, a multiple of four.
        map_counts_at: how often each map entry was used.
        chain_at: weights that combine a context's prediction with that of the context before it.
        match_maps_at: probabilities that the bit predicted by a match comes.
        samples_at: least-squares fits to bytes that are numbers.
        sample_errors_at: mean errors of these fits.
        n_experts: number of predictions of a number; 0 if bytes are never numbers.
        n_number_contexts: number of contexts for bytes that are numbers.
        weights_at: weight vectors of the mixers.
        final_weights_at: weights of the final mixer.
        second_final_at: weights of the final mixer that is selected by the match; 0 if there is none.
        row_counts_at: how often each weight vector was learned; 0 if that is not counted.
        refinements_at: outcomes after similar predictions.
        refinement_mask: number of their rows minus one.
        indirect_at: offset in ``integers`` of what followed symbols.
        indirect_mask: number of these entries minus one.
        match_mask: number of entries of string positions minus one.
    """

    counters: np.ndarray
    floats: np.ndarray
    integers: np.ndarray
    symbols: np.ndarray
    contexts: np.ndarray
    first_bucket: np.ndarray
    bucket_mask: np.ndarray
    selectors: np.ndarray
    first_row: np.ndarray
    match_lengths: np.ndarray
    letters: np.ndarray
    classes: np.ndarray
    separators: np.ndarray
    history_after: np.ndarray
    stretch: np.ndarray
    rates: np.ndarray
    level_steps: np.ndarray
    options: np.ndarray
    n_symbols: int
    n_bits: int
    n_inputs: int
    map_counts_at: int
    chain_at: int
    match_maps_at: int
    samples_at: int
    sample_errors_at: int
    n_experts: int
    n_number_contexts: int
    weights_at: int
    final_weights_at: int
    second_final_at: int
    row_counts_at: int
    refinements_at: int
    refinement_mask: int
    indirect_at: int
    indirect_mask: int
    match_mask: int


# Entries of ``MixingTables.options``.
(
    LR,
    LAST_LR,
    LR_DECAY,
    FINAL_LR,
    LAST_FINAL_LR,
    MAP_LIMIT,
    MATCH_RATE,
    REFINEMENT_RATE,
    CHAIN_LR,
    ROW_LR_DECAY,
    LAST_ROW_LR,
) = range(11)
OPTIONS = (0.02, 0.0008, 5e-5, 0.005, 0.001, 255.0, 0.005, 0.02, 0.001, 5e-4)
CHAIN_START, CHAIN_BIAS_START = 0.7, 0.5


def power_of_two(n: float) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << max(0, math.ceil(math.log2(max(n, 1))))


def bits_of(n_symbols: int) -> int:
    """Return the number of binary decisions that distinguish ``n_symbols`` symbols.

    >>> [bits_of(n) for n in (1, 2, 3, 256, 257)]
    [0, 1, 2, 8, 9]
    """
    return (n_symbols - 1).bit_length()


def check_room(n_symbols: int, n_steps: int, n_floats: int, n_integers: int) -> None:
    """Check that a file has arrays at least as large as its alphabet and its number of training steps need.

    Only the largest parts are checked, before ``empty`` allocates any array.

    Args:
        n_symbols: number of symbols of the alphabet.
        n_steps: number of training steps.
        n_floats, n_integers: sizes of ``MixingTables.floats`` and ``MixingTables.integers`` in the file.

    Raises:
        ValueError: if the arrays are too small, or the alphabet has more than ``MOST_SYMBOLS`` symbols.
    """
    least_floats = max(
        N_REFINEMENTS * _refinement_rows(n_steps) * REFINEMENT_POINTS, min(n_symbols + 1, SYMBOL_ROWS) * NODE_DEPTHS
    )
    if n_floats < least_floats or n_integers < _match_slots(n_steps) or n_symbols > MOST_SYMBOLS:
        raise ValueError(
            f"{n_floats:,} floats and {n_integers:,} integers do not belong to a model of {n_symbols:,} symbols that "
            f"read {n_steps:,} steps"
        )


def _refinement_rows(n_steps: int) -> int:
    return power_of_two(min(max(n_steps / 4, 256), 2**16))


def _match_slots(n_steps: int) -> int:
    return power_of_two(min(max(n_steps, 256), 2**22))


def empty(
    n_symbols: int,
    n_steps: int,
    n_buckets: int,
    symbols: np.ndarray,
    spelling: Sequence[bytes] | None,
    places: int = PLACES,
    *,
    has_numbers: bool = False,
    counts_rows: bool = True,
    follows_layout: bool = True,
    has_counters: bool = True,
) -> MixingTables:
    """Return the arrays of a context-mixing model in which nothing is learned yet.

    A bucket is a slot of the hash table of counters.

    Args:
        n_symbols: number of symbols V.
        n_steps: number of steps of all training sequences, which determines the sizes.
        n_buckets: largest number of buckets of each context.
        symbols: array for the symbols of the training sequences.
        spelling: for text, the bytes of each symbol, which are one character or a part of it; None leaves out the
            contexts of text.
        places: number of buckets for each string if strings are few, which avoids collisions of hashes.
        has_numbers: True if symbols are bytes that may be samples of a picture or of sound; requires ``spelling``.
        counts_rows: True if the learning rate of a weight vector falls with how often it was learned; False if the rate
            of all falls with the steps read, as in files of earlier versions.
        follows_layout: True if the contexts of text follow the layout of the bytes, and a second final mixer follows
            the match; False in files of earlier versions.
        has_counters: True to allocate the counters, by far the largest part; False if ``with_counters`` adds them
            later.
    """
    is_text = spelling is not None
    letters, classes = letters_and_classes(n_symbols, spelling)
    layouts: Sequence[Sequence[int]] = (SYMBOL_CONTEXTS,)
    if is_text:
        layouts = TEXT_CONTEXTS if follows_layout else (EARLIER_TEXT_CONTEXTS,)
    contexts = layouts[0]
    selectors = TEXT_SELECTORS if is_text else SYMBOL_SELECTORS
    matches = TEXT_MATCHES if is_text else SYMBOL_MATCHES
    n_bits = bits_of(n_symbols)
    n_contexts, n_selectors, n_matches = len(contexts), len(selectors), len(matches)
    sizes = [_buckets(context, n_symbols, n_bits, n_buckets, places) for context in contexts]
    rows = [_rows(selector, n_symbols, n_bits) for selector in selectors]
    n_experts = N_EXPERTS if has_numbers else 0
    n_inputs = n_contexts * INPUTS_PER_CONTEXT + n_matches * INPUTS_PER_MATCH + n_experts * INPUTS_PER_EXPERT + 1
    n_inputs = 4 * math.ceil(n_inputs / 4)

    after, probability = transitions()
    maps = np.full((n_contexts, N_HISTORIES), 0.5)
    maps[:, : len(probability)] = probability
    weights = np.zeros((sum(rows), n_inputs))
    weights[:, : n_contexts * INPUTS_PER_CONTEXT] = np.tile([0.15, 0.05, 0.0, 0.0], n_contexts)
    weights[:, (n_contexts - 1) * INPUTS_PER_CONTEXT + 3] = 0.4
    chain = np.zeros((n_contexts, N_HISTORIES, 2))
    chain[:, :, 0] = CHAIN_START
    chain[:, :, 1] = np.log(maps / (1 - maps)) * CHAIN_BIAS_START
    n_refinement_rows = _refinement_rows(n_steps)
    grid = np.linspace(-LARGEST_LOGIT, LARGEST_LOGIT, REFINEMENT_POINTS)
    final_weights = np.full((_rows(BY_NODE, n_symbols, n_bits), n_selectors), 1 / n_selectors)
    second = np.full((_rows(BY_MATCH, n_symbols, n_bits) if follows_layout else 0, n_selectors), 1 / n_selectors)
    floats = [
        maps,
        np.full_like(maps, 4.0),
        chain,
        np.full((n_matches, N_MATCH_LENGTHS), 0.8),
        weights,
        np.concatenate([final_weights, second]),
        np.tile(1 / (1 + np.exp(-grid)), (N_REFINEMENTS, n_refinement_rows, 1)),
        *(number_parts() if n_experts else []),
        *([np.zeros(sum(rows))] if counts_rows else []),
    ]
    float_at = np.cumsum([0, *(part.size for part in floats)])
    n_match_slots = _match_slots(n_steps)
    n_indirect = power_of_two(min(max(n_steps, 256), 2**16))
    observations = np.where(
        np.arange(N_LEVELS + 1) < EXACT_LEVELS,
        np.arange(N_LEVELS + 1),
        EXACT_LEVELS * GROWTH ** (np.arange(N_LEVELS + 1) - EXACT_LEVELS),
    )
    p = (np.arange(N_STRETCH) + 0.5) / N_STRETCH
    made = MixingTables(
        counters=np.zeros(0, dtype=np.int32),
        floats=np.concatenate([part.ravel() for part in floats]),
        integers=np.zeros(n_matches * n_match_slots + 2 * n_indirect, dtype=np.int64),
        symbols=symbols,
        contexts=np.array(layouts, dtype=np.int64),
        first_bucket=np.cumsum([0, *sizes[:-1]]).astype(np.int64),
        bucket_mask=np.array(sizes, dtype=np.int64) - 1,
        selectors=np.array(selectors, dtype=np.int64),
        first_row=np.cumsum([0, *rows[:-1]]).astype(np.int64),
        match_lengths=np.array(matches, dtype=np.int64),
        letters=letters,
        classes=classes,
        separators=separators_of(n_symbols, spelling if follows_layout else None),
        history_after=after,
        stretch=np.log(p / (1 - p)),
        rates=1 / (np.minimum(observations[:-1], RATE_LIMIT) + 1.5),
        level_steps=np.maximum(1, np.rint(np.diff(observations))).astype(np.int64),
        options=np.array(OPTIONS),
        n_symbols=n_symbols,
        n_bits=n_bits,
        n_inputs=n_inputs,
        map_counts_at=int(float_at[1]),
        chain_at=int(float_at[2]),
        match_maps_at=int(float_at[3]),
        samples_at=int(float_at[7]),
        sample_errors_at=int(float_at[8]) if n_experts else 0,
        n_experts=n_experts,
        n_number_contexts=min(FIRST_EXTRA_CONTEXT, n_contexts),
        second_final_at=int(float_at[6]) - second.size if follows_layout else 0,
        weights_at=int(float_at[4]),
        final_weights_at=int(float_at[5]),
        row_counts_at=int(float_at[-2]) if counts_rows else 0,
        refinements_at=int(float_at[6]),
        refinement_mask=n_refinement_rows - 1,
        indirect_at=n_matches * n_match_slots,
        indirect_mask=n_indirect - 1,
        match_mask=n_match_slots - 1,
    )
    return with_counters(made) if has_counters else made


def with_counters(made: MixingTables) -> MixingTables:
    """Return the arrays ``made``, which lack counters, with new counters in which nothing is learned yet."""
    counters = np.full(buckets_of(made) * BUCKET, NEW_COUNTER, dtype=np.int32)
    counters[::BUCKET] = 0
    return made._replace(counters=counters)


def buckets_of(made: MixingTables) -> int:
    """Return the number of buckets (slots of the hash table of counters) of all contexts together."""
    return int((made.bucket_mask + 1).sum())


def separators_of(n_symbols: int, spelling: Sequence[bytes] | None) -> np.ndarray:
    """Return the effect of each symbol of text on the fields of a line, ``(V + 1,)``; empty without a spelling.

    0 means none, 1 that the symbol ends a part of a field, 2 that it ends the field.

    Args:
        n_symbols: number of symbols V.
        spelling: bytes of each symbol; None if the symbols are not text.

    >>> separators_of(4, [b"a", b",", b":", b"1"]).tolist()
    [0, 2, 1, 0, 0]
    """
    if spelling is None:
        return np.zeros(0, dtype=np.int64)
    kinds = dict.fromkeys(b",;\t |", SEPARATES) | dict.fromkeys(b".!?\n\"'<>=/-:()[]{}&_", ENDS_PART)
    separators = np.full(n_symbols + 1, NO_SEPARATOR)
    for symbol, text in enumerate(spelling):
        if len(text) == 1:
            separators[symbol] = kinds.get(text[0], NO_SEPARATOR)
    return separators


def number_parts() -> list[np.ndarray]:
    """Return the initial least-squares fits to samples (sums of squares and weights), and their initial mean errors.

    The fits are an array ``(N_FITS, MAX_PHASES, F, F + 2)`` of zeros for F features; the errors are given for each
    expert, phase and two levels of earlier errors.
    """
    sizes = 2.0 ** (np.arange(N_LEVELS_OF_ERROR) / 2) - 1
    errors = np.empty((N_EXPERTS, MAX_PHASES, N_LEVELS_OF_ERROR, N_LEVELS_OF_ERROR))
    errors[:] = np.maximum(1.0, (sizes[:, None] + sizes[None, :]) / 2)
    return [np.zeros((N_FITS, MAX_PHASES, N_FEATURES, N_FEATURES + 2)), errors]


def _buckets(context: int, n_symbols: int, n_bits: int, most: int, places: int) -> int:
    """Return the number of buckets of one context, at most ``most``, and no more than it can use.

    A string can use two buckets, chosen by its hash. If there are few buckets for all strings, three strings may share
    the same two and displace each other over and over; ``places`` buckets for each string avoid that. ``context`` is
    the number of the context.
    """
    per_symbol = sum(2 ** min(depth, n_bits) for depth in range(0, n_bits + 1, BITS_PER_BUCKET))
    values = {0: 1.0, 1: n_symbols + 1.0, SKIP_FIRST: n_symbols + 1.0, 2: (n_symbols + 1.0) ** 2}.get(context)
    if values is None:
        return most
    n_strings = values * per_symbol
    return min(most, max(power_of_two(2 * n_strings), min(power_of_two(places * n_strings), FEW_BUCKETS)))


def _rows(selector: int, n_symbols: int, n_bits: int) -> int:
    by_symbol = min(n_symbols + 1, SYMBOL_ROWS) * NODE_DEPTHS
    rows: Sequence[int] = (
        min(2 ** (n_bits + 1), NODE_ROWS),
        by_symbol,
        (MAX_HITS + 1) * N_MATCH_STATES,
        by_symbol,
        N_WORD_LENGTHS * N_CLASSES**2,
        N_CLASSES * NODE_DEPTHS,
        1,
    )
    return rows[selector]


def letters_and_classes(n_symbols: int, spelling: Sequence[bytes] | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of the letter of each symbol, and its class (letter, space, ...), each ``(V + 1,)``.

    Capitals have the number of their small letter, and symbols that are not letters have 0. Bytes of characters beyond
    ASCII and the apostrophe count as letters.

    Args:
        n_symbols: number of symbols V.
        spelling: bytes of each symbol; without it there are no letters.

    >>> letters, classes = letters_and_classes(4, [b"b", b"B", b" ", b"."])
    >>> letters.tolist(), classes.tolist()
    ([1, 1, 0, 0, 0], [1, 2, 4, 5, 5])
    """
    letters = np.zeros(n_symbols + 1, dtype=np.int64)
    classes = np.full(n_symbols + 1, OTHER)
    symbol_of = {} if spelling is None else {text: symbol for symbol, text in enumerate(spelling)}
    for text, symbol in symbol_of.items():
        character = text.decode(errors="replace")
        small = symbol_of.get(character.lower().encode(), symbol)
        if character.isalpha() or character == "'" or text[0] >= 128:
            letters[symbol] = small + 1
            classes[symbol] = LETTER if small == symbol else CAPITAL
        elif character in "\n ":
            classes[symbol] = NEWLINE if character == "\n" else SPACE
    return letters, classes
