"""Mixtures of models of different encodings: what is mixed, and that all texts together have a probability of one."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import logsumexp

import seqmodels as sm
from seqmodels.encodings import Bytes
from seqmodels.wrappers.mixture.different_encodings import CommonCuts

TEXT = "she sells sea shells by the sea shore, and the shells that she sells are sea shells. " * 6
TEXTS = [TEXT, TEXT[5:], TEXT[9:200], "by the shore — né, né."]


def members(length: str = "stop", n_symbols: int = 275) -> list[sm.SequenceModel]:
    options: dict[str, Any] = {"length": length, "dtype": "float64"}
    bpe = sm.BPE(n_symbols)
    return [
        sm.NGram(3, encoding=sm.Characters(), **options),
        sm.NGram(2, encoding=bpe, **options),
        sm.GRU(d_model=6, max_steps=2, encoding=bpe, **options),
        sm.NGram(2, **options),
    ]


def segments(text: str, cuts: CommonCuts) -> list[str]:
    """As text; the last may be empty."""
    values = Bytes().fit(sm.Sequences([text])).encode(text)
    ends = [*(cuts.places(values) + 1), len(values)]
    return [bytes(values[a:b].astype(np.uint8)).decode() for a, b in zip([0, *ends], ends, strict=False)]


def test_segments_end_with_the_first_byte_of_a_word() -> None:
    mixture = sm.Mixture(members(), held_out=0.3).fit(TEXTS)
    assert mixture.cuts_ is not None
    assert segments("she sells sea — né, the!", mixture.cuts_) == ["she ", "sells ", "sea ", "— né, ", "the!", ""]


@pytest.mark.parametrize("length", ["given", "stop"])
def test_a_posterior_mixture_is_one_of_whole_texts(length: str) -> None:
    fitted = [member.fit(TEXTS, validation=None) for member in members(length)]
    prior = [0.1, 0.2, 0.3, 0.4]
    mixture = sm.Mixture.from_fitted(fitted, weights="posterior", prior=prior)
    new = ["sea shells — né é\n\n x", "s", " ", TEXT[30:130]]
    each = [np.log(w) + member.log_prob(new) for w, member in zip(prior, fitted, strict=True)]
    assert_allclose(mixture.log_prob(new), logsumexp(each, axis=0), rtol=1e-10)
    assert (mixture.measure_.kind, mixture.measure_.unit, mixture.context_) == ("bound", "byte", None)


def by_first_bytes(model: sm.SequenceModel, text: str, cuts: CommonCuts) -> list[float]:
    """Of each segment by one model: from predictions of the next symbol, one after the other."""
    encoding, cursor = model.encoding_, model.cursor()
    spelling = encoding.spelling()
    values = Bytes().fit(sm.Sequences([text])).encode(text)
    places, state, at, log_prob, reached = cuts.places(values), cursor.start(), 0, 0.0, [0.0]
    for symbol in [*encoding.encode(text), encoding.size]:
        log_p = cursor.distribution(state).log_probs()[0].numpy()
        if at in places:
            same = [i for i, s in enumerate(spelling) if s[0] == values[at]]
            if isinstance(encoding, sm.Characters | Bytes):
                same = [symbol]
            reached.append(log_prob + logsumexp(log_p[same]))
        log_prob += log_p[symbol]
        if symbol < encoding.size:
            state, at = cursor.advance(state, torch.tensor([int(symbol)])), at + len(spelling[symbol])
    return np.diff([*reached, log_prob]).tolist()


@pytest.mark.parametrize("weights", ["static", "switching"])
def test_segments_are_mixed_by_weights_of_their_past(weights: Any) -> None:
    mixture = sm.Mixture(members(), weights=weights, held_out=0.3, dtype="float64").fit(TEXTS)
    text, cuts = "the sea shells — né: she, sells!", mixture.cuts_
    assert cuts is not None
    log_p = np.column_stack([by_first_bytes(member, text, cuts) for member in mixture.members_])
    expected = mixture.weights_.steps(log_p)
    (steps,) = mixture.log_prob_steps([text])
    ends = [*cuts.places(np.frombuffer(text.encode(), np.uint8).astype(int)), len(text.encode())]
    assert_allclose(steps[ends], expected, rtol=1e-9)
    assert len(steps) == len(text.encode()) + 1
    assert (np.delete(steps, ends) == 0).all()


@pytest.mark.parametrize("weights", ["static", "posterior", "switching"])
@pytest.mark.parametrize("length", ["given", "stop"])
def test_the_probabilities_of_all_texts_sum_to_one_at_most(weights: Any, length: str) -> None:
    """Of an alphabet of three, where texts of the merged pieces are probable: mixed at every piece it is more."""
    alphabet = "ab,"
    train = ["ab", "ab,ab", "a,b", ",ab", "b,ab", "ab,", "aba", "ab,a"]
    options: dict[str, Any] = {"length": length, "dtype": "float64"}
    fitted = [
        sm.NGram(3, encoding=sm.Characters(), **options).fit(train),
        sm.NGram(2, encoding=sm.BPE(258), **options).fit(train),
    ]
    mixture = sm.Mixture.from_fitted(fitted, train, weights=weights)
    assert mixture.cuts_ is not None
    assert mixture.cuts_.can_cut[ord("a"), ord(",")]
    assert not mixture.cuts_.can_cut[ord("a"), ord("b")]
    totals = []
    for n in range(1, 6):
        texts = ["".join(each) for each in product(alphabet, repeat=n)]
        totals.append(np.exp(mixture.log_prob(texts)).sum())
    total = max(totals) if length == "given" else sum(totals)
    assert 0.3 < total <= 1
    assert len(set(np.round(mixture.log_prob(["ab,ab", "a,bab", ",,,,,"]), 6))) == 3


@pytest.mark.slow
def test_mixed_at_every_piece_they_would_sum_to_more_than_one() -> None:
    """A model of characters gives ``a``, ``b`` and ``ab`` more than one together; over segments the sum stays below."""
    rng = np.random.default_rng(0)
    drawn = ["".join(rng.choice(["a", "b"], size=n)) for n in rng.geometric(0.4, size=200)]
    pairs = ["ab" * n for n in rng.geometric(0.6, size=200)]
    fitted = [
        sm.NGram(1, encoding=sm.Characters(), dtype="float64").fit(drawn),
        sm.NGram(1, encoding=sm.BPE(257), dtype="float64").fit(pairs),
    ]
    mixture = sm.Mixture.from_fitted(fitted, prior=[0.5, 0.5])
    texts = ["".join(each) for n in range(1, 11) for each in product("ab", repeat=n)]
    steps = [member.log_prob_steps(texts) for member in fitted]
    at_every_piece = 0.0
    for text, characters, pieces in zip(texts, *steps, strict=True):
        encoding = fitted[1].encoding_
        ends = np.append(encoding.last_unit(encoding.encode(text)) + 1, len(text) + 1)
        each = [np.diff(np.append(0.0, np.cumsum(s)[ends - 1])) for s in (characters, pieces)]
        at_every_piece += np.exp(np.logaddexp(*each).sum() - len(ends) * np.log(2))
    assert at_every_piece > 1.005
    assert 0.7 < np.exp(mixture.log_prob(texts)).sum() <= 1


@pytest.mark.parametrize("text", ["a\n\nb c\n \n d", "né É ünd — “so”, \u00a0 x", "it's 'll we'll' '", "a  b   c\t\td"])
def test_symbols_before_a_cut_do_not_depend_on_what_follows(text: str) -> None:
    train = [TEXT + text * 30]
    encodings = [e.fit(sm.Sequences(train)) for e in (sm.Characters(), sm.BPE(300), Bytes())]
    cuts, values = CommonCuts.of(encodings), np.frombuffer(text.encode(), np.uint8).astype(np.int64)
    for encoding in encodings:
        whole = encoding.encode(text)
        for c in cuts.places(values):
            head = encoding.encode(bytes(values[:c].astype(np.uint8)).decode())
            assert head.tolist() == whole[: len(head)].tolist()
            for tail in ("", "'ll", "  ", "é"):
                other = encoding.encode(bytes(values[: c + 1].astype(np.uint8)).decode() + tail)
                assert other[: len(head)].tolist() == head.tolist()


def test_it_is_kept_and_scores_in_any_batch(tmp_path: Any) -> None:
    mixture = sm.Mixture(members(), weights="switching", held_out=0.3, refit=[True, False, False, True]).fit(TEXTS)
    before = mixture.log_prob(TEXTS)
    assert_allclose(mixture.log_prob(TEXTS[::-1])[::-1], before, rtol=1e-6)
    mixture.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    assert_allclose(loaded.log_prob(TEXTS), before, rtol=1e-6)
    assert loaded.measure_ == mixture.measure_
    with pytest.raises(
        ValueError, match="members of this Mixture read by different encodings, so it predicts no steps"
    ):
        loaded.sample(1)
    assert not loaded._predicts_steps
    with pytest.warns(UserWarning, match="fewer than 5 clusters"):
        table = sm.compare({"mixture": loaded, "n-gram": sm.NGram(3).fit(TEXTS)}, TEXTS, baseline="n-gram").frame
    assert table.set_index("model").loc["mixture", "kind"] == "bound"


def test_a_single_text_is_cut_between_characters() -> None:
    text = "né ü é — " * 30
    for fraction in (0.11, 0.12, 0.13, 0.14):
        assert np.isfinite(sm.Mixture(members()[:2], held_out=fraction).fit([text]).score([text]))


def test_targets_are_mixed_given_sources() -> None:
    fitted = sm.Mixture(members()[:2], held_out=0.4).fit(
        ["né a", "sea", "by", "the"], ["she sells", "sea", "a b", "né"]
    )
    assert np.isfinite(fitted.log_prob(["né"], ["sea shells"])).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "gated"}, "weights='gated' mixes the symbols of one encoding"),
        ({"models": [sm.NGram(2, encoding=sm.Symbols(3)), sm.NGram(2, encoding=sm.BPE())]}, "read by different"),
    ],
)
def test_what_cannot_be_mixed_apart_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.Mixture(**({"models": members()} | options)).fit(TEXTS)
    fitted = [member.fit(TEXTS, validation=None) for member in members()[:2]]
    with pytest.raises(ValueError, match="weights='gated' mixes the symbols of one encoding"):
        sm.Mixture.from_fitted(fitted, TEXTS, weights="gated")


def test_an_encoding_for_all_is_read_by_all() -> None:
    mixture = sm.Mixture(members(), held_out=0.3, encoding=Bytes()).fit(TEXTS)
    assert mixture.cuts_ is None
    assert mixture.measure_.kind == "exact"
    assert (mixture.members_[1].encoding_.size, mixture._predicts_steps) == (256, True)
