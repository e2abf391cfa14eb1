"""Every claim of this folder, and the page of all.

``python experiments/claims [--quick] [--jobs 2 [--backend dask --scheduler ADDRESS]] [--only NAME ...] [--gallery]``
"""

import argparse
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from gallery import write_gallery
from running import chosen, expected, run_all, scripts

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = HERE.parent / "results" / "claims", HERE.parents[1] / "docs" / "experiments.md"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python experiments/claims", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, written to a temporary folder")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time, of one thread each")
    parser.add_argument("--backend", help="of joblib, which carries the jobs: threads of this process, or 'dask', ...")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of --backend dask, such as tcp://host:8786")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these claims instead of all")
    parser.add_argument(
        "--gallery", action="store_true", help="run nothing: write the page from the results that are there"
    )
    parser.add_argument(
        "--out", type=Path, help="folder of the results, and of the page (by default the committed ones)"
    )
    given = parser.parse_args()
    if given.jobs < 1:
        parser.error(f"--jobs is {given.jobs}; pass at least 1")
    if given.scheduler is not None and given.backend != "dask":
        parser.error("--scheduler is of --backend dask")
    return given


def main() -> int:
    """0, or 1 if a script failed."""
    given = arguments()
    temporary = Path(tempfile.mkdtemp(prefix="claims-")) if given.quick and given.out is None else None
    out = given.out or temporary
    results, page = (RESULTS, PAGE) if out is None else (out, out / "experiments.md")
    failed = [] if given.gallery else run(given, results)
    names = write_gallery(results, page, scripts(HERE))
    print(f"{len(names)} claims on {page}")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def run(given: argparse.Namespace, results: Path) -> list[str]:
    """The names of what failed."""
    try:
        paths = chosen(HERE, given.only)
    except ValueError as error:
        sys.exit(str(error))
    options = ["--out", str(results), *(["--quick"] if given.quick else [])]
    print(f"{len(paths)} claims, {given.jobs} at a time, into {results}", flush=True)
    with backend_of(given):
        outcomes = run_all(
            paths, options, given.jobs, lambda path: expected(path, RESULTS), lambda s: print(s, flush=True)
        )
    return [outcome.name for outcome in outcomes if outcome.code != 0]


def backend_of(given: argparse.Namespace) -> AbstractContextManager[Any]:
    """Where joblib starts the scripts."""
    if given.backend is None:
        return nullcontext()
    from joblib import parallel_config

    if given.backend == "ray":
        from ray.util.joblib import register_ray

        register_ray()
    options = {} if given.scheduler is None else {"scheduler_host": given.scheduler}
    config: AbstractContextManager[Any] = parallel_config(given.backend, n_jobs=given.jobs, **options)
    return config


if __name__ == "__main__":
    sys.exit(main())
