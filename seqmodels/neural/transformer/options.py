"""``TransformerOptions``: everything that can be chosen about a Transformer, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from seqmodels.neural.transformer.feedforward import Activation, default_width
from seqmodels.neural.transformer.norms import EPSILON, Norm, NormType
from seqmodels.neural.transformer.positions import PositionKind


@dataclass(frozen=True, kw_only=True)
class TransformerOptions:
    """What encoder, decoder and their layers have in common.

    Args:
        d_model: width of inputs and of hidden states.
        n_layers: blocks of attention and feed-forward.
        n_heads: must divide ``d_model``.
        n_kv_heads: heads of keys and values, each shared by ``n_heads / n_kv_heads`` heads of queries (Ainslie et al.,
            2023; with one, Shazeer, 2019); ``None``: as many as heads.
        d_feedforward: width inside the feed-forward; ``None``: 4 d_model (8/3 d_model under ``"swiglu"``).
        dropout: on the inputs and on what every sublayer adds, as in Vaswani et al.
        attention_dropout: on the attention weights, in training.
        norm: ``"pre"``, ``"post"`` or ``"residual"``, see ``Residual``; all but ``"post"`` have a last norm.
        norm_type: ``"layer"`` or ``"rms"``.
        norm_affine: whether norms learn a gain (and, with ``bias``, layer norms a shift).
        norm_epsilon: added to mean squares, above zero.
        activation: of the feed-forward, see ``FeedForward``.
        positions: ``"sinusoidal"``, ``"learned"`` or ``"binary"``, added to the inputs; ``"rotary"``, ``"alibi"`` or
            ``"t5"``, of which only differences count, in self-attention; or ``None``.
        qk_norm: normalise queries and keys of each head by RMS (Henry et al., 2020; Dehghani et al., 2023).
        window: a step sees the ``window`` last steps, itself among them; in an encoder those nearer than ``window`` on
            both sides (Beltagy et al., 2020); ``None``: all.
        bias: whether linear maps and layer norms have one.
        zero_init: start with every sublayer adding nothing (Zhang et al., 2019, *Fixup*; Bachlechner et al., 2021, *ReZero*):
            output maps start at zero, under ``norm="residual"`` the gains.
        max_length: the longest sequence, for learned and binary positions and the room of a cache.

    Raises:
        ValueError: for what cannot be.
    """

    d_model: int
    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: int | None = None
    d_feedforward: int | None = None
    dropout: float = 0.0
    attention_dropout: float = 0.0
    norm: Norm = "pre"
    norm_type: NormType = "layer"
    norm_affine: bool = True
    norm_epsilon: float = EPSILON
    activation: Activation = "gelu"
    positions: PositionKind = "sinusoidal"
    qk_norm: bool = False
    window: int | None = None
    bias: bool = True
    zero_init: bool = False
    max_length: int | None = None

    def __post_init__(self) -> None:
        _check_choice("norm", self.norm, Norm)
        _check_choice("norm_type", self.norm_type, NormType)
        _check_choice("activation", self.activation, Activation)
        _check_choice("positions", self.positions, PositionKind)
        self._check_heads()
        self._check_numbers()
        if self.zero_init and self.norm == "residual" and not self.norm_affine:
            raise ValueError(
                'zero_init under norm="residual" starts the gains at zero, but norm_affine=False has none; change one'
            )

    def _check_heads(self) -> None:
        n, kv = self.n_heads, self.key_heads
        if n < 1 or self.d_model % n:
            raise ValueError(f"n_heads={n} does not divide d_model={self.d_model}; pass a divisor of d_model")
        if kv < 1 or n % kv:
            raise ValueError(f"n_kv_heads={kv} does not divide n_heads={n}; pass a divisor of n_heads, or None")
        if self.positions == "rotary" and self.d_head % 2:
            raise ValueError(
                f'positions="rotary" turns pairs, but heads have width d_model / n_heads = {self.d_head}; make it even'
            )

    def _check_numbers(self) -> None:
        for name in ("window", "d_feedforward", "max_length"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; pass at least 1, or None")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; pass a fraction from 0 to 1")
        if not self.norm_epsilon > 0:
            raise ValueError(f"norm_epsilon is {self.norm_epsilon}; pass a number above zero, like {EPSILON}")
        if self.positions == "learned" and self.max_length is None:
            raise ValueError('positions="learned" need max_length, the longest sequence; pass max_length=...')

    @property
    def d_head(self) -> int:
        """Width of a head."""
        return self.d_model // self.n_heads

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def width(self) -> int:
        """Width inside the feed-forward."""
        return default_width(self.d_model, self.activation) if self.d_feedforward is None else self.d_feedforward


def _check_choice(name: str, value: object, kind: Any) -> None:
    choices = _choices(kind)
    if value not in choices:
        known = ", ".join(f'"{choice}"' if choice is not None else "None" for choice in choices)
        raise ValueError(f"{name} is {value!r}; pass one of {known}")


def _choices(kind: Any) -> tuple[object, ...]:
    """The values of ``Literal[...]``, or of ``Literal[...] | None``."""
    flat: list[object] = []
    for part in get_args(kind):
        flat += [None] if part is type(None) else list(get_args(part)) or [part]
    return tuple(flat)
