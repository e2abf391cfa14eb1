"""A chain of second order, ``p(z_t | z_t-2, z_t-1)``, as a newcomer adds one: it has every ability of an HMM."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import poisson
from torch import Tensor

import seqmodels as sm
from seqmodels.common.parameters import made_with
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.hmm.chains.expanded import ExpandedChain
from seqmodels.hmm.emissions import Emission
from seqmodels.hmm.from_parameters import emission_table
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.hmm.learning.chain_arguments import ChainTraining
from seqmodels.hmm.learning.em import Expectations
from seqmodels.hmm.learning.first_state import Start
from seqmodels.hmm.learning.given_inputs import InputOptions
from seqmodels.hmm.learning.options import ChainArguments
from seqmodels.hmm.parameters import Parameters
from seqmodels.model.fitting import apply_setting

# -- the chain ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SecondOrderChain(ExpandedChain):
    """Row ``i K + j`` of the transitions is ``p(z_t | z_t-2 = i, z_t-1 = j)``; before the first step is its own state.

    Its places are the pairs of the last two states.
    """

    @property
    def state_of_place(self) -> Tensor:
        return torch.arange(self.n_states).repeat(self.n_states)

    @property
    def n_rows(self) -> int:
        return self.n_states**2

    def n_parameters(self, emission: Emission) -> int:
        k = self.n_states
        return k - 1 + k * k * (k - 1) + emission.n_parameters(k)

    def places(self, parameters: Parameters) -> Parameters:
        k = self.n_states
        initial = torch.diag(parameters.initial).flatten()
        to = torch.eye(k, dtype=torch.float64).repeat(k, 1)[:, :, None] * parameters.transition[:, None, :]
        return Parameters(initial, to.reshape(k * k, k * k), None, parameters.table)

    def places_of_path(self, path: Tensor) -> Tensor:
        return torch.cat([path[:1], path[:-1]]) * self.n_states + path

    def counts(self, of_places: Expectations) -> Expectations:
        k = self.n_states
        xi = of_places.xi.reshape(k * k, k, k).sum(1)  # the next pair begins with the last state of this one
        initial, final = of_places.initial.reshape(k, k).diagonal(), of_places.final.reshape(k, k).sum(0)
        return replace(of_places, initial=initial, xi=xi, final=final)

    def from_first_order(self, guess: Parameters) -> Parameters:
        return replace(guess, transition=guess.transition.repeat(self.n_states, 1))

    def reordered(self, parameters: Parameters, order: Tensor) -> Parameters:
        rows = (order[:, None] * self.n_states + order).flatten()
        moved = parameters.transition[rows][:, order]
        return replace(parameters, initial=parameters.initial[order], transition=moved, table=parameters.table[order])


@dataclass(eq=False, repr=False)
class SecondOrderHMM(HiddenChainModel):
    """``p(x) = Σ_z π(z_1) Π_t a(z_t-2, z_t-1, z_t) Π_t b_{z_t}(x_t)``, fitted by EM."""

    n_states: int = 2
    max_iter: int = 200
    tol: float = 1e-8
    n_init: Any = 2
    max_seconds: float | None = None
    _: KW_ONLY
    training: ChainTraining = field(default_factory=ChainTraining)
    dtype: str = "float64"

    def _chain(self, n_states: int, *, start: Start, length: str, inputs: InputOptions) -> SecondOrderChain:
        return SecondOrderChain(ChainArguments(n_states), start, inputs)

    @classmethod
    def from_parameters(cls, initial: Any, transition: Any, **emission: Any) -> Self:
        others = {"emission": None, "probabilities": None, "mixture": (None, None, None, "diag")}
        of_emission = {**others, "encoding": None, "observation": None, **emission}
        encoding, observation, table = emission_table(len(initial), **of_emission)
        model = made_with(cls, {}, n_states=len(initial), observation=observation, length="given")
        apply_setting(model, Setting.from_fitted(encoding, observation.clone(), "given", conditional=False))
        rows = torch.tensor(transition, dtype=torch.float64).reshape(-1, len(initial))
        model._set_fitted(Parameters(torch.tensor(initial, dtype=torch.float64), rows, None, table), "free")
        return model


# -- every ability against the enumeration of paths --------------------------------------------------------------------

A = np.array([[[0.9, 0.1], [0.3, 0.7]], [[0.6, 0.4], [0.05, 0.95]]])
PI, RATES = np.array([0.4, 0.6]), np.array([[1.0], [6.0]])
X = [np.array([[0.0], [2.0], [7.0], [5.0], [1.0]]), np.array([[6.0], [6.0], [0.0]])]


def log_joint(x: np.ndarray, path: tuple[int, ...]) -> float:
    total = np.log(PI[path[0]])
    for before, last, state in zip((path[0], *path), path, path[1:], strict=False):
        total += np.log(A[before, last, state])
    return float(total + poisson.logpmf(x[:, 0], RATES[list(path), 0]).sum())


def paths(n: int) -> list[tuple[int, ...]]:
    return list(product(range(2), repeat=n))


def test_a_second_order_chain_has_every_ability(tmp_path: Path) -> None:
    model = SecondOrderHMM.from_parameters(PI, A, rates=RATES)
    joint = [{path: log_joint(x, path) for path in paths(len(x))} for x in X]
    assert_allclose(model.log_prob(X), [np.logaddexp.reduce(list(each.values())) for each in joint], rtol=1e-12)
    for i, (x, each) in enumerate(zip(X, joint, strict=True)):
        ranked = sorted(each, key=each.__getitem__, reverse=True)
        weights = np.exp(np.array([each[path] for path in ranked]) - model.log_prob(X)[i])
        states = np.array(ranked)
        posterior = np.stack([(weights[:, None] * (states == k)).sum(0) for k in range(2)], 1)
        assert_allclose(model.posterior(X)[i], posterior, rtol=1e-10)
        assert model.decode(X)[i].tolist() == list(ranked[0])
        best = model.decode(X, k=3)[i]
        assert [path.states.tolist() for path in best] == [list(path) for path in ranked[:3]]
        assert_allclose([path.log_prob for path in best], [each[path] for path in ranked[:3]], rtol=1e-12)
        assert_allclose(model.path_log_prob([x], [np.array(ranked[5])]), each[ranked[5]], rtol=1e-12)
        through = [path for path in ranked if [k for k, _ in _runs(path)] == [0, 1]]
        assert_allclose(
            model.align([x], [[0, 1]])[0].log_prob if through else 0.0, each[through[0]] if through else 0.0
        )
        assert_allclose(model.filter(X)[i][-1], posterior[-1], rtol=1e-10)
        draws = model.sample_states([x], 4000)[0]
        assert_allclose([(draws == k).mean(0) for k in range(2)], posterior.T, atol=0.04)
    stream = model.stream()
    assert_allclose(sum(stream.update(step) for step in X[0]), model.log_prob(X)[0], rtol=1e-12)
    assert_allclose(stream.filtered, model.filter(X)[0][-1], rtol=1e-12)
    ahead = np.einsum("p,pk->k", _pairs_given(joint[0], model.log_prob(X)[0]), A.reshape(4, 2))
    assert_allclose(model.forecast_states(X)[0].states[0], ahead, rtol=1e-10)
    assert_allclose(model.forecast_states(X)[0].mean[0], ahead @ RATES, rtol=1e-10)
    assert_allclose(model.reorder([1, 0]).log_prob(X), model.log_prob(X), rtol=1e-12)
    path = tmp_path / "model.safetensors"
    with pytest.warns(UserWarning, match="SecondOrderHMM, which seqmodels does not know"):
        model.save(path)
    loaded = sm.load(path, classes=[SecondOrderHMM])
    assert_allclose(loaded.log_prob(X), model.log_prob(X), rtol=1e-14)
    drawn = model.sample(6, length=150, random_state=1)
    fitted = SecondOrderHMM(2, observation=sm.Poisson(), n_init=4).fit(drawn)
    assert fitted.log_prob(drawn).sum() >= model.log_prob(drawn).sum()
    errors = fitted.standard_errors(drawn).set_index("name")["standard_error"]
    assert len(errors["transition"]) == 8
    assert fitted.state_summary().shape == (2, 3)


def _runs(path: tuple[int, ...]) -> list[tuple[int, int]]:
    starts = [t for t in range(len(path)) if not t or path[t] != path[t - 1]]
    return [(path[t], t) for t in starts]


def _pairs_given(joint: dict[tuple[int, ...], float], log_prob: float) -> np.ndarray:
    pairs = np.zeros(4)
    for path, value in joint.items():
        pairs[2 * path[-2] + path[-1]] += np.exp(value - log_prob)
    return pairs
