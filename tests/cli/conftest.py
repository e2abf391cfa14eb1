"""What the command line is tried on: a text, recordings, and a call that keeps stdout and stderr apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from scipy.io import wavfile
from typer.testing import CliRunner

from seqmodels.cli import app
from seqmodels.data import speech

Call = Callable[..., Result]


@pytest.fixture
def call() -> Call:
    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, [str(a) for a in arguments])

    return run


@pytest.fixture
def _plain_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without their pictures, which take a second each, where a test is of something else."""
    monkeypatch.setattr("seqmodels.evaluation.comparison.report.page.html_report", lambda comparison: "<!doctype html>")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    file = tmp_path / "book.txt"
    file.write_text("It was the best of times, it was the worst of times. " * 40)
    return file


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings")
    said = speech(8, 2, syllables=(1, 2))
    for i, item in enumerate(said.sequences):
        wavfile.write(folder / f"u{i}.wav", said.sample_rate, np.round(32767 * np.asarray(item)[:, 0]).astype(np.int16))
    return folder
