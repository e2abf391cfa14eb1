"""Is most of a network's lead over an HMM on speech the overlap of windows?

Claim: frames of 25 ms every 10 ms share 15 ms of the same samples, a dependence that the window makes and that an HMM,
whose frames are independent given its states, cannot use (Rabiner 1989, section IV.E; Ostendorf et al. 1996); so most
of what networks gain over it there is no knowledge of speech.

Rule: "most" is more than half. It held if the difference LSTM - HMM in nats per frame is at a hop of 25 ms, where
windows no longer overlap, less than half of what it is at 10 ms for sure (the upper end of the one 95 % interval below
half of the lower end of the other), and was contradicted if it is more than half for sure. The same is shown for VAR -
HMM, a linear prediction from one frame, which can know little of speech.

The same waveforms, speakers and 25 ms windows throughout; only the hop differs: 5, 10, 15, 25 ms. HMM of 24 states with
4 components, EM to 30 passes; LSTM 128 wide, 400 steps. A frame's density is that of other numbers at another hop, so
that only differences may be compared.
"""

import argparse

import pandas as pd
from claim import Finding, main
from contrasts import difference, interval
from curves import Panel, drawn
from material import asks_for_audio, frames
from matplotlib.figure import Figure
from verdict import Part, of_interval

import seqmodels as sm
from seqmodels.data.mfcc import MFCC
from seqmodels.plot.style import INK

CLAIM = (
    "Most of a network's lead over an HMM on frames of speech of 25 ms every 10 ms is the overlap of the windows, "
    "which an HMM cannot use (after Rabiner 1989; Ostendorf et al. 1996)."
)
MILLISECONDS = (5, 10, 15, 25)


def models(steps: int, passes: int) -> dict[str, sm.SequenceModel]:
    return {
        "hmm": sm.HMM(24, observation=sm.GaussianMixture(4), max_iter=passes),
        "var": sm.HMM(1, observation=sm.AutoregressiveGaussian()),
        "lstm": sm.LSTM(d_model=128, max_steps=steps),
    }


def leads(given: argparse.Namespace, hop: int) -> list[dict[str, object]]:
    """Of LSTM and VAR over the HMM, at one hop in milliseconds; in nats per frame, and per second."""
    train, test = frames(given, MFCC(hop=hop / 1000))
    chosen = models(30, 5) if given.quick else models(400, 30)
    steps = {name: model.fit(train).log_prob_steps(test) for name, model in chosen.items()}
    rows: list[dict[str, object]] = []
    for name in ("lstm", "var"):
        found = difference(steps[name], steps["hmm"], test)
        rows.append({"pair": f"{name} - hmm", "hop_ms": hop, **interval(found)})
        rows[-1] |= {"per_second": found.difference * 1000 / hop, "n_frames": int(train.n_units.sum())}
        print(rows[-1])
    return rows


def measure(given: argparse.Namespace) -> Finding:
    frame = pd.DataFrame([row for hop in MILLISECONDS for row in leads(given, hop)])
    at = frame[frame["pair"] == "lstm - hmm"].set_index("hop_ms")
    left = at.loc[25, "difference"] / at.loc[10, "difference"]
    differences = "; ".join(said(rows, str(pair)) for pair, rows in frame.groupby("pair", sort=False))
    sentence = f"nats per frame, {differences}. At 25 ms {left:.0%} of the LSTM's lead at 10 ms is left."
    return Finding(CLAIM, parts(frame), sentence, frame, picture(frame))


def parts(frame: pd.DataFrame) -> list[Part]:
    """The verdict by the rule in the docstring of this script."""
    at = frame[frame["pair"] == "lstm - hmm"].set_index("hop_ms")
    low, high = (0.5 * at.loc[10, a] - at.loc[25, b] for a, b in (("ci_low", "ci_high"), ("ci_high", "ci_low")))
    left = f"{at.loc[25, 'difference'] / at.loc[10, 'difference']:.0%} of the LSTM's lead is left at 25 ms"
    return [Part("more than half of a network's lead is the overlap of windows", of_interval(low, high), left)]


def picture(frame: pd.DataFrame) -> Figure:
    labels, band = ("hop, ms", "nats per frame more than the HMM"), ("ci_low", "ci_high")
    title = "Lead over an HMM, by the hop of 25 ms windows"
    figure = drawn([Panel(frame, "hop_ms", "difference", title, labels, by="pair", interval=band)])
    figure.axes[0].axhline(0, color=INK, linewidth=0.9, zorder=1)
    return figure


def said(rows: pd.DataFrame, pair: str) -> str:
    parts = (f"{r.difference:.2f} [{r.ci_low:.2f}, {r.ci_high:.2f}] at {r.hop_ms} ms" for r in rows.itertuples())
    return f"{pair} {', '.join(parts)}"


if __name__ == "__main__":
    main(__doc__, measure, asks_for_audio)
