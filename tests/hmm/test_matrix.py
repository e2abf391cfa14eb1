"""What every hidden chain can do with every density: each cell is yes, or a refusal that is listed here.

``python -m tests.hmm.test_matrix`` prints the table.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.hmm import HSMM, ContinuousTimeHMM, MarkovSwitchingAR
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.observations import Gamma, Observation, VonMises

RNG = np.random.default_rng(0)
N, T = 4, 16
LEVELS = np.tile(np.repeat([0.0, 4.0], 4), 2)
REALS = [LEVELS[:, None] + RNG.normal(size=(T, 1)) for _ in range(N)]
COUNTS = [RNG.poisson(1 + 2 * LEVELS[:, None]).astype(float) for _ in range(N)]
POSITIVE = [RNG.gamma(2.0, 1 + LEVELS[:, None]) for _ in range(N)]
ANGLES = [RNG.vonmises(0.5 * LEVELS[:, None], 3.0) for _ in range(N)]
SYMBOLS = [RNG.integers(0, 3, T) for _ in range(N)]
INPUTS = [RNG.normal(size=T) for _ in range(N)]
TIMES = [np.cumsum(RNG.exponential(1.0, T)) for _ in range(N)]

DENSITIES: dict[str, tuple[Observation, list[np.ndarray]]] = {
    "GaussianMixture": (sm.GaussianMixture(1), REALS),
    "Poisson": (sm.Poisson(), COUNTS),
    "Gamma": (Gamma(), POSITIVE),
    "VonMises": (VonMises(), ANGLES),
    "Categorical": (sm.Categorical(), SYMBOLS),
    "Columns": (
        sm.Columns([(sm.GaussianMixture(1), 1), (sm.Poisson(), 1)]),
        [np.hstack(pair) for pair in zip(REALS, COUNTS, strict=True)],
    ),
}
MODELS: dict[str, type[HiddenChainModel]] = {
    "HMM": sm.HMM,
    "HSMM": HSMM,
    "ContinuousTimeHMM": ContinuousTimeHMM,
    "MarkovSwitchingAR": MarkovSwitchingAR,
}
ROWS = [(model, density) for model in MODELS for density in DENSITIES if model != "MarkovSwitchingAR"]
ROWS += [("MarkovSwitchingAR", "GaussianMixture")]
QUICK = {*zip([*MODELS][:3] * 2, DENSITIES, strict=True), ROWS[-1]}  # each model, and each density by one of them


def data_of(model: str, items: list[np.ndarray]) -> Any:
    return sm.Sequences(items, times=TIMES) if model == "ContinuousTimeHMM" else items


@cache
def fitted(model: str, density: str) -> tuple[HiddenChainModel, Any]:
    observation, items = DENSITIES[density]
    options: dict[str, Any] = {"n_init": 1, "max_iter": 4, "length": "given"}
    if model != "MarkovSwitchingAR":
        options["observation"] = observation.clone()
    if model == "HSMM":
        options["max_duration"] = 6
    X = data_of(model, items)
    return MODELS[model](2, **options).fit(X), X


def with_missing(items: list[np.ndarray]) -> list[np.ndarray]:
    return [np.where(np.arange(T)[:, None] == 5, np.nan, x) for x in items]


def saved(model: HiddenChainModel, X: Any) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        model.save(path)
        np.testing.assert_allclose(sm.load(path).log_prob(X), model.log_prob(X), rtol=1e-12)


def constrained(model: HiddenChainModel) -> HiddenChainModel:
    other = model.clone().set_params(
        topology="left-to-right", training__tied=[0, 0], training__frozen=["transition"], max_iter=2
    )
    return other.set_params(start="free") if isinstance(model, MarkovSwitchingAR) else other


def given_inputs(model: HiddenChainModel, items: list[np.ndarray], part: str, algorithm: str = "em") -> None:
    """Fit the model with a part that depends on an input, and forecast its states with the inputs ahead."""
    timed = {"times": TIMES} if isinstance(model, ContinuousTimeHMM) else {}
    X = sm.Sequences(items, inputs=INPUTS, input_names=["u"], **timed)
    effects = sm.hmm.ChainInputEffects(**{part: True})
    other = model.clone().set_params(input_effects=effects, max_iter=2, algorithm=algorithm)
    if algorithm == "variational" and isinstance(model, HSMM):
        other.set_params(durations="categorical")
    if part == "first_state" and isinstance(model, MarkovSwitchingAR):
        other.set_params(start="free")  # by default its distribution is that of the transitions
    other.fit(X).forecast_states(X, 2, inputs=[{"u": [0.0, 1.0]}] * N)


ABILITIES: dict[str, Callable[[HiddenChainModel, Any, list[np.ndarray]], Any]] = {
    "decode": lambda m, X, _: m.decode(X),
    "k best paths": lambda m, X, _: m.decode(X, k=2),
    "align": lambda m, X, _: m.align(X, [[0, 1, 0, 1]] * N),
    "posterior": lambda m, X, _: m.posterior(X),
    "filter": lambda m, X, _: m.filter(X),
    "stream": lambda m, X, _: m.stream().update(X[0][0]),
    "sample_states": lambda m, X, _: m.sample_states(X),
    "forecast_states": lambda m, X, _: m.forecast_states(X, 2),
    "path_log_prob": lambda m, X, _: m.path_log_prob(X, m.decode(X)),
    "standard_errors": lambda m, X, _: m.standard_errors(X),
    "state_summary": lambda m, X, _: m.state_summary(),
    "reorder": lambda m, X, _: m.reorder([1, 0]),
    "reorder by mean": lambda m, X, _: m.reorder("mean"),
    "reorder by share": lambda m, X, _: m.reorder("stationary"),
    "known states": lambda m, X, _: m.clone().fit(X, states=[np.r_[0, -np.ones(T - 1, int)]] * N),
    "weights": lambda m, X, _: m.clone().fit(X, sample_weight=[1.0, 2.0, 0.0, 1.0]),
    "warm start": lambda m, X, _: m.clone().fit(X).set_params(warm_start=True).fit(X),
    "partial_fit": lambda m, X, _: m.clone().partial_fit(X).partial_fit(X),
    "topology, tied, frozen": lambda m, X, _: constrained(m).fit(X),
    "tied, frozen by gradient": lambda m, X, _: refitted(constrained(m), X, "gradient"),
    "tied, frozen variational": lambda m, X, _: refitted(constrained(m), X, "variational"),
    "tied, frozen draws by NUTS": lambda m, X, _: drawn(constrained(m).fit(X), X),
    "tied with inputs": lambda m, X, items: given_inputs(constrained(m), items, "emissions"),
    "inputs of transitions": lambda m, X, items: given_inputs(m, items, "transitions"),
    "inputs of emissions": lambda m, X, items: given_inputs(m, items, "emissions"),
    "inputs of emissions, variational": lambda m, X, items: given_inputs(m, items, "emissions", "variational"),
    "inputs of the first state": lambda m, X, items: given_inputs(m, items, "first_state"),
    "inputs of durations": lambda m, X, items: given_inputs(m, items, "durations"),
    "stepwise with inputs": lambda m, X, items: given_inputs(m, items, "transitions", "stepwise"),
    "missing values": lambda m, X, items: m.log_prob(data_of(type(m).__name__, with_missing(items))),
    "stepwise": lambda m, X, _: refitted(m, X, "stepwise"),
    "gradient": lambda m, X, _: refitted(m, X, "gradient"),
    "variational": lambda m, X, _: refitted(m, X, "variational"),
    "draws by NUTS": lambda m, X, _: drawn(m, X),
    "from disk": lambda m, _, items: from_disk(m, items),
    "save and load": lambda m, X, _: saved(m, X),
}


def refitted(m: HiddenChainModel, X: Any, algorithm: str) -> HiddenChainModel:
    """Return a fit by another algorithm, with the observation's own prior and with durations that it takes."""
    other = m.clone().set_params(algorithm=algorithm, max_iter=2)
    if algorithm == "variational" and isinstance(m, HSMM):
        other.set_params(durations="categorical")
    return other.fit(X)


