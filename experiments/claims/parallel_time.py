"""Does a Transformer train in parallel over time where a recurrent network has to step?

Seconds of one forward and backward pass per step of the sequence, of one layer of each network at equal width, against
the length of the sequence: one sequence at a time, where only parallelism over time can help, and in batches of equally
many steps in all, where there are other sequences to be done at once. All take turns in one process and medians are
compared; on a CPU it is the time of the one thread that computes, whatever else the machine does. There "parallel"
means that many steps are one matrix product; on a GPU (``--device cuda``) they are also done at the same time.

Rule: two parts. One sequence of as many steps as the network is wide (up to where self-attention is the cheaper, by
Vaswani et al.'s table 1) takes the Transformer less time than each recurrent network; and from the shortest sequence to
this one its time per step falls by a larger factor than theirs. On a GPU a part held if it is so by a tenth, and was
contradicted if the reverse is. One thread of a CPU does nothing in parallel, so its times decide nothing: undecided.
"""

import argparse
import time
from statistics import median

import pandas as pd
import torch
from claim import Finding, main
from curves import Panel, drawn
from verdict import Part, of_one_run

from seqmodels.neural.network import Network
from seqmodels.neural.recurrent.elman import ElmanNetwork
from seqmodels.neural.recurrent.gru import GRUNetwork
from seqmodels.neural.recurrent.lstm import LSTMNetwork
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.network import TransformerNetwork

CLAIM = (
    "Self-attention takes a constant number of sequential operations where recurrence takes one for every step, so a "
    "Transformer trains in parallel over time (Vaswani et al., 2017, section 4)."
)
STEPS_IN_ALL = 2048
ALONE, TOGETHER = "one sequence", f"batches of {STEPS_IN_ALL:,} steps"


def networks(width: int) -> dict[str, Network]:
    transformer = TransformerConfig(d_model=width, n_layers=1, n_heads=4, dropout=0.0)
    return {
        "Elman RNN": ElmanNetwork(width, nonlinearity="relu6"),
        "LSTM": LSTMNetwork(width),
        "GRU": GRUNetwork(width),
        "Transformer": TransformerNetwork(transformer),
    }


def seconds(network: Network, inputs: torch.Tensor) -> float:
    """Of one forward and backward pass over ``inputs`` (B, T, d)."""
    began = _clock(inputs.is_cuda)
    hidden, _ = network(inputs, network.start(len(inputs)))
    hidden.square().mean().backward()
    return _clock(inputs.is_cuda) - began


def _clock(cuda: bool) -> float:
    """Seconds, on a GPU once it is done with what it was given."""
    if not cuda:
        return time.thread_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def timed(candidates: dict[str, Network], shape: tuple[int, int, int], repeats: int, device: str) -> dict[str, float]:
    """Median microseconds a step, networks in turn; the first pass of each is not counted."""
    inputs = torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(device)
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats + 1):
        for name, network in candidates.items():
            taken[name].append(seconds(network, inputs))
    return {name: 1e6 * median(times[1:]) / (shape[0] * shape[1]) for name, times in taken.items()}


def measure(given: argparse.Namespace) -> Finding:
    width, repeats = (32, 3) if given.quick else (128, 15)
    lengths = [8, 32, 64] if given.quick else [16, 32, 64, 128, 256, 512, 1024]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    candidates = {name: network.to(given.device) for name, network in networks(width).items()}
    rows = []
    for length in lengths:
        for batch, n in {ALONE: 1, TOGETHER: STEPS_IN_ALL // length}.items():
            times = timed(candidates, (n, length, width), repeats, given.device)
            rows += [{"name": k, "batch": batch, "length": length, "microseconds": v} for k, v in times.items()]
    frame = pd.DataFrame(rows).assign(width=width, device=given.device)
    sentence = told(frame, lengths[0], width)
    labels = ("steps of the sequence", "microseconds a step, forward and backward")
    panels = [
        Panel(
            frame[frame["batch"] == batch], "length", "microseconds", batch.capitalize(), labels, "xy", {"width": width}
        )
        for batch in (ALONE, TOGETHER)
    ]
    return Finding(CLAIM, parts(frame, lengths[0], width), sentence, frame, drawn(panels, list(candidates), alike=True))


def parts(frame: pd.DataFrame, shortest: int, width: int) -> list[Part]:
    """The verdicts by the rule in the docstring of this script."""
    alone = frame[frame["batch"] == ALONE].pivot(index="name", columns="length", values="microseconds")
    at, gain = alone[width], alone[shortest] / alone[width]
    faster = float(at.drop("Transformer").min() / at["Transformer"])
    larger = float(gain["Transformer"] / gain.drop("Transformer").max())
    on_gpu = bool((frame["device"] == "cuda").all())
    where = "on a GPU" if on_gpu else "on one thread of a CPU"
    claims = {
        "a long sequence takes a Transformer less time than recurrent networks": (faster, "the speed of the fastest"),
        "its time per step falls more with the length": (larger, "the largest factor of theirs"),
    }
    return [
        Part(claim, of_one_run(ratio - 1, 0.1) if on_gpu else "undecided", f"{ratio:.2f} times {of_what} {where}")
        for claim, (ratio, of_what) in claims.items()
    ]


def told(frame: pd.DataFrame, shortest: int, width: int) -> str:
    """The figures in a sentence."""
    alone = frame[frame["batch"] == ALONE].pivot(index="name", columns="length", values="microseconds")
    at, gain = alone[width], alone[shortest] / alone[width]
    times = ", ".join(f"{name} {at[name]:.0f} (fell {gain[name]:.1f}-fold)" for name in at.index)
    longest = alone.columns.max()
    ratio = alone.loc[["Elman RNN", "LSTM", "GRU"], longest] / alone.loc["Transformer", longest]
    where = "a GPU" if (frame["device"] == "cuda").all() else "one thread of a CPU"
    return (
        f"on {where}, microseconds a step of one sequence of {width}, and how far they fell from {shortest} steps: "
        f"{times}; at {longest} steps the recurrent ones take {', '.join(f'{r:.1f}' for r in ratio)} times as long "
        "(Elman, LSTM, GRU)."
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")


if __name__ == "__main__":
    main(__doc__, measure, arguments)
