"""The part of a text that settings are chosen on: its first nine tenths, of which again a tenth is measured on."""

import numpy as np

from seqmodels import data


def codes(path: str) -> tuple[np.ndarray, np.ndarray]:
    """The part to train on and the part to measure on, as codes from 0."""
    text = str(data.text(path)[0])
    kept = text[: int(0.9 * len(text))]
    symbols = {symbol: i for i, symbol in enumerate(sorted(set(kept)))}
    found = np.array([symbols[symbol] for symbol in kept])
    return found[: int(0.9 * len(found))], found[int(0.9 * len(found)) :]
