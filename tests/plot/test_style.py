"""The style of plots: figures of pyplot in it are shown by a notebook, and matplotlib's settings stay as they are."""

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib
import pytest

import seqmodels as sm
from seqmodels.plot.style import STYLE, in_style, panels_or_new, short

# What a notebook's backend does: it is chosen by the first figure, turns ``interactive`` on, and shows at the end of a
# cell the figures that were made while that was on.
BACKEND = '''
import matplotlib
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

matplotlib.interactive(True)
FigureCanvas, shown = FigureCanvasAgg, []


def new_figure_manager_given_figure(number, figure):
    if matplotlib.is_interactive():
        shown.append(figure)
    return FigureManagerBase(FigureCanvasAgg(figure), number)


def new_figure_manager(number, *args, FigureClass, **options):
    return new_figure_manager_given_figure(number, FigureClass(*args, **options))


def flush():
    """How many figures the end of a cell shows."""
    from matplotlib import pyplot

    n = len(shown)
    shown.clear()
    pyplot.close("all")
    return n
'''
CELLS = (
    "import seqmodels as sm; ax = sm.plot.frames([[0.0, 1.0], [2.0, 1.0]])",
    "ax = sm.plot.frames([[0.0, 1.0], [2.0, 1.0]])",
    "from matplotlib import pyplot; lines = pyplot.plot([1, 2])",
)


@pytest.mark.slow
def test_a_notebook_shows_the_picture_of_every_cell(tmp_path: Path) -> None:
    (tmp_path / "notebook_backend.py").write_text(BACKEND)
    code = "\n".join(f"{cell}\nimport notebook_backend; print(notebook_backend.flush())" for cell in CELLS)
    environment = dict(os.environ, MPLBACKEND="module://notebook_backend")
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["1"] * len(CELLS), "")


def test_a_kernel_of_jupyter_shows_the_picture_of_every_cell() -> None:
    """In a real kernel, where Jupyter is installed: ``pip install nbclient ipykernel``."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    pictures = [sum("image/png" in output.get("data", {}) for output in cell.outputs) for cell in notebook.cells]
    assert pictures == [1] * len(CELLS)


def test_settings_that_change_within_the_style_stay() -> None:
    before = dict(matplotlib.rcParams)
    try:
        matplotlib.interactive(False)
        with in_style():
            assert all(matplotlib.rcParams[name] == value for name, value in STYLE.items())
            matplotlib.interactive(True)
        assert matplotlib.is_interactive()
        matplotlib.interactive(before["interactive"])
        assert dict(matplotlib.rcParams) == before
    finally:
        matplotlib.interactive(before["interactive"])


def public_plots() -> list[Any]:
    """Every public function and method that draws."""
    public = [getattr(part, name) for part in (sm, sm.evaluation, sm.generation) for name in part.__all__]
    owners = dict.fromkeys(each for each in public if inspect.isclass(each))
    methods = [
        method for owner in owners for name, method in vars(owner).items() if name == "plot" or name.startswith("plot_")
    ]
    return [getattr(sm.plot, name) for name in sm.plot.__all__] + methods


RETURNED = {"Axes", "Panels", "Axes | Panels"}


def test_there_are_plots_to_check() -> None:
    assert len(public_plots()) >= 20


@pytest.mark.parametrize("plot", public_plots(), ids=lambda plot: plot.__qualname__)
def test_every_plot_takes_axes_and_returns_those_it_drew_on(plot: Any) -> None:
    assert plot.__annotations__["return"] in RETURNED
    parameter = inspect.signature(plot).parameters["ax"]
    assert parameter.default is None


def test_panels_are_a_tuple_with_a_figure() -> None:
    panels = panels_or_new(None, 2, 1.5)
    above, below = panels
    assert panels.figure is above.figure is below.figure
    assert panels_or_new(above, 1, 1.5) == (above,)
    assert panels_or_new([above, below], 2, 1.5) == panels
    with pytest.raises(ValueError, match="ax holds 2 axes, but 3 are drawn on; pass 3 axes"):
        panels_or_new([above, below], 3, 1.5)


def test_a_name_is_cut_where_it_is_longer_than_there_is_room() -> None:
    assert [short(name, 5) for name in ("five5", "sixsix", 3)] == ["five5", "sixs…", "3"]
