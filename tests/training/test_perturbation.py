from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.training import Transformation, checkpoint


def speakers(n: int, seed: int, *, length: int = 30) -> list[np.ndarray]:
    """Damped oscillations around a level of each sequence's own."""
    rng = np.random.default_rng(seed)
    items = []
    for _ in range(n):
        x, level = np.zeros((length, 2)), 3 * rng.standard_normal(2)
        for t in range(1, length):
            x[t] = 0.9 * x[t - 1][::-1] * [1, -1] + 0.3 * rng.standard_normal(2)
        items.append(x + level)
    return items


def test_a_transformation_is_affine_and_leaves_missing_values_missing() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix, offset = torch.randn(2, 3, 3, generator=generator), torch.randn(2, 1, 3, generator=generator)
    x = torch.randn(2, 4, 3, generator=generator)
    moved = Transformation(matrix, offset)(x)
    for b in range(2):
        for t in range(4):
            torch.testing.assert_close(moved[b, t], matrix[b] @ x[b, t] + offset[b, 0])
    past = torch.stack([x, x.flip(1)], 2)  # (B, T, p, D)
    torch.testing.assert_close(Transformation(matrix, offset)(past)[:, :, 0], moved)
    x[0, 1, 2] = torch.nan
    changed = Transformation(matrix, offset)(x)
    assert torch.isnan(changed).nonzero().tolist() == [[0, 1, 2]]
    torch.testing.assert_close(changed[0, 1, :2], (matrix[0, :2, :2] @ x[0, 1, :2]) + offset[0, 0, :2])


def test_draws_have_the_deviations_that_are_asked_for() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn = sm.training.Perturbation(offset=0.5, mixing=0.2).draw(4000, 4, generator, torch.zeros(()))
    assert drawn.offset.std().item() == pytest.approx(0.5, rel=0.03)
    assert (drawn.matrix - torch.eye(4)).std().item() == pytest.approx(0.2 / 2, rel=0.03)
    none = sm.training.Perturbation(offset=0.0, mixing=0.0).draw(2, 4, generator, torch.zeros(()))
    x = torch.randn(2, 5, 4, generator=generator)
    torch.testing.assert_close(none(x), x)
    noise = sm.training.Perturbation(noise=0.3).noisy(torch.zeros(100, 100), generator)
    assert noise.std().item() == pytest.approx(0.3, rel=0.05)


def test_offsets_in_training_help_with_levels_never_seen() -> None:
    train, test = speakers(4, 0), speakers(30, 1)
    options = {"d_model": 16, "max_steps": 100, "observation": sm.GaussianMixture(1, "diag")}
    plain = sm.GRU(**options).fit(train, validation=None)
    training = sm.training.GradientTraining(perturbation=sm.training.Perturbation(offset=3.0, mixing=0.0))
    perturbed = sm.GRU(**options, training=training).fit(train, validation=None)
    assert perturbed.score(test) > -5 > -10 > plain.score(test)


@pytest.mark.parametrize("model", [sm.GRU, sm.Transformer])
def test_perturbations_repeat_by_seed(model: type) -> None:
    train = speakers(4, 0)
    options = {"d_model": 8, "max_steps": 4, "observation": sm.GaussianMixture(1, "diag")}
    training = sm.training.GradientTraining(perturbation=sm.training.Perturbation(offset=3.0, mixing=0.2))
    first, again, other = (
        model(**options, training=training, random_state=seed).fit(train, validation=None).log_prob(train)
        for seed in (0, 0, 1)
    )
    np.testing.assert_allclose(again, first, rtol=1e-4, atol=1e-4)
    assert (other != first).any()


def test_steps_that_continue_others_keep_their_map(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x = speakers(3, 0, length=50)
    seen, draw = [], sm.training.Perturbation.draw

    def watch(*arguments: Any) -> Transformation:
        seen.append(draw(*arguments))
        return seen[-1]

    monkeypatch.setattr(sm.training.Perturbation, "draw", watch)
    options = {
        "d_model": 8,
        "bptt": 10,
        "batch_size": 3,
        "max_steps": 20,
        "training__perturbation": sm.training.Perturbation(),
    }
    sm.GRU(observation=sm.GaussianMixture(1)).set_params(**options).fit(x, validation=None)
    assert len(seen) == 20 * 10 // 50  # one for all parts of a sequence

    path, write = str(tmp_path / "run"), checkpoint.write

    def keep_the_seventh(file: Any, state: Any) -> None:
        if state["state"]["counts"]["batches"] == 7:  # in the middle of the sequences
            write(file, state)

    with monkeypatch.context() as within:
        within.setattr(checkpoint, "write", keep_the_seventh)
        written = {"training__checkpoint": path, "training__checkpoint_seconds": 0}
        whole = sm.GRU(observation=sm.GaussianMixture(1)).set_params(**options, **written)
        whole.fit(x, validation=None)
    resumed = sm.GRU(observation=sm.GaussianMixture(1)).set_params(**options, training__resume_from=path)
    resumed.fit(x, validation=None)
    np.testing.assert_allclose(resumed.log_prob(x), whole.log_prob(x), rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "x", "message"),
    [
        (
            {"training__perturbation": sm.training.Perturbation(offset=-1.0)},
            [np.zeros((3, 2))],
            "offset of the perturbation is -1.0",
        ),
        (
            {"training__perturbation": sm.training.Perturbation(noise=float("nan"))},
            [np.zeros((3, 2))],
            "noise of the perturbation is nan",
        ),
        (
            {"training__perturbation": sm.training.Perturbation()},
            ["text"],
            "only vectors of real features can be perturbed",
        ),
    ],
)
def test_what_cannot_be_perturbed_is_named(options: dict[str, Any], x: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.GRU(d_model=8).set_params(**options).fit(x)


def test_a_perturbed_network_is_saved(tmp_path: Path) -> None:
    x = speakers(3, 0)
    model = sm.GRU(
        d_model=8, max_steps=3, training=sm.training.GradientTraining(perturbation=sm.training.Perturbation(mixing=0.3))
    ).fit(x)
    model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    assert loaded.training.perturbation.mixing == 0.3
    np.testing.assert_allclose(loaded.log_prob(x), model.log_prob(x), rtol=1e-5)
