"""A step of training as nanoGPT takes it on a CPU (Karpathy, 2022), in torch's own operations; float32."""

from __future__ import annotations

import math

import numpy as np
import torch
from peers.turns import N_SYMBOLS, Turn, serve, text, timed
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, LAYERS, HEADS, CONTEXT, BATCH = 128, 4, 4, 64, 12


class Block(nn.Module):
    """Attention and a feed-forward of four times the width, the norms first, nothing with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_feedforward = (nn.LayerNorm(WIDTH, bias=False) for _ in range(2))
        self.project, self.output = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.expand = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.contract = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Hidden states (B, T, d) after it."""
        heads = self.project(self.before_attention(x)).split(WIDTH, 2)
        query, key, value = (part.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for part in heads)
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(context.transpose(1, 2).contiguous().view(x.shape))
        return x + self.contract(F.gelu(self.expand(self.before_feedforward(x))))


class GPT(nn.Module):
    """Learned positions, and the embedding's table for an output layer."""

    def __init__(self, n_symbols: int = N_SYMBOLS) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(n_symbols, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, n_symbols, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                adds = name.endswith(("output.weight", "contract.weight"))
                nn.init.normal_(weight, std=0.02 / (math.sqrt(2 * LAYERS) if adds else 1))
        self.embedding.weight = self.head.weight

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean loss of targets ``y`` (B, T) after symbols ``x`` (B, T)."""
        hidden = self.embedding(x) + self.position(torch.arange(x.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        return F.cross_entropy(self.head(self.norm(hidden)).flatten(0, 1), y.flatten())


def optimizer_of(model: GPT) -> torch.optim.Optimizer:
    """AdamW, which decays matrices only; it has it fused on a GPU only."""
    groups = [
        {"params": [w for w in model.parameters() if w.ndim >= 2], "weight_decay": 0.1},
        {"params": [w for w in model.parameters() if w.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))


def train() -> Turn:
    """Steps of the optimiser, gradients clipped; the loss is read at each, as its recipe for a CPU logs it."""
    model, data = GPT().train(), text()
    weights, optimizer = list(model.parameters()), optimizer_of(model)

    def step() -> float:
        begins = torch.randint(len(data) - CONTEXT, (BATCH,)).tolist()
        x, y = (torch.from_numpy(np.stack([data[i + k : i + k + CONTEXT] for i in begins])) for k in (0, 1))
        loss: Tensor = model(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return lambda n: timed(lambda: [step() for _ in range(n)])


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve({"train transformer": train}, f"torch {torch.__version__}")
