"""What ``inspect`` says of the states of an HMM."""

from __future__ import annotations

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.cli.inspect import states_of


def test_states_of_a_chain_without_end_by_hand() -> None:
    emission = [[0.75, 0.25, 0.0], [0.0, 0.003, 0.997]]
    states = states_of(sm.HMM.from_parameters([1.0, 0.0], [[0.9, 0.1], [0.2, 0.8]], emission=emission))
    assert [each["share"] for each in states] == pytest.approx([2 / 3, 1 / 3], abs=1e-5)
    assert [each["duration"] for each in states] == pytest.approx([10.0, 5.0])
    assert [each["emits"] for each in states] == ["0 0.75  1 0.25", "2 1.00"]  # the most frequent first, none rare


def test_states_of_a_chain_that_ends_are_weighed_by_their_visits() -> None:
    """One frame in state 0, then on average four in state 1; vectors have the mean over components."""
    states = states_of(
        sm.HMM.from_parameters(
            *([1.0, 0.0], [[0.0, 1.0], [0.0, 0.75]], [0.0, 0.25]),
            weights=[[0.25, 0.75], [0.5, 0.5]],
            means=[[[0.0], [4.0]], [[-1.0], [2.0]]],
            covariances=np.ones((2, 2, 1)).tolist(),
        )
    )
    assert [each["share"] for each in states] == pytest.approx([0.2, 0.8])
    assert [each["duration"] for each in states] == pytest.approx([1.0, 4.0])
    assert [each["emits"] for each in states] == ["mean [3]", "mean [0.5]"]


def test_a_model_that_the_command_line_did_not_fit_has_no_data_to_describe(call, tmp_path):
    sm.HMM(2, max_iter=1, n_init=1).fit([np.array([0, 1, 1, 0])]).save(tmp_path / "model.safetensors")
    shown = call("inspect", tmp_path / "model.safetensors").stdout
    assert "data         not known: the file was not written by seqmodels fit" in shown
