"""Every kind of attention, by name, for a width."""

from __future__ import annotations

from collections.abc import Callable

from seqmodels.neural.seq2seq.attention import (
    AdditiveAttention,
    Attention,
    GeneralAttention,
    MultiplicativeAttention,
)

Maker = Callable[[int], Attention]
WITHOUT_EARLIER_WEIGHTS: dict[str, Maker] = {  # those that the hand-written loop knows
    "additive": AdditiveAttention,
    "multiplicative": MultiplicativeAttention,
    "dot": lambda d: MultiplicativeAttention(d, projections=False),
    "heads": lambda d: MultiplicativeAttention(d, n_heads=2),
    "general": GeneralAttention,
}
WITH_EARLIER_WEIGHTS: dict[str, Maker] = {  # whose scores depend on earlier weights
    "additive coverage": lambda d: AdditiveAttention(d, features="coverage"),
    "location": lambda d: AdditiveAttention(d, features="location", n_filters=2, width=3),
    "location coverage": lambda d: AdditiveAttention(d, features="location-coverage", n_filters=2, width=3),
    "multiplicative coverage": lambda d: MultiplicativeAttention(d, n_heads=2, coverage=True),
    "general coverage": lambda d: GeneralAttention(d, coverage=True),
}
