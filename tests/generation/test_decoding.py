from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from seqmodels.generation import Decoding, Prediction
from seqmodels.generation.decoding import draw
from seqmodels.observations import (
    AutoregressiveGaussian,
    Bernoulli,
    Categorical,
    Columns,
    GaussianMixture,
    Observation,
    Poisson,
)
from tests.generation.markov import seeded

P = torch.tensor([[0.1, 0.4, 0.2, 0.25, 0.05]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("decoding", "kept"),
    [
        (Decoding(), [0, 1, 2, 3, 4]),
        (Decoding(top_k=2), [1, 3]),
        (Decoding(top_k=9), [0, 1, 2, 3, 4]),
        (Decoding(top_p=0.4), [1]),  # reached by the first already
        (Decoding(top_p=0.41), [1, 3]),
        (Decoding(top_p=0.9), [1, 2, 3, 0]),
        (Decoding(top_p=1.0), [0, 1, 2, 3, 4]),
        (Decoding(min_p=0.5), [1, 2, 3]),
        (Decoding(top_k=3, top_p=0.5, min_p=0.6), [1, 3]),
        (Decoding(top_k=1, min_p=0.0), [1]),
        (Decoding(temperature=0), [1]),
    ],
)
def test_what_stays_by_hand(decoding: Decoding, kept: list[int]) -> None:
    p = decoding.probabilities(P.log())[0]
    assert sorted(p.nonzero().squeeze(-1).tolist()) == sorted(kept)
    expected = P[0, sorted(kept)] / P[0, kept].sum()
    torch.testing.assert_close(p[sorted(kept)] / p.sum(), expected)


def test_temperature_is_a_power_and_comes_first() -> None:
    for temperature in (0.5, 3.0):
        powered = P ** (1 / temperature)
        torch.testing.assert_close(Decoding(temperature).probabilities(P.log()), powered / powered.sum())
    flat = Decoding(temperature=3.0, top_p=0.4).probabilities(P.log())
    assert int((flat > 0).sum()) == 2  # at temperature 1 it would be one


def test_of_equal_symbols_the_lowest_stay() -> None:
    flat = torch.full((1, 4), 0.25, dtype=torch.float64).log()
    assert Decoding(top_k=2).probabilities(flat)[0].nonzero().squeeze(-1).tolist() == [0, 1]
    assert Decoding(temperature=0).probabilities(flat).argmax() == 0


def test_where_nothing_is_possible_nothing_is_drawn_from() -> None:
    nothing = torch.full((1, 3), -torch.inf, dtype=torch.float64)
    for decoding in (Decoding(), Decoding(0), Decoding(0.5, 1, 0.5, 0.5)):
        assert decoding.probabilities(nothing).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": 0}, "top_k is 0"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"min_p": -0.1}, "min_p is -0.1"),
    ],
)
def test_numbers_out_of_range_are_named(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decoding(**wrong)  # type: ignore[arg-type]


# -- draws ---------------------------------------------------------------------------------------------------------

N = 20_000
TABLES = torch.tensor([[0.5, 0.3, 0.2], [0.0, 0.4, 0.6]], dtype=torch.float64).log()


def prediction(log_end: float | None = None) -> Prediction:
    """Two states, as of an HMM, with mixed probabilities 0.2, 0.36 and 0.44."""
    weights = torch.tensor([0.4, 0.6], dtype=torch.float64).log().expand(N, -1)
    end = None if log_end is None else torch.full((N,), log_end, dtype=torch.float64)
    return Prediction(Categorical(), TABLES.expand(N, -1, -1), weights, None, end)


@pytest.mark.parametrize(
    ("decoding", "expected"),
    [
        (Decoding(), [0.15, 0.27, 0.33, 0.25]),
        (Decoding(temperature=0.5), np.square([0.15, 0.27, 0.33, 0.25])),
        (Decoding(top_k=3), [0.0, 0.27, 0.33, 0.25]),  # of one state alone the first would be the likeliest
        (Decoding(top_p=0.34), [0.0, 0.27, 0.33, 0.0]),
        (Decoding(temperature=0), [0.0, 0.0, 1.0, 0.0]),
    ],
)
def test_states_are_summed_out_and_the_end_is_a_symbol(decoding: Decoding, expected: list[float]) -> None:
    drawn = draw(prediction(np.log(0.25)), decoding, seeded())
    assert drawn.ended is not None
    counts = torch.bincount(torch.where(drawn.ended, 3, drawn.x), minlength=4).numpy()
    p = np.asarray(expected) / np.sum(expected)
    assert (counts[p == 0] == 0).all()
    if (p > 0).sum() > 1:
        assert chisquare(counts[p > 0], N * p[p > 0]).pvalue > 1e-3


def test_without_the_end_only_symbols_are_drawn() -> None:
    for decoding in (Decoding(), Decoding(top_k=3)):
        drawn = draw(prediction(np.log(0.25)), decoding, seeded(), may_end=False)
        assert drawn.ended is None
        assert chisquare(torch.bincount(drawn.x, minlength=3).numpy(), N * np.array([0.2, 0.36, 0.44])).pvalue > 1e-3


@pytest.mark.parametrize("decoding", [Decoding(), Decoding(temperature=2.0)])
def test_certain_and_impossible_ends(decoding: Decoding) -> None:
    for log_end, expected in ((0.0, True), (-np.inf, False)):
        drawn = draw(prediction(log_end), decoding, seeded())
        assert drawn.ended is not None
        assert drawn.impossible is not None
        assert drawn.ended.tolist() == [expected] * N
        assert not drawn.impossible.any()


@pytest.mark.parametrize("decoding", [Decoding(), Decoding(temperature=2.0), Decoding(temperature=0)])
def test_stuck_rows_end_if_they_can(decoding: Decoding) -> None:
    nowhere = torch.full((2, 2), -torch.inf, dtype=torch.float64)
    ends = torch.tensor([0.0, -torch.inf], dtype=torch.float64)
    drawn = draw(Prediction(Categorical(), TABLES.expand(2, -1, -1), nowhere, None, ends), decoding, seeded())
    assert drawn.ended is not None
    assert drawn.impossible is not None
    assert drawn.ended[0]
    assert drawn.impossible.tolist() == [False, True]


# -- vectors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "observation",
    [
        GaussianMixture(1, "diag"),
        GaussianMixture(1, "full"),
        GaussianMixture(1, "spherical"),
        GaussianMixture(1, "tied"),
        AutoregressiveGaussian(2, background=0.0),
        AutoregressiveGaussian(1, "diag", background=0.0),
        Bernoulli(),
        Columns([(GaussianMixture(1, "full"), 2), (Bernoulli(), 1)]),
        Categorical(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("temperature", [0.3, 2.5])
def test_tempered_is_the_density_to_a_power(observation: Observation, temperature: float) -> None:
    width = observation.n_output_parameters(3)
    output_parameters = 0.5 * torch.randn(1, width, generator=seeded(), dtype=torch.float64)
    past = (
        torch.randn(1, observation.n_past, 3, generator=seeded(1), dtype=torch.float64) if observation.n_past else None
    )
    if observation.emits == "symbols":
        x = torch.arange(3)
    else:
        x = torch.tensor([[0.0, 1, 0], [1, 1, 1], [0, 0, 0]], dtype=torch.float64)
    plain = observation.log_prob(output_parameters, x, past)
    tempered = observation.log_prob(observation.tempered(output_parameters, temperature), x, past)
    # Up to what normalises it.
    torch.testing.assert_close(tempered.diff(), plain.diff() / temperature)


def test_weights_of_components_and_states_are_tempered_too() -> None:
    observation, far = GaussianMixture(2, "diag"), torch.tensor([[[-50.0], [50.0]]])
    table = observation.pack(torch.tensor([[0.2, 0.8]]).log(), far, torch.zeros(1, 2, 1))
    tables = torch.stack([table.expand(N, -1), table.expand(N, -1) + torch.tensor([0.0, 0, 200, 200, 0, 0])], 1)
    weights = torch.tensor([0.3, 0.7]).log().expand(N, -1)
    x = draw(Prediction(observation, tables, weights, None, None), Decoding(temperature=0.5), seeded()).x[:, 0]
    counts = torch.histc(x, 4, -100, 300)
    p = np.outer(np.square([0.3, 0.7]), np.square([0.2, 0.8])).ravel()
    assert chisquare(counts.numpy(), N * p / p.sum()).pvalue > 1e-3
    assert float(x[(x > -100) & (x < 0)].var()) == pytest.approx(0.5, abs=0.1)


def test_what_has_no_temperature_says_so() -> None:
    with pytest.raises(ValueError, match=r"Poisson\(.*\) has no temperature"):
        Poisson().tempered(torch.zeros(1, 2), 0.5)
    with pytest.raises(ValueError, match="vectors, which cannot be enumerated"):
        Poisson().log_probs(torch.zeros(1, 2))
