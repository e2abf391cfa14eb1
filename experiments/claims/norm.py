"""Does a Transformer with the norm after each sublayer need warm-up where one with the norm before does not?

Transformers as Vaswani et al. had them (sinusoids, ReLU, biases), with the norm after or before each sublayer, of 2, 6
and 12 layers, with and without warm-up, trained on bytes of text for 200 steps by AdamW at one peak rate, 3e-3, with
gradients clipped at norm 1. A run whose gradient stops being finite, or that ends worse than the frequencies of the
bytes alone, counts as diverged.

Held, if at 12 layers without warm-up the norm after needs at least 0.1 nats a byte more than the norm before (or
diverges), and warm-up changes the norm before by less than 0.1 nats and takes at least half of what the norm after is
behind.
"""

import argparse

import numpy as np
import pandas as pd
from claim import Finding, main
from curves import Panel, drawn
from material import asks_for_text, whole_text

from seqmodels import Transformer, Trapezoid
from seqmodels.neural.transformer.layers import NormPlacement

CLAIM = (
    "A Transformer with the norm after each sublayer is hard to train without warm-up, the more so the deeper; with "
    "the norm before, warm-up can be left out (Xiong et al., 2020)."
)
PLACES: dict[str, NormPlacement] = {"norm after": "post", "norm before": "pre"}
WARM_UPS = {"no warm-up": 0.0, "warm-up": 0.2}  # part of the steps
FAR = 0.1


def final_nats(
    norm: NormPlacement, warm_up: float, n_layers: int, steps: int, seed: int, parts: tuple[str, str]
) -> float:
    """Nats a byte on the test part after training; NaN if a gradient was not finite."""
    model = Transformer(
        norm=norm,
        n_layers=n_layers,
        d_model=64,
        n_heads=4,
        context=32,
        positions="sinusoidal",
        activation="relu",
        bias=True,
        zero_init=False,  # or every sublayer would add nothing at first, which is a remedy of its own
        convolution_lags=0,
        dropout=0.0,
        batch_size=16,
        lr=3e-3,
        schedule=Trapezoid(warm_up=warm_up),
        max_steps=steps,
        random_state=seed,
    )
    try:
        model.fit([parts[0]], validation=None)
    except RuntimeError as error:
        if "finite" not in str(error):
            raise
        return float("nan")
    return -model.score([parts[1]])


def unigram(raw: str) -> float:
    """Nats a byte by the frequencies of the bytes alone."""
    share = np.unique(np.frombuffer(raw.encode(), np.uint8), return_counts=True)[1] / len(raw.encode())
    return float(-(share * np.log(share)).sum())


def measure(given: argparse.Namespace) -> Finding:
    raw = whole_text(given)
    depths, steps, n_test, seeds = ([2, 12], 20, 2_000, 1) if given.quick else ([2, 6, 12], 200, 10_000, 2)
    parts, ceiling = (raw[:-n_test], raw[-n_test:]), unigram(raw[-n_test:])
    rows = [
        {
            "name": f"{place}, {how}",
            "layers": depth,
            "seed": seed,
            "nats": final_nats(norm, warm_up, depth, steps, seed, parts),
        }
        for depth in depths
        for place, norm in PLACES.items()
        for how, warm_up in WARM_UPS.items()
        for seed in range(seeds)
    ]
    frame = pd.DataFrame(rows)
    frame["diverged"] = ~(frame["nats"] < ceiling)
    held, sentence = judged(frame, ceiling, depths)
    title = f"After {steps} steps"
    panel = Panel(frame, "layers", "nats", title, ("layers", "nats a byte"), "", {}, {"frequencies of bytes": ceiling})
    return Finding(CLAIM, held, sentence, frame, drawn([panel], list(frame["name"].unique())))


def judged(frame: pd.DataFrame, ceiling: float, depths: list[int]) -> tuple[bool, str]:
    """The rule above; what is not finite counts as the frequencies' nats."""
    nats = frame.assign(nats=frame["nats"].fillna(ceiling).clip(upper=ceiling)).pivot_table("nats", "name", "layers")
    deep = nats[depths[-1]]
    behind, still = (deep[f"norm after, {how}"] - deep[f"norm before, {how}"] for how in WARM_UPS)
    moved = abs(deep["norm before, no warm-up"] - deep["norm before, warm-up"])
    held = bool(behind >= FAR and moved < FAR and still <= behind / 2)
    told = "; ".join(f"{name}: {', '.join(f'{row[d]:.2f}' for d in depths)}" for name, row in nats.iterrows())
    gone = int(frame["diverged"].sum())
    return (
        held,
        f"nats a byte at {', '.join(map(str, depths))} layers: {told} (frequencies alone: {ceiling:.2f}); "
        f"{gone} of {len(frame)} runs diverged.",
    )


if __name__ == "__main__":
    main(__doc__, measure, asks_for_text)
