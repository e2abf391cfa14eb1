from __future__ import annotations

import numpy as np
import pytest
from text_quality import MODELS, _windows, run, table

from seqmodels import GRU


def test_a_model_reaches_the_target_if_it_is_down_to_it() -> None:
    lines: list[dict[str, object]] = [{"model": "a", "val64": 2.0}, {"model": "b", "val64": 1.9}, {"val64": 2.1}]
    assert table(lines, 2.0)["reaches"].tolist() == [True, True, False]
    assert "reaches" not in table(lines, None)


def test_a_line_is_of_its_own_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "small", GRU(d_model=8, bptt=16, batch_size=4))
    text = np.arange(600) // 2 % 5
    line = run("small", text[:400], text[400:], seconds=0.2)
    assert line["seconds"] == MODELS["small"].get_params()["max_seconds"] == 0.2
    assert line["stream"] == pytest.approx(-MODELS["small"].score([text[400:]]))
    assert line["val64"] == pytest.approx(-_windows(MODELS["small"], text[400:]))
