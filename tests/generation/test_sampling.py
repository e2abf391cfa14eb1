from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from seqmodels.generation import Decoding, Prediction, Stream, sample_steps
from seqmodels.generation.decoding import draw as draw_step
from seqmodels.observations import AutoregressiveGaussian, Categorical, GaussianMixture

CHAIN = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.0, 1.0, 0.0]])
FIRST = torch.tensor([0.2, 0.3, 0.5])
IDENTITY = (torch.zeros(1), torch.ones(1))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@dataclass(frozen=True)
class MarkovState:
    last: Tensor | None
    n: int
    source: np.ndarray | None


@dataclass(frozen=True)
class Markov:
    """A chain over three symbols, which may end after any step but not before the first."""

    end: float | None = None

    def start(self, source: np.ndarray | None = None, n: int = 1) -> MarkovState:
        return MarkovState(None, n, source)

    def advance(self, state: MarkovState, x: Tensor) -> MarkovState:
        return MarkovState(x, state.n, state.source)

    def distribution(self, state: MarkovState) -> Prediction:
        probs = FIRST.expand(state.n, -1) if state.last is None else CHAIN[state.last]
        if state.source is not None:
            probs = torch.eye(3)[torch.as_tensor(state.source[:1]).expand(state.n)]
        log_end = None
        if self.end is not None:
            log_end = torch.full((state.n,), 0.0 if state.last is None else self.end, dtype=torch.float64).log()
        return Prediction(Categorical(), probs.log().unsqueeze(1), torch.zeros(state.n, 1), None, log_end)


def draw(cursor: Markov, n: int, length: int | None = None, **options: object) -> list[np.ndarray]:
    defaults: dict[str, object] = {"prefix": np.zeros(0, dtype=np.int64), "source": None, "max_length": 50}
    arguments = {**defaults, "generator": seeded(), **options}
    return sample_steps(cursor, n, length=length, **arguments)  # type: ignore[arg-type]


# -- predictions ---------------------------------------------------------------------------------------------------


def mixture(log_end: Tensor | None) -> Prediction:
    tables = torch.stack([FIRST, CHAIN[0]]).log().expand(2, -1, -1)  # (n, K, V)
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]], dtype=torch.float64)  # as an HMM's belief
    return Prediction(Categorical(), tables, weights.log(), None, log_end)


def test_a_prediction_is_a_mixture_that_may_end() -> None:
    x = torch.tensor([1, 2])
    expected = torch.tensor([0.25 * 0.3 + 0.75 * 0.6, 0.5], dtype=torch.float64)
    torch.testing.assert_close(mixture(None).log_prob(x).exp(), expected)
    ends = torch.tensor([0.1, 0.0], dtype=torch.float64)
    torch.testing.assert_close(mixture(ends.log()).log_prob(x).exp(), expected * (1 - ends))


def test_as_a_distribution_the_end_is_the_last_category() -> None:
    probs = mixture(None).as_distribution(*IDENTITY).probs
    torch.testing.assert_close(probs, 0.25 * FIRST + 0.75 * CHAIN[0])
    ended = mixture(torch.tensor([0.1, 0.0], dtype=torch.float64).log()).as_distribution(*IDENTITY).probs
    torch.testing.assert_close(ended, torch.cat([0.9 * probs, torch.tensor([0.1])]).double(), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    "observation", [GaussianMixture(2, "diag"), GaussianMixture(2, "full"), AutoregressiveGaussian(2)]
)
def test_a_step_in_float64_meets_parameters_in_float32(observation: GaussianMixture | AutoregressiveGaussian) -> None:
    parameters = torch.randn(1, 3, observation.n_parameters(2), generator=seeded())
    past = torch.randn(1, 2, 2, generator=seeded(1)) if observation.n_past else None
    prediction = Prediction(observation, parameters, torch.full((1, 3), 1 / 3).double().log(), past, None)
    x, shift, scale = torch.tensor([[0.3, -0.4]]), torch.tensor([5.0, -1.0]), torch.tensor([2.0, 0.5])
    found = prediction.log_prob(x.double())
    torch.testing.assert_close(found, prediction.log_prob(x))
    raw = prediction.as_distribution(shift, scale).log_prob(shift + scale * x[0])
    torch.testing.assert_close(raw.double(), (found - scale.log().sum())[0], rtol=0, atol=1e-5)


