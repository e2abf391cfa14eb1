"""nanoGPT's network (Karpathy, 2022) with its settings for a CPU, in torch's own operations, trained for seconds."""

from __future__ import annotations

import torch
from peers import quality
from peers.networks_nanogpt import GPT, optimizer_of


def main() -> None:
    torch.set_num_threads(1)
    train, test, n_symbols = quality.symbols()
    seed = quality.seed()
    model = GPT(n_symbols).train()
    steps = quality.train_for(optimizer_of(model), quality.losses_of_windows(model, train, seed), quality.rate)
    quality.report("nanoGPT", model, steps=steps, val64=quality.of_windows(model.eval(), test))


if __name__ == "__main__":
    main()
