"""Metrics beside the likelihood: error rate, exact match, BLEU and chrF of decoded sequences; loss by a window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from seqmodels.common.parameters import NotNegative, PositiveInt, checked
from seqmodels.evaluation.statistics.paired import Difference, moving_block_difference, paired_difference
from seqmodels.model import SequenceModel
from seqmodels.sequences import Sequences, as_sequences

if TYPE_CHECKING:
    import pandas as pd

Unit = Literal["character", "word"]

MAX_CELLS = 1 << 20  # of the rows of all pairs whose edit distances are computed at once


@checked
def error_rate(references: Sequence[Any], hypotheses: Sequence[Any], *, unit: Unit = "character") -> float:
    """Edits (insertions, deletions, substitutions) of all hypotheses over the length of all references; may be above 1.

    Args:
        references: a text or an integer sequence for each hypothesis, or a list of several, of which the one of fewest
            edits counts, the longest of equal ones.
        hypotheses: texts or integer sequences, perhaps empty.
        unit: steps of a text: ``"character"``, or ``"word"``, as split by white space.

    >>> error_rate(["kitten", ["sunday", "saturday"]], ["sitting", "sundays"])
    0.3333333333333333
    """
    if unit not in ("character", "word"):
        raise ValueError(f"unit is {unit!r}; pass 'character' or 'word'")
    index, each_reference, each_hypothesis = _pairs(references, hypotheses)
    words: dict[str, int] = {}
    reference_steps = [_steps(item, unit, words) for item in each_reference]
    hypothesis_steps = [_steps(item, unit, words) for item in each_hypothesis]
    edits = edit_distances(hypothesis_steps, reference_steps)
    lengths = np.array([len(steps) for steps in reference_steps])
    closest = np.lexsort((-lengths, edits, index))[np.unique(index, return_index=True)[1]]
    if not lengths[closest].sum():
        raise ValueError("the references are all empty, so there is nothing to count errors by")
    return float(edits[closest].sum() / lengths[closest].sum())


@checked
def exact_match(references: Sequence[Any], hypotheses: Sequence[Any]) -> float:
    """The share of hypotheses that are their reference, or one of several (see ``error_rate``).

    >>> exact_match(["one", ["two", "2"]], ["one", "2"])
    1.0
    """
    index, each_reference, each_hypothesis = _pairs(references, hypotheses)
    same = [np.array_equal(a, b) for a, b in zip(each_reference, each_hypothesis, strict=True)]
    return len(set(index[same].tolist())) / len(hypotheses)


@checked
def bleu(
    references: Sequence[Any], hypotheses: Sequence[Any], *, lowercase: bool = False, tokenize: str = "13a"
) -> float:
    """Corpus BLEU of texts, 0 to 100 (Papineni et al. 2002), as ``sacrebleu`` computes it (Post 2018).

    Args:
        references: see ``error_rate``.
        lowercase: of both, before they are compared.
        tokenize: sacrebleu's name of a tokeniser: ``"13a"``, ``"intl"``, ``"char"``; ``"none"`` for tokenised texts.
    """
    references = _by_rank(references, hypotheses)
    try:
        result = _sacrebleu().corpus_bleu(list(hypotheses), references, lowercase=lowercase, tokenize=tokenize)
    except KeyError:  # of sacrebleu's tokenisers
        raise ValueError(f"tokenize is {tokenize!r}; pass '13a', 'intl', 'char' or another of sacrebleu's") from None
    return float(result.score)


@checked
def chrf(references: Sequence[Any], hypotheses: Sequence[Any], *, word_order: NotNegative = 0) -> float:
    """Corpus chrF of texts, 0 to 100 (Popović 2015), as ``sacrebleu`` computes it; ``word_order=2`` is chrF++."""
    references = _by_rank(references, hypotheses)
    return float(_sacrebleu().corpus_chrf(list(hypotheses), references, word_order=word_order).score)


@checked
def evaluate(
    model: SequenceModel,
    X: Any,
    y: Any,
    *,
    references: Sequence[Any] | None = None,
    beam: PositiveInt = 1,
    max_length: int | None = None,
    max_ratio: float = 0.0,
    alpha: float | Literal["mean"] = 0.0,
) -> pd.Series:
    """Evaluate a fitted p(y | x) by its likelihood of ``y`` and by what it decodes from ``X``, with ``predict``.

    Args:
        model: fitted with targets.
        X: sources.
        y: targets.
        references: what decoded sequences are compared to, perhaps several for each (see ``error_rate``); None: ``y``.
        beam: hypotheses that beam search keeps; 1 is greedy. Under ``length="given"`` the targets' lengths are given.
        max_length, max_ratio, alpha: of the search, see ``predict``.

    Returns:
        ``score`` (nats per unit of y; higher is better), ``bits`` (``-score / log 2``, what a unit costs; lower is
        better), ``exact_match``, ``error_rate`` (characters of text), ``n`` and, of text, ``bleu`` and ``chrf``; named
        by the unit.

    Raises:
        ImportError: text, and sacrebleu is not installed.
    """
    import pandas as pd

    targets = as_sequences(y)
    if targets.kind == "text":
        _sacrebleu()  # if it is missing, say so before the search and not after it
    score = model.score(X, targets)
    lengths = [len(model.encoding_.encode(item)) for item in targets] if model.length_ == "given" else None
    decoded = model.predict(X, n_beams=beam, length=lengths, max_length=max_length, max_ratio=max_ratio, alpha=alpha)
    expected = list(targets) if references is None else references
    row = {"score": score, "bits": -score / math.log(2), "exact_match": exact_match(expected, decoded)}
    row |= {"error_rate": error_rate(expected, decoded), "n": float(len(targets))}
    if targets.kind == "text":
        row |= {"bleu": bleu(expected, decoded), "chrf": chrf(expected, decoded)}
    return pd.Series(row, name=targets.unit)


def _several(entry: Any) -> list[Any]:
    """The references of one hypothesis: the entry, or each of those that it lists."""
    is_list = isinstance(entry, list | tuple) and len(entry) > 0
    return list(entry) if is_list and (isinstance(entry[0], str) or np.ndim(entry[0]) > 0) else [entry]


def _pairs(references: Sequence[Any], hypotheses: Sequence[Any]) -> tuple[np.ndarray, list[Any], list[Any]]:
    """Every reference, with the index of its hypothesis before it and the hypothesis after it."""
    if isinstance(references, str) or isinstance(hypotheses, str):
        raise ValueError("one text is given where a list of them is expected; pass [text]")
    if len(references) != len(hypotheses) or not len(hypotheses):
        raise ValueError(f"there are {len(references)} references but {len(hypotheses)} hypotheses; pass one for each")
    groups = [_several(entry) for entry in references]
    index = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return index, [item for group in groups for item in group], [hypotheses[i] for i in index.tolist()]


def _steps(item: Any, unit: Unit, words: dict[str, int]) -> np.ndarray:
    if not isinstance(item, str):
        values = np.asarray(item)
        if values.dtype.kind in "OU":
            return np.array([words.setdefault(word, len(words)) for word in values.tolist()], dtype=np.int64)
        return values.astype(np.int64)
    if unit == "word":
        return np.array([words.setdefault(word, len(words)) for word in item.split()], dtype=np.int64)
    return np.array([ord(character) for character in item], dtype=np.int64)


def _by_rank(references: Sequence[Any], hypotheses: Sequence[Any]) -> list[list[str | None]]:
    """The first references of all hypotheses, the second ones, ... (sacrebleu's order); None where one has no more."""
    _, each_reference, each_hypothesis = _pairs(references, hypotheses)
    for item in [*each_reference, *each_hypothesis]:
        if not isinstance(item, str):
            raise ValueError(
                f"BLEU and chrF are of texts, but one is {type(item).__name__}; use error_rate for symbols"
            )
    groups = [_several(entry) for entry in references]
    most = max(len(group) for group in groups)
    return [[group[k] if k < len(group) else None for group in groups] for k in range(most)]


def _sacrebleu() -> ModuleType:
    try:
        import sacrebleu
    except ImportError as error:
        raise ImportError("BLEU and chrF need sacrebleu: pip install 'seqmodels[translation]'") from error
    return sacrebleu


# -- edit distance --------------------------------------------------------------------------------------------


def edit_distances(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> np.ndarray:
    """``(n,)`` fewest insertions, deletions and substitutions from ``first`` to ``second`` (Levenshtein 1966).

    ``d(i, j) = min(d(i-1, j) + 1, d(i, j-1) + 1, d(i-1, j-1) + [a_i ≠ b_j])``, of many pairs at once. Sequences are 1-D
    integers.
    """
    if len(first) != len(second):
        raise ValueError(f"there are {len(first)} sequences but {len(second)} partners; pass one for each")
    distances = np.zeros(len(first), dtype=np.int64)
    order = sorted(range(len(first)), key=lambda i: (len(second[i]), len(first[i])))
    begin = 0
    while begin < len(order):
        width = 1 + max(len(second[i]) for i in order[begin : begin + MAX_CELLS])
        batch = order[begin : begin + max(1, MAX_CELLS // width)]
        distances[batch] = _batch_distances([first[i] for i in batch], [second[i] for i in batch])
        begin += len(batch)
    return distances


def _batch_distances(first: list[np.ndarray], second: list[np.ndarray]) -> np.ndarray:
    a, n_a = _padded(first)
    b, n_b = _padded(second)
    column_numbers = np.arange(b.shape[1] + 1)
    row = np.tile(column_numbers, (len(b), 1))  # (n, J + 1), distances of the first i of a from the first j of b
    distances = np.where(n_a == 0, n_b, 0)
    for i in range(1, a.shape[1] + 1):
        row = _next_row(row, a[:, i - 1, None] != b, column_numbers)
        distances = np.where(n_a == i, row[np.arange(len(b)), n_b], distances)
    return distances


def _next_row(row: np.ndarray, differs: np.ndarray, column_numbers: np.ndarray) -> np.ndarray:
    """An insertion costs 1 wherever it begins: ``min_k≤j (best_k + j - k)`` is a running minimum of ``best_k - k``."""
    best = row + 1
    best[:, 1:] = np.minimum(best[:, 1:], row[:, :-1] + differs)
    row = np.minimum.accumulate(best - column_numbers, axis=1) + column_numbers
    return row


def _padded(sequences: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """``(n, T)`` padded with zeros, which do not enter the distances that are read, and ``(n,)`` lengths."""
    lengths = np.array([len(s) for s in sequences])
    table = np.zeros((len(sequences), lengths.max()), dtype=np.int64)
    for row, s in zip(table, sequences, strict=True):
        row[: len(s)] = s
    return table, lengths


# -- the loss by a finite window ------------------------------------------------------------------------------


@checked
def window_loss(model: SequenceModel, X: Any, width: int, *, cluster: str | None = None) -> Difference:
    """Nats per unit by which windows lower the score of a fitted ``model`` of p(x): what it gains from longer context.

    Each window of ``width`` steps (characters of text) is scored on its own, as a sequence that starts there. A score
    taken on windows is lower by this loss than one of whole sequences, so two scores taken at different widths do not
    belong in one table. Steps are compared one by one; the ends of sequences, of which windows would have more, are
    left out.

    Args:
        model: fitted to sequences without targets.
        X: held-out sequences, best longer than ``width``.
        width: steps of a window.
        cluster: a metadata column of ``X``, as in ``compare``.

    Returns:
        ``Difference``: ``.difference`` with its interval ``.low`` to ``.high``: over sequences or clusters, or moving
        blocks of one.

    Raises:
        ValueError: a width below 1; a model of p(y | x).

    Of 40 symbols, each of which is certain after the first, ten windows have ten uncertain first steps in place of one:

    >>> from seqmodels import HMM
    >>> model = HMM.from_parameters([0.5, 0.5], [[0, 1], [1, 0]], emission=[[1, 0], [0, 1]])
    >>> loss = window_loss(model, [np.array([0, 1] * 20)], width=4)
    >>> round(float(loss.difference / np.log(2)), 3)
    0.225
    """
    whole = as_sequences(X)
    units = whole.n_units
    whole_steps = [s[:n] for s, n in zip(model.log_prob_steps(whole), units, strict=True)]
    window_steps = _window_steps(model, whole, width)
    if len(whole) == 1:
        return moving_block_difference(whole_steps[0], window_steps[0], n_units=float(units[0]))
    of_whole = np.array([steps.sum() for steps in whole_steps])
    of_windows = np.array([steps.sum() for steps in window_steps])
    if cluster is not None and cluster not in whole.metadata:
        raise ValueError(f"cluster is {cluster!r}, but X has {', '.join(map(str, whole.metadata)) or 'no metadata'}")
    clusters = whole.clusters if cluster is None else list(whole.metadata[cluster])
    return paired_difference(of_whole, of_windows, units, clusters)


def _window_steps(model: SequenceModel, whole: Sequences, width: int) -> list[np.ndarray]:
    """For each sequence the nats of its units when each window is scored on its own."""
    windows = whole.chunks(width)
    steps = [s[:n_units] for s, n_units in zip(model.log_prob_steps(windows), windows.n_units, strict=True)]
    counts = [-(-len(item) // width) for item in whole]
    ends = np.cumsum(counts)
    return [np.concatenate(steps[end - n_windows : end]) for n_windows, end in zip(counts, ends, strict=True)]
