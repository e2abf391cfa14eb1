from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.encodings import OpenSymbols
from seqmodels.sequences import Sequences

X = Sequences([[4, 2, 4, 9], [2, 2]])


def test_what_training_has_once_is_of_the_class_of_unknown_symbols() -> None:
    encoding = OpenSymbols().fit(X)
    assert (encoding.known_.tolist(), encoding.size) == ([2, 4], 3)
    steps = encoding.encode(np.array([2, 4, 9, 0, 3, 2**62]))
    assert steps.tolist() == [0, 1, 2, 2, 2, 2]
    assert np.asarray(encoding.decode(steps)).tolist() == [2, 4, 0, 0, 0, 0]
    assert np.array_equal(encoding.encode(encoding.decode(steps)), steps)
    assert np.asarray(OpenSymbols([0, 1, 3]).fit(X).decode(np.array([3]))).tolist() == [2]
    assert np.asarray(OpenSymbols([0, 1]).fit(X).decode(np.array([2]))).tolist() == [2]


def test_the_distribution_over_unknown_symbols_sums_to_one() -> None:
    encoding = OpenSymbols().fit(X)
    symbols = np.arange(100_000)
    unknown = encoding.encode(symbols) == encoding.size - 1
    log_q = np.asarray(encoding.log_det(symbols))
    assert (log_q[~unknown] == 0).all()
    # Of 1 / (k (k + 1)), what is left after n terms is 1 / (n + 1).
    assert np.exp(log_q[unknown]).sum() + 1 / (unknown.sum() + 1) == pytest.approx(1, abs=1e-12)
    stated = OpenSymbols(n_symbols=12).fit(X)
    symbols = np.arange(12)
    unknown = stated.encode(symbols) == stated.size - 1
    assert np.exp(np.asarray(stated.log_det(symbols))[unknown]).tolist() == pytest.approx([0.1] * 10)


def test_raw_log_probabilities_are_those_of_the_class_times_q() -> None:
    log_p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    stated = OpenSymbols(n_symbols=6).fit(X).raw_log_probs(log_p).exp()
    assert stated.tolist() == pytest.approx([0.05, 0.05, 0.5, 0.05, 0.3, 0.05])
    # 0, 1 and 3 are the first three unknown symbols: 1/2, 1/6, 1/12; all above 4 have what is left, 1/4.
    free = OpenSymbols().fit(X).raw_log_probs(log_p).exp()
    assert free.tolist() == pytest.approx([0.2 / 2, 0.2 / 6, 0.5, 0.2 / 12, 0.3, 0.2 / 4])


MODELS = {
    "hmm": sm.HMM(2, max_iter=3),
    "ngram": sm.NGram(2),
    "gru": sm.GRU(d_model=4, max_steps=2),
}
TRAIN = [np.array([1, 3, 1, 3, 1, 0]), np.array([3, 3, 1])]


@pytest.mark.parametrize("name", MODELS)
def test_the_probabilities_of_all_raw_sequences_sum_to_one(name: str) -> None:
    model = MODELS[name].clone().set_params(encoding=OpenSymbols(n_symbols=4), length="given", dtype="float64")
    model.fit(TRAIN, validation=None)
    assert model.encoding_.known_.tolist() == [1, 3]
    everything = [np.array(x) for x in product(range(4), repeat=3)]
    assert np.exp(model.log_prob(everything)).sum() == pytest.approx(1, abs=1e-12)
    # 0 and 2 are as probable as each other, whether training had one of them once or not.
    assert model.log_prob([np.array([1, 0])]) == pytest.approx(model.log_prob([np.array([1, 2])]), abs=1e-12)


@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_over_raw_symbols_and_stream_as_they_are_scored(name: str, length: str) -> None:
    model = MODELS[name].clone().set_params(encoding=OpenSymbols(), length=length, dtype="float64")
    model.fit(TRAIN, validation=None)
    item = np.array([3, 0, 2, 1])
    steps, stream = model.log_prob_steps([item])[0], model.stream()
    for t, x in enumerate(item):
        predicted = model.predict_next(item[:t])
        assert float(predicted.log_prob(torch.tensor(x))) == pytest.approx(steps[t], abs=1e-12)
        assert float(predicted.probs.sum()) == pytest.approx(1, abs=1e-12)
        assert predicted.p_end == (0 if length == "given" else pytest.approx(float(predicted.probs[-1])))
        assert stream.predict_next().probs.tolist() == pytest.approx(predicted.probs.tolist())
        assert stream.update(x) == pytest.approx(steps[t], abs=1e-12)


def test_an_hmm_gives_the_class_a_probability_also_where_training_has_none_of_it() -> None:
    model = sm.HMM(2, encoding=OpenSymbols(), max_iter=3).fit([[0, 1, 0, 1]] * 3)
    assert np.isfinite(model.log_prob([[0, 7, 1]])).all()


def test_it_is_saved_and_loaded(tmp_path: Any) -> None:
    for encoding in (OpenSymbols(), OpenSymbols([1, 3], n_symbols=9)):
        model = sm.NGram(2, encoding=encoding).fit(TRAIN)
        model.save(tmp_path / "model.safetensors")
        loaded = sm.load(tmp_path / "model.safetensors")
        test = [np.array([1, 5, 3, 0])]
        assert np.array_equal(loaded.log_prob(test), model.log_prob(test))
        assert repr(loaded.encoding_) == repr(model.encoding_)
    with pytest.raises(ValueError, match="known symbols should be integers from 0 on"):
        OpenSymbols().restore({"known": np.array([3, 1]), "n_symbols": None})
    with pytest.raises(ValueError, match=r"n_symbols is 2\.5"):
        OpenSymbols().restore({"known": np.array([1]), "n_symbols": 2.5})


def test_what_cannot_be_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match="no symbol occurs twice in the training data"):
        OpenSymbols().fit(Sequences([[0, 1, 2]]))
    with pytest.raises(ValueError, match="symbol 4 is known but n_symbols is 4; raise n_symbols"):
        OpenSymbols(n_symbols=4).fit(X)
    with pytest.raises(ValueError, match="all of the 2 symbols are known"):
        OpenSymbols([0, 1], n_symbols=2).fit(X)
    stated = OpenSymbols(n_symbols=12).fit(X)
    stated.check(0, np.array([11]))
    with pytest.raises(ValueError, match=re.escape("sequence 5 has symbol 12 at position 1 but n_symbols is 12")):
        stated.check(5, np.array([0, 12]))


def test_held_out_symbols_are_of_the_alphabet() -> None:
    """The symbol that one sequence alone has is readable wherever ``validation="auto"`` puts that sequence."""
    x = [np.arange(3)] * 19 + [np.array([0, 7])]
    for seed in range(10):
        model = sm.GRU(d_model=4, max_steps=1, random_state=seed).fit(x)
        assert model.encoding_.size == 8


def test_strings_are_refused() -> None:
    with pytest.raises(ValueError, match="these symbols are strings"):
        OpenSymbols().fit(Sequences([["a", "b", "a"]]))
    encoding = OpenSymbols().fit(Sequences([[4, 2, 4, 2, 9]]))
    with pytest.raises(ValueError, match="sequence 3 is of strings"):
        encoding.check(3, Sequences([["a", "b"]])[0])
