"""``TransformerConfig``, the architecture arguments that all Transformers share, and the checks on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from seqmodels.common.parameters import checked
from seqmodels.neural.transformer.layers import NORM_EPSILON, Activation, NormPlacement, NormType, default_width
from seqmodels.neural.transformer.positions import PositionKind


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerConfig:
    """The arguments that all Transformers share, models and networks, masked ones too.

    Args:
        d_model: width of inputs and of hidden states.
        n_layers: blocks of attention and feed-forward.
        dropout: fraction dropped in training, of the inputs and of what every sublayer adds, as in Vaswani et al.
            (2017).
        n_heads: must divide ``d_model``; ``"auto"``: the largest divisor with heads of at least 32.
        n_kv_heads: heads of keys and values, each shared by ``n_heads / n_kv_heads`` heads of queries (Ainslie et al.
            2023; with one, Shazeer 2019); None: as many as heads.
        d_feedforward: width of the position-wise network; None: 4 d_model (8/3 d_model under ``"swiglu"``).
        norm: ``"pre"`` (x + f(Norm(x))), ``"post"`` (Norm(x + f(x)), Vaswani et al. 2017) or ``"residual"``
            (x + Norm(f(x)), Liu et al. 2022); all but ``"post"`` have a last norm.
        norm_type: ``"layer"`` or ``"rms"`` (Zhang and Sennrich 2019).
        norm_affine: whether norms learn a gain (and, with ``bias``, layer norms a shift).
        norm_epsilon: added to the mean squares that norms divide by, above zero.
        activation: of the position-wise network: ``"gelu"``, ``"gelu-tanh"``, ``"relu"``, ``"relu2"`` (its square, So
            et al. 2021) or ``"swiglu"`` (Shazeer 2020).
        positions: ``"sinusoidal"``, ``"learned"`` or ``"binary"`` (digits), added to the inputs; ``"rotary"`` (Su et
            al. 2021), ``"alibi"`` (Press et al. 2022) or ``"t5"`` (Raffel et al. 2020), which act in self-attention and
            see differences only; or None.
        qk_norm: normalise each head's queries and keys by RMS (Henry et al. 2020; Dehghani et al. 2023).
        window: how many steps each layer looks back, the step itself among them; in an encoder to both sides (Beltagy
            et al. 2020); None: all.
        bias: whether linear maps and layer norms have one.
        attention_dropout: fraction of the attention weights dropped in training.
        zero_init: start with every sublayer adding nothing (Zhang et al. 2019, *Fixup*; Bachlechner et al. 2021,
            *ReZero*): output maps start at zero, under ``norm="residual"`` the gains.
    """

    d_model: int = 128
    n_layers: int = 4
    dropout: float = 0.1
    n_heads: int | Literal["auto"] = "auto"
    n_kv_heads: int | None = None
    d_feedforward: int | None = None
    norm: NormPlacement = "pre"
    norm_type: NormType = "layer"
    norm_affine: bool = True
    norm_epsilon: float = NORM_EPSILON
    activation: Activation = "gelu"
    positions: PositionKind = "sinusoidal"
    qk_norm: bool = False
    window: int | None = None
    bias: bool = True
    attention_dropout: float = 0.0
    zero_init: bool = False

    @property
    def n_query_heads(self) -> int:
        """Number of heads of queries, with ``n_heads="auto"`` resolved."""
        if self.n_heads != "auto":
            return self.n_heads
        counts = [h for h in range(1, max(1, self.d_model // 32) + 1) if self.d_model % h == 0]
        even = [h for h in counts if self.d_model // h % 2 == 0]
        return max(even if even and self.positions == "rotary" else counts)  # rotary embedding rotates pairs

    @property
    def n_key_heads(self) -> int:
        """Number of heads of keys and values, with ``n_kv_heads=None`` resolved."""
        return self.n_query_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def d_head(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_query_heads

    @property
    def feedforward_width(self) -> int:
        """Width of the hidden layer of the feed-forward, with ``d_feedforward=None`` resolved."""
        return default_width(self.d_model, self.activation) if self.d_feedforward is None else self.d_feedforward

    @checked
    def check_architecture(self, max_length: int | None = None) -> None:
        """Raise ``ValueError`` if an argument is impossible, or does not fit sequences of ``max_length`` steps."""
        _check_choice("norm", self.norm, NormPlacement)
        _check_choice("norm_type", self.norm_type, NormType)
        _check_choice("activation", self.activation, Activation)
        _check_choice("positions", self.positions, PositionKind)
        self._check_heads()
        self._check_ranges(max_length)
        if self.zero_init and self.norm == "residual" and not self.norm_affine:
            raise ValueError(
                'zero_init under norm="residual" starts the gains at zero, but norm_affine=False has none; change one'
            )

    def _check_heads(self) -> None:
        n = self.n_query_heads
        kv = self.n_key_heads
        if n < 1 or self.d_model % n:
            raise ValueError(f"n_heads={n} does not divide d_model={self.d_model}; pass a divisor of d_model")
        if kv < 1 or n % kv:
            raise ValueError(f"n_kv_heads={kv} does not divide n_heads={n}; pass a divisor of n_heads, or None")
        if self.positions == "rotary" and self.d_head % 2:
            raise ValueError(
                f'positions="rotary" rotates pairs, but heads have width d_model / n_heads = {self.d_head}; make it '
                "even"
            )

    def _check_ranges(self, max_length: int | None) -> None:
        for name, value in {
            "window": self.window,
            "d_feedforward": self.d_feedforward,
            "max_length": max_length,
        }.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; pass at least 1, or None")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; pass a fraction from 0 to 1")
        if not 0 < self.norm_epsilon < math.inf:
            raise ValueError(f"norm_epsilon is {self.norm_epsilon}; pass a number above zero, like {NORM_EPSILON}")
        if self.positions == "learned" and max_length is None:
            raise ValueError('positions="learned" need max_length, the longest sequence; pass max_length=...')


def config_of(model: TransformerConfig) -> TransformerConfig:
    """Return the arguments of a model that ``TransformerConfig`` has, with ``n_heads`` as a number."""
    values = {field.name: getattr(model, field.name) for field in fields(TransformerConfig)}
    return TransformerConfig(**(values | {"n_heads": model.n_query_heads}))


def check_layer_and_head(config: TransformerConfig, layer: int, head: int | None) -> None:
    """Raise ``ValueError`` if there is no such head or layer; a negative ``layer`` counts from the last one."""
    n_layers, n_heads = config.n_layers, config.n_query_heads
    if not -n_layers <= layer < n_layers:
        raise ValueError(f"layer is {layer}, but there are {n_layers}; pass -{n_layers} to {n_layers - 1}")
    if head is not None and not 0 <= head < n_heads:
        raise ValueError(f"head is {head}, but there are {n_heads}; pass 0 to {n_heads - 1}, or None for their mean")


def _check_choice(name: str, value: object, kind: Any) -> None:
    choices = _choices(kind)
    if value not in choices:
        known = ", ".join(f'"{choice}"' if choice is not None else "None" for choice in choices)
        raise ValueError(f"{name} is {value!r}; pass one of {known}")


def _choices(kind: Any) -> tuple[object, ...]:
    """Return the values of ``Literal[...]``, or of ``Literal[...] | None``."""
    flat: list[object] = []
    for part in get_args(kind):
        flat += [None] if part is type(None) else list(get_args(part)) or [part]
    return tuple(flat)
