"""The page on scale has the figures that the script reckons."""

from __future__ import annotations

import pytest
from arithmetic import NETWORKS, Mixtures, main
from process import HERE

PAGE = (HERE.parent / "docs/scale.md").read_text(encoding="utf-8")


def test_the_page_says_what_the_script_prints(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    printed = capsys.readouterr().out
    for figure in ("6.0e+10", "9.2e+09", "262 kB", "2.5 GB", "20.0 GB", "12.0 GB", "8.57e+08", "6.53e+09", "3.0 days"):
        assert figure in printed
    for figure in ("6.0e10", "0.9e10", "262 kB", "2.5 GB", "20 GB", "12 GB", "0.86e9", "6.5e9", "3 days"):
        assert figure in PAGE


def test_by_hand() -> None:
    em = Mixtures(10, n_states=2, n_components=3, n_features=5)
    assert em.operations_of_densities == 4 * 10 * 2 * 3 * 5
    assert em.operations_of_recursions == 4 * 10 * 4
    assert em.bytes_summed == 8 * (2 + 4 + 6 * 11)
    small, large = NETWORKS
    assert small.bytes_of_activations == 34 * 12 * 8 * 1024 * 768
    assert large.operations_a_symbol == 6e9 + 12 * 24 * 1024 * 1792
    assert large.bytes_sent(shards=True) == 12e9
