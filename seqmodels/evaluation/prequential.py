"""Prequential code lengths: what data cost to code from nothing, by a model that learns as it goes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.distributed import LostProcessError
from seqmodels.common.parameters import checked
from seqmodels.encodings import Encoding, Symbols
from seqmodels.encodings.raw_data import Data
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.encodings.symbols import takes_alphabet_from_data
from seqmodels.evaluation import parallel_fits
from seqmodels.evaluation.tuning.search import FAILURES
from seqmodels.model import SequenceModel
from seqmodels.sequences import Item, Sequences
from seqmodels.sequences.measure import SPACES, Measure, Values, check_comparable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

N_BYTES = 256
MOST_BLOCKS = 64  # because blocks double in size, so that the first of more would be smaller than one unit
LOG_2 = math.log(2)

Moments = tuple[Any, Any]  # mean and standard deviation of each feature, (D,) or numbers


@dataclass(frozen=True, eq=False, repr=False)
class CodeLength:
    """The code length of data under one model, which codes each block after a fit to all blocks before it.

    It is the result of ``prequential``. A unit is a frame, byte or symbol.

    Attributes:
        frame: a frame with a row for each block, a run of consecutive steps or sequences: ``n_before`` (units that the
            model was fitted to), ``n_units`` of the block, ``nats`` (its code length), ``nats_per_unit``,
            ``model_nats`` and ``reference_nats`` (its code length under the model alone, NaN without a fit, and under
            the untrained reference alone), ``seconds`` of fit and scoring, and ``error`` (why a fit failed, else
            empty).
        unit: unit of the data: frame, byte or symbol.
        measure: what the log-probabilities measure: space, unit, and how lengths are treated.
    """

    frame: pd.DataFrame
    unit: str
    measure: Measure

    @property
    def nats(self) -> float:
        """Code length of all of the data in nats."""
        return float(self.frame["nats"].sum())

    @property
    def nats_per_unit(self) -> float:
        """Code length of all of the data in nats per unit."""
        return self.nats / float(self.frame["n_units"].sum())

    def __repr__(self) -> str:
        n = int(self.frame["n_units"].sum())
        return (
            f"{self.nats:,.1f} nats ({self.nats / LOG_2 / 8:,.0f} bytes) for {n:,} {self.unit}s, "
            f"{self.nats_per_unit:.4f} nats per {self.unit}, in {len(self.frame)} blocks"
        )


@dataclass(frozen=True, eq=False, repr=False)
class CodeLengths:
    """The prequential code lengths of the same data under several models; printed, it shows ``frame``.

    Attributes:
        frame: a frame with a row for each model, the shortest code first: ``model``, ``nats``, ``bits``,
            ``nats_per_unit``, ``difference`` (nats more than the shortest), ``seconds``, ``n_by_reference`` (number of
            blocks coded by the untrained reference alone, the first among them).
        blocks: a frame with a row for each block of each model: ``model`` and the columns of ``CodeLength.frame``.
        unit: unit of the data: frame, byte or symbol.
    """

    frame: pd.DataFrame
    blocks: pd.DataFrame
    unit: str

    @checked
    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot nats per unit of each block against the units before it, a line for each model; return the axes.

        Args:
            ax: axes to draw on; None makes a new figure.
        """
        from seqmodels.plot.prequential import plot_code_lengths

        return plot_code_lengths(self, ax)

    def __repr__(self) -> str:
        return self.frame.to_string(index=False, float_format="%.6g")


