"""``OnlineEM``: an HMM whose parameters follow what it has read of a sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, Self

import numpy as np
import torch

from seqmodels.common.array_checks import array_of
from seqmodels.common.display import a_or_an
from seqmodels.common.parameters import checked
from seqmodels.encodings.examples import Example
from seqmodels.encodings.precision import DTYPES
from seqmodels.generation import Cursor
from seqmodels.hmm import HMM, Frozen
from seqmodels.hmm.cursor import HMMCursor
from seqmodels.hmm.learning.em import Expectations, e_step
from seqmodels.hmm.model import corpus_of_fitted, objective_of
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.model.fitting import fit_member
from seqmodels.observations import Observation
from seqmodels.wrappers.dynamic.tuning import at_most, choose_rates, held_out_part, segment_length
from seqmodels.wrappers.online_em.cursor import OnlineCursor
from seqmodels.wrappers.online_em.segments import LearningState, OnlineRule
from seqmodels.wrappers.wrapped_model import WrappedModel

TABLES = ("transition", "emission")
N_FOLDS = 3


@dataclass(kw_only=True, eq=False, repr=False)
class OnlineEM(WrappedModel):
    """Online EM of an HMM: within a sequence its parameters are those that EM would find from what has been read.

    After every ``segment`` steps have been scored, forward-backward on these steps, given those before them, gives
    their expected sufficient statistics ``s`` (transitions, and those of the emissions), and one M-step the parameters
    that the next segment is read with (block online EM, Le Corff and Fort 2013; with ``segment=1`` the statistics are
    those of filtering)::

        S ← (1 - decay) S + s
        θ = argmax Q(S_train · prior_steps / N + S) + log prior · prior_steps / N

    ``S_train`` are the expected statistics of the N steps of training under the fitted parameters, which every sequence
    starts with: the prior is the training part, counted as ``prior_steps`` steps (a power prior, Ibrahim and Chen
    2000). Cappé (2011) updates after every step, by a recursion whose statistics are smoothed over all steps so far;
    here states are smoothed within their segment, and those of earlier segments not again.

    Constraints of the HMM stay: transitions that are zero, ``tied`` and ``frozen``. The distribution of the first state
    does not change. A segment of probability zero teaches nothing. Steps of a source are read with the fitted
    parameters, and nothing is learned from them.

    Args:
        model: an ``HMM``, of any observation that EM fits.
        segment: steps from one change of the parameters to the next, counted from the first scored step; ``"auto"``: a
            quarter of the mean length of the training sequences, from 8 to 256.
        prior_steps: steps that the training part counts as; ``inf``: the model itself. ``"auto"``: what predicts
            held-out steps best, or ``inf`` where nothing is better than the model itself by more than two standard
            errors.
        decay: the part of what has been read that is forgotten at each change, from 0 to 1; ``"auto"``: chosen with
            ``prior_steps``.
        frozen: what does not follow the sequence, among ``"transition"`` (ends too) and ``"emission"``.

    ``"auto"`` chooses on the validation part of ``fit``; without one by a second fit, to the training part without its
    last tenth, on that; of sequences of three clusters or more by three fits, each without a third of the clusters, so
    that what is chosen is for speakers or sensors never met. ``from_fitted`` wraps an HMM that is fitted already;
    ``tune`` must follow it.

    Attributes (fitted): ``model_``; ``segment_``, ``prior_steps_`` and ``decay_``, what ``"auto"`` came to.

    Raises (``fit``): ``ValueError`` for a model that is no ``HMM``, and numbers out of range.

    >>> from seqmodels import HMM
    >>> halves = [np.array([0, 1] * 30), np.array([0, 0, 1] * 20)]
    >>> model = OnlineEM(HMM(3, length="given"), segment=6, prior_steps=50.0, decay=0.0).fit(halves)
    >>> bool(model.score(halves) > model.model_.score(halves))
    True
    """

    segment: int | Literal["auto"] = "auto"
    prior_steps: float | Literal["auto"] = "auto"
    decay: float | Literal["auto"] = "auto"
    frozen: Sequence[str] = ()

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return self.model_.n_parameters_ + 2  # prior_steps and decay

    def _sums_out(self, observation: Observation) -> bool:
        return self.model._sums_out(observation)

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        if not isinstance(self.model, HMM):
            raise ValueError(
                f"OnlineEM takes M-steps of an HMM, but {type(self.model).__name__} is none; pass an HMM, or put "
                "Dynamic around a network"
            )
        if self.segment != "auto" and self.segment < 1:
            raise ValueError(f"segment is {self.segment}; pass at least 1 step")
        if self.prior_steps != "auto" and not self.prior_steps > 0:
            raise ValueError(f"prior_steps is {self.prior_steps}; pass a number above 0, or inf")
        if self.decay != "auto" and not 0 <= self.decay <= 1:
            raise ValueError(f"decay is {self.decay}; pass a part from 0 to 1")
        unknown = [name for name in self.frozen if name not in TABLES]
        if isinstance(self.frozen, str) or unknown:
            raise ValueError(f"frozen is {self.frozen!r}; pass a tuple of names among {', '.join(TABLES)}")

    # -- fitting -------------------------------------------------------------------------------------------

    def tune(self, X: Any, y: Any = None, *, validation: Any = None) -> Self:
        """Learn the statistics of training, ``prior_steps`` and ``decay`` around an HMM that is fitted already.

        Args:
            X, y: the sequences that the HMM was fitted to, or others like them.
            validation: sequences to choose on, a pair if there are targets; None: the end of ``X``, which the HMM has
                perhaps seen, so that what it gains there is less than it is on new sequences. A past that sequences
                have is not read, here and above.

        Raises:
            NotFittedError: there is no HMM yet.
            ValueError: sequences that the HMM cannot read, or of probability zero.
        """
        train, held_out = self._examples_of(X, y), self._validation_of(validation, y)
        rest, held_out = (train, held_out) if validation is not None else held_out_part(train, [])
        self._learn(self._hmm(), train)
        self._choose([Fold(self._hmm(), *_statistics(self._hmm(), rest), held_out)])
        return self

    def _fit_others(self, train: list[Example], validation: list[Example]) -> list[SequenceModel]:
        """An HMM for each fold, fitted to the rest alone, where there is something to be chosen on the folds."""
        if validation or "auto" not in (self.prior_steps, self.decay):
            return []
        hmms = [self.model.clone() for _ in _folds(train)]
        for hmm, (rest, _) in zip(hmms, _folds(train), strict=True):
            fit_member(hmm, self._setting(), rest, [])
            hmm.set_params(dtype=self.dtype, device=self.device)
        return hmms

    def _fit_around(
        self, train: list[Example], validation: list[Example], others: Sequence[SequenceModel] = ()
    ) -> None:
        self._learn(self._hmm(), train)
        if "auto" not in (self.prior_steps, self.decay):
            self.prior_steps_, self.decay_ = float(self.prior_steps), float(self.decay)
        elif validation:
            self._choose([Fold(self._hmm(), self.train_, self.n_steps_, at_most(validation))])
        else:
            folds: list[Fold] = []
            for hmm, (rest, held_out) in zip(others, _folds(train), strict=True):
                assert isinstance(hmm, HMM), "no other is wrapped"
                folds.append(Fold(hmm, *_statistics(hmm, rest), held_out))
            self._choose(folds)

    def _learn(self, hmm: HMM, train: list[Example]) -> None:
        self.segment_: int = segment_length(train, None) if self.segment == "auto" else int(self.segment)
        self.train_, self.n_steps_ = _statistics(hmm, train)

    def _choose(self, folds: list[Fold]) -> None:
        """``prior_steps_`` and ``decay_``: what gains most on held-out segments, over all folds."""

        def by_segment(prior_steps: float, decay: float) -> np.ndarray:
            """Log-probabilities of the segments after the first of each sequence."""
            sums: list[float] = []
            for fold in folds:
                rule = self._rule(fold.hmm, fold.train, fold.n_steps, prior_steps, decay)
                cursor = _cursor(fold.hmm)
                for example in fold.held_out:
                    if self._learns_from(example):
                        sums += [float(part.sum()) for part in _read(cursor, rule, example, self.segment_)[1:]]
            return np.array(sums)

        static = by_segment(math.inf, 0.0)
        rate, self.decay_ = choose_rates(
            lambda rate, decay: by_segment(1 / rate, decay) - static,
            None if self.prior_steps == "auto" else 1 / self.prior_steps,
            None if self.decay == "auto" else float(self.decay),
        )
        self.prior_steps_ = math.inf if rate == 0 else 1 / rate
        if self.prior_steps != "auto":
            self.prior_steps_ = float(self.prior_steps)

    # -- many sequences ------------------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        self._check_tuned()
        hmm = self._hmm()
        learning = [i for i, e in enumerate(examples) if self._learns_from(e) and self.prior_steps_ < math.inf]
        others = sorted({*range(len(examples))} - {*learning})
        steps: dict[int, np.ndarray] = {}
        if others:
            steps = dict(zip(others, hmm._steps([examples[i] for i in others]), strict=True))
        if learning:
            rule, cursor = self._fitted_rule(hmm), _cursor(hmm)
            for i in learning:
                steps[i] = np.concatenate(_read(cursor, rule, examples[i], self.segment_))
        return [steps[i] for i in range(len(examples))]

    def _learns_from(self, example: Example) -> bool:
        """Whether there is a step, or an end, after the first segment."""
        return len(example.values) + (self.length_ == "stop") > self.segment_

    # -- one step at a time --------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> Cursor:
        self._check_tuned()
        hmm = self._hmm()
        if self.prior_steps_ == math.inf:
            return hmm.cursor(n_steps)
        return OnlineCursor(_cursor(hmm), self._fitted_rule(hmm), self.segment_)

    # -- inside --------------------------------------------------------------------------------------------

    def _hmm(self) -> HMM:
        model = self._inner()
        assert isinstance(model, HMM), "no other is wrapped"
        return model

    def _fitted_rule(self, hmm: HMM) -> OnlineRule:
        return self._rule(hmm, self.train_, self.n_steps_, self.prior_steps_, self.decay_)

    def _rule(self, hmm: HMM, train: Expectations, n_steps: float, prior_steps: float, decay: float) -> OnlineRule:
        fitted = hmm.parameters_.to(hmm._device())
        frozen = Frozen(transition="transition" in self.frozen, emission="emission" in self.frozen)
        moved = Expectations.from_arrays(train.arrays(), hmm._device())
        return OnlineRule(fitted, moved, n_steps / prior_steps, decay, objective_of(hmm), frozen)

    def _check_tuned(self) -> None:
        self._setting()
        if not hasattr(self, "prior_steps_"):
            raise NotFittedError(
                "this OnlineEM knows no statistics of training yet; call tune with the sequences of its HMM's training"
            )

    # -- keeping -------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        self._check_tuned()
        return {
            "segment": self.segment_,
            "prior_steps": None if self.prior_steps_ == math.inf else self.prior_steps_,  # JSON has no inf
            "decay": self.decay_,
            "n_steps": self.n_steps_,
            "train": self.train_.arrays(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        if not isinstance(self.model_, HMM):
            raise ValueError(f"an OnlineEM is made of an HMM, but the file holds {a_or_an(type(self.model_))}")
        if type(state["segment"]) is not int or state["segment"] < 1:
            raise ValueError(f"segment is {state['segment']!r} in the file; it should be a number of steps")
        prior_steps = math.inf if state["prior_steps"] is None else state["prior_steps"]
        for name, value in (("prior_steps", prior_steps), ("n_steps", state["n_steps"])):
            if type(value) not in (int, float) or not value > 0:
                raise ValueError(f"{name} is {value!r} in the file; it should be a number above 0")
        if not math.isfinite(state["n_steps"]):
            raise ValueError(f"n_steps is {state['n_steps']} in the file; it should be a number of steps")
        if type(state["decay"]) not in (int, float) or not 0 <= state["decay"] <= 1:
            raise ValueError(f"decay is {state['decay']!r} in the file; it should be from 0 to 1")
        _check_statistics(self.model_, state["train"])
        self.segment_, self.prior_steps_ = state["segment"], float(prior_steps)
        self.decay_, self.n_steps_ = float(state["decay"]), float(state["n_steps"])
        self.train_ = Expectations.from_arrays(state["train"], torch.device("cpu"))


@dataclass(frozen=True)
class Fold:
    """An HMM, the statistics of what it was fitted to and its steps, and examples that it was not fitted to."""

    hmm: HMM
    train: Expectations
    n_steps: float
    held_out: list[Example]


def _folds(train: list[Example]) -> list[tuple[list[Example], list[Example]]]:
    """The rest and what is held out: of three clusters or more each third of them in turn, else the last tenth once."""
    clusters = sorted({example.cluster for example in train if example.cluster is not None})
    if len(clusters) < N_FOLDS:
        return [held_out_part(train, [])]
    thirds = [set(clusters[i::N_FOLDS]) for i in range(N_FOLDS)]
    return [
        ([e for e in train if e.cluster not in third], at_most([e for e in train if e.cluster in third]))
        for third in thirds
    ]


def _cursor(hmm: HMM) -> HMMCursor:
    """The HMM's, which filters missing values of the past by what one call returned, whatever its parameters become."""
    cursor = hmm.cursor()
    return (
        cursor if cursor.make_past_filter is None else replace(cursor, make_past_filter=cache(cursor.make_past_filter))
    )


