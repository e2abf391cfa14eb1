"""``compare``: fit several models, score the same held-out sequences with each, and rank them by likelihood."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import a_or_an
from seqmodels.common.distinct_warnings import distinct_warnings
from seqmodels.common.parameters import Seed, check_options
from seqmodels.common.progress import ProgressBar, Verbose
from seqmodels.encodings.raw_data import Data
from seqmodels.evaluation.comparison.comparison import Comparison
from seqmodels.evaluation.comparison.comparison_frame import comparison_frame, n_effective
from seqmodels.evaluation.comparison.fit_and_score import Progress, fit_and_score
from seqmodels.evaluation.comparison.model_results import ModelResult
from seqmodels.evaluation.comparison.near_duplicates import near_duplicates
from seqmodels.evaluation.comparison.overlap import warn_of_overlap
from seqmodels.evaluation.comparison.plan import DataParts, FitPlan
from seqmodels.evaluation.comparison.provenance import comparison_provenance
from seqmodels.evaluation.comparison.reference import Reference, fit_reference
from seqmodels.evaluation.comparison.unseen import n_unseen, open_alphabets
from seqmodels.evaluation.parallel_fits import Jobs, checked_jobs
from seqmodels.evaluation.prequential import CodeLength, CodeLengths, codes_of_each, joined_codes
from seqmodels.evaluation.tuning.budget import Budget
from seqmodels.evaluation.tuning.search import Grid, Search, trials_frame
from seqmodels.model import SequenceModel
from seqmodels.sequences import Sequences
from seqmodels.sequences.items import in_words
from seqmodels.sequences.mapped import MappedArray
from seqmodels.sequences.measure import IncomparableError, check_comparable

DEFAULT_BLOCKS = 8


def compare(
    models: Mapping[str, SequenceModel],
    X: Any,
    y: Any = None,
    *,
    baseline: str | None = None,
    test: Any = None,
    cluster: str | None = None,
    seeds: int = 1,
    budget: Budget | None = None,
    validation: Any = "auto",
    search: Search | Mapping[str, Grid] | None = None,
    iid: bool = True,
    prequential: bool | int = False,
    title: str = "",
    random_state: Seed = 0,
    n_jobs: Jobs = 1,
    progress: Callable[[str], None] | None = None,
    verbose: Verbose = "auto",
) -> Comparison:
    """Fit ``models`` to ``X`` (and ``y``) in place, score ``test`` once, and compare each of them to ``baseline``.

    Args:
        models: the models by name. Without ``test`` at least one of them must be fitted, and ``X`` itself is scored.
        X, y: training sequences and their targets, in any form that ``fit`` takes: ``(T, D)`` arrays, ``(T,)`` arrays
            of integers, or texts. With targets, every score is of p(y | x); ``y=None`` means that there are none.
        baseline: the name of the model that all others are compared to. None means the first model.
        test: held-out sequences, or a pair ``(X, y)`` if there are targets. Sequences that carry their past (earlier
            steps, which ``split`` of a single series keeps) are scored given that past, by every model and by the row
            ``iid``. None means that ``X`` is scored with models that are already fitted.
        cluster: the name of a metadata column of the test sequences. Sequences that share a value in it are treated as
            dependent. None means the ``cluster`` column if the sequences have one; otherwise every sequence is
            independent.
        seeds: how often each model is fitted, each time with another seed. Scores and differences are means over seeds.
            Intervals and p-values account for the spread over seeds and over test clusters together.
        budget: the seconds, training steps or parameters that each fit may spend, a ``Budget``. It is set on the models
            themselves. None leaves every model its own settings.
        validation: the data for early stopping, as in ``fit``: ``"auto"``, None, or held-out sequences (a pair if there
            are targets).
        search: tuning before the comparison, as a ``Search`` or as its grids, such as
            ``{"lstm": {"lr": [1e-3, 3e-3]}}``. Every setting is scored by cross-validation on the training part, each
            fit within the budget. The best setting is set on the model, which is then fitted to the whole training
            part. None means no tuning.
        iid: whether to add the row ``iid``, a reference that takes the steps as independent and identically
            distributed: one Gaussian, or the frequencies of the symbols, fitted to the training part (for p(y | x), to
            y alone). A model below it has learned nothing from the order of the steps. The reference has no interval
            and no p-value and is not counted in the correction of the others. If you pass a model called ``iid``, it
            takes the place of the reference and is tested as any other.
        prequential: whether to add the column ``code_length``, in nats per unit, lower is better. It is what the
            training part costs when the model codes it block by block, each time fitted to the blocks before, as the
            function ``prequential`` does. A number is the number of blocks, and True means 8. Each block after the
            first costs one more fit of every model, with the settings that the comparison left it with.
            ``Comparison.code_lengths`` has the figures of the blocks.
        title: title of the table and of the plots.
        random_state: seed of the search.
        n_jobs: the number of fits that run at the same time, each in its own process with its share of the cores as
            threads. Processes are started by joblib, with the backend that ``joblib.parallel_config`` names; -1 means
            one process for each core. An ``Executor`` of ``concurrent.futures`` runs them on a cluster:
            ``dask.distributed.Client(...).get_executor()``. Figures equal the figures of one fit at a time on as many
            threads. If a process is killed, only its model is lost.
        progress: a function that is called with a line of text when a model, or a trial of a search, is done.
        verbose: True shows a progress bar over the models; False shows none, and silences the fits too. ``"auto"``
            shows one in a terminal or a notebook if the comparison takes longer than three seconds.

    Returns:
        ``Comparison``: ``print`` it, or use ``.frame``, ``.steps``, ``.save(folder)``, ``.to_html(path)``,
        ``.plot_ranking()``. If the budget is None or in steps, running ``compare`` again gives the same figures, except
        for times and for the rounding of matrix products, which depends on the processor, the number of threads and the
        position of arrays in memory.

    Raises:
        IncomparableError: two models measure different things (the message names them), for example one scores the ends
            of sequences and another does not; or a model has no likelihood at all, such as a ``MaskedTransformer``.
        ValueError: no model could be fitted; ``baseline`` or ``cluster`` is unknown; ``seeds``, ``budget`` or
            ``search`` is invalid, or one of them or ``prequential`` is given without ``test``; or the parts are
            dithered over different grids. One model that fails is no error: it gets a row with its ``error``.
        KeyboardInterrupt: Ctrl-C or SIGTERM was received. Models that are fitted by then stay fitted, and the model
            that was being fitted keeps the best parameters it had found (``interrupted_``).

    If a variance stands at its floor, the least that is allowed, the score is computed again with the floor doubled and
    halved. If it moves by more than a tenth of the difference to the baseline, or by 0.05 nats per unit, the floor and
    not the data set the score: the row has no rank, no interval and no p-value.

    If the test part has integer symbols that the training part lacks, models that take their alphabet from the data get
    an open alphabet, ``OpenSymbols``, which gives new symbols a probability by one rule for all models. It is set on
    the models themselves. The column ``n_unseen`` counts such symbols.

    A model whose budget ended before its first step of training still has its random initial parameters: it has no
    rank, no interval and no p-value either. The notes under the table count the test sequences that also stand in the
    training part, exactly or with more than half of their windows of several steps.

    Warns if a variance floor set a score, a model took no step of training, a model failed, the baseline failed,
    sequences stand in two parts of the data, there are too few independent sequences or clusters for an interval,
    sequences are impossible under a model, or tuning was not the same for all models.
    """
    baseline = _checked_baseline(models, baseline)
    check_options(
        compare,
        cluster=cluster,
        seeds=seeds,
        search=search,
        iid=iid,
        prequential=prequential,
        title=title,
        random_state=random_state,
        progress=progress,
        verbose=verbose,
    )
    parts = DataParts.from_arguments(X, y, test, validation)
    plan = FitPlan(seeds, budget, Search(search) if isinstance(search, Mapping) else search, random_state)
    plan.check(models, has_train=parts.train is not None)
    if parts.train is None and not any(model.__sklearn_is_fitted__() for model in models.values()):
        raise ValueError(
            "none of the models is fitted, and there is no test part to score them on after they are fitted to X; pass "
            "test=, as train, test = X.split(0.2) makes it, or models that are fitted, which are scored on X as it is"
        )
    jobs = checked_jobs(n_jobs, has_seconds=budget is not None and budget.seconds is not None)
    n_blocks = _checked_blocks(prequential, parts)
    clusters = _clusters_of(parts.test.scored, cluster)
    n_duplicates = _check_parts(parts)
    opened = open_alphabets(models, parts)
    say = progress if progress is not None else lambda line: None

    with distinct_warnings(), ProgressBar(len(models), verbose, "compare") as bar:
        results = _results(models, parts, plan, say, jobs, bar)
        scored = {name: result for name, result in results.items() if not result.error}
        base = _base(scored, baseline)
        reference = fit_reference(models, base.model, parts) if iid else Reference()
        if reference.result is not None:
            scored[reference.name] = results[reference.name] = reference.result
        codes = None if n_blocks is None else _code_lengths(scored, parts, n_blocks, jobs, say)

    frame = comparison_frame(list(results.values()), base, parts.test, clusters)
    frame["n_unseen"] = n_unseen(parts)
    frame["n_effective"] = n_effective(frame, reference.name, _n_units(parts.train))
    if n_blocks is not None:
        per_unit = {} if codes is None else dict(zip(codes.frame["model"], codes.frame["nats_per_unit"], strict=True))
        frame["code_length"] = frame["model"].map(per_unit).astype(float)
    near = near_duplicates(parts.test, parts.train)
    frame.attrs = {
        "baseline": base.name,
        "unit": base.model.measure_.unit,
        "title": title,
        "level": 0.95,
        "cluster": cluster,
        "seeds": seeds,
        "n_duplicates": n_duplicates,
        "n_near_duplicates": max(0, near.n - n_duplicates),
        "shingle": near.window,
        "shingle_of_inputs": near.input_window,
        "no_step": frame.attrs["no_step"],
        "iid": reference.name,
        "iid_words": reference.description,
        "iid_note": reference.note,
        "iid_added": reference.result is not None,
        "opened": [name for name in opened if name in scored],
    }
    return Comparison(
        frame,
        base.model.measure_,
        {name: result.steps for name, result in scored.items()},
        {name: result.model.history_ for name, result in scored.items()},
        {name: result.model for name, result in scored.items()},
        parts.test.scored,
        source=None if parts.test.y is None else parts.test.X,
        provenance=comparison_provenance(models, parts, plan),
        search=trials_frame({name: result.trials for name, result in results.items()}),
        log_prob_by_seed={name: result.log_prob_by_seed for name, result in scored.items()} if seeds > 1 else {},
        code_lengths=codes,
    )


def _n_units(part: Data | None) -> int:
    return 0 if part is None else int(part.scored.n_units.sum())


def _results(
    models: Mapping[str, SequenceModel], parts: DataParts, plan: FitPlan, say: Progress, jobs: Jobs, bar: ProgressBar
) -> dict[str, ModelResult]:
    """Fit and score all models as ``plan`` says and return their results by name; warn of each model that failed.

    Args:
        models: models by name.
        parts: training, validation and test data.
        plan: number of seeds, budget and search.
        say: function that is called with a line of text when a model is done.
        jobs: number of parallel fits, or an executor.
        bar: progress bar, which is moved with each model.

    Raises:
        ValueError: all models failed.
    """
    results = {}
    for result in fit_and_score(models, parts, plan, say, jobs):
        if result.error:
            warn_caller(f"{result.name} failed: {result.error.partition(': ')[2]}")
        results[result.name] = result
        bar.move(len(results), result.name)
        say(result.progress_line(parts.test.scored.unit))
    if all(result.error for result in results.values()):
        raise ValueError("no model could be fitted: " + "; ".join(f"{n}: {results[n].error}" for n in models))
    return {name: results[name] for name in models}


def _base(scored: Mapping[str, ModelResult], baseline: str) -> ModelResult:
    """Return the result to which all scores are compared: the baseline's or, if that model failed, the first one's.

    Warns if the baseline failed.

    Args:
        scored: results of the models that did not fail, by name.
        baseline: name of the baseline.

    Raises:
        IncomparableError: two of the scored models measure different things.
    """
    check_comparable({name: result.model.measure_ for name, result in scored.items()})
    if baseline in scored:
        return scored[baseline]
    first = next(iter(scored.values()))
    warn_caller(f"the baseline {baseline!r} failed, so differences are taken to {first.name!r}")
    return first


def _code_lengths(
    scored: Mapping[str, ModelResult], parts: DataParts, n_blocks: int, jobs: Jobs, say: Progress
) -> CodeLengths | None:
    """Return the prequential code length of the training part under each scored model, or None if no model has one.

    A model codes each block of the data after a fit to all blocks before it. Warns of each model that could not be
    fitted to a part of the data.

    Args:
        scored: results of the models that did not fail, by name.
        parts: training, validation and test data.
        n_blocks: number of blocks that the training part is cut into.
        jobs: number of parallel fits, or an executor.
        say: function that is called with lines of progress.
    """
    # Not the held-out sequences themselves, because a decoder that starts from nothing does not have them.
    rule = "auto" if parts.validation is not None else None
    assert parts.train is not None
    models = {name: result.model for name, result in scored.items()}
    codes: dict[str, CodeLength] = {}
    try:
        for name, code in codes_of_each(models, parts.train, n_blocks, rule, None, jobs):
            if isinstance(code, ValueError):
                warn_caller(f"{name} has no code length: {code}")
                continue
            codes[name] = code
            say(f"{name}, coded from nothing: {code!r}")
    except ValueError as error:
        warn_caller(f"there are no code lengths: {error}")
    return joined_codes({name: codes[name] for name in models if name in codes}) if codes else None


# -- checks before any model is fitted ------------------------------------------------------------------------


def _checked_baseline(models: Mapping[str, SequenceModel], baseline: str | None) -> str:
    """Return the name of the baseline, the model that others are compared to, by default the first model.

    Args:
        models: models by name.
        baseline: name that the user passed; None means the first model.

    Raises:
        ValueError: there are no models, or the baseline is not among them.
        IncomparableError: a model has no likelihood.
    """
    if not isinstance(models, Mapping):
        raise ValueError(
            f"models is {in_words(models)}; pass a dictionary of them by name, such as compare({{'hmm': HMM()}}, ...)"
        )
    if not models:
        raise ValueError("there are no models to compare; pass a dictionary of them by name")
    for name, model in models.items():
        if not isinstance(model, SequenceModel):
            raise IncomparableError(
                f"{name!r} is {a_or_an(type(model))}, which is no SequenceModel and has no likelihood to compare (a "
                "pseudo-log-likelihood is none); leave it out of the table"
            )
    check_options(compare, baseline=baseline)
    base_name = baseline if baseline is not None else next(iter(models))
    if base_name not in models:
        raise ValueError(f"baseline {base_name!r} is not among the models: {', '.join(models)}")
    return base_name


def _refuse_missing(name: str, part: Data | None) -> None:
    """Check that not every value of a part of the data is missing, because every model would then score 0.0 nats.

    Args:
        name: name of the part, for the message.
        part: the part; nothing is checked if it is None.

    Raises:
        ValueError: every value is missing.
    """
    if part is None or part.scored.kind != "vectors":
        return
    counts = (x.summary.n_missing if isinstance(x, MappedArray) else np.isnan(x).sum(axis=0) for x in part.scored)
    if all((n == len(x)).all() for n, x in zip(counts, part.scored, strict=True)):
        raise ValueError(
            f"every value of the {name} part is missing, so that every model would score 0.0 nats; pass sequences with "
            "values"
        )


def _checked_blocks(prequential: bool | int, parts: DataParts) -> int | None:
    """Return the number of blocks for prequential code lengths, or None if they were not asked for.

    Args:
        prequential: argument of ``compare``: a number of blocks, True for 8, or False.
        parts: training, validation and test data.

    Raises:
        ValueError: the number is below 2, or there is no training part.
    """
    if prequential is not False and parts.train is None:
        raise ValueError("prequential codes the training part, and there is none; pass test= besides X")
    if isinstance(prequential, bool):
        return DEFAULT_BLOCKS if prequential else None
    if prequential < 2:
        raise ValueError(f"prequential is {prequential!r}; pass True, or a number of blocks, at least 2")
    return int(prequential)


def _clusters_of(scored: Sequences, column: str | None) -> list[Any] | None:
    """Return the cluster of each sequence, from a column of the metadata, or None if there are no clusters.

    Args:
        scored: the sequences.
        column: name of the column; None means the column ``cluster`` if there is one.

    Raises:
        ValueError: a named column does not exist.
    """
    if column is None:
        return scored.clusters
    if column not in scored.metadata:
        columns = ", ".join(map(str, scored.metadata.columns)) or "none"
        raise ValueError(f"the test sequences have no column {column!r}; they have {columns}")
    return list(scored.metadata[column])


def _check_parts(parts: DataParts) -> int:
    """Check the training, validation and test part; return how many test sequences also stand in the training part.

    Warns of sequences that stand in two parts.

    Raises:
        ValueError: a part has no values, or noise (dither) of different widths was added to the parts.
    """
    _refuse_missing("test", parts.test)
    _refuse_missing("validation", parts.held_out)
    if parts.train is None:
        return 0
    # The grid must be the same in all parts, because wider noise lowers the density.
    grid = parts.train.scored.grid
    for name, part in (("validation", parts.held_out), ("test", parts.test)):
        if part is not None and part.scored.grid != grid:
            here, there = (
                "not dithered" if g is None else f"dithered over a grid of {g}" for g in (grid, part.scored.grid)
            )
            raise ValueError(
                f"the training part is {here} but the {name} part is {there}; dither before split, or write "
                "train = train.dithered() and then test = test.dithered(like=train)"
            )
    return warn_of_overlap(parts.train, parts.held_out, parts.test)
