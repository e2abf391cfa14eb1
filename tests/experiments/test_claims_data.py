"""What the claims about data and families compute beside the library, and one of them run from end to end."""

from argparse import Namespace
from pathlib import Path

import autoregressive
import numpy as np
import pytest
from choosing import best
from claim import written
from contrasts import difference
from data_hunger import N_SYMBOLS, chain
from matplotlib.figure import Figure

import seqmodels as sm


def test_a_difference_is_per_unit_and_by_clusters() -> None:
    test = sm.Sequences([np.zeros((2, 1))] * 10, clusters=[0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    rng = np.random.default_rng(0)
    model, against = ([rng.standard_normal(2) for _ in range(10)] for _ in range(2))
    found = difference(model, against, test)
    assert found.difference == pytest.approx((np.concatenate(model) - np.concatenate(against)).sum() / 20)
    assert found.n_clusters == 5
    best_of_ten = difference(model, against, test, looks=10)
    assert best_of_ten.low < found.low < found.high < best_of_ten.high
    long = difference([np.zeros(400)], [rng.standard_normal(400)], sm.Sequences(["é" * 200]))
    assert long.method.startswith("moving blocks")
    assert (
        difference([np.ones(400)], [np.zeros(400)], sm.Sequences(["é" * 200])).difference == 1.0
    )  # bytes, not characters


def test_the_order_that_predicts_the_end_best_is_chosen() -> None:
    train = sm.Sequences(["abcabdabeabd" * 30])
    assert best([sm.NGram(n, length="given") for n in (1, 4)], train).order == 4
    noise = [np.random.default_rng(i).integers(0, 3, 40) for i in range(10)]
    assert best([sm.NGram(n, length="given") for n in (1, 4)], sm.Sequences(noise)).order == 1


def test_log_probabilities_of_the_chain_are_those_it_was_drawn_by() -> None:
    x, log_prob = chain(60_000)
    seen = log_prob[2:]
    key = (x[:-2] * N_SYMBOLS + x[1:-1]) * N_SYMBOLS + x[2:]
    of_key = np.full(N_SYMBOLS**3, np.nan)
    of_key[key] = seen
    assert np.array_equal(of_key[key], seen)  # a function of the last three symbols
    assert np.nansum(np.exp(of_key.reshape(-1, N_SYMBOLS)), axis=1).max() < 1 + 1e-12
    counts = np.bincount(key, minlength=N_SYMBOLS**3).reshape(-1, N_SYMBOLS)
    often = counts.sum(axis=1) > 500
    shares = (counts / counts.sum(axis=1, keepdims=True))[often]
    assert np.abs(shares - np.nan_to_num(np.exp(of_key)).reshape(-1, N_SYMBOLS)[often]).max() < 0.08


def test_a_script_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, _ = sm.data.hmm_draws(48, 12, n_states=2, n_features=2, random_state=1)

    def small(steps: int, passes: int) -> dict[str, sm.SequenceModel]:
        names = ("hmm", "var, order 1", "ar-hmm, order 1")
        observations = (sm.GaussianMixture(1), sm.AutoregressiveGaussian(1), sm.AutoregressiveGaussian(1))
        chains: dict[str, sm.SequenceModel] = {
            name: sm.HMM(k, observation=o, max_iter=3)
            for name, k, o in zip(names, (2, 1, 2), observations, strict=True)
        }
        return chains | {"lstm": sm.LSTM(d_model=8, max_steps=3)}

    monkeypatch.setattr(autoregressive, "frames", lambda given: (drawn[:24], drawn[24:]))
    monkeypatch.setattr(autoregressive, "models", small)
    finding = autoregressive.measure(Namespace(quick=True))
    assert isinstance(finding.figure, Figure)
    shares = finding.frame.dropna(subset=["share_closed"]).set_index("model")
    assert list(shares.index) == ["var, order 1", "ar-hmm, order 1"]
    assert (shares["share_low"] <= shares["share_closed"]).all()
    written(finding, tmp_path / "autoregressive", quick=True, began=0.0)
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".png", ".json"}
