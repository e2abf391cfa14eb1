"""The list of results that are older than their code, and the command that makes them anew."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.scripts import script

ROOT = Path(__file__).parents[1]
stale = script("stale_results")
night = script("night")


def commit(root: Path, day: int) -> None:
    when = f"2026-01-{day:02}T12:00:00+00:00"
    who = {f"GIT_{role}_{what}": "a" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    dates = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    for command in (["add", "--all"], ["commit", "--quiet", "--no-gpg-sign", "--message", "x"]):
        subprocess.run(["git", *command], cwd=root, env={**who, **dates, "HOME": str(root)}, check=True)


def test_code_changes_with_what_runs_and_not_with_its_words(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "one.py").write_text('def f(x):\n    """Say."""\n    raise ValueError("no")\n')
    (folder / "two.py").write_text("SIZE = 1\n" * 5)
    commit(tmp_path, 1)
    (folder / "two.py").write_text("SIZE = 2\n" + "SIZE = 1\n" * 4)
    commit(tmp_path, 2)
    (folder / "one.py").write_text('def f(x):  # why\n    """Say more."""\n    raise ValueError("never")\n')
    (folder / "two.py").rename(folder / "three.py")
    commit(tmp_path, 3)
    found = stale.last_changes(tmp_path, "package")
    assert found == {
        "package/one.py": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "package/three.py": datetime(2026, 1, 2, 12, tzinfo=UTC),
    }


def test_a_result_is_as_old_as_its_oldest_row(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("score,command,date\n1,python a.py,2026-11-23T10:00:00+00:00\n2,python a.py,2026-11-21\n")
    assert stale.date_of(table) == datetime(2026, 11, 21, 23, 59, 59, tzinfo=UTC)


def test_a_script_measures_what_its_names_lead_to(tmp_path: Path) -> None:
    (tmp_path / "shared.py").write_text("from seqmodels.inference.chains.trellis import Trellis\n")
    path = tmp_path / "measure.py"
    path.write_text(
        "import seqmodels as sm\nfrom shared import Trellis\n\nsm.inference.chains.textbook.forward(1, 2, 3)\n"
    )
    files = {path.relative_to(ROOT).as_posix() for path in stale.measured(path)}
    assert files >= {f"seqmodels/inference/chains/{name}.py" for name in ("textbook", "trellis")}
    assert {name.split("/")[1] for name in files} <= {"inference", "common"}


def test_a_benchmark_measures_what_the_processes_do_that_it_starts_by_name() -> None:
    path = ROOT / "benchmarks/language_model.py"
    assert ROOT / "benchmarks/peers/networks_seqmodels.py" in stale.imports_of(path)


def test_every_result_has_a_script() -> None:
    paths = [path for folder in stale.FOLDERS for path in stale.files_in(folder)]
    assert [path for path in paths if not stale.scripts_of(path)] == []


def test_a_night_has_every_experiment() -> None:
    shared = {"encoder_decoders.py", "network_fits.py", "transposed.py"}
    named = {Path(command.split()[0]).name for command in night.COMMANDS}
    assert named == {path.name for path in (ROOT / "experiments").glob("*.py")} - shared | {"claims"}


def test_a_night_goes_on_after_a_failure_and_says_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.py").write_text("import sys; print(open(sys.argv[1]).read())")
    (tmp_path / "bad.py").write_text("raise SystemExit(3)")
    (tmp_path / "here.txt").write_text("read")
    monkeypatch.setattr(night, "ROOT", tmp_path)
    monkeypatch.setattr(night, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(night, "COMMANDS", ("bad.py", "good.py DATA/there.txt", "good.py DATA/here.txt"))
    assert night.main(["--data", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("FAILED   bad.py")
    assert lines[1] == "left out good.py DATA/there.txt: there is no DATA/there.txt"
    assert lines[2].startswith("done     good.py DATA/here.txt")
    assert (tmp_path / "logs/good-here.log").read_text().strip() == "read"
    assert night.main(["--only", "good.py"]) == 0


def test_a_night_leaves_out_what_was_measured_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, dates in (("old", ("2026-01-01", "2026-01-03")), ("new", ("2026-01-02", "2026-01-03"))):
        folder = tmp_path / "experiments/results" / name
        folder.mkdir(parents=True)
        (tmp_path / f"experiments/{name}.py").write_text("")
        for number, date in enumerate(dates):
            (folder / f"{number}.csv").write_text(f"command,date\npython experiments/{name}.py,{date}\n")
    monkeypatch.setattr(stale, "ROOT", tmp_path)
    monkeypatch.setattr(night, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(night, "COMMANDS", ("experiments/old.py", "experiments/new.py", "experiments/never_run.py"))
    assert night.main(["--list", "--since", "2026-01-02"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "experiments/old.py",
        "left out experiments/new.py: its results are of 2026-01-02",
        "experiments/never_run.py",
    ]
