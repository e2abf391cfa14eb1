from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import dirichlet_multinomial

import seqmodels as sm
from seqmodels.hmm.alignment.lexicon import UNKNOWN, SummedLexicon, context_orders, find
from seqmodels.hmm.alignment.training import STRENGTHS, TableEstimate

N_CONTEXTS, N_TARGET = 6, 4
RNG = np.random.default_rng(0)


def estimate(strength: float) -> tuple[TableEstimate, np.ndarray, np.ndarray]:
    """No prior counts for the last symbol of each context; counts (C, V) and the coarser distributions (C, V)."""
    coarser = RNG.dirichlet(np.ones(N_TARGET), N_CONTEXTS)
    counts = RNG.integers(0, 30, (N_CONTEXTS, N_TARGET)).astype(float)
    kept = np.array([c * N_TARGET + v for c in range(N_CONTEXTS) for v in range(N_TARGET - 1)])
    ids = np.concatenate([kept // N_TARGET, np.arange(N_CONTEXTS)])
    mass = np.concatenate([coarser.ravel()[kept], coarser[:, -1]])
    values = np.concatenate([coarser.ravel()[kept], np.ones(N_CONTEXTS + 1)])
    found = TableEstimate(np.arange(N_CONTEXTS), kept, ids, mass, strength, values, [])
    return found, np.concatenate([counts.ravel()[kept], counts[:, -1]]), coarser


def test_the_m_step_adds_what_the_coarser_context_says() -> None:
    before, counts, coarser = estimate(5.0)
    fitted = before.maximised(counts).table
    table = np.concatenate([counts[:-N_CONTEXTS].reshape(N_CONTEXTS, -1), counts[-N_CONTEXTS:, None]], 1)
    expected = (table + 5 * coarser) / (table.sum(1, keepdims=True) + 5)
    assert_allclose(fitted.p, expected[:, :-1].ravel(), rtol=1e-12)
    assert_allclose(fitted.rest * coarser[:, -1], expected[:, -1], rtol=1e-12)


def test_the_prior_is_a_divergence() -> None:
    before, counts, coarser = estimate(5.0)
    after = before.maximised(counts)
    assert before.log_prior() == 0
    p = np.concatenate([after.table.p.reshape(N_CONTEXTS, -1), (after.table.rest * coarser[:, -1])[:, None]], 1)
    assert_allclose(after.log_prior(), -5 * (coarser * np.log(coarser / p)).sum(), rtol=1e-10)


def test_the_strength_is_the_likeliest_of_those_tried() -> None:
    before, counts, coarser = estimate(1.0)
    table = np.concatenate([counts[:-N_CONTEXTS].reshape(N_CONTEXTS, -1), counts[-N_CONTEXTS:, None]], 1).astype(int)
    scores = [
        sum(dirichlet_multinomial.logpmf(n, t * m, n.sum()) for n, m in zip(table, coarser, strict=True))
        for t in STRENGTHS
    ]
    assert before.likeliest_strength(counts) == STRENGTHS[int(np.argmax(scores))]


@pytest.mark.parametrize("spread", [1, 1000])
def test_codes_are_found_or_not(spread: int) -> None:
    table = np.array([0, 2, 3, 7]) * spread
    assert_array_equal(find(table, np.array([7, 1, 0, 3, 9, UNKNOWN]) * spread), [3, UNKNOWN, 0, 2, UNKNOWN, UNKNOWN])


def test_contexts_widen_and_the_target_comes_after_the_neighbours() -> None:
    seen = [(order.columns, order.previous) for order in context_orders(5, True)]
    assert seen == [((2,), False), ((3,), False), ((1,), False), ((), True), ((4,), False), ((0,), False)]
    assert [(order.columns, order.previous) for order in context_orders(1, False)] == [((0,), False)]


@pytest.mark.parametrize("window", [1, 5])
def test_the_sum_over_contexts_is_that_of_each(window: int) -> None:
    rng = np.random.default_rng(1)
    sources = [rng.integers(0, 6, 5) for _ in range(60)]
    targets = [(source + rng.integers(0, 2, 5)) % 9 for source in sources]
    model = sm.AlignmentHMM(window=window, null=True, max_iter=3, length="given").fit(sources, targets)
    lexicon = model.model_.lexicon
    assert len(lexicon.tables) > (window > 1)
    windows = rng.integers(0, lexicon.n_source + 2, (4, 3, window))
    previous, weights = rng.integers(0, lexicon.n_target + 1, 4), rng.dirichlet(np.ones(3), 4)
    each = lexicon.probability(windows[:, :, None], previous[:, None, None], np.arange(lexicon.n_target))
    found = SummedLexicon.of(lexicon).sums([*lexicon.context_ids(windows, previous[:, None])], weights)
    assert_allclose(found, (weights[:, :, None] * each).sum(1), rtol=1e-13)
    assert_allclose(found.sum(1), 1, rtol=1e-13)
