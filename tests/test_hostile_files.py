from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import READERS, files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


def test_every_hostile_file_is_refused_by_a_value_error(folder: Path) -> None:
    accepted = []
    for name, kind, path in files(folder):
        try:
            READERS[kind](path)
        except ValueError:
            continue
        except Exception as error:
            accepted.append(f"{name}: {type(error).__name__}: {error}"[:300])
        else:
            accepted.append(f"{name}: loaded")
    assert accepted == []


def test_a_newer_format_is_refused_as_newer(tmp_path: Path) -> None:
    newer = [(READERS[kind], path) for name, kind, path in files(tmp_path) if name.startswith("a newer")]
    assert len(newer) == 2
    for read, path in newer:
        with pytest.raises(ValueError, match=r"written by a newer version of seqmodels.*upgrade"):
            read(path)
