"""Compression programs as models: code lengths by difference, which are sub-probabilities."""

from __future__ import annotations

import bz2
import itertools
import os
import shutil
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.wrappers.adapt import Compressor
from seqmodels.wrappers.adapt.compressor import CODES

TRAIN = ["to be, or not to be, that is the question: " * 4, "whether 'tis nobler in the mind to suffer"]
TEST = ["the question is whether to be", "né", "z"]
PROGRAMS = ["xz", "bz2", "zlib", "ppmd"]


def needs(program: str) -> None:
    if program == "ppmd":
        pytest.importorskip("pyppmd")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_text_costs_what_it_adds_to_the_code_and_its_length(program: Any) -> None:
    needs(program)
    model = Compressor(program).fit(TRAIN)
    joined = "".join(TRAIN).encode()
    for text, steps in zip(TEST, model.log_prob_steps(TEST), strict=True):
        n = len(text.encode())
        added = CODES[program](joined + text.encode()) - CODES[program](joined)
        assert len(steps) == n + 1
        assert_array_equal(steps[: n - 1], 0)
        assert steps[n - 1] == pytest.approx(-8 * np.log(2) * (max(0, added) + 1))
        assert steps[n] == pytest.approx(-np.log(n * (n + 1)))
    measure = sm.Measure("text", "byte", "stop", "bound", False, memory="adaptive")
    assert (model.measure_, model.memory_, model.n_parameters_) == (measure, "adaptive", 0)


def test_the_codes_are_those_of_the_programs() -> None:
    data = "".join(TRAIN).encode()
    assert CODES["bz2"](data) == len(bz2.compress(data, 9))
    assert CODES["zlib"](data) == len(zlib.compress(data, 9))
    assert CODES["xz"](data) < len(data)


@pytest.mark.parametrize("program", PROGRAMS)
def test_probabilities_of_all_strings_of_a_length_sum_to_one_at_most(program: Any) -> None:
    needs(program)
    rng = np.random.default_rng(0)
    model = Compressor(program, length="given", encoding=sm.Symbols(256)).fit([rng.integers(0, 3, 200)])
    for strings in ([[v] for v in range(256)], list(itertools.product(range(16), repeat=2))):
        total = np.exp(model.log_prob([np.array(s) for s in strings])).sum()
        assert 0 < total <= 1


def test_order_and_other_sequences_change_nothing() -> None:
    model = Compressor("zlib").fit(TRAIN)
    together = model.log_prob(TEST)
    assert_array_equal(model.log_prob(TEST[::-1])[::-1], together)
    assert_array_equal([model.log_prob([text])[0] for text in TEST], together)
    assert_array_equal(model.set_params(dtype="float64").log_prob(TEST), together)


def test_what_was_read_in_training_is_cheaper() -> None:
    known, unknown = "whether 'tis nobler in the mind", "zq Xk7 w0vj! pLm Qy 3@ uu# bgt-"
    assert len(known) == len(unknown)
    for program in ("xz", "zlib"):
        a, b = Compressor(program).fit(TRAIN).log_prob([known, unknown])
        assert a > b + 100


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    model = Compressor("bz2").fit(TRAIN)
    model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    assert_array_equal(loaded.log_prob(TEST), model.log_prob(TEST))
    assert (repr(loaded), loaded.measure_) == (repr(model), model.measure_)


def test_it_says_what_it_cannot() -> None:
    model = Compressor("zlib").fit(TRAIN)
    for ask in (
        model.cursor,
        model.stream,
        model.predict_next,
        model.sample,
        model.n_best,
        lambda: next(model.generate()),
        lambda: model.forecast(TEST, 1),
    ):
        with pytest.raises(ValueError, match="codes a sequence as a whole, so it has no predictions of steps"):
            ask()
    with pytest.raises(sm.NotFittedError):
        Compressor().cursor()
    for arguments, data, message in (
        ({"program": "rar"}, TRAIN, "program is 'rar'; pass one of 'xz', 'bz2', 'zlib', 'ppmd', 'zpaq'"),
        ({}, [np.zeros((3, 2))], "codes text and symbols, but the sequences are vectors"),
        ({}, [[1, 300]], "there are 301 symbols, but a Compressor codes bytes"),
        ({"warm_start": True}, TRAIN, "nothing to start from"),
    ):
        with pytest.raises(ValueError, match=message):
            Compressor(**arguments).fit(data)
    with pytest.raises(ValueError, match="leave sample_weight out"):
        Compressor().fit(TRAIN, sample_weight=[1, 2])
    with pytest.raises(ValueError, match=r"models p\(x\), not p\(y \| x\); leave y out"):
        Compressor().fit(TRAIN, TRAIN)


def test_without_its_package_ppmd_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyppmd", None)
    with pytest.raises(ImportError, match=r"pip install 'seqmodels\[compressors\]'"):
        Compressor("ppmd").fit(TRAIN)


FAKE_ZPAQ = """import sys, zlib
command, archive, name, *options = sys.argv[1:]
assert (command, options) == ("add", ["-method", "5", "-threads", "1"]), sys.argv
if {fails}:
    sys.exit("zpaq: out of memory")
open(archive, "wb").write(b"7kSt" + zlib.compress(open(name, "rb").read(), 9))
"""


def put_zpaq(folder: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> None:
    """A program of this name, first on the path, that codes as zlib does."""
    program = folder / "zpaq"
    script = folder / "zpaq.py"
    script.write_text(FAKE_ZPAQ.format(fails=fails), encoding="utf-8")
    # Not named after #!, where a path may have no space.
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_zpaq_is_the_program_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_zpaq(tmp_path, monkeypatch)
    model, like = Compressor("zpaq").fit(TRAIN[:1]), Compressor("zlib").fit(TRAIN[:1])
    assert_array_equal(model.log_prob(TEST[:1]), like.log_prob(TEST[:1]))  # four bytes more in both codes
    model.save(tmp_path / "model")
    assert_array_equal(sm.load(tmp_path / "model").log_prob(TEST[:1]), model.log_prob(TEST[:1]))
    put_zpaq(tmp_path, monkeypatch, fails=True)
    with pytest.raises(RuntimeError, match="ended with 1 and wrote no archive: zpaq: out of memory"):
        model.log_prob(TEST[:1])


def test_without_the_program_zpaq_says_how_to_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImportError, match="needs the program zpaq on the PATH, and there is none: install it"):
        Compressor("zpaq").fit(TRAIN)


@pytest.mark.skipif(shutil.which("zpaq") is None, reason="zpaq is not installed")
def test_the_real_zpaq_codes_what_it_knows_in_few_bytes() -> None:
    known, unknown = "whether 'tis nobler in the mind", "zq Xk7 w0vj! pLm Qy 3@ uu# bgt-"
    a, b = Compressor("zpaq").fit(TRAIN).log_prob([known, unknown])
    assert a > b


def test_the_history_has_the_rate_of_the_training_part() -> None:
    model = Compressor("xz").fit(TRAIN)
    joined = "".join(TRAIN).encode()
    rate = model.history_["log_prob"].iloc[-1]
    assert_allclose(rate, -8 * np.log(2) * CODES["xz"](joined) / len(joined))
