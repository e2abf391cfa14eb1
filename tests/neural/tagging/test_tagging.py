from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import seqmodels as sm
from seqmodels.encodings.examples import Example
from seqmodels.neural.model import NeuralModel, _limit
from seqmodels.neural.network import Source
from seqmodels.neural.recurrent.gru import GRUNetwork
from seqmodels.neural.recurrent.lstm import LSTMNetwork
from seqmodels.neural.tagging.network import (
    BidirectionalEncoder,
    CausalEncoder,
    SourceEncoder,
    TaggerNetwork,
    TransformerEncoder,
)
from seqmodels.neural.transformer.config import TransformerConfig

B, S, D = 3, 6, 8
LENGTHS = torch.tensor([6, 2, 5])
MASK = torch.arange(S) < LENGTHS[:, None]
SMALL: dict[str, Any] = {"d_model": 16, "n_layers": 1, "batch_size": 8, "dtype": "float64"}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def built(make: Callable[[], Any]) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().double().eval().requires_grad_(False)


CONFIG = TransformerConfig(d_model=D, n_layers=2, n_heads=2, dropout=0.0)
ENCODERS: dict[str, Callable[[], SourceEncoder]] = {
    "lstm-both": lambda: BidirectionalEncoder(lambda: LSTMNetwork(D), 2),
    "gru-both": lambda: BidirectionalEncoder(lambda: GRUNetwork(D), 1),
    "lstm-one": lambda: CausalEncoder(LSTMNetwork(D, 2)),
    "transformer-both": lambda: TransformerEncoder(CONFIG, causal=False),
    "transformer-one": lambda: TransformerEncoder(CONFIG, causal=True),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_padding_has_no_influence(name: str) -> None:
    encoder, source = built(ENCODERS[name]), draw(B, S, D)
    found = encoder(source, MASK)
    other = encoder(torch.where(MASK[..., None], source, 7.0), MASK)
    for i, n in enumerate(LENGTHS.tolist()):
        alone = encoder(source[i : i + 1, :n], MASK[i : i + 1, :n])[0]
        torch.testing.assert_close(found[i, :n], alone, rtol=0, atol=1e-12)
        torch.testing.assert_close(other[i, :n], found[i, :n], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ENCODERS)
def test_one_way_sees_the_past_and_both_ways_all(name: str) -> None:
    encoder, source = built(ENCODERS[name]), draw(1, S, D)
    changed = source.clone()
    changed[:, 3, 0] += 1.0  # not all features: a layer norm would take that away
    same = torch.isclose(encoder(source, MASK[:1]), encoder(changed, MASK[:1]), rtol=0, atol=1e-12).all(-1)[0]
    assert_array_equal(same, [name.endswith("one")] * 3 + [False] * 3)


def test_both_ways_are_torchs_own_bidirectional_lstm() -> None:
    encoder, source = built(lambda: BidirectionalEncoder(lambda: LSTMNetwork(D), 1)), draw(B, S, D)
    own = nn.LSTM(D, D, batch_first=True, bidirectional=True).double()
    for name, parameter in encoder.forwards[0].rnn.named_parameters():
        own.get_parameter(name).data.copy_(parameter)
        own.get_parameter(f"{name}_reverse").data.copy_(encoder.backwards[0].rnn.get_parameter(name))
    packed = pack_padded_sequence(source, LENGTHS, batch_first=True, enforce_sorted=False)
    states = pad_packed_sequence(own(packed)[0], batch_first=True)[0]
    expected = encoder.combine[0](states)
    torch.testing.assert_close(encoder(source, MASK)[MASK], expected[MASK], rtol=0, atol=1e-12)


@pytest.mark.parametrize("autoregressive", [False, True])
def test_the_network_adds_the_past_to_the_states_of_the_source(autoregressive: bool) -> None:
    decoder = LSTMNetwork(D) if autoregressive else None
    network = built(lambda: TaggerNetwork(CausalEncoder(GRUNetwork(D)), decoder))
    source, inputs = Source(draw(B, S, D), MASK), draw(B, S, D, seed=1)
    states = network.encoder(source.values, source.mask)
    hidden, _ = network(inputs, network.start(B, source))
    if decoder is not None:
        past, _ = decoder(inputs + network.project(states), decoder.start(B))
        states = states + past
    torch.testing.assert_close(hidden, states, rtol=0, atol=1e-12)


def neighbours(n: int, length: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Each label is the symbol after, that before if there is none: who sees the past alone has to guess."""
    rng = np.random.default_rng(seed)
    X = [rng.integers(4, size=length) for _ in range(n)]
    return X, [np.append(x[1:], x[-2]) for x in X]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("model", "sees"),
    [
        (sm.LSTMTagger(lr=2e-2, max_steps=80, **SMALL), True),
        (sm.LSTMTagger(bidirectional=False, autoregressive=False, lr=2e-2, max_steps=40, **SMALL), False),
        (sm.TransformerTagger(autoregressive=False, positions="t5", lr=2e-2, max_steps=100, **SMALL), True),
        (sm.TransformerTagger(causal=True, autoregressive=False, max_steps=40, **SMALL), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_ahead_is_known_only_to_who_looks(model: NeuralModel, sees: bool) -> None:
    model.fit(*neighbours(48, 20, 0), validation=None)
    X, y = neighbours(20, 20, 1)
    right = np.mean([found == expected for found, expected in zip(model.predict(X), y, strict=True)])
    if sees:
        assert right > 0.9
        assert model.score(X, y) > -0.4
    else:
        assert right < 0.5
        assert model.score(X, y) < -0.9 * np.log(4)


def test_long_pairs_are_trained_in_pieces_cut_alike() -> None:
    X, _ = neighbours(1, 400, 2)
    options = SMALL | {"batch_size": 4, "lr": 2e-2, "max_steps": 60}
    model = sm.LSTMTagger(piece=16, autoregressive=False, **options).fit(X, [3 - x for x in X], validation=None)
    assert_array_equal(model.predict(X)[0], 3 - X[0])


def test_held_out_pairs_are_cut_alike() -> None:
    parts = _limit([Example(np.arange(1300), np.arange(1300) + 1, n_units=1300)], 2000, aligned=True)
    assert [len(part.values) for part in parts] == [512, 512, 276]
    assert all(part.source is not None and np.array_equal(part.source, part.values + 1) for part in parts)


@pytest.mark.parametrize("cls", [sm.LSTMTagger, sm.TransformerTagger])
def test_independent_targets_do_not_see_each_other_and_the_best_of_all_is_the_best_of_each(cls: Any) -> None:
    X, y = neighbours(8, 5, 3)
    model = cls(autoregressive=False, max_steps=5, **SMALL).fit(X, y, validation=None)
    strings = [np.array(s) for s in product(range(4), repeat=5)]
    steps = np.array(model.log_prob_steps([X[0]] * len(strings), strings))
    table = np.array([[steps[[s[t] == k for s in strings], t] for k in range(4)] for t in range(5)])  # (5, 4, 256)
    assert_allclose(table, table[..., :1].repeat(256, -1), rtol=0, atol=1e-12)
    assert_array_equal(model.predict(X[:1])[0], strings[int(steps.sum(1).argmax())])
    assert_array_equal(model.predict(X[:1], n_beams=1)[0], model.predict(X[:1])[0])
    assert not any("skip" in name or "begin" in name for name, _ in model.module_.named_parameters())


def test_beams_of_dependent_targets_find_no_worse_than_greed() -> None:
    X, y = neighbours(8, 6, 4)
    model = sm.LSTMTagger(max_steps=10, **SMALL).fit(X, y, validation=None)
    greedy, wide = (model.log_prob(X, model.predict(X, n_beams=n)) for n in (1, 8))
    assert (wide >= greedy - 1e-9).all()
    assert [len(each.item) for each in model.n_best(3, source=X[0])] == [6, 6, 6]


@pytest.mark.slow
def test_vectors_given_vectors_are_framewise_regression() -> None:
    rng = np.random.default_rng(5)
    X = [rng.standard_normal((n, 2)) for n in (30, 25, 40, 35)]
    y = [x @ [[2.0], [-1.0]] + 0.1 * rng.standard_normal((len(x), 1)) for x in X]
    options = SMALL | {"lr": 1e-2, "max_steps": 150}
    model = sm.LSTMTagger(autoregressive=False, observation=sm.GaussianMixture(1), **options)
    model.fit(X, y, validation=None)
    known = -0.5 * np.log(2 * np.pi * np.e * 0.01)
    assert model.measure_ == sm.Measure("R^1", "frame", "given", "exact", True)
    assert known - 0.8 < model.score(X, y) < known + 0.5
    changed = np.concatenate([y[0][:10] + 3.0, y[0][10:]])
    before, after = (model.log_prob_steps(X[:1], [each])[0] for each in (y[0], changed))
    assert_allclose(after[10:], before[10:], rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="vectors, which have densities"):
        model.predict(X)


def test_text_in_as_many_bytes_is_a_target_too() -> None:
    X, y = ["to be", "or not"], ["TO BE", "OR NOT"]
    model = sm.TransformerTagger(max_steps=3, **SMALL).fit(X, y, validation=None)
    assert model.measure_ == sm.Measure("text", "byte", "given", "exact", True)
    assert [len(each) for each in model.log_prob_steps(X, y)] == [5, 6]
    with pytest.raises(ValueError, match="sequence 1 has 6 steps in X but 7 in y"):
        model.score(X, ["TO BE", "OR NÖT"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": "stop"}, "length is 'stop', but the targets of LSTMTagger are as long"),
        ({"ignore_source": True}, "for p\\(y\\) as a baseline use LSTM"),
        ({"cell": "rnn"}, 'cell is \'rnn\'; pass "lstm", "gru" or "elman"'),
        ({"autoregressive": False, "architecture__tie_embeddings": True}, "no table of embeddings to tie"),
        ({"piece": 0}, "piece is 0"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_an_earlier_fit_alone(options: dict, message: str) -> None:
    X, y = neighbours(4, 5, 6)
    model = sm.LSTMTagger(max_steps=1, **SMALL).fit(X, y, validation=None)
    before, kept = model.log_prob(X, y), model.get_params(deep=False)
    with pytest.raises(ValueError, match=message):
        model.set_params(**options).fit(X, y)
    with pytest.raises(ValueError, match=r"LSTMTagger is p\(y \| x\)"):
        model.set_params(**kept).fit(X)
    assert_allclose(model.log_prob(X, y), before, rtol=1e-5, atol=1e-5)


def test_labels_and_what_they_label_have_an_encoding_each() -> None:
    X, y = [np.array([7, 0, 5]), np.array([1, 2])], [np.array([1, 0, 1]), np.array([0, 1])]
    for model in (sm.LSTMTagger(encoding=sm.Symbols(2), max_steps=1, **SMALL), sm.HMMTagger(encoding=sm.Symbols(2))):
        model.fit(X, y, validation=None)
        assert (model.encoding_.size, model.source_encoding_.size) == (2, 8)
