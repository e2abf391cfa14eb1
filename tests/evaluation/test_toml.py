"""TOML that ``tomllib`` reads back as it was."""

import tomllib

import numpy as np
import pytest

from seqmodels.evaluation.toml import dumps


def test_what_is_written_is_read_back():
    table = {
        "a": 1,
        "b": -0.1 + 0.3,
        "c": 1e-05,
        "d": float("inf"),
        "e": True,
        "words": 'quo"te \\ back\n\ttab \x7f \x00 é 🎈',
        "list": [1, [2.5, "x"], {"k": 1}],
        "empty": {},
        "outer": {"own": 2, "with space": {"class": "X", "inner": {"class": "Y", "n": 1}}, "é": 3},
    }
    assert tomllib.loads(dumps(table)) == table


def test_arrays_are_lists_and_none_is_said():
    assert tomllib.loads(dumps({"m": np.eye(2), "n": np.float64(0.5), "none": None})) == {
        "m": [[1.0, 0.0], [0.0, 1.0]],
        "n": 0.5,
        "none": {"none": True},
    }


def test_floats_come_back_to_the_last_bit():
    values = np.random.default_rng(0).normal(size=50) * 10.0 ** np.arange(-25, 25)
    assert tomllib.loads(dumps({"x": values}))["x"] == values.tolist()


def test_what_toml_has_no_word_for_is_refused():
    with pytest.raises(TypeError, match="a complex"):
        dumps({"x": 1j})
