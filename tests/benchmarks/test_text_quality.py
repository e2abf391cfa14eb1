from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from peers import lstm_quality, quality
from scipy.special import logsumexp
from text_quality import WINDOW, five_gram, run, symbols

from seqmodels import ElmanRNN, NGram

TEXT = np.arange(600) // 2 % 5


def test_words_that_are_not_among_the_most_frequent_are_one() -> None:
    text = "a b\n" * 9_999 + "c d " * 2_000
    train, _ = symbols(text, words=True)
    assert len(set(train.tolist())) == len(set(text.split())) + 1  # and the new line
    assert set(symbols("a b c " * 3 + "d", words=True)[1].tolist()) == {0}  # d, which training has not seen
    assert set(symbols("abcabcabcd", words=False)[1].tolist()) == {3}


def _nats_in_windows(model: ElmanRNN, text: np.ndarray) -> float:
    """The equations of the network, from a state of zeros in each window."""
    p = {name: value.detach().double().numpy() for name, value in model.module_.named_parameters()}
    nats = 0.0
    for begin in range(0, len(text), WINDOW):
        state = np.zeros(len(p["begin"]))
        for t in range(begin, min(begin + WINDOW, len(text))):
            x = p["begin"] if t == 0 else p["embedding.map.weight"][text[t - 1]]
            bias = p["network.rnn.bias_ih_l0"] + p["network.rnn.bias_hh_l0"]
            state = np.tanh(p["network.rnn.weight_ih_l0"] @ x + p["network.rnn.weight_hh_l0"] @ state + bias)
            logits = p["head.weight"] @ state + p["head.bias"]
            nats -= logits[text[t]] - logsumexp(logits)
    return nats / len(text)


def test_scores_are_of_windows_and_of_the_stream() -> None:
    model = ElmanRNN(d_model=6, bptt=16, batch_size=4, nonlinearity="tanh")
    line = run(model, TEXT[:400], TEXT[400:], seconds=0.2, seed=3)
    assert line["val64"] == pytest.approx(_nats_in_windows(model, TEXT[400:]), rel=1e-5)
    assert line["stream"] == pytest.approx(-model.score([TEXT[400:]]))
    assert model.get_params()["max_seconds"] == 0.2
    assert model.get_params()["random_state"] == 3


def test_a_5_gram_is_scored_as_a_stream() -> None:
    line = five_gram(TEXT[:400], TEXT[400:])
    assert line["stream"] == pytest.approx(-NGram(5, length="given").fit([TEXT[:400]]).score([TEXT[400:]]))


def test_peers_are_scored_on_every_symbol_that_has_one_before_it_in_full_windows() -> None:
    table = torch.from_numpy(np.random.default_rng(0).dirichlet(np.ones(5), 5)).log()
    windows = quality.of_windows(lambda x, y: -table[x, y].mean(), TEXT[:390])
    n = 389 // quality.CONTEXT * quality.CONTEXT
    assert windows == pytest.approx(-np.mean([table[a, b] for a, b in pairwise(TEXT[: n + 1])]))


def test_peers_train_for_their_seconds_at_a_rate_that_rises_and_falls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "symbols.npz", train=TEXT[:400], test=TEXT[400:])
    monkeypatch.setattr("sys.argv", ["", str(tmp_path / "symbols.npz"), "2", "0"])
    lstm_quality.main()
    found = json.loads(capsys.readouterr().out)
    assert found["stream"] < 1.2 < np.log(5)  # what follows is learned in part
    assert found["steps"] > 1
    assert quality.rate(0.0) < quality.rate(0.025) < quality.rate(0.05) == quality.PEAK > quality.rate(0.5)
    assert quality.rate(1.0) == pytest.approx(quality.LEAST)
