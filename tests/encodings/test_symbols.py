from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from seqmodels.data import on_disk
from seqmodels.encodings import Symbols
from seqmodels.sequences import Sequences
from seqmodels.sequences.items import MANY

X = Sequences([[0, 3, 1], [2]])


def test_symbols_are_left_as_they_are() -> None:
    encoding = Symbols().fit(X)
    for item in X:
        steps = encoding.encode(item)
        assert steps.dtype == np.int64
        np.testing.assert_array_equal(steps, np.asarray(item))
        np.testing.assert_array_equal(np.asarray(encoding.decode(steps)), np.asarray(item))
        assert encoding.last_unit(steps).tolist() == list(range(len(steps)))
        assert encoding.log_det(item) == 0.0
    assert [steps.tolist() for steps in encoding.encode_all(X)] == [[0, 3, 1], [2]]
    assert not encoding.has_log_det
    assert [a.tolist() for a in encoding.affine()] == [[0.0], [1.0]]


def test_the_alphabet_is_the_datas_or_the_users() -> None:
    assert Symbols().fit(X).size == 4
    assert Symbols(n_symbols=9).fit(X).size == 9
    with pytest.raises(ValueError, match="the data have symbol 3 but n_symbols is 3; raise n_symbols"):
        Symbols(n_symbols=3).fit(X)


def test_an_unknown_symbol_is_named_with_the_way_out() -> None:
    encoding = Symbols().fit(X)
    encoding.check(0, np.array([0, 3]))
    message = "sequence 5 has symbol 4 at position 1 but the model knows 0 to 3; pass encoding=Symbols(n_symbols=8)"
    with pytest.raises(ValueError, match=re.escape(message)):
        encoding.check(5, np.array([0, 4, 7]))


@pytest.mark.parametrize("n", [2, MANY])
def test_an_unknown_symbol_is_found_among_few_sequences_and_many(n: int) -> None:
    encoding, known = Symbols().fit(X), [np.array([0, 3])] * (n - 1)
    encoding.check_all(Sequences([*known, np.array([1, 2])]))
    with pytest.raises(ValueError, match=f"sequence {n - 1} has symbol 4 at position 0"):
        encoding.check_all(Sequences([*known, np.array([4])]))


def test_named_symbols_and_those_on_disk_are_encoded_together_as_each_is(tmp_path: Path) -> None:
    words = Sequences([["b", "a"], ["c"]])
    assert [steps.tolist() for steps in Symbols().fit(words).encode_all(words)] == [[1, 0], [2]]
    np.save(tmp_path / "x.npy", np.array([3, 1], np.uint16))
    (steps,) = Symbols().fit(X).encode_all(on_disk(tmp_path / "x.npy"))
    assert steps.dtype == np.int64
    assert steps.tolist() == [3, 1]


def test_state_is_all_there_is() -> None:
    assert Symbols().restore(Symbols(n_symbols=9).fit(X).state()).size == 9
    assert not hasattr(Symbols().fit(X).clone(), "size")
