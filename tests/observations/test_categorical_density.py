from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special

from seqmodels.observations import Categorical

LOGITS = torch.tensor([[0.0, 1.0, -2.0], [3.0, 3.0, 3.0]], dtype=torch.float64)


def test_log_prob_is_a_log_softmax_looked_up() -> None:
    expected = special.log_softmax(LOGITS.numpy(), axis=-1)
    found = Categorical().log_prob(LOGITS, torch.tensor([[0], [1], [2]]))  # steps by states
    np.testing.assert_allclose(found, expected.T)
    np.testing.assert_allclose(Categorical().log_prob(LOGITS, torch.tensor([2, 0])), expected[[0, 1], [2, 0]])


def test_sizes() -> None:
    observation = Categorical()
    assert (observation.n_past, observation.n_output_parameters(7)) == (0, 7)
    assert observation.starting_point(7, torch.Generator()).shape == (7,)
    assert observation.floor_hits(LOGITS, 3).tolist() == [False, False]


def test_draws_have_the_probabilities() -> None:
    drawn = Categorical().sample(LOGITS[:1].expand(30_000, -1), None, torch.Generator().manual_seed(0))
    assert drawn.shape == (30_000,)
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 30_000, special.softmax(LOGITS[0]), atol=0.01)


def test_pyros_distribution_mixes_states() -> None:
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    found = Categorical().distribution(
        LOGITS, log_weights=weights.log(), past=None, shift=torch.zeros(1), scale=torch.ones(1)
    )
    x = torch.tensor([0, 1, 2])
    ours = torch.logsumexp(weights.log() + Categorical().log_prob(LOGITS, x.unsqueeze(1)), -1)
    torch.testing.assert_close(found.log_prob(x), ours)


def test_an_impossible_symbol_has_no_gradient() -> None:
    leaf = torch.tensor([0.0, 1.0, -torch.inf], dtype=torch.float64, requires_grad=True)
    log_prob = Categorical().log_prob(leaf, torch.tensor([0, 1, 2]))
    assert log_prob[2] == -torch.inf
    log_prob[:2].sum().backward()
    assert leaf.grad is not None
    assert torch.isfinite(leaf.grad).all()
    assert leaf.grad[2] == 0
    drawn = Categorical().sample(leaf.detach().expand(1000, -1), None, torch.Generator().manual_seed(0))
    assert int(drawn.max()) < 2


def test_the_gradient_is_what_is_there_less_what_was_expected() -> None:
    logits, x, g = LOGITS.clone().requires_grad_(), torch.tensor([2, 0]), torch.tensor([1.5, -0.5], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda p: Categorical().log_prob(p, x), logits)
    (found,) = torch.autograd.grad(Categorical().log_prob(logits, x), logits, g)
    np.testing.assert_allclose(
        found, g.numpy()[:, None] * (np.eye(3)[x.numpy()] - special.softmax(LOGITS.numpy(), axis=-1))
    )


def test_one_step_on_arrays_is_the_same() -> None:
    for logits in (*LOGITS, torch.tensor([500.0, -torch.inf, 499.0], dtype=torch.float64)):
        for symbol in range(3):
            expected = float(Categorical().log_prob(logits, torch.tensor(symbol)))
            assert Categorical().step_log_prob(logits.numpy(), np.int64(symbol)) == pytest.approx(expected, rel=1e-14)


def test_one_step_of_a_class_derived_from_it_is_its_own() -> None:
    class Halved(Categorical):
        def log_prob(
            self, output_parameters: torch.Tensor, x: torch.Tensor, past: torch.Tensor | None = None
        ) -> torch.Tensor:
            return 0.5 * super().log_prob(output_parameters, x, past)

    expected = 0.5 * Categorical().step_log_prob(LOGITS[0].numpy(), np.int64(1))
    assert Halved().step_log_prob(LOGITS[0].numpy(), np.int64(1)) == pytest.approx(expected, rel=1e-14)
