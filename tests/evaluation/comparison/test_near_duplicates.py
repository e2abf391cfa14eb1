"""Near-duplicates: copies with changes are found, sequences that are merely alike are not."""

import time

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.evaluation.comparison import near_duplicates as module
from seqmodels.evaluation.comparison.near_duplicates import _Codes, _windows, _windows_of_item, near_duplicates


def texts(rng, n, length=400):
    return ["".join(rng.choice(list("etaoin shrdlu"), length)) for _ in range(n)]


def changed(text, rng, n):
    letters = list(text)
    for at in rng.choice(len(text), n, replace=False):
        letters[at] = "#"
    return "".join(letters)


def test_windows_are_equal_where_steps_are():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 500).astype(np.uint64)
    for k in (2, 5, 8, 13):
        hashes = _windows(codes, k)
        rows = [tuple(codes[i : i + k]) for i in range(len(codes) - k + 1) if len(set(codes[i : i + k])) > 1]
        assert len(hashes) == len(rows)
        assert len(set(zip(hashes.tolist(), rows, strict=True))) == len(set(rows)) == len(set(hashes.tolist()))


@pytest.mark.parametrize("n_features", [0, 3])
def test_windows_are_those_of_the_whole_however_many_steps_are_read_at_once(n_features, monkeypatch):
    rng = np.random.default_rng(5)
    x = rng.integers(0, 3, 200) if not n_features else rng.normal(size=(200, n_features)).round(1)
    codes = _Codes.of(sm.Sequences([x]))
    whole = np.concatenate(list(_windows_of_item(codes, x, 7)))
    assert len(whole) > 190
    for at_once in (1, 5, 193, 194, 195):
        monkeypatch.setattr(module, "AT_ONCE", at_once)
        np.testing.assert_array_equal(np.concatenate(list(_windows_of_item(codes, x, 7))), whole)


def test_texts_with_few_changes_are_found():
    rng = np.random.default_rng(1)
    train = texts(rng, 50)
    near, far, halves = changed(train[3], rng, 5), changed(train[4], rng, 100), train[5][:150] + texts(rng, 1)[0][:250]
    test = [*texts(rng, 5), near, far, halves, train[6]]
    assert near_duplicates(Data.of(test), Data.of(train)).n == 2  # near and the copy


@pytest.mark.parametrize("kind", ["symbols", "words", "vectors"])
def test_symbols_and_vectors(kind):
    rng = np.random.default_rng(2)
    if kind != "vectors":
        names = np.arange(4) if kind == "symbols" else np.array(["to", "be", "or", "not"], dtype=object)
        train, other = ([names[rng.integers(0, 4, 300)] for _ in range(20)] for _ in range(2))
    else:
        train, other = ([rng.normal(size=(100, 2)).cumsum(0) for _ in range(20)] for _ in range(2))
    n = len(train[0])
    copy = np.concatenate([train[3][: n * 3 // 4], other[0][n * 3 // 4 :]])
    result = near_duplicates(Data.of([*other, copy]), Data.of(train))
    assert result.n == 1
    if kind == "vectors":
        noise = 1e-6 * rng.normal(size=copy.shape)  # as of another format of a file
        assert near_duplicates(Data.of([copy + noise, copy + 0.5]), Data.of(train)).n == 1


def test_silence_and_sequences_that_are_too_short_do_not_count():
    train = Data.of([np.zeros(100, dtype=int), np.arange(100) % 7])
    assert near_duplicates(Data.of([np.zeros(50, dtype=int), np.array([0, 1])]), train).n == 0
    assert near_duplicates(train, None).n == 0
    text = "to be, or not to be, that is the question"
    result = near_duplicates(Data.of([text[:n] for n in range(1, len(text) + 1)]), Data.of([text]))
    assert result.n == len(text) - result.window + 1 > 0


def test_labels_that_last_are_no_near_duplicates_but_copies_of_the_inputs_are():
    rng = np.random.default_rng(6)

    def pairs(n):
        """Frames, and labels that change once."""
        return [rng.normal(size=(120, 2)) for _ in range(n)], [np.repeat([0, 1], 60) for _ in range(n)]

    (x, y), (other_x, other_y) = pairs(12), pairs(6)
    train = Data.of(x, y)
    assert near_duplicates(Data.of(other_y), Data.of(y)).n == 6
    assert near_duplicates(Data.of(other_x, other_y), train).n == 0
    copy = np.concatenate([x[0][:90], other_x[0][90:]])
    assert near_duplicates(Data.of([copy, other_x[1]], other_y[:2]), train).n == 1
    constant = np.zeros(120, dtype=int)  # has no windows, so that the input decides
    assert near_duplicates(Data.of([copy, other_x[1]], [constant, constant]), train).n == 1
    assert near_duplicates(Data.of([copy], [rng.integers(0, 2, 120)]), train).n == 0  # another target


def test_the_table_names_the_windows_of_inputs_and_targets():
    rng = np.random.default_rng(7)
    x, y = texts(rng, 12, 100), texts(rng, 12, 100)
    x[-1], y[-1] = changed(x[0], rng, 2), changed(y[0], rng, 2)
    model = sm.TransformerSeq2Seq(d_model=8, max_steps=1)
    result = sm.compare({"transformer": model}, x[:10], y[:10], test=(x[10:], y[10:]))
    attrs = result.frame.attrs
    assert attrs["n_near_duplicates"] == 1
    windows = f"windows of {attrs['shingle']} bytes, and of {attrs['shingle_of_inputs']} steps of their inputs,"
    assert f"1 of the held-out sequences share more than half of their {windows} with" in result.how_to_read()


def test_the_table_counts_them_beside_exact_ones():
    rng = np.random.default_rng(3)
    train = texts(rng, 20, 100)
    test = [*texts(rng, 6, 100), changed(train[0], rng, 2), train[1]]
    with pytest.warns(UserWarning, match="1 of the 8 test sequences also occur"):
        result = sm.compare({"gram": sm.NGram(2)}, train, test=test)
    assert result.frame.attrs["n_near_duplicates"] == 1
    window = result.frame.attrs["shingle"]
    assert f"1 more of the held-out sequences share more than half of their windows of {window} bytes" in (
        result.how_to_read()
    )


def test_time_is_linear():
    rng = np.random.default_rng(4)
    times = []
    for n in (200_000, 800_000):
        train = Data.of(["".join(map(chr, rng.integers(97, 123, n)))])
        began = time.process_time()
        near_duplicates(train, train)
        times.append(time.process_time() - began)
    assert times[1] < 8 * times[0] + 0.2
