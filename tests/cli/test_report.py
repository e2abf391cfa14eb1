"""``seqmodels report``: pages anew."""

from __future__ import annotations

import json

import pytest


def test_what_holds_no_comparison_is_said(call, tmp_path):
    for folder, said in ((tmp_path, "holds no saved comparison"), (tmp_path / "none", "there is no folder")):
        refused = call("report", folder)
        assert refused.exit_code == 2
        assert said in refused.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("_undrawn")
def test_the_page_is_the_one_that_compare_wrote(call, book, tmp_path):
    out = tmp_path / "out"
    assert call("compare", "--text", book, "--models", "hmm,iid", "--quick", "--steps", 1, "--out", out).exit_code == 0
    done = call("report", out, "--out", tmp_path / "new", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["pages"] == [str(tmp_path / "new" / "text-density.html")]
    page = (tmp_path / "new" / "text-density.html").read_text()
    assert "hmm" in page
    assert len(page) == pytest.approx(len((out / "text-density.html").read_text()), rel=0.02)
    (out / "text-density.html").unlink()
    assert call("report", out / "text-density").exit_code == 0
    assert (out / "text-density.html").exists()
