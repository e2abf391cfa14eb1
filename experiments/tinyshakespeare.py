"""At equal seconds, which family models characters best? ``python experiments/tinyshakespeare.py input.txt [SECONDS]``.

The split is nanoGPT's: the last 111,540 characters are held out. Anything tuned was tuned inside the first part.
"""

import sys

from seqmodels import GRU, HMM, LSTM, ElmanRNN, Sequences, Transformer, data
from seqmodels.evaluation.run import run
from seqmodels.evaluation.standard import Task

HELD_OUT = 111_540

if __name__ == "__main__":
    text = str(data.text(sys.argv[1])[0])
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 200.0
    train, test = Sequences([text[:-HELD_OUT]]), Sequences([text[-HELD_OUT:]])
    models = {
        "iid": HMM(1),
        "hmm": HMM(64, max_iter=1000, tol=1e-5, max_seconds=seconds),
        "elman": ElmanRNN(d_model=384, max_seconds=seconds),
        "lstm": LSTM(d_model=384, max_seconds=seconds),
        "gru": GRU(d_model=256, max_seconds=seconds),
        "transformer": Transformer(dropout=0.05, max_seconds=seconds),
    }
    title = f"tinyshakespeare, {seconds:.0f} s a model"
    task = Task("tinyshakespeare", title, (train, None), (test, None), models, (len(models) - 1) * seconds)
    run([task], "experiments/results/tinyshakespeare")
