from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from seqmodels.annotations import admits, check, in_words
from seqmodels.hmm import HMM


def test_annotations_admit_what_they_say():
    assert admits(float, 3)
    assert not admits(float, "3")
    assert not admits(int, False)
    assert admits(Literal["a"] | None, None)
    assert not admits(Literal[1], True)
    assert admits(np.ndarray, [[1]])
    assert not admits(np.ndarray, 1)
    assert in_words(int | None) == "an integer or none"
    assert admits(list[float], np.zeros(2))


def test_a_number_is_the_same_as_another_type_where_that_is_asked_for() -> None:
    for key, value in (("verbose", 1), ("verbose", 2), ("max_iter", 20.0), ("tol", 0), ("warm_start", 0)):
        check(HMM, key, value, any_number=True)
    for key, value in (
        ("verbose", "2"),
        ("max_iter", 20.5),
        ("max_iter", float("nan")),
        ("max_iter", "20"),
        ("max_iter", 1e300),
    ):
        with pytest.raises(ValueError, match=f"{key} of HMM is"):
            check(HMM, key, value, any_number=True)
    with pytest.raises(ValueError, match="verbose of HMM is 1"):
        check(HMM, "verbose", 1)
