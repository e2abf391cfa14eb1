"""Does attention by dot products need its division by the root of the width?

A lookup: each of eight symbols held, of 64, carries one of eight values, and the value of the one asked for is to be
told from the context, the sum of the values' vectors by the weights of attention. Symbols are vectors whose entries
start normal with variance one, which is what Vaswani et al.'s argument assumes, and everything is learned; the score is
additive, a dot product over √d, or the dot product as it is. Zero nats is perfect, log 8 = 2.08 a guess. Each kind has,
at each width, the learning rate of two that does best. What saturates is seen before training: 1 - Σ w², the sum of the
softmax's own slopes, which is 7/8 for flat weights and 0 where all weight is on one. (The loss must come through the
context: one on the logarithms of the weights, with which this script began, has a slope however saturated they are, and
with it all three learned the lookup.)

Rule: three parts, each decided by a margin of 0.1 nats, as there is one run of each. At the smallest width the three
kinds are alike: the dot product as it is needs no more than the better of the others; at the largest it needs more than
the worse of them; and the scaled one needs there no more than the additive one.
"""

import argparse
from typing import Literal, get_args

import numpy as np
import pandas as pd
import torch
from claim import Finding, main
from curves import Panel, drawn
from torch import Tensor, nn
from verdict import Part, Verdict, of_one_run

from seqmodels.neural.seq2seq.attention import AdditiveAttention, Attention, MultiplicativeAttention

CLAIM = (
    "Additive and dot-product attention are alike at small widths, and at large ones dot products that are not scaled "
    "saturate the softmax and learn worse; dividing by √d mends it (Vaswani et al., 2017, section 3.2.1)."
)
Kind = Literal["additive", "dot product / √d", "dot product"]
N_SYMBOLS, N_HELD, N_VALUES, CLOSE = 64, 8, 8, 0.1
RATES = (3e-3, 1e-2)


class Lookup(nn.Module):
    """Attention from the symbol asked for to the symbols held, and what is told from the context."""

    def __init__(self, kind: Kind, width: int) -> None:
        super().__init__()
        self.query, self.held = nn.Embedding(N_SYMBOLS, width), nn.Embedding(N_SYMBOLS, width)
        self.carried, self.told = nn.Embedding(N_VALUES, width), nn.Linear(width, N_VALUES)
        self.attention: Attention = (
            AdditiveAttention(width) if kind == "additive" else MultiplicativeAttention(width, projections=False)
        )
        self.factor = width**0.5 if kind == "dot product" else 1.0  # the library's own score is divided by the root

    def forward(self, query: Tensor, held: Tensor, carried: Tensor) -> tuple[Tensor, Tensor]:
        """Symbols (B,) and (B, S), values (B, S) -> log-probabilities of values (B, V) and weights (B, S)."""
        key, _ = self.attention.prepare(self.held(held))
        context, weights = self.attention(self.query(query)[:, None], self.factor * key, self.carried(carried))
        return self.told(context[:, 0]).log_softmax(-1), weights[:, 0]


def questions(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``n`` symbols asked for, those held, all different, the values these carry, and the value that is right."""
    held = torch.rand(n, N_SYMBOLS, generator=generator).argsort(1)[:, :N_HELD]
    carried = torch.randint(N_VALUES, (n, N_HELD), generator=generator)
    rows, place = torch.arange(n), torch.randint(N_HELD, (n,), generator=generator)
    return held[rows, place], held, carried, carried[rows, place]


def learned(kind: Kind, width: int, rate: float, steps: int, seed: int) -> dict[str, float]:
    """Slope before training and nats after it."""
    torch.manual_seed(seed)
    generator, model = torch.Generator().manual_seed(seed), Lookup(kind, width)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    *test, right = questions(2_000, torch.Generator().manual_seed(10_000 + seed))
    with torch.no_grad():
        slope = 1 - model(*test)[1].square().sum(1).mean()
    for _ in range(steps):
        optimizer.zero_grad()
        *inputs, target = questions(32, generator)
        nn.functional.nll_loss(model(*inputs)[0], target).backward()
        optimizer.step()
    with torch.no_grad():
        nats = nn.functional.nll_loss(model(*test)[0], right)
    return {"slope": float(slope), "nats": float(nats)}


def measure(given: argparse.Namespace) -> Finding:
    widths, steps, seeds = ([16, 64], 30, 1) if given.quick else ([16, 64, 256, 512], 250, 1)
    rows = [
        {"name": kind, "width": width, "seed": seed, "rate": rate, **learned(kind, width, rate, steps, seed)}
        for width in widths
        for kind in get_args(Kind)
        for seed in range(seeds)
        for rate in RATES
    ]
    frame = pd.DataFrame(rows)
    best = at_their_best(frame)
    sentence = told(best, widths)
    panels = [
        Panel(
            best,
            "width",
            "slope",
            "Before training",
            ("width", "slope of the softmax, 1 - Σ w²"),
            "x",
            {},
            {"flat weights": 7 / 8},
        ),
        Panel(
            best,
            "width",
            "nats",
            f"After {steps} steps",
            ("width", "nats a question"),
            "x",
            {},
            {"a guess": np.log(N_VALUES)},
        ),
    ]
    return Finding(CLAIM, parts(best, widths), sentence, frame, drawn(panels, list(get_args(Kind))))


def at_their_best(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the rate that does best, of each kind and width."""
    mean = frame.groupby(["name", "width", "rate"], as_index=False)["nats"].mean()
    return frame.merge(mean.loc[mean.groupby(["name", "width"])["nats"].idxmin(), ["name", "width", "rate"]])


def parts(best: pd.DataFrame, widths: list[int]) -> list[Part]:
    """The verdicts by the rule in the docstring of this script."""
    nats = best.pivot_table("nats", "name", "width")
    narrow, wide = nats[widths[0]], nats[widths[-1]]
    apart, behind = float(np.ptp(narrow)), float(wide["dot product"] - wide.drop("dot product").max())
    scaled = float(wide["dot product / √d"] - wide["additive"])
    alike: Verdict = "held" if apart <= CLOSE else "contradicted"
    repaired: Verdict = "held" if scaled <= CLOSE else "contradicted"
    return [
        Part("at small widths all are alike", alike, f"{apart:.2f} nats apart at width {widths[0]}"),
        Part(
            "at large widths dot products that are not scaled learn worse",
            of_one_run(behind, CLOSE),
            f"{behind:.2f} nats behind at width {widths[-1]}",
        ),
        Part("dividing by √d repairs it", repaired, f"{scaled:+.3f} nats from additive attention there"),
    ]


def told(best: pd.DataFrame, widths: list[int]) -> str:
    """The figures in a sentence."""
    nats = best.pivot_table("nats", "name", "width")
    slopes = best.pivot_table("slope", "name", "width")
    narrow, wide = nats[widths[0]], nats[widths[-1]]
    each = ", ".join(f"{name} {narrow[name]:.3f} and {wide[name]:.3f}" for name in nats.index)
    return (
        f"nats at widths {widths[0]} and {widths[-1]}: {each}; before training the slope of the plain dot product's "
        "softmax is "
        f"{slopes.loc['dot product', widths[0]]:.2f} and {slopes.loc['dot product', widths[-1]]:.2f}, "
        f"that of the scaled {slopes.loc['dot product / √d', widths[0]]:.2f} and "
        f"{slopes.loc['dot product / √d', widths[-1]]:.2f}."
    )


if __name__ == "__main__":
    main(__doc__, measure)
