"""``HMM``: a hidden Markov chain and an observation as a ``SequenceModel``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from seqmodels.encodings import Encoding, Standardize, Symbols
from seqmodels.generation import Prediction
from seqmodels.hmm.baum_welch import Parameters, Schedule, baum_welch
from seqmodels.hmm.blocks import Block, make_blocks
from seqmodels.hmm.emissions import Emission, emission_of
from seqmodels.hmm.forward_backward import Forward, filtered, posterior
from seqmodels.hmm.start import start
from seqmodels.hmm.viterbi import viterbi
from seqmodels.measure import Length
from seqmodels.model import DTYPES, SequenceModel
from seqmodels.observations import Categorical, GaussianMixture, Observation
from seqmodels.observations.gaussian import CovarianceType, shape_of_covariance
from seqmodels.preparation import Example, Setting
from seqmodels.sequences import Kind


@dataclass(frozen=True)
class HMMState:
    """``belief (n, K)``: p(state of the last step | all steps so far), None before the first; ``past`` the last p steps."""

    belief: Tensor | None
    past: Tensor
    n_scored: int


@dataclass(eq=False, repr=False)
class HMM(SequenceModel):
    """``p(x) = Σ_z π(z_1) b_{z_1}(x_1) Π_t a(z_{t-1}, z_t) b_{z_t}(x_t)``, fitted by EM (Rabiner 1989).

    Args:
        n_states: K.
        max_iter: most EM steps a start.
        tol: EM stops when a step improves the objective by less, in nats per unit; 0 never stops early.
        n_init: starts; the best objective wins, a start that ends on a floor loses to one that does not.
        max_seconds: a cap on time, over all starts.
        pseudocount: added to every expected count of starts, transitions and ends in the M-step; ``"auto"``: 0.01
            under ``length="stop"``, where few ends are seen, otherwise 0.

    The other arguments are those of ``SequenceModel``. EM needs no held-out data: ``validation="auto"`` holds out nothing.
    Parameters are kept in float64. Attributes, raw units: ``initial_ (K,)``, ``transition_ (K, K)``, ``final_ (K,)`` (with
    ``length="stop"``: ``transition_.sum(1) + final_ == 1``) and those of the observation: ``weights_ (K, M)``, ``means_ (K, M, D)``,
    ``covariances_ (K, M, D)`` or ``(K, M, D, D)``; ``emission_ (K, V)``; ``coefficients_ (K, D, pD)``, ``intercepts_``, ``covariances_``.

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

    def _emission(self) -> Emission:
        return emission_of(self.observation_, self.encoding_.size)

    def _pseudocount(self) -> float:
        if isinstance(self.pseudocount, str):
            return 0.01 if self.length_ == "stop" else 0.0
        return self.pseudocount

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        emission = self._emission()
        blocks = self._blocks(train)
        warm = self.warm_start and hasattr(self, "parameters_")
        best: tuple[tuple[bool, float], Parameters, pd.DataFrame, bool] | None = None
        began_with = self.parameters_.to(self._device()) if warm else None
        seconds = None if self.max_seconds is None else self.max_seconds / self.n_init
        for i in range(1 if warm else self.n_init):
            generator = torch.Generator().manual_seed(self.random_state + i)
            first = began_with or start(
                emission, blocks, self.n_states, stops=self.length_ == "stop", generator=generator
            )
            with tqdm(total=self.max_iter, disable=not self.verbose, desc=f"EM {i + 1}/{self.n_init}") as bar:
                parameters, history, converged = baum_welch(
                    first,
                    emission,
                    blocks,
                    pseudocount=self._pseudocount(),
                    schedule=Schedule(self.max_iter, self.tol, seconds),
                    dtype=DTYPES[self.dtype],
                    n_units=sum(e.weight * e.n_units for e in train),
                    log_det=sum(e.weight * e.log_det for e in train),
                    observe=lambda row, bar=bar: _show(bar, row),
                )
            rank = (history["floor_hits"].iloc[-1] == 0, history["objective"].iloc[-1])
            if best is None or rank > best[0]:
                best = (rank, parameters, history, converged)
        assert best is not None
        _, parameters, history, self.converged_ = best
        self.parameters_ = parameters.to(torch.device("cpu"))
        self.history_ = history.assign(validation=self._validation(validation))

    def _validation(self, examples: list[Example]) -> float:
        if not examples:
            return np.nan
        total = sum(float(steps.sum()) for steps in self._steps(examples)) + sum(e.log_det for e in examples)
        return total / sum(e.n_units for e in examples)

    # -- many sequences at once ----------------------------------------------------------------------------

    def _blocks(self, examples: list[Example]) -> list[Block]:
        joined = [e.values if e.source is None else np.concatenate([e.source, e.values]) for e in examples]
        weights = [e.weight for e in examples]
        return make_blocks(joined, weights, self.observation_.n_past, self._device(), DTYPES[self.dtype])

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        parameters = self.parameters_.to(self._device())
        results: list[np.ndarray] = [np.empty(0)] * len(examples)
        for block in self._blocks(examples):
            found = self._run(parameters, block)
            steps, beliefs = block.packing.split(found.steps), block.packing.split(found.alpha)
            for j, i in enumerate(block.indices):
                end = None if found.ends is None else float(found.ends[j])
                results[i] = _scored_steps(steps[j], beliefs[j], end, parameters.final, examples[i].source)
        return results

    def _run(self, parameters: Parameters, block: Block) -> Forward:
        log_b = self._emission().log_prob(parameters.table, block.x, block.past, DTYPES[self.dtype])
        return filtered(parameters.initial, parameters.transition, log_b, block.packing, parameters.final)

    def decode(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """The most probable path of states of each sequence (Viterbi), over encoded steps; of ``x`` and then ``y``."""
        return self._by_state(X, y, lambda p, log_b, b: viterbi(p.initial, p.transition, log_b, b.packing, p.final)[0])

    def posterior(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """``(T, K)`` probability of each state at each step, given the whole sequence (smoothing)."""
        return self._by_state(
            X, y, lambda p, log_b, b: posterior(p.initial, p.transition, log_b, b.packing, p.final).gamma
        )

    def _by_state(self, X: Any, y: Any, algorithm: Any) -> list[np.ndarray]:
        data = self._scorable(X, y)
        parameters = self._parameters().to(self._device())
        results: list[np.ndarray] = [np.empty(0)] * len(data.X)
        for block in self._blocks(self._setting().examples(data)):
            log_b = self._emission().log_prob(parameters.table, block.x, block.past, DTYPES[self.dtype])
            found = block.packing.split(algorithm(parameters, log_b, block))
            for j, i in enumerate(block.indices):
                results[i] = found[j].cpu().numpy()
        return results

    # -- one step at a time --------------------------------------------------------------------------------

    def start(self, source: np.ndarray | None = None, n: int = 1) -> HMMState:
        size = self.encoding_.size if self.encoding_.reads == "vectors" else 1
        past = torch.full(
            (n, self.observation_.n_past, size), torch.nan, dtype=DTYPES[self.dtype], device=self._device()
        )
        state = HMMState(None, past, 0)
        for step in source if source is not None else []:
            state = self.advance(state, torch.as_tensor(step).expand(n, *step.shape))
        return HMMState(state.belief, state.past, 0)

    def advance(self, state: HMMState, x: Tensor) -> HMMState:
        prediction = self.distribution(state)
        x = x.to(self._device())
        if self.observation_.emits == "vectors":
            x = x.to(DTYPES[self.dtype])
        past = None if prediction.past is None else prediction.past.unsqueeze(1)
        each = self.observation_.log_prob(prediction.parameters, x.unsqueeze(1), past).double()  # (n, K)
        belief = torch.softmax(prediction.log_weights + each, dim=-1)
        kept = state.past
        if self.observation_.n_past:
            kept = torch.cat([kept[:, 1:], x.unsqueeze(1)], dim=1)
        return HMMState(belief, kept, state.n_scored + 1)

    def distribution(self, state: HMMState) -> Prediction:
        parameters = self._parameters().to(self._device())
        n = len(state.past)
        log_end = None
        if state.belief is None:
            weights = parameters.initial.expand(n, -1)
        else:
            weights = state.belief @ parameters.transition
        if parameters.final is not None:
            never = torch.full((n,), -torch.inf, dtype=torch.float64, device=weights.device)
            log_end = (state.belief @ parameters.final).log() if state.belief is not None and state.n_scored else never
        log_weights = (weights / weights.sum(-1, keepdim=True)).log()
        table = parameters.table.to(DTYPES[self.dtype]).expand(n, -1, -1)
        past = state.past if self.observation_.n_past else None
        return Prediction(self.observation_, table, log_weights, past, log_end)

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
        if name.endswith("_") and not name.startswith("_") and "parameters_" in self.__dict__ and name != "parameters_":
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
        **options: Any,
    ) -> Self:
        """A fitted HMM from its parameters, in raw units.

        Args:
            initial: ``(K,)``. transition: ``(K, K)``. final: ``(K,)`` end probabilities; rows of ``transition`` plus ``final`` sum to one.
            weights, means, covariances: ``(K, M)``, ``(K, M, D)``, ``(K, M, D)`` or ``(K, M, D, D)``; without ``weights``, M = 1 and
                the M axis is left out.
            emission: ``(K, V)`` probabilities of symbols, instead of the three above.
            encoding: how symbols are read (``Bytes()`` for text); integers as they are by default.
            options: arguments of ``HMM``.

        Raises:
            ValueError: rows that do not sum to one, negative probabilities, shapes that do not fit.
        """
        pi, a = np.asarray(initial, dtype=np.float64), np.asarray(transition, dtype=np.float64)
        f = None if final is None else np.asarray(final, dtype=np.float64)
        _check_chain(pi, a, f)
        if emission is not None:
            b = np.asarray(emission, dtype=np.float64)
            _check_rows("emission", b, (len(pi), b.shape[-1]))
            observation: Observation = Categorical()
            reader = Symbols(b.shape[1]).restore({"size": b.shape[1]}) if encoding is None else encoding
            with np.errstate(divide="ignore"):
                table = torch.as_tensor(np.log(b))
        else:
            observation, table = _mixture_table(len(pi), weights, means, covariances, covariance_type)
            reader = Standardize.identity(np.shape(means)[-1])
        model = cls(len(pi), **options)
        length: Length = "given" if f is None else "stop"
        model._set(Setting.of(reader, observation, length, conditional=False))
        model.parameters_ = Parameters(
            torch.as_tensor(pi), torch.as_tensor(a), None if f is None else torch.as_tensor(f), table
        )
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
    if final is not None and first:
        scored[0] -= float(torch.log1p(-(beliefs[first - 1].double() @ final)))
    return scored if end is None else np.append(scored, end)


def _show(bar: Any, row: dict[str, float]) -> None:
    bar.set_postfix_str(f"{row['log_prob']:.4f} nats per unit")
    bar.update(int(row["step"]) - bar.n)


def _check_rows(name: str, rows: np.ndarray, shape: tuple[int, ...]) -> None:
    if rows.shape != shape:
        raise ValueError(f"{name} has shape {rows.shape}; pass {shape}")
    sums = rows.sum(-1)
    if (rows < 0).any() or not np.allclose(sums, 1, atol=1e-6):
        raise ValueError(
            f"{name} must hold probabilities that sum to one along the last axis; the sums are {np.round(sums, 6)}"
        )


def _check_chain(initial: np.ndarray, transition: np.ndarray, final: np.ndarray | None) -> None:
    k = len(initial)
    _check_rows("initial", initial, (k,))
    if transition.shape != (k, k) or (final is not None and final.shape != (k,)):
        raise ValueError(
            f"initial has {k} states but transition has shape {transition.shape}; pass ({k}, {k}) and final ({k},)"
        )
    rows = transition if final is None else np.concatenate([transition, final[:, None]], axis=1)
    _check_rows("transition (with final)" if final is not None else "transition", rows, rows.shape)


def _mixture_table(
    k: int, weights: Any, means: Any, covariances: Any, covariance_type: CovarianceType
) -> tuple[GaussianMixture, Tensor]:
    if means is None or covariances is None:
        raise ValueError("pass means and covariances (and weights), or emission")
    mu, sigma = (torch.as_tensor(np.asarray(v, dtype=np.float64)) for v in (means, covariances))
    if weights is None:
        w, mu, sigma = torch.ones(k, 1, dtype=torch.float64), mu.unsqueeze(1), sigma.unsqueeze(1)
    else:
        w = torch.as_tensor(np.asarray(weights, dtype=np.float64))
        _check_rows("weights", w.numpy(), (k, w.shape[-1]))
    expected = (k, w.shape[1], mu.shape[-1]) + ((mu.shape[-1],) if covariance_type == "full" else ())
    if mu.shape != expected[:3] or sigma.shape != expected:
        raise ValueError(
            f"means have shape {tuple(mu.shape)} and covariances {tuple(sigma.shape)}; pass {expected[:3]} and {expected}"
        )
    smallest = float(torch.linalg.eigvalsh(sigma).min() if covariance_type == "full" else sigma.min())
    if smallest <= 0:
        raise ValueError(f"the smallest variance is {smallest}; covariances must be positive definite")
    observation = GaussianMixture(w.shape[1], covariance_type, min_covariance=min(1e-4, 0.5 * smallest))
    shapes = shape_of_covariance(sigma) if covariance_type == "full" else sigma.log()
    return observation, observation.pack(w.log(), mu, shapes)
