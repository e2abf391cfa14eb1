"""How well do networks model Bach's chords? ``python experiments/chorale_networks.py FILE [STEPS [NETWORK ...]]``.

FILE is the JSON that ``chorales.py`` reads.

Nats a frame as there: total over total, lengths given, 88 keys. Networks name the notes of a chord one after another
(``Chords``), are trained on every chorale in all twelve keys for so many steps each, and keep the weights that do best
on the validation part, on which the LSTM's settings were chosen. HMMs of independent keys stand beside them; they get
the chorales as they are, and EM takes what it takes.
"""

import sys
import time
from typing import Any

import numpy as np
import pandas as pd
from chorales import fit as fit_hmm
from chorales import piano_rolls

from seqmodels import GRU, LSTM, Bernoulli, Chords, ElmanRNN, Sequences, Transformer
from seqmodels.evaluation.comparison.provenance import stamped
from seqmodels.neural.model import NeuralModel

RESULTS = "experiments/results/chorales/networks.csv"
SHIFTS = range(-5, 7)  # semitones: every key once
HMMS = (64, 256)


def networks(steps: int) -> dict[str, NeuralModel]:
    """Every architecture with the density that was chosen with the LSTM, and the LSTM with independent keys."""
    same: dict[str, Any] = {"dropout": 0.3, "batch_size": 16, "patience": 20, "max_steps": steps}
    chords = Chords(n_hidden=256, dropout=0.2)
    return {
        "lstm": LSTM(d_model=256, observation=chords, **same),
        "gru": GRU(d_model=256, observation=chords, **same),
        "elman": ElmanRNN(d_model=256, observation=chords, **same),
        "transformer": Transformer(d_model=128, context=128, observation=chords, **same),
        "lstm-bernoulli": LSTM(d_model=256, observation=Bernoulli(), **same),
    }


def in_all_keys(rolls: Sequences) -> Sequences:
    """Every chorale moved by each of ``SHIFTS``; no note leaves the keyboard by that."""
    return Sequences([np.roll(roll, shift, axis=1) for shift in SHIFTS for roll in rolls])


def fit(name: str, model: NeuralModel, parts: dict[str, Sequences]) -> dict[str, object]:
    began, worked = time.perf_counter(), time.process_time()
    model.fit(in_all_keys(parts["train"]), validation=parts["valid"])
    return {
        "model": name,
        **{part: round(model.score(parts[part]), 4) for part in ("train", "valid", "test")},
        "observation": repr(model.observation),
        "n_parameters": model.n_parameters_,
        "steps": int(model.history_["step"].iloc[-1]),
        "best_step": int(model.history_["step"][model.history_["validation"].idxmax()]),
        "fit_seconds": round(time.perf_counter() - began, 1),
        "fit_cpu_seconds": round(time.process_time() - worked, 1),
    }


if __name__ == "__main__":
    parts = piano_rolls(sys.argv[1])
    models = networks(int(sys.argv[2]) if len(sys.argv) > 2 else 1_500)
    rows = []
    for name in sys.argv[3:] or models:
        rows.append(fit(name, models[name], parts))
        print(rows[-1], flush=True)
    rows += [fit_hmm(parts, n_states) for n_states in HMMS]
    frame = stamped(pd.DataFrame(rows)[list(rows[0])])  # of the HMMs what networks have too
    frame.to_csv(RESULTS, index=False)
    print(frame.drop(columns=["command", "date", "hardware"]).to_string(index=False))