def test_a_draw_picks_a_component_and_then_a_value() -> None:
    prediction = mixture(None)
    many = Prediction(
        Categorical(),
        prediction.parameters[:1].expand(20_000, -1, -1),
        prediction.log_weights[:1].expand(20_000, -1),
        None,
        None,
    )
    shares = torch.bincount(draw_step(many, Decoding(), seeded()).x, minlength=3) / 20_000
    torch.testing.assert_close(shares, 0.25 * FIRST + 0.75 * CHAIN[0], rtol=0, atol=0.015)


# -- sampling ------------------------------------------------------------------------------------------------------


def test_samples_follow_the_chain() -> None:
    drawn = np.stack(draw(Markov(), 4000, length=6))
    assert drawn.shape == (4000, 6)
    np.testing.assert_allclose(np.bincount(drawn[:, 0], minlength=3) / 4000, FIRST, atol=0.03)
    counts = np.zeros((3, 3))
    np.add.at(counts, (drawn[:, :-1].ravel(), drawn[:, 1:].ravel()), 1)
    np.testing.assert_allclose(counts / counts.sum(1, keepdims=True), CHAIN, atol=0.03)


def test_lengths_are_geometric_and_at_least_one() -> None:
    lengths = np.array([len(x) for x in draw(Markov(end=0.25), 4000)])
    assert lengths.min() == 1
    for n in (1, 2, 3):
        assert (lengths == n).mean() == pytest.approx(0.25 * 0.75 ** (n - 1), abs=0.02)
    assert max(len(x) for x in draw(Markov(end=0.25), 4000, max_length=5)) == 5


def test_a_forced_length_masks_the_end() -> None:
    assert {len(x) for x in draw(Markov(end=0.9), 50, length=7)} == {7}


def test_a_prefix_is_continued() -> None:
    prefix = np.array([0, 2])
    for x in draw(Markov(), 50, length=4, prefix=prefix):
        assert x[:3].tolist() == [0, 2, 1]  # after 2 comes 1
    assert [x.tolist() for x in draw(Markov(), 2, length=2, prefix=prefix)] == [[0, 2], [0, 2]]
    assert min(len(x) for x in draw(Markov(end=0.5), 200, prefix=prefix)) == 2


def test_a_source_reaches_the_start() -> None:
    assert [x.tolist() for x in draw(Markov(), 2, length=2, source=np.array([2]))] == [[2, 2], [2, 2]]


def test_draws_repeat_by_seed() -> None:
    first = np.stack(draw(Markov(), 5, length=20))
    np.testing.assert_array_equal(np.stack(draw(Markov(), 5, length=20)), first)
    assert not np.array_equal(np.stack(draw(Markov(), 5, length=20, generator=seeded(1))), first)


# -- streaming -----------------------------------------------------------------------------------------------------


def pair(x: int) -> tuple[np.ndarray, np.ndarray]:
    """A raw step that is two encoded ones, with log-determinants."""
    return np.array([x, 1]), np.array([0.5, -2.0])


def test_a_stream_adds_up_the_encoded_steps() -> None:
    stream = Stream(Markov(end=0.25), pair, IDENTITY, None)
    assert stream.log_end() == -np.inf
    assert stream.update(0) == pytest.approx(np.log(0.2 * 0.6 * 0.75) - 1.5)
    assert stream.update(2) == pytest.approx(np.log(0.3 * 1.0 * 0.75**2) - 1.5)
    assert stream.log_end() == pytest.approx(np.log(0.25))
    torch.testing.assert_close(
        stream.predict_next().probs, torch.cat([0.75 * CHAIN[1], torch.tensor([0.25])]).double(), rtol=0, atol=1e-7
    )


def test_where_lengths_are_given_a_stream_has_no_ends() -> None:
    stream = Stream(Markov(), pair, IDENTITY, np.array([2]))
    assert stream.predict_next().probs.tolist() == [0.0, 0.0, 1.0]
    with pytest.raises(ValueError, match="ends have no probability"):
        stream.log_end()
