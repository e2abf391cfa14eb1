"""The claims about networks: what their scripts take for granted, and that one of them runs."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

CLAIMS = Path(__file__).parents[2] / "experiments" / "claims"


def script(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    monkeypatch.syspath_prepend(str(CLAIMS))
    return import_module(name)


def test_no_script_takes_the_name_of_a_package_that_pandas_looks_for() -> None:
    """A script's folder comes first on its path: ``bottleneck.py`` there breaks every script that imports pandas."""
    taken = {"bottleneck", "numexpr", "numba", "scipy", "tables", "lxml"}
    assert not taken & {file.stem for file in CLAIMS.glob("*.py")}


def test_lookup_scores_are_plain_and_scaled_dot_products(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = script(monkeypatch, "scale")
    torch.manual_seed(0)
    query, held, carried, right = scale.questions(5, torch.Generator().manual_seed(0))
    assert torch.equal(carried[held == query[:, None]], right)
    for kind, factor in (("dot product", 1.0), ("dot product / √d", 16**-0.5)):
        model = scale.Lookup(kind, 16)
        products = (model.held(held) * model.query(query)[:, None]).sum(-1)
        assert_allclose(model(query, held, carried)[1].detach(), (factor * products).softmax(-1).detach(), atol=1e-5)


def test_the_truth_is_no_distance_from_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    free_running = script(monkeypatch, "free_running")
    truth = free_running.true_model()
    x = torch.as_tensor(np.stack(truth.sample(20, length=12, random_state=0)))
    for choose in free_running.BEGINNINGS.values():
        assert_allclose(free_running.divergences(truth, truth, x, choose), 0.0, atol=1e-12)


def test_after_the_truth_the_divergence_is_the_difference_of_log_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    free_running = script(monkeypatch, "free_running")
    truth, other = free_running.true_model(), free_running.true_model()
    other = other.from_parameters(other.initial_, other.transition_, emission=other.emission_[::-1])
    items = truth.sample(4_000, length=6, random_state=0)
    exact = free_running.divergences(other, truth, torch.as_tensor(np.stack(items)), free_running.the_truth)
    drawn = np.stack(truth.log_prob_steps(items)) - np.stack(other.log_prob_steps(items))
    assert_allclose(exact.mean(0), drawn.mean(0), atol=4 * drawn.std(0).max() / 4_000**0.5)


def test_differences_follow_their_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = script(monkeypatch, "heads")
    x = np.stack(list(heads.differences(2_000, 12, 0)))
    ruled = x[:, 7:] == (x[:, 4:9] - x[:, :5]) % 3
    assert_allclose(ruled.mean(), 14 / 15, atol=0.01)
    assert_allclose(heads.entropy(), -14 / 15 * np.log(14 / 15) - 1 / 15 * np.log(1 / 30))


def test_copies_show_the_symbol_again_after_the_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = script(monkeypatch, "vanishing_gradient").copies(50, 7, 0)
    assert all(len(x) == 8 and x[0] == x[7] < 8 and x[6] == 10 and set(x[1:6]) <= {8, 9} for x in copies)


def test_a_script_writes_what_it_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scale, claim = script(monkeypatch, "scale"), script(monkeypatch, "claim")
    monkeypatch.setattr(scale, "RATES", (1e-2,))
    monkeypatch.setattr(sys, "argv", ["scale.py"])
    claim.written(scale.measure(Namespace(quick=True)), tmp_path / "scale", quick=True, began=time.perf_counter())
    assert {file.suffix for file in tmp_path.iterdir()} == {".csv", ".json", ".png"}
    assert "√d" in json.loads((tmp_path / "scale.json").read_text(encoding="utf-8"))["claim"]
