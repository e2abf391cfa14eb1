from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from seqmodels.hmm.alignment.jumps import Jumps, PositionChain

SIZES, FAR = (1, 2, 4), 2


@pytest.mark.parametrize("has_end", [False, True])
@pytest.mark.parametrize("null", [False, True])
def test_rows_of_the_chain_sum_to_one(has_end: bool, null: bool) -> None:
    rng = np.random.default_rng(0)
    flat = Jumps.flat(FAR, has_end=has_end, null=null)
    jumps = Jumps(rng.gamma(1.0, size=len(flat.weights)), FAR, has_end, flat.null)
    for n in SIZES:
        sums = jumps.sums(np.ones((1, n + 1)))
        chain, own = jumps.chain(sums), jumps.of_states(sums)[0]
        assert chain.initial.shape == (1, 2 * n + 1 if null else n)
        positions, nulls = chain.transition[:, :n].sum(1), chain.transition[:, n:].sum(1)
        ends = 0.0 if chain.final is None else chain.final
        assert_allclose((positions + ends) / own + nulls, 1, rtol=1e-12)


def test_weights_converge_to_the_most_probable_ones() -> None:
    """Against a search over the logarithms of the weights."""
    rng, pseudocount = np.random.default_rng(1), 0.3
    jumps = Jumps.flat(FAR, has_end=True, null=False)
    expected = {
        n: PositionChain(rng.gamma(1.0, size=n), rng.gamma(1.0, size=(n, n)), rng.gamma(1.0, size=n)) for n in SIZES
    }
    counts = {n: jumps.counts_by_jump(chain, n)[0] for n, chain in expected.items()}

    def objective(theta: np.ndarray) -> float:
        here = Jumps(np.exp(theta), FAR, True, None)
        total = here.log_prior(pseudocount)
        for n, count in counts.items():
            table = here.table(n)
            p = np.divide(table, table.sum(1, keepdims=True))
            total += float((count[count > 0] * np.log(p[count > 0])).sum())
        return -total

    best = minimize(objective, np.zeros(len(jumps.weights)), method="BFGS").fun
    before = objective(np.log(jumps.weights))
    for _ in range(300):
        one = {n: np.ones((1, n + 1)) for n in SIZES}
        slopes = {n: (counts[n].sum(1) / jumps.sums(one[n])).T @ one[n] for n in SIZES}
        jumps = jumps.maximised(expected, slopes, pseudocount)
        now = objective(np.log(jumps.weights))
        assert now <= before + 1e-9
        before = now
    assert_allclose(before, best, rtol=1e-7)


@pytest.mark.parametrize("pseudocount", [0.0, 0.3])
def test_the_null_is_the_share_of_steps_that_are_aligned_with_nothing(pseudocount: float) -> None:
    """Ends and starts are among the steps; nulls are counted once."""
    rng = np.random.default_rng(2)
    jumps = Jumps.flat(FAR, has_end=True, null=True)
    expected = {
        n: PositionChain(
            rng.gamma(1.0, size=2 * n + 1), rng.gamma(1.0, size=(2 * n + 1, 2 * n + 1)), rng.gamma(1.0, size=2 * n + 1)
        )
        for n in SIZES
    }
    slopes = {n: np.ones((n + 2, n + 1)) for n in SIZES}
    nulls = sum(float(each.initial[n:].sum() + each.transition[:, n:].sum()) for n, each in expected.items())
    steps = sum(float(part.sum()) for each in expected.values() for part in (each.initial, each.transition, each.final))
    found = jumps.maximised(expected, slopes, pseudocount).null
    assert_allclose(found, (nulls + pseudocount) / (steps + 2 * pseudocount), rtol=1e-12)