@checked
def prequential(
    model: SequenceModel,
    X: Any,
    y: Any = None,
    *,
    blocks: int = 8,
    validation: Any = "auto",
    reference: Moments | None = None,
    n_jobs: parallel_fits.Jobs = 1,
) -> CodeLength:
    """Return the code length of ``X``, in its order, under a model that is fitted again and again to what came before.

    The data are cut into blocks, each as long as all before it together. Block k costs ``-log p_k`` under the model
    fitted to blocks ``1 .. k - 1``. The sum is the prequential code length (Dawid 1984; Rissanen 1984), a description
    of the data that needs no test part and in which parameters cost what it takes to learn them (Blier & Ollivier 2018,
    *The description length of deep learning models*). The shortest code belongs to the model that learns these data
    best from few and from many of them alike.

    The first block is coded by a reference: symbols and bytes by a uniform code (with the end as one more symbol if
    ends are scored), vectors by independent Gaussians, bits by 1/2 each, counts by a geometric distribution, amounts by
    1/2 for 0 and an exponential density above. Every other block is coded by ``(p_k + reference) / 2``, which costs at
    most log 2 nats more than the better of the two, so that the sum stays finite if a fit to the first few steps rules
    out what comes next. If a fit fails, for too little data, the block is coded by the reference; a receiver, who has
    the same data, would do the same.

    One long sequence is cut into blocks of steps, each scored after all steps before it. Several sequences are cut into
    blocks of whole sequences. The lengths under ``length="given"``, the alphabet of symbols, and the moments of the
    reference are taken as known and cost nothing.

    Args:
        model: the model; a fit that it may have is ignored, and it stays as it is.
        X, y: sequences, and targets for p(y | x); with targets, the code lengths are of the targets.
        blocks: number of blocks. The first is ``2^(1 - blocks)`` of the data, or one sequence. Each block after the
            first costs one fit.
        validation: the argument of ``fit``, used within each fit: ``"auto"`` lets networks hold out a part of the data
            for early stopping, None holds out nothing.
        reference: mean and standard deviation of the Gaussians, each a number or an array ``(D,)`` of D features, in
            raw units; for counts only the mean is used. None means the moments of all of the data, the same for every
            model.
        n_jobs: number of blocks whose fits run at the same time, -1 for one for each core, or an ``Executor`` of
            ``concurrent.futures``. A block whose process was killed is coded by the reference.

    Returns:
        ``CodeLength``, with the sum ``.nats`` and a row for each block in ``.frame``.

    Raises:
        ValueError: ``blocks`` is less than two, the data are too short for two blocks, or no fit succeeded.
        KeyboardInterrupt: Ctrl-C or SIGTERM was received.

    >>> from seqmodels import NGram
    >>> code = prequential(NGram(2), ["ab" * 200], blocks=5)
    >>> code.nats < 0.3 * 400 * math.log(256)
    True
    """
    jobs = parallel_fits.checked_jobs(n_jobs, has_seconds=False)
    ((_, code),) = codes_of_each({"": model}, _of(X, y), blocks, validation, reference, jobs)
    if isinstance(code, ValueError):
        raise code
    return code


@checked
def prequential_code_lengths(
    models: Mapping[str, SequenceModel],
    X: Any,
    y: Any = None,
    *,
    blocks: int = 8,
    validation: Any = "auto",
    reference: Moments | None = None,
    n_jobs: parallel_fits.Jobs = 1,
    progress: Callable[[str], None] | None = None,
) -> CodeLengths:
    """Return the prequential code lengths of the same data under several models, the shortest code first.

    The data are cut into blocks. Each block is coded by the model after a fit to all blocks before it, and the first by
    an untrained reference; ``prequential`` describes the method.

    Args:
        models: models by name; they stay as they are.
        X, y: sequences, and targets for p(y | x); with targets, the code lengths are of the targets.
        blocks: number of blocks, each as long as all before it together.
        validation: the argument of ``fit``, used within each fit: ``"auto"`` or None.
        reference: mean and standard deviation of the reference's Gaussians, each a number or an array ``(D,)`` of D
            features, in raw units; None means the moments of all of the data.
        n_jobs: number of fits, of all models, that run at the same time, -1 for one for each core, or an ``Executor``
            of ``concurrent.futures``.
        progress: a function that is called with a line of text when a model is done; None means none.

    Returns:
        ``CodeLengths``, with a row for each model in ``.frame``.

    Raises:
        IncomparableError: two models measure different things.
        ValueError: there are no models, an argument is invalid, the data are too short for two blocks, or no fit of a
            model succeeded.

    >>> from seqmodels import HMM, NGram
    >>> codes = prequential_code_lengths({"iid": HMM(1), "ngram": NGram(3)}, ["abcab" * 60], blocks=4)
    >>> codes.frame["model"].tolist()
    ['ngram', 'iid']
    """
    if not models:
        raise ValueError("there are no models; pass a dictionary {name: model}")
    jobs = parallel_fits.checked_jobs(n_jobs, has_seconds=False)
    codes: dict[str, CodeLength] = {}
    for name, code in codes_of_each(models, _of(X, y), blocks, validation, reference, jobs):
        if isinstance(code, ValueError):
            raise code
        codes[name] = code
        if progress is not None:
            progress(f"{name}: {code!r}")
    return joined_codes({name: codes[name] for name in models})


