"""The command line, as a user calls it."""

import pytest
from typer.testing import CliRunner

from seqmodels.cli import app


def call(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_help_names_the_command_and_its_options():
    assert "compare" in call("--help").output
    shown = call("compare", "--help").output
    for option in ("--text", "--audio", "--models", "--quick", "--out"):
        assert option in shown


@pytest.mark.filterwarnings("default")
def test_compare_a_text_file(tmp_path):
    book = tmp_path / "book.txt"
    book.write_text("It was the best of times, it was the worst of times. " * 40)
    result = call("compare", "--text", book, "--models", "iid", "--quick", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "nats per byte" in result.output
    assert "hmm" in result.output
    assert (tmp_path / "out" / "text-density.csv").exists()


def test_bad_input_is_one_line_and_exit_code_2(tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"caf\xe9 ")
    result = call("compare", "--text", bad)
    assert result.exit_code == 2
    assert "UTF-8" in result.output
    assert "Traceback" not in result.output
    unknown = tmp_path / "ok.txt"
    unknown.write_text("hello there " * 100)
    result = call("compare", "--text", unknown, "--models", "gpt")
    assert result.exit_code == 2
    assert "no model 'gpt'" in result.output
