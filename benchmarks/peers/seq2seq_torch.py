"""Encoder-decoders as tutorials write them: a loop over ``nn.LSTMCell``, and ``nn.Transformer``; float32."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

import numpy as np
import torch
from peers.pairs import BATCH, HEADS, LAYERS, LENGTH, N_SYMBOLS, WIDTH, pairs
from peers.turns import Turn, serve, timed
from torch import Tensor, nn
from torch.nn import functional as F

Score = Literal["additive", "multiplicative", "current"]


class Recurrent(nn.Module):
    """A bidirectional encoder, and a decoder whose previous (or ``"current"``) state attends, one step at a time."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score
        self.source, self.target = nn.Embedding(N_SYMBOLS, WIDTH), nn.Embedding(N_SYMBOLS + 1, WIDTH)
        self.encoder = nn.LSTM(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.combine, self.bridge = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.value = nn.Identity() if score == "additive" else nn.Linear(WIDTH, WIDTH)
        self.energy = nn.Linear(WIDTH, 1, bias=False)
        self.cell = nn.LSTMCell(WIDTH if score == "current" else 2 * WIDTH, WIDTH)
        self.readout, self.head = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, N_SYMBOLS)

    def attend(self, h: Tensor, memory: Tensor) -> Tensor:
        """The context of one step (B, d)."""
        query, key = self.query(h)[:, None], self.key(memory)
        if self.score == "additive":
            scores = self.energy(torch.tanh(query + key))[..., 0]
        else:
            scores = (query @ key.transpose(1, 2))[:, 0] / math.sqrt(WIDTH)
        return (scores.softmax(-1)[:, None] @ self.value(memory))[:, 0]

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Logits (B, T, V) of targets from sources and targets moved by one."""
        both, (last, _) = self.encoder(self.source(x))
        memory, ends = self.combine(both), self.combine(torch.cat([last[0], last[1]], -1))
        h, c = self.bridge(ends).chunk(2, -1)
        h, logits = torch.tanh(h), []
        for step in self.target(y).unbind(1):
            if self.score == "current":
                h, c = self.cell(step, (h, c))
                context = self.attend(h, memory)
            else:
                context = self.attend(h, memory)
                h, c = self.cell(torch.cat([step, context], -1), (h, c))
            logits.append(self.head(h + self.readout(torch.cat([h, context], -1))))
        return torch.stack(logits, 1)


class Transformer(nn.Module):
    """``nn.Transformer``, the norm first."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(N_SYMBOLS, WIDTH), nn.Embedding(N_SYMBOLS + 1, WIDTH)
        self.position = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.body = nn.Transformer(
            WIDTH, HEADS, LAYERS, LAYERS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(WIDTH, N_SYMBOLS)
        self.mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Logits of every step of ``y`` given ``x``, as ``Recurrent`` has them."""
        source, target = self.source(x) + self.position, self.target(y) + self.position
        return self.head(self.body(source, target, tgt_mask=self.mask, tgt_is_causal=True))


def train(name: str) -> Turn:
    """Steps of the optimiser, gradients clipped."""
    model: nn.Module = Transformer() if name == "transformer" else Recurrent(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sources, targets = (torch.from_numpy(part) for part in pairs())
    rng = np.random.default_rng(0)

    def step() -> None:
        rows = torch.from_numpy(rng.integers(0, len(sources), BATCH))
        x, y = sources[rows], targets[rows]
        before = F.pad(y[:, :-1], (1, 0), value=N_SYMBOLS)
        F.cross_entropy(model(x, before).flatten(0, 1), y.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return lambda n: timed(lambda: [step() for _ in range(n)])


if __name__ == "__main__":
    torch.set_num_threads(1)
    names = ("additive", "multiplicative", "current", "transformer")
    serve({name: partial(train, name) for name in names}, f"torch {torch.__version__}")
