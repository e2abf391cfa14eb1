"""Is the independence of frames, given the states, what an HMM of speech lacks?

Claim: that frames are independent given the states is the HMM's weakest assumption about speech (Rabiner 1989, section
IV.E; Ostendorf et al. 1996); emissions that predict a frame from those before (Poritz 1982) take away most of its
distance to a network.

Rule: it held if more than half of the distance from the HMM of Gaussian mixtures to the LSTM is closed by the HMM with
autoregressive emissions of order 1: the 95 % interval of the share lies above a half, on unheard speakers; contradicted
if it lies below. The share closed is (AR-HMM - HMM) / (LSTM - HMM); its interval are the shares s at which that of
AR-HMM - (1 - s) HMM - s LSTM holds zero.

Also shown: one state (a VAR), and an LSTM whose own output is autoregressive. 24 states each, 400 steps of the LSTM.
"""

import argparse

import numpy as np
import pandas as pd
from claim import Finding, main
from contrasts import Steps, contrasts, difference, said, with_contrasts
from material import asks_for_audio, frames
from verdict import Part, of_interval

import seqmodels as sm

CLAIM = (
    "That frames are independent given the states is the HMM's weakest assumption about speech, and autoregressive "
    "emissions take away most of its distance to an LSTM (Poritz 1982; Rabiner 1989; Ostendorf et al. 1996)."
)
GRID = np.arange(-1.0, 1.001, 0.01)  # of shares, around the estimate


def models(steps: int, passes: int) -> dict[str, sm.SequenceModel]:
    return {
        "hmm": sm.HMM(24, observation=sm.GaussianMixture(4), max_iter=passes),
        "var, order 1": sm.HMM(1, observation=sm.AutoregressiveGaussian(1)),
        "ar-hmm, order 1": sm.HMM(24, observation=sm.AutoregressiveGaussian(1), max_iter=passes),
        "lstm": sm.LSTM(d_model=128, max_steps=steps),
        "ar-lstm, order 1": sm.LSTM(d_model=128, observation=sm.AutoregressiveGaussian(1), max_steps=steps),
    }


def between(hmm: Steps, lstm: Steps, share: float) -> Steps:
    """The log-probabilities of a model that closed just this share of the gap."""
    return [(1 - share) * a + share * b for a, b in zip(hmm, lstm, strict=True)]


def shares(result: sm.evaluation.Comparison, name: str) -> tuple[float, float, float]:
    """The share closed, and the least and the most that the data allow (Fieller's interval, by a grid)."""
    hmm, lstm, model = (result.log_prob_steps[each] for each in ("hmm", "lstm", name))
    gap, closed = (difference(each, hmm, result.test).difference for each in (lstm, model))
    grid = closed / gap + GRID
    found = [difference(model, between(hmm, lstm, share), result.test) for share in grid]
    allowed = [share for share, d in zip(grid, found, strict=True) if d.low <= 0 <= d.high]
    return closed / gap, min(allowed, default=np.nan), max(allowed, default=np.nan)


def measure(given: argparse.Namespace) -> Finding:
    train, test = frames(given)
    chosen = models(30, 5) if given.quick else models(400, 30)
    result = sm.compare(chosen, train, test=test, baseline="hmm", title="Autoregressive emissions", progress=print)
    others = [name for name in chosen if name not in ("hmm", "lstm")]
    closed = {name: shares(result, name) for name in others}
    frame = with_contrasts(result, contrasts(result, [("lstm", name) for name in others]))
    table = pd.DataFrame(closed, index=["share_closed", "share_low", "share_high"]).T.rename_axis("model").reset_index()
    return Finding(CLAIM, parts(table), sentence(result, closed), pd.concat([frame, table]), result.ranking_figure())


def parts(table: pd.DataFrame) -> list[Part]:
    """The verdict by the rule in the docstring of this script, from the rows of the shares."""
    row = table.dropna(subset=["share_closed"]).set_index("model").loc["ar-hmm, order 1"]
    seen = f"{row['share_closed']:.0%} [{row['share_low']:.0%}, {row['share_high']:.0%}] of the distance"
    verdict = of_interval(row["share_low"], row["share_high"], above=0.5)
    return [Part("autoregressive emissions close more than half of an HMM's distance to an LSTM", verdict, seen)]


def sentence(result: sm.evaluation.Comparison, closed: dict[str, tuple[float, float, float]]) -> str:
    ends = said(contrasts(result, [("ar-hmm, order 1", "hmm"), ("lstm", "hmm")]))
    parts = "; ".join(f"{share:.0%} [{low:.0%}, {high:.0%}] by {name}" for name, (share, low, high) in closed.items())
    return f"nats per frame, {ends}. Closed of the distance from HMM to LSTM: {parts}."


if __name__ == "__main__":
    main(__doc__, measure, asks_for_audio)
