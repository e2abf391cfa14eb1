"""The translation metrics BLEU and chrF, as sacrebleu computes them."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Annotated, Any

from seqmodels.common.parameters import Range, checked
from seqmodels.evaluation.metrics.references import reference_pairs, references_of


@checked
def bleu(
    references: Sequence[Any], hypotheses: Sequence[Any], *, lowercase: bool = False, tokenize: str = "13a"
) -> float:
    """Return the corpus BLEU of texts, from 0 to 100 (Papineni et al. 2002), as ``sacrebleu`` computes it (Post 2018).

    Args:
        references: a text for each hypothesis, or a list of several.
        hypotheses: the decoded texts.
        lowercase: whether references and hypotheses are lowercased before they are compared.
        tokenize: sacrebleu's name of a tokenizer: ``"13a"``, ``"intl"``, ``"char"``, or ``"none"`` for tokenised texts.

    Raises:
        ImportError: sacrebleu is not installed.
        ValueError: an item is not a text, or the tokenizer is unknown.
    """
    references = _by_rank(references, hypotheses)
    try:
        result = sacrebleu_module().corpus_bleu(list(hypotheses), references, lowercase=lowercase, tokenize=tokenize)
    except KeyError:  # raised by sacrebleu for an unknown tokeniser
        raise ValueError(f"tokenize is {tokenize!r}; pass '13a', 'intl', 'char' or another of sacrebleu's") from None
    return float(result.score)


@checked
def chrf(
    references: Sequence[Any], hypotheses: Sequence[Any], *, word_order: Annotated[int, Range(0, 100)] = 0
) -> float:
    """Return the corpus chrF of texts, from 0 to 100 (Popović 2015), as ``sacrebleu`` computes it.

    Args:
        references: a text for each hypothesis, or a list of several.
        hypotheses: the decoded texts.
        word_order: longest n-grams of words that count besides those of characters; 0 is chrF and 2 is chrF++.

    Raises:
        ImportError: sacrebleu is not installed.
        ValueError: an item is not a text.
    """
    references = _by_rank(references, hypotheses)
    return float(sacrebleu_module().corpus_chrf(list(hypotheses), references, word_order=word_order).score)


def _by_rank(references: Sequence[Any], hypotheses: Sequence[Any]) -> list[list[str | None]]:
    """Return the references in sacrebleu's order: a list of all first references, one of all second ones, and so on.

    A hypothesis without a further reference has None in the list.

    Args:
        references: a text or a list of texts for each hypothesis.
        hypotheses: the decoded texts.

    Raises:
        ValueError: an item is not a text, or the numbers of references and hypotheses differ.
    """
    _, each_reference, each_hypothesis = reference_pairs(references, hypotheses)
    for item in [*each_reference, *each_hypothesis]:
        if not isinstance(item, str):
            raise ValueError(
                f"BLEU and chrF compare texts, but one item is {type(item).__name__}; use error_rate for symbols"
            )
    groups = [references_of(entry) for entry in references]
    most = max(len(group) for group in groups)
    return [[group[k] if k < len(group) else None for group in groups] for k in range(most)]


def sacrebleu_module() -> ModuleType:
    """Import and return the package ``sacrebleu``, which computes BLEU and chrF.

    Raises:
        ImportError: it is not installed; the message says how to install it.
    """
    try:
        import sacrebleu
    except ImportError as error:
        raise ImportError("BLEU and chrF need sacrebleu: pip install 'seqmodels[translation]'") from error
    return sacrebleu
