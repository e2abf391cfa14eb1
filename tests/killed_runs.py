"""Fits that are as good as killed after some checkpoints."""

from __future__ import annotations

from typing import Any

import pytest

from seqmodels.training import checkpoint


class Killed(Exception):
    """In the place of a kill."""


def written(monkeypatch: pytest.MonkeyPatch, *, most: int | None) -> list[int]:
    """Count checkpoints as they are written; after so many the process is as good as dead."""
    seen: list[int] = []
    write = checkpoint.write

    def watch(path: Any, state: Any) -> None:
        write(path, state)
        seen.append(len(seen) + 1)
        if len(seen) == most:
            raise Killed

    monkeypatch.setattr(checkpoint, "write", watch)
    return seen
