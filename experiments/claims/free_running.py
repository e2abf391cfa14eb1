"""Do a network's errors accumulate when it goes on from its own outputs instead of the truth?

The truth is a hidden Markov model that is known: words of three to six letters follow each other as a Markov chain, one
letter in fifty is a slip. So for any beginning, also one that a network wrote, the true distribution of the next letter
is known exactly, and a network's error at a step is a divergence in nats, KL(truth || network), with nothing drawn but
the beginning. It is measured by step after three kinds of beginnings: the truth's (teacher forcing), the network's own
draws, and its own best guesses (greedy); all begin with eight true letters. A beginning that no training sequence
resembles is where exposure bias would show.

Rule: two parts. Errors are larger after a network's own draws than after the truth: for every network the difference of
the divergences, in bins of 8 steps after the true beginning, has a 95 % t interval over bins above zero. And they
accumulate: for every network the excess in the last quarter of steps minus that in the first has an interval over the
walks, which are paired, above zero. A part was contradicted if an interval lies below.
"""

import argparse
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from claim import Finding, main
from curves import Panel, drawn
from torch import Tensor
from verdict import Part, interval_of_mean, of_all, of_interval, signed

from seqmodels import HMM, LSTM, ElmanRNN, SequenceModel, Symbols, Transformer

CLAIM = (
    "A network trained on true beginnings only is not used to its own, and its errors accumulate along what it "
    "generates: exposure bias (Bengio et al., 2015; Ranzato et al., 2016)."
)
N_LETTERS, N_WORDS, SLIP = 6, 10, 0.02
TRUE_START, LENGTH, BIN = 8, 88, 8
Choose = Callable[[Tensor, Tensor, torch.Generator], Tensor]


def true_model() -> HMM:
    """An HMM whose states are the positions of the letters in the words.

    The last letter of a word mostly leads to the first of two or three others.
    """
    rng = np.random.default_rng(0)
    words = [rng.integers(N_LETTERS, size=n) for n in rng.integers(3, 7, size=N_WORDS)]
    letters, last = np.concatenate(words), np.cumsum([len(word) for word in words]) - 1
    first = np.concatenate([[0], last[:-1] + 1])
    transition = np.eye(len(letters), k=1)
    transition[last] = 0.0
    transition[np.ix_(last, first)] = rng.dirichlet(np.full(N_WORDS, 0.2), size=N_WORDS)
    initial = np.zeros(len(letters))
    initial[first] = 1 / N_WORDS
    emission = (1 - SLIP) * np.eye(N_LETTERS)[letters] + SLIP / N_LETTERS
    return HMM.from_parameters(initial, transition, emission=emission)


def the_truth(log_p: Tensor, true: Tensor, generator: torch.Generator) -> Tensor:
    return true


def own_draw(log_p: Tensor, true: Tensor, generator: torch.Generator) -> Tensor:
    return torch.multinomial(log_p.exp(), 1, generator=generator)[:, 0]


def best_guess(log_p: Tensor, true: Tensor, generator: torch.Generator) -> Tensor:
    return log_p.argmax(-1)


BEGINNINGS: dict[str, Choose] = {"the truth": the_truth, "its own draws": own_draw, "its best guesses": best_guess}


@torch.no_grad()
def divergences(model: SequenceModel, truth: HMM, x: Tensor, choose: Choose) -> np.ndarray:
    """KL(truth || model) in nats (n, T) of the next letter, along n prefixes that are continued as ``choose`` says.

    ``x`` (n, T) are the sequences of the truth.
    """
    model_cursor, true_cursor, found = model.cursor(), truth.cursor(), []
    guessed, known = model_cursor.start(None, len(x)), true_cursor.start(None, len(x))
    generator = torch.Generator().manual_seed(0)
    for t in range(x.shape[1]):
        log_q = model_cursor.distribution(guessed).log_probs()  # (n, V)
        log_p = true_cursor.distribution(known).log_probs()
        found.append((log_p.exp() * (log_p - log_q)).sum(-1))
        letter = x[:, t] if t < TRUE_START else choose(log_q, x[:, t], generator)
        guessed, known = model_cursor.advance(guessed, letter), true_cursor.advance(known, letter)
    return torch.stack(found, 1).numpy()


