from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad

import seqmodels as sm
from seqmodels.encodings import AutoSeries, Chain, Differences, Log, Quantize, RunningScale
from seqmodels.evaluation.auditing import auditing
from tests.encodings.stream_checks import assert_streams_agree
from tests.made import made

RNG = np.random.default_rng(0)
ITEMS = [np.exp(3 + np.cumsum(RNG.normal(size=(n, 2)), axis=0) * 0.1) for n in (60, 40, 20)]  # positive
FIRST = [x[:, :1] for x in ITEMS]

ENCODINGS: dict[str, Callable[[], sm.encodings.Encoding]] = {
    "levels": lambda: Quantize(5),
    "differences": lambda: Chain([Differences(1), Quantize(5)]),
    "log-differences": lambda: Chain([Log(), Differences(1), RunningScale(), Quantize(4)]),
    "auto": lambda: Chain([AutoSeries(), Quantize(5, "lloyd-max")]),
}
MODELS: dict[str, Callable[..., sm.SequenceModel]] = {
    "ngram": lambda **k: sm.NGram(2, **k),
    "context-tree": lambda **k: sm.ContextTree(2, **k),
    "context-mixing": lambda **k: sm.ContextMixing(n_buckets=256, **k),
    "hmm": lambda **k: made(sm.HMM, 2, n_init=1, max_iter=4, **k),
    "lstm": lambda **k: sm.LSTM(d_model=6, max_steps=5, **k),
}


def fitted(model: str, encoding: str, items: list[np.ndarray]) -> sm.SequenceModel:
    return MODELS[model](encoding=ENCODINGS[encoding](), dtype="float64").fit(items, validation=None)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_stream_and_predictions_agree_with_the_evaluation_in_batches(model: str, encoding: str) -> None:
    pytest.importorskip("pyro")
    one, (_, x, _) = fitted(model, encoding, ITEMS), ITEMS
    assert_streams_agree(one, ITEMS)
    (rest,) = one.log_prob_steps(sm.Sequences([x]).segments([(0, 12, 40)], past=None))
    assert_allclose(rest, one.log_prob_steps(ITEMS)[1][12:], atol=1e-9)


def log_p_of_cells(symbols: np.ndarray, n_cells: int, train: list[np.ndarray]) -> np.ndarray:
    """Of a Witten-Bell bigram of cells, each sequence after a start symbol."""
    counts = np.zeros((n_cells + 1, n_cells))  # of pairs, the last row after the start
    for each in train:
        np.add.at(counts, (np.append(n_cells, each[:-1]), each), 1)
    single = np.bincount(np.concatenate(train), minlength=n_cells)
    n_different = (single > 0).sum()
    p = (single + n_different / n_cells) / (single.sum() + n_different)
    different = (counts > 0).sum(1, keepdims=True)
    p = (counts + different * p) / (counts.sum(1, keepdims=True) + different)
    return np.log(p[np.append(n_cells, symbols[:-1]), symbols])


def test_log_probabilities_by_hand() -> None:
    model = sm.NGram(2, smoothing="witten-bell", encoding=Chain([Log(), Differences(1), Quantize(4)])).fit(FIRST)
    _, differences, cells = model.encoding_.encodings
    edges, tails = cells.cells.features[0].edges, cells.cells.features[0].tails
    changes = [np.diff(np.log(x[:, 0])) for x in FIRST]
    symbols = [np.array([(edges <= z).sum() for z in each]) for each in changes]
    within = []
    for z, cell in zip(changes[1], symbols[1], strict=True):
        if cell in (0, 3):
            distance = edges[0] - z if cell == 0 else z - edges[2]
            scale = tails[0] if cell == 0 else tails[1]
            within.append(np.exp(-distance / scale) / scale)
        else:
            within.append(1 / (edges[cell] - edges[cell - 1]))
    x = FIRST[1][:, 0]
    expected = log_p_of_cells(symbols[1], 4, symbols) + np.log(within) - np.log(x[1:])
    start = (np.log(x[0]) - differences.mean[0]) / differences.scale[0]
    of_first = -0.5 * (start**2 + np.log(2 * np.pi)) - np.log(differences.scale[0]) - np.log(x[0])
    assert_allclose(model.log_prob_steps(FIRST)[1], [of_first, *expected], rtol=1e-12)


