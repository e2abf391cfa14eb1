"""Additive attention, and what of earlier weights it may depend on."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from seqmodels.neural.seq2seq.attention import Attention, barred, zero_masked
from seqmodels.neural.seq2seq.loop import Memories, Query
from seqmodels.neural.seq2seq.scores import additive_score


class AdditiveAttention(Attention):
    """``score(q, k_s) = vᵀ tanh(W q + U k_s + b)`` (Bahdanau, Cho and Bengio, 2015), of earlier weights more if wanted.

    With features ``f_s`` of the weights of earlier steps it is ``vᵀ tanh(W q + U k_s + P f_s + b)``:

    - ``"coverage"``: ``f_s`` is the sum of all of them at s (Tu et al., 2016; See, Liu and Manning, 2017);
    - ``"location"``: ``f_s`` is a learned convolution, around s, of those of the step before (Chorowski et al., 2015);
    - ``"location-coverage"``: a convolution of the sum of all (Shen et al., 2018).

    Holds (B, T, S, d) numbers at once: made for one query a step, not for all pairs of long sequences.

    Args:
        d_model: width of queries, keys and values.
        of_past: None, or one of the above.
        n_filters, width: of the convolution; the width, in steps of the source, must be odd.
    """

    def __init__(
        self,
        d_model: int,
        *,
        of_past: Literal["coverage", "location", "location-coverage"] | None = None,
        n_filters: int = 10,
        width: int = 15,
    ) -> None:
        super().__init__()
        if width % 2 == 0:
            raise ValueError(f"width is {width}; pass an odd number, so that a step of the source has a middle")
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.energy = nn.Linear(d_model, 1, bias=False)
        if of_past is not None:
            self.past = "last" if of_past == "location" else "sum"
            n_features = 1 if of_past == "coverage" else n_filters
            self.features: nn.Module = nn.Identity()
            if of_past != "coverage":
                self.features = nn.Conv1d(1, n_filters, width, padding=width // 2, bias=False)
            self.recall = nn.Linear(n_features, d_model, bias=False)

    def prepare(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Keys ``2 U k`` (see ``additive_score``) and the source itself as values."""
        source = zero_masked(source, mask)
        return 2.0 * self.key(source), source

    def score(self, query: Tensor, key: Tensor, past: Tensor | None = None) -> Tensor:
        """``vᵀ tanh(W q + U k + P f + b)``."""
        if past is not None:
            features = self.features(past[:, None, :]).transpose(1, 2)  # (B, S, F)
            key = key + 2.0 * self.recall(features)
        doubled = 2.0 * self.query(query)[:, :, None, :]
        key = key.to(doubled.dtype)  # as it was before a checkpoint, which holds it in float32
        return additive_score(doubled, key[:, None, :, :], self.energy.weight[0])[:, None]

    def for_loop(self, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Query, Memories] | None:
        """See ``Attention``."""
        if self.past is not None:
            return None
        query = Query(2.0 * self.query.weight, 2.0 * self.query.bias)
        return query, Memories(key, value, barred(mask, key), self.energy.weight[0])
