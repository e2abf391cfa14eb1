"""audit: the command says what the library does, and ends with 1 where a rule is broken."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import seqmodels as sm
from seqmodels.cli import audit as command


@pytest.fixture
def model(call, book, tmp_path):
    file = tmp_path / "ngram.safetensors"
    assert call("fit", "ngram", book, "--set", "order=3", "--out", file, "-q").exit_code == 0
    return file


def test_the_librarys_findings(call, model, book, tmp_path):
    new, out = tmp_path / "new.txt", tmp_path / "audit.csv"
    new.write_text("It was the best of worst of times.")
    done = call("audit", model, new, "--effort", "quick", "--out", out)
    assert done.exit_code == 0, done.output
    expected = sm.audit(sm.load(model), [new.read_text()], effort="quick")
    assert done.stdout.rstrip("\n") == str(expected)
    assert pd.read_csv(out)["rule"].tolist() == expected.frame["rule"].tolist()
    said = json.loads(call("audit", model, new, "--effort", "quick", "--json").stdout)
    assert (said["passed"], said["broken"], len(said["rules"])) == (True, [], 11)


def test_a_broken_rule_ends_with_1(call, model, book, monkeypatch):
    broken = sm.evaluation.auditing.Finding("causal", "broken", 1.0, "difference", "sequence 0, step 1")
    monkeypatch.setattr(command, "audit_model", lambda *_, **__: sm.evaluation.Audit("NGram", (broken,), 1))
    done = call("audit", model, book)
    assert done.exit_code == 1
    assert "BROKEN: causal" in done.stdout


def test_what_cannot_be_is_refused(call, model, book, tmp_path):
    for arguments, said in (
        ([tmp_path / "none", book], "there is no file"),
        ([model, tmp_path / "none.txt"], "none.txt"),
        ([model, book, "--out", tmp_path / "none" / "a.csv"], "there is no folder"),
    ):
        done = call("audit", *arguments)
        assert done.exit_code == 2, done.output
        assert said in done.stderr