SHAPES: dict[str, np.ndarray] = {
    "normal": RNG.normal(size=100),
    "heavy": 1e6 * RNG.standard_t(1.5, size=100),
    "whole": RNG.poisson(2.0, size=100).astype(np.float64),
    "zeros": np.where(RNG.random(100) < 0.7, 0.0, RNG.exponential(size=100)),
    "tiny": np.array([3.0, 4.0, 4.0]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_density_of_the_next_value_integrates_to_one(name: str) -> None:
    x = SHAPES[name][:, None]
    model = sm.NGram(2, encoding=Quantize(6)).fit([x])
    predicted = model.predict_next(x[:2])
    cells = model.encoding_.cells.features[0]
    ends = [cells.edges[0] - 40 * cells.tails[0], *cells.edges, cells.edges[-1] + 40 * cells.tails[1]]

    def density(value: float) -> float:
        return float(predicted.log_prob(torch.tensor([value], dtype=torch.float64)).exp())

    assert abs(sum(quad(density, *pair)[0] for pair in pairwise(ends)) - 1) < 1e-9
    for far in (-1e12, 1e12):
        assert np.isfinite(model.log_prob([np.array([[far]])])[0])


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_forecasts_are_those_of_draws(encoding: str) -> None:
    model, n = fitted("ngram", encoding, FIRST), 4_000
    forecast = model.forecast(FIRST[:1], 3, n=n, quantiles=(0.1, 0.5, 0.9))
    frame = forecast.frame
    assert list(frame["method"]) == ["exact", "sampled", "sampled"]
    drawn = np.array(model.sample(n, prefix=FIRST[0], length=3, random_state=5))[:, -3:, 0]
    for h in range(3):
        error = drawn[:, h].std() / np.sqrt(n)
        assert abs(frame["mean"][h] - drawn[:, h].mean()) < 5 * error
        assert abs(forecast.paths[0][:, h, 0].mean() - drawn[:, h].mean()) < 7 * error
        for level, column in ((0.1, "10%"), (0.5, "50%"), (0.9, "90%")):
            assert abs((drawn[:, h] <= frame[column][h]).mean() - level) < 5 * np.sqrt(level * (1 - level) / n)


def test_an_hmm_of_cells_forecasts_in_closed_form() -> None:
    model, n = fitted("hmm", "levels", ITEMS), 4_000
    frame = model.forecast(ITEMS[:1], 2, quantiles=(0.25,)).frame
    assert set(frame["method"]) == {"exact"}
    drawn = np.array(model.sample(n, prefix=ITEMS[0], length=2, random_state=5))[:, -2:].reshape(n, -1)
    assert_allclose(frame["mean"], drawn.mean(0), atol=5 * float(drawn.std(0).max()) / np.sqrt(n))
    assert_allclose((drawn <= frame["25%"].to_numpy()).mean(0), 0.25, atol=5 * np.sqrt(0.25 * 0.75 / n))


def test_what_is_generated_piece_by_piece_is_what_is_sampled() -> None:
    model = fitted("ngram", "log-differences", ITEMS)
    (whole,) = model.sample(1, length=6, random_state=3)
    assert_array_equal(whole, np.array(list(model.generate(length=6, random_state=3))))
    assert np.isfinite(model.log_prob_steps([whole])[0]).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda q: sm.Mixture([sm.NGram(2, encoding=q), sm.ContextTree(2, encoding=q)]),
        lambda q: sm.Mixture([sm.NGram(2), sm.ContextTree(2)], weights="gated", encoding=q),
        lambda q: sm.Dynamic(sm.LSTM(d_model=4, max_steps=3, encoding=q)),
        lambda q: sm.hmm.HSMM(2, n_init=1, max_duration=3, encoding=q),
        lambda q: sm.hmm.ContinuousTimeHMM(2, n_init=1, encoding=q),
    ],
)
def test_models_around_others_and_other_hidden_markov_models_read_cells(make: Callable[..., sm.SequenceModel]) -> None:
    model = make(Quantize(3)).fit(FIRST, validation=None)
    assert model.observation_.emits == "symbols"
    stream = model.stream()
    streamed = [stream.update(x) for x in FIRST[1]]
    assert_allclose(streamed, model.log_prob_steps(FIRST)[1], atol=2e-5)


@pytest.mark.slow
def test_an_audit_finds_that_it_sums_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = auditing.EFFORTS["quick"]
    monkeypatch.setitem(auditing.EFFORTS, "quick", replace(quick, n_points=2_000, n_draws=100))  # of one feature
    items = [np.cumsum(RNG.normal(size=(12, 1)), axis=0) for _ in range(16)]
    audit = sm.audit(fitted("ngram", "differences", items), items, effort="quick")
    assert {finding.verdict for finding in audit.findings if finding.rule == "sums to one"} == {"held"}
    assert not [finding for finding in audit.findings if finding.verdict == "broken"]


def test_the_declared_context_counts_the_frames_of_differences() -> None:
    contexts = [fitted("ngram", name, ITEMS).context_ for name in ("levels", "differences", "log-differences")]
    assert contexts == [1, 2, None]
    assert sm.NGram(3, encoding=Chain([Differences(1, 4), Quantize(3)])).fit(FIRST).context_ == 7


def test_models_of_vectors_alone_refuse_it() -> None:
    for model in (
        sm.LinearGaussian(1, encoding=Quantize(3)),
        sm.hmm.MarkovSwitchingAR(2, encoding=Quantize(3)),
    ):
        with pytest.raises(ValueError, match="vectors"):
            model.fit(FIRST)


