"""How near what a model decodes is to what was wanted: errors, exact matches, BLEU, chrF; and ``evaluate``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, Literal

import numpy as np
import pandas as pd

from seqmodels.evaluation.edits import edit_distances
from seqmodels.model import SequenceModel
from seqmodels.sequences import as_sequences

Unit = Literal["character", "word"]


def error_rate(references: Sequence[Any], hypotheses: Sequence[Any], *, unit: Unit = "character") -> float:
    """Edits (insertions, deletions, substitutions) of all hypotheses over the length of all references; may be above 1.

    Args:
        references: a text or an integer sequence for each hypothesis, or a list of several, of which the one of fewest edits
            counts, the longest of equal ones.
        hypotheses: texts or integer sequences, perhaps empty.
        unit: what of a text is counted: ``"character"``, or ``"word"``, as split by white space.

    >>> error_rate(["kitten", ["sunday", "saturday"]], ["sitting", "sundays"])
    0.3333333333333333
    """
    if unit not in ("character", "word"):
        raise ValueError(f"unit is {unit!r}; pass 'character' or 'word'")
    owner, wanted, found = _pairs(references, hypotheses)
    words: dict[str, int] = {}
    wanted_steps, found_steps = ([_steps(item, unit, words) for item in items] for items in (wanted, found))
    edits, lengths = edit_distances(found_steps, wanted_steps), np.array([len(s) for s in wanted_steps])
    closest = np.lexsort((-lengths, edits, owner))[np.unique(owner, return_index=True)[1]]
    if not lengths[closest].sum():
        raise ValueError("the references are all empty, so there is nothing to count errors by")
    return float(edits[closest].sum() / lengths[closest].sum())


def exact_match(references: Sequence[Any], hypotheses: Sequence[Any]) -> float:
    """The share of hypotheses that are their reference, or one of several (see ``error_rate``).

    >>> exact_match(["one", ["two", "2"]], ["one", "2"])
    1.0
    """
    owner, wanted, found = _pairs(references, hypotheses)
    same = [np.array_equal(a, b) for a, b in zip(wanted, found, strict=True)]
    return len(set(owner[same].tolist())) / len(hypotheses)


def bleu(
    references: Sequence[Any], hypotheses: Sequence[str], *, lowercase: bool = False, tokenize: str = "13a"
) -> float:
    """Corpus BLEU of texts, 0 to 100 (Papineni et al. 2002), as ``sacrebleu`` computes it (Post 2018).

    Args:
        references: see ``error_rate``.
        lowercase: of both, before they are compared.
        tokenize: sacrebleu's name of a tokeniser: ``"13a"``, ``"intl"``, ``"char"``; ``"none"`` for texts that are cut already.
    """
    streams = _streams(references, hypotheses)
    result = _sacrebleu().corpus_bleu(list(hypotheses), streams, lowercase=lowercase, tokenize=tokenize)
    return float(result.score)


def chrf(references: Sequence[Any], hypotheses: Sequence[str], *, word_order: int = 0) -> float:
    """Corpus chrF of texts, 0 to 100 (Popović 2015), as ``sacrebleu`` computes it; ``word_order=2`` is chrF++."""
    streams = _streams(references, hypotheses)
    return float(_sacrebleu().corpus_chrf(list(hypotheses), streams, word_order=word_order).score)


def evaluate(
    model: SequenceModel,
    X: Any,
    y: Any,
    *,
    references: Sequence[Any] | None = None,
    beam: int = 1,
    max_length: int = 1000,
    max_ratio: float = 0.0,
    alpha: float | Literal["mean"] = 0.0,
) -> pd.Series:
    """A fitted p(y | x) by its likelihood and by what it decodes from ``X``, with ``predict``.

    Args:
        y: targets: what the likelihood is of.
        references: what decoded sequences are held against, perhaps several for each (see ``error_rate``); None: ``y``.
        beam: beginnings that are followed at once; 1 is greedy. Under ``length="given"`` the targets' lengths are given.
        max_length, max_ratio, alpha: of the search, see ``predict``.

    Returns:
        ``score`` (nats per unit of y; higher is better), ``bits`` (``-score / log 2``, what a unit costs; lower is better), ``exact_match``, ``error_rate`` (characters of text), ``n``
        and, of text, ``bleu`` and ``chrf``; named by the unit.

    Raises:
        ImportError: text, and sacrebleu is not installed.
    """
    targets = as_sequences(y)
    if targets.kind == "text":
        _sacrebleu()  # missing, it is better missed before the search than after
    score = model.score(X, targets)
    lengths = [len(model.encoding_.encode(item)) for item in targets] if model.length_ == "given" else None
    found = model.predict(X, n_beams=beam, length=lengths, max_length=max_length, max_ratio=max_ratio, alpha=alpha)
    wanted = list(targets) if references is None else references
    row = {"score": score, "bits": -score / math.log(2), "exact_match": exact_match(wanted, found)}
    row |= {"error_rate": error_rate(wanted, found), "n": float(len(targets))}
    if targets.kind == "text":
        row |= {"bleu": bleu(wanted, found), "chrf": chrf(wanted, found)}
    return pd.Series(row, name=targets.unit)


def _several(entry: Any) -> list[Any]:
    """The references of one hypothesis: an entry, or those in it."""
    several = (
        isinstance(entry, list | tuple) and len(entry) > 0 and (isinstance(entry[0], str) or np.ndim(entry[0]) > 0)
    )
    return list(entry) if several else [entry]


def _pairs(references: Sequence[Any], hypotheses: Sequence[Any]) -> tuple[np.ndarray, list[Any], list[Any]]:
    """Every reference beside its hypothesis, and whose it is, in order."""
    if isinstance(references, str) or isinstance(hypotheses, str):
        raise ValueError("one text is given where a list of them is expected; pass [text]")
    if len(references) != len(hypotheses) or not len(hypotheses):
        raise ValueError(f"there are {len(references)} references but {len(hypotheses)} hypotheses; pass one for each")
    groups = [_several(entry) for entry in references]
    owner = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return owner, [item for group in groups for item in group], [hypotheses[i] for i in owner.tolist()]


def _steps(item: Any, unit: Unit, words: dict[str, int]) -> np.ndarray:
    if not isinstance(item, str):
        return np.asarray(item, dtype=np.int64)
    if unit == "word":
        return np.array([words.setdefault(word, len(words)) for word in item.split()], dtype=np.int64)
    return np.array([ord(character) for character in item], dtype=np.int64)


def _streams(references: Sequence[Any], hypotheses: Sequence[Any]) -> list[list[str | None]]:
    """The first references of all hypotheses, the second ones, ...; None where one has no more."""
    _, wanted, found = _pairs(references, hypotheses)
    _refuse_other_than_text([*wanted, *found])
    groups = [_several(entry) for entry in references]
    most = max(len(group) for group in groups)
    return [[group[k] if k < len(group) else None for group in groups] for k in range(most)]


def _refuse_other_than_text(items: Iterable[Any]) -> None:
    for item in items:
        if not isinstance(item, str):
            raise ValueError(
                f"BLEU and chrF are of texts, but one is {type(item).__name__}; use error_rate for symbols"
            )


def _sacrebleu() -> ModuleType:
    try:
        import sacrebleu
    except ImportError as error:
        raise ImportError("BLEU and chrF need sacrebleu: pip install 'seqmodels[translation]'") from error
    return sacrebleu
