"""The program: its help is quick and true, and it says its version."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import seqmodels
from seqmodels.cli.app import COMMANDS


def test_the_version(call):
    told = call("--version")
    assert told.exit_code == 0
    assert told.stdout == f"seqmodels {seqmodels.__version__}\n"


def test_the_help_loads_neither_torch_nor_numpy():
    code = (
        "import sys\nfrom seqmodels.cli import app\ntry:\n    app(['--help'])\nfinally:\n"
        "    print(*[name for name in ('torch', 'numpy', 'pandas', 'scipy') if name in sys.modules], file=sys.stderr)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Commands:" in told.stdout
    assert told.stderr.strip() == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_each_command_says_of_itself(name):
    documentation = " ".join((getattr(import_module(f"seqmodels.cli.{name}"), name).__doc__ or "").split())
    assert documentation.startswith(COMMANDS[name].removesuffix("."))


def test_there_is_no_other_command(call):
    told = call("train")
    assert told.exit_code == 2
    assert "there is no command 'train'; there are compare, fit" in told.stderr
    assert "there is no command 'forcast'; did you mean forecast?" in call("forcast", "series.csv").stderr
