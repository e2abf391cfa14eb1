import sys
from pathlib import Path

import pytest
import running
from joblib import parallel_config
from running import chosen, expected, run_all, scripts

GOOD = 'import sys\nif __name__ == "__main__":\n    print("first")\n    print("held", *sys.argv[1:])\n'
BAD = 'if __name__ == "__main__":\n    raise ArithmeticError("no such thing")\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "good": GOOD,
        "bad": BAD,
        "helper": "def f(): ...\n",
        "__main__": 'if __name__ == "__main__":\n    1 / 0\n',
    }
    for name, code in files.items():
        (tmp_path / f"{name}.py").write_text(code)
    return tmp_path


def test_scripts_are_files_that_can_be_run(folder: Path) -> None:
    assert [path.stem for path in scripts(folder)] == ["bad", "good"]
    here = {path.stem for path in scripts(Path(running.__file__).parent)}
    assert {"hop", "bpe_size"} <= here
    assert not here & {"claim", "running", "gallery", "curves", "__main__"}
    assert [path.stem for path in chosen(folder, ["good"])] == ["good"]
    with pytest.raises(ValueError, match="there is no claim 'helper'; choose from bad, good"):
        chosen(folder, ["helper"])


def test_one_that_fails_does_not_stop_the_others(folder: Path) -> None:
    said: list[str] = []
    outcomes = run_all(
        scripts(folder), ["--quick"], 1, lambda path: {"bad": 60.0, "good": 30.0}[path.stem], said.append
    )
    assert [(outcome.name, outcome.code, outcome.words) for outcome in outcomes] == [
        ("bad", 1, "ArithmeticError: no such thing"),  # the longest first
        ("good", 0, "held --quick"),
    ]
    assert said[0].startswith("[1/2, about 0.0 min left] bad")  # thirty seconds, at the pace of sixty that took none
    assert "FAILED with exit code 1: ArithmeticError" in said[0]
    assert said[1].startswith("[2/2] good")


def test_workers_elsewhere_need_nothing_of_this_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent to joblib's processes as to those of a cluster, which cannot import what stands beside the scripts."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.endswith("claims")])
    with parallel_config("loky"):
        (outcome,) = run_all([folder / "good.py"], ["--quick"], 2, lambda path: 1.0, lambda line: None)
    assert (outcome.name, outcome.code, outcome.words) == ("good", 0, "held --quick")


def test_time_is_expected_to_be_what_it_was(tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text('{"seconds": 12.5}')
    assert expected(Path("known.py"), tmp_path) == 12.5
    assert expected(Path("new.py"), tmp_path) == 180.0
