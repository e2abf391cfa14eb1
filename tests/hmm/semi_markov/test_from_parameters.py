"""``HSMM.from_parameters``: models as they were fitted, saved, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.hmm import HSMM
from seqmodels.hmm.semi_markov.durations import DurationName
from tests.hmm.semi_markov.test_options import NAMES, ROUNDS, hsmm


@pytest.mark.parametrize("durations", NAMES)
def test_parameters_make_the_same_model(durations: DurationName) -> None:
    model = hsmm(durations).fit(ROUNDS)
    of_family: dict[str, tuple[str, ...]] = {
        "negative-binomial": ("duration_sizes", "duration_probabilities"),
        "poisson": ("duration_rates",),
        "logarithmic": ("duration_probabilities",),
        "categorical": ("durations",),
        "geometric": (),
    }
    given = {name: getattr(model, f"{name}_") for name in of_family[durations]}
    chain = {name: getattr(model, f"{name}_") for name in ("initial", "transition", "means", "covariances", "weights")}
    longest = {} if durations in ("categorical", "geometric") else {"max_duration": 14}
    made = HSMM.from_parameters(**chain, **given, **longest, encoding=model.encoding_)
    assert made.durations == durations
    assert_allclose(made.log_prob(ROUNDS), model.log_prob(ROUNDS), rtol=1e-9)
    own_units = HSMM.from_parameters(**chain, **given, **longest)
    assert_allclose(own_units.log_prob(ROUNDS), model.log_prob(ROUNDS), rtol=1e-9)
    assert made.n_parameters_ == model.n_parameters_


def test_a_made_model_is_saved_and_read(tmp_path: Path) -> None:
    model = HSMM.from_parameters(
        [1.0, 0.0], [[0.0, 0.9], [0.8, 0.0]], [0.1, 0.2], durations=[[0.5, 0.5], [0.0, 1.0]], emission=[[1.0, 0.0]] * 2
    )
    model.save(tmp_path / "model")
    read: Any = sm.load(tmp_path / "model")
    assert_allclose(read.log_prob([[0, 0, 0]]), model.log_prob([[0, 0, 0]]), rtol=1e-12, atol=1e-12)
    assert read.max_duration == 2


CHAIN: dict[str, Any] = {
    "initial": [1.0, 0.0],
    "transition": [[0.0, 1.0], [1.0, 0.0]],
    "emission": [[0.5, 0.5], [0.1, 0.9]],
}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"durations": [[0.5, 0.4], [0.5, 0.5]]}, "durations must hold probabilities"),
        ({"durations": [[0.5, 0.5]]}, r"durations have shape \(1, 2\)"),
        ({"durations": [[1.0], [1.0]], "duration_rates": [1.0, 2.0]}, "are of no one family of durations"),
        ({"duration_sizes": [1.0, 2.0]}, "are of no one family of durations"),
        ({"duration_rates": [0.0, 2.0]}, "duration_rates must be finite and above zero"),
        ({"duration_rates": [2.0]}, r"duration_rates have shape \(1,\)"),
        ({"duration_sizes": [1.0, 1.0], "duration_probabilities": [1.0, 0.5]}, "between 0 and 1"),
        ({"durations": [[1.0], [1.0]], "max_duration": 3}, "leave the latter out"),
        ({"durations": [[1.0], [1.0]], "transition": [[0.5, 0.5], [1.0, 0.0]]}, r"transition\[0, 0\] is 0.5"),
        ({"durations": [[1.0], [1.0]], "topology": "left-to-right"}, "but topology='left-to-right' does not allow it"),
        ({"durations": [[1.0], [1.0]], "transition": [[0.0, 0.5], [1.0, 0.0]]}, "sum to one"),
    ],
)
def test_parameters_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HSMM.from_parameters(**{**CHAIN, **options})
