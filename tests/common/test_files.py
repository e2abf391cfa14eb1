"""What is written in the place of a file is there whole, or not at all."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from seqmodels.common import files


def test_what_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    files.write_text(path, "old")
    with pytest.raises(ZeroDivisionError), files.replaced(path) as half:  # noqa: PT012 (it fails after writing)
        half.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_what_a_killed_process_left_is_removed_and_what_another_writes_is_not(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    (tmp_path / ".page.html.0123456789ab.partial.html").write_text("half")
    (tmp_path / ".other.html.0123456789ab.partial.html").write_text("half")
    with files.replaced(path) as partial:
        partial.write_text("one")
        assert partial.suffix == ".html"
        files.write_text(path, "two")
        assert partial.exists()
    assert path.read_text() == "one"
    assert sorted(file.name for file in tmp_path.iterdir()) == [".other.html.0123456789ab.partial.html", "page.html"]


def test_links_are_followed_and_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "real"
    files.write_text(path, "old")
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    files.write_text(tmp_path / "link", "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "link").is_symlink()
    files.write_text(tmp_path / ("n" * 250), "a long name")
    assert (tmp_path / ("n" * 250)).read_text() == "a long name"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_device_is_written_to_as_it_is() -> None:
    with pytest.raises(OSError, match="No space left"):
        files.write_text("/dev/full", "text")
    files.write_text("/dev/null", "text")


HOLD = """
import sys
from seqmodels.common.files import locked_folder
with locked_folder(sys.argv[1]):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_locked_for_one_process_and_free_again_when_that_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "results"
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with (
            pytest.raises(ValueError, match=f"results is being written to by another run .process {other.pid} on "),
            files.locked_folder(folder),
        ):
            pytest.fail("two have the folder")
        other.kill()
    assert (folder / files.LOCK).exists()  # the killed process left it, and it is no lock
    with files.locked_folder(folder) as root:
        (root / "page.html").write_text("mine")
    assert [each.name for each in folder.iterdir()] == ["page.html"]


def test_of_many_threads_one_has_the_folder_at_a_time(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)  # so that a thread is interrupted between any two looks at the folder
    folder, inside, most, refused = tmp_path / "a", [], [0], []

    def work() -> None:
        for _ in range(40):
            try:
                with files.locked_folder(folder):
                    inside.append(1)
                    most[0] = max(most[0], len(inside))
                    inside.pop()
            except ValueError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert len(refused) < 8 * 40
    assert all("is being written to by another run" in each for each in refused)


def test_a_link_to_nothing_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    with pytest.raises(FileExistsError, match="pass a folder"), files.locked_folder(tmp_path / "a"):
        pass


def test_a_folder_in_which_nothing_was_written_is_removed_again(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), files.locked_folder(tmp_path / "a" / "b"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
