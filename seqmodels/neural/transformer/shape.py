"""What can be chosen about a Transformer, as its users say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from seqmodels.neural.transformer.feedforward import Activation
from seqmodels.neural.transformer.norms import EPSILON, Norm, NormType
from seqmodels.neural.transformer.options import TransformerOptions
from seqmodels.neural.transformer.positions import PositionKind


@dataclass(kw_only=True, eq=False, repr=False)
class TransformerShape:
    """The arguments that all Transformers share, masked ones too.

    Args:
        d_model: width of the hidden state.
        n_layers: blocks of attention and feed-forward.
        dropout: fraction dropped in training.
        n_heads: must divide ``d_model``; ``"auto"``: the largest divisor with heads of at least 32.
        n_kv_heads: heads of keys and values, shared by groups of heads (Ainslie et al. 2023); None: as many as heads.
        d_feedforward: width of the position-wise network; None: 4 d_model (8/3 d_model under ``"swiglu"``).
        norm: ``"pre"`` (x + f(Norm(x))), ``"post"`` (Norm(x + f(x)), Vaswani et al. 2017) or ``"residual"``
            (x + Norm(f(x)), Liu et al. 2022).
        norm_type: ``"layer"`` or ``"rms"`` (Zhang and Sennrich 2019).
        norm_affine: whether norms learn a gain.
        norm_epsilon: added to the mean squares that norms divide by, above zero.
        activation: of the position-wise network: ``"gelu"``, ``"gelu-tanh"``, ``"relu"``, ``"relu2"`` (its square, So et al.
            2021) or ``"swiglu"`` (Shazeer 2020).
        positions: ``"sinusoidal"``, ``"learned"`` or ``"binary"`` (digits), added to the inputs; ``"rotary"`` (Su et al. 2021),
            ``"alibi"`` (Press et al. 2022) or ``"t5"`` (Raffel et al. 2020), which see differences only; or None.
        qk_norm: normalise each head's queries and keys (Henry et al. 2020).
        window: how many steps each layer looks back, itself among them (in an encoder: to both sides); None: all.
        bias: whether linear maps and layer norms have one.
        attention_dropout: of attention weights.
        zero_init: start from layers that add nothing.
    """

    d_model: int = 128
    n_layers: int = 4
    dropout: float = 0.1
    n_heads: int | Literal["auto"] = "auto"
    n_kv_heads: int | None = None
    d_feedforward: int | None = None
    norm: Norm = "pre"
    norm_type: NormType = "layer"
    norm_affine: bool = True
    norm_epsilon: float = EPSILON
    activation: Activation = "gelu"
    positions: PositionKind = "sinusoidal"
    qk_norm: bool = False
    window: int | None = None
    bias: bool = True
    attention_dropout: float = 0.0
    zero_init: bool = False

    def _heads(self) -> int:
        if self.n_heads != "auto":
            return self.n_heads
        counts = [h for h in range(1, max(1, self.d_model // 32) + 1) if self.d_model % h == 0]
        even = [h for h in counts if self.d_model // h % 2 == 0]
        return max(even if even and self.positions == "rotary" else counts)  # which turns pairs

    def _options(self, max_length: int) -> TransformerOptions:
        return TransformerOptions(
            d_model=self.d_model,
            n_layers=self.n_layers,
            n_heads=self._heads(),
            n_kv_heads=self.n_kv_heads,
            d_feedforward=self.d_feedforward,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            norm=self.norm,
            norm_type=self.norm_type,
            norm_affine=self.norm_affine,
            norm_epsilon=self.norm_epsilon,
            activation=self.activation,
            positions=self.positions,
            qk_norm=self.qk_norm,
            window=self.window,
            bias=self.bias,
            zero_init=self.zero_init,
            max_length=max_length,
        )
