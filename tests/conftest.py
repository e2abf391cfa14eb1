"""Options and fixtures that several test modules share."""

from __future__ import annotations

import contextlib
import gc
import locale
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import torch

# Triton reads this when it is first imported, which torch does on its own in some tests. Without a GPU its kernels can
# only be interpreted.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from seqmodels.hmm.learning import restarts
from seqmodels.neural.embedding_and_head import IOSpec, SequenceModule
from seqmodels.neural.network import Network
from seqmodels.neural.recurrent.gru import GRUNetwork
from seqmodels.neural.recurrent.lstm import LSTMNetwork
from seqmodels.neural.seq2seq.attention import AdditiveAttention
from seqmodels.neural.seq2seq.network import LSTMSeq2SeqNetwork
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.network import TransformerNetwork, TransformerSeq2SeqNetwork
from seqmodels.observations import AutoregressiveGaussian, Categorical, GaussianMixture, Observation
from tests.families import Row

gc.disable()  # while tests are collected, none of which is garbage
# No modules of tests: two change torch for all of their process, the other is for machines with Triton.
collect_ignore = ["simulated_gpu.py", "perturbed_products.py", "inference/chains/compile_kernels.py"]
TESTS_OF_SCRIPTS = {"benchmarks", "experiments", "faults"}  # the folders of tests of what is no part of the package
NETWORKS: dict[str, Callable[[], Network]] = {
    "gru": lambda: GRUNetwork(8),
    "lstm": lambda: LSTMNetwork(8, 2, dropout=0.3),
    "transformer": lambda: TransformerNetwork(TransformerConfig(d_model=8, n_layers=2, n_heads=2, dropout=0.0)),
    "lstm seq2seq": lambda: LSTMSeq2SeqNetwork(8, attention=AdditiveAttention(8)),
    "transformer seq2seq": lambda: TransformerSeq2SeqNetwork(
        TransformerConfig(d_model=8, n_layers=1, n_heads=2, dropout=0.0)
    ),
}
OBSERVATIONS: dict[str, Observation] = {
    "symbols": Categorical(),
    "vectors": GaussianMixture(2, "full"),
    "autoregressive": AutoregressiveGaussian(2, "diag"),
}


def pytest_configure() -> None:
    """Take the locale of the environment, as notebooks and programs with windows do, and Ctrl-C.

    A shell starts jobs in the background with Ctrl-C ignored; several tests send it.
    """
    with contextlib.suppress(locale.Error):  # of one that is not installed
        locale.setlocale(locale.LC_ALL, "")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--one-row",
        action="store_true",
        help="run tests over the table of tests/families.py on one row of each model class: `make check`",
    )


def row_of(item: pytest.Item) -> Row | None:
    row = item.callspec.params.get("row") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    return row if isinstance(row, Row) else None


@pytest.hookimpl(tryfirst=True)  # the option -m reads the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put all cases of one row of the table side by side, whatever module they stand in: one worker fits it, once.

    They stand where the last of them stood, behind the folders: what numba compiles is then compiled by one worker.
    With ``--one-row``, keep of each test over the table its first case for each model class.
    """
    mark_slow(items)
    if config.getoption("--one-row"):
        leave_out_others(config, items)
    place = {row_of(item) or item.path: i for i, item in enumerate(items)}
    items.sort(key=lambda item: place[row_of(item) or item.path])


def mark_slow(items: list[pytest.Item]) -> None:
    """Mark the tests of scripts as slow, and of each test that is parametrised several times all but a diagonal.

    The diagonal through three densities and two dtypes has three cases, in which each density and each dtype stands.
    ``quick_cases(n)`` keeps the first n of these.
    """
    n_quick: Counter[tuple[Path, str]] = Counter()
    places: dict[Any, dict[Any, int]] = {}  # for each test and each of its decorators the place of each value
    decorators = [parametrised(item) for item in items]
    for item, given in zip(items, decorators, strict=True):
        for names, values in given:
            found = places.setdefault((test_of(item), names), {})
            found.setdefault(values, len(found))
    for item, given in zip(items, decorators, strict=True):
        axes = [(found[values], len(found)) for names, values in given for found in (places[test_of(item), names],)]
        row, _ = max(axes, key=itemgetter(1), default=(0, 0))  # of the longest axis
        is_on_diagonal = all(place == row % length for place, length in axes)
        limit = item.get_closest_marker("quick_cases")
        is_quick = is_on_diagonal and (limit is None or n_quick[test_of(item)] < limit.args[0])
        n_quick[test_of(item)] += is_quick
        if not is_quick or TESTS_OF_SCRIPTS & set(item.path.parts):
            item.add_marker(pytest.mark.slow)


def test_of(item: pytest.Item) -> tuple[Path, str]:
    """Return what the cases of one test have in common."""
    return item.path, item.nodeid.partition("[")[0]


def parametrised(item: pytest.Item) -> list[tuple[Any, Any]]:
    """Return for each decorator that parametrises a test the names of its arguments and their values in this case."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return []
    params, given = item.callspec.params, [mark.args[0] for mark in item.iter_markers("parametrize")]
    axes = [tuple(n.strip() for n in names.split(",")) if isinstance(names, str) else tuple(names) for names in given]
    axes += [(name,) for name in params if not any(name in names for names in axes)]  # of a fixture
    return [(names, tuple(id(params[name]) for name in names)) for names in axes]


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the garbage collector need not go through them again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 20, 20)


def leave_out_others(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, left_out, seen = [], [], set()
    for item in items:
        row = row_of(item)
        if isinstance(item, pytest.Function) and row is not None:
            case = (item.path, item.originalname, type(row.model))
            (left_out if case in seen else kept).append(item)
            seen.add(case)
        else:
            kept.append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(autouse=True)
def _figures_are_closed() -> Iterator[None]:
    """Plots draw on figures of pyplot, which keeps them."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(autouse=True, scope="module")
def _few_starts(request: pytest.FixtureRequest) -> Iterator[None]:
    """``n_init="auto"`` is two starts of the small data here: eight cost four times as much and show no more.

    Pages and their figures have the starts that users have.
    """
    if request.node.name.rpartition("/")[2] in ("test_docs.py", "test_contributing.py"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restarts, "MOST_STARTS", 2)
        yield


@pytest.fixture
def _undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of comparisons have figures that are made and not drawn, which is most of the time of a page."""
    empty = "<svg><defs></defs></svg>"
    monkeypatch.setattr("seqmodels.evaluation.comparison.report.elements.as_svg", lambda figure: empty)


@pytest.fixture
def build_module() -> Callable[..., tuple[SequenceModule, Observation]]:
    """A small network of random weights in float64 and its observation, by name: three symbols, or two features."""

    def build(network: str, emits: str = "symbols", **spec: Any) -> tuple[SequenceModule, Observation]:
        observation = OBSERVATIONS[emits]
        size = 3 if observation.emits == "symbols" else 2
        chosen = {"conditional": False, "has_end": observation.emits == "symbols", **spec}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = SequenceModule(
                NETWORKS[network](), observation, IOSpec(observation.emits, size, **chosen), torch.Generator()
            )
            for parameter in module.parameters():
                torch.nn.init.normal_(parameter, std=0.4)
        return module.double().eval(), observation

    return build
