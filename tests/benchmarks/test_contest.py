import sys
from pathlib import Path

import before_after
import pandas as pd
import pytest
from contest import Contest, hold_all
from peers.pairs import LENGTH, N_SYMBOLS, pairs

CONTEST = Contest("c", 1, 10, [("a", "t"), ("b", "t"), ("c", "u")])


def test_entrants_without_an_interpreter_are_left_out() -> None:
    there = CONTEST.among({"a", "c"})
    assert there is not None
    assert there.entrants == [("a", "t"), ("c", "u")]
    assert CONTEST.among({"b", "c"}) is None  # nothing to compare with
    assert CONTEST.among({"a"}) is None  # no one to compare


def test_pairs_hold_every_symbol_and_targets_follow_from_sources() -> None:
    sources, targets = pairs()
    assert sources.shape == targets.shape
    assert sources.shape[1] == LENGTH
    assert set(sources.flatten()) == set(targets.flatten()) == set(range(N_SYMBOLS))
    assert len({*zip(sources.flatten().tolist(), targets.flatten().tolist(), strict=True)}) == N_SYMBOLS


def test_results_are_ratios_of_medians(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Fake:
        ready = {"versions": "v"}  # noqa: RUF012

        def __init__(self, python: Path, module: str, task: str) -> None:
            self.answers = iter([4.0, 2.0, 3.0] if module == "a" else [1.0, 0.5, 9.0])

        def ask(self, n: int) -> dict[str, float]:
            return {"seconds": n * next(self.answers), "busy": 1.0, "peak_mb": 1.0, "extra_mb": 1.0}

        def close(self) -> None: ...

    monkeypatch.setattr("contest.Process", Fake)
    python = Path(sys.executable)
    hold_all([CONTEST, Contest("other", 1, 1, [("z", "t")])], {"a": python, "b": python}, 3, tmp_path / "r.csv")
    found = pd.read_csv(tmp_path / "r.csv")
    assert found["entrant"].tolist() == ["a t", "b t"]
    assert found["times_reference"].tolist() == [1.0, 3.0]
    assert found["symbols_per_second"].tolist() == pytest.approx([10 / 3, 10.0])


def test_a_ratio_above_one_is_faster_now(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Fake:
        def __init__(self, python: Path, module: str, *arguments: str, root: Path) -> None:
            self.seconds = 3.0 if root == tmp_path else 2.0

        def ask(self, n: int) -> dict[str, float]:
            return {"seconds": n * self.seconds}

        def close(self) -> None: ...

    monkeypatch.setattr("before_after.Process", Fake)
    line = before_after.compare(before_after.Row("hmm_seqmodels", 10, ("score",)), tmp_path, starts=2, rounds=2)
    assert (line["row"], line["before"], line["after"], line["ratio"]) == ("hmm score", 30.0, 20.0, 1.5)
