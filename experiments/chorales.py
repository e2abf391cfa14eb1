"""How well do HMMs model Bach's chords? ``python experiments/chorales.py FILE``.

FILE is the JSON of the JSB chorales in quarter notes.

Piano rolls of 88 keys, nats a frame: total log-probability over total frames, lengths given. Settings were chosen on
the validation part.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from seqmodels import HMM, Bernoulli, Sequences
from seqmodels.evaluation.comparison.provenance import stamped

RESULTS = "experiments/results/chorales/chorales.csv"
LOWEST, N_KEYS = 21, 88  # MIDI
# n_states -> (pseudocount of transitions, pseudocount of keys, EM steps, starts), chosen on the validation part
SETTINGS = {1: (0.0, 1.0, 5, 1), 24: (0.1, 3.0, 80, 10), 64: (0.1, 3.0, 80, 3), 256: (0.05, 2.5, 40, 1)}


def piano_rolls(path: str) -> dict[str, Sequences]:
    """By part, ``(T, 88)`` of zeros and ones."""
    parts = json.loads(Path(path).read_text())
    return {name: Sequences([_roll(chords) for chords in pieces]) for name, pieces in parts.items()}


def _roll(chords: list[list[int]]) -> np.ndarray:
    roll = np.zeros((len(chords), N_KEYS))
    for t, pitches in enumerate(chords):
        roll[t, np.array(pitches, dtype=int) - LOWEST] = 1.0
    return roll


def fit(parts: dict[str, Sequences], n_states: int) -> dict[str, object]:
    """The prior of a state's keys: how often each sounds in all training frames.

    A key that never does counts as if it had in one frame more.
    """
    pseudocount, frames, steps, n_init = SETTINGS[n_states]
    sounding = np.concatenate(list(parts["train"]))
    mean = (sounding.sum(0) + 1 / N_KEYS) / (len(sounding) + 1)
    observation = Bernoulli(pseudocount=frames, mean=mean.tolist())
    model = HMM(n_states, observation=observation, pseudocount=pseudocount, max_iter=steps, tol=1e-5, n_init=n_init)
    began, worked = time.perf_counter(), time.process_time()
    model.fit(parts["train"])
    return {
        "model": f"hmm-{n_states}",
        **{name: round(model.score(parts[name]), 4) for name in ("train", "valid", "test")},
        "pseudocount": pseudocount,
        "key_pseudocount": frames,
        "n_parameters": model.n_parameters_,
        "n_init": n_init,
        "em_steps": int(model.history_["step"].iloc[-1]),
        "fit_seconds": round(time.perf_counter() - began, 1),
        "fit_cpu_seconds": round(time.process_time() - worked, 1),
    }


if __name__ == "__main__":
    parts = piano_rolls(sys.argv[1])
    frame = stamped(pd.DataFrame([fit(parts, n_states) for n_states in SETTINGS]))
    frame.to_csv(RESULTS, index=False)
    print(frame.drop(columns=["command", "date", "hardware"]).to_string(index=False))
