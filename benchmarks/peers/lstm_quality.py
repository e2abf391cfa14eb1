"""torch's LSTM in the usual training loop, its state carried from window to window, trained for seconds; float32.

The rate of AdamW falls by a cosine from 3e-3.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from peers import quality
from peers.networks_torch import Model
from torch import Tensor
from torch.nn import functional as F

BATCH, STEPS, CHUNK = 16, 64, 4096


def losses(model: Model, train: np.ndarray) -> Iterator[Tensor]:
    """Those of the next window of every stream; at their end the streams begin anew, from a state of zeros."""
    streams = torch.from_numpy(np.stack(np.array_split(train[: len(train) // BATCH * BATCH], BATCH)))
    while True:
        state = None
        for at in range(0, streams.shape[1] - 1, STEPS):
            window = streams[:, at : at + STEPS + 1]
            logits, state = model(window[:, :-1], state)
            state = tuple(part.detach() for part in state)
            yield F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())


@torch.no_grad()
def of_stream(model: Model, test: np.ndarray) -> float:
    """Nats a symbol after the first, the whole past in the state."""
    stream, state, nats = torch.from_numpy(test)[None], None, 0.0
    for at in range(0, len(test) - 1, CHUNK):
        window = stream[:, at : at + CHUNK + 1]
        logits, state = model(window[:, :-1], state)
        nats += float(F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten(), reduction="sum"))
    return nats / (len(test) - 1)


def main() -> None:
    torch.set_num_threads(1)
    train, test, n_symbols = quality.symbols()
    quality.seed()
    model = Model("lstm", n_symbols)
    optimizer = torch.optim.AdamW(model.parameters())
    steps = quality.train_for(optimizer, losses(model, train), lambda progress: quality.rate(progress, 3e-3, 3e-4))
    val64 = quality.of_windows(lambda x, y: F.cross_entropy(model(x, None)[0].flatten(0, 1), y.flatten()), test)
    quality.report("torch's LSTM", model, steps=steps, val64=val64, stream=of_stream(model, test))


if __name__ == "__main__":
    main()
