"""BLEU and chrF of texts, as sacrebleu computes them."""

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
    """Corpus BLEU of texts, 0 to 100 (Papineni et al. 2002), as ``sacrebleu`` computes it (Post 2018).

    Args:
        references: see ``error_rate``.
        lowercase: of both, before they are compared.
        tokenize: sacrebleu's name of a tokeniser: ``"13a"``, ``"intl"``, ``"char"``; ``"none"`` for tokenised texts.
    """
    references = _by_rank(references, hypotheses)
    try:
        result = sacrebleu_module().corpus_bleu(list(hypotheses), references, lowercase=lowercase, tokenize=tokenize)
    except KeyError:  # of sacrebleu's tokenisers
        raise ValueError(f"tokenize is {tokenize!r}; pass '13a', 'intl', 'char' or another of sacrebleu's") from None
    return float(result.score)


@checked
def chrf(
    references: Sequence[Any], hypotheses: Sequence[Any], *, word_order: Annotated[int, Range(0, 100)] = 0
) -> float:
    """Corpus chrF of texts, 0 to 100 (Popović 2015), as ``sacrebleu`` computes it; ``word_order=2`` is chrF++."""
    references = _by_rank(references, hypotheses)
    return float(sacrebleu_module().corpus_chrf(list(hypotheses), references, word_order=word_order).score)


def _by_rank(references: Sequence[Any], hypotheses: Sequence[Any]) -> list[list[str | None]]:
    """The first references of all hypotheses, the second ones, ... (sacrebleu's order); None where one has no more."""
    _, each_reference, each_hypothesis = reference_pairs(references, hypotheses)
    for item in [*each_reference, *each_hypothesis]:
        if not isinstance(item, str):
            raise ValueError(
                f"BLEU and chrF are of texts, but one is {type(item).__name__}; use error_rate for symbols"
            )
    groups = [references_of(entry) for entry in references]
    most = max(len(group) for group in groups)
    return [[group[k] if k < len(group) else None for group in groups] for k in range(most)]


def sacrebleu_module() -> ModuleType:
    """``sacrebleu``; raises ``ImportError``, with the way out, where it is not installed."""
    try:
        import sacrebleu
    except ImportError as error:
        raise ImportError("BLEU and chrF need sacrebleu: pip install 'seqmodels[translation]'") from error
    return sacrebleu
