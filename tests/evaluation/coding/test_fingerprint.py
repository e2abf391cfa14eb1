"""The fingerprint of a model: the same from its file, another for whatever changes a figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import seqmodels as sm
from seqmodels.evaluation.coding.fingerprint import digest_of_items, digest_of_model

TEXTS = ["to be or not to be", "that is the question"]


def test_a_file_has_the_same_and_another_model_another(tmp_path: Path) -> None:
    seen = set()
    for model in (
        sm.NGram(2).fit(TEXTS),
        sm.NGram(2, adaptive=True).fit(TEXTS),
        sm.NGram(np.int64(3)).fit(TEXTS[:1]),  # which a file keeps as 3
        sm.NGram(2, encoding=sm.Characters()).fit(TEXTS),
        sm.GRU(d_model=4, max_steps=1).fit(TEXTS),
        sm.GRU(d_model=4, max_steps=1, random_state=1).fit(TEXTS),
        sm.Mixture([sm.NGram(1), sm.NGram(2)]).fit(TEXTS),
        sm.Mixture([sm.NGram(1), sm.NGram(3)]).fit(TEXTS),
    ):
        model.save(tmp_path / "model")
        digest = digest_of_model(model)
        assert digest_of_model(sm.load(tmp_path / "model")) == digest
        assert digest_of_model(model.set_params(verbose=True, dtype="float64")) == digest
        seen.add(digest)
    assert len(seen) == 8


def test_items_are_told_apart() -> None:
    each = [["ab"], ["a", "b"], [np.array([1, 2])], [np.array([1]), np.array([2])], [np.array(["a"], dtype=object)]]
    assert len({digest_of_items(items) for items in each}) == len(each)
    assert digest_of_items([np.array([1, 2], dtype=np.int32)]) == digest_of_items([np.array([1, 2])])
