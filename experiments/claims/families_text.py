"""Does each generation of language models explain text better than the one before?

Claim: each generation of language models explains text better than the one before: independent bytes, HMM, n-gram,
Elman's network, gated networks, Transformer (Bengio et al. 2003; Mikolov et al. 2010; Sundermeyer et al. 2012; Vaswani
et al. 2017).

Rule: a part for each step of that row, from a model to the one before it: it held if the 95 % interval of the
difference on held-out text (its last tenth, moving blocks) lies above zero, and was contradicted if it lies below.
Between LSTM and GRU nothing is claimed.

Budget: each network has about 300,000 parameters and 1,000 steps of about 1,024 bytes; the n-gram counts once what the
networks read two and a half times; EM makes 25 passes. Defaults otherwise, one seed; nothing here was tuned for this
text.
"""

import argparse

import pandas as pd
from claim import Finding, main
from contrasts import contrasts, said, with_contrasts
from material import asks_for_text, text_parts
from verdict import Part, of_interval, signed

import seqmodels as sm

CLAIM = (
    "Each generation of language models explains text better than the one before: independent bytes, HMM, n-gram, "
    "Elman's network, gated networks, Transformer (Bengio et al. 2003; Mikolov et al. 2010; Sundermeyer et al. 2012; "
    "Vaswani et al. 2017)."
)
ORDER = [
    ("hmm", "iid"),
    ("ngram", "hmm"),
    ("elman", "ngram"),
    ("lstm", "elman"),
    ("gru", "elman"),
    ("transformer", "lstm"),
    ("transformer", "gru"),
]


def models(steps: int, passes: int) -> dict[str, sm.SequenceModel]:
    """Widths that come to about 300,000 parameters each."""
    return {
        "iid": sm.HMM(1),
        "hmm": sm.HMM(64, max_iter=passes),
        "ngram": sm.NGram(5),
        "elman": sm.ElmanRNN(d_model=280, max_steps=steps),
        "lstm": sm.LSTM(d_model=160, max_steps=steps),
        "gru": sm.GRU(d_model=184, max_steps=steps),
        "transformer": sm.Transformer(d_model=96, n_layers=2, max_steps=steps),
    }


def measure(given: argparse.Namespace) -> Finding:
    train, test = text_parts(given)
    chosen = models(30, 3) if given.quick else models(1_000, 25)
    result = sm.compare(chosen, train, test=test, baseline="hmm", title="Text: log p(x)", progress=print)
    pairs = contrasts(result, ORDER)
    sentence = f"nats per byte, {said(pairs)}."
    return Finding(CLAIM, parts(pairs), sentence, with_contrasts(result, pairs), result.ranking_figure())


def parts(pairs: pd.DataFrame) -> list[Part]:
    """The verdicts by the rule in the docstring of this script, from the rows of pairs."""
    return [
        Part(
            f"{row.model} is better than {row.against}",
            of_interval(row.ci_low, row.ci_high),
            signed(row.difference, row.ci_low, row.ci_high, "nats per byte"),
        )
        for row in pairs[pairs["above"].notna()].itertuples()
    ]


if __name__ == "__main__":
    main(__doc__, measure, asks_for_text)
