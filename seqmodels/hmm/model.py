"""``HMM``: a hidden Markov chain and an observation as a ``SequenceModel``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from seqmodels.encodings import Encoding
from seqmodels.generation import Prediction
from seqmodels.hmm.baum_welch import Schedule, baum_welch
from seqmodels.hmm.blocks import Block, make_blocks
from seqmodels.hmm.cursor import HMMCursor, HMMState
from seqmodels.hmm.emissions import Emission, emission_of
from seqmodels.hmm.forward_backward import forward_of
from seqmodels.hmm.given import given_chain, given_mixture, given_symbols
from seqmodels.hmm.gradient import gradient_ascent
from seqmodels.hmm.inference import block_trellis
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.queries import Queries
from seqmodels.hmm.restarts import best_of, warn_of_floor
from seqmodels.hmm.start import start
from seqmodels.measure import Length
from seqmodels.model import DTYPES, NotFittedError
from seqmodels.observations import Categorical, GaussianMixture, Observation
from seqmodels.observations.gaussian import CovarianceType
from seqmodels.preparation import Example, Setting
from seqmodels.sequences import Kind


@dataclass(eq=False, repr=False)
class HMM(Queries):
    """``p(x) = Σ_z π(z_1) b_{z_1}(x_1) Π_t a(z_{t-1}, z_t) b_{z_t}(x_t)``, fitted by EM (Rabiner 1989).

    Args:
        n_states: K.
        max_iter: most EM steps a start.
        tol: EM stops when a step improves the objective by less, in nats per unit; 0 never stops early.
        n_init: starts; the best objective wins, a start that ends on a floor loses to one that does not.
        max_seconds: a cap on time, over all starts.
        pseudocount: added to every expected count of starts, transitions and ends in the M-step; ``"auto"``: 0.01
            under ``length="stop"``, where few ends are seen, otherwise 0.
        algorithm: ``"em"``; ``"gradient"``: AdamW on the same objective, whose gradient is the E-step; ``max_iter`` is then
            passes over the data, all of which are taken, and ``tol`` has no say.
        lr: peak learning rate of ``algorithm="gradient"``.

    The other arguments are those of ``SequenceModel``. EM needs no held-out data: ``validation="auto"`` holds out nothing, and
    what is passed is scored once, at the end. With targets EM fits p(x, y), so the figures of ``history_`` are of x and y
    together. States that end on the floor of a variance are warned of. Parameters are kept in float64.

    Attributes, raw units: ``initial_ (K,)``, ``transition_ (K, K)``, ``final_ (K,)`` (with ``length="stop"``:
    ``transition_.sum(1) + final_ == 1``) and those of the observation: ``weights_ (K, M)``, ``means_ (K, M, D)``,
    ``covariances_ (K, M, D)``, ``(K, M, D, D)`` (full) or ``(D, D)`` (tied); ``emission_ (K, V)``; ``coefficients_ (K, D, pD)``, ``intercepts_``, ``covariances_``.

    >>> x = [np.array([0, 1, 0, 1, 0, 1]), np.array([1, 0, 1, 0])]
    >>> model = HMM(2, length="given").fit(x)
    >>> round(model.score(x), 3)
    -0.139
    """

    n_states: int = 8
    max_iter: int = 100
    tol: float = 1e-4
    n_init: int = 1
    max_seconds: float | None = None
    pseudocount: float | str = "auto"
    algorithm: Literal["em", "gradient"] = "em"
    lr: float = 0.05

    _holds_out: ClassVar[bool] = False
    _sums_out_missing: ClassVar[bool] = True

    # -- SequenceModel -------------------------------------------------------------------------------------

    @property
    def context_(self) -> int | None:
        return None

    @property
    def n_parameters_(self) -> int:
        k, stops = len(self.parameters_.initial), self.parameters_.final is not None
        return k - 1 + k * (k - 1 + stops) + self._emission().n_parameters(k)

    def _default_observation(self, kind: Kind) -> Observation:
        if kind == "vectors":
            return GaussianMixture(n_components=4, covariance_type="diag")
        return Categorical(pseudocount=0.01 if kind == "text" else 0.0)

    def _check_hyperparameters(self) -> None:
        for name in ("n_states", "n_init"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; pass at least 1")
        if self.max_iter < 0 or self.tol < 0:
            raise ValueError(f"max_iter={self.max_iter} and tol={self.tol} must not be negative")
        if self.pseudocount != "auto" and (isinstance(self.pseudocount, str) or not self.pseudocount >= 0):
            raise ValueError(f"pseudocount is {self.pseudocount!r}; pass a number, 0 or more, or 'auto'")
        if self.algorithm not in ("em", "gradient"):
            raise ValueError(f"algorithm is {self.algorithm!r}; pass 'em' or 'gradient'")
        if not self.lr > 0:
            raise ValueError(f"lr is {self.lr}; pass a number above zero")
        if self._continues():
            self._check_that_it_can_continue()

    def _continues(self) -> bool:
        return self.warm_start and "parameters_" in self.__dict__

    def _check_that_it_can_continue(self) -> None:
        (k, width), stops = self.parameters_.table.shape, self.parameters_.final is not None
        fits = {"n_states": self.n_states == k, "length": self.length in ("auto", "stop" if stops else "given")}
        if isinstance(self.observation, Observation):
            same = type(self.observation) is type(self.observation_)
            fits["observation"] = same and self.observation.n_parameters(self.encoding_.size) == width
        for name, fit in fits.items():
            if not fit:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} differs from what was fitted, so warm_start cannot continue; "
                    "set it back, or warm_start=False"
                )

    def _emission(self) -> Emission:
        return emission_of(self.observation_, self.encoding_.size)

    def _pseudocount(self) -> float:
        if isinstance(self.pseudocount, str):
            return 0.01 if self.length_ == "stop" else 0.0
        return self.pseudocount

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        emission, blocks = self._emission(), self._blocks(train, self.n_states)
        n_units, log_det = self._raw_size(train)
        run = partial(
            partial(gradient_ascent, lr=self.lr) if self.algorithm == "gradient" else baum_welch,
            emission=emission,
            blocks=blocks,
            pseudocount=self._pseudocount(),
            schedule=Schedule(self.max_iter, self.tol, self.max_seconds and self.max_seconds / self.n_init),
            dtype=DTYPES[self.dtype],
            n_units=n_units,
            log_det=log_det,
        )
        best = best_of(self._starts(emission, blocks), run, max_iter=self.max_iter, verbose=self.verbose)
        self.parameters_: Parameters = best.parameters.to(torch.device("cpu"))
        self.converged_ = best.converged
        scored = [np.nan] * (len(best.history) - 1) + [self._validation(validation)]
        self.history_ = best.history.assign(validation=scored)
        warn_of_floor(best, self.observation_)

    def _starts(self, emission: Emission, blocks: list[Block]) -> Iterator[Parameters]:
        if self._continues():
            yield self.parameters_.to(self._device())
            return
        for i in range(self.n_init):
            generator = torch.Generator().manual_seed(self.random_state + i)
            yield start(emission, blocks, self.n_states, stops=self.length_ == "stop", generator=generator)

    def _raw_size(self, examples: list[Example]) -> tuple[float, float]:
        """Units and log-determinant of all that EM fits, sources too, by weight."""
        units, log_det = 0.0, 0.0
        for e in examples:
            units, log_det = units + e.weight * e.n_units, log_det + e.weight * e.log_det
            if e.source is not None:
                raw = self.encoding_.decode(e.source)
                each = np.broadcast_to(self.encoding_.log_det(raw), len(e.source))
                units += e.weight * len(raw.encode() if isinstance(raw, str) else raw)
                log_det += e.weight * float(each.sum())
        return units, log_det

    def _validation(self, examples: list[Example]) -> float:
        if not examples:
            return np.nan
        total = sum(float(steps.sum()) for steps in self._steps(examples)) + sum(e.log_det for e in examples)
        return total / sum(e.n_units for e in examples)

    # -- many sequences at once ----------------------------------------------------------------------------

    def _blocks(self, examples: list[Example], n_states: int) -> list[Block]:
        joined = [e.values if e.source is None else np.concatenate([e.source, e.values]) for e in examples]
        weights = [e.weight for e in examples]
        n_densities, dtype = self._emission().n_densities(n_states), DTYPES[self.dtype]
        return make_blocks(joined, weights, self.observation_.n_past, n_states, n_densities, self._device(), dtype)

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        parameters = self.parameters_.to(self._device())
        results: list[np.ndarray] = [np.empty(0)] * len(examples)
        for block in self._blocks(examples, len(parameters.initial)):
            densities, _ = self._emission().evaluate(
                parameters.table, block.x, block.past, DTYPES[self.dtype], block.scratch
            )
            found = forward_of(block_trellis(parameters, densities, block))
            steps, beliefs = block.cutting.split(found.steps), block.cutting.split(found.alpha)
            ends = None if parameters.final is None else found.ends
            for j, i in enumerate(block.indices):
                end = None if ends is None else float(ends[j])
                results[i] = _scored_steps(steps[j], beliefs[j], end, parameters.final, examples[i].source)
        return results

    # -- one step at a time --------------------------------------------------------------------------------

    def _cursor(self) -> HMMCursor:
        parameters = self._parameters().to(self._device())
        return HMMCursor(parameters, self.observation_, self.encoding_.size, DTYPES[self.dtype])

    def start(self, source: np.ndarray | None = None, n: int = 1) -> HMMState:
        return self._cursor().start(source, n)

    def advance(self, state: HMMState, x: Tensor) -> HMMState:
        return self._cursor().advance(state, x)

    def distribution(self, state: HMMState) -> Prediction:
        return self._cursor().distribution(state)

    # -- parameters ----------------------------------------------------------------------------------------

    def _parameters(self) -> Parameters:
        self._setting()
        return self.parameters_

    @property
    def initial_(self) -> np.ndarray:
        """``(K,)`` probability of each state at the first step."""
        return self._parameters().initial.numpy()

    @property
    def transition_(self) -> np.ndarray:
        """``(K, K)`` probability of state j after state i."""
        return self._parameters().transition.numpy()

    @property
    def final_(self) -> np.ndarray:
        """``(K,)`` probability that the sequence ends after a step in each state (zeros where lengths are given)."""
        final = self._parameters().final
        return np.zeros(len(self.initial_)) if final is None else final.numpy()

    def __getattr__(self, name: str) -> Any:
        """The observation's parameters: ``weights_``, ``means_``, ``covariances_``, ``emission_``, ..."""
        if name.endswith("_") and not name.startswith("_"):
            if "parameters_" not in self.__dict__:
                raise NotFittedError(f"this {type(self).__name__} is not fitted, so it has no {name}; call fit first")
            raw = self._emission().raw_parameters(self.parameters_.table, *self.encoding_.affine())
            if name in raw:
                return raw[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @classmethod
    def from_parameters(
        cls,
        initial: Any,
        transition: Any,
        final: Any = None,
        *,
        weights: Any = None,
        means: Any = None,
        covariances: Any = None,
        covariance_type: CovarianceType = "diag",
        emission: Any = None,
        encoding: Encoding | None = None,
        observation: Observation | None = None,
        **options: Any,
    ) -> Self:
        """A fitted HMM from its parameters, in raw units.

        Args:
            initial: ``(K,)``. transition: ``(K, K)``. final: ``(K,)`` end probabilities; rows of ``transition`` plus ``final`` sum to one.
            weights, means, covariances: ``(K, M)``, ``(K, M, D)``, and ``(K, M, D)`` (diag), ``(K, M, D, D)`` (full), ``(D, D)`` (tied), ``(K, M)``
                or ``(K, M, D)`` (spherical); without ``weights``, M = 1 and the M axis is left out.
            emission: ``(K, V)`` probabilities of symbols, instead of the three above.
            encoding: a fitted one: how symbols are read (``Bytes()`` for text; by default integers as they are), or the units that
                vectors are computed in (by default the model's own mean and deviation).
            observation: for its M-step (``pseudocount``, ``min_covariance``), if ``fit`` is to go on with ``warm_start=True``.
            options: other arguments of ``HMM``.

        Raises:
            ValueError: rows that do not sum to one, negative probabilities, shapes that do not fit, a variance below the floor.
        """
        k = len(initial)
        if emission is not None:
            reader, emits, table = given_symbols(k, emission, encoding, observation)
        else:
            reader, emits, table = given_mixture(k, weights, means, covariances, covariance_type, encoding, observation)
        parameters = given_chain(initial, transition, final, table)
        length: Length = "given" if final is None else "stop"
        model = cls(k, observation=emits, length=length, **options)
        model._set(Setting.of(reader, emits.clone(), length, conditional=False))
        model.parameters_ = parameters
        model.history_, model.converged_, model.fit_seconds_ = pd.DataFrame(), True, 0.0
        return model

    def _state(self) -> dict[str, Any]:
        p = self.parameters_
        final = {} if p.final is None else {"final": p.final.numpy()}
        return {"initial": p.initial.numpy(), "transition": p.transition.numpy(), "table": p.table.numpy(), **final}

    def _restore(self, state: dict[str, Any]) -> None:
        t = {name: torch.from_numpy(array.copy()) for name, array in state.items()}
        self.parameters_ = Parameters(t["initial"], t["transition"], t.get("final"), t["table"])


def _scored_steps(
    steps: Tensor, beliefs: Tensor, end: float | None, final: Tensor | None, source: np.ndarray | None
) -> np.ndarray:
    """The steps that are scored, and the end. After a source the sequence cannot end at once: its first step is renormalised."""
    first = 0 if source is None else len(source)
    scored = steps[first:].cpu().numpy().copy()
    if final is not None and first and scored[0] > -np.inf:
        scored[0] -= float(torch.log1p(-(beliefs[first - 1].double() @ final)))
    return scored if end is None else np.append(scored, end)
