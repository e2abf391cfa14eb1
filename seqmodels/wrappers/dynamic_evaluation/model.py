"""Dynamic evaluation: a network whose weights follow the gradient of what it has read of a sequence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch

from seqmodels.common.display import a_or_an
from seqmodels.common.parameters import checked
from seqmodels.encodings.examples import Example
from seqmodels.generation import Cursor
from seqmodels.model import NotFittedError
from seqmodels.neural.batches import Row
from seqmodels.neural.model import NeuralModel
from seqmodels.wrappers.dynamic_evaluation.cursor import DynamicCursor
from seqmodels.wrappers.dynamic_evaluation.segment_gradients import (
    FlatWeights,
    LearningRule,
    ReadSegment,
    SegmentReader,
)
from seqmodels.wrappers.dynamic_evaluation.tuning import (
    choose_rates,
    gradient_statistics,
    held_out_part,
    segment_length,
)
from seqmodels.wrappers.wrapped_model import WrappedModel

SMALLEST_RMS = 0.1  # share of their mean that is added to root mean squares before dividing by them


@dataclass(kw_only=True, eq=False, repr=False)
class Dynamic(WrappedModel):
    """Dynamic evaluation of a network: within a sequence, its weights follow the gradient of what it has read.

    The weights change after every ``segment`` scored steps (Krause et al. 2018, 2019)::

        w ← w + decay (w_0 - w) - lr g / (RMS + 0.1 mean(RMS))

    ``w_0`` are the fitted weights, from which every sequence starts. ``g`` is the gradient of the mean of ``-log p``
    over the segment's steps, scaled down to at most twice the median length of such gradients in the training part.
    ``RMS`` is the root mean square of each weight's gradient there, with the fitted weights, so that ``lr`` is about
    how far a weight moves in a segment. Gradients reach back to the beginning of the segment; the network's state
    before it (in a Transformer: keys and values) is carried on as it was computed. A Transformer reads a segment in its
    windows, all with the same weights, and so reads the part of a window before the segment with these weights too.

    Dropout is off. Nothing is learned from a segment that has a step of probability zero or a gradient that is not
    finite. Weights that an observation shares over all steps (``Chords``) stay as they were fitted.

    Args:
        model: an ``ElmanRNN``, ``LSTM``, ``GRU``, ``Recurrent``, ``Transformer`` or ``CausalModel``.
        segment: number of steps from one change of the weights to the next, counted from the first scored step.
            ``"auto"`` means a quarter of the mean length of the training sequences, from 8 to 256 (to 128 with a
            context).
        lr: step size; 0 gives the model itself. ``"auto"`` means the value that predicts held-out steps best, or 0 if
            none is better than the model itself by more than two standard errors.
        decay: fraction of the way back to the fitted weights at each change, from 0 to 1; ``"auto"`` means that it is
            chosen with ``lr``.

    ``"auto"`` chooses on the validation part of ``fit``. Without one it chooses on the end of the training part, which
    the network has seen, so that the gain there is less than on new sequences. ``from_fitted`` wraps a network that is
    already fitted, and must be followed by ``tune``.

    Attributes (fitted): ``model_``, the network; ``segment_``, ``lr_`` and ``decay_``, the values used; ``rms_``, the
    root mean squares of P weights, ``(P,)``; ``max_norm_``, the greatest length of a gradient.

    >>> from seqmodels import LSTM
    >>> text = "to be or not to be, that is the question. " * 20
    >>> model = Dynamic(LSTM(d_model=8, max_steps=5), segment=16, lr=1e-3, decay=0.0).fit([text])
    >>> bool(model.score([text]) > model.model_.score([text]))
    True
    """

    segment: int | Literal["auto"] = "auto"
    lr: float | Literal["auto"] = "auto"
    decay: float | Literal["auto"] = "auto"

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return self.model_.n_parameters_ + 2  # lr and decay

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        if not isinstance(self.model, NeuralModel):
            raise ValueError(
                f"Dynamic follows the gradient of a network's weights, but {type(self.model).__name__} is none; pass "
                "an LSTM, a Transformer or another network"
            )
        if self.segment != "auto" and self.segment < 1:
            raise ValueError(f"segment is {self.segment}; pass at least 1 step")
        if self.lr != "auto" and not 0 <= self.lr < math.inf:
            raise ValueError(f"lr is {self.lr}; pass 0 or more")
        if self.decay != "auto" and not 0 <= self.decay <= 1:
            raise ValueError(f"decay is {self.decay}; pass a part from 0 to 1")

    # -- fitting -------------------------------------------------------------------------------------------

    def tune(self, X: Any, y: Any = None, *, validation: Any = None) -> Self:
        """Choose ``lr`` and ``decay``, and learn root mean squares of gradients, for a network that is already fitted.

        Args:
            X, y: sequences (y given X, if there are targets) that the network was fitted to, or others like them. Their
                past, if they have one, is not read.
            validation: sequences on which rates are chosen, a pair if there are targets; None means the end of ``X``.

        Raises:
            NotFittedError: If there is no network yet.
            ValueError: If the network cannot read the sequences.
        """
        self._fit_around(self._examples_of(X, y), self._validation_of(validation, y))
        return self

    def _fit_around(self, train: list[Example], validation: list[Example]) -> None:
        self.segment_: int = (
            segment_length(train, self.model_.context_) if self.segment == "auto" else int(self.segment)
        )
        train, held_out = held_out_part(train, validation)
        weights = FlatWeights(self._network()._evaluation_module())
        reader = self._reader()
        statistics = gradient_statistics(reader, weights, self._network()._rows(train))
        self.rms_: np.ndarray = statistics.rms.float().cpu().numpy()
        self.max_norm_ = statistics.max_norm
        rows = [row for row in self._network()._rows(held_out) if self._learns_from(row)]
        start = weights.vector.clone()

        def by_segment(lr: float, decay: float) -> np.ndarray:
            """Return the log-probabilities of the segments after the first of each sequence."""
            rule = self._rule(start, lr, decay)
            parts = [self._read(weights, row, rule)[1:] for row in rows]
            return np.array([float(part.sum()) for of_row in parts for part in of_row])

        static = by_segment(0.0, 0.0)
        self.lr_, self.decay_ = choose_rates(
            lambda lr, decay: by_segment(lr, decay) - static,
            None if self.lr == "auto" else float(self.lr),
            None if self.decay == "auto" else float(self.decay),
        )

    # -- many sequences ------------------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        return self._scored(examples, self._network()._steps, self._read)

    def _event_log_probs(self, examples: list[Example]) -> list[np.ndarray]:
        return self._scored(examples, self._network()._event_log_probs, self._read_events)

    def _scored(
        self,
        examples: list[Example],
        static: Callable[[list[Example]], list[np.ndarray]],
        read: Callable[[FlatWeights, Row, LearningRule], list[np.ndarray]],
    ) -> list[np.ndarray]:
        """Return log-probabilities of each sequence, as an array for each.

        Args:
            examples: encoded sequences.
            static: function that computes them with the fitted weights, for sequences too short to learn from.
            read: function that computes them for each segment of one sequence, while the weights follow the rule.
        """
        self._check_tuned()
        network = self._network()
        rows = network._rows(examples)
        learning = [i for i, row in enumerate(rows) if self._learns_from(row) and self.lr_ > 0]
        others = [i for i in range(len(examples)) if i not in set(learning)]
        figures: dict[int, np.ndarray] = {}
        if others:
            figures = dict(zip(others, static([examples[i] for i in others]), strict=True))
        if learning:
            weights = FlatWeights(network._evaluation_module())
            rule = self._rule(weights.vector.clone(), self.lr_, self.decay_)
            for i in learning:
                figures[i] = np.concatenate(read(weights, rows[i], rule))
        return [figures[i] for i in range(len(examples))]

    def _read(self, weights: FlatWeights, row: Row, rule: LearningRule) -> list[np.ndarray]:
        """Return ``log p`` of the S steps of each segment of a sequence, ``(S,)``, while weights follow ``rule``.

        Args:
            weights: network, which starts from the fitted weights and is changed after each segment.
            row: the sequence.
            rule: rule by which weights follow gradients.
        """
        return [segment.log_prob.double().cpu().numpy() for segment in self._segments(weights, row, rule)]

    def _read_events(self, weights: FlatWeights, row: Row, rule: LearningRule) -> list[np.ndarray]:
        """Return the log-probabilities of all V next symbols at the S steps of each segment, ``(S, V)`` each.

        There are ``V + 1`` columns if ends of sequences are events.

        Args:
            weights: network, which starts from the fitted weights and is changed after each segment.
            row: the sequence.
            rule: rule by which weights follow gradients.
        """
        each = self._segments(weights, row, rule, events=True)
        return [segment.events.cpu().numpy() for segment in each if segment.events is not None]

    def _segments(
        self, weights: FlatWeights, row: Row, rule: LearningRule, *, events: bool = False
    ) -> Iterator[ReadSegment]:
        """Yield the results of each segment of one sequence; the weights learn from it before the next is read.

        Args:
            weights: network, which starts from the fitted weights and is changed after each segment.
            row: the sequence.
            rule: rule by which weights follow gradients.
            events: True for the log-probabilities of all possible next symbols too.
        """
        weights.vector.copy_(rule.start)
        for segment in self._reader().segments(weights, row, events=events):
            yield segment
            rule.apply(weights.vector, segment.gradient)

    def _learns_from(self, row: Row) -> bool:
        """Return True if the sequence ``row`` has steps after its first segment, which learning can improve."""
        return row.n_steps - row.first > self.segment_

    # -- one step at a time --------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> Cursor:
        self._check_tuned()
        if self.lr_ == 0:
            return self._network().cursor(n_steps)
        weights = FlatWeights(self._network()._evaluation_module())
        return DynamicCursor(weights, self._rule(weights.vector.clone(), self.lr_, self.decay_), self._reader())

    # -- inside --------------------------------------------------------------------------------------------

    def _network(self) -> NeuralModel:
        model = self._inner()
        assert isinstance(model, NeuralModel), "no other is wrapped"
        return model

    def _reader(self) -> SegmentReader:
        return SegmentReader(self.observation_, self._network()._windowing(), self.segment_)

    def _rule(self, start: torch.Tensor, lr: float, decay: float) -> LearningRule:
        """Return the rule by which the P weights follow gradients.

        Args:
            start: fitted weights, ``(P,)``, which must not change.
            lr: step size, before it is divided by each weight's root mean square.
            decay: fraction of the way back to the fitted weights at each change.
        """
        rms = torch.from_numpy(self.rms_).to(start)
        mean = rms.mean()
        # Without gradients all root mean squares are zero, and nothing may be divided by them.
        step = torch.where(mean > 0, lr / (rms + SMALLEST_RMS * mean), 0.0)
        return LearningRule(start, step, decay, self.max_norm_)

    def _check_tuned(self) -> None:
        self._setting()
        if not hasattr(self, "rms_"):
            raise NotFittedError(
                "this Dynamic has no gradient statistics of its network yet; call tune with its training sequences"
            )

    # -- keeping -------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        self._check_tuned()
        return {
            "segment": self.segment_,
            "lr": self.lr_,
            "decay": self.decay_,
            "max_norm": self.max_norm_,
            "rms": self.rms_,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        if not isinstance(self.model_, NeuralModel):
            raise ValueError(f"a Dynamic is made of a network, but the file holds {a_or_an(type(self.model_))}")
        expected = FlatWeights(self.model_.module_).vector.numel()
        rms = state["rms"]
        if not isinstance(rms, np.ndarray) or rms.dtype != np.float32 or rms.shape != (expected,):
            raise ValueError(f"rms should be {expected} numbers of float32, one for each weight")
        if not (np.isfinite(rms).all() and (rms >= 0).all()):
            raise ValueError("rms should be finite numbers, none negative")
        if type(state["segment"]) is not int or state["segment"] < 1:
            raise ValueError(f"segment is {state['segment']!r} in the file; it should be a number of steps")
        for name, value in self._rates(state):
            if type(value) not in (int, float) or not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value!r} in the file; it should be a number, not negative")
        if state["decay"] > 1:
            raise ValueError(f"decay is {state['decay']} in the file; it should be at most 1")
        self.segment_, self.rms_ = state["segment"], rms
        self.lr_, self.decay_, self.max_norm_ = (float(value) for _, value in self._rates(state))

    def _rates(self, state: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        return ((name, state[name]) for name in ("lr", "decay", "max_norm"))
