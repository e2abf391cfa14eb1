"""``import seqmodels`` loads nothing but itself; public names load torch and numpy alone, functions what they need."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import seqmodels
import seqmodels as sm
from seqmodels.common.former_names import FORMER_NAMES

LATER = (
    "jinja2",
    "matplotlib",
    "numba",
    "pandas",
    "pyro",
    "safetensors",
    "scipy",
    "sklearn",
    "tokenizers",
    "transformers",
    "typer",
)

NAMED_INSTEAD = {
    "Cached": "Dynamic",
    "LatentOffset": "RunningScale",
    "OnlineEM": "RunningScale",
    "LinearGaussianModel": "LinearGaussian.from_parameters",
    "PPM": "ContextMixing",
}


def test_what_is_loaded_when(tmp_path: Path) -> None:
    """In one process: nothing by the package, torch by a public name, and no other package by all of them.

    Nor is matplotlib by the name of a plot, nor the tracer of torch by a saved Transformer: it takes longer than all
    else, and to make positions of shapes alone, before weights are read, would load it.
    """
    code = "import sys, seqmodels; print('torch' in sys.modules)"
    code += "; seqmodels.HMM; print('torch' in sys.modules)"
    code += "; [getattr(seqmodels, name) for name in seqmodels.__all__]"
    code += f"; print([name for name in {LATER} if name in sys.modules])"
    code += "; from seqmodels import plot; print(plot.states.__name__, 'matplotlib' in sys.modules)"
    code += "; [seqmodels.load(path) for path in sys.argv[1:]]; print('sympy' in sys.modules)"
    paths = [tmp_path / positions for positions in ("rotary", "sinusoidal")]
    for path in paths:
        model = sm.Transformer(d_model=4, n_layers=1, max_steps=1, context=4, positions=path.name)
        model.fit([np.arange(3)]).save(path)
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", "True", "[]", "states False", "False"]


def test_public_names_are_what_type_checkers_read() -> None:
    tree = ast.parse(Path(seqmodels.__file__).read_text(encoding="utf-8"))
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    names = set()
    for node in typed.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            names.add(alias.name)
            if node.module != "seqmodels":
                assert getattr(seqmodels, alias.name) is getattr(import_module(str(node.module)), alias.name)
    assert names | {"__version__"} == set(seqmodels.__all__)
    with pytest.raises(AttributeError, match="no attribute 'turtle'"):
        _ = seqmodels.turtle


def test_no_module_of_plots_has_the_name_of_a_plot() -> None:
    """Which would hide the function, once the module has been imported."""
    modules = {file.stem for file in Path(sm.plot.__file__).parent.glob("*.py")}
    assert not modules & set(sm.plot.__all__)


@pytest.mark.parametrize("name", FORMER_NAMES)
def test_a_name_that_was_removed_says_what_is_in_its_place(name: str) -> None:
    assert name not in seqmodels.__all__
    with pytest.raises(AttributeError, match=rf"seqmodels\.{name} was removed; .*{NAMED_INSTEAD[name]}"):
        getattr(seqmodels, name)


def test_an_import_of_a_former_name_says_the_same() -> None:
    """Python drops the text of an ``AttributeError`` there."""
    with pytest.raises(ImportError, match=r"^seqmodels\.PPM was removed; "):
        from seqmodels import PPM  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'turtle'"):
        from seqmodels import turtle  # noqa: F401


def test_at_most_sixty_six_names_are_at_the_root() -> None:
    assert len(set(seqmodels.__all__) - {"__version__"}) <= 66
