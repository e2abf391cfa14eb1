"""Chords against all sets there are, and against the chain written out by hand."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import seqmodels as sm
from seqmodels.observations import Bernoulli, Chords, Columns, GaussianMixture
from seqmodels.observations.chords import ChordWeights

D, H = 4, 3
SETS = torch.tensor(list(product([0.0, 1.0], repeat=D)), dtype=torch.float64)  # (16, D)
orders = pytest.mark.parametrize("order", ["descending", "ascending"])


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def case(order: Any = "descending", n: int = 1) -> tuple[Chords, Tensor]:
    """Bound to weights far from zero, and parameters of n steps."""
    chords = Chords(H, order)
    weights = ChordWeights(D, H, 0.0).double()
    weights.notes.data, weights.out.weight.data = noise(D, H, seed=1), noise(D + 1, H, seed=2)
    return chords.bound(weights), noise(n, chords.n_output_parameters(D), seed=3)


@orders
def test_all_sets_together_have_probability_one(order: Any) -> None:
    chords, output_parameters = case(order, 3)
    p = chords.log_prob(output_parameters.unsqueeze(1), SETS).exp()  # (3, 16)
    assert p.shape == (3, 16)
    np.testing.assert_allclose(p.sum(1).detach(), 1.0, rtol=1e-12)
    assert p.std() > 0.01


def by_hand(chords: Chords, output_parameters: Tensor, notes: list[int]) -> float:
    """One softmax a note, and one for the end; in the order of naming note i is feature i, or D - 1 - i."""
    weights, hidden, biases = chords.weights, output_parameters[:H], output_parameters[H:]
    total, last = 0.0, -1
    for note in [*notes, D]:
        logits = (biases + weights.out.weight @ torch.relu(hidden)).detach().numpy()
        total += logits[note] - np.log(np.exp(logits[last + 1 :]).sum())
        last = note
        if note < D:
            hidden = hidden + weights.notes[note]
    return float(total)


@orders
def test_log_prob_is_the_chain_by_hand(order: Any) -> None:
    chords, output_parameters = case(order)
    for x, log_prob in zip(SETS, chords.log_prob(output_parameters, SETS).detach(), strict=True):
        on = [int(i) for i in x.nonzero()]
        notes = on if order == "ascending" else [D - 1 - i for i in reversed(on)]
        assert float(log_prob) == pytest.approx(by_hand(chords, output_parameters[0], notes), rel=1e-12)


def test_steps_and_states_broadcast_and_the_rest_of_a_batch_changes_nothing() -> None:
    chords, output_parameters = case(n=5)
    together = chords.log_prob(output_parameters.unsqueeze(1), SETS)
    assert together.shape == (5, 16)
    for i, x in enumerate(SETS):
        torch.testing.assert_close(chords.log_prob(output_parameters, x), together[:, i], rtol=1e-13, atol=1e-13)
    assert chords.log_prob(output_parameters[0], SETS[0]).shape == ()


@orders
def test_draws_are_as_frequent_as_they_are_probable(order: Any) -> None:
    chords, output_parameters = case(order)
    n = 4_000
    drawn = chords.sample(output_parameters.expand(n, -1), None, torch.Generator().manual_seed(0))
    counts = np.bincount((drawn.long() * 2 ** torch.arange(D - 1, -1, -1)).sum(1), minlength=16)
    expected = n * chords.log_prob(output_parameters, SETS).exp().detach().numpy()
    assert drawn.dtype == torch.float64
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected) + 1).all()


def test_pyros_distribution_is_the_mixture() -> None:
    chords, output_parameters = case(n=2)
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    found = chords.distribution(
        output_parameters, log_weights=weights.log(), past=None, shift=torch.zeros(D), scale=torch.ones(D)
    )
    ours = torch.logsumexp(weights.log() + chords.log_prob(output_parameters, SETS.unsqueeze(1)), -1)
    torch.testing.assert_close(found.log_prob(SETS.float()), ours.detach())
    torch.manual_seed(0)
    drawn = found.sample((3_000,))
    assert (drawn.shape, found.sample().shape, found.event_shape) == ((3_000, D), (D,), (D,))
    np.testing.assert_allclose(drawn.mean(0), (SETS * ours.exp().unsqueeze(1)).sum(0).detach(), atol=0.05)


def test_groups_of_columns_may_have_weights_of_their_own() -> None:
    columns = Columns([(GaussianMixture(1), 1), (Chords(H), 2), (Bernoulli(), 1), (Chords(2), D)])
    shared = columns.shared(8)
    assert isinstance(shared, nn.ModuleDict)
    assert sorted(shared) == ["1", "3"]
    bound = columns.bound(shared.double())
    output_parameters = noise(1, columns.n_output_parameters(8))
    x = torch.cat([torch.tensor([[0.3, 1.0, 0.0, 1.0]]).double().expand(16, -1), SETS], dim=1)
    whole = bound.log_prob(output_parameters, x)
    parts = [g.observation.log_prob(output_parameters[:, g.outputs], g.of(x)) for g in bound.parts()]
    torch.testing.assert_close(whole, torch.stack(parts).sum(0))
    assert Columns([(Bernoulli(), 2)]).shared(2) is None


def rolls(n: int = 6) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [(rng.random((9, D)) < [0.2, 0.5, 0.5, 0.8]).astype(float) for _ in range(n)]


def test_a_network_learns_what_notes_go_together() -> None:
    """The last two features are always alike, the first two never."""
    X = [np.column_stack([x[:, 0], 1 - x[:, 0], x[:, 2], x[:, 2]]) for x in rolls(20)]
    model = sm.GRU(d_model=8, max_steps=100, batch_size=20, lr=0.03, observation=Chords(8)).fit(X, validation=None)
    assert model.history_["log_prob"].iloc[-1] > model.history_["log_prob"].iloc[0]
    # two bits, of probabilities 0.2 and 0.5; independent features could not do better than twice that
    assert model.score(X) > -1.3
    assert all((x[:, 2] == x[:, 3]).mean() > 0.9 for x in model.sample(3, length=30))


def test_hmms_refuse_it_and_missing_notes_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"Chords\(\) has weights that only a network trains; under an HMM use Bernoulli"
    ):
        sm.HMM(2, observation=Chords()).fit(rolls())
    with pytest.raises(ValueError, match=r"Chords\(\) has weights that only a network"):
        sm.HMM(2, observation=Columns([(Bernoulli(), 1), (Chords(), 3)])).fit(rolls())
    missing = rolls()
    missing[1][2, 0] = np.nan
    with pytest.raises(ValueError, match="sequence 1 of X has a NaN at frame 2"):
        sm.GRU(d_model=4, max_steps=1, observation=Chords()).fit(missing)


@pytest.mark.parametrize(
    ("chords", "message"),
    [
        (Chords(0), "n_hidden is 0; pass an integer from 1 on"),
        (Chords(order="random"), 'order is \'random\'; pass "descending" or "ascending"'),  # type: ignore[arg-type]
        (Chords(dropout=1.0), "dropout is 1.0; pass a fraction from 0 up to 1"),
    ],
)
def test_hyperparameters_that_cannot_be(chords: Chords, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chords.check(D)


def test_without_weights_it_says_so() -> None:
    with pytest.raises(ValueError, match="set them with bound"):
        Chords(H).log_prob(noise(1, H + D + 1), SETS)
