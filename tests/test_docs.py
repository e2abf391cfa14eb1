"""The Python of the README and of ``docs/`` runs as it stands, with budgets cut; the pictures they show are there."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import matplotlib
import numpy as np
import pytest

import seqmodels as sm

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
BLOCKS = [
    pytest.param(code, id=f"{page.stem}-{i}")
    for page in PAGES
    for i, code in enumerate(CODE.findall(page.read_text(encoding="utf-8")))
]


def test_there_is_code_to_run() -> None:
    assert len(BLOCKS) == 7


@pytest.mark.parametrize("code", BLOCKS)
def test_code_of_a_page(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    Path("book.txt").write_text("It was the best of times, it was the worst of times. " * 60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the made-up data may be too easy
        exec(re.sub(r"max_(seconds|steps)=\d+", "max_steps=2", code), {})
    for name, smallest in {"report.html": 10_000, "alignment.png": 1_000}.items():
        if name in code:
            assert Path(name).stat().st_size > smallest


def test_the_error_shown_is_the_error_raised() -> None:
    shown = re.search(r"ValueError: (.*)", PAGES[0].read_text(encoding="utf-8"))
    assert shown is not None
    with pytest.raises(ValueError, match=re.escape(shown[1])):
        sm.HMM(4).fit(np.zeros((500, 13)))


def test_every_picture_is_there() -> None:
    for page in PAGES:
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / picture).exists(), picture
