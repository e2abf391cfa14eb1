"""Do networks explain frames of speech better than hidden Markov models?

Claim: networks explain frames of speech better than hidden Markov models do, and these better than independent frames
(Robinson 1994; Graves et al. 2013; Gales & Young 2008 for what HMMs assume).

Rule: three parts, on unheard speakers. The HMM is better than independent frames; Elman's network, the LSTM, the GRU
and the Transformer are each better than the HMM; and each better than the HMM with autoregressive emissions. A part
held if the 95 % intervals of its differences all lie above zero, and was contradicted if one lies below.

Budget: networks 128 wide (the Transformer 96 and two layers) and 400 steps of about 1,024 frames; EM stops by itself,
at most after 30 passes. Windows of 25 ms every 10 ms overlap, which a network uses and an HMM cannot: ``hop.py`` says
how much of this that is.
"""

import argparse

import pandas as pd
from claim import Finding, main
from contrasts import contrasts, said, with_contrasts
from material import asks_for_audio, frames
from verdict import Part, of_all, of_interval

import seqmodels as sm

CLAIM = (
    "Networks explain frames of speech better than hidden Markov models, and these better than independent frames "
    "(Robinson 1994; Gales & Young 2008; Graves et al. 2013)."
)
NETWORKS = ("elman", "lstm", "gru", "transformer")
PAIRS = [("hmm", "iid"), *((name, base) for base in ("hmm", "ar-hmm") for name in NETWORKS)]


def models(steps: int, passes: int) -> dict[str, sm.SequenceModel]:
    return {
        "iid": sm.HMM(1, observation=sm.GaussianMixture(1, "full")),
        "var": sm.HMM(1, observation=sm.AutoregressiveGaussian()),
        "hmm": sm.HMM(24, observation=sm.GaussianMixture(4), max_iter=passes),
        "ar-hmm": sm.HMM(24, observation=sm.AutoregressiveGaussian(), max_iter=passes),
        "elman": sm.ElmanRNN(d_model=128, max_steps=steps),
        "lstm": sm.LSTM(d_model=128, max_steps=steps),
        "gru": sm.GRU(d_model=128, max_steps=steps),
        "transformer": sm.Transformer(d_model=96, n_layers=2, max_steps=steps),
    }


def measure(given: argparse.Namespace) -> Finding:
    train, test = frames(given)
    chosen = models(30, 5) if given.quick else models(400, 30)
    result = sm.compare(chosen, train, test=test, baseline="hmm", title="Speech: log p(x)", progress=print)
    pairs = contrasts(result, PAIRS)
    table = with_contrasts(result, pairs)
    return Finding(CLAIM, parts(pairs), f"nats per frame, {said(pairs)}.", table, result.ranking_figure())


def parts(pairs: pd.DataFrame) -> list[Part]:
    """The verdicts by the rule in the docstring of this script, from the rows of pairs."""
    claims = {
        "HMMs are better than independent frames": "iid",
        "each network is better than an HMM": "hmm",
        "each network is better than an HMM with autoregressive emissions": "ar-hmm",
    }
    found = []
    for claim, base in claims.items():
        rows = pairs[pairs["against"].eq(base) & pairs["above"].notna()]
        verdict = of_all(of_interval(row.ci_low, row.ci_high) for row in rows.itertuples())
        seen = f"{rows['difference'].min():+.3f} to {rows['difference'].max():+.3f} nats per frame"
        found.append(
            Part(claim, verdict, seen if len(rows) > 1 else f"{rows['difference'].iloc[0]:+.3f} nats per frame")
        )
    return found


if __name__ == "__main__":
    main(__doc__, measure, asks_for_audio)
