"""The interface of every model (``SequenceModel``): from raw sequences to comparable log-probabilities."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from seqmodels.common import distributed, storage
from seqmodels.common.display import html_facts, text_facts
from seqmodels.common.parameters import (
    NotNegative,
    NotNegativeFloat,
    PositiveInt,
    Seed,
    checked,
)
from seqmodels.encodings import Encoding
from seqmodels.encodings.precision import checked_log_prob_steps, in_float64, squares_exceed_float32
from seqmodels.encodings.raw_data import Data
from seqmodels.generation import (
    Candidate,
    Decoding,
    Forecast,
    PruningName,
    SamplingOptions,
    Stream,
    forecast,
    generate,
    log_prob_marginal,
    n_best,
    predict,
    predict_next,
    sample,
)
from seqmodels.generation.forecast import inputs_with_times
from seqmodels.generation.inputs import with_times
from seqmodels.model.description_in_words import model_facts, settings_in_words
from seqmodels.model.family import Family
from seqmodels.model.fitting import check_arguments, checked_data, fit_model, learn_setting
from seqmodels.sequences import Item
from seqmodels.sequences.mapped import any_mapped, totals


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceModel(Family):
    """A probability model of raw sequences, ``log p(x_1 .. x_T) = Σ_t log p(x_t | x_<t)``; the base class of all
    models.

    Args:
        length: ``"given"`` models p(x | T), the sequence given its length; ``"stop"`` treats the end of a sequence as
            an event with a probability. ``"auto"`` is ``"given"`` for vectors and for taggers, ``"stop"`` for text and
            symbols.
        encoding: the transformation from raw data to the values that the model sees. ``"auto"`` standardises vectors
            (bits and counts stay as they are) and reads text as bytes. Networks, and an HMM of one state, read one or
            few long series with a trend or a season as changes (``encodings.AutoSeries``); ``encoding_`` is the
            encoding that was chosen.
        ignore_source: if True, the model is p(y) instead of p(y | x), as a baseline; sources of any kind are not read.
        observation: the distribution of a step given a state. ``"auto"`` is ``Categorical`` for symbols and
            ``GaussianMixture`` for vectors.
        random_state: seed of all random numbers.
        device: the device to compute on, such as ``"cpu"`` or ``"cuda"``; ``"auto"`` takes a GPU if there is one.
        dtype: precision of the computation, ``"float32"`` or ``"float64"``; log-probabilities are summed in float64 in
            both. An ``HMM`` accepts ``"auto"`` too.
        warm_start: if True, ``fit`` continues from the fitted parameters.
        verbose: True shows progress, False shows nothing, and ``"auto"`` shows progress in a terminal or a notebook
            when the work takes longer than three seconds.

    Attributes (fitted):
        measure_: the kind of probability that scores are (``sequences.measure.Measure``), which decides whether two
            models' scores are comparable.
        encoding_, observation_, length_: the values of these arguments that were used, with ``"auto"`` resolved.
        history_: data frame with a row for each step of training and the columns step, seconds, log_prob, validation,
            objective, floor_hits; log-probabilities are in nats per frame, byte or symbol.
        n_parameters_: number of free parameters.
        converged_: True if training stopped because it converged.
        interrupted_: True if Ctrl-C or SIGTERM ended ``fit``.
        fit_seconds_: seconds that ``fit`` took.
        target_lengths_: lengths of targets in encoded steps, for pairs (X, y) under ``length="stop"``; else None.
    """

    # -- fitting -------------------------------------------------------------------------------------------

    @checked
    def fit(self, X: Any, y: Any = None, *, validation: Any = "auto", sample_weight: Any = None) -> Self:
        """Fit the model to sequences ``X``, or to targets ``y`` given ``X``.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str`` or of 1-D integer arrays; or ``Sequences``.
            y: targets, one for each item of ``X``, to fit p(y | x); None fits p(x).
            validation: ``"auto"`` lets networks hold out a tenth of the data, at most 10,000 frames, bytes or symbols,
                for early stopping. They hold out whole clusters if the sequences have three or more, so that training
                stops by speakers or documents that were not seen; of a single sequence they hold out the first part.
                None holds out nothing. Otherwise pass the sequences to validate on, or a pair (X, y) if there are
                targets.
            sample_weight: weight of each sequence in the objective, shape ``(n,)``; None means 1 for every sequence.

        Each sequence is learned as if it began at its first step: steps known to come before it (``Sequences(items,
        past=...)``) are ignored, with a warning. The sequences of ``validation`` are scored given such earlier steps.

        The first Ctrl-C or SIGTERM signal ends training: ``fit`` keeps the best parameters so far, warns, sets
        ``interrupted_`` and returns.

        Raises:
            ValueError: if an argument or a sequence cannot be used; the message names the sequence and position. It is
                raised before any work, and an earlier fit stays as it was.
            KeyboardInterrupt: after a second Ctrl-C, or after a first one when there is nothing to keep yet; an earlier
                fit stays as it was.
        """
        with distributed.propagate_errors():
            fit_model(self, Data.of(X, y, sample_weight), validation)
        return self

    def learned_encoding(self, X: Any, y: Any = None) -> Encoding:
        """Return the encoding that ``fit`` would learn from these sequences, for use in ``fit_encoded``.

        Args:
            X: sequences, in any form that ``fit`` accepts.
            y: targets, one for each item of ``X``, for a model of p(y | x); else None.

        Raises:
            ValueError: if the arguments or the sequences cannot be used, as in ``fit``.
        """
        check_arguments(self)
        return learn_setting(self, Data.of(X, y)).encoding

    @checked
    def fit_encoded(self, encoding: Encoding, X: Any, y: Any = None, *, validation: Any = "auto") -> Self:
        """Fit the model with an ``encoding`` that is already fitted, so that several models share one alphabet and its
        units.

        Args:
            encoding: fitted transformation from raw data to the values that the model sees; it is used unchanged.
            X: sequences, in any form that ``fit`` accepts.
            y: targets, one for each item of ``X``, to fit p(y | x); None fits p(x).
            validation: sequences for early stopping, or a pair (X, y); None holds out nothing, and ``"auto"`` lets
                networks hold out a tenth of the data.

        Raises:
            ValueError: if the arguments or sequences cannot be used, as in ``fit``; or if ``warm_start`` is True and
                the model has been fitted with its own encoding.
        """
        if self.warm_start and self.__sklearn_is_fitted__():
            raise ValueError(
                "a warm start continues with the encoding of the earlier fit; call fit, or clone the model"
            )
        with distributed.propagate_errors():
            fit_model(self, Data.of(X, y), validation, encoding)
        return self

    # -- scoring -------------------------------------------------------------------------------------------

    def check_data(self, X: Any, y: Any = None) -> None:
        """Raise an error if the fitted model cannot read ``X`` (and ``y``), the data that ``score`` would be given.

        Args:
            X: sequences, in any form that ``fit`` accepts.
            y: targets, one for each item of ``X``, if the model is of p(y | x); else None.

        Raises:
            NotFittedError: if the model is not fitted.
            ValueError: if it cannot read the data; the message names the sequence and the step.
        """
        checked_data(self, X, y)

    def log_prob_steps(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """Return ``log p(x_t | x_<t)`` in nats for every frame, byte or symbol of each sequence of ``X`` (or ``y``).

        There is one array for each sequence. Under ``length="stop"`` it has one more entry, the last, for the end of
        the sequence. A sequence with earlier steps attached (``Sequences(items, past=...)``) is scored given them,
        ``log p(x_t | past, x_<t)``. The log-probability of a step that covers several bytes (a BPE piece) is placed on
        its last byte; the bytes before it have 0.

        A value is finite, or -inf if the model gives probability zero; it is never NaN. A sequence whose
        log-probabilities float32 cannot hold is computed in float64. For a sequence on disk with more than
        ``mapped.MAX_STEPS_IN_MEMORY`` steps, the result is on disk too, in a temporary file (``mapped.MappedArray``).

        Args:
            X: sequences to score, in any form that ``fit`` accepts; for a model of p(y | x), the sources.
            y: targets to score, one for each source, for a model of p(y | x); else None.

        Raises:
            ValueError: if a sequence cannot be read, or if float64 cannot hold a log-probability; the message names the
                sequence and position.
        """
        return self._log_prob_steps(checked_data(self, X, y))

    def _log_prob_steps(self, data: Data) -> list[np.ndarray]:
        """Return ``log p(x_t | x_<t)`` in nats for every frame, byte or symbol of data that were checked.

        There is one array for each sequence; under ``length="stop"`` its last entry is the end of the sequence.
        """
        setting = self._setting()
        examples = setting.examples(data, on_disk=self._reads_from_disk, may_have_no_steps=True)
        names = "X" if data.y is None else "y"
        steps = checked_log_prob_steps(examples, self._steps, lambda some: in_float64(self)._steps(some), names)
        return setting.all_in_raw_units(data.scored, steps)

    def log_prob(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the log-probability of each sequence in nats, shape ``(n,)``: the sum over its steps.

        The steps of sequences on disk are summed without being stored.

        Args:
            X: sequences to score, in any form that ``fit`` accepts; for a model of p(y | x), the sources.
            y: targets to score, one for each source, for a model of p(y | x); else None.
        """
        data = checked_data(self, X, y)
        if self._reads_from_disk and any_mapped(data.scored):
            examples = self._setting().examples(data, on_disk=True)
            if not any(squares_exceed_float32(e.values) or squares_exceed_float32(e.source) for e in examples):
                sums = self._sums_of_steps(examples) + np.array([e.log_det for e in examples])
                if np.isfinite(sums).all():
                    return np.asarray(sums)
        return totals(self._log_prob_steps(data))

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-probability in nats per frame, byte or symbol, ``Σ log p / Σ units``; higher is better.

        Args:
            X: sequences to score, in any form that ``fit`` accepts; for a model of p(y | x), the sources.
            y: targets to score, one for each source, for a model of p(y | x); the units are then those of ``y``.
        """
        data = Data.of(X, y)
        return float(self.log_prob(data.X, data.y).sum() / data.scored.n_units.sum())

    def bic(self, X: Any, y: Any = None) -> float:
        """Return the Bayesian information criterion, ``n_parameters_ log n - 2 log p``; lower is better (Schwarz 1978).

        n is the number of scored units: frames, bytes or symbols; hmmlearn uses the same n. Because the steps of a
        sequence are not independent, this n overstates the information in the data. The criterion assumes that the fit
        is a maximum of the likelihood, which is not true of a network that was stopped early. p is the likelihood at
        the estimates, also where ``log_prob`` integrates them over their posterior (``AutoregressiveGaussian``).

        Args:
            X: sequences to score, usually those that the model was fitted to.
            y: targets to score, one for each item of ``X``, for a model of p(y | x); else None.
        """
        n = float(Data.of(X, y).scored.n_units.sum())
        return float(self.n_parameters_ * np.log(n) - 2 * self._at_estimates().log_prob(X, y).sum())

    def aic(self, X: Any, y: Any = None) -> float:
        """Return Akaike's information criterion, ``2 n_parameters_ - 2 log p``; lower is better (Akaike 1974).

        Args:
            X: sequences to score, usually those that the model was fitted to.
            y: targets to score, one for each item of ``X``, for a model of p(y | x); else None.
        """
        return float(2 * self.n_parameters_ - 2 * self._at_estimates().log_prob(X, y).sum())

    def _at_estimates(self) -> Self:
        """Return the model whose ``log_prob`` is the likelihood of its estimated parameters; itself if it always is."""
        return self

    def score_error(self, X: Any, y: Any = None) -> float:
        """Return the Monte Carlo standard error of ``score(X, y)`` in nats per frame, byte or symbol.

        It is 0 for models that compute probabilities exactly or as a bound. Only models whose probabilities are means
        over random draws (``measure_.kind`` is ``"estimate"``) have another value.
        """
        return 0.0

    @checked
    def log_prob_marginal(
        self,
        X: Any,
        y: Any = None,
        *,
        beam: int | None = 8,
        pruning: PruningName = "best",
        random_state: Seed = 0,
    ) -> np.ndarray:
        """Return the log-probability of each text summed over its tokenizations, in nats, shape ``(n,)``.

        ``log_prob`` uses only the canonical tokenisation, which the merges of a ``BPE`` give. The model may also spell
        the text in other pieces, so the text's probability is larger (Cao and Rimell 2021, *You should evaluate your
        language model on marginal likelihood over tokenisations*). The result is never below ``log_prob``, and equals
        it if texts have only one spelling. There is one value for each text, because the steps of different
        tokenizations do not correspond. Under ``length="given"`` the text is taken as the beginning of an endless one,
        with the end of a piece at its end. For each byte the model takes ``beam`` steps, one byte after another.

        Args:
            X: texts to score; for a model of p(y | x), the sources.
            y: texts to score given ``X``, for a model of p(y | x); else None.
            beam: number of partial tokenizations that are continued from each byte, besides the canonical one. None
                keeps all, which is exact. Their number doubles about once for every byte, but an HMM merges all of them
                into one distribution of its hidden state, and an n-gram merges those that end alike, so for these two
                the exact sum is feasible for long texts too.
            pruning: ``"best"`` keeps the most probable partial tokenizations and gives a certain lower bound. In a long
                text, a beam holds few of the possible combinations, so the gain per byte tends to nothing. ``"drawn"``
                draws which ones to keep so that the probability is unbiased: the logarithm is below the truth on
                average, and above it by x nats with probability at most ``exp(-x)``. Prefer it for long texts.
            random_state: seed of the draws. The value of a text does not depend on the other texts.

        Raises:
            ValueError: if the model is a tagger, whose targets have one piece for each step of the source; if ``beam``
                is below 1; or if ``pruning`` has another value.
        """
        return log_prob_marginal(self, X, y, beam=beam, pruning=pruning, random_state=random_state)

    # -- what comes next -----------------------------------------------------------------------------------

    def predict_next(self, prefix: Any = None, *, source: Any = None, inputs: Any = None, times: Any = None) -> Any:
        """Return the distribution of the raw step after ``prefix``, given ``source``, as a Pyro distribution on the
        CPU.

        Its attribute ``p_end`` is the probability that the sequence ends here instead, which is 0 under
        ``length="given"``. For symbols under ``"stop"``, the end is one more category, the last, so that
        ``log_prob(x)`` equals what ``stream().update(x)`` returns. For vectors the distribution is conditioned on the
        sequence going on, so that ``update(x) == log(1 - p_end) + log_prob(x)``. Its ``mean`` is NaN if none exists;
        for angles it is the mean direction.

        Args:
            prefix: raw steps so far; None predicts the first step.
            source: the raw source that the target is conditioned on, for a model of p(y | x).
            inputs: for a model of p(x | inputs), the inputs of the prefix and of the step after it: an array ``(P + 1,
                U)`` for P steps of the prefix and U inputs in the order of ``input_names_``, or a mapping from names to
                values.
            times: for a model of p(x | times), the times of the P steps of the prefix and of the step after it, shape
                ``(P + 1,)``.
        """
        return predict_next(self, prefix, source, with_times(inputs, times))

    def stream(
        self, *, source: Any = None, past: Any = None, past_inputs: Any = None, past_times: Any = None
    ) -> Stream:
        """Return a ``Stream``, which scores and predicts one sequence as its steps arrive.

        Its method ``update(x_t)`` reads the next step and returns ``log p(x_t | earlier steps)`` in nats;
        ``predict_next()`` returns the distribution of the step after those read so far.

        Args:
            source: the raw source that the sequence is conditioned on, for a model of p(y | x).
            past: raw steps that came before the sequence, as one raw sequence of the kind that ``fit`` accepts; None if
                it begins here.
            past_inputs: for a model of p(x | inputs), the inputs of the past; ``update(x, inputs=...)`` takes those of
                x.
            past_times: for a model of p(x | times), the times of the past; ``update(x, time=...)`` takes the time of x.
        """
        return Stream.of(self, source, past, with_times(past_inputs, past_times))

    @checked
    def forecast(
        self,
        X: Any,
        k: int,
        *,
        y: Any = None,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        n: int = 500,
        top_k: int | None = 5,
        random_state: Seed | None = None,
        inputs: Sequence[Any] | None = None,
        times: Sequence[Any] | None = None,
    ) -> Forecast:
        """Return the distribution of each of the ``k`` steps that follow each sequence of ``X``, as a ``Forecast``.

        For a model of p(y | x), it forecasts the continuation of ``y`` given ``X``. The distribution of a step does not
        condition on the forecast steps before it. It is computed in closed form for HMMs whose observations do not look
        at past steps, for an autoregression of one state (a VAR), and one step ahead for every model. Otherwise it is
        the mean over ``n`` drawn paths of the model's prediction after each path. Uncertainty of the parameters is not
        included.

        Args:
            X: sequences to continue, in any form that ``fit`` accepts; for a model of p(y | x), the sources.
            k: number of steps ahead, in encoded steps: frames, symbols, or bytes or pieces of text.
            y: beginnings of the targets to continue, for a model of p(y | x); else None.
            quantiles: increasing levels between 0 and 1; quantiles are of each feature by itself. For angles, levels q
                and 1 - q give the ends of the shortest arc with probability 1 - 2 q, and level 0.5 gives the median
                direction.
            n: number of drawn paths.
            top_k: for symbols, the number of most probable ones to list at each step; None lists all.
            random_state: seed of the paths; None uses the model's ``random_state``.
            inputs: for a model of p(x | inputs), the inputs of the k steps ahead for each sequence: an array ``(k, U)``
                of U inputs in the order of ``input_names_``, or a mapping from names to values.
            times: for a model of p(x | times), the times of the steps ahead for each sequence, shape ``(k,)``; None
                continues the times of X at their step or frequency.

        Raises:
            ValueError: if a sequence cannot be read or has probability zero (the message names it); if the model is a
                tagger, whose targets end with their sources; if an argument is out of its range; or if the model reads
                inputs and those of the steps ahead are missing.

        >>> from seqmodels import HMM
        >>> moments = {"means": [[0.0], [5.0]], "covariances": [[1.0], [1.0]]}
        >>> model = HMM.from_parameters([1.0, 0.0], [[0.9, 0.1], [0.2, 0.8]], **moments)
        >>> model.forecast([[[0.1], [-0.2]]], 2).frame[["step", "mean", "5%", "95%", "method"]].round(2)
           step  mean    5%   95% method
        0     1  0.50 -1.59  5.00  exact
        1     2  0.85 -1.55  5.54  exact
        """
        data = checked_data(self, X, y)
        inputs = inputs_with_times(data, k, inputs, times)
        return forecast(self, data, k, quantiles=quantiles, n=n, top_k=top_k, random_state=random_state, inputs=inputs)

    @checked
    def sample(
        self,
        n: int = 1,
        *,
        length: int | None = None,
        prefix: Any = None,
        source: Any = None,
        max_length: int = 1000,
        random_state: Seed | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        stop: Sequence[str] | None = None,
        inputs: Any = None,
        times: Any = None,
    ) -> list[Item]:
        """Draw ``n`` raw sequences that begin with ``prefix``, given ``source``, and return them as a list.

        Args:
            n: number of sequences.
            length: number of encoded steps after the prefix. None draws until the sequence ends (only under
                ``length="stop"``), but at most ``max_length`` steps. A given length forbids the end, so the draws are
                not from p(x | T). A tagger needs none, because the source determines it.
            prefix: raw steps with which every sequence begins; None begins at the first step.
            source: the raw source that the draws are conditioned on, for a model of p(y | x).
            max_length: most steps to draw after the prefix if ``length`` is None.
            random_state: seed; None uses the model's ``random_state``.
            temperature: draw from the probabilities to the power 1/temperature, normalised again; 0 takes the most
                probable symbol. For vectors, see ``seqmodels.generation.Decoding``.
            top_k: draw only from this many most probable symbols; None allows all.
            top_p: draw only from the fewest most probable symbols whose probabilities sum to at least this number; None
                allows all.
            min_p: draw only from symbols at least this fraction as probable as the most probable one; None allows all.
            stop: strings that end a text: it ends after the first of them that the draws complete, which it contains.
            inputs: for a model of p(x | inputs), the inputs of the prefix and of the steps to draw: an array ``(P +
                length, U)`` for P steps of the prefix and U inputs in the order of ``input_names_``, or a mapping from
                names to values. They determine the length.
            times: for a model of p(x | times), the times of the prefix and of the steps to draw, which determine the
                length.

        >>> from seqmodels import HMM
        >>> model = HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.9, 0.1]])
        >>> model.sample(temperature=0)  # after a symbol the end is likelier than another
        [array([0])]
        >>> model.sample(prefix=[1], length=3, top_k=1)
        [array([1, 0, 0, 0])]
        """
        decoding, inputs = Decoding(temperature, top_k, top_p, min_p), with_times(inputs, times)
        return sample(
            self, n, SamplingOptions(prefix, source, length, max_length, random_state, decoding, stop, inputs)
        )

    @checked
    def generate(
        self,
        prefix: Any = None,
        *,
        source: Any = None,
        length: int | None = None,
        max_length: int = 1000,
        random_state: Seed | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        stop: Sequence[str] | None = None,
        inputs: Any = None,
        times: Any = None,
    ) -> Iterator[Any]:
        """Yield the steps after ``prefix`` of one randomly drawn sequence, as they are drawn.

        The sequence is the one that ``sample(1)`` with the same arguments returns. The items are frames ``(D,)``,
        symbols, or non-empty strings of whole characters; the bytes of an unfinished character are held back until it
        is complete.

        Args:
            prefix: raw steps with which the sequence begins, which are not yielded; None begins at the first step.
            source: the raw source that the draw is conditioned on, for a model of p(y | x).
            length: number of encoded steps to draw. None draws until the sequence ends (only under ``length="stop"``),
                but at most ``max_length`` steps. A tagger needs none, because the source determines it.
            max_length: most steps to draw if ``length`` is None.
            random_state: seed; None uses the model's ``random_state``.
            temperature: draw from the probabilities to the power 1/temperature, normalised again; 0 takes the most
                probable symbol. For vectors, see ``seqmodels.generation.Decoding``.
            top_k: draw only from this many most probable symbols; None allows all.
            top_p: draw only from the fewest most probable symbols whose probabilities sum to at least this number; None
                allows all.
            min_p: draw only from symbols at least this fraction as probable as the most probable one; None allows all.
            stop: strings that end a text: it ends after the first of them that the draws complete, which it contains.
            inputs: for a model of p(x | inputs), the inputs of the prefix and of the steps to draw: an array ``(P +
                length, U)`` for P steps of the prefix and U inputs in the order of ``input_names_``, or a mapping from
                names to values.
            times: for a model of p(x | times), the times of the prefix and of the steps to draw, which determine the
                length.

        >>> from seqmodels import HMM
        >>> model = HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.9, 0.1]])
        >>> [int(symbol) for symbol in model.generate([1], length=4, top_k=1)]
        [0, 0, 0, 0]
        """
        decoding, inputs = Decoding(temperature, top_k, top_p, min_p), with_times(inputs, times)
        return generate(self, SamplingOptions(prefix, source, length, max_length, random_state, decoding, stop, inputs))

    @checked
    def n_best(
        self,
        n: int = 5,
        *,
        prefix: Any = None,
        source: Any = None,
        n_beams: PositiveInt | None = None,
        length: int | None = None,
        max_length: NotNegative | None = None,
        alpha: float | Literal["mean"] = 0.0,
    ) -> list[Candidate]:
        """Return the ``n`` most probable sequences of symbols or text that begin with ``prefix``, given ``source``,
        best first.

        They are found by beam search, so a more probable sequence may have been missed. Each ``Candidate`` has the raw
        sequence as ``item`` and its ``log_prob`` in nats.

        Args:
            n: number of sequences to return.
            prefix: raw steps with which every sequence begins; None begins at the first step.
            source: the raw source that the sequences are conditioned on, for a model of p(y | x).
            n_beams: number of partial sequences kept at each step; None keeps n, but at least 5.
            length: number of encoded steps after the prefix; under ``length="stop"``, None searches all sequences that
                end at most ``max_length`` steps after it.
            max_length: most encoded steps after the prefix; None means 1000 or, if there is a source, the number that
                ``predict`` uses by default.
            alpha: exponent of the length normalisation (Wu et al. 2016): sequences of n steps are compared by ``log p /
                ((6 + n) / 6)^alpha``; 0 compares log p itself, and ``"mean"`` compares ``log p / (n + 1)``.

        Raises:
            ValueError: if the model is of vectors, which cannot be enumerated, or if no possible sequence begins with
                the prefix.

        >>> from seqmodels import HMM
        >>> model = HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.9, 0.1]])
        >>> [(each.item.tolist(), round(each.log_prob, 2)) for each in model.n_best(3)]
        [([0], -0.8), ([0, 0], -1.6), ([0, 0, 0], -2.4)]
        """
        return n_best(
            self,
            n,
            prefix=prefix,
            source=source,
            n_beams=n_beams,
            length=length,
            max_length=max_length,
            alpha=alpha,
        )

    @checked
    def predict(
        self,
        X: Any,
        *,
        n_beams: PositiveInt | None = None,
        n_best: int | None = None,
        prefix: Any = None,
        length: int | Sequence[int] | None = None,
        max_length: NotNegative | None = None,
        max_ratio: NotNegativeFloat = 0.0,
        alpha: float | Literal["mean"] = 0.0,
        batch_size: int = 64,
    ) -> list[Any]:
        """Return the most probable raw target of each source in ``X``, found by a search.

        Args:
            X: sources, in any form that ``fit`` accepts; steps attached as the past of a source are not read.
            n_beams: number of partial sequences kept at each step (see ``n_best``). None keeps one, which is a greedy
                search, unless the model can find the most probable target exactly, as an ``HMMTagger`` and taggers of
                independent labels can.
            n_best: number of targets for each source; the result is then for each source a list of ``Candidate``
                (``item`` and ``log_prob``), best first, and shorter if there are fewer. At least as many partial
                sequences are kept.
            prefix: raw beginning of every target, or a list with one beginning for each target.
            length: number of encoded steps of the targets after the prefix, one number or one for each target; required
                under ``length="given"``, except for taggers.
            max_length: most encoded steps of a target after the prefix, under ``length="stop"``. None allows the
                longest target of ``fit``, plus the average number of target steps per source step in ``fit`` times the
                steps of the source (``target_lengths_``; 1000 if that is unknown, as in files of earlier versions).
            max_ratio: number of additional steps that a target may have for each step of its source, on top of
                ``max_length``.
            alpha: exponent of the length normalisation (Wu et al. 2016): sequences of n steps are compared by ``log p /
                ((6 + n) / 6)^alpha``; 0 compares log p itself, and ``"mean"`` compares ``log p / (n + 1)``.
            batch_size: number of sources searched at once. They must be of equal length, unless a network's encoder or
                a neural tagger reads them.

        Raises:
            ValueError: if the model was fitted without ``y`` or is of vectors, or if no possible target begins with the
                prefix.
        """
        return predict(
            self,
            X,
            n_beams=n_beams,
            n_best=n_best,
            prefix=prefix,
            length=length,
            max_length=max_length,
            max_ratio=max_ratio,
            alpha=alpha,
            batch_size=batch_size,
        )

    # -- in words ------------------------------------------------------------------------------------------

    def describe(self) -> str:
        """Return a description of the fitted model in a few lines: its sizes, its training data and how the fit ended.

        >>> from seqmodels import HMM
        >>> print(HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.75, 0.25]]).describe())
        HMM
          model        HMM(n_states=1, observation=Categorical(), length='stop')
          density      p(x)
          data         integer symbols, scored per symbol, the end of a sequence is scored too
          observation  Categorical()
          encoding     Symbols(n_symbols=2)
          parameters   2
          context      the whole sequence
          fitted       not by training: its parameters were given or counted

        Raises:
            NotFittedError: if the model is not fitted.
        """
        self._setting()
        return text_facts(type(self).__name__, model_facts(self))

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the facts about a fitted model, or the hyperparameters of an unfitted one."""
        if self.__sklearn_is_fitted__():
            return html_facts(type(self).__name__, model_facts(self))
        return html_facts(f"{type(self).__name__}, not fitted", settings_in_words(self))

    # -- keeping -------------------------------------------------------------------------------------------

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safetensors file at ``path``, which ``seqmodels.load`` reads.

        A warning is issued if the model uses classes from outside seqmodels, because ``load`` must be given them:
        ``load(path, classes=[MyModel])``.

        Raises:
            NotFittedError: if the model is not fitted.
        """
        content = self.content()
        storage.warn_of_classes_to_give(self, self.encoding_, self.source_encoding_, self.observation_)
        storage.write(path, content)
