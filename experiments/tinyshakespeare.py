"""At equal seconds, which family models characters best? ``python experiments/tinyshakespeare.py input.txt [SECONDS]``.

The split is nanoGPT's: the last 111,540 characters are held out. Anything tuned was tuned inside the first part. The
n-gram takes the seconds that counting takes, the iid model those of one symbol's frequencies. Seconds are of the
processor, not of the clock, so that other load on the machine counts little.
"""

import sys
import time

from seqmodels import GRU, HMM, LSTM, Categorical, ElmanRNN, NGram, Sequences, Transformer, data
from seqmodels.evaluation.runs.run import run
from seqmodels.evaluation.runs.suites import Task

HELD_OUT = 111_540


def hmm(n_states: int, seconds: float) -> HMM:
    """Stepwise EM, which learns more of one long text in the same time."""
    observation = Categorical(0.01)
    steps = {"algorithm": "stepwise", "batches": 24, "step_decay": 0.5, "max_iter": 10_000, "tol": 0}
    return HMM(n_states, observation=observation, pseudocount=0.01, max_seconds=seconds, **steps)


if __name__ == "__main__":
    time.perf_counter = time.process_time  # which budgets in seconds look at
    text = str(data.text(sys.argv[1])[0])
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 200.0
    train, test = Sequences([text[:-HELD_OUT]]), Sequences([text[-HELD_OUT:]])
    models = {
        "iid": HMM(1),
        "5-gram": NGram(5),
        "7-gram": NGram(7),
        **{f"hmm-{n}": hmm(n, seconds) for n in (64, 256, 1024)},
        "elman": ElmanRNN(batch_size=16, max_seconds=seconds),
        "lstm": LSTM(batch_size=16, dropout=0.15, max_seconds=seconds),
        "gru": GRU(batch_size=16, max_seconds=seconds),
        "transformer": Transformer(max_seconds=seconds),
    }
    title = f"tinyshakespeare, {seconds:.0f} s a model"
    task = Task("tinyshakespeare", title, (train, None), (test, None), models, 7 * seconds, baseline="hmm-64")
    run([task], "experiments/results/tinyshakespeare")
