from __future__ import annotations

from typing import Literal

import numpy as np

from seqmodels.annotations import admits, in_words


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
