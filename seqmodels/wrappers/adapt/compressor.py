"""A compression program as a model: ``-log p(x)`` is the length that x adds to the code of the training part."""

from __future__ import annotations

import bz2
import lzma
import math
import os
import shutil
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, get_args

import numpy as np

from seqmodels.common.array_checks import array_of
from seqmodels.encodings.examples import Example
from seqmodels.model import SequenceModel
from seqmodels.observations import Categorical, Observation
from seqmodels.sequences import Kind
from seqmodels.sequences.measure import MemoryKind

Program = Literal["xz", "bz2", "zlib", "ppmd", "zpaq"]
MAX_SYMBOLS = 256  # because each symbol is coded as one byte
MIN_DICTIONARY = 1 << 12  # smallest dictionary of LZMA2, in bytes
PPMD_MEMORY = 1 << 28  # bytes for contexts, enough that a training part of 20 MB does not reset them
PPMD_ORDER = 6
ZPAQ_METHOD = "5"  # context mixing, the slowest and best of zpaq's methods
CONTEXTS: Mapping[Program, int] = {"zlib": 1 << 15, "bz2": 900_000}  # bytes that a program looks back


@dataclass(eq=False, repr=False)
class Compressor(SequenceModel):
    """A compression program as a model: ``-log2 p(x) = 8 (|C(train x)| - |C(train)| + 1)`` bits.

    ``|C|`` is the number of bytes that the program writes. The cost of a sequence is what it adds to the code of the
    concatenated training sequences; each test sequence is coded after these alone, so that their order does not matter.
    One byte is added because either code is rounded up to whole bytes. By the inequality of Kraft (1949) and McMillan
    (1956), code lengths are probabilities that sum to at most one: the figure is a lower bound (``kind="bound"``), and
    the model is adaptive (``memory_``). This holds strictly for ppmd, which codes byte after byte by arithmetic coding;
    the other programs look ahead, and the difference of their codes may be a few bytes too small. Under
    ``length="stop"`` the end is coded by the length with probability ``1 / (T (T + 1))``, which sums to one over T.

    The whole code length is on the last step, and all steps before it are 0. There are no predictions of steps, and so
    no ``sample``, ``stream`` or ``predict_next``. Scoring a sequence takes one compression of the training part.

    Args:
        program: the program. ``"xz"``: LZMA2 at its highest setting, with a dictionary for all data. ``"bz2"``:
            Burrows-Wheeler in blocks of 900 kB. ``"zlib"``: DEFLATE, which looks back 32 kB. ``"ppmd"``: prediction by
            partial matching (PPMd variant H of Shkarin 2002, order 6; needs the package ``pyppmd``). ``"zpaq"``:
            context mixing (``zpaq -m5``, Mahoney 2015), by the program of that name on the ``PATH``. The tables of zpaq
            grow with the file (from 2²⁰ bytes on): if the test part takes the file over such a size, larger tables code
            the training part in fewer bytes too, and the difference credits that to the test part. State the sizes of
            whole files beside it.

    The other arguments are explained in ``SequenceModel``; ``observation``, ``dtype`` and ``device`` have no effect.
    The data are text as bytes, or at most 256 symbols. ``n_parameters_`` is 0, because the training part itself is what
    was learned.

    >>> model = Compressor("zlib").fit(["to be or not to be, that is the question"])
    >>> (model.log_prob(["that is the question"]) > model.log_prob(["when we have shuffled"])).tolist()
    [True]
    """

    program: Program = "xz"

    _uses_validation: ClassVar[bool] = False
    _predicts_steps: ClassVar[bool] = False

    @property
    def context_(self) -> int | None:
        return CONTEXTS.get(self.program)

    @property
    def n_parameters_(self) -> int:
        self._setting()
        return 0

    @property
    def memory_(self) -> MemoryKind:
        return "adaptive"

    def _default_observation(self, kind: Kind) -> Observation:
        if kind == "vectors":
            raise ValueError("Compressor codes text and symbols, but the sequences are vectors")
        return Categorical()

    def _check_hyperparameters(self) -> None:
        if self.program not in get_args(Program):
            raise ValueError(f"program is {self.program!r}; pass one of {', '.join(map(repr, get_args(Program)))}")
        if self.warm_start:
            raise ValueError("warm_start=True, but a Compressor has nothing to start from; fit on all of the data")
        if self.program == "ppmd":
            _import_ppmd()
        if self.program == "zpaq":
            _zpaq_path()

    def _fit(self, train: list[Example], validation: list[Example]) -> None:
        import pandas as pd

        began = time.perf_counter()
        if self.measure_.conditional and not self.ignore_source:
            raise ValueError("a Compressor models p(x), not p(y | x); leave y out, or pass ignore_source=True for p(y)")
        if self.encoding_.size > MAX_SYMBOLS:
            raise ValueError(
                f"there are {self.encoding_.size} symbols, but a Compressor codes bytes: pass at most {MAX_SYMBOLS}, "
                "or text with encoding=Bytes()"
            )
        if any(example.weight != 1 for example in train):
            raise ValueError("a Compressor codes every training sequence once; leave sample_weight out")
        self._take(b"".join(_as_bytes(example) for example in train))
        self.measure_ = replace(self.measure_, kind="bound")
        log_prob = -8 * math.log(2) * self._n_training_bytes / sum(example.n_units for example in train)
        self.converged_ = True
        self.history_ = pd.DataFrame(
            {
                "step": [1],
                "seconds": [time.perf_counter() - began],
                "log_prob": [log_prob],
                "validation": [np.nan],
                "objective": [log_prob],
                "floor_hits": [0],
            }
        )

    def _take(self, training: bytes) -> None:
        self.training_ = training
        self._n_training_bytes = CODES[self.program](training)

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        results = []
        for example in examples:
            added = CODES[self.program](self.training_ + _as_bytes(example)) - self._n_training_bytes
            length = len(example.values)
            steps = np.zeros(length + (self.length_ == "stop"))
            steps[length - 1] = -8 * math.log(2) * (max(0, added) + 1)
            steps[length:] = -math.log(length) - math.log(length + 1)
            results.append(steps)
        return results

    def cursor(self, n_steps: int | None = None) -> NoReturn:
        """Raise ``ValueError``, because a compressor gives code lengths of whole sequences and predicts no steps."""
        self._setting()
        raise ValueError(
            "a Compressor codes a sequence as a whole, so it has no predictions of steps: no cursor, stream, sample or "
            "predict_next; use log_prob, score and compare"
        )

    def _state(self) -> dict[str, Any]:
        return {"training": np.frombuffer(self.training_, dtype=np.uint8)}

    def _restore(self, state: dict[str, Any]) -> None:
        self._check_hyperparameters()
        self._take(array_of(state, "training", np.uint8, (None,)).tobytes())