def _statistics(hmm: HMM, examples: list[Example]) -> tuple[Expectations, float]:
    """Expectations of all examples under the HMM, on the CPU, and the number of their steps, by weight."""
    corpus = corpus_of_fitted(hmm, examples)
    parameters = hmm.parameters_.to(hmm._device())
    of_chains = e_step([parameters], objective_of(hmm).emission, corpus.batches, DTYPES[hmm.dtype_])
    assert of_chains is not None, "no signal is waited for"
    (expectations,) = of_chains
    n_steps = float(expectations.xi.sum() + expectations.initial.sum())
    arrays = expectations.arrays()
    # In the order that a file has them in: sums of a loaded model are then the same to the last bit.
    emission = {name: np.ascontiguousarray(array) for name, array in arrays["emission"].items()}
    return Expectations.from_arrays({**arrays, "emission": emission}, torch.device("cpu")), n_steps


def _read(fitted: HMMCursor, rule: OnlineRule, example: Example, segment: int) -> list[np.ndarray]:
    """Log-probabilities of the steps of each segment, the last with the end where that is an event."""
    state = LearningState(fitted, None, fitted.start(example.source))
    values = torch.as_tensor(np.asarray(example.values))
    has_end = rule.fitted.final is not None
    results = []
    for begin in range(0, len(values), segment):
        x = values[begin : begin + segment]
        after, steps = state.cursor.read_and_score(state.hmm_state, x[None])
        results.append(steps[0].cpu().numpy())
        is_followed = has_end or begin + segment < len(values)
        learns = len(x) == segment and is_followed
        state = state.learn(rule, x, after) if learns else replace(state, hmm_state=after)
    log_end = state.cursor.distribution(state.hmm_state).log_end
    if log_end is not None:
        results[-1] = np.append(results[-1], float(log_end))
    return results


