"""``Cached``: a model of symbols that comes back to what a sequence has had."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from seqmodels.cached.caches import Cache, CountCache, HiddenStateCache, mixed
from seqmodels.cached.cursor import CachedCursor, CachePredictor, HiddenStatePredictor, ModelPredictor
from seqmodels.cached.hidden_states import hidden_states, without_head
from seqmodels.fitting import checked_data
from seqmodels.generation import Cursor
from seqmodels.measure import MemoryKind
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.neural.cursor import NetworkCursor
from seqmodels.neural.model import NeuralModel
from seqmodels.parameters import checked
from seqmodels.preparation import MAX_HELD_OUT, Example
from seqmodels.wrapped import WrappedModel

CacheKind = Literal["hidden", "counts"]
SHARPNESS = (4.0, 8.0, 16.0, 32.0, 64.0)  # of theta="auto", in units of one over the mean square of a hidden state
ORDERS = (1, 2, 3, 4, 5, 6, 7)  # of order="auto"
WEIGHTS = (0.003, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)  # of weight="auto"
STANDARD_ERRORS = 2.0  # by how many of them the gain on held-out steps must be above zero
BLOCK = 64  # steps whose gains are added up to one of the numbers that the standard error is of

# What the model inside says of a sequence: features (T, d), symbols (T,), and log p of these and of the end, if scored
Prepared = tuple[Tensor, Tensor, np.ndarray]


@dataclass(kw_only=True, eq=False, repr=False)
class Cached(WrappedModel):
    """``p(x_t | x_<t) = (1 - weight) p_model + weight p_cache``, of symbols and text.

    The cache holds the last ``window`` steps of the sequence. Of networks it is the continuous cache of Grave, Joulin
    and Usunier (2017) over the hidden states ``h`` that the output layer reads; of other models a share of counts (Kuhn
    and De Mori 1990), after the last ``order - 1`` symbols::

        hidden    p_cache(w) ∝ Σ_i 1[x_i = w] exp(theta h_t · h_i)
        counts    p_cache(w) = count(the last order - 1 symbols, then w) / count(the last order - 1 symbols)

    Where the cache has nothing to compare with (at the first step; after symbols that it has not) the model's own
    prediction stands. A cache holds no ends, so an end has ``(1 - weight)`` of its probability. It begins empty with
    each sequence, and with targets it holds these alone, not their source.

    Args:
        model: any model of symbols or text without an encoder.
        cache: ``"hidden"`` (networks only) or ``"counts"``; ``"auto"``: hidden states where the model is a network.
        window: steps that the cache holds.
        weight: from 0, the model itself, to below 1. ``"auto"``: what predicts held-out steps best, or 0 where that is
            not better than the model itself by more than two standard errors.
        theta: how much likeness counts, per square of a hidden state, of ``"hidden"``; ``"auto"``: chosen with
            ``weight``.
        order: of ``"counts"``; ``"auto"``: from 1 to 7, chosen with ``weight``.

    ``"auto"`` chooses on the validation part of ``fit``; without one on the end of the training part, which the model
    has seen. ``from_fitted`` wraps a model that is fitted already; ``tune`` must follow it.

    Attributes (fitted): ``model_``; ``kind_``, ``weight_``, ``theta_``, ``order_``, what ``"auto"`` came to.

    >>> from seqmodels import NGram
    >>> text = "to be or not to be, that is the question. "
    >>> model = Cached(NGram(2), weight=0.5, order=4).fit([text])
    >>> bool(model.score([3 * "whether tis nobler "]) > model.model_.score([3 * "whether tis nobler "]))
    True
    """

    cache: Literal["auto", "hidden", "counts"] = "auto"
    window: int = 2_000
    weight: float | Literal["auto"] = "auto"
    theta: float | Literal["auto"] = "auto"
    order: int | Literal["auto"] = "auto"

    @property
    def memory_(self) -> MemoryKind:
        return "adaptive"

    @property
    def context_(self) -> int | None:
        self._setting()
        inner = self.model_.context_
        if inner is None:
            return None
        return self.window + inner if self.kind_ == "hidden" else max(self.window, inner)

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return self.model_.n_parameters_ + 2  # the weight, and theta or the order

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        if self.cache not in ("auto", *get_args(CacheKind)):
            raise ValueError(f"cache is {self.cache!r}; pass 'auto', 'hidden' or 'counts'")
        if self.cache == "hidden" and not isinstance(self.model, NeuralModel):
            raise ValueError(f"a {type(self.model).__name__} has no hidden states of a network; pass cache='counts'")
        for name in ("window", "order"):
            if getattr(self, name) != "auto" and getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; pass at least 1")
        if self.order != "auto" and self.order > self.window:
            raise ValueError(f"order is {self.order}, but the window has {self.window} steps; pass a longer window")
        if self.weight != "auto" and not 0 <= self.weight < 1:
            raise ValueError(f"weight is {self.weight}; pass a part from 0 up to 1")
        if self.theta != "auto" and not 0 <= self.theta < math.inf:
            raise ValueError(f"theta is {self.theta}; pass 0 or more")

    # -- fitting -------------------------------------------------------------------------------------------

    @property
    def _uses_validation(self) -> bool:  # type: ignore[override]
        return self.model._uses_validation or "auto" in (self.weight, self.theta, self.order)

    def tune(self, X: Any, y: Any = None) -> Self:
        """Choose what is ``"auto"`` around a model that is fitted already, on sequences that it was not fitted to.

        Args:
            X, y: of which ``MAX_HELD_OUT`` steps, 10,000, are used, and no past.

        Raises:
            NotFittedError: there is no model yet.
            ValueError: sequences that the model cannot read.
        """
        self._fit_around([], self._setting().examples(checked_data(self, X, y).without_past()))
        return self

    def _fit_around(
        self, train: list[Example], validation: list[Example], others: Sequence[SequenceModel] = ()
    ) -> None:
        if self.encoding_.reads == "vectors":
            raise ValueError("a cache is for symbols and text, but the sequences are vectors; use Dynamic")
        is_network = isinstance(self.model_, NeuralModel)
        self.kind_: CacheKind = ("hidden" if is_network else "counts") if self.cache == "auto" else self.cache
        self.weight_, self.theta_, self.order_ = 0.0, 0.0, 1
        prepared = list(self._held_out(train, validation))
        square = float(np.mean([float(f.square().sum(-1).mean()) for f, _, _ in prepared])) or 1.0
        thetas = [s / square for s in SHARPNESS] if self.theta == "auto" else [self.theta]
        orders = [o for o in ORDERS if o <= self.window] if self.order == "auto" else [self.order]
        weights = WEIGHTS if self.weight == "auto" else [self.weight]
        best = -math.inf
        for theta, order in [(t, 1) for t in thetas] if self.kind_ == "hidden" else [(0.0, o) for o in orders]:
            log_caches = [self._cache(theta, order).log_prob(f, x) for f, x, _ in prepared]
            for weight in weights:
                gains = np.concatenate(
                    [_mixed_steps(p, c, weight) - p for (_, _, p), c in zip(prepared, log_caches, strict=True)]
                )
                total = float(gains.sum())
                if total > best and (self.weight != "auto" or _is_above_zero(gains)):
                    best, self.weight_, self.theta_, self.order_ = total, float(weight), float(theta), int(order)
        if not math.isfinite(best) and self.weight != "auto":
            self.weight_, self.theta_, self.order_ = float(self.weight), float(thetas[0]), int(orders[0])

    def _held_out(self, train: list[Example], validation: list[Example]) -> Iterator[Prepared]:
        n_steps = 0
        for example in validation or train[::-1]:
            if n_steps >= MAX_HELD_OUT:
                return
            features, symbols, log_p = next(self._prepared([example.alone()]))
            keep = MAX_HELD_OUT - n_steps
            yield features[:keep], symbols[:keep], log_p[:keep]
            n_steps += len(symbols)

    # -- many sequences ------------------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        self._check_tuned()
        if self.weight_ == 0:
            return self._inner()._steps(examples)
        cache = self._cache(self.theta_, self.order_)
        return [_mixed_steps(p, cache.log_prob(f, x), self.weight_) for f, x, p in self._prepared(examples)]

    def _prepared(self, examples: list[Example]) -> Iterator[Prepared]:
        model = self._inner()
        for example, steps in zip(examples, model._steps(examples), strict=True):
            symbols = torch.as_tensor(np.asarray(example.values), device=model._device())
            features = torch.zeros(len(symbols), 0, device=symbols.device)
            if self.kind_ == "hidden" and isinstance(model, NeuralModel):
                (row,) = model._rows([example])
                features = hidden_states(model._evaluation_module(), row, model._windowing())[: len(symbols)]
            yield features, symbols, steps

    # -- one step at a time --------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> Cursor:
        self._check_tuned()
        model = self._inner()
        if self.weight_ == 0:
            return model.cursor(n_steps)
        predictor: CachePredictor
        if self.kind_ == "hidden" and isinstance(model, NeuralModel):
            module, windowing = model._evaluation_module(), model._windowing()
            predictor = HiddenStatePredictor(
                NetworkCursor(without_head(module), self.observation_, windowing),
                NetworkCursor(module, self.observation_, windowing),
            )
        else:
            predictor = ModelPredictor(model.cursor(n_steps))
        cache = self._cache(self.theta_, self.order_)
        return CachedCursor(predictor, cache, self.weight_, self.observation_, self.encoding_.size)

    # -- inside --------------------------------------------------------------------------------------------

    def _cache(self, theta: float, order: int) -> Cache:
        return HiddenStateCache(self.window, theta) if self.kind_ == "hidden" else CountCache(self.window, order)

    def _check_tuned(self) -> None:
        self._setting()
        if not hasattr(self, "weight_"):
            raise NotFittedError("this Cached has chosen no weight yet; call tune with sequences held out of training")

    # -- keeping -------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        self._check_tuned()
        return {"kind": self.kind_, "weight": self.weight_, "theta": self.theta_, "order": self.order_}

    def _restore(self, state: dict[str, Any]) -> None:
        kinds = get_args(CacheKind) if isinstance(self.model_, NeuralModel) else ("counts",)
        if state["kind"] not in kinds or self.encoding_.reads == "vectors":
            raise ValueError(f"kind is {state['kind']!r} in the file; a cache of this model is one of {kinds}")
        for name, limit in (("weight", 1.0), ("theta", math.inf)):
            if type(state[name]) not in (int, float) or not 0 <= state[name] < limit:
                raise ValueError(f"{name} is {state[name]!r} in the file; it should be from 0 to below {limit}")
        if type(state["order"]) is not int or state["order"] < 1:
            raise ValueError(f"order is {state['order']!r} in the file; it should be at least 1")
        self.kind_, self.order_ = state["kind"], state["order"]
        self.weight_, self.theta_ = float(state["weight"]), float(state["theta"])


def _mixed_steps(log_prob: np.ndarray, log_cache: Tensor, weight: float) -> np.ndarray:
    """Of symbols, and where it is scored, of the end after them; ``log_cache`` has the end always."""
    return mixed(torch.from_numpy(log_prob), log_cache.cpu()[: len(log_prob)], weight).numpy()


def _is_above_zero(gains: np.ndarray) -> bool:
    """Whether the mean gain is above zero by more than two standard errors, over blocks of steps."""
    blocks = np.add.reduceat(gains, np.arange(0, len(gains), BLOCK))
    if len(blocks) < 2 or not np.isfinite(blocks).all():
        return False
    return bool(blocks.mean() > STANDARD_ERRORS * blocks.std(ddof=1) / math.sqrt(len(blocks)))
