"""seqmodels' networks, through the interface that users have."""

from __future__ import annotations

from functools import partial
from importlib.metadata import PackageNotFoundError, version

import torch
from peers.turns import Turn, serve, text, timed

from seqmodels import GRU, LSTM, ElmanRNN, SequenceModel, Transformer
from seqmodels.training import GradientTraining

SHAPE = {"d_model": 128, "n_layers": 4, "n_heads": 4, "context": 64, "batch_size": 12, "dropout": 0.0}
RECURRENT = {"d_model": 256, "batch_size": 16, "bptt": 64, "dropout": 0.0}
MODELS = {
    "transformer": partial(Transformer, **SHAPE),
    "transformer, float32": partial(Transformer, **SHAPE, training=GradientTraining(precision="float32")),
    "transformer, float32, one input": partial(
        Transformer, **SHAPE, training=GradientTraining(precision="float32"), convolution_lags=0
    ),
    "lstm": partial(LSTM, **RECURRENT),
    "gru": partial(GRU, **RECURRENT),
    "elman": partial(ElmanRNN, **RECURRENT, nonlinearity="tanh"),
}


def train(family: str, as_text: bool = False) -> Turn:
    """Steps of the optimiser, as ``history_`` times them; of symbols, or of text, which is read as bytes."""
    data = ["".join(map(chr, 48 + text()))] if as_text else [text()]

    def turn(n: int) -> float:
        model = MODELS[family](max_steps=n).fit(data, validation=None)
        return float(model.history_["seconds"].iloc[-1])

    return turn


def train_compiled(family: str) -> Turn:
    """The same by ``torch.compile``: as many steps again come first, in the first of which it compiles."""
    data = [text()]

    def turn(n: int) -> float:
        history = MODELS[family](max_steps=2 * n, compile=True).fit(data, validation=None).history_
        later = history[history["step"] >= n]
        steps, seconds = (float(later[column].iloc[-1] - later[column].iloc[0]) for column in ("step", "seconds"))
        return n * seconds / steps

    return turn


def generate(family: str, n_sequences: int, **parameters: bool) -> Turn:
    """Symbols of each sequence, with ``parameters`` of the model."""
    model = _fitted(family).set_params(**parameters)
    return lambda n: timed(lambda: model.sample(n_sequences, length=n))


def score(family: str) -> Turn:
    """Symbols of one long text."""
    model, data = _fitted(family), text()
    return lambda n: timed(lambda: model.log_prob([data[:n]]))


def _fitted(family: str) -> SequenceModel:
    return MODELS[family](max_steps=2, length="given").fit([text(5_000)], validation=None)


def _version() -> str:
    try:
        return version("seqmodels")
    except PackageNotFoundError:
        return "from the repository"


TASKS = {
    **{f"train {family}": partial(train, family) for family in MODELS},
    "train transformer, float32, bytes": partial(train, "transformer, float32", as_text=True),
    "train compiled transformer": partial(train_compiled, "transformer"),
    **{f"generate {n} {family}": partial(generate, family, n) for family in ("transformer", "lstm") for n in (1, 32)},
    "generate 1 compiled transformer": partial(generate, "transformer", 1, compile_steps=True),
    **{f"score {family}": partial(score, family) for family in ("transformer", "lstm")},
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(TASKS, f"seqmodels {_version()}, torch {torch.__version__}")