def _as_bytes(example: Example) -> bytes:
    return np.asarray(example.values).astype(np.uint8).tobytes()


def _xz(data: bytes) -> int:
    filters = [
        {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": max(MIN_DICTIONARY, len(data))}
    ]
    return len(lzma.compress(data, format=lzma.FORMAT_RAW, filters=filters))


def _bz2(data: bytes) -> int:
    return len(bz2.compress(data, 9))


def _zlib(data: bytes) -> int:
    return len(zlib.compress(data, 9))


def _ppmd(data: bytes) -> int:
    return len(_import_ppmd().compress(data, max_order=PPMD_ORDER, mem_size=PPMD_MEMORY, variant="H"))


def _import_ppmd() -> Any:
    try:
        import pyppmd
    except ImportError as error:
        raise ImportError("ppmd needs the package pyppmd: pip install 'seqmodels[compressors]'") from error
    return pyppmd


def _zpaq(data: bytes) -> int:
    """Return the size of the zpaq archive of ``data`` in bytes.

    It runs in a temporary folder with a fixed file name and date, because an archive stores both.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "data").write_bytes(data)
        os.utime(Path(folder) / "data", (0, 0))
        command = [_zpaq_path(), "add", "archive.zpaq", "data", "-method", ZPAQ_METHOD, "-threads", "1"]
        result = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        archive = Path(folder) / "archive.zpaq"
        if result.returncode != 0 or not archive.exists():
            said = (result.stderr or result.stdout).decode(errors="replace").strip()[-300:]
            raise RuntimeError(f"{' '.join(command)} ended with {result.returncode} and wrote no archive: {said}")
        return archive.stat().st_size


def _zpaq_path() -> str:
    path = shutil.which("zpaq")
    if path is None:
        raise ImportError(
            "zpaq needs the program zpaq on the PATH, and there is none: install it (Debian and Ubuntu: apt install "
            "zpaq; Homebrew: brew install zpaq; source: https://mattmahoney.net/dc/zpaq.html), or take 'ppmd', "
            "or ContextMixing(), which works like it"
        )
    return path


# The number of bytes that each program writes.
CODES: Mapping[Program, Callable[[bytes], int]] = {"xz": _xz, "bz2": _bz2, "zlib": _zlib, "ppmd": _ppmd, "zpaq": _zpaq}
