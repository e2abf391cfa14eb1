"""Adapted models in ``compare``: beside models that are fitted there, in its page and in its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.evaluation.comparison.calibration import calibration_plot
from tests.families import CausalTokens, Decaying

RNG = np.random.default_rng(0)
TRAIN, TEST = ([RNG.integers(0, 3, 12) for _ in range(8)] for _ in range(2))


def models() -> dict[str, sm.SequenceModel]:
    rule = Decaying()
    return {
        "mine": sm.adapt.from_callable(lambda prefix: rule(prefix), n_symbols=3, n_parameters=16),
        "module": sm.adapt.from_torch(CausalTokens(), n_symbols=3, start=3, end=4),
        "xz": sm.adapt.Compressor("xz"),
        "ngram": sm.NGram(2),
        "lstm": sm.LSTM(d_model=8, max_steps=2),
    }


@pytest.fixture(scope="module")
def result() -> sm.evaluation.Comparison:
    return sm.compare(models(), TRAIN, test=TEST, baseline="ngram")


def test_a_model_that_is_made_already_stands_beside_those_that_are_fitted(result: sm.evaluation.Comparison) -> None:
    frame = result.frame.set_index("model")
    assert set(frame["error"]) == {""}
    for name in ("mine", "module"):
        assert frame["score"][name] == pytest.approx(models()[name].score(TEST), rel=1e-5)
        assert frame["fit_seconds"][name] < 0.1
    assert frame["n_parameters"]["mine"] == 16
    assert frame["n_parameters"]["module"] == sum(p.numel() for p in CausalTokens().parameters())
    assert frame["memory"].to_dict() == {n: "adaptive" if n == "xz" else "static" for n in frame.index}
    assert frame["kind"].to_dict() == {n: "bound" if n == "xz" else "exact" for n in frame.index}
    assert "mine" in str(result)


@pytest.mark.usefixtures("_undrawn")
def test_it_has_a_page(result: sm.evaluation.Comparison, tmp_path: Path) -> None:
    result.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "xz could not be drawn from" in page
    assert "mine" in page


def test_calibration_is_of_models_whose_cdfs_are_known() -> None:
    def walk(past: np.ndarray) -> Any:
        mean = torch.as_tensor(past[-1] if len(past) else np.zeros(1))
        return torch.distributions.Independent(torch.distributions.Normal(mean, torch.ones(1)), 1)

    train, test = ([RNG.normal(size=(12, 1)).cumsum(0) for _ in range(8)] for _ in range(2))
    walking = sm.adapt.from_callable(log_density=walk, n_features=1)
    result = sm.compare({"walk": walking, "hmm": sm.HMM(2, max_iter=2)}, train, test=test)
    assert result.frame["model"].iloc[0] == "walk"
    plot = calibration_plot(result.models, result.test)
    assert plot is not None
    assert set(plot.errors) == {"hmm", "iid"}
    assert calibration_plot({"walk": walking}, result.test) is None


def test_it_is_saved_without_the_models_that_no_file_can_hold(result: sm.evaluation.Comparison, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"saved without the model '(mine|module)'") as warned:
        result.save(tmp_path / "comparison")
    assert sum("saved without the model" in str(each.message) for each in warned) == 2
    loaded = sm.evaluation.Comparison.load(tmp_path / "comparison")
    assert set(loaded.models) == {"xz", "ngram", "lstm", "iid"}
    assert loaded.frame["score"].tolist() == result.frame["score"].tolist()
    assert "tests.wrappers.adapt.test_compare" in str(loaded.provenance["models"]["mine"]["params"]["next_log_probs"])


def test_fitted_models_are_compared_without_a_training_part() -> None:
    fitted = {name: model for name, model in models().items() if name in ("mine", "module")}
    frame = sm.compare(fitted, TEST).frame.set_index("model")
    assert frame["score"]["mine"] == pytest.approx(fitted["mine"].score(TEST), rel=1e-12)


def test_an_alphabet_that_is_too_small_is_an_error_of_its_row() -> None:
    larger = [np.append(x, 5) for x in TEST]
    with pytest.warns(UserWarning, match="mine failed: sequence 0 has symbol 5"):
        frame = sm.compare({"ngram": sm.NGram(2), "mine": models()["mine"]}, TRAIN, test=larger).frame
    assert frame.set_index("model")["error"]["mine"].startswith("ValueError: sequence 0 has symbol 5 at position 12")


def test_models_that_measure_other_things_are_not_compared() -> None:
    given = sm.adapt.from_callable(lambda prefix: np.log([0.2, 0.3, 0.5]), n_symbols=3)
    with pytest.raises(sm.IncomparableError, match="length is 'stop' for 'ngram' and 'given' for 'mine'"):
        sm.compare({"mine": given, "ngram": sm.NGram(2)}, TRAIN, test=TEST)


def test_several_seeds_and_budgets_leave_it_as_it_is() -> None:
    options: dict[str, Any] = {"seeds": 2, "budget": sm.Budget(steps=1)}
    frame = sm.compare({"mine": models()["mine"], "lstm": models()["lstm"]}, TRAIN, test=TEST, **options).frame
    row = frame.set_index("model").loc["mine"]
    assert (row["score"], row["score_sd"]) == (pytest.approx(models()["mine"].score(TEST), rel=1e-12), 0.0)