def codes_of_each(
    models: Mapping[str, SequenceModel],
    data: Data,
    blocks: int,
    validation: Any,
    reference: Moments | None,
    jobs: parallel_fits.Jobs,
) -> Iterator[tuple[str, CodeLength | ValueError]]:
    """Yield each model's name and code length, or the ``ValueError`` that says why it has none, when it is done.

    A code length is what the data cost in nats if each block is coded by the model after a fit to all blocks before it.

    Args:
        models: models by name.
        data: sequences X and targets y.
        blocks: number of blocks that the data are cut into, each as long as all before it together.
        validation: the argument of ``fit``, used within each fit.
        reference: mean and standard deviation of the untrained reference's Gaussians; None means those of the data.
        jobs: number of fits, of all models, that run at the same time, or an ``Executor``, as ``checked_jobs`` returns
            it.

    Raises:
        ValueError: the data or arguments are invalid, which concerns all models.
    """
    for model in models.values():
        if not isinstance(model, SequenceModel):
            raise ValueError(f"model is {model!r}; pass a SequenceModel, such as HMM(4)")
    if not (isinstance(blocks, int | np.integer) and blocks >= 2):
        raise ValueError(f"blocks is {blocks!r}; pass a whole number, at least 2")
    first, *later = _blocks(data, int(blocks))
    if not later:
        raise ValueError("the data are too short for two blocks; pass at least two sequences, or two steps of one")
    known = {name: _with_known_alphabet(model, data) for name, model in models.items()}
    tasks = [
        ((name, k), partial(_coded, model, data, block, validation))
        for name, model in known.items()
        for k, block in enumerate(later)
    ]
    if jobs != 1:
        tasks.sort(key=lambda task: -task[0][1])  # the longest first, because it would run alone at the end
    coded: dict[str, dict[int, tuple[_Coded, Setting | None]]] = {name: {} for name in models}
    for (name, k), outcome in parallel_fits.run(tasks, jobs):
        if isinstance(outcome, parallel_fits.LostWorker):
            coded[name][k] = _Coded(later[k], math.nan, math.nan, outcome.error), None
        else:
            coded[name][k] = outcome
        if len(coded[name]) == len(later):
            each = [coded[name][i] for i in range(len(later))]
            yield name, _code_length(first, each, data, reference)


def _code_length(
    first: _Block, coded: list[tuple[_Coded, Setting | None]], data: Data, reference: Moments | None
) -> CodeLength | ValueError:
    """Add up the code length of one model over its blocks; return a ``ValueError`` if no fit succeeded.

    Args:
        first: the first block, which the untrained reference codes alone.
        coded: each later block with the setting (encoding, observation, measure) of the copy that coded it, None if its
            fit failed.
        data: the sequences and targets.
        reference: mean and standard deviation of the reference's Gaussians; None means those of the data.
    """
    settings = [setting for _, setting in coded if setting is not None]
    if not settings:
        return ValueError(f"no fit succeeded; the last one: {coded[-1][0].error}")
    reference_of = _reference(settings[-1], data, reference)
    every = [_Coded(first, math.nan, 0.0, ""), *(each for each, _ in coded)]
    rows = [_row(each, reference_of(each.block)) for each in every]
    import pandas as pd

    return CodeLength(pd.DataFrame(rows), data.scored.unit, settings[-1].measure)


def joined_codes(codes: Mapping[str, CodeLength]) -> CodeLengths:
    """Join the code lengths of the same data under several models into one table, the shortest code first.

    Args:
        codes: code length of each model, by name.

    Raises:
        IncomparableError: two of them measure different things.
    """
    import pandas as pd

    check_comparable({name: code.measure for name, code in codes.items()})
    rows = [
        {
            "model": name,
            "nats": code.nats,
            "bits": code.nats / LOG_2,
            "nats_per_unit": code.nats_per_unit,
            "difference": code.nats - min(each.nats for each in codes.values()),
            "seconds": float(code.frame["seconds"].sum()),
            "n_by_reference": int(code.frame["model_nats"].isna().sum()),
        }
        for name, code in codes.items()
    ]
    frame = pd.DataFrame(rows).sort_values("nats", kind="stable", ignore_index=True)
    each = [codes[name].frame.assign(model=name) for name in frame["model"]]
    blocks_frame = pd.concat(each, ignore_index=True)
    blocks_frame.insert(0, "model", blocks_frame.pop("model"))
    return CodeLengths(frame, blocks_frame, next(iter(codes.values())).unit)


# -- blocks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Block:
    """One block of the data, a run of sequences or, if there is one sequence, of its steps.

    Attributes:
        start, stop: indices of the first item and after the last; items are sequences, or steps (characters of a text).
        n_before: number of units (frames, bytes or symbols) before the block.
        n_units: number of units in the block.
        of_one: True if the items are steps of a single sequence.
        is_last: True for the last block.
    """

    start: int
    stop: int
    n_before: int  # units
    n_units: int
    of_one: bool  # steps of one sequence
    is_last: bool


