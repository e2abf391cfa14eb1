"""Write a figure to the picture that an option of a command names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqmodels.common.files import replaced


def write_picture(figure: Any, path: Path) -> None:
    """Write a matplotlib figure to ``path``, whose ending names the format, and close the figure."""
    from matplotlib import pyplot

    with replaced(path) as partial:
        figure.savefig(partial, format=path.suffix[1:].lower(), dpi=150)
    pyplot.close(figure)
