"""The tests of an audit have the error rates that they claim: by enumeration, and by simulation."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import beta, norm

from seqmodels.evaluation.auditing.bounds import (
    POWERS,
    half_width,
    log_evidence_of_counts,
    log_evidence_of_powers,
    log_mean_evidence,
    p_value_of_symmetry,
    share_between,
)
from seqmodels.evaluation.auditing.proposals import BroadProposal
from seqmodels.evaluation.auditing.sums_to_one import WIDEST, integrate
from seqmodels.sequences.measure import Values

NODES = np.linspace(-9, 9, 301)
P = np.array([0.6, 0.3, 0.1])
ABOVE = float(beta.sf(0.5, 0.3, 0.7))  # of twice a value, above 1


def test_evidence_is_one_in_the_mean_where_the_hypothesis_is_true() -> None:
    means = np.zeros(1 + len(POWERS))
    for draws in product(range(3), repeat=4):
        counts = np.bincount(draws, minlength=3)
        each = [log_evidence_of_counts(counts, np.log(P)), *log_evidence_of_powers(counts, np.log(P))]
        means += np.prod(P[list(draws)]) * np.exp(each)
    np.testing.assert_allclose(means, 1, rtol=1e-12)


def test_evidence_grows_where_it_is_not() -> None:
    counts = np.random.default_rng(0).multinomial(3000, P**1.25 / (P**1.25).sum())
    assert log_evidence_of_counts(counts, np.log(P)) > 10
    assert log_evidence_of_powers(counts, np.log(P)).max() > 10
    with np.errstate(divide="ignore"):
        assert log_evidence_of_counts(np.array([1, 1]), np.log([1.0, 0.0])) == np.inf
    assert log_mean_evidence([np.log(2.0), np.log(4.0)]) == pytest.approx(np.log(3.0))


def test_a_p_value_of_symmetry_is_one() -> None:
    sizes = np.array([0.3, 1.0, 2.5, 0.1, 4.0, 1.7, 0.8, 3.0])
    p_values = np.array(
        [
            p_value_of_symmetry([(sizes * signs)[:3], (sizes * signs)[3:]])
            for signs in product([-1, 1], repeat=len(sizes))
        ]
    )
    for level in (0.05, 0.1, 0.3, 0.5):
        assert (p_values <= level).mean() <= level
    assert p_value_of_symmetry([np.random.default_rng(0).normal(0.3, 1, 1000)]) < 1e-6
    assert p_value_of_symmetry([np.zeros(5)]) == 1


def test_intervals_cover() -> None:
    rng, n_missed = np.random.default_rng(0), np.zeros(2)
    for _ in range(400):
        values = 2 * rng.beta(0.3, 0.7, 200)
        low, high = share_between(int((values > 1).sum()), 200, 0.1)
        n_missed += [abs(values.mean() - 0.6) > half_width(values, 2, 0.1), not low <= ABOVE <= high]
    assert (n_missed <= 0.1 * 400).all()
    assert half_width(2 * rng.beta(0.3, 0.7, 20_000), 2, 0.1) < 0.03


@pytest.mark.parametrize("width", [1.0, 1e-2, 1e-3, 1e3])
def test_the_quadrature_of_a_density(width: float) -> None:
    for centre in (0.0, 0.7, -30.0):
        integral, error = integrate(
            lambda u, c=centre: norm.pdf(np.sinh(u), c, width) * np.cosh(u), np.arcsinh([centre]), 100_000
        )
        assert abs(integral - 1) < 1e-6
        assert error < 1e-4
    assert np.sinh(WIDEST) == pytest.approx(1e6)


MIXED: tuple[Values, ...] = ("reals", "counts", "bits")


@pytest.mark.parametrize("values", [("reals",), ("counts",), ("bits", "bits"), MIXED])
def test_a_proposal_is_normalised_and_draws_what_it_scores(values: tuple[Values, ...]) -> None:
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.normal(5, 2, 300) if v == "reals" else rng.integers(0, 2, 300) for v in values]) * 1.0
    proposal = BroadProposal.around(points, values, rng)
    grids = {"reals": np.sinh(NODES), "counts": np.arange(100.0), "bits": np.array([0.0, 1.0])}
    jacobian = np.cosh(NODES) * 18 / 300
    grid = np.array(list(product(*[grids[v] for v in values])))
    p = np.exp(proposal.log_prob(grid)).reshape([len(grids[v]) for v in values])
    for axis, v in enumerate(values):
        weights = jacobian if v == "reals" else np.ones(len(grids[v]))
        p = p * weights.reshape([-1 if a == axis else 1 for a in range(len(values))])
    assert p.sum() == pytest.approx(1, abs=1e-4)
    drawn = proposal.draw(20_000, rng)
    for axis, v in enumerate(values):
        mass = p.sum(tuple(a for a in range(len(values)) if a != axis))
        expected = np.minimum(grids[v], 20.0) @ mass
        assert np.minimum(drawn[:, axis], 20.0).mean() == pytest.approx(expected, abs=0.1)