def _blocks(data: Data, n_blocks: int) -> Iterator[_Block]:
    """Cut the data into blocks, each as long in units as all before it together; yield about ``n_blocks`` of them.

    A unit is a frame, byte or symbol. There are fewer blocks if the data are short.
    """
    scored = data.scored
    of_one = len(scored) == 1 and data.y is None
    if of_one:
        sizes = _sizes_of_steps(scored.items[0])
    else:
        sizes = scored.n_units
    ends = np.cumsum(sizes)  # units up to and with each item
    targets = ends[-1] * 2.0 ** -np.arange(min(n_blocks, MOST_BLOCKS) - 1, -1, -1)
    edges = np.unique([0, *(int(np.searchsorted(ends, target)) + 1 for target in targets[:-1]), len(sizes)])
    units = np.concatenate([[0], ends])
    for start, stop in pairwise(edges):
        n_before, n_units = int(units[start]), int(units[stop] - units[start])
        yield _Block(int(start), int(stop), n_before, n_units, of_one, int(stop) == len(sizes))


def _sizes_of_steps(item: Item) -> np.ndarray:
    """Return the number of units of each step of a sequence: 1, or for a text the number of bytes of each character."""
    if isinstance(item, str):
        return np.array([len(character.encode()) for character in item])
    return np.ones(len(item), dtype=int)


def _of(X: Any, y: Any) -> Data:
    """Return X and y as checked ``Data``.

    Raises:
        ValueError: sequences have a past, earlier steps kept as context, which would not be coded.
    """
    data = Data.of(X, y)
    data.refuse_past("a code")
    return data


def _part(data: Data, start: int, stop: int) -> Data:
    mask = np.zeros(len(data.X), dtype=bool)
    mask[start:stop] = True
    return data.take(mask)


@dataclass(frozen=True)
class _Coded:
    """The result of coding one block with a model fitted to all blocks before it.

    Attributes:
        block: the block.
        model_nats: code length in nats; NaN without a fitted model, as for the first block.
        seconds: seconds of fit and scoring.
        error: why the fit failed, else empty.
    """

    block: _Block
    model_nats: float
    seconds: float
    error: str


def _coded(model: SequenceModel, data: Data, block: _Block, validation: Any) -> tuple[_Coded, Setting | None]:
    """Code ``block`` with a copy of the model fitted to all data before it; return the result and the copy's setting.

    The setting holds the fitted encoding and what log-probabilities measure; it is None if the fit failed.

    Args:
        model: the model, which stays as it is.
        data: all sequences and targets.
        block: the block.
        validation: the argument of ``fit``.
    """
    began = time.perf_counter()
    clone = model.clone()
    try:
        with parallel_fits.without_warnings():  # because every fit would warn of too few data
            if block.of_one:
                before = data.X.segments([(0, 0, block.start)])
                clone.fit(before, validation=validation)
            else:
                part = _part(data, 0, block.start)
                clone.fit(part.X, part.y, validation=validation)
            if clone.interrupted_:
                raise KeyboardInterrupt
            nats = -_log_prob(clone, data, block)
    except LostProcessError:
        raise
    except FAILURES as error:
        return _Coded(block, math.nan, time.perf_counter() - began, f"{type(error).__name__}: {error}"), None
    return _Coded(block, nats, time.perf_counter() - began, ""), clone._setting()


def _log_prob(model: SequenceModel, data: Data, block: _Block) -> float:
    if not block.of_one:
        part = _part(data, block.start, block.stop)
        return float(model.log_prob(part.X, part.y).sum())
    steps = model.log_prob_steps(data.X.segments([(0, 0, block.stop)]))[0]
    end = len(steps) if block.is_last else block.n_before + block.n_units  # only the last block has the end
    return float(steps[block.n_before : end].sum())


def _row(coded: _Coded, reference: float) -> dict[str, Any]:
    block = coded.block
    nats = reference
    if not math.isnan(coded.model_nats):  # -log((p + reference) / 2), in logarithms
        nats = LOG_2 - float(np.logaddexp(-coded.model_nats, -reference))
    return {
        "n_before": block.n_before,
        "n_units": block.n_units,
        "nats": nats,
        "nats_per_unit": nats / block.n_units,
        "model_nats": coded.model_nats,
        "reference_nats": reference,
        "seconds": coded.seconds,
        "error": coded.error,
    }


# -- what is known before any data --------------------------------------------------------------------------------


