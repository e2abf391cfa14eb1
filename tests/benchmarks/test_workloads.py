import numpy as np
import pytest
from workloads import SIZES, Mixture, _choose, make

LENGTHS = [111, 75, 148, 145, 56]
FIRST = [0.963770235081423, -0.13467432477708552]
SUMS = [-110826.51648573417, 0.6761383546744154, 0.02308492750358168]


def test_the_numbers_do_not_move() -> None:
    """Published figures are of these data."""
    found = make("W2")
    assert isinstance(found.emission, Mixture)
    assert found.lengths[:5].tolist() == LENGTHS
    np.testing.assert_allclose(found.x[0], FIRST, rtol=1e-12)
    np.testing.assert_allclose([found.x.sum(), found.transition[0, 0], found.emission.means[0, 0, 0]], SUMS, rtol=1e-9)


def test_equal_lengths_are_the_mean_length() -> None:
    found = make("W2", "equal")
    assert found.stacked.shape == (1000, 100, 2)
    np.testing.assert_array_equal(found.stacked[7], found.sequences[7])


def test_the_first_sequences_alone() -> None:
    whole, part = make("W2"), make("W2").first(3)
    assert len(part.sequences) == 3
    assert len(part.x) == part.lengths.sum()
    np.testing.assert_array_equal(part.sequences[2], whole.sequences[2])


@pytest.mark.parametrize("name", ["W2", "W4"])
def test_em_starts_from_probabilities(name: str) -> None:
    found = make(name)
    assert found.transition.shape == (SIZES[name].n_states, SIZES[name].n_states)
    table = found.emission.weights if isinstance(found.emission, Mixture) else found.emission
    for rows in (found.initial[None], found.transition, table):
        np.testing.assert_allclose(rows.sum(1), 1.0)


def test_a_choice_is_the_first_whose_cumulative_probability_is_reached() -> None:
    cumulative = np.array([[0.25, 0.5, 1.0], [0.25, 0.5, 1.0], [0.2, 0.4, 0.9]])
    assert _choose(cumulative, np.array([0.1, 0.75, 0.95])).tolist() == [0, 2, 2]


def test_an_unknown_workload_is_named() -> None:
    with pytest.raises(ValueError, match="no workload 'W9'; pass one of W1"):
        make("W9")
