"""How well do HMMs and networks model Bach's chords? ``python experiments/chorales.py FILE [--networks] [--steps N]``.

FILE is the JSON of the JSB chorales in quarter notes. Piano rolls of 88 keys, nats a frame: total log-probability over
total frames, lengths given. Settings were chosen on the validation part, those of networks with the LSTM.

HMMs of independent keys get the chorales as they are. With ``--networks`` these are compared instead: they name the
notes of a chord one after another (``Chords``), are trained on every chorale in all twelve keys for so many steps each,
and keep the weights that do best on the validation part; two of the HMMs stand beside them.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from seqmodels import GRU, HMM, LSTM, Bernoulli, Chords, ElmanRNN, SequenceModel, Sequences, Transformer
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.neural.model import NeuralModel
from seqmodels.training import GradientTraining

RESULTS = Path("experiments/results/chorales")
LOWEST, N_KEYS = 21, 88  # MIDI
SHIFTS = range(-5, 7)  # semitones: every key once
# n_states -> (pseudocount of transitions, pseudocount of keys, EM steps, starts), chosen on the validation part
SETTINGS = {1: (0.0, 1.0, 5, 1), 24: (0.1, 3.0, 80, 10), 64: (0.1, 3.0, 80, 3), 256: (0.05, 2.5, 40, 1)}
BESIDE_NETWORKS = (64, 256)  # states


def piano_rolls(path: str) -> dict[str, Sequences]:
    """By part, ``(T, 88)`` of zeros and ones."""
    parts = json.loads(Path(path).read_text())
    return {name: Sequences([_roll(chords) for chords in pieces]) for name, pieces in parts.items()}


def _roll(chords: list[list[int]]) -> np.ndarray:
    roll = np.zeros((len(chords), N_KEYS))
    for t, pitches in enumerate(chords):
        roll[t, np.array(pitches, dtype=int) - LOWEST] = 1.0
    return roll


def in_all_keys(rolls: Sequences) -> Sequences:
    """Every chorale moved by each of ``SHIFTS``; no note leaves the keyboard by that."""
    return Sequences([np.roll(roll, shift, axis=1) for shift in SHIFTS for roll in rolls])


def hmm(parts: dict[str, Sequences], n_states: int) -> dict[str, object]:
    """The prior of a state's keys: how often each sounds in all training frames.

    A key that never does counts as if it had in one frame more.
    """
    pseudocount, frames, steps, n_init = SETTINGS[n_states]
    sounding = np.concatenate(list(parts["train"]))
    mean = (sounding.sum(0) + 1 / N_KEYS) / (len(sounding) + 1)
    observation = Bernoulli(pseudocount=frames, mean=mean.tolist())
    model = HMM(n_states, observation=observation, pseudocount=pseudocount, max_iter=steps, tol=1e-5, n_init=n_init)
    row = measured(f"hmm-{n_states}", model, parts, lambda: model.fit(parts["train"]))
    chosen = {"pseudocount": pseudocount, "key_pseudocount": frames, "n_init": n_init}
    return row | chosen | {"em_steps": int(model.history_["step"].iloc[-1])}


def networks(steps: int) -> dict[str, NeuralModel]:
    """Every architecture with the density that was chosen with the LSTM, and the LSTM with independent keys."""
    same: dict[str, Any] = {
        "dropout": 0.3,
        "batch_size": 16,
        "training": GradientTraining(patience=20),
        "max_steps": steps,
    }
    chords = Chords(n_hidden=256, dropout=0.2)
    return {
        "lstm": LSTM(d_model=256, observation=chords, **same),
        "gru": GRU(d_model=256, observation=chords, **same),
        "elman": ElmanRNN(d_model=256, observation=chords, **same),
        "transformer": Transformer(d_model=128, context=128, observation=chords, **same),
        "lstm-bernoulli": LSTM(d_model=256, observation=Bernoulli(), **same),
    }


def network(name: str, model: NeuralModel, parts: dict[str, Sequences]) -> dict[str, object]:
    shifted = in_all_keys(parts["train"])
    row = measured(name, model, parts, lambda: model.fit(shifted, validation=parts["valid"]))
    history = model.history_
    steps = {"steps": int(history["step"].iloc[-1]), "best_step": int(history["step"][history["validation"].idxmax()])}
    return row | {"observation": repr(model.observation)} | steps


def measured(
    name: str, model: SequenceModel, parts: dict[str, Sequences], fit: Callable[[], object]
) -> dict[str, object]:
    """What both kinds have in the table."""
    began, worked = time.perf_counter(), time.process_time()
    fit()
    seconds, busy = time.perf_counter() - began, time.process_time() - worked
    return {
        "model": name,
        **{part: round(model.score(parts[part]), 4) for part in ("train", "valid", "test")},
        "n_parameters": model.n_parameters_,
        "fit_seconds": round(seconds, 1),
        "fit_cpu_seconds": round(busy, 1),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--networks", action="store_true")
    parser.add_argument("--steps", type=int, default=1_500, help="of training each network")
    arguments = parser.parse_args()
    parts = piano_rolls(arguments.file)
    rows = []
    for name, model in networks(arguments.steps).items() if arguments.networks else ():
        rows.append(network(name, model, parts))
        print(rows[-1], flush=True)
    columns = list(rows[0]) if rows else None  # of HMMs beside networks what networks have too
    rows += [hmm(parts, n_states) for n_states in (BESIDE_NETWORKS if arguments.networks else SETTINGS)]
    frame = pd.DataFrame(rows, columns=columns)
    print(frame.to_string(index=False))
    stamped(frame).to_csv(RESULTS / ("networks.csv" if arguments.networks else "chorales.csv"), index=False)
