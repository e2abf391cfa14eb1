"""What a ``ConjugatePrior`` takes, and what it refuses."""

from __future__ import annotations

import pytest
import torch

import seqmodels as sm
from seqmodels.hmm import ConjugatePrior
from seqmodels.hmm.conjugate import conjugate_of
from seqmodels.hmm.learning.variational import prior_hyperparameters
from seqmodels.hmm.topology import LeftToRight


def test_a_number_is_that_of_every_state_and_an_array_of_each() -> None:
    prior = ConjugatePrior(count=[1.0, 2.0], mean=[0.5, -1.0, 2.0])
    assert prior.numbers("count", 1.0, (2, 1)).tolist() == [[1.0], [2.0]]
    assert prior.numbers("mean", 0.0, (2, 3), least=-torch.inf).tolist() == [[0.5, -1.0, 2.0]] * 2
    assert prior.numbers("covariance", 0.25, (2, 2)).tolist() == [[0.25, 0.25]] * 2


def test_the_topology_rules_transitions_out() -> None:
    family = conjugate_of(sm.Categorical(), 4)
    hyper = prior_hyperparameters(ConjugatePrior(transition=2.0), family, LeftToRight(), 3, has_final=True)
    assert hyper.transition.tolist() == [[2.0, 2.0, 0.0], [0.0, 2.0, 2.0], [0.0, 0.0, 2.0]]
    assert hyper.initial.tolist() == pytest.approx([1 / 3, 0.0, 0.0])
    assert hyper.final is not None
    assert hyper.final.tolist() == pytest.approx([1 / 3] * 3)
    assert hyper.table.tolist() == [[0.25] * 4] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"transition": 0.001}, "finite numbers above 0.002"),
        ({"transition": [1.0, 2.0, 3.0]}, "shape"),
        ({"count": -1.0}, "finite numbers above 0"),
        ({"count": "many"}, "'auto'"),
        ({"count": 0.004}, "concentration of a symbol"),
    ],
)
def test_wrong_numbers_are_refused(arguments: dict[str, object], message: str) -> None:
    model = sm.HMM(2, algorithm="variational", training=sm.hmm.ChainTraining(prior=ConjugatePrior(**arguments)))
    with pytest.raises(ValueError, match=message):
        model.fit([[0, 1, 2, 1, 0]])
