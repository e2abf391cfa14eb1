"""Do a network's errors accumulate when it goes on from its own outputs instead of the truth?

The truth is a hidden Markov model that is known: words of three to six letters follow each other as a Markov chain, one letter in fifty
is a slip. So for any beginning, also one that a network wrote, the true distribution of the next letter is known exactly, and a
network's error at a step is a divergence in nats, KL(truth || network), with nothing drawn but the beginning. It is measured by step
after three kinds of beginnings: the truth's (teacher forcing), the network's own draws, and its own best guesses (greedy); all begin
with eight true letters. A beginning that no training sequence resembles is where exposure bias would show.

Held, if for every network the divergence over the last quarter of steps is at least 10% larger after its own draws than after the
truth, and this excess, as a ratio, is larger there than in the first quarter: errors accumulate.
"""

import argparse
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from claim import Finding, main
from curves import Panel, drawn
from torch import Tensor

from seqmodels import HMM, LSTM, ElmanRNN, SequenceModel, Symbols, Transformer

CLAIM = (
    "A network trained on true beginnings only is not used to its own, and its errors accumulate along what it generates: exposure "
    "bias (Bengio et al., 2015; Ranzato et al., 2016)."
)
N_LETTERS, N_WORDS, SLIP = 6, 10, 0.02
TRUE_START, LENGTH, BIN = 8, 88, 8
MORE = 1.1
Choose = Callable[[Tensor, Tensor, torch.Generator], Tensor]


def true_model() -> HMM:
    """States are the places of the letters in the words; the last of a word leads to the first of two or three others, as a rule."""
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
def by_step(model: SequenceModel, truth: HMM, x: Tensor, choose: Choose) -> pd.DataFrame:
    """Walks model and truth along the same beginnings (n, T); for each step the divergence, and what the truth thinks of the model's letters."""
    guessed, known, rows = model.start(None, len(x)), truth.start(None, len(x)), []
    generator = torch.Generator().manual_seed(0)
    for t in range(x.shape[1]):
        log_q, log_p = model.distribution(guessed).log_probs(), truth.distribution(known).log_probs()  # (n, V)
        divergence = (log_p.exp() * (log_p - log_q)).sum(-1).mean()
        true_nats = -(log_q.exp() * log_p).sum(-1).mean()
        agrees = (log_p.argmax(-1) == log_q.argmax(-1)).double().mean()
        rows.append(
            {"step": t + 1, "divergence": float(divergence), "true_nats": float(true_nats), "agrees": float(agrees)}
        )
        letter = x[:, t] if t < TRUE_START else choose(log_q, x[:, t], generator)
        guessed, known = model.advance(guessed, letter), truth.advance(known, letter)
    return pd.DataFrame(rows)


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
    frames = []
    for network, model in networks(steps).items():
        model.fit(train, validation=None)
        frames += [
            by_step(model, truth, x, choose).assign(network=network, name=name) for name, choose in BEGINNINGS.items()
        ]
    frame = pd.concat(frames, ignore_index=True)
    held, sentence = judged(frame)
    means = (
        frame.assign(step=(frame["step"] - 1) // BIN * BIN + (BIN + 1) / 2)
        .groupby(["network", "name", "step"], as_index=False)
        .mean()
    )
    labels = ("step", "nats a letter, KL(truth || network)")
    start = {"true start": TRUE_START + 0.5}
    panels = [Panel(means[means["network"] == n], "step", "divergence", n, labels, "", start) for n in networks(steps)]
    return Finding(CLAIM, held, sentence, frame, drawn(panels, list(BEGINNINGS)))


def judged(frame: pd.DataFrame) -> tuple[bool, str]:
    """The rule above."""
    quarter = (frame["step"] - TRUE_START - 1) // ((LENGTH - TRUE_START) // 4)  # -1: the true start
    divergence = (
        frame.groupby(["network", "name", quarter.rename("quarter")], sort=False)["divergence"].mean().unstack("name")
    )
    ratio = (divergence["its own draws"] / divergence["the truth"]).unstack("quarter")
    held = bool(((ratio[3] >= MORE) & (ratio[3] > ratio[0])).all())
    told = "; ".join(
        f"{n}: {divergence.loc[(n, 3), 'the truth']:.4f} after the truth, {divergence.loc[(n, 3), 'its own draws']:.4f} after its own draws "
        f"({ratio.loc[n, 0]:.2f} times as much in the first quarter, {ratio.loc[n, 3]:.2f} in the last), "
        f"{divergence.loc[(n, 3), 'its best guesses']:.4f} after its best guesses"
        for n in ratio.index
    )
    return held, f"nats a letter from the truth in the last quarter, {told}."


if __name__ == "__main__":
    main(__doc__, measure)