def drawn(m: HiddenChainModel, X: Any) -> None:
    sm.hmm.sample_posterior(m, X, n_samples=5, warmup=1, max_tree_depth=1).score(X)


def from_disk(m: HiddenChainModel, items: list[np.ndarray]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        np.save(path, np.concatenate(items))
        mapped = np.load(path, mmap_mode="r")
        X = data_of(type(m).__name__, [mapped[i * T : (i + 1) * T] for i in range(N)])
        np.testing.assert_allclose(m.clone().fit(X).log_prob(X), m.log_prob(data_of(type(m).__name__, items)))


VARIATIONAL = ("variational", "tied, frozen variational")
NO_MEAN = "have no mean; pass 'stationary' or a permutation"
REFUSED: dict[tuple[str, str, str], str] = {
    # Durations of the others are geometric or exponential, and follow from their transitions.
    **{
        (model, density, "inputs of durations"): "has no durations apart from its transitions"
        for model in MODELS
        for density in DENSITIES
        if model != "HSMM"
    },
    # A symbol is there or it is not: NaN is no symbol, and a mean of symbols is none.
    **{(model, "Categorical", "missing values"): "" for model in MODELS},
    **{(model, "Categorical", "reorder by mean"): NO_MEAN for model in MODELS},
    # What is known of a missing past depends on all states since, of which there are more than any filter holds.
    ("MarkovSwitchingAR", "GaussianMixture", "missing values"): "has a NaN at frame 5",
    # A prior whose product with a Gamma or a von Mises density keeps its form has a constant that no formula gives.
    **{
        (model, density, ability): "has no conjugate prior here"
        for model in MODELS
        for density in ("Gamma", "VonMises")
        for ability in VARIATIONAL
    },
    **{("MarkovSwitchingAR", "GaussianMixture", ability): "have no conjugate prior" for ability in VARIATIONAL},
    # A regression of counts or symbols has no conjugate prior at all; those of several groups could be built.
    **{
        (model, density, "inputs of emissions, variational"): "has no conjugate prior here"
        for model in MODELS
        for density in DENSITIES
        if density != "GaussianMixture"
    },
    ("MarkovSwitchingAR", "GaussianMixture", "inputs of emissions, variational"): "have no conjugate prior",
}


def outcome(model: str, density: str, ability: str) -> str:
    estimated, X = fitted(model, density)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ABILITIES[ability](estimated, X, DENSITIES[density][1])
        except (ValueError, TypeError) as error:
            return str(error)
    return "yes"


@pytest.mark.parametrize(
    ("model", "density"), [pytest.param(*row, marks=[] if row in QUICK else pytest.mark.slow) for row in ROWS]
)
def test_every_cell_is_yes_or_a_listed_refusal(model: str, density: str) -> None:
    for ability in ABILITIES:
        result = outcome(model, density, ability)
        if (model, density, ability) in REFUSED:
            assert result != "yes"
            assert REFUSED[model, density, ability] in result
        else:
            assert result == "yes", ability


if __name__ == "__main__":
    for row in ROWS:
        cells = [f"{name}: {outcome(*row, name)[:60]}" for name in ABILITIES if outcome(*row, name) != "yes"]
        print(" ".join(row), "| all" if not cells else f"| all but {'; '.join(cells)}")
