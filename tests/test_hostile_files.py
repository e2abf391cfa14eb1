from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.hostile import READERS, files


def test_every_hostile_file_is_refused_by_a_value_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda held: None)  # what is written to be read once may be lost
    accepted = []
    for name, kind, path in files(tmp_path):
        try:
            READERS[kind](path)
        except ValueError as error:
            newer = re.search("written by a newer version of seqmodels.*upgrade", str(error))
            if bool(newer) != name.startswith("a newer"):
                accepted.append(f"{name}: refused as something else: {error}"[:300])
        except Exception as error:
            accepted.append(f"{name}: {type(error).__name__}: {error}"[:300])
        else:
            accepted.append(f"{name}: loaded")
    assert accepted == []
