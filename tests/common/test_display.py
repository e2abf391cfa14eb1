"""What notebooks show, and descriptions: the figures are those of the object, and texts are escaped."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.common.display import html_facts, html_table

TEXTS = ["<b>to be & not</b>"] * 12
FRAMES = [np.random.default_rng(i).normal(size=(20, 2)) for i in range(12)]


def test_cells_and_names_are_escaped() -> None:
    frame = pd.DataFrame({"<i>": ["<script>", "&"]})
    for text in (html_table(frame, "<caption & co>"), html_facts("<i>", {"<script>": "&"})):
        assert "<script>" not in text
        assert "<i>" not in text
        assert "&amp;" in text


def test_sequences_show_their_sizes_and_their_first_rows() -> None:
    text = sm.Sequences(TEXTS, clusters=list(range(12)))._repr_html_()
    assert "12 sequences of 18 bytes, 216 in all; the first 10" in text
    assert text.count("<tr>") == 11
    assert "&lt;b&gt;to be" in text
    assert "cluster" in text
    assert "2-dimensional vectors: 12 sequences of 20 frames, 240 in all" in sm.Sequences(FRAMES)._repr_html_()


@pytest.mark.parametrize("data", [TEXTS, FRAMES, [np.arange(5)] * 3], ids=["text", "vectors", "symbols"])
def test_a_description_names_what_was_fitted(data: list[object]) -> None:
    model = sm.HMM(2, max_iter=2)
    assert "not fitted" in model._repr_html_()
    assert "max_iter" in model._repr_html_()
    with pytest.raises(sm.NotFittedError):
        model.describe()
    model.fit(data)
    description = model.describe()
    facts = dict(re.findall(r"^  (\w+) +(.+)$", description, re.MULTILINE))
    assert facts["parameters"] == f"{model.n_parameters_:,}"
    assert f"scored per {model.measure_.unit}" in facts["data"]
    assert facts["fitted"].startswith(f"{int(model.history_['step'].iloc[-1])} steps")
    assert facts["training"].startswith(f"{model.history_['log_prob'].iloc[-1]:.4f} nats")
    assert ("converged" in facts["fitted"]) == model.converged_
    assert facts["parameters"] in model._repr_html_()


def test_a_description_tells_training_from_validation() -> None:
    model = sm.LSTM(d_model=8, max_steps=4).fit(TEXTS)
    description = model.describe()
    assert f"validation   {model.history_['validation'].dropna().iloc[-1]:.4f} nats per byte" in description
    assert "p(y | x)" in sm.LSTM(d_model=8, max_steps=2).fit(TEXTS, TEXTS).describe()


def test_a_comparison_shows_its_table() -> None:
    models = {"<hmm>": sm.HMM(2, max_iter=2).fit(FRAMES), "one": sm.HMM(1).fit(FRAMES)}
    comparison = sm.compare(models, FRAMES, baseline="one")
    text = comparison._repr_html_()
    assert "&lt;hmm&gt;" in text
    for cell in comparison.table()["score"]:
        assert cell in text
    assert "higher is better" in text
