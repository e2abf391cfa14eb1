"""GPT-2 of the ``transformers`` package in the shape of the small causal Transformer; float32, as it comes."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
import transformers
from peers.turns import N_SYMBOLS, Turn, serve, text, timed
from transformers import GPT2Config, GPT2LMHeadModel

CONTEXT, BATCH = 64, 12


def _model() -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=N_SYMBOLS,
        n_positions=CONTEXT,
        n_embd=128,
        n_layer=4,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config)


def train() -> Turn:
    """Steps of the optimiser, gradients clipped, as nanoGPT does it."""
    model, data, rng = _model().train(), text(), np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99))

    def step() -> None:
        begins = rng.integers(0, len(data) - CONTEXT - 1, BATCH)
        x = torch.from_numpy(np.stack([data[i : i + CONTEXT] for i in begins]))
        model(x, labels=x).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return lambda n: timed(lambda: [step() for _ in range(n)])


@torch.no_grad()
def _generate_from_windows(model: GPT2LMHeadModel, n_sequences: int, n: int) -> None:
    """What nanoGPT does: the whole window anew for every symbol."""
    x = torch.zeros(n_sequences, 1, dtype=torch.int64)
    for _ in range(n):
        logits = model(x[:, -CONTEXT:], use_cache=False).logits[:, -1]
        x = torch.cat([x, torch.multinomial(logits.softmax(-1), 1)], 1)


def generate(n_sequences: int, cached: bool) -> Turn:
    """Symbols of each sequence; with its cache in texts no longer than the context, which it can't slide."""
    model, first = _model().eval(), torch.zeros(n_sequences, 1, dtype=torch.int64)

    def with_cache(n: int) -> None:
        for begin in range(0, n, CONTEXT - 1):
            new = min(CONTEXT - 1, n - begin)
            model.generate(
                first, max_new_tokens=new, min_new_tokens=new, do_sample=True, top_k=0, pad_token_id=N_SYMBOLS - 1
            )

    return lambda n: timed(lambda: with_cache(n) if cached else _generate_from_windows(model, n_sequences, n))


def score() -> Turn:
    """Symbols of one text in windows that overlap by half."""
    model, data = _model().eval(), torch.from_numpy(text())

    @torch.no_grad()
    def windows(n: int) -> None:
        for begin in range(0, n - CONTEXT, CONTEXT // 2):
            model(data[None, begin : begin + CONTEXT]).logits.log_softmax(-1)

    return lambda n: timed(lambda: windows(n))


TASKS = {
    "train transformer": train,
    **{f"generate {n} transformer": partial(generate, n, True) for n in (1, 32)},
    **{f"generate {n} transformer uncached": partial(generate, n, False) for n in (1, 32)},
    "score transformer": score,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(TASKS, f"transformers {transformers.__version__}, torch {torch.__version__}")
