"""Multi-head attention ``softmax(q kᵀ / √d + bias) v`` to the same sequence or to a source, and its masks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqmodels.neural.ops.dropout import dropout
from seqmodels.neural.ops.explicit_attention import explicit_attention
from seqmodels.neural.ops.linear import apply_linear
from seqmodels.neural.ops.precision import compute_dtype
from seqmodels.neural.transformer.cache import CacheUpdate, KeyValue
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.layers import RMSNorm
from seqmodels.neural.transformer.positions import Rotation, ScoreBias, rotate

LONG = 512  # longer sequences (in steps) may train faster with the fused kernel
MANY_WEIGHTS = 1 << 24  # from so many attention weights on, in all rows and heads, they do


# -- masks -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AttentionMask:
    """A mask that says which of S keys each of T queries may attend to, and how the scores are to be computed.

    Attributes:
        bias: the numbers added to the scores, -inf where a key is masked, broadcastable to (B, H, T, S) for B sequences
            and H heads. With None no key is masked.
        causal: True if queries and keys are the same steps and no query sees a later key. There is then no bias.
        first_key: the first key that any query sees; earlier ones may be left out.
        explicit: True to compute the products one by one instead of calling torch's fused kernel.
    """

    bias: Tensor | None = None
    causal: bool = False
    first_key: int = 0
    explicit: bool = False


@dataclass(frozen=True)
class MaskBuilder:
    """A builder of the self-attention mask that all layers of a stack share.

    Attributes:
        causal: True if no query sees a later key.
        window: how many steps back a query sees, itself among them; None sees all.
    """

    causal: bool
    window: int | None

    def build(
        self,
        x: Tensor,
        n_past: int,
        mask: Tensor | None = None,
        score_bias: ScoreBias | None = None,
        *,
        explicit: bool = False,
    ) -> AttentionMask:
        """Return the mask of self-attention for T new steps of B sequences.

        Args:
            x: inputs of the new steps, (B, T, d).
            n_past: number of steps in the key-value cache before them.
            mask: False at padding, (B, T); None if there is none.
            score_bias: bias of the scores by distance, or None.
            explicit: True to compute the products one by one instead of calling torch's fused kernel.
        """
        length = x.shape[1]
        first = 0 if self.window is None or not self.causal else max(0, n_past - self.window + 1)
        if mask is None and score_bias is None and self._sees_all(length, n_past + length - first):
            return AttentionMask(None, False, first, explicit)
        plain = self.causal and n_past == 0 and mask is None and score_bias is None and not explicit
        if plain and (self.window is None or self.window >= length):
            return AttentionMask(None, True, first, explicit)
        return AttentionMask(self._bias(x, n_past, first, mask, score_bias), False, first, explicit)

    def _sees_all(self, n_queries: int, n_keys: int) -> bool:
        if self.window is not None and n_keys > self.window:
            return False
        return n_queries == 1 or not self.causal

    def _bias(self, x: Tensor, n_past: int, first: int, mask: Tensor | None, score_bias: ScoreBias | None) -> Tensor:
        dtype = compute_dtype(x)
        key = torch.arange(first, n_past + x.shape[1], device=x.device)
        query = key[n_past - first :]
        distance = query[:, None] - key  # (T, S)
        allowed = self._allowed(distance, mask)  # (1 or B, 1, T, S)
        bias = x.new_zeros((), dtype=dtype) if score_bias is None else score_bias(distance).to(dtype)  # (H, T, S)
        return torch.where(allowed, bias, -torch.inf)

    def _allowed(self, distance: Tensor, mask: Tensor | None) -> Tensor:
        allowed = torch.ones_like(distance, dtype=torch.bool) if not self.causal else distance >= 0
        if self.window is not None:
            allowed = allowed & (distance.abs() < self.window)
        allowed = allowed[None, None]
        # A padded query must see some key, so it sees itself: a softmax over none is NaN.
        return allowed if mask is None else allowed & mask[:, None, None, :] | (distance == 0)


def padding_mask(mask: Tensor, x: Tensor, *, explicit: bool) -> AttentionMask:
    """Return the mask of cross-attention to B sources of S steps, which excludes their padding.

    Args:
        mask: False at padding, (B, S).
        x: any tensor with the dtype and device of the queries.
        explicit: True to compute attention by single products instead of torch's fused kernel.
    """
    zero = torch.zeros((), dtype=compute_dtype(x), device=mask.device)
    return AttentionMask(torch.where(mask[:, None, None, :], zero, -torch.inf), explicit=explicit)


def explicit_is_faster(x: Tensor, n_heads: int, attention_dropout: float) -> bool:
    """Return True if attention is faster by explicit matrix products than by torch's fused kernel.

    They are faster on a CPU with dropout, which the kernel does not have, and for single queries, which the kernel
    treats as a block of many. They are also faster with gradients in bfloat16, unless the weights of a long context are
    so many that writing them, and keeping them for the backward pass, costs more than the kernel's slower products.
    Compiled code always uses explicit products: what torch (2.13) records of the kernel's strides is right only for the
    length at which it was compiled.

    Args:
        x: inputs of T steps, (B, T, d).
        n_heads: number of heads.
        attention_dropout: fraction of the weights that is dropped; 0 outside of training.
    """
    if x.device.type != "cpu":
        return False
    if torch.compiler.is_compiling():
        return True
    single_query = x.shape[1] == 1 and not torch.is_grad_enabled()
    if single_query or attention_dropout > 0:
        return True
    n_rows, length, _ = x.shape
    few_weights = length <= LONG or n_rows * n_heads * length**2 < MANY_WEIGHTS
    return few_weights and torch.is_grad_enabled() and compute_dtype(x) == torch.bfloat16


# -- attention -------------------------------------------------------------------------------------------------


@dataclass
class ForwardPass:
    """The masks, positions and cache update that all layers share in one forward pass of a stack.

    Attributes:
        update: how the new keys and values are written to the cache.
        mask: the mask of self-attention.
        rotation: the rotation of queries and keys in self-attention, or None without rotary embedding.
        source_mask: the mask of cross-attention, or None.
        cross_queries: a list to which each layer appends the inputs (B, T, d) of its cross-attention, or None.
        trains: True to compute the sublayers by the fused operations of ``training_sublayers``.
    """

    update: CacheUpdate
    mask: AttentionMask
    rotation: Rotation | None = None
    source_mask: AttentionMask | None = None
    cross_queries: list[Tensor] | None = None
    trains: bool = False


class SelfAttention(nn.Module):
    """Multi-head self-attention (Vaswani et al., 2017), with one projection to queries, keys and values.

    The keys' part of the projection's bias adds the same number to all scores of a query, so it has no effect unless
    keys are rotated or normalised.

    Args:
        config: the configuration, of which ``n_heads``, ``n_kv_heads``, ``qk_norm``, ``bias`` and ``attention_dropout``
            are used.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.d_head = config.d_head
        self.n_heads = config.n_query_heads
        self.n_kv_heads = config.n_key_heads
        width = (self.n_heads + 2 * self.n_kv_heads) * self.d_head
        self.project = nn.Linear(config.d_model, width, bias=config.bias)
        self.norm = _head_norm(config, self.n_heads + self.n_kv_heads)
        self.p = config.attention_dropout
        self.output = nn.Linear(config.d_model, config.d_model, bias=config.bias)

    def forward(self, x: Tensor, past: KeyValue | None, shared: ForwardPass) -> tuple[Tensor, KeyValue]:
        """Return the attention output (B, T, d) of T new steps, and the buffers that then hold all keys and values.

        Args:
            x: inputs of the new steps, (B, T, d).
            past: keys and values of earlier steps, or None.
            shared: masks, positions and cache update, which all layers share.
        """
        query, key, value = self._heads(x, shared.rotation)
        buffers = shared.update.write(past, (key, value))
        p = self.p if self.training else 0.0
        context, _ = attend(query, *shared.update.steps_from(shared.mask.first_key, buffers), shared.mask, p)
        return apply_linear(self.output, context.transpose(1, 2).flatten(2)), buffers

    def weights(self, x: Tensor, shared: ForwardPass) -> Tensor:
        """Return the weights (B, H, T, T) of step t on step s in each of H heads, for whole sequences.

        Args:
            x: inputs of T steps of B sequences, (B, T, d).
            shared: masks and positions, which all layers share; the mask must be explicit (a bias, not ``causal``).
        """
        weights = attend(*self._heads(x, shared.rotation), shared.mask, 0.0, need_weights=True)[1]
        assert weights is not None
        return weights

    def _heads(self, x: Tensor, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (B, H, T, d_head), and keys and values (B, G, T, d_head), of T steps.

        There are H heads of queries and G of keys and values.

        Args:
            x: inputs of the steps, (B, T, d).
            rotation: cosines and sines of rotary embedding, or None.
        """
        heads = _split_heads(apply_linear(self.project, x), self.d_head)  # (B, H + 2 G, T, d_head)
        query, key, value = heads.split((self.n_heads, self.n_kv_heads, self.n_kv_heads), 1)
        if self.norm is not None or rotation is not None:
            query_and_key = self._normed_and_rotated(heads[:, : -self.n_kv_heads], rotation)
            query, key = query_and_key.split((self.n_heads, self.n_kv_heads), 1)
        return query, key, value

    def _normed_and_rotated(self, x: Tensor, rotation: Rotation | None) -> Tensor:
        """Return queries and keys after ``qk_norm`` and rotary embedding, if the model has them.

        Args:
            x: queries of H heads and keys of G heads, (B, H + G, T, d_head).
            rotation: cosines and sines of rotary embedding, or None.
        """
        if self.norm is not None:
            x = self.norm(x).to(x.dtype)  # a gain in float32 would make it wider than the values
        return x if rotation is None else rotate(x, rotation)


class CrossAttention(nn.Module):
    """Attention to a source, without positions; ``prepare`` computes the keys and values of the source once.

    Args:
        config: the configuration, of which ``n_heads``, ``n_kv_heads``, ``qk_norm``, ``bias`` and ``attention_dropout``
            are used.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.d_head = config.d_head
        width = config.n_key_heads * config.d_head
        self.query = nn.Linear(config.d_model, config.d_model, bias=config.bias)
        self.key = nn.Linear(config.d_model, width, bias=False)  # a bias would have no effect, see SelfAttention
        self.value = nn.Linear(config.d_model, width, bias=config.bias)
        self.query_norm = _head_norm(config, config.n_query_heads)
        self.key_norm = _head_norm(config, config.n_key_heads)
        self.p = config.attention_dropout
        self.output = nn.Linear(config.d_model, config.d_model, bias=config.bias)

    def prepare(self, source: Tensor, mask: Tensor | None = None) -> KeyValue:
        """Return the keys and values (B, G, S, d_head) of a source for G heads, finite also at padding.

        Args:
            source: S encoded steps of B sources, (B, S, d).
            mask: False at padding, (B, S); None: there is none.
        """
        if mask is not None:  # a weight of zero times NaN is NaN
            source = source.masked_fill(~mask[..., None], 0.0)
        return self._split(apply_linear(self.key, source), self.key_norm), self._split(
            apply_linear(self.value, source), None
        )

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask, *, need_weights: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Return the attention output (B, T, d), and the attention weights (B, H, T, S) of H heads, or None.

        Args:
            query: decoder states of T steps before projection, (B, T, d).
            key, value: results of ``prepare`` for S source steps, (B, G, S, d_head) each; G heads, shared by the H of
                queries.
            mask: which keys a query sees.
            need_weights: True to return the weights, which is slower.
        """
        split = self._split(apply_linear(self.query, query), self.query_norm)
        context, weights = attend(split, key, value, mask, self.p if self.training else 0.0, need_weights=need_weights)
        return apply_linear(self.output, context.transpose(1, 2).flatten(2)), weights

    def _split(self, x: Tensor, norm: RMSNorm | None) -> Tensor:
        heads = _split_heads(x, self.d_head)
        return heads if norm is None else norm(heads).to(heads.dtype)


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask, p: float, *, need_weights: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Return the attention contexts (B, H, T, d_head) of T queries, and the weights (B, H, T, S) or None.

    Args:
        query: queries of H heads, (B, H, T, d_head).
        key: S keys of G heads, (B, G, S, d_head), each shared by H / G neighbouring heads of queries.
        value: values, (B, G, S, d_head).
        mask: which keys a query sees.
        p: fraction of the weights to drop, zero outside of training.
        need_weights: True to return the weights before dropout; the mask must then not be ``causal``.
    """
    if query.shape[1] > key.shape[1]:
        if query.shape[2] == 1 and not need_weights:
            return _attend_to_shared_keys(query, key, value, mask, p), None
        key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key, value))
    if not (mask.explicit or need_weights):
        return F.scaled_dot_product_attention(query, key, value, mask.bias, p, mask.causal), None
    assert not mask.causal, "explicit attention needs the mask as a bias"
    if p == 0 and not need_weights and not torch.compiler.is_compiling():  # a compiler fuses the operations below
        return explicit_attention(query, key, value, mask.bias), None
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)  # (B, H, T, S)
    weights = (scores if mask.bias is None else scores + mask.bias).softmax(-1).to(value.dtype)
    return dropout(weights, p, p > 0) @ value, weights if need_weights else None


def _split_heads(x: Tensor, d_head: int) -> Tensor:
    return x.view(*x.shape[:2], -1, d_head).transpose(1, 2)  # (B, T, H d_head) -> (B, H, T, d_head)


def _attend_to_shared_keys(query: Tensor, key: Tensor, value: Tensor, mask: AttentionMask, p: float) -> Tensor:
    """Return the context (B, H, 1, d_head) of a single query, without copying the keys that heads of queries share.

    Heads that share keys become several queries of one head. The arguments are those of ``attend``, with one query and
    fewer heads of keys than of queries.
    """
    shape = query.shape[0], key.shape[1], -1, query.shape[3]  # (B, G, H / G, d_head)
    if mask.bias is not None and mask.bias.shape[1] > 1:
        mask = replace(mask, bias=mask.bias.unflatten(1, (key.shape[1], -1)).squeeze(3))  # (., H, 1, S)
    context, _ = attend(query.reshape(shape), key, value, mask, p)
    return context.reshape(query.shape)


def _head_norm(config: TransformerConfig, n_heads: int) -> RMSNorm | None:
    if not config.qk_norm:
        return None
    return RMSNorm(n_heads, 1, config.d_head, affine=config.norm_affine, epsilon=config.norm_epsilon)
