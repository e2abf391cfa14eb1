"""Bits and counts by their parameters, ``HMM.from_parameters``; vectors and symbols are in ``test_hmm_model``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

from seqmodels import HMM, Bernoulli, Categorical, GaussianMixture, Poisson, Sequences, load
from seqmodels.encodings import Features
from seqmodels.hmm import ChainTraining
from tests.inference.chains.enumeration import enumerate_paths
from tests.made import made

CHAIN: dict[str, Any] = {"initial": [0.3, 0.7], "transition": [[0.9, 0.1], [0.2, 0.8]]}
PROBABILITIES, RATES = np.array([[0.1, 0.5, 1.0], [0.8, 0.3, 0.25]]), np.array([[0.5, 4.0], [7.0, 0.0]])
BITS, COUNTS = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]), np.array([[1, 3], [6, 0], [0, 0], [9, 0]])
CASES = [
    ("probabilities", PROBABILITIES, BITS, scipy.stats.bernoulli.pmf, Bernoulli),
    ("rates", RATES, COUNTS, scipy.stats.poisson.pmf, Poisson),
]


@pytest.mark.parametrize(("name", "values", "x", "pmf", "observation"), CASES, ids=["bits", "counts"])
@pytest.mark.parametrize("final", [None, [0.05, 0.1]])
def test_the_likelihood_is_scipys_summed_over_paths(
    name: str, values: np.ndarray, x: np.ndarray, pmf: Any, observation: type, final: list[float] | None
) -> None:
    step = np.array(CHAIN["transition"]) * (1 - np.array(final or [0, 0]))[:, None]
    model = made(HMM.from_parameters, CHAIN["initial"], step, final, **{name: values}, dtype="float64")
    b = np.stack([pmf(x, row).prod(1) for row in values], axis=1)  # (T, K)
    end = None if final is None else np.array(final)
    expected = enumerate_paths(np.array(CHAIN["initial"]), step, b, end)
    frames = x.astype(float)
    assert_allclose(model.log_prob([frames])[0], expected.log_prob, rtol=1e-12)
    assert model.decode([frames])[0].tolist() == list(expected.best_path)
    assert_allclose(getattr(model, f"{name}_"), values, atol=1e-12)
    assert isinstance(model.observation_, observation)


@pytest.mark.parametrize(("name", "values", "x", "pmf", "observation"), CASES, ids=["bits", "counts"])
def test_a_fitted_model_is_its_parameters_and_goes_on(
    name: str, values: np.ndarray, x: np.ndarray, pmf: Any, observation: Any
) -> None:
    data = [x.astype(float), x[::-1].astype(float)]
    emits, options = observation(pseudocount=0.5), {"dtype": "float64", "max_iter": 2, "tol": 0, "start": "free"}
    fitted = made(HMM, 2, observation=emits, **options).fit(data)
    table = {name: getattr(fitted, f"{name}_")}
    again = made(
        HMM.from_parameters, fitted.initial_, fitted.transition_, **table, observation=emits, warm_start=True, **options
    )
    assert_allclose(again.log_prob(data), fitted.log_prob(data), rtol=1e-10)
    assert again.measure_ == fitted.measure_
    further = fitted.set_params(warm_start=True).fit(data)
    assert_allclose(getattr(again.fit(data), f"{name}_"), getattr(further, f"{name}_"), rtol=1e-8)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"probabilities": [[0.5], [1.5]]},
            "probabilities must be finite numbers from 0 to 1.0; they go from 0.5 to 1.5",
        ),
        ({"rates": [[1.0], [-1.0]]}, "rates must be finite numbers from 0 to inf"),
        ({"rates": [[1.0], [np.inf]]}, "finite"),
        ({"probabilities": [0.5, 0.5]}, r"probabilities have shape \(2,\); pass \(2, D\)"),
        ({"rates": [[1.0]]}, r"rates have shape \(1, 1\)"),
        (
            {"rates": [[1.0], [1.0]], "probabilities": [[0.5], [0.5]]},
            "probabilities and rates are parameters of different",
        ),
        ({"rates": [[1.0], [1.0]], "means": [[0.5], [0.5]]}, "rates and means are parameters of different"),
        ({"rates": [[1.0], [1.0]], "observation": Bernoulli()}, "rates belong to a Poisson observation"),
        ({"probabilities": [[0.5], [0.5]], "observation": GaussianMixture(1)}, "belong to a Bernoulli"),
        (
            {
                "probabilities": [[0.5], [0.5]],
                "encoding": Features("counts").restore({"mean": np.zeros(1), "scale": np.ones(1)}),
            },
            "leave enc",
        ),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        made(HMM.from_parameters, **CHAIN, **given)


def test_data_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="must be 0 or 1"):
        made(HMM.from_parameters, **CHAIN, probabilities=PROBABILITIES).score([np.full((3, 3), 2.0)])


def given_heat(seed: int, kind: str) -> Sequences:
    """What is seen follows one input of two."""
    rng = np.random.default_rng(seed)
    items, inputs = [], []
    for n in (60, 40):
        u, z = rng.normal(size=(n, 2)), np.cumsum(rng.random(n) < 0.2) % 2
        level = 2.0 * z - 1.0 + 0.5 * u[:, 0]
        items.append(
            {
                "reals": np.stack([level, 5 - level], 1) + rng.normal(size=(n, 2)),
                "bits": (rng.random((n, 2)) < 1 / (1 + np.exp(-level[:, None]))).astype(float),
                "counts": rng.poisson(np.exp(level))[:, None].astype(float),
                "symbols": (rng.random((n, 2)) < 1 / (1 + np.exp(-level[:, None]))).sum(1),
            }[kind]
        )
        inputs.append(u * [3.0, 0.1] + [20.0, 1.0])
    return Sequences(items, inputs=inputs, input_names=["heat", "wind"])


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("kind", "which"),
    [
        *((kind, (True, True, True)) for kind in ("reals", "bits", "counts", "symbols")),
        ("reals", (["heat"], ["wind"], None)),
        ("bits", (None, ["heat"], None)),
        ("counts", (["wind"], None, ["heat"])),
        ("symbols", (["heat"], ["wind"], None)),
    ],
)
def test_a_model_given_inputs_is_its_parameters_and_goes_on(kind: str, which: tuple[Any, Any, Any]) -> None:
    x = given_heat(0, kind)
    observation = {"reals": GaussianMixture(1), "bits": Bernoulli(), "counts": Poisson(), "symbols": Categorical(0.1)}
    options: dict[str, Any] = {
        "input_effects__transitions": which[0],
        "input_effects__emissions": which[1],
        "input_effects__first_state": which[2],
    }
    options |= {"start": "free", "max_iter": 3, "tol": 0.0, "dtype": "float64", "input_effects__ridge": 0.5}
    fitted = made(HMM, 2, observation=observation[kind], n_init=1, **options).fit(x)
    names = {"reals": ["means", "covariances"], "bits": ["probabilities"], "counts": ["rates"], "symbols": ["emission"]}
    table = {name: getattr(fitted, f"{name}_") for name in names[kind]}
    table |= {"weights": fitted.weights_} if kind == "reals" else {}
    slopes = {"transition_slopes": fitted.transition_slopes_} if which[0] else {}
    slopes |= {"emission_slopes": fitted.emission_slopes_} if which[1] else {}
    slopes |= {"initial_slopes": fitted.initial_slopes_} if which[2] else {}
    chain = {"initial": fitted.initial_, "transition": fitted.transition_, **table, **slopes}
    again = made(
        HMM.from_parameters,
        **chain,
        inputs=fitted.input_scaling_,
        observation=observation[kind],
        warm_start=True,
        **options,
    )
    for name in chain:
        assert_allclose(getattr(again, f"{name}_"), getattr(fitted, f"{name}_"), rtol=1e-10, atol=1e-12)
    assert_allclose(again.log_prob(x), fitted.log_prob(x), rtol=1e-10)
    assert again.measure_ == fitted.measure_
    assert again.n_parameters_ == fitted.n_parameters_
    further = fitted.set_params(warm_start=True).fit(x)
    assert_allclose(again.fit(x).log_prob(x), further.log_prob(x), rtol=1e-7)


def test_slopes_of_raw_inputs_say_what_the_transitions_and_means_are(tmp_path: Path) -> None:
    slopes, of_means = np.zeros((2, 2, 2)), np.zeros((2, 1, 2))
    slopes[0, :, 0], slopes[1, 0, 0], of_means[1, 0] = [0.1, 0.4], -0.2, [0.0, 3.0]
    model = made(
        HMM.from_parameters,
        **CHAIN,
        means=[[0.0], [10.0]],
        covariances=[[1.0], [2.0]],
        transition_slopes=slopes,
        emission_slopes=of_means,
        inputs={"heat": 20.0, "wind": 1.0},
    )
    leaving = model.transition_at([[20.0, 7.0], [22.0, 1.0]])
    assert_allclose(leaving[0], CHAIN["transition"])
    assert_allclose(leaving[1, 0, 1] / leaving[1, 0, 0], 0.1 / 0.9 * np.exp(0.3 * 2))
    assert_allclose(leaving[1, 1, 0] / leaving[1, 1, 1], 0.2 / 0.8 * np.exp(-0.2 * 2))
    x = Sequences([np.array([[11.0]])], inputs=[np.array([[25.0, 2.0]])], input_names=["heat", "wind"])
    normal = scipy.stats.norm.pdf(11.0, [0.0, 10.0 + 3.0], np.sqrt([1.0, 2.0]))
    assert_allclose(model.log_prob(x), np.log(normal @ CHAIN["initial"]), rtol=1e-12)
    model.save(tmp_path / "model.safetensors")
    assert_allclose(load(tmp_path / "model.safetensors").log_prob(x), model.log_prob(x), rtol=1e-15)


SLOPES = np.zeros((2, 2, 1))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"transition_slopes": SLOPES}, "inputs is None; pass the value of each input"),
        ({"transition_slopes": SLOPES, "inputs": {"a": 0.0, "b": 0.0}}, r"have shape \(2, 2, 1\); pass \(2, 2, 2\)"),
        ({"transition_slopes": SLOPES, "inputs": {"a": np.nan}}, "pass a finite number for each name"),
        ({"transition_slopes": SLOPES + np.inf, "inputs": {"a": 0.0}}, "must be finite"),
        ({"inputs": {"a": 0.0}}, "has 'a', which nothing depends on"),
        ({"input_effects__transitions": ["b"], "inputs": {"a": 0.0}}, "has no 'b', which is named"),
        ({"transition_slopes": SLOPES, "inputs": {"a": 0.0}, "final": [0.0, 0.0]}, "leave final out"),
        ({"transition_slopes": SLOPES, "inputs": {"a": 0.0}, "start": "stationary"}, "pass start='free'"),
        (
            {"initial_slopes": np.zeros((2, 1)), "inputs": {"a": 0.0}, "start": "uniform"},
            "leave first_state of input_effects out",
        ),
        ({"emission_slopes": SLOPES, "inputs": {"a": 0.0}}, "none may be impossible, certain or zero"),
        (
            {
                "transition_slopes": np.ones((2, 2, 2)),
                "input_effects__transitions": ["b"],
                "input_effects__emissions": ["a"],
            }
            | {"inputs": {"a": 0.0, "b": 1.0}, "rates": [[1.0], [2.0]]},
            "slopes of inputs that input_effects does not name",
        ),
    ],
)
def test_slopes_that_cannot_be_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        made(HMM.from_parameters, **(CHAIN | {"rates": RATES} | given))


def test_names_of_other_libraries_are_said_beside_what_is_lacking() -> None:
    with pytest.raises(TypeError, match=r"HMM.from_parameters lacks initial, transition; startprob is called initial"):
        HMM.from_parameters(startprob=[1.0], transmat=[[1.0]])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"HMM.from_parameters lacks transition; pass them too"):
        HMM.from_parameters([1.0])  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "says"),
    [({"n_init": 0}, "n_init"), ({"max_iter": -1}, "max_iter"), ({"algorithm": "emm"}, "algorithm")],
)
def test_other_arguments_are_checked_as_in_fit(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        HMM.from_parameters(**CHAIN, rates=RATES, **options)


def test_partial_fit_refuses_tied_states_that_differ() -> None:
    model = made(HMM.from_parameters, **CHAIN, rates=RATES, training=ChainTraining(tied=[0, 0]))
    with pytest.raises(ValueError, match="tied have different emissions"):
        model.partial_fit([COUNTS.astype(float)])
