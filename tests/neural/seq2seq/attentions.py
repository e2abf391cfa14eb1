"""Every kind of attention, by name, for a width."""

from __future__ import annotations

from collections.abc import Callable

from seqmodels.neural.seq2seq.additive import AdditiveAttention
from seqmodels.neural.seq2seq.attention import Attention
from seqmodels.neural.seq2seq.products import GeneralAttention, MultiplicativeAttention

Maker = Callable[[int], Attention]
FORGETTING: dict[str, Maker] = {  # those that the hand-written loop knows
    "additive": AdditiveAttention,
    "multiplicative": MultiplicativeAttention,
    "dot": lambda d: MultiplicativeAttention(d, projections=False),
    "heads": lambda d: MultiplicativeAttention(d, n_heads=2),
    "general": GeneralAttention,
}
REMEMBERING: dict[str, Maker] = {  # whose scores depend on earlier weights
    "additive coverage": lambda d: AdditiveAttention(d, of_past="coverage"),
    "location": lambda d: AdditiveAttention(d, of_past="location", n_filters=2, width=3),
    "location coverage": lambda d: AdditiveAttention(d, of_past="location-coverage", n_filters=2, width=3),
    "multiplicative coverage": lambda d: MultiplicativeAttention(d, n_heads=2, coverage=True),
    "general coverage": lambda d: GeneralAttention(d, coverage=True),
}
