"""compress and decompress: a file, and back."""

from __future__ import annotations

import json

import pytest


@pytest.mark.slow  # compiles the whole of context mixing, whose own tests are in tests/counts
def test_a_file_comes_back_without_a_model(call, book, tmp_path):
    done = call("compress", book, "--json")
    assert done.exit_code == 0, done.output
    said, target = json.loads(done.stdout), book.with_name("book.txt.sqm")
    assert said["n_compressed"] == target.stat().st_size < said["n_bytes"] == book.stat().st_size
    content = book.read_bytes()
    assert call("decompress", target, "-o", tmp_path / "back").exit_code == 0
    assert (tmp_path / "back").read_bytes() == content
    book.unlink()
    assert call("decompress", target).exit_code == 0  # under the name that it had
    assert book.read_bytes() == content


@pytest.mark.slow
def test_a_file_comes_back_by_a_model(call, book, tmp_path):
    model, coded = tmp_path / "ngram.safetensors", tmp_path / "book.sqm"
    assert call("fit", "ngram", book, "--set", "order=3", "--out", model, "-q").exit_code == 0
    assert call("compress", book, "--model", model, "-o", coded).exit_code == 0
    assert call("decompress", coded, "--model", model, "-o", tmp_path / "back").exit_code == 0
    assert (tmp_path / "back").read_bytes() == book.read_bytes()
    done = call("decompress", coded, "-o", tmp_path / "other")
    assert (done.exit_code, (tmp_path / "other").exists()) == (2, False)
    assert "coded by a model; pass the one that compressed them" in done.stderr


def test_what_cannot_be_is_refused(call, book, tmp_path):
    coded = tmp_path / "book.sqm"
    assert call("compress", book, "-o", coded).exit_code == 0
    damaged = tmp_path / "damaged.sqm"
    damaged.write_bytes(coded.read_bytes()[:-1])
    for arguments, said in (
        (["compress", tmp_path / "none"], "there is no file"),
        (["compress", tmp_path], "is a folder"),
        (["compress", book, "-o", book], "which the command reads"),
        (["decompress", book], "does not end in .sqm"),
        (["decompress", book, "-o", tmp_path / "out"], "not what seqmodels.compress writes"),
        (["decompress", damaged, "-o", tmp_path / "out"], "damaged or cut off"),
    ):
        done = call(*arguments)
        assert done.exit_code == 2, done.output
        assert said in done.stderr
    assert not (tmp_path / "out").exists()
