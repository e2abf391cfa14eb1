from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

from seqmodels.wrappers.classification.calibration import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    folds,
    learned_temperature,
    log_posterior,
)


def over_confident(n: int = 4000, factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn from ``softmax(logits)``, and the logits times ``factor``."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.standard_normal((n, 3))
    labels = (logits + rng.gumbel(size=(n, 3))).argmax(1)  # drawn from their softmax (Gumbel's trick)
    return factor * logits, labels


def test_the_temperature_has_the_least_loss() -> None:
    log_joint, labels = over_confident(factor=30.0)
    found = learned_temperature(log_joint, labels)
    assert found == pytest.approx(30.0, rel=0.06)  # so many labels tell this much
    own, n = np.arange(len(labels)), len(labels)
    rivals = np.where(np.arange(3) == labels[:, None], -np.inf, log_joint).argmax(1)

    def loss(temperature: float) -> float:
        log_p = log_softmax(log_joint / temperature, axis=1)
        return -float(((n + 1) * log_p[own, labels] + log_p[own, rivals]).mean() / (n + 2))

    assert loss(found) < min(loss(1.001 * found), loss(found / 1.001))


@pytest.mark.parametrize("factor", [2.0**-7, 2.0**12])
def test_the_temperature_goes_with_the_unit_of_the_logits(factor: float) -> None:
    log_joint, labels = over_confident()
    assert learned_temperature(factor * log_joint, labels) == pytest.approx(
        factor * learned_temperature(log_joint, labels), rel=1e-6
    )


def test_without_errors_one_more_than_seen_is_counted() -> None:
    log_joint = np.array([[0.0, -50.0], [-50.0, 0.0], [0.0, -50.0]])
    assert learned_temperature(log_joint, np.array([0, 1, 0])) == pytest.approx(50 / np.log(3 + 1), rel=1e-9)


def test_labels_without_probability_do_not_count() -> None:
    log_joint, labels = over_confident()
    impossible = np.array([[-np.inf, 0.0, 0.0], [0.0, -np.inf, -np.inf]])  # its own label; all others
    more = learned_temperature(np.concatenate([log_joint, impossible]), np.concatenate([labels, [0, 0]]))
    assert more == learned_temperature(log_joint, labels)
    assert learned_temperature(impossible, np.array([0, 0])) == 1.0
    partly = np.array([[0.0, -50.0, -np.inf], [-50.0, 0.0, -np.inf], [0.0, -50.0, -np.inf]])
    assert learned_temperature(partly, np.array([0, 1, 0])) == pytest.approx(50 / np.log(4), rel=1e-9)


def test_the_temperature_is_bounded() -> None:
    log_joint = np.array([[0.0, -1.0], [-1.0, 0.0]])
    assert learned_temperature(log_joint, np.array([1, 0])) == MAX_TEMPERATURE  # worse than chance
    assert learned_temperature(1e-9 * log_joint, np.array([0, 1])) == MIN_TEMPERATURE
    assert learned_temperature(0 * log_joint, np.array([0, 1])) == 1.0  # all labels are equally probable


def test_a_sequence_that_no_label_makes_possible_keeps_the_priors() -> None:
    priors = np.log([0.2, 0.8])
    log_joint = np.array([[-np.inf, -np.inf], [-3.0, -np.inf], [np.log(4.0), 0.0]])
    np.testing.assert_allclose(np.exp(log_posterior(log_joint, 2.0, priors)), [[0.2, 0.8], [1, 0], [2 / 3, 1 / 3]])


def test_folds_share_labels_out_and_leave_one_of_each_in_training() -> None:
    labels = np.array([0] * 9 + [1] * 2 + [2])
    parts = np.array(folds(labels, None, 3, 0))
    assert parts.sum(0).tolist() == [1] * 11 + [0]  # what has no second of its label is never held out
    assert parts[:, :9].sum(1).tolist() == [3, 3, 3]
    for part in parts:
        assert set(labels[~part]) == {0, 1, 2}
    assert not np.array_equal(parts, folds(labels, None, 3, 1))
    assert folds(np.arange(4), None, 2, 0) == []


def test_folds_are_of_clusters_where_labels_are_in_several() -> None:
    labels, speakers = np.tile([0, 1, 2], 8), np.repeat(list("abcd"), 6)
    parts = np.array(folds(labels, speakers, 3, 0))
    assert parts.sum(0).tolist() == [1] * 24
    assert all(len({part[speakers == s].all(), part[speakers == s].any()}) == 1 for part in parts for s in "abcd")
    np.testing.assert_array_equal(folds(labels, labels, 3, 0), folds(labels, None, 3, 0))  # each within one
    alone = folds(np.where(speakers == "a", 3, labels), speakers, 4, 0)  # only one speaker says 3
    assert np.array(alone).sum(0).tolist() == [0] * 6 + [1] * 18
