"""The check of installations and that before a release, but for what reads the package index."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.scripts import script

ROOT = Path(__file__).parents[1]


installations, release_check = script("installations"), script("release_check")


def test_all_that_pages_name_is_tried() -> None:
    sets = installations.installations()
    assert {(), ("audio", "text"), ("test",), ("docs",), ("kernels",)} <= set(sets)
    assert max(sets, key=len) == tuple(sorted({extra for each in sets for extra in each}))


def test_nothing_of_this_machine_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    monkeypatch.setenv("UV_INDEX_URL", "https://example.com")
    calls = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        calls.append((command, options["env"]))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert installations.resolve("macOS arm64", "3.12", ["test"]) == ""
    ((command, environment),) = calls
    assert not [name for name in environment if name.startswith(("PIP_", "UV_"))]
    assert {"--extra=test", "aarch64-apple-darwin"} <= set(command)


@pytest.mark.parametrize(
    ("said", "code", "printed"),
    [("a needs b", 1, "a needs b"), ("error sending request", 0, "Not checked"), ("", 0, "1 of 1")],
)
def test_what_cannot_be_installed_fails(
    said: str, code: int, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installations, "installations", lambda: [()])
    monkeypatch.setattr(installations, "resolve", lambda *_, **__: said)
    assert installations.main() == code
    assert printed in capsys.readouterr().out


def test_a_step_that_fails_does_not_keep_the_next_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Makefile").write_text("first:\n\t@echo no; exit 1\nsecond:\n\t@echo $(WORD)\n")
    monkeypatch.setattr(release_check, "ROOT", tmp_path)
    monkeypatch.setattr(release_check, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(release_check, "STEPS", {"first": "fails", "second": "goes well"})
    assert release_check.main(["WORD=yes"]) == 1
    out = capsys.readouterr().out
    assert "FAILED  first" in out
    assert "passed  second" in out


def test_every_step_before_a_release_is_a_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{step}:" in makefile for step in release_check.STEPS)
