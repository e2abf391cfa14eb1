"""A model of pieces and one of bytes that give the same texts the same probability have the same score per byte."""

import numpy as np
import pytest

import seqmodels as sm

TEXTS = ["aquba", "b", "qu", "ququab", "abbaququbaab"]
END = 0.2


@pytest.fixture
def pieces() -> sm.HMM:
    """Each piece is drawn on its own: a, b, or qu."""
    encoding = sm.BPE(257).fit(sm.Sequences(["ququququ"]))
    p = np.zeros((1, 257))
    p[0, [encoding.spelling().index(part) for part in (b"a", b"b", b"qu")]] = 0.4, 0.3, 0.3
    return sm.HMM.from_parameters([1.0], [[1 - END]], final=[END], emission=p, encoding=encoding, dtype="float64")


@pytest.fixture
def letters() -> sm.HMM:
    """States for a or b, for q, and for the u that follows it: nothing ends after q."""
    p = np.zeros((3, 256))
    p[0, [ord("a"), ord("b")]] = 4 / 7, 3 / 7
    p[1, ord("q")] = p[2, ord("u")] = 1.0
    going = [0.7 * (1 - END), 0.3 * (1 - END), 0.0]
    return sm.HMM.from_parameters(
        [0.7, 0.3, 0.0],
        [going, [0.0, 0.0, 1.0], going],
        final=[END, 0.0, END],
        emission=p,
        encoding=sm.Bytes().fit(sm.Sequences(TEXTS)),
        dtype="float64",
    )


def test_the_same_probabilities_are_the_same_score(pieces: sm.HMM, letters: sm.HMM) -> None:
    by_hand = [np.log(0.4 * 0.3 * 0.3 * 0.4 * (1 - END) ** 3 * END), np.log(0.3 * END), np.log(0.3 * END)]
    for model in (pieces, letters):
        assert model.log_prob(TEXTS[:3]) == pytest.approx(by_hand)
        assert (model.measure_.unit, model.measure_.length) == ("byte", "stop")
    assert pieces.log_prob(TEXTS) == pytest.approx(letters.log_prob(TEXTS), rel=1e-12)
    assert pieces.score(TEXTS) == pytest.approx(letters.score(TEXTS), rel=1e-12)
    n_pieces = [len(pieces.encoding_.encode(text)) for text in TEXTS]
    assert n_pieces != [len(text) for text in TEXTS]


def test_they_stand_in_one_table_with_no_difference(pieces: sm.HMM, letters: sm.HMM) -> None:
    frame = sm.compare({"letters": letters, "pieces": pieces}, TEXTS).frame.set_index("model")
    assert frame.loc["pieces", "difference"] == pytest.approx(0, abs=1e-12)
    assert frame.loc["pieces", "bits"] == pytest.approx(frame.loc["letters", "bits"], rel=1e-12)
    assert frame["kind"].to_dict() == {"letters": "exact", "pieces": "bound"}


def test_pieces_that_are_bytes_score_as_bytes() -> None:
    texts = ["the cat sat", "né, the hat"] * 4
    bytes_, pieces = (
        sm.NGram(3, encoding=encoding, dtype="float64").fit(texts) for encoding in (sm.Bytes(), sm.BPE(256))
    )
    assert pieces.score(texts) == pytest.approx(bytes_.score(texts), rel=1e-12)
    for ours, theirs in zip(pieces.log_prob_steps(texts), bytes_.log_prob_steps(texts), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert pieces.log_prob_marginal(texts, beam=None) == pytest.approx(bytes_.log_prob(texts), rel=1e-12)
