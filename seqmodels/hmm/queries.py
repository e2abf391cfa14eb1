"""What one can ask a fitted HMM: its states, given sequences; what follows them; how it would do with fewer parameters."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from seqmodels.finite import is_beyond_float32, refuse_beyond_float64
from seqmodels.hmm.blocks import Block
from seqmodels.hmm.densities import Densities
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.forecast import Forecast
from seqmodels.hmm.inference import (
    block_beliefs,
    block_draws,
    block_last_log_beliefs,
    block_paths,
    block_posterior,
)
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.reordering import reordered, reordered_observation
from seqmodels.hmm.stationary import stationary
from seqmodels.model import DTYPES, SequenceModel
from seqmodels.preparation import Example


class Queries(SequenceModel, ABC):
    """The questions of the HMM wing. All go over encoded steps, of ``x`` and then ``y`` where there are targets.

    A missing value (NaN) says nothing of its feature; a frame of which all is missing leaves the state to its neighbours.

    >>> from seqmodels import HMM
    >>> chain = {"initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.2, 0.8]]}
    >>> model, x = HMM.from_parameters(**chain, emission=[[0.9, 0.1], [0.2, 0.8]]), [np.array([0, 0, 1])]
    >>> model.filter(x)[0].round(2)
    array([[0.82, 0.18],
           [0.94, 0.06],
           [0.43, 0.57]], dtype=float32)
    >>> model.decode(x)[0]
    array([0, 0, 0])
    >>> model.forecast(x, 2)[0].states.round(2)
    array([[0.5 , 0.5 ],
           [0.55, 0.45]])
    >>> model.stationary_.round(3)
    array([0.667, 0.333])
    """

    @abstractmethod
    def _emission(self) -> Emission:
        """The EM side of the observation."""

    @abstractmethod
    def _parameters(self) -> Parameters:
        """The fitted parameters; raises ``NotFittedError`` if there are none."""

    @abstractmethod
    def _blocks(self, examples: list[Example], n_states: int) -> list[Block]:
        """Examples in blocks, sources before values."""

    # -- states ----------------------------------------------------------------------------------------------

    def decode(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """The most probable path of states of each sequence, ``(T,)`` (Viterbi); of equal paths the one of lowest states.

        Raises:
            ValueError: a sequence that no path can explain, named.
        """
        return self._by_state(X, y, block_paths)

    def posterior(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """``(T, K)`` p(z_t | x_1 .. x_T): each state at each step, given the whole sequence (smoothing).

        Raises:
            ValueError: a sequence of probability zero, named.
        """

        def smoothed(parameters: Parameters, densities: Densities, block: Block) -> list[Tensor]:
            return block.cutting.split(block_posterior(parameters, densities, block).gamma)

        return self._by_state(X, y, smoothed)

    def filter(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """``(T, K)`` p(z_t | x_1 .. x_t): each state at each step, given what came so far; rows of zeros once that is impossible."""
        return self._by_state(X, y, block_beliefs)

    def sample_states(self, X: Any, n: int = 1, *, y: Any = None, random_state: int | None = None) -> list[np.ndarray]:
        """``(n, T)`` paths of states of each sequence, drawn independently from p(z | x): exact, by forward filtering and
        backward sampling.

        Args:
            n: draws of each sequence.
            random_state: seed; None takes the model's.

        Raises:
            ValueError: a sequence of probability zero, named.
        """
        if n < 1:
            raise ValueError(f"n is {n}; pass at least 1")
        seed = self.random_state if random_state is None else random_state
        generator = torch.Generator(self._device()).manual_seed(seed)
        return [path.T for path in self._by_state(X, y, partial(block_draws, n=n, generator=generator))]

    def forecast(self, X: Any, k: int = 1, *, y: Any = None) -> list[Forecast]:
        """What follows each sequence, 1 to ``k`` steps ahead: states, and observations in raw units.

        Raises:
            ValueError: a sequence of probability zero, named.
        """
        if k < 1:
            raise ValueError(f"k is {k}; pass at least 1")
        beliefs, parameters = self._by_state(X, y, block_last_log_beliefs), self._parameters()
        impossible = [i for i, belief in enumerate(beliefs) if np.isneginf(belief).all()]
        if impossible:
            raise ValueError(
                f"sequence {impossible[0]} has probability zero under this HMM; nothing can be said of what follows"
            )
        examples = self._setting().examples(self._checked_data(X, y))
        shift, scale = (torch.as_tensor(v, dtype=torch.float64) for v in self.encoding_.affine())
        return [
            Forecast.of(parameters, self.observation_, torch.from_numpy(belief), _joined(e), k, shift, scale)
            for belief, e in zip(beliefs, examples, strict=True)
        ]

    def _by_state(
        self, X: Any, y: Any, algorithm: Callable[[Parameters, Densities, Block], list[Tensor]]
    ) -> list[np.ndarray]:
        data = self._checked_data(X, y)
        parameters = self._parameters().to(self._device())
        results: list[np.ndarray] = [np.empty(0)] * len(data.X)
        examples = self._setting().examples(data, on_disk=True)
        model = self._in_float64() if _are_beyond_float32(examples) else self
        for block in model._blocks(examples, len(parameters.initial)):
            densities, _ = self._emission().evaluate(
                parameters.table, block.x, block.past, DTYPES[model.dtype], block.scratch
            )
            found = algorithm(parameters, densities, block)
            for j, i in enumerate(block.indices):
                results[i] = found[j].cpu().numpy()
        return results

    def as_pyro(self, length: int, *, source: Any = None) -> Any:
        """p(x) of raw sequences of ``length`` steps as a Pyro distribution (``seqmodels.pyro_distribution``), for Pyro programs."""
        from seqmodels.pyro_distribution import SequenceDistribution  # lazily: Pyro is slow to import

        return SequenceDistribution(self, length, source)

    # -- the chain -------------------------------------------------------------------------------------------

    @property
    def stationary_(self) -> np.ndarray:
        """``(K,)`` share of its steps that a long run from ``initial_`` spends in each state.

        Where ends are events: expected visits of a sequence, as shares. A chain that falls apart has several stationary
        distributions; this is the one that it is led to from ``initial_``.
        """
        p = self._parameters()
        return stationary(p.initial.numpy(), p.transition.numpy(), None if p.final is None else p.final.numpy())

    def reorder(self, order: Sequence[int] | np.ndarray | Literal["mean", "stationary"]) -> Self:
        """A copy whose state i is this model's state ``order[i]``: the same probabilities under other names.

        What was said of single states (a topology, ``tied``, ``frozen``, priors) goes with them, so that ``warm_start`` goes on
        from the copy as it would from this model. What ``partial_fit`` remembers of earlier batches does not.

        Args:
            order: a permutation of the states; ``"mean"``: by the means of vectors, the first feature first;
                ``"stationary"``: those visited most first.
        """
        parameters = self._parameters()
        chosen = self._order(order) if isinstance(order, str) else np.asarray(order)
        if chosen.shape != (len(parameters.initial),) or not np.array_equal(np.sort(chosen), np.arange(len(chosen))):
            raise ValueError(f"order is {order!r}; pass each of the states 0 to {len(parameters.initial) - 1} once")
        other = copy.copy(self).set_params(**reordered(self.get_params(deep=False), chosen))
        other.observation_ = reordered_observation(self.observation_, chosen)
        other.__dict__ |= {"parameters_": parameters.take(torch.as_tensor(chosen.astype(np.int64))), "memory_": None}
        return other

    def _order(self, key: str) -> np.ndarray:
        if key == "stationary":
            return np.argsort(-self.stationary_, kind="stable")
        raw = self._emission().raw_parameters(self._parameters().table, *self.encoding_.affine())
        if key != "mean" or not {"weights_", "means_"} <= raw.keys():
            raise ValueError(f"order is {key!r}; pass a permutation, 'stationary', or 'mean' where states have means")
        means = np.einsum("km,kmd->kd", raw["weights_"], raw["means_"])
        return np.lexsort(means.T[::-1])

    # -- how many states -------------------------------------------------------------------------------------

    def bic(self, X: Any, y: Any = None) -> float:
        """Bayesian information criterion, ``n_parameters_ log n - 2 log p``, n the units scored: frames, bytes or symbols.

        Lower is better. Steps of a sequence are not independent, so n is generous (Schwarz 1978; hmmlearn counts likewise).
        """
        data = self._checked_data(X, y)
        n = float(data.scored.n_units.sum())
        return float(self.n_parameters_ * np.log(n) - 2 * self.log_prob(X, y).sum())

    def aic(self, X: Any, y: Any = None) -> float:
        """Akaike's information criterion, ``2 n_parameters_ - 2 log p``. Lower is better (Akaike 1974)."""
        return float(2 * self.n_parameters_ - 2 * self.log_prob(X, y).sum())


def _are_beyond_float32(examples: Sequence[Example]) -> bool:
    """Whether states are to be asked for in float64; raises ``ValueError``, naming the sequence, for what that cannot hold."""
    far = [
        (i, values)
        for i, example in enumerate(examples)
        for values in (example.source, example.values)
        if is_beyond_float32(values)
    ]
    for i, values in far:
        assert values is not None
        refuse_beyond_float64(values, f"sequence {i}")
    return bool(far)


def _joined(example: Example) -> np.ndarray:
    return example.values if example.source is None else np.concatenate([example.source, example.values])
