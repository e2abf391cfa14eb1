"""Writes that are killed, run out of disk or lack permission: is exactly the old file or the new one there, whole?"""

from __future__ import annotations

import os
import resource
import signal
import stat
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image

import seqmodels as sm
from seqmodels.common import files
from seqmodels.evaluation.comparison import saved_comparison
from seqmodels.training import checkpoint
from tests.faults.promise import Promise, main

FIXTURES = Path(__file__).parents[1] / "fixtures" / "0.1.0"
SIZE = 500_000  # numbers of a model here: 4 MB
NOBODY = 65534
REFUSED = 3


@dataclass(frozen=True)
class Target:
    """A kind of file: ``write(path, i)`` writes number i; ``read(path)`` returns i, or raises where it is not whole."""

    name: str
    write: Callable[[Path, int], Any]
    read: Callable[[Path], int]


def targets() -> list[Target]:
    """One of each that the library writes."""
    mpl.use("agg")
    comparison = sm.evaluation.Comparison.load(FIXTURES / "comparison")
    many = replace(comparison, log_prob_steps={name: _long(steps) for name, steps in comparison.log_prob_steps.items()})
    hmm = sm.HMM.from_parameters([0.5, 0.5], np.eye(2), emission=np.full((2, SIZE // 2), 2 / SIZE))

    def write_model(path: Path, i: int) -> None:
        hmm.random_state = i
        hmm.save(path)

    def write_comparison(path: Path, i: int) -> None:
        replace(many, provenance={"number": i}).save(path)

    def write_table(path: Path, i: int) -> None:
        frame = comparison.frame.loc[np.zeros(1_000, int)].assign(number=i)
        replace(comparison, frame=frame).to_csv(path)

    def write_picture(path: Path, i: int) -> None:
        with files.replaced(path) as partial:
            Image.fromarray(np.tile(np.array([i & 255, i >> 8], np.uint8), (600, 300)) ^ noise).save(partial)

    def read_picture(path: Path) -> int:
        low, high = (np.asarray(Image.open(path)) ^ noise).reshape(-1, 2).T.astype(int)
        if np.ptp(low) or np.ptp(high):
            raise ValueError("a mixture")
        return int(low[0] + 256 * high[0])

    noise = np.random.default_rng(0).integers(0, 256, (600, 600), dtype=np.uint8)
    return [
        Target("model", write_model, lambda path: sm.load(path).random_state),
        Target("checkpoint", _write_checkpoint, _read_checkpoint),
        Target(
            "comparison", write_comparison, lambda path: int(sm.evaluation.Comparison.load(path).provenance["number"])
        ),
        Target("table.csv", write_table, _read_table),
        Target("page.html", lambda path, i: files.write_text(path, f"<i>{i}</i>" * 100_000), _read_page),
        Target("picture.png", write_picture, read_picture),
    ]


def _long(steps: list[np.ndarray]) -> list[np.ndarray]:
    return [np.tile(each, SIZE // 200) for each in steps]


def _write_checkpoint(path: Path, i: int) -> None:
    checkpoint.write(path, {"weights": {"w": np.full(SIZE, float(i))}, "number": i})


def _read_checkpoint(path: Path) -> int:
    state = checkpoint.read(path)
    if not (state["weights"]["w"] == state["number"]).all():
        raise ValueError("a mixture")
    return int(state["number"])


def _read_table(path: Path) -> int:
    import pandas as pd

    numbers = pd.read_csv(path)["number"]
    if len(numbers) != 1_000 or numbers.nunique() != 1:
        raise ValueError("a part, or a mixture")
    return int(numbers[0])


def _read_page(path: Path) -> int:
    pages = path.read_text(encoding="utf-8").removesuffix("</i>").split("</i>")
    if len(pages) != 100_000 or len(set(pages)) != 1:
        raise ValueError("a part, or a mixture")
    return int(pages[0].removeprefix("<i>"))


def strays(folder: Path, path: Path) -> list[str]:
    """What is in the folder and belongs to no whole file."""
    inside = {path.name}
    found = [each.name for each in folder.iterdir() if each.name not in inside]
    if path.is_dir():
        current = saved_comparison.read_main(path)["folder"]
        kept = {saved_comparison.MAIN, current}
        found += [each.name for each in path.iterdir() if each.name not in kept]
        found += [each.name for each in (path / current).rglob("*") if "partial" in each.name]
    return found


def in_child(work: Callable[[], Any]) -> int:
    """Do it in a process of its own, which ends with ``REFUSED`` where that was an ``OSError``; its number."""
    process = os.fork()
    if process:
        return process
    try:
        work()
    except OSError:
        os._exit(REFUSED)
    except BaseException:
        os._exit(1)
    os._exit(0)


def killed(target: Target, folder: Path, n: int, rng: np.random.Generator) -> tuple[int, int, list[str]]:
    """Counts of kills after which the file was whole and no older, and of those in the middle of a write; stray files.

    Stray files are those left beside it after another save.
    """
    path = folder / target.name
    began = time.perf_counter()
    target.write(path, 0)
    lasts = max(time.perf_counter() - began, 0.005)
    whole = middle = last = 0
    for _ in range(n):

        def write_on(first: int = last + 1) -> None:
            for i in range(first, first + 200):
                target.write(path, i)

        process = in_child(write_on)
        time.sleep(rng.uniform(0, 3) * lasts)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        middle += bool(strays(folder, path))
        now = target.read(path)
        whole += now >= last
        last = now
    target.write(path, last + 1)
    whole -= target.read(path) != last + 1
    return whole, middle, strays(folder, path)


def full(target: Target, folder: Path, limits: list[int]) -> tuple[int, int, list[str]]:
    """Writes under a limit of file size: how many ended as they should, how many failed, and stray files."""
    path, well, failed, left = folder / target.name, 0, 0, []
    target.write(path, 1)
    for limit in limits:

        def write_little(limit: int = limit) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            target.write(path, 2)

        status = os.waitpid(in_child(write_little), 0)[1]
        failed += os.waitstatus_to_exitcode(status) == REFUSED
        well += target.read(path) == (1 if os.waitstatus_to_exitcode(status) == REFUSED else 2)
        left += strays(folder, path)
        target.write(path, 1)
    return well, failed, left


def read_only(target: Target, folder: Path) -> bool:
    """Whether a write by one who may not leaves the old one, and fails."""
    path = folder / target.name
    target.write(path, 1)
    places = [folder, *(each for each in (path, *path.rglob("*")) if each.is_dir())]
    for place in places:
        os.chmod(place, stat.S_IRUSR | stat.S_IXUSR | stat.S_IROTH | stat.S_IXOTH)

    def write_as_nobody() -> None:
        if os.geteuid() == 0:  # who may write everywhere
            os.setuid(NOBODY)
        target.write(path, 2)

    status = os.waitpid(in_child(write_as_nobody), 0)[1]
    for place in places:
        os.chmod(place, stat.S_IRWXU)
    return os.waitstatus_to_exitcode(status) == REFUSED and target.read(path) == 1 and not strays(folder, path)


def measure(quick: bool) -> list[Promise]:
    torch.set_num_threads(1)
    n, rng, all_targets = (5 if quick else 50), np.random.default_rng(0), targets()
    chosen = all_targets[1:3] if quick else all_targets
    limits = (
        [0, 300, 1_000_000] if quick else [0, 1, 100, 300, 1000, 3000, 10_000, 50_000, 200_000, 1_000_000, 3_000_000]
    )
    kills, fulls, refused, left = {}, {}, {}, []
    with tempfile.TemporaryDirectory() as kept:
        os.chmod(kept, 0o755)
        for target in chosen:
            folder = Path(kept) / target.name
            folder.mkdir()
            whole, middle, here = killed(target, folder, n, rng)
            kills[target.name], left = whole, [*left, *here]
            print(
                f"{target.name}: whole after {whole} of {n} kills, {middle} of them in the middle of a write; "
                f"strays {here}"
            )
            well, failed, here = full(target, folder, limits)
            fulls[target.name], left = well, [*left, *here]
            print(
                f"{target.name}: {well} of {len(limits)} as they should be where the disk is full, "
                f"{failed} of them failed; {here}"
            )
            refused[target.name] = read_only(target, folder)
            print(f"{target.name}: intact where it may not be written: {refused[target.name]}")
    return [
        Promise(
            f"{n} kills (SIGKILL) of a process that writes, each of {len(kills)}: {', '.join(kills)}",
            "the old or the new one, whole, every time",
            f"{min(kills.values())} of {n} in the worst case",
            min(kills.values()) == n,
        ),
        Promise("the same, after one more save", "no other file", f"{len(left)}", not left),
        Promise(
            f"writes to a disk that is full after 0 to {max(limits):,} bytes",
            "the old one whole, or the new one",
            f"{min(fulls.values())} of {len(limits)} in the worst case",
            min(fulls.values()) == len(limits),
        ),
        Promise(
            "writes to a folder that is read-only",
            "an OSError, the old one whole",
            f"{sum(refused.values())} of {len(refused)}",
            all(refused.values()),
        ),
    ]


if __name__ == "__main__":
    main(measure)
