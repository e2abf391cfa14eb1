"""seqmodels' encoder-decoders, through the interface that users have."""

from __future__ import annotations

from functools import partial
from importlib.metadata import PackageNotFoundError, version

import torch
from peers.pairs import BATCH, HEADS, LAYERS, WIDTH, pairs
from peers.turns import Turn, serve

from seqmodels import LSTMSeq2Seq, SequenceModel, TransformerSeq2Seq
from seqmodels.neural import TransformerSeq2SeqArchitecture
from seqmodels.training import AdamW, GradientTraining

SHAPE = {"d_model": WIDTH, "batch_size": BATCH, "dropout": 0.0, "length": "given"}
AS_PEERS = {"activation": "relu", "positions": "sinusoidal", "convolution_lags": 0}
AS_PEERS["architecture"] = TransformerSeq2SeqArchitecture(bias=True, cross_bias=False)
AS_PEERS["training"] = GradientTraining(optimizer=AdamW())
MODELS = {
    "additive": partial(LSTMSeq2Seq, **SHAPE),
    "multiplicative": partial(LSTMSeq2Seq, attention="multiplicative", **SHAPE),
    "current": partial(LSTMSeq2Seq, attention="multiplicative", query="current", **SHAPE),
    "transformer": partial(TransformerSeq2Seq, n_layers=LAYERS, n_heads=HEADS, **AS_PEERS, **SHAPE),
}


def train(name: str) -> Turn:
    """Steps of the optimiser, as ``history_`` times them."""
    sources, targets = (list(part) for part in pairs())

    def turn(n: int) -> float:
        model: SequenceModel = MODELS[name](max_steps=n).fit(sources, targets, validation=None)
        return float(model.history_["seconds"].iloc[-1])

    return turn


def _version() -> str:
    try:
        return version("seqmodels")
    except PackageNotFoundError:
        return "from the repository"


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve({name: partial(train, name) for name in MODELS}, f"seqmodels {_version()}, torch {torch.__version__}")
