"""The loss over 50,257 symbols of 2,048 rows, 256 wide, and its gradients: torch's and seqmodels'."""

from __future__ import annotations

import torch
from peers.turns import Turn, serve, timed
from torch.nn import functional as F

from seqmodels.neural.ops.cross_entropy import linear_log_prob

ROWS, WIDTH, SYMBOLS = 2_048, 256, 50_257


def loss(pieces: bool) -> Turn:
    """Forward and backward passes."""
    torch.manual_seed(0)
    hidden, target = torch.randn(ROWS, WIDTH, requires_grad=True), torch.randint(SYMBOLS, (ROWS,))
    head = torch.nn.Linear(WIDTH, SYMBOLS)

    def once() -> None:
        if pieces:
            (-linear_log_prob(hidden, head.weight, head.bias, target).mean()).backward()
        else:
            F.cross_entropy(head(hidden), target).backward()
        head.zero_grad()

    return lambda n: timed(lambda: [once() for _ in range(n)])


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve({"pieces": lambda: loss(True), "whole": lambda: loss(False)}, f"torch {torch.__version__}")