def test_it_stands_in_one_table_with_models_of_vectors() -> None:
    items = [np.cumsum(RNG.normal(size=(40, 1)), axis=0) for _ in range(16)]
    models = {
        "hmm": sm.HMM(2, n_init=1),
        "ngram": sm.NGram(2, encoding=Chain([Differences(1), Quantize(4)])),
        "lstm": sm.LSTM(d_model=4, max_steps=3, encoding=Quantize(4)),
    }
    frame = sm.compare(models, items[:8], test=items[8:], baseline="hmm").frame
    assert set(frame["model"]) == {*models, "iid"}  # the Gaussian of all frames that a table refers to
    assert frame["score"].notna().all()
    assert {model.measure_.space for model in models.values()} == {"R^1"}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_saved_model_gives_the_same_figures_and_draws(encoding: str, tmp_path: Path) -> None:
    model = fitted("ngram", encoding, ITEMS)
    model.save(tmp_path / "model")
    loaded: Any = sm.load(tmp_path / "model")
    assert_allclose(
        np.concatenate(loaded.log_prob_steps(ITEMS)), np.concatenate(model.log_prob_steps(ITEMS)), rtol=1e-12
    )
    assert_array_equal(loaded.sample(1, length=4)[0], model.sample(1, length=4)[0])


def test_the_unit_of_the_data_moves_the_score_by_its_logarithm() -> None:
    for placement in ("quantiles", "widths", "lloyd-max"):
        scores = [
            sm.NGram(2, encoding=Quantize(5, placement)).fit(each).score(each)
            for each in (FIRST, [32 * x for x in FIRST])
        ]
        assert abs(scores[1] - (scores[0] - np.log(32))) < 1e-9


def test_the_number_of_cells_follows_the_number_of_frames() -> None:
    x = RNG.normal(size=(1_000, 2))
    for n_features, n_cells in ((1, 10), (2, 3)):
        encoding = Quantize().fit(sm.Sequences([x[:, :n_features]]))
        assert encoding.cells.sizes == (n_cells,) * n_features
    assert Quantize().fit(sm.Sequences([x[:5]])).cells.sizes == (2, 2)


def test_a_cell_is_decoded_as_its_median() -> None:
    encoding = Quantize(4).fit(sm.Sequences(FIRST))
    steps = encoding.encode(FIRST[0])
    assert_array_equal(encoding.encode(encoding.decode(steps)), steps)
    with pytest.raises(ValueError, match="depend on the frames before them"):
        Chain([Differences(1), Quantize(4)]).fit(sm.Sequences(FIRST)).decode(steps)


def test_what_it_cannot_read_is_refused() -> None:
    x = FIRST[0].copy()
    with pytest.raises(ValueError, match="feature 0 is constant over the training data"):
        sm.NGram(2, encoding=Quantize()).fit([np.ones((10, 1))])
    model = sm.NGram(2, encoding=Quantize(4)).fit([x])
    x[3] = np.nan
    with pytest.raises(ValueError, match="sequence 0 of X has a NaN at frame 3"):
        model.score([x])
    with pytest.raises(ValueError, match="sequence 0 of X has a NaN at frame 3"):
        sm.NGram(2, encoding=Quantize(4)).fit([x])
    with pytest.raises(ValueError, match="3 features together make 64000 symbols"):
        sm.NGram(2, encoding=Quantize(40)).fit([RNG.normal(size=(200, 3))])
    with pytest.raises(ValueError, match=r"Quantize\(n_cells=4\) is number 0 of .* makes symbols; put it last"):
        sm.HMM(2, encoding=Chain([Quantize(4), Differences(1)])).fit(FIRST)
    with pytest.raises(ValueError, match=r"emits vectors but Quantize\(n_cells=4\) makes symbols"):
        sm.HMM(2, encoding=Quantize(4), observation=sm.GaussianMixture()).fit(FIRST)
    with pytest.raises(ValueError, match="was fitted on 1"):
        model.score(ITEMS)
    with pytest.raises(ValueError, match="encodes single series, but these are pairs"):
        sm.NGram(2, encoding=Quantize(4)).fit(FIRST, FIRST)


def test_a_file_with_impossible_cells_is_refused() -> None:
    encoding = Quantize(4).fit(sm.Sequences(FIRST))
    state = encoding.state()
    assert_array_equal(Quantize().restore(state).encode(FIRST[1]), encoding.encode(FIRST[1]))
    one = state["cells"]["0"]
    for wrong, message in (
        ({"edges": one["edges"][::-1].copy()}, "increasing numbers"),
        ({"tails": np.zeros(2)}, "'tails' has 0"),
    ):
        with pytest.raises(ValueError, match=message):
            Quantize().restore({"cells": {"0": {**one, **wrong}}})
    with pytest.raises(ValueError, match="cells of each feature"):
        Quantize().restore({"cells": {"1": one}})
