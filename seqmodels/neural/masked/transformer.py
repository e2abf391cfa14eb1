"""``MaskedTransformer``: a Transformer that sees both ways, its pseudo-log-likelihood, hidden states and guesses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from seqmodels.neural.masked.bidirectional import BidirectionalModule, MaskedEnds
from seqmodels.neural.masked.masking import MASK, bracket
from seqmodels.neural.masked.model import MaskedModel
from seqmodels.neural.masked.pseudo import conditionals, sampled_positions
from seqmodels.neural.masked.states import hidden_states
from seqmodels.neural.transformer.network import TransformerStack
from seqmodels.neural.transformer.positions import make_positions
from seqmodels.neural.transformer.config import TransformerShape
from seqmodels.sequences import Item


class Filled(NamedTuple):
    """What a model puts in the hidden places of one sequence."""

    item: Item
    """The raw sequence with the most probable symbol in every hidden place."""
    symbols: np.ndarray
    """(N,) most probable symbols, encoded."""
    probabilities: np.ndarray
    """(N, V) of every symbol at every hidden place, each given what is shown, not given the other hidden ones."""


@dataclass(kw_only=True, eq=False, repr=False)
class MaskedTransformer(TransformerShape, MaskedModel):
    """A Transformer encoder trained to predict hidden symbols from both sides (BERT: Devlin et al. 2019).

    Reads text and integer symbols. Its conditionals ``p(x_t | x_\\t)`` are in general those of no joint distribution, so
    their product is no probability: it sums to nothing in particular over sequences, and it depends on the encoding
    (a byte is easier to guess from its neighbours than a whole piece). Pseudo-log-likelihoods stand next to those of
    other masked models of the same encoding, never next to likelihoods.

    Args:
        tie_embeddings: the output layer has the rows of the table of embeddings (Press and Wolf 2017).
        embedding_norm: normalise the sum of embedding and position.
        head_transform: a layer, an activation and a norm before the output layer.

    Devlin et al. have these three and ``norm="post"``. The other arguments are those of ``TransformerShape`` and, as the
    attributes, of ``MaskedModel``.

    >>> model = MaskedTransformer(d_model=8, n_layers=1, max_steps=2).fit(["to be", "or not"], validation=None)
    >>> model.pseudo_log_prob(["to", "not"]).shape, model.encode(["to", "not"])[1].shape
    ((2,), (3, 8))
    """

    tie_embeddings: bool = False
    embedding_norm: bool = False
    head_transform: bool = False

    # -- what it says of sequences -------------------------------------------------------------------------

    def pseudo_log_prob(self, X: Any, *, n_samples: int | None = None, random_state: int | None = None) -> np.ndarray:
        """``(n,)`` pseudo-log-likelihoods ``Σ_t log p(x_t | x_\\t)`` in nats (Salazar et al. 2020); no log-probabilities.

        One forward pass a symbol. In a sequence longer than ``max_length`` the context is bounded: each symbol is
        predicted from a window of that length around it.

        Args:
            X: sequences as in ``fit``.
            n_samples: symbols a sequence that are hidden in turn, drawn without replacement; their mean times the
                length is an unbiased estimate of the sum. None: all.
            random_state: seed of the draw, which depends on the sequence too but not on its place in X; None takes the
                model's. Equal sequences are drawn equally, so their errors do not average out; change the seed for that.
        """
        if n_samples is not None and n_samples < 1:
            raise ValueError(f"n_samples is {n_samples}; pass at least 1, or None for all symbols")
        seed = self.random_state if random_state is None else random_state
        values = self._values(self._readable(X))
        positions = [sampled_positions(v, n_samples, seed) for v in values]
        steps = conditionals(self._ready(), values, positions, self.max_length)
        return np.array([len(v) * s.mean() for v, s in zip(values, steps, strict=True)])

    def pseudo_score(self, X: Any, *, n_samples: int | None = None, random_state: int | None = None) -> float:
        """Pseudo-log-likelihood per byte of text or per symbol, nats: ``Σ pseudo_log_prob / Σ units``."""
        sequences = self._readable(X)
        total = self.pseudo_log_prob(sequences, n_samples=n_samples, random_state=random_state).sum()
        return float(total / sequences.n_units.sum())

    def encode(self, X: Any, *, layer: int = -1, pooled: bool = False) -> Any:
        """Hidden states of the symbols: a list of ``(S, d_model)`` arrays, S encoded steps; ``pooled``: their means ``(n, d_model)``.

        Args:
            X: sequences as in ``fit``; those longer than ``max_length`` are read in windows that overlap by half.
            layer: 0 is what enters the first block, k what leaves block k, -1 the last.
            pooled: mean over the symbols of each sequence.
        """
        rows, module = self._rows(self._readable(X)), self._ready()
        n = module.n_layers
        if not -n - 1 <= layer <= n:
            raise ValueError(f"layer is {layer} but the model has {n}; pass 0 to {n}, or -1 for the last")
        states = hidden_states(module, rows, self.max_length, layer % (n + 1))
        inner = [s[1:-1] for s in states]  # without the marks of beginning and end
        return np.stack([s.mean(0, dtype=np.float64) for s in inner]) if pooled else inner

    def fill(self, x: Any, mask: Any) -> Filled:
        """The most probable symbols where ``x`` is hidden, each given what is shown.

        Args:
            x: one raw sequence; what stands in hidden places is not looked at, but has to be there.
            mask: positions of the hidden places among the encoded steps (of text: its bytes, unless encoded otherwise).

        >>> model = MaskedTransformer(d_model=8, n_layers=1, max_steps=2).fit(["to be", "or not"], validation=None)
        >>> filled = model.fill("to b?", mask=[4])
        >>> filled.item[:4], filled.probabilities.shape
        ('to b', (1, 256))
        """
        (values,) = self._values(self._readable([x]))
        places = np.asarray(mask)
        if places.ndim != 1 or places.dtype.kind not in "iu" or not ((places >= 0) & (places < len(values))).all():
            raise ValueError(f"mask is {mask!r}; pass a list of positions from 0 to {len(values) - 1}")
        shown, module = values.copy(), self._ready()
        shown[places] = self.encoding_.size + MASK
        (states,) = hidden_states(module, [bracket(shown, self.encoding_.size)], self.max_length, module.n_layers)
        with torch.no_grad():
            logits = module.logits(torch.as_tensor(states[1:-1][places], device=self._device()))
        probabilities = logits.double().softmax(-1).cpu().numpy()
        filled, symbols = values.copy(), probabilities.argmax(1)
        filled[places] = symbols
        return Filled(self.encoding_.decode(filled), symbols, probabilities)

    # -- inside --------------------------------------------------------------------------------------------

    def _check_architecture(self) -> None:
        for name in ("d_model", "n_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; pass at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; pass a fraction from 0 up to 1")
        self._options(self.max_length)  # checks them

    def _module(self) -> BidirectionalModule:
        encoder = TransformerStack(self._options(self.max_length))
        positions = make_positions(self.positions, self.d_model, self.max_length)
        ends = MaskedEnds(self.tie_embeddings, self.embedding_norm, self.head_transform)
        return BidirectionalModule(self.encoding_.size, self.d_model, positions, encoder, ends)
