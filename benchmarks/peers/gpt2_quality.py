"""GPT-2 of the package ``transformers``, with nanoGPT's settings for a CPU, trained for a number of seconds."""

from __future__ import annotations

import torch
from peers import quality
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel


def _model(n_symbols: int) -> GPT2LMHeadModel:
    shape = {"n_positions": quality.CONTEXT, "n_embd": 128, "n_layer": 4, "n_head": 4}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=n_symbols, bos_token_id=0, eos_token_id=0, **shape, **no_dropout))


def main() -> None:
    torch.set_num_threads(1)
    train, test, n_symbols = quality.symbols()
    seed = quality.seed()
    model = _model(n_symbols)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.1)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())

    steps = quality.train_for(optimizer, quality.losses_of_windows(loss, train, seed), quality.rate)
    model.eval()
    quality.report("GPT-2 of transformers", model, steps=steps, val64=quality.of_windows(loss, test))


if __name__ == "__main__":
    main()