def networks(steps: int) -> dict[str, SequenceModel]:
    alphabet = Symbols(N_LETTERS)
    return {
        "Elman RNN": ElmanRNN(d_model=64, max_steps=steps, dropout=0.0, length="given", encoding=alphabet),
        "LSTM": LSTM(d_model=64, max_steps=steps, dropout=0.0, length="given", encoding=alphabet),
        "Transformer": Transformer(
            d_model=64, n_layers=2, max_steps=steps, dropout=0.0, length="given", encoding=alphabet
        ),
    }


def measure(given: argparse.Namespace) -> Finding:
    n_train, steps, n_walks = (200, 40, 50) if given.quick else (2_000, 600, 1_000)
    truth = true_model()
    train = truth.sample(n_train, length=LENGTH, random_state=1)
    x = torch.as_tensor(np.stack(truth.sample(n_walks, length=LENGTH, random_state=2)))
    walks = {}
    for network, model in networks(steps).items():
        model.fit(train, validation=None)
        walks |= {(network, how): divergences(model, truth, x, choose) for how, choose in BEGINNINGS.items()}
    frame = pd.concat([binned(each).assign(network=n, name=how) for (n, how), each in walks.items()], ignore_index=True)
    grew = growths(walks)
    sentence = told(walks, grew)
    labels, start = ("step", "nats a letter, KL(truth || network)"), {"true start": TRUE_START + 0.5}
    panels = [
        Panel(frame[frame["network"] == n], "step", "divergence", n, labels, upright=start) for n in networks(steps)
    ]
    return Finding(CLAIM, parts(frame, grew), sentence, frame, drawn(panels, list(BEGINNINGS), alike=True))


def binned(walks: np.ndarray) -> pd.DataFrame:
    """Means over walks and ``BIN`` steps, at their middle."""
    means = walks.mean(0).reshape(-1, BIN).mean(1)
    return pd.DataFrame({"step": np.arange(len(means)) * BIN + (BIN + 1) / 2, "divergence": means})


def quarters(walks: np.ndarray) -> np.ndarray:
    """(n, 4) means over the quarters of the steps after the true beginning."""
    return walks[:, TRUE_START:].reshape(-1, 4, (LENGTH - TRUE_START) // 4).mean(2)


def growths(walks: dict[tuple[str, str], np.ndarray]) -> dict[str, tuple[float, float]]:
    """Of each network by how much the excess grew from the first to the last quarter, and its standard error."""
    found = {}
    for network in dict.fromkeys(name for name, _ in walks):
        excess = quarters(walks[network, "its own draws"]) - quarters(walks[network, "the truth"])
        growth = excess[:, 3] - excess[:, 0]
        found[network] = float(growth.mean()), float(growth.std(ddof=1) / len(growth) ** 0.5)
    return found


def parts(frame: pd.DataFrame, grew: dict[str, tuple[float, float]]) -> list[Part]:
    """The verdicts by the rule in the docstring of this script, from the bins and from ``growths``."""
    free = frame[frame["step"] > TRUE_START].pivot(index=["network", "step"], columns="name", values="divergence")
    excess = free["its own draws"] - free["the truth"]
    larger = {network: interval_of_mean(rows.to_numpy()) for network, rows in excess.groupby("network")}
    growth = {name: (mean, mean - 1.96 * error, mean + 1.96 * error) for name, (mean, error) in grew.items()}
    return [
        Part(
            claim,
            of_all(of_interval(low, high) for _, low, high in found.values()),
            "; ".join(f"{name} {signed(*ends, 'nats')}" for name, ends in found.items()),
        )
        for claim, found in {
            "errors are larger after a network's own draws than after the truth": larger,
            "they accumulate along what it generates": growth,
        }.items()
    ]


def told(walks: dict[tuple[str, str], np.ndarray], grew: dict[str, tuple[float, float]]) -> str:
    """The figures in a sentence."""
    each = []
    for network, (mean, error) in grew.items():
        truth, own, greedy = (quarters(walks[network, how]) for how in BEGINNINGS)
        ratio = own.mean(0) / truth.mean(0)
        each.append(
            f"{network} {truth[:, 3].mean():.4f} after the truth and {own[:, 3].mean():.4f} after its own draws "
            f"({ratio[0]:.2f} times as much in the first quarter, {ratio[3]:.2f} in the last; "
            f"the excess grew by {mean:.4f} ± {error:.4f}), "
            f"{greedy[:, 3].mean():.4f} after its best guesses"
        )
    return f"nats a letter from the truth in the last quarter: {'; '.join(each)}."


if __name__ == "__main__":
    main(__doc__, measure)
