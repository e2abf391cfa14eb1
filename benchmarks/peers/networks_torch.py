"""torch's recurrent layers in the usual training loop: embedding, layer, linear, cross-entropy, AdamW; float32."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from peers.turns import N_SYMBOLS, Turn, serve, text, timed
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, BATCH, STEPS = 256, 16, 64
LAYERS = {"lstm": nn.LSTM, "gru": nn.GRU, "elman": nn.RNN}


class Model(nn.Module):
    """A recurrent language model."""

    def __init__(self, family: str, n_symbols: int = N_SYMBOLS) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_symbols, WIDTH)
        self.layer = LAYERS[family](WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, n_symbols)

    def forward(
        self, x: Tensor, state: Tensor | tuple[Tensor, ...] | None
    ) -> tuple[Tensor, Tensor | tuple[Tensor, ...]]:
        hidden, state = self.layer(self.embedding(x), state)
        return self.head(hidden), state


class Training:
    """Carried state, truncated back-propagation."""

    def __init__(self, family: str) -> None:
        self.model, self.state, self.at = Model(family), None, 0
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        data = text()
        self.data = torch.from_numpy(np.stack(np.array_split(data[: len(data) // BATCH * BATCH], BATCH)))

    def step(self) -> None:
        """One optimiser step on the next window of every sequence."""
        window = self.data[:, self.at : self.at + STEPS + 1]
        logits, state = self.model(window[:, :-1], self.state)
        F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.state = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
        self.at = (self.at + STEPS) % (self.data.shape[1] - 2 * STEPS)


def train(family: str) -> Turn:
    """Steps of the optimiser."""
    training = Training(family)
    return lambda n: timed(lambda: [training.step() for _ in range(n)])


@torch.no_grad()
def _score_by_steps(model: Model, x: Tensor) -> None:
    state = None
    for t in range(x.shape[1]):
        logits, state = model(x[:, t : t + 1], state)
        logits.log_softmax(-1)


def score() -> Turn:
    """Symbols of one text, one at a time."""
    model, data = Model("lstm"), torch.from_numpy(text())
    return lambda n: timed(lambda: _score_by_steps(model, data[None, :n]))


TASKS = {**{f"train {family}": partial(train, family) for family in LAYERS}, "score lstm": score}

if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(TASKS, f"torch {torch.__version__}")
