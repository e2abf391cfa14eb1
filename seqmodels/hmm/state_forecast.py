"""Forecasts of what follows a sequence: ``p(z_T+h | x_1 .. x_T) = p(z_T | x_1 .. x_T) A^h``, and observations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from seqmodels.common.attributes import AbsentAttributeError
from seqmodels.encodings import Encoding
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.hmm.missing_past import PastFilter
from seqmodels.hmm.parameters import Parameters
from seqmodels.observations import AutoregressiveGaussian, Observation


@dataclass(frozen=True)
class StepsAhead:
    """A Markov chain of the hidden variables of the future steps of one sequence, which has S values called *places*.

    A place is a state of an HMM, for an HSMM a state with the number of steps that it still lasts, and for a Markov
    chain of higher order a tuple of states.

    Attributes:
        first: probability of each place one step ahead, ``(S,)``.
        state: number of the state that each place belongs to, ``(S,)``.
        advance: function of an array ``(S,)`` or ``(S, n)`` and of h + 1, which multiplies the array by the transposed
            transition matrix from step h to step h + 1 ahead.
    """

    first: Tensor
    state: Tensor
    advance: Callable[[Tensor, int], Tensor]


@dataclass(frozen=True)
class StatesAhead:
    """The distribution of the hidden states of the next k steps, given the steps x so far.

    Attributes:
        log_joint: log p(the sequence has h more steps, and the last of them is in place s | x) for h = 1 .. k,
            ``(k, S)``. A place is a state, or a tuple of states for a chain whose densities depend on several.
        steps: the Markov chain of the future steps; None means the chain of the model's transition matrix.
        state: state of each place, ``(S,)``; None means that places are states.
    """

    log_joint: Tensor
    steps: StepsAhead | None = None
    state: Tensor | None = None


def mixed_ahead(each: Sequence[StatesAhead], log_weights: Tensor, transition: Tensor) -> StatesAhead:
    """Return the distribution of the states ahead under a mixture of M chains of K states, with ``M K`` places.

    Args:
        each: the distribution under each chain, whose places are its states.
        log_weights: log-probability of each chain given the steps so far, ``(M,)``.
        transition: transition matrix of chains that have the same one at all steps, ``(K, K)``.
    """
    k = len(transition)
    chains = [
        StepsAhead(ahead.log_joint[0].exp(), torch.arange(k), lambda values, h: transition.T @ values)
        if ahead.steps is None
        else ahead.steps
        for ahead in each
    ]

    def advance(values: Tensor, h: int) -> Tensor:
        return torch.cat([chain.advance(part, h) for chain, part in zip(chains, values.split(k), strict=True)])

    log_joint = torch.cat([w + ahead.log_joint for w, ahead in zip(log_weights, each, strict=True)], 1)
    first = torch.cat([w.exp() * chain.first for w, chain in zip(log_weights, chains, strict=True)])
    steps = StepsAhead(first, torch.arange(len(first)), advance)
    return StatesAhead(log_joint, steps, torch.arange(k).repeat(len(each)))


@dataclass(frozen=True)
class StateForecast:
    """A forecast of the next k steps of one sequence: its hidden states and its observations.

    What it says of step h ahead is conditional on the sequence having h more steps. ``distribution(h)`` and ``mean``
    are those of the observations. A model's ``forecast_states`` returns it.

    Attributes:
        states: probability of each state at each step, ``(k, K)``; zeros where the sequence cannot last so long.
        survival: probability that the sequence has at least h more steps, ``(k,)``; ones where ends are no events.
    """

    states: np.ndarray
    survival: np.ndarray
    _log_places: Tensor
    _parameters: Parameters
    _observation: Observation
    _values: np.ndarray
    _shift: Tensor
    _scale: Tensor
    _uncertain_past: Tensor | None = None
    _chain: StepsAhead | None = None
    _tables: Sequence[Tensor] | None = None  # output parameters at each step, if they depend on inputs
    _changes: str | None = None  # encoding of a series, if the observation describes its changes

    def encoded_by(self, encoding: Encoding) -> Self:
        """Return the forecast with the encoding of the model's data taken into account.

        If ``encoding`` reads a series as changes from step to step, the forecast refuses to return observations,
        because changes have no raw units.
        """
        return replace(self, _changes=repr(encoding)) if isinstance(encoding, SeriesEncoding) else self

    @classmethod
    def of(
        cls,
        parameters: Parameters,
        observation: Observation,
        ahead: StatesAhead,
        values: np.ndarray,
        shift: Tensor,
        scale: Tensor,
        past: Tensor | None = None,
        tables: Sequence[Tensor] | None = None,
    ) -> Self:
        """Return the forecast of what follows the encoded steps ``values``, given the states of the steps ahead.

        Args:
            parameters: parameters of the chain; its table has the P output parameters of each of the S places of
                ``ahead`` (a place is a state, or a tuple of states), ``(S, P)``.
            observation: family of the distributions of the observations.
            ahead: distribution of the states of the k steps ahead.
            values: the encoded steps so far, ``(T, D)`` or ``(T,)``.
            shift: raw values of D features are ``shift + scale * encoded``, ``(D,)``.
            scale: see ``shift``, ``(D,)``.
            past: means and covariances of the last p steps, ``(p + p²D, D)``, if values of them are missing; else None.
            tables: the tables ``(S, P)`` of each of the k steps, if they depend on inputs; else None.
        """
        log_continue = torch.logsumexp(ahead.log_joint, 1, keepdim=True)
        log_places = ahead.log_joint - torch.where(log_continue == -torch.inf, 0.0, log_continue)
        states = log_places.exp()
        if ahead.state is not None:
            shape = len(states), len(parameters.initial)
            states = states.new_zeros(shape).index_add_(1, ahead.state, states)
        survival = np.ones(len(states)) if parameters.final is None else log_continue[:, 0].exp().numpy()
        of_places = (log_places, parameters, observation, values, shift, scale, past, ahead.steps)
        return cls(states.numpy(), survival, *of_places, tables)

    def distribution(self, step: int = 1) -> Any:
        """Return the Pyro distribution of the raw value at one step ahead, given that the sequence lasts so long.

        Args:
            step: number of steps ahead, from 1 to k.

        Raises:
            ValueError: ``step`` is out of range; the sequence cannot last so long; the observation is autoregressive
                and ``step`` is more than 1, for which there is a ``mean`` but no closed form; or the model encodes
                changes of a series, which ``model.forecast`` adds up.
        """
        self._refuse_changes()
        if not 1 <= step <= len(self.states):
            raise ValueError(f"step is {step}, but the forecast goes from 1 to {len(self.states)} steps ahead")
        log_weights = self._log_places[step - 1]
        if torch.isneginf(log_weights).all():
            raise ValueError(f"the sequence cannot last {step} more steps, so nothing can be said of the last")
        past = self._past()
        if past is not None and step > 1:
            raise ValueError(
                "an autoregressive observation has no distribution in closed form more than one step ahead; use mean, "
                "or draw with sample(prefix=...)"
            )
        table = self._parameters.table if self._tables is None else self._tables[step - 1]
        return self._observation.distribution(
            table, log_weights=log_weights, past=past, shift=self._shift, scale=self._scale
        )

    @property
    def mean(self) -> np.ndarray:
        """Expected vectors of the next k steps in raw units, ``(k, D)`` for D features.

        ``AbsentAttributeError`` is raised for symbols, and ``ValueError`` for a model that encodes changes of a series.
        """
        self._refuse_changes()
        if self._observation.emits == "symbols":
            raise AbsentAttributeError("symbols have no mean; use distribution(step).probs")
        if isinstance(self._observation, AutoregressiveGaussian):
            chain = self._chain or _chain_of(self._parameters, self.states)
            tables = self._tables or [self._parameters.table] * len(self.states)
            encoded = _autoregressive_means(tables, self._observation, self._history(), chain)
            return (self._shift + self._scale * encoded).numpy()
        return np.stack([self.distribution(h + 1).mean.numpy() for h in range(len(self.states))])

    def _refuse_changes(self) -> None:
        if self._changes is not None:
            raise ValueError(
                f"this forecast has no raw units: {self._changes} encodes changes; call forecast(X, k) of the model"
            )

    def _past(self) -> Tensor | None:
        return self._history().unsqueeze(0) if self._observation.n_past else None

    def _history(self) -> Tensor:
        """Return the last p steps in encoded units, ``(p, D)``, NaN before the first step.

        If values of them are missing, the result holds their means and covariances, ``(p + p²D, D)``.
        """
        if self._uncertain_past is not None:
            return self._uncertain_past
        p = self._observation.n_past
        missing = np.full((max(0, p - len(self._values)), self._values.shape[1]), np.nan)
        return torch.as_tensor(np.concatenate([missing, self._values[len(self._values) - p + len(missing) :]]))


def _chain_of(parameters: Parameters, states: np.ndarray) -> StepsAhead:
    """Return the Markov chain of the steps ahead of an HMM with one transition matrix.

    Args:
        parameters: parameters of the HMM.
        states: probabilities of the K states at each of the k steps ahead, ``(k, K)``.
    """
    k = len(parameters.initial)
    return StepsAhead(torch.as_tensor(states[0]), torch.arange(k), lambda values, h: parameters.transition.T @ values)


def _autoregressive_means(
    tables: Sequence[Tensor], observation: AutoregressiveGaussian, history: Tensor, chain: StepsAhead
) -> Tensor:
    """Return the exact means of the next k steps under a switching autoregression, in encoded units, ``(k, D)``.

    The past enters linearly, so that ``E[past; z_t]``, ``(S, pD)``, is enough to carry from step to step.

    Args:
        tables: for each of the k steps the output parameters of all S places (states, or tuples of states), ``(S, P)``.
        observation: the autoregression.
        history: the last p steps, ``(p, D)``, or their means and covariances, ``(p + p²D, D)``.
        chain: the Markov chain of the steps ahead over places.
    """
    size = history.shape[1]
    weights = chain.first
    known, _ = observation.split_past(history)
    past = weights[:, None] * known  # E[past; z], NaN where there is none yet
    means = []
    for h, table in enumerate(tables):
        matrix, intercept, _, first_mean, _ = (each[chain.state] for each in observation.unpack(table, size))
        share, w = 1 - observation.background, observation.background  # of steps that jump from the last one, or from 0
        if torch.isnan(past).any():
            value = share * weights[:, None] * first_mean
        else:
            value = share * ((matrix @ past.unsqueeze(-1)).squeeze(-1) + weights[:, None] * intercept)
            value = value + w * past[:, -size:]
        means.append(value.sum(0))
        if h + 1 == len(tables):
            break
        past = chain.advance(torch.cat([past[:, size:], value], 1), h + 1)
        weights = chain.advance(weights, h + 1)
        past, weights = past / weights.sum(), weights / weights.sum()
    return torch.stack(means)


def uncertain_pasts(past_filter: PastFilter | None, joined: Sequence[np.ndarray]) -> list[Tensor | None]:
    """Return the means and covariances of the last p steps of each sequence; None where all values are observed.

    They have the shape ``(p + p²D, D)``: p rows of means, then covariances.

    Args:
        past_filter: Kalman filter for missing values of past steps; None if none are missing.
        joined: encoded steps of each sequence, ``(T, D)``.
    """
    pasts: list[Tensor | None] = [None] * len(joined)
    if past_filter is not None:
        for i, beliefs in enumerate(past_filter.beliefs(joined)):
            if beliefs is not None and beliefs.steps[-1] == len(joined[i]):
                pasts[i] = beliefs.past[-1]
    return pasts
