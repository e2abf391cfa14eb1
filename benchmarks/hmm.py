"""Seconds per EM iteration of several libraries' HMMs, side by side in one run: ``python benchmarks/hmm.py --help``."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path

import pandas as pd
from environments import APART, AT_HOME, make_environments, pythons
from race import TOO_SLOW, entrants, race
from results import FIGURES, draw, table, write
from workloads import SIZES

HERE = Path(__file__).resolve().parent


def main() -> None:
    options = _options()
    if options.make_environments is not None:
        make_environments(options.make_environments)
        return
    os.sched_setaffinity(0, {options.core})  # the processes it starts inherit this
    where = pythons(options.environments)
    libraries = options.libraries or list(where)
    if missing := set(libraries) - set(where):
        raise ValueError(f"{sorted(missing)} live in environments of their own; pass --environments DIR")
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv]
    command = shlex.join(["python", *words])
    done: list[pd.DataFrame] = []
    for workload in options.workloads:
        chosen = entrants(workload, libraries)
        so_far = pd.DataFrame()
        for runs in race(
            workload, chosen, where, rounds=options.rounds, turn=options.turn, n_sequences=options.sequences
        ):
            so_far = table(workload, runs)
            write(pd.concat([*done, so_far]), options.out / "hmm.csv", command)
        done.append(so_far)
        print(so_far[FIGURES].to_string(index=False, float_format="{:.6g}".format), "\n", flush=True)
    draw(pd.concat(done), options.out / "hmm.png")
    for (workload, name), why in TOO_SLOW.items():
        if workload in options.workloads and name.split()[0] in libraries:
            print(f"not run: {name} on {workload}, {why}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--make-environments", type=Path, metavar="DIR", help="make them with pip, and end")
    parser.add_argument("--environments", type=Path, metavar="DIR", help="those of " + " and ".join(APART))
    parser.add_argument("--workloads", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--libraries", nargs="+", choices=[*AT_HOME, *APART])
    parser.add_argument("--rounds", type=int, default=5, help="turns of each, one iteration or more a turn")
    parser.add_argument("--turn", type=float, default=1.0, help="seconds a fast library iterates for before the next")
    parser.add_argument("--sequences", type=int, default=0, help="only the first so many, for trying it out")
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)), help="the one all run on")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
