import json
from pathlib import Path

import pandas as pd
from claim import Finding, written
from gallery import write_gallery
from matplotlib.figure import Figure
from verdict import Part


def test_page_shows_each_claim_that_has_a_script_and_a_result(tmp_path: Path) -> None:
    results, docs, scripts = tmp_path / "results", tmp_path / "docs", []
    docs.mkdir()
    parts = {
        "lag_of_n": [Part("a_b rises", "held", "+3 nats"), Part("it stops", "undecided", "+0 [-1, 1] nats")],
        "gone": [Part("it goes", "held", "+1")],
        "norm": [Part("it falls", "contradicted", "by -1")],
    }
    for name, each in parts.items():
        finding = Finding(f"{name} is so.", each, "a_b < 3 [2, 4]", pd.DataFrame({"x": [1.0]}), Figure())
        written(finding, results / name, quick=False, began=0.0)
    for name in ("lag_of_n", "norm", "never_run"):
        scripts.append(tmp_path / f"{name}.py")
        scripts[-1].write_text(f'"""About {name}.\n\nRule: none.\n"""\n')
    assert write_gallery(results, docs / "page.md", scripts) == ["lag_of_n", "norm"]
    page = (docs / "page.md").read_text()
    assert (
        "| [About lag\\_of\\_n](#lag_of_n) | a\\_b rises | held |\n|  | it stops | undecided |\n"
        "| [About norm](#norm) | it falls | contradicted |\n"
    ) in page
    assert (
        '<a id="norm"></a>\n\n## About norm\n\n*norm is so.*\n\n- **Contradicted**: it falls. By -1.\n\n'
        "A\\_b \\< 3 [2, 4]"
    ) in page
    assert "![About norm](page/norm.png)" in page
    assert (docs / "page" / "norm.png").read_bytes() == (results / "norm.png").read_bytes()
    assert "python experiments/claims/norm.py" in page
    assert "gone" not in page
    said = json.loads((results / "norm.json").read_text())["parts"]
    assert said == [{"claim": "it falls", "verdict": "contradicted", "seen": "by -1"}]
