"""The README's Python runs as it stands, with budgets cut."""

import re
import warnings
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_there_is_code_to_run():
    assert len(BLOCKS) == 3


@pytest.mark.parametrize("code", BLOCKS)
def test_readme_code(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text("It was the best of times, it was the worst of times. " * 60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the made-up data may be too easy
        exec(re.sub(r"max_(seconds|steps)=\d+", "max_steps=2", code), {})
    if "report.html" in code:
        assert Path("report.html").stat().st_size > 10_000


def test_the_error_shown_is_the_error_raised():
    import numpy as np

    import seqmodels as sm

    shown = re.search(r"ValueError: (.*)", README)
    assert shown is not None
    with pytest.raises(ValueError, match=re.escape(shown[1])):
        sm.HMM(4).fit(np.zeros((500, 13)))


def test_every_picture_is_there():
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (Path(__file__).parents[1] / picture).exists(), picture
