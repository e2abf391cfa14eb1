"""A base class for models that were made elsewhere, and that ``fit`` leaves as they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.display import a_or_an
from seqmodels.encodings import Encoding
from seqmodels.encodings.examples import Example
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.generation import Prediction
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import apply_setting, check_arguments
from seqmodels.observations import Categorical, Observation
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import Exactness


@dataclass(kw_only=True, eq=False, repr=False)
class AdaptedModel(SequenceModel, ABC):
    """A base class of models that were made elsewhere, which ``fit`` leaves as they are.

    ``fit`` only checks that they can read the data. So ``compare`` can score them beside models that it fits. To add
    one, define ``context_``, ``n_parameters_``, ``_check_hyperparameters``, ``_known_encoding``, ``_steps`` and
    ``cursor``; and ``_prepare`` if something must be set up first.
    """

    _uses_validation: ClassVar[bool] = False

    @abstractmethod
    def _known_encoding(self) -> Encoding:
        """Return the fitted encoding by which the model reads raw data."""

    @property
    def _exactness(self) -> Exactness:
        """Whether the model's log-probabilities are exact or lower bounds."""
        return self.encoding_.exactness

    def _prepare(self) -> None:
        """Set up what ``fit``, scoring and cursors share; ``encoding_`` and ``length_`` are already set."""
        return

    def _adopted(self) -> Self:
        """Mark this model as fitted, without data, and return it."""
        check_arguments(self)
        self._check_hyperparameters()
        encoding = self._stated_encoding()
        length = self._default_length(encoding.reads) if self.length == "auto" else self.length
        observation = self._default_observation(encoding.reads)
        apply_setting(self, Setting.from_fitted(encoding, observation, length, conditional=False))
        self.fit_seconds_: float = 0.0
        self._take_as_it_is()
        return self

    def _take_as_it_is(self) -> None:
        import pandas as pd

        self.history_, self.converged_ = pd.DataFrame(), True
        self._prepare()
        self.measure_ = replace(self.measure_, kind=self._exactness)

    # -- SequenceModel -------------------------------------------------------------------------------------

    def _stated_encoding(self) -> Encoding:
        if isinstance(self.encoding, Encoding) and self.__sklearn_is_fitted__():
            return self.encoding_  # because a file's hyperparameters lack the fitted parts of an encoding
        return self._known_encoding()

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        name = type(self).__name__
        if self.measure_.conditional and not self.ignore_source:
            raise ValueError(
                f"{a_or_an(name)} models p(x), not p(y | x); leave y out, or pass ignore_source=True for p(y)"
            )
        if self.warm_start:
            raise ValueError(f"warm_start=True, but {a_or_an(name)} is not trained; leave it False")
        self._take_as_it_is()

    def _default_observation(self, kind: Kind) -> Observation:
        if kind == "vectors":
            raise ValueError(f"{a_or_an(type(self))} models symbols or text, but the sequences are vectors")
        return Categorical()

    def _state(self) -> dict[str, Any]:
        return {}

    def _restore(self, state: dict[str, Any]) -> None:
        if state:
            raise ValueError(f"{a_or_an(type(self))} has no learned arrays, but the file holds {sorted(state)}")
        self._check_hyperparameters()
        self._prepare()


def prediction_of_columns(
    observation: Observation, logits: Tensor, size: int, end: int | None, *, has_end: bool, is_first: bool
) -> Prediction:
    """Return the prediction of the next symbol from a network's logits, of which some columns are no symbols.

    Args:
        observation: observation of the model, a ``Categorical``.
        logits: logits of n sequences, ``(n, W)``; the first V of W columns belong to the symbols.
        size: number V of symbols.
        end: column of the end of a sequence. It may be among the first V, and is then no symbol. None if there is none.
        has_end: True if sequences end by this column (``length="stop"``); if False, it is masked.
        is_first: True if this is the first step, at which a sequence cannot end.
    """
    symbols = logits[:, :size]
    if end is not None and end < size:
        symbols = symbols.index_fill(1, torch.tensor([end], device=logits.device), -torch.inf)
    if not has_end:
        return Prediction(observation, symbols.unsqueeze(1), None, None, None)
    assert end is not None, "ends are events"
    log_end = torch.full_like(logits[:, end], -torch.inf)
    log_continue = torch.zeros_like(log_end)
    if not is_first:
        total = torch.logsumexp(symbols.double(), -1)
        log_end, log_continue = normalised_pair(logits[:, end].double(), total)
    return Prediction(observation, symbols.unsqueeze(1), None, None, log_end, log_continue)


def normalised_pair(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of two alternatives from their logits, ``a - log(e^a + e^b)`` and that of b."""
    both = torch.logaddexp(a, b)
    return a - both, b - both


def check_end(name: str, length: str, end: int | None) -> None:
    """Check that a model whose ``length`` is "stop" has an end among its outputs.

    Args:
        name: name of what lacks the end, for the message.
        length: "stop" if the end of a sequence is predicted, "given" otherwise.
        end: number of the output that is the end; None if there is none.

    Raises:
        ValueError: If ``length`` is "stop" and ``end`` is None.
    """
    if length == "stop" and end is None:
        raise ValueError(
            f'length is "stop", but the {name} does not say which of its outputs is the end; pass end=, or '
            'length="given"'
        )


def check_counts(context: int | None, n_parameters: int) -> None:
    """Check the context (number of past steps it looks at) and the number of parameters that a user states for a model.

    Raises:
        ValueError: If one of them is negative.
    """
    if context is not None and context < 0:
        raise ValueError(f"context is {context}; pass how many steps back it looks, 0 or more, or None for all")
    if n_parameters < 0:
        raise ValueError(f"n_parameters is {n_parameters}; pass 0 or more")


@torch.no_grad()
def log_prob_of_columns(
    observation: Observation,
    logits: Tensor,
    values: np.ndarray,
    size: int,
    end: int | None,
    *,
    has_end: bool,
    is_first: np.ndarray,
    is_end: np.ndarray,
) -> np.ndarray:
    """Return the log-probability in nats of n steps of one or more sequences, ``(n,)`` float64, from their logits.

    Args:
        observation: observation of the model, a ``Categorical``.
        logits: logits of the steps, ``(n, W)``; the first ``size`` of W columns belong to the symbols.
        values: symbol of each step, ``(n,)``; any valid symbol where ``is_end`` is True.
        size: number of symbols.
        end: column of the end of a sequence; None if there is none.
        has_end: True if sequences end by this column (``length="stop"``); if False, it is masked.
        is_first: True for the first step of a sequence, at which it cannot end, ``(n,)``.
        is_end: True where the step is the end of a sequence, ``(n,)``.
    """
    x, ends = torch.as_tensor(values, device=logits.device), torch.as_tensor(is_end, device=logits.device)
    result = np.empty(len(values))
    for first in (False, True):
        (rows,) = np.nonzero(is_first == first)
        if len(rows) == 0:
            continue
        of = torch.as_tensor(rows, device=logits.device)
        prediction = prediction_of_columns(observation, logits[of], size, end, has_end=has_end, is_first=first)
        log_prob = prediction.log_prob(x[of]).double()
        if prediction.log_end is not None:
            log_prob = torch.where(ends[of], prediction.log_end.double(), log_prob)
        result[rows] = log_prob.cpu().numpy()
    return result
