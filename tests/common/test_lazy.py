"""Names of a package are imported when they are first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import seqmodels.hmm
from seqmodels.common.lazy import lazily


def test_a_name_is_that_of_its_module() -> None:
    get, names = lazily("seqmodels.hmm", {"topology": ("LeftToRight",)})
    from seqmodels.hmm.topology import LeftToRight

    assert get("LeftToRight") is LeftToRight
    assert get("tagger").__name__ == "seqmodels.hmm.tagger"
    assert "LeftToRight" in names()
    with pytest.raises(AttributeError, match="has no attribute 'Leftright'"):
        get("Leftright")


@pytest.mark.parametrize("package", ["seqmodels", "seqmodels.hmm", "seqmodels.counts"])
def test_all_public_names_are_there(package: str) -> None:
    module = sys.modules[package]
    assert set(module.__all__) <= set(dir(module))
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.slow
def test_an_hmm_loads_no_other_family() -> None:
    code = (
        "import sys, seqmodels; seqmodels.HMM; "
        "print([n for n in sys.modules if n.startswith(('seqmodels.counts', 'seqmodels.hmm.semi_markov', "
        "'seqmodels.neural', 'scipy'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert seqmodels.hmm.HMM.__module__ == "seqmodels.hmm.model"
