"""What do counts of short strings make of characters? ``python experiments/ngram_text.py FILE``.

The split is nanoGPT's: the last 111,540 characters are held out. The order was chosen on as many characters before
them: of each smoothing the best there, and 3- and 5-grams, which others report, are then fitted on all that is not held
out. Nats a character, with seconds, go to ``experiments/results/ngram_text/``.
"""

import sys
from pathlib import Path

import pandas as pd

from seqmodels import NGram, data
from seqmodels.evaluation.comparison.provenance import stamped

HELD_OUT = 111_540
RESULTS = Path("experiments/results/ngram_text")
ORDERS, REPORTED = range(2, 11), (3, 5)
SMOOTHINGS = ("kneser-ney", "witten-bell")


def learn(train: str, test: str, order: int, smoothing: str) -> dict[str, object]:
    model = NGram(order, smoothing=smoothing, length="given").fit([train])
    return {
        "smoothing": smoothing,
        "order": order,
        "strings": model.n_parameters_,
        "seconds": round(model.fit_seconds_, 2),
        "train": round(-model.history_["log_prob"].iloc[-1], 4),
        "held_out": round(-model.score([test]), 4),
    }


def main() -> None:
    text = str(data.text(sys.argv[1])[0])
    first, test = text[:-HELD_OUT], text[-HELD_OUT:]
    inside = pd.DataFrame(
        [learn(first[:-HELD_OUT], first[-HELD_OUT:], n, smoothing) for smoothing in SMOOTHINGS for n in ORDERS]
    )
    best = inside.loc[inside.groupby("smoothing")["held_out"].idxmin()].set_index("smoothing")["order"]
    pairs = [(s, n) for s in SMOOTHINGS for n in sorted({*REPORTED, int(best[s])})]
    found = pd.DataFrame([learn(first, test, n, s) for s, n in pairs])
    RESULTS.mkdir(parents=True, exist_ok=True)
    frame = pd.concat([inside.assign(part="inside"), found.assign(part="test")], ignore_index=True)
    print(frame.to_string())
    stamped(frame).to_csv(RESULTS / "characters.csv", index=False)


if __name__ == "__main__":
    main()
