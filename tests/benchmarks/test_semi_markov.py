"""Seconds of an iteration of an HSMM beside the textbook's recursion, on a few sequences."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import semi_markov
from explicit_durations import data
from numpy.testing import assert_allclose

import seqmodels as sm

STANDS_FOR_PEER = """
import json, sys
import numpy as np
sys.path[:0] = {folders!r}
import semi_markov
given = dict(np.load(sys.argv[-1]))
x = given.pop("x")
log_prob = semi_markov.closed_log_prob(semi_markov.Chain(**given), x) + {error}
print(json.dumps({{"seconds": 2.0, "log_prob": log_prob}}))
"""


def test_every_row_is_of_the_same_figures() -> None:
    table = semi_markov.rows(data(8, 30), longest=9, rounds=1)
    assert list(table["what"]) == ["seqmodels", "numpy, side by side", "numpy"]
    assert table["times_seqmodels"].iloc[0] == 1.0
    assert (table["sequences"] == 8).all()


def test_other_figures_are_no_comparison() -> None:
    x = data(4, 20)
    model = sm.hmm.HSMM(
        8,
        durations="categorical",
        max_duration=30,
        observation=sm.GaussianMixture(1),
        length="given",
        n_init=1,
        max_iter=1,
    ).fit(x)
    start, array = semi_markov.Chain.of(model), np.stack(x)[..., 0]
    semi_markov.check_same(model, start, array)
    with pytest.raises(AssertionError, match="Mismatched"):
        semi_markov.check_same(model, replace(start, means=start.means + 1e-4), array)


@pytest.mark.slow  # each starts a process
@pytest.mark.parametrize(("error", "agrees"), [(0.0, True), (1e-5, False)])
def test_a_peer_in_a_process_of_its_own_has_to_agree(
    error: float, agrees: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "peers").mkdir()
    folders = [entry for entry in sys.path if entry]
    (tmp_path / "peers" / "gaussian_hsmm.py").write_text(STANDS_FOR_PEER.format(folders=folders, error=error))
    monkeypatch.setattr(semi_markov, "HERE", tmp_path)
    rng = np.random.default_rng(0)
    chain = semi_markov.Chain(
        *rng.dirichlet(np.ones(2), 1), np.eye(2)[::-1].copy(), np.zeros(2), np.ones(2), np.ones((2, 3)) / 3
    )
    x = rng.normal(size=(2, 12))
    if agrees:
        assert semi_markov._seconds_of_peer(sys.executable, chain, x) == 2.0
        return
    with pytest.raises(AssertionError, match="Mismatched"):
        semi_markov._seconds_of_peer(sys.executable, chain, x)


def test_one_sequence_at_a_time_is_as_all_at_once() -> None:
    rng = np.random.default_rng(1)
    chain = semi_markov.Chain(
        *rng.dirichlet(np.ones(2), 1), np.eye(2)[::-1].copy(), np.arange(2.0), np.ones(2), np.ones((2, 4)) / 4
    )
    x = rng.normal(size=(5, 11))
    one, all_at_once = semi_markov.iterate(chain, x, 1), semi_markov.iterate(chain, x, 5)
    assert_allclose(one[1], all_at_once[1], rtol=1e-12)
    for name in vars(chain):
        assert_allclose(getattr(one[0], name), getattr(all_at_once[0], name), rtol=1e-10)