def _check_statistics(hmm: HMM, arrays: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for statistics of training that are not those of this HMM."""
    k, log_prob = len(hmm.parameters_.initial), arrays["log_prob"]
    if type(log_prob) not in (int, float) or not math.isfinite(log_prob):
        raise ValueError(f"log_prob is {log_prob!r}; it should be a finite number")
    for name, shape in (("initial", (k,)), ("xi", (k, k)), ("final", (k,))):
        if not (np.isfinite(array_of(arrays, name, np.float64, shape)).all() and (arrays[name] >= 0).all()):
            raise ValueError(f"{name} should be finite numbers, none negative")
    emission, parameters = objective_of(hmm).emission, hmm.parameters_
    size = hmm.encoding_.size
    x = torch.zeros((0, size) if hmm.observation_.emits == "vectors" else (0,), dtype=torch.float64)
    x = x if hmm.observation_.emits == "vectors" else x.long()
    past = torch.zeros(0, hmm.observation_.n_past, size, dtype=torch.float64) if hmm.observation_.n_past else None
    expected = emission.statistics(parameters.table, x, past, torch.zeros(0, k, dtype=torch.float64))
    if {*arrays["emission"]} != {str(i) for i in range(len(expected))}:
        raise ValueError(f"there should be {len(expected)} statistics of the emissions, but the file has others")
    for i, each in enumerate(expected):
        if not np.isfinite(array_of(arrays["emission"], str(i), np.float64, tuple(each.shape))).all():
            raise ValueError(f"statistics {i} of the emissions should be finite numbers")
