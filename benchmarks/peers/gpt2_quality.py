"""GPT-2 of the package ``transformers``, with nanoGPT's settings for a CPU, trained for a number of seconds."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

CONTEXT, BATCH = 64, 12
PEAK, LEAST, WARM_UP = 1e-3, 1e-4, 0.05  # rates, and the part of the time over which they rise


def main() -> None:
    torch.set_num_threads(1)
    text, seconds = Path(sys.argv[1]).read_text(), float(sys.argv[2])
    symbols = {c: i for i, c in enumerate(sorted(set(text)))}
    codes = np.array([symbols[c] for c in text])
    train, test = codes[: int(0.9 * len(codes))], codes[int(0.9 * len(codes)) :]
    model, rng = _model(len(symbols)), np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, betas=(0.9, 0.99), weight_decay=0.1)
    began, steps = time.perf_counter(), 0
    while (progress := (time.perf_counter() - began) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = _rate(progress)
        begins = rng.integers(0, len(train) - CONTEXT - 1, BATCH)
        window = torch.from_numpy(np.stack([train[i : i + CONTEXT + 1] for i in begins]))
        _loss(model, window).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    val = _windows(model.eval(), torch.from_numpy(test))
    parameters = sum(p.numel() for p in model.parameters())
    line = {"model": "GPT-2 of transformers, nanoGPT's recipe", "val64": val, "stream": math.nan, "steps": steps}
    print(json.dumps({**line, "parameters": parameters, "settings": "see peers/gpt2_quality.py"}))


def _model(n_symbols: int) -> GPT2LMHeadModel:
    shape = {"n_positions": CONTEXT, "n_embd": 128, "n_layer": 4, "n_head": 4}
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=n_symbols, bos_token_id=0, eos_token_id=0, **shape, **no_dropout))


def _rate(progress: float) -> float:
    if progress < WARM_UP:
        return PEAK * (progress + 1e-3) / WARM_UP
    return LEAST + (PEAK - LEAST) * (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP))) / 2


def _loss(model: GPT2LMHeadModel, window: torch.Tensor) -> torch.Tensor:
    logits = model(window[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())


@torch.no_grad()
def _windows(model: GPT2LMHeadModel, test: torch.Tensor) -> float:
    n = (len(test) - 1) // CONTEXT
    windows = torch.stack([test[i * CONTEXT : (i + 1) * CONTEXT + 1] for i in range(n)])
    return float(np.mean([float(_loss(model, part)) for part in windows.split(100)]))


if __name__ == "__main__":
    main()
