import json
from pathlib import Path

import pandas as pd
from claim import Finding, written
from gallery import write_gallery
from matplotlib.figure import Figure


def test_page_shows_each_claim_that_has_a_script_and_a_result(tmp_path: Path) -> None:
    results, docs, scripts = tmp_path / "results", tmp_path / "docs", []
    docs.mkdir()
    for name, held in (("lag_of_n", True), ("gone", False), ("norm", False)):
        finding = Finding(f"{name} is so.", held, "a_b < 3 [2, 4]", pd.DataFrame({"x": [1.0]}), Figure())
        written(finding, results / name, quick=False, began=0.0)
    for name in ("lag_of_n", "norm", "never_run"):
        scripts.append(tmp_path / f"{name}.py")
        scripts[-1].write_text(f'"""About {name}.\n\nRule: none.\n"""\n')
    assert write_gallery(results, docs / "page.md", scripts) == ["lag_of_n", "norm"]
    page = (docs / "page.md").read_text()
    assert "| [About lag\\_of\\_n](#lag_of_n) | held |\n| [About norm](#norm) | did not hold |" in page
    assert '<a id="norm"></a>\n\n## About norm\n\n*norm is so.*\n\n**Did not hold** here: a\\_b \\< 3 [2, 4]' in page
    assert "![About norm](page/norm.png)" in page
    assert (docs / "page" / "norm.png").read_bytes() == (results / "norm.png").read_bytes()
    assert "python experiments/claims/norm.py" in page
    assert "gone" not in page
    assert json.loads((results / "norm.json").read_text())["held"] is False
