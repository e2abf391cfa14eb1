"""JoeyNMT's encoder-decoders (Kreutzer et al., 2019): its model and loss as its trainer calls them, in float32."""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import torch
from joeynmt.model import build_model
from joeynmt.vocabulary import Vocabulary
from peers.pairs import BATCH, HEADS, LAYERS, N_SYMBOLS, WIDTH, pairs
from peers.turns import Turn, serve, timed
from torch.nn import functional as F

SCORES = {"additive": "bahdanau", "multiplicative": "luong"}


def _vocabulary() -> Vocabulary:
    marks = {"unk": 0, "pad": 1, "bos": 2, "eos": 3}
    config = {f"{name}_token": f"<{name}>" for name in marks} | {f"{name}_id": i for name, i in marks.items()}
    return Vocabulary([str(i) for i in range(N_SYMBOLS)], SimpleNamespace(**config, sep_token=None, lang_tags=[]))


def _config(name: str) -> dict:
    embeddings = {"embeddings": {"embedding_dim": WIDTH}, "hidden_size": WIDTH}
    if name == "transformer":
        both = {"type": name, "num_layers": LAYERS, "num_heads": HEADS, "ff_size": 4 * WIDTH, "layer_norm": "pre"}
        both = {**embeddings, **both, "dropout": 0.0}
        return {"encoder": both, "decoder": dict(both)}
    recurrent = {**embeddings, "type": "recurrent", "rnn_type": "lstm", "num_layers": 1}
    decoder = {"attention": SCORES[name], "init_hidden": "bridge", "input_feeding": True}
    return {"encoder": {**recurrent, "bidirectional": True}, "decoder": {**recurrent, **decoder}}


def train(name: str) -> Turn:
    """Steps of the optimiser, gradients clipped."""
    words = _vocabulary()
    model = build_model(_config(name), words, words).train()
    model.loss_function = "crossentropy", 0.0  # its setter makes a loss of a name and a smoothing
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = len(words) - N_SYMBOLS  # its own marks come before
    sources, targets = (torch.from_numpy(part) + first for part in pairs())
    rng = np.random.default_rng(0)

    def step() -> None:
        rows = torch.from_numpy(rng.integers(0, len(sources), BATCH))
        x, y = sources[rows], targets[rows]
        loss, *_ = model(
            return_type="loss",
            src=x,
            trg_input=F.pad(y[:, :-1], (1, 0), value=words.bos_index),
            trg=y,
            src_mask=(x != words.pad_index)[:, None],
            trg_mask=(y != words.pad_index)[:, None],
            src_length=torch.full((len(x),), x.shape[1]),
        )
        (loss / y.numel()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return lambda n: timed(lambda: [step() for _ in range(n)])


if __name__ == "__main__":
    torch.set_num_threads(1)
    names = (*SCORES, "transformer")
    serve({name: partial(train, name) for name in names}, f"joeynmt {version('joeynmt')}, torch {torch.__version__}")
