"""The part of ``fit`` that all models share: resolve ``"auto"``, check and hold out data, catch signals, call ``_fit``.

If several processes fit together, all of them end with the same model.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from seqmodels.common import distributed
from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import a_or_an
from seqmodels.common.parameters import (
    in_one_line,
    refuse_beyond_data,
    refuse_wrong_groups,
    undone_on_failure,
    wrong_argument,
)
from seqmodels.common.progress import silent_if
from seqmodels.encodings import AutoSeries, Encoding, Standardize
from seqmodels.encodings.aligned_targets import check_choices, check_has_targets
from seqmodels.encodings.defaults import MOST_SERIES_BY_DEFAULT, reading_of
from seqmodels.encodings.examples import Example, TargetLengths
from seqmodels.encodings.inputs import InputScaling
from seqmodels.encodings.precision import check_device, check_device_is_here
from seqmodels.encodings.raw_data import Data, hold_out
from seqmodels.encodings.raw_to_examples import Setting, fitted_to
from seqmodels.encodings.series import SeriesEncoding
from seqmodels.encodings.step_maps import VectorEncoding
from seqmodels.model.family import Family
from seqmodels.observations import Observation
from seqmodels.sequences import Sequences
from seqmodels.sequences.times import every_step, time_in_words
from seqmodels.training import interruption
from seqmodels.training.fingerprint import check_processes_agree

MOST_TIMES_LOOKED_AT = 16  # sequences whose times are searched for missing rows


def fit_model(model: Family, data: Data, validation: Any, encoding: Encoding | None = None) -> None:
    """Fit ``model`` to ``data``: the implementation of ``SequenceModel.fit`` and ``SequenceModel.fit_encoded``.

    Warnings name the line that called the method that calls this function.

    Args:
        model: the model to fit, in place.
        data: training sequences, with targets and weights if there are any.
        validation: sequences for early stopping, or a pair (X, y); None holds out nothing, and ``"auto"`` lets networks
            hold out a tenth of the data.
        encoding: a fitted encoding to use unchanged; None if one is learned from the data.

    Raises:
        ValueError: if a hyperparameter or the data cannot be used; the model then stays as it was.
    """
    check_arguments(model)
    model._check_hyperparameters()
    if data.has_past:
        warn_caller(
            "the sequences to fit have a past, which fit does not read: each is learned as if it began at its first "
            "step; pass X.without_past() to make this explicit, or sequences that begin earlier",
        )
    uses_validation = model._uses_validation
    known = _encoding_of_one_series(model, data, encoding) if uses_validation else None
    n_initial = known.n_initial if isinstance(known, VectorEncoding) else 0
    train, held_out = hold_out(data, validation, uses_validation, model.random_state, n_initial)
    data, train = data.without_past(), train.without_past()
    if encoding is None and model.encoding == "auto" and not _keeps_encoding(model):
        encoding = _refitted(model, known, train)
    if not _keeps_encoding(model):
        _check_sizes(model, data)
    check_processes_agree(model, data, held_out)
    parts = [part for part in (data, held_out) if part is not None]
    is_partial = len(data.X) > MOST_SERIES_BY_DEFAULT  # the training part may be of few series
    setting = learn_setting(model, train, encoding, alphabet=data, is_partial=is_partial)
    for part in parts:  # all of the data, so that sequences go by the caller's numbers
        setting.check(part, model._sums_out(setting.observation), aligned=model._is_tagger)
    if model._times_in is None:
        _warn_of_missing_rows(model, data.scored)
    held_out_examples = [] if held_out is None else _examples_with_steps(model, setting, held_out)
    examples = _examples_with_steps(model, setting, train)
    began = time.perf_counter()
    with undone_on_failure(model):
        with silent_if(model.verbose), interruption.interruptible() as interrupted:
            apply_setting(model, setting)
            if setting.measure.conditional and model.length_ == "stop":
                model.target_lengths_ = TargetLengths.of(examples)
            if model._fits_in_parallel or not distributed.is_distributed():
                model._fit(examples, held_out_examples)
            else:
                _fit_on_rank_zero(model, examples, held_out_examples)
        if interrupted.requested and distributed.is_rank_zero():
            model.history_ = interruption.mark_interrupted(model.history_)
            model.converged_ = False
        model.fit_seconds_ = time.perf_counter() - began
        _load_from_rank_zero(model)
    if interrupted.requested and interrupted.signal is not None:
        checkpoint = model.get_params().get("training__checkpoint")
        interruption.warn_interrupted(interrupted.signal, model.fit_seconds_, checkpoint)


def _check_sizes(model: Family, data: Data) -> None:
    lengths = [len(item) for part in {id(p): p for p in (data.X, data.scored)}.values() for item in part]
    refuse_beyond_data(model, sum(lengths), max(lengths, default=0))


def _warn_of_missing_rows(model: Family, sequences: Sequences) -> None:
    """Warn if the times of a sequence are regular except for steps that have no row in the data.

    This concerns models that take each row for one step, because seasons and lags shift at such a gap.
    """
    if sequences.kind != "vectors" or sequences.times is None:
        return
    for name, times in list(zip(sequences.names, sequences.times, strict=True))[:MOST_TIMES_LOOKED_AT]:
        steps = every_step(times)
        if steps is not None and len(steps[0]) > len(times):
            every, places = steps
            n = len(every) - len(times)
            first = time_in_words(np.delete(every, places)[0])
            warn_caller(
                f"the times of sequence {name!r} leave out {n} steps, the first at {first}, and a "
                f"{type(model).__name__} takes each row for a step, so that seasons and lags shift there; fit to "
                "X.regular(), which has rows of missing values at these steps, or to sequences without times if rows "
                "are steps",
            )
            return


def _refitted(model: Family, known: Encoding | None, train: Data) -> Encoding | None:
    """Return a copy of the encoding ``known`` of a single series, fitted to the series' training part ``train``.

    The choice between levels and differences is made once, from the whole series, and only its numbers are fitted
    again. Return None if ``known`` is None or not such a choice, so that an encoding is chosen from ``train``.
    """
    if model._stated_encoding() is not None:
        return None
    if isinstance(known, AutoSeries):
        return reading_of(known.choice_, train.scored)
    return fitted_to(known, train.scored) if type(known) is Standardize else None


def _keeps_encoding(model: Family) -> bool:
    return model.warm_start and model.__sklearn_is_fitted__()


def _encoding_of_one_series(model: Family, data: Data, fitted: Encoding | None) -> Encoding | None:
    """Return the encoding of a single series of vectors, as far as it follows from the whole series.

    ``fitted`` is an encoding that is fitted already; None if there is none. Return None for pairs, taggers, other kinds
    of data and several sequences, and if ``"auto"`` is still to be resolved.
    """
    if data.y is not None or data.scored.kind != "vectors" or len(data.X) > 1 or model._is_tagger:
        return None
    encoding: Encoding | str = model.encoding if fitted is None else fitted
    if _keeps_encoding(model):
        encoding = model.encoding_
    elif encoding == "auto":
        encoding = model._choices(data).encoding
    if isinstance(encoding, AutoSeries):
        return encoding if encoding.is_fitted else encoding.clone().fit(data.scored)
    return None if isinstance(encoding, str) else encoding


def _examples_with_steps(model: Family, setting: Setting, data: Data) -> list[Example]:
    """Return the encoded examples that a model fits, leaving out series too short to have a difference."""
    examples = setting.examples(data, on_disk=model._reads_from_disk, may_have_no_steps=True)
    return [e for e in examples if len(e.values)] if isinstance(setting.encoding, SeriesEncoding) else examples


def fit_member(model: Family, setting: Setting, train: list[Example], validation: list[Example]) -> None:
    """Fit a model that is part of another model to encoded examples.

    If several processes fit together, every one of them must call this function; all end with the same model, as after
    ``fit_model``.

    Args:
        model: the model to fit, in place.
        setting: fitted encodings, observation and measure, which the model takes over.
        train: encoded training sequences.
        validation: encoded sequences for early stopping; empty if none are held out.
    """
    assert model._reads_inputs == (setting.inputs is not None), "a member is given the inputs that it reads"
    began = time.perf_counter()
    apply_setting(model, setting)
    if model._fits_in_parallel or not distributed.is_distributed():
        model._fit(train, validation)
    else:
        _fit_on_rank_zero(model, train, validation)
    model.fit_seconds_ = time.perf_counter() - began
    _load_from_rank_zero(model)


def _fit_on_rank_zero(model: Family, train: list[Example], validation: list[Example]) -> None:
    with interruption.interruptible() as interrupted:
        if not distributed.is_rank_zero():
            interrupted.hold()  # a signal here is one to the process that works
        distributed.run_on_rank_zero(type(model).__name__, lambda: model._fit(train, validation))


def _load_from_rank_zero(model: Family) -> None:
    """Copy the fitted model of the first process to all others, bit by bit, except the models that it consists of."""

    def learned() -> dict[str, Any]:
        sources = None if model.source_encoding_ is model.encoding_ else model.source_encoding_
        return {
            "encoding": {"state": model.encoding_.state()},
            "source_encoding": None if sources is None else {"state": sources.state()},
            **model._learned(),
        }

    content = distributed.receive_content(learned)
    if content is not None:
        source_encoding = None if content["source_encoding"] is None else model.source_encoding_
        model._load(content, model.encoding_, model.observation_, source_encoding, model._members())


# -- hyperparameters and data -> a setting --------------------------------------------------------------------


def check_arguments(model: Family) -> None:
    """Raise ValueError if an argument of the constructor has a value that its annotation does not allow.

    The arguments that all models share are checked first, with messages of their own.
    """
    refuse_wrong_groups(model)
    for name, choices in (("length", ("auto", "given", "stop")), ("dtype", model._dtypes)):
        if getattr(model, name) not in choices:
            raise ValueError(
                f"{name} is {in_one_line(getattr(model, name))}; pass one of {', '.join(map(repr, choices))}"
            )
    check_device(model.device)
    check_device_is_here(model.device)
    check_random_state(model.random_state)
    for name, kind, example in (
        ("encoding", Encoding, "Characters()"),
        ("source_encoding", Encoding, "Characters()"),
        ("observation", Observation, "Categorical()"),
    ):
        choice = getattr(model, name)
        if choice != "auto" and not isinstance(choice, kind):
            raise ValueError(f"{name} is {in_one_line(choice)}; pass 'auto' or an object such as {example}")
    if model._reads_inputs and model.length == "stop":
        raise ValueError(
            f"length is 'stop', but the {'inputs' if model._times_in is None else 'times'} of a sequence say how long "
            "it is, so its end cannot be an event; pass length='given'"
        )
    if model._is_tagger:
        check_choices(type(model).__name__, model.length, model.ignore_source)
    wrong = wrong_argument(model)
    if wrong is not None:
        _check_in_the_words_of(model, wrong.name)
        raise ValueError(str(wrong))


def _check_in_the_words_of(model: Family, name: str) -> None:
    """Raise the ValueError of the model's own check if the argument ``name`` fails it.

    It may say more than the general message about a wrong type, which is raised otherwise.
    """
    with suppress(ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError):  # not made for such a value
        try:
            model._check_hyperparameters()
        except ValueError as error:
            if name in str(error):
                raise


def learn_setting(
    model: Family,
    train: Data,
    fitted: Encoding | None = None,
    *,
    alphabet: Data | None = None,
    is_partial: bool = False,
) -> Setting:
    """Return the fitted encodings, the observation and the measure of a fit, with each ``"auto"`` resolved.

    Args:
        model: the model whose hyperparameters are read; with a warm start it keeps the setting of its earlier fit.
        train: training data.
        fitted: a fitted encoding to use unchanged; None if one is learned.
        alphabet: all sequences of the fit, from which alphabets of symbols are learned; None means ``train``.
        is_partial: True if ``train`` is only the first of several batches, so that later ones may contain other values.

    Raises:
        ValueError: if the data and the hyperparameters do not go together.
    """
    if model._is_tagger:
        check_has_targets(type(model).__name__, train)
    if not (model.warm_start and model.__sklearn_is_fitted__()):
        choices = model._choices(train, fitted, is_partial=is_partial)
        return Setting.learn(train, choices, alphabet=alphabet).with_inputs(_learn_inputs(model, train))
    length = model._default_length(train.scored.kind) if model.length == "auto" else model.length
    # The fitted observation is kept, because another version may have resolved "auto" differently.
    observation = (model.observation_ if model.observation == "auto" else model.observation).clone()
    setting = Setting.from_fitted(
        model.encoding_, observation, length, train.y is not None, model.source_encoding_, grid=train.scored.grid
    )
    return setting.with_inputs(model._input_scaling)


def _learn_inputs(model: Family, train: Data) -> InputScaling | None:
    if not model._reads_inputs:
        return None
    if train.y is not None:
        raise ValueError(f"{a_or_an(type(model))} that reads inputs is p(x | inputs), not p(y | x); leave y out")
    known = train.X.input_names or ()
    names = model._inputs_among(known)
    if model._times_in is not None:
        times = InputScaling.of_times(model._times_in, model._time_step, train.X)
        others = [name for name in names if name not in times.names]
        return times.beside(InputScaling.learn(train.X, others), names) if others else times
    if not names:
        raise ValueError(
            "the model reads inputs, but the sequences have none; pass Sequences(items, inputs=...), or on the command "
            "line --inputs with the names of columns"
        )
    return InputScaling.learn(train.X, names, model._terms)


def apply_setting(model: Family, setting: Setting) -> None:
    """Set the attributes of ``model`` that are known before the fit of its parameters, such as ``encoding_``.

    ``setting`` holds the fitted encodings, the observation and the measure of the fit.
    """
    model.encoding_, model.observation_ = setting.encoding, setting.observation
    model.source_encoding_, model.input_scaling_ = setting.source_encoding, setting.inputs
    measure, memory = setting.measure, model.memory_
    model.measure_ = measure if measure.memory == memory else replace(measure, memory=memory)
    model.length_ = setting.measure.length
    model.target_lengths_ = None


def resolved_choices(model: Family) -> dict[str, Any]:
    """Return the encodings, observation and length of a fitted model by name, which a checkpoint must agree with."""
    encodings = {"encoding": model.encoding_, "source_encoding": model.source_encoding_}
    return {**encodings, "observation": model.observation_, "length": model.length_}


def checked_data(model: Family, X: Any, y: Any = None) -> Data:
    """Return ``X`` and ``y`` as ``Data`` after checking that the fitted ``model`` can read them.

    Args:
        model: a fitted model.
        X: sequences, in any form that ``fit`` accepts.
        y: targets, one for each item of ``X``, if the model is of p(y | x); else None.

    Raises:
        NotFittedError: if the model is not fitted.
        ValueError: if the model cannot read the data; the message names the sequence.
    """
    setting, data = model._setting(), Data.of(X, y)
    if (data.y is not None) != setting.measure.conditional:
        expected = "p(y | x): pass y too" if setting.measure.conditional else "p(x): leave y out"
        raise ValueError(f"the model was fitted as {expected}")
    setting.check(data, model._reads_missing(), aligned=model._is_tagger)
    return data


def check_random_state(seed: object) -> None:
    """Raise ValueError if a seed is not an integer from 0 to ``2**63 - 1``."""
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise ValueError(
            f"random_state is {in_one_line(seed)}; pass an integer from 0 on, which seeds all that is random"
        )
