"""Does a Transformer with the norm after each sublayer need warm-up where one with the norm before does not?

Transformers as Vaswani et al. had them (sinusoids, ReLU, biases), with the norm after or before each sublayer, of 2, 6
and 12 layers, with and without warm-up, trained on bytes of text for 200 steps by AdamW at one peak rate, 3e-3, with
gradients clipped at norm 1. A run whose gradient stops being finite, or that ends worse than the frequencies of the
bytes alone, counts as diverged.

Rule: four parts, of differences in nats a byte paired by seed, by their 95 % t intervals. Without warm-up the norm
after is worse than the norm before at 12 layers; by more there than at 2 layers; the norm before loses less than 0.1
nats without warm-up; and warm-up helps the norm after. Nats above the frequencies' count as theirs.
"""

import argparse

import numpy as np
import pandas as pd
from claim import Finding, main
from curves import Panel, drawn
from material import asks_for_text, whole_text
from verdict import Part, interval_of_mean, of_interval, of_one_run, part, signed

from seqmodels import Transformer
from seqmodels.neural import TransformerArchitecture
from seqmodels.neural.transformer.layers import NormPlacement
from seqmodels.training import GradientTraining, Trapezoid

CLAIM = (
    "A Transformer with the norm after each sublayer is hard to train without warm-up, the more so the deeper; with "
    "the norm before, warm-up can be left out (Xiong et al., 2020)."
)
PLACES: dict[str, NormPlacement] = {"norm after": "post", "norm before": "pre"}
WARM_UPS = {"no warm-up": 0.0, "warm-up": 0.2}  # part of the steps
LITTLE = 0.1


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
        architecture=TransformerArchitecture(bias=True, zero_init=False),
        # or every sublayer would add nothing at first, which is a remedy of its own
        convolution_lags=0,
        dropout=0.0,
        batch_size=16,
        lr=3e-3,
        training=GradientTraining(schedule=Trapezoid(warm_up=warm_up)),
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
    split, ceiling = (raw[:-n_test], raw[-n_test:]), unigram(raw[-n_test:])
    rows = [
        {
            "name": f"{place}, {how}",
            "layers": depth,
            "seed": seed,
            "nats": final_nats(norm, warm_up, depth, steps, seed, split),
        }
        for depth in depths
        for place, norm in PLACES.items()
        for how, warm_up in WARM_UPS.items()
        for seed in range(seeds)
    ]
    frame = pd.DataFrame(rows)
    frame["diverged"] = ~(frame["nats"] < ceiling)
    frame["ceiling"] = ceiling
    sentence = told(frame)
    title = f"After {steps} steps"
    panel = Panel(frame, "layers", "nats", title, ("layers", "nats a byte"), "", {}, {"frequencies of bytes": ceiling})
    return Finding(CLAIM, parts(frame), sentence, frame, drawn([panel], list(frame["name"].unique())))


def bounded(frame: pd.DataFrame) -> pd.DataFrame:
    """Nats by layers and seed (rows) and kind (columns); what is not finite counts as the frequencies' nats."""
    nats = frame["nats"].fillna(frame["ceiling"]).clip(upper=frame["ceiling"])
    return frame.assign(nats=nats).pivot(index=["layers", "seed"], columns="name", values="nats")


def parts(frame: pd.DataFrame) -> list[Part]:
    """The verdicts by the rule in the docstring of this script."""
    nats, (least, *_, most) = bounded(frame), sorted(frame["layers"].unique())
    behind = nats["norm after, no warm-up"] - nats["norm before, no warm-up"]
    lost = (nats["norm before, no warm-up"] - nats["norm before, warm-up"])[most].to_numpy()
    helped = nats["norm after, no warm-up"] - nats["norm after, warm-up"]
    mean, low, high = interval_of_mean(lost) if len(lost) > 1 else (lost[0], lost[0], lost[0])
    left_out = of_interval(LITTLE - high, LITTLE - low) if len(lost) > 1 else of_one_run(LITTLE - mean, LITTLE)
    deeper = (behind[most] - behind[least]).tolist()
    return [
        part("without warm-up the norm after is worse", behind[most].tolist(), f"nats a byte at {most} layers"),
        part("the more so the deeper", deeper, f"nats a byte more at {most} layers than at {least}"),
        Part("with the norm before warm-up can be left out", left_out, signed(mean, low, high, "nats a byte lost")),
        part("warm-up helps the norm after", helped[most].tolist(), f"nats a byte at {most} layers"),
    ]


def told(frame: pd.DataFrame) -> str:
    """The figures in a sentence."""
    nats = bounded(frame).groupby("layers").mean()
    each = "; ".join(f"{name}: {', '.join(f'{x:.2f}' for x in nats[name])}" for name in nats)
    gone, ceiling = int(frame["diverged"].sum()), frame["ceiling"].iloc[0]
    return (
        f"nats a byte at {', '.join(map(str, nats.index))} layers: {each} (frequencies alone: {ceiling:.2f}); "
        f"{gone} of {len(frame)} runs diverged."
    )


if __name__ == "__main__":
    main(__doc__, measure, asks_for_text)
