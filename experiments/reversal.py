"""Does attention reach where one vector cannot? ``python experiments/reversal.py [--seconds S] [--models NAME ...]``.

The target is the source from its end to its beginning: ten symbols, drawn alike, 30,000 pairs of 3 to 15 to train on,
tests of 3 to 15 and of 16 to 24, longer than any seen. Nothing but the end of the target is left to chance, so zero
nats a symbol is perfect and log 10 = 2.30 a guess. Claims: either attention is within 0.1 nats in range, and out of
range the fixed vector needs at least half a nat more than the better of them.
"""

import argparse
from typing import Any

import numpy as np
from encoder_decoders import Pairs, budget, decoded, draw_by_length, models, parser, table, verdict, written

from seqmodels import SequenceModel, Sequences, Symbols
from seqmodels.training import GradientTraining

N_SYMBOLS, N_TRAIN, N_TEST = 10, 30_000, 1_000
IN_RANGE, OUT_OF_RANGE = (3, 15), (16, 24)
CLOSE, FAR = 0.1, 0.5  # nats a symbol


def reversals(n: int, lengths: tuple[int, int], seed: int) -> Pairs:
    rng = np.random.default_rng(seed)
    sources = [rng.integers(N_SYMBOLS, size=rng.integers(lengths[0], lengths[1] + 1)) for _ in range(n)]
    return Sequences(sources), Sequences([source[::-1] for source in sources])


def candidates(given: argparse.Namespace) -> dict[str, SequenceModel]:
    same: dict[str, Any] = {
        **budget(given),
        "d_model": 64,
        "batch_size": 64,
        "training": GradientTraining(patience=20),
        "dropout": 0.0,
    }
    same["encoding"] = Symbols(N_SYMBOLS)
    return models(given.models, {**same, "lr": 6e-3}, same)


def main(given: argparse.Namespace) -> None:
    train, valid = reversals(N_TRAIN, IN_RANGE, 0), reversals(N_TEST, IN_RANGE, 1)
    near, far = reversals(N_TEST, IN_RANGE, 2), reversals(N_TEST, OUT_OF_RANGE, 3)

    def measure(model: SequenceModel) -> dict[str, Any]:
        figures = {}
        for where, (X, y) in {"in_range": near, "out_of_range": far}.items():
            pairs = X[: given.decoded], [[target] for target in y[: given.decoded]]
            rates = decoded(model, *pairs, 1)
            figures |= {f"nats_{where}": -model.score(X, y), f"errors_{where}": rates["sequence_errors_greedy"]}
        return figures

    fitted = candidates(given)
    frame = table(fitted, train, valid, near, measure)
    written(frame, given.out / "reversal.csv")
    both: Pairs = Sequences([*near[0], *far[0]]), Sequences([*near[1], *far[1]])
    curves = draw_by_length(
        fitted, both, given.out / "reversal.png", title="Reversal, trained on 3 to 15 symbols", n_bins=22
    )
    curves.to_csv(given.out / "reversal-by-length.csv", float_format="%.5g")
    here, there = frame["nats_in_range"], frame["nats_out_of_range"]
    attentive = [name for name in ("additive", "multiplicative") if name in frame.index]
    claims = {f"{name} {here[name]:.3g} <= {CLOSE} in range": bool(here[name] <= CLOSE) for name in attentive}
    if "fixed" in frame.index and attentive:
        behind = there["fixed"] - there[attentive].min()
        claims[f"out of range the fixed vector needs {behind:.3g} >= {FAR} more"] = bool(behind >= FAR)
    print(verdict(claims))


if __name__ == "__main__":
    main(parser(__doc__, seconds=60, out="experiments/results/reversal").parse_args())
