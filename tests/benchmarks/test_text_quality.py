from __future__ import annotations

import numpy as np
import pytest
from text_quality import MODELS, WINDOW, run, table

from seqmodels import GRU
from seqmodels.neural.model import NeuralModel


def nats_in_windows(model: NeuralModel, symbols: np.ndarray) -> float:
    """Of one layer of GRU, by its equations: each window begins with no memory, its first input the symbol before."""
    weights = {name: value.double().numpy() for name, value in model.module_.state_dict().items()}
    U, V, b, c = (weights[f"network.rnn.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    table, total = weights["embedding.map.weight"], 0.0
    for begin in range(0, len(symbols), WINDOW):
        h = np.zeros(V.shape[1])
        for t in range(begin, min(begin + WINDOW, len(symbols))):
            reset, update, candidate = np.split(U @ (table[symbols[t - 1]] if t else weights["begin"]) + b, 3)
            of_reset, of_update, of_candidate = np.split(V @ h + c, 3)
            r, z = (1 / (1 + np.exp(-gate)) for gate in (reset + of_reset, update + of_update))
            h = z * h + (1 - z) * np.tanh(candidate + r * of_candidate)
            logits = weights["head.weight"] @ h + weights["head.bias"]
            total += np.log(np.exp(logits).sum()) - logits[symbols[t]]
    return float(total) / len(symbols)


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
    assert line["val64"] == pytest.approx(nats_in_windows(MODELS["small"], text[400:]), rel=1e-5)
