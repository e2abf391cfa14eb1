"""The arguments of Transformers: those that users turn, those of layers, and both together for a network."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, get_args

from seqmodels.common.parameters import checked
from seqmodels.neural.transformer.layers import NORM_EPSILON, Activation, NormPlacement, NormType, default_width
from seqmodels.neural.transformer.positions import PositionKind


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerArguments:
    """The arguments that users of a Transformer change most often, which networks and models of all kinds share.

    Args:
        d_model: width of inputs and of hidden states.
        n_layers: number of blocks of attention and feed-forward.
        dropout: fraction that is dropped in training from the inputs and from what every sublayer adds, as in Vaswani
            et al. (2017).
        n_heads: number of heads of attention, which must divide ``d_model``. ``"auto"``: the largest divisor whose
            heads have a width of at least 32, and under ``"rotary"`` an even width if possible.
        d_feedforward: width of the feed-forward's hidden layer; None: ``4 d_model`` (``8/3 d_model`` under
            ``"swiglu"``).
        norm: place of the norms: ``"pre"`` (x + f(Norm(x))), ``"post"`` (Norm(x + f(x)), Vaswani et al. 2017) or
            ``"residual"`` (x + Norm(f(x)), Liu et al. 2022). ``"pre"`` and ``"residual"`` have one more norm after the
            last block.
        activation: activation of the feed-forward: ``"gelu"``, ``"gelu-tanh"``, ``"relu"``, ``"relu2"`` (its square, So
            et al. 2021) or ``"swiglu"`` (Shazeer 2020).
        positions: how positions are represented. ``"sinusoidal"``, ``"learned"`` and ``"binary"`` (digits) are added to
            the inputs; ``"rotary"`` (Su et al. 2021), ``"alibi"`` (Press et al. 2022) and ``"t5"`` (Raffel et al. 2020)
            act in self-attention and depend on differences of positions only; None: not at all.
        window: number of steps that each layer looks back, the step itself among them; an encoder looks as far to both
            sides (Beltagy et al. 2020). None: all steps.
    """

    d_model: int = 128
    n_layers: int = 4
    dropout: float = 0.1
    n_heads: int | Literal["auto"] = "auto"
    d_feedforward: int | None = None
    norm: NormPlacement = "pre"
    activation: Activation = "gelu"
    positions: PositionKind = "sinusoidal"
    window: int | None = None

    @property
    def n_query_heads(self) -> int:
        """The number of heads of queries: ``n_heads``, or the number that ``"auto"`` stands for."""
        if self.n_heads != "auto":
            return self.n_heads
        counts = [h for h in range(1, max(1, self.d_model // 32) + 1) if self.d_model % h == 0]
        even = [h for h in counts if self.d_model // h % 2 == 0]
        return max(even if even and self.positions == "rotary" else counts)  # rotary embedding rotates pairs


@dataclass(kw_only=True, eq=False, repr=False)
class LayerOptions:
    """The rarer options of the layers of a Transformer: norms, biases, key-value heads and attention dropout.

    Args:
        n_kv_heads: number of heads of keys and values, each shared by ``n_heads / n_kv_heads`` heads of queries
            (Ainslie et al. 2023; with one, Shazeer 2019). None: as many as there are heads of queries.
        norm_type: ``"layer"`` or ``"rms"`` (Zhang and Sennrich 2019).
        norm_affine: True if norms learn a gain (and, with ``bias``, layer norms a shift).
        norm_epsilon: number above zero that is added to the mean squares by which norms divide.
        qk_norm: True to normalise the queries and keys of each head by their RMS (Henry et al. 2020; Dehghani et al.
            2023).
        bias: True if linear maps and layer norms have a bias.
        attention_dropout: fraction of the attention weights that is dropped in training.
        zero_init: True if every sublayer adds nothing at first (Zhang et al. 2019, *Fixup*; Bachlechner et al. 2021,
            *ReZero*): output maps start at zero, or under ``norm="residual"`` the gains.
    """

    n_kv_heads: int | None = None
    norm_type: NormType = "layer"
    norm_affine: bool = True
    norm_epsilon: float = NORM_EPSILON
    qk_norm: bool = False
    bias: bool = True
    attention_dropout: float = 0.0
    zero_init: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerConfig(TransformerArguments, LayerOptions):
    """The configuration of a Transformer network: width, layers, heads, norms, activation, positions and dropout.

    The other arguments are those of ``TransformerArguments``, which users change most often, and ``LayerOptions``,
    which are rarer.

    Args:
        cross_bias: True if scores of cross-attention have a learned bias that depends on the difference of the
            positions in target and source.
    """

    cross_bias: bool = False

    @property
    def n_key_heads(self) -> int:
        """The number of heads of keys and values: ``n_kv_heads``, or if it is None the number of heads of queries."""
        return self.n_query_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_query_heads

    @property
    def feedforward_width(self) -> int:
        """The width of the hidden layer of the feed-forward: ``d_feedforward``, or the width that None stands for."""
        return default_width(self.d_model, self.activation) if self.d_feedforward is None else self.d_feedforward

    @checked
    def check_architecture(self, max_length: int | None = None) -> None:
        """Raise ``ValueError`` if an argument of the configuration is impossible, or needs a ``max_length``.

        Args:
            max_length: number of steps of the longest sequence, at least 1; None if unknown, which
                ``positions="learned"`` refuse.
        """
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


class TransformerModel(Protocol):
    """A model of a Transformer, which has ``TransformerArguments``, and rarer options in ``architecture``."""

    architecture: Any

    @property
    def n_query_heads(self) -> int:
        """Number of heads of queries."""


def config_of(model: TransformerModel, **changes: Any) -> TransformerConfig:
    """Return the configuration of a model's network, with ``n_heads`` as a number.

    Args:
        model: a model of a Transformer.
        changes: arguments of ``TransformerConfig`` that replace the model's.
    """
    values = {each.name: getattr(model, each.name) for each in fields(TransformerArguments)}
    options = {each.name: getattr(model.architecture, each.name) for each in fields(LayerOptions)}
    return TransformerConfig(**{**values, **options, "n_heads": model.n_query_heads, **changes})


def check_layer_and_head(config: TransformerArguments, layer: int, head: int | None) -> None:
    """Raise ``ValueError`` if there is no layer or no head of this number.

    Args:
        config: arguments of the Transformer, with the numbers of layers and heads.
        layer: number of the layer from 0; a negative one counts from the last.
        head: number of the head from 0, or None for all heads.
    """
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
    flat: list[object] = []
    for part in get_args(kind):
        flat += [None] if part is type(None) else list(get_args(part)) or [part]
    return tuple(flat)
