"""Print the lowest versions of the dependencies that ``pyproject.toml`` allows, as requirements for pip.

``python tools/lowest.py [EXTRA ...]``: the dependencies, and those of the extras named.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest(extras: list[str]) -> list[str]:
    """``name==version`` for each ``name>=version``; requirements without a version as they are."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    requirements = [*project["dependencies"], *(each for extra in extras for each in optional[extra])]
    return [requirement.replace(">=", "==") for requirement in requirements]


if __name__ == "__main__":
    print("\n".join(lowest(sys.argv[1:])))