def _with_known_alphabet(model: SequenceModel, data: Data) -> SequenceModel:
    """Return an unfitted copy of the model whose alphabet has all symbols of the data, even those that come late."""
    clone = model.clone()
    if data.scored.kind == "symbols" and data.scored.symbols is None and takes_alphabet_from_data(clone.encoding):
        items = [*data.scored, *(data.X if data.y is not None and data.X.kind == "symbols" else ())]
        clone.set_params(encoding=Symbols(1 + max(int(np.max(np.asarray(item))) for item in items)))
    if data.y is not None and data.X.kind == "symbols" and data.X.symbols is None and model._has_encoder:
        clone.set_params(source_encoding=Symbols(1 + max(int(np.max(np.asarray(item))) for item in data.X)))
    return clone


def _reference(setting: Setting, data: Data, moments: Moments | None) -> Callable[[_Block], float]:
    """Return a function from a block to its code length in nats under the untrained reference of ``prequential``.

    The reference is a uniform code for symbols and bytes, and a density of independent features for vectors.

    Args:
        setting: encoding and measure of any fitted copy of the model.
        data: the sequences and targets.
        moments: mean and standard deviation of the Gaussians that the user passed; None means those of the data.
    """
    scored = data.scored
    with_end = setting.measure.length == "stop"
    if scored.kind == "vectors":
        density = _Density.of(setting.encoding, scored, moments)

        def of_vectors(block: _Block) -> float:
            if block.of_one:
                items = [np.asarray(scored.items[0][block.start : block.stop], dtype=float)]
            else:
                items = [np.asarray(item, dtype=float) for item in scored.items[block.start : block.stop]]
            return -sum(density.log_prob(item) for item in items)

        return of_vectors
    size = N_BYTES if scored.kind == "text" else setting.encoding.size

    def of_symbols(block: _Block) -> float:
        n_ends = (block.is_last if block.of_one else block.stop - block.start) if with_end else 0
        return (block.n_units + n_ends) * math.log(size + with_end)

    return of_symbols


@dataclass(frozen=True)
class _Density:
    """A reference density of vectors with independent features: Gaussian, bits of probability 1/2, geometric counts.

    Amounts are 0 with probability 1/2, and have an exponential density above.

    Attributes:
        values: kind of each of the D features, such as ``"reals"``, ``"bits"`` or ``"counts"``.
        mean, deviation: mean and standard deviation of each feature, ``(D,)``.
    """

    values: tuple[Values, ...]
    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, encoding: Encoding, sequences: Sequences, moments: Moments | None) -> _Density:
        """Return the reference density for the kinds of features that ``encoding`` yields.

        Args:
            encoding: fitted encoding of the sequences.
            sequences: all of the data, sequences of vectors.
            moments: mean and standard deviation; None means that they are computed from the data.

        Raises:
            ValueError: the moments are not finite or a deviation is not above zero.
        """
        values = tuple(encoding.values())
        n_features = len(values)
        if moments is None:
            n, total, squares = np.zeros(n_features), np.zeros(n_features), np.zeros(n_features)
            for item in sequences.items:
                x = np.asarray(item, dtype=float)
                n += np.isfinite(x).sum(axis=0)
                total += np.nansum(x, axis=0)
            mean = total / np.maximum(n, 1)
            for item in sequences.items:
                squares += np.nansum((np.asarray(item, dtype=float) - mean) ** 2, axis=0)
            deviation = np.sqrt(squares / np.maximum(n, 1))
            return cls(values, mean, np.where(deviation > 0, deviation, 1.0))
        mean, deviation = (np.broadcast_to(np.asarray(each, dtype=float), n_features) for each in moments)
        if not (np.isfinite(mean).all() and np.isfinite(deviation).all() and (deviation > 0).all()):
            raise ValueError(f"reference is {moments!r}; pass a finite mean and a standard deviation above zero")
        return cls(values, mean, deviation)

    def log_prob(self, x: np.ndarray) -> float:
        """Return the log-density of T frames of D features, summed over all known values, in nats.

        Args:
            x: the frames, ``(T, D)``; NaN marks a missing value.
        """
        total = 0.0
        for value, column, mean, deviation in zip(self.values, x.T, self.mean, self.deviation, strict=True):
            known = column[~np.isnan(column)]
            if SPACES[value] == "R":
                z = (known - mean) / deviation
                total += float((-0.5 * z**2 - math.log(deviation) - 0.5 * math.log(2 * math.pi)).sum())
            elif value == "bits":
                total -= len(known) * LOG_2
            elif value == "amounts":
                above = known[known > 0]
                total -= len(known) * LOG_2 + float((above / mean + math.log(mean)).sum())
            else:
                rate = max(mean, 1e-3)  # mean of the geometric distribution
                total += float((known * math.log(rate / (1 + rate)) - math.log(1 + rate)).sum())
        return total
