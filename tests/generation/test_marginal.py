"""The probability of a text over all its tokenisations: enumeration of every one is the oracle."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

import seqmodels as sm
from seqmodels.encodings.examples import Example
from seqmodels.generation import MergedStates
from seqmodels.generation.marginal import (
    KeepBest,
    Lattice,
    Partial,
    UnbiasedResampling,
    log_prob_over_tokenisations,
)
from tests.generation.markov import CHAIN, FIRST, Markov

TRAINING = ["the cat sat on the mat, the cat and the hat"] * 3 + ["at the heath the naïve cat"] * 2
TEXTS = ["the cat", "the né", "heat hat"]
SMALL = {"d_model": 8, "n_layers": 1, "max_steps": 20, "batch_size": 4}
MODELS: dict[str, Callable[..., sm.SequenceModel]] = {
    "ngram": partial(sm.NGram, 3),
    "hmm": partial(sm.HMM, 3, observation=sm.Categorical(0.1), max_iter=5),
    "lstm": partial(sm.LSTM, **SMALL),
    "transformer": partial(sm.Transformer, n_heads=2, context=4, **SMALL),
}


@cache
def fitted(name: str, length: str = "stop", conditional: bool = False) -> sm.SequenceModel:
    model = MODELS[name](encoding=sm.BPE(268), length=length, dtype="float64")
    return model.fit(TRAINING, TRAINING if conditional else None, validation=None)


def spellings(text: bytes, spelling: list[bytes]) -> Iterator[list[int]]:
    if not text:
        yield []
    for symbol, part in enumerate(spelling):
        if text.startswith(part):
            yield from ([symbol, *rest] for rest in spellings(text[len(part) :], spelling))


def enumerated(model: sm.SequenceModel, text: str, source: str | None = None) -> float:
    """Scored in batches, one tokenisation at a time."""
    given = None if source is None else model.encoding_.encode(source)
    ways = list(spellings(text.encode(), model.encoding_.spelling()))
    assert len(ways) > 1
    return float(logsumexp([s.sum() for s in model._steps([Example(np.array(way), given) for way in ways])]))


@pytest.mark.parametrize("length", ["stop", "given"])
@pytest.mark.parametrize("name", MODELS)
def test_all_spellings_are_summed(name: str, length: str) -> None:
    model = fitted(name, length)
    exact = [enumerated(model, text) for text in TEXTS]
    assert model.log_prob_marginal(TEXTS, beam=None) == pytest.approx(exact, rel=1e-9)
    assert (model.log_prob(TEXTS) < exact).all()


@pytest.mark.parametrize("name", ["ngram", "lstm"])
def test_targets_are_summed_over_and_sources_are_not(name: str) -> None:
    model = fitted(name, conditional=True)
    exact = enumerated(model, "the cat", "the hat")
    assert model.log_prob_marginal(["the hat"], ["the cat"], beam=None) == pytest.approx([exact], rel=1e-9)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", MODELS)
def test_a_beam_lies_between_the_usual_spelling_and_all(name: str) -> None:
    model = fitted(name)
    usual, exact = model.log_prob(TEXTS), model.log_prob_marginal(TEXTS, beam=None)
    for beam in (1, 3, 10):
        found = model.log_prob_marginal(TEXTS, beam=beam)
        assert (usual <= found).all()
        assert (found <= exact + 1e-9).all()
    assert (model.log_prob_marginal(TEXTS, beam=3) > usual).any()
    assert model.log_prob_marginal(TEXTS, beam=10**6) == pytest.approx(exact, rel=1e-12)


@pytest.mark.slow
def test_what_is_drawn_is_right_in_the_mean() -> None:
    """Nine letters alike in pieces of one, two and three, by a chain over the pieces that is known."""
    spelling, text = [b"a", b"aa", b"aaa"], b"a" * 9
    first, going = FIRST.double().numpy(), 0.7 * CHAIN.double().numpy()
    ways = list(spellings(text, spelling))
    exact = sum(first[way[0]] * np.prod([going[a, b] for a, b in pairwise(way)]) * 0.3 for way in ways)
    rng, lattice = np.random.default_rng(0), Lattice.from_spelling(np.zeros(9, dtype=np.int64), spelling)
    drawn = [
        np.exp(log_prob_over_tokenisations(Markov(0.3), apart, lattice, UnbiasedResampling(rng), 1, has_end=True))
        / exact
        for _ in range(150)
    ]
    assert np.std(drawn) > 0.1
    assert abs(np.mean(drawn) - 1) < 3 * np.std(drawn) / np.sqrt(len(drawn))
    everything = log_prob_over_tokenisations(Markov(0.3), apart, lattice, KeepBest(), None, has_end=True)
    assert everything == pytest.approx(np.log(exact), rel=1e-6)


def apart(log_weights: list[float], states: list[Any]) -> MergedStates:
    return [([i], state) for i, state in enumerate(states)]


def test_drawing_keeps_every_weight_in_the_mean() -> None:
    weights = np.array([0.5, 0.01, 0.2, 0.05, 0.04, 0.15, 0.05])
    partials = [Partial(float(np.log(w)), None, i, canonical=False) for i, w in enumerate(weights)]
    rng, n = np.random.default_rng(0), 4000
    found = np.zeros((n, len(weights)))
    for row in found:
        kept = UnbiasedResampling(rng)(partials, 3)
        assert len(kept) == 3
        for partial_ in kept:
            row[partial_.symbol] += np.exp(partial_.log_weight)
    np.testing.assert_allclose(found.mean(0), weights, atol=4 * found.std(0).max() / np.sqrt(n))
    assert (found[:, 0] == pytest.approx(0.5)) or (found[:, 0] > 0).all()  # the heaviest always goes on


def test_what_is_drawn_depends_on_the_text_and_the_seed_alone() -> None:
    drawn = partial(fitted("lstm").log_prob_marginal, beam=1, pruning="drawn")
    together = drawn(TEXTS)
    np.testing.assert_allclose(drawn(TEXTS[::-1])[::-1], together, rtol=1e-5)
    assert drawn(TEXTS, random_state=1).tolist() != together.tolist()


def test_characters_have_spellings_too_and_bytes_have_one() -> None:
    characters = sm.NGram(2, encoding=sm.Characters()).fit(["né", "en né"])
    exact = [enumerated_characters(characters, "née")]
    assert characters.log_prob_marginal(["née"], beam=None) == pytest.approx(exact)
    by_bytes = sm.NGram(2).fit(["né", "en né"])
    assert by_bytes.log_prob_marginal(["née"]).tolist() == by_bytes.log_prob(["née"]).tolist()


def enumerated_characters(model: sm.SequenceModel, text: str) -> float:
    ways = list(spellings(text.encode(), model.encoding_.spelling()))
    assert len(ways) == 2 * 2 * 2  # each letter, or its bytes
    return float(logsumexp([s.sum() for s in model._steps([Example(np.array(way)) for way in ways])]))


def test_hmms_and_ngrams_are_exact_on_texts_whose_spellings_cannot_be_listed() -> None:
    """One state: ``p(text) = Σ_i p(head of i bytes) p(piece)``, by hand, a byte at a time."""
    model = sm.HMM(1, encoding=sm.BPE(268), observation=sm.Categorical(0.1), length="given", dtype="float64")
    text = "the cat sat on the mat " * 5
    model.fit(TRAINING)
    p, raw = model.emission_[0], text.encode()
    heads = np.array([1.0] + [0.0] * len(raw))
    for at in range(len(raw)):
        for symbol, part in enumerate(model.encoding_.spelling()):
            if raw.startswith(part, at):
                heads[at + len(part)] += heads[at] * p[symbol]
    assert model.log_prob_marginal([text], beam=None) == pytest.approx([np.log(heads[-1])], rel=1e-9)


def test_what_cannot_be_is_refused() -> None:
    model = fitted("ngram")
    with pytest.raises(ValueError, match="beam is 0; pass at least 1"):
        model.log_prob_marginal(TEXTS, beam=0)
    with pytest.raises(ValueError, match="pruning is 'worst'"):
        model.log_prob_marginal(TEXTS, pruning="worst")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the model was fitted as"):
        model.log_prob_marginal(TEXTS, TEXTS)
