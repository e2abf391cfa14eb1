"""``SequenceModel``: raw sequences in, comparable log-probabilities out; the interface of every family of models."""

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
from seqmodels.generation.inputs import with_times
from seqmodels.model.facts import model_facts, settings_in_words
from seqmodels.model.family import Family
from seqmodels.model.fitting import check_arguments, checked_data, fit_model, learn_setting
from seqmodels.sequences import Item
from seqmodels.sequences.mapped import any_mapped, totals


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceModel(Family):
    """``log p(x_1 .. x_T) = Σ_t log p(x_t | x_<t)``, in raw units, for every model alike.

    Args:
        length: ``"given"``: p(x | T); ``"stop"``: the end of a sequence is an event with a probability; ``"auto"``:
            ``"given"`` for vectors and for taggers, ``"stop"`` for text and symbols.
        encoding: what the model sees; ``"auto"`` standardises vectors (bits and counts stay as they are) and reads text
            as bytes. Networks, and an HMM of one state, read one or few long series with a trend or a season as
            changes (``encodings.AutoSeries``); ``encoding_`` says what it came to.
        ignore_source: p(y) in the place of p(y | x), as a baseline: the sources, of whatever kind, are not looked at.
        observation: how a state emits a step; ``"auto"``: ``Categorical`` for symbols, ``GaussianMixture`` for vectors.
        random_state: seed of everything random.
        device: ``"auto"`` takes a GPU where there is one.
        dtype: ``"float32"`` or ``"float64"``, of the computation; sums of log-probabilities are float64 in both. An
            ``HMM`` has ``"auto"`` too.
        warm_start: ``fit`` continues from where the model stands.
        verbose: True: show progress; False: say nothing; ``"auto"``: show it in a terminal or a notebook where it takes
            longer than three seconds.

    Attributes (fitted): ``measure_``, ``encoding_``, ``observation_``, ``length_``, ``history_`` (a frame: step,
    seconds, log_prob, validation, objective, floor_hits; nats per unit), ``n_parameters_``, ``converged_``,
    ``interrupted_``, ``fit_seconds_``, ``target_lengths_`` (of pairs under ``"stop"``, in encoded steps; else None).
    """

    # -- fitting -------------------------------------------------------------------------------------------

    @checked
    def fit(self, X: Any, y: Any = None, *, validation: Any = "auto", sample_weight: Any = None) -> Self:
        """Fit to sequences ``X``, or to ``y`` given ``X``.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
            y: targets, one for each of ``X``: the model then is p(y | x).
            validation: ``"auto"`` lets networks hold out a tenth, 10,000 units at most, for early stopping: whole
                clusters where the sequences have three or more, so that training stops by speakers or documents it has
                not seen; the head of a single sequence. ``None`` holds out nothing; or sequences (a pair if there are
                targets).
            sample_weight: ``(n,)`` weight of each sequence in the objective.

        Each sequence is learned as one that begins where it does: a past that it has is not read, and warned of. Those
        of ``validation`` are scored given theirs.

        The first Ctrl-C or SIGTERM ends training: ``fit`` returns with a warning, the best so far and ``interrupted_``.

        Raises:
            ValueError: bad input, named by sequence and position, before any work; an earlier fit stays as it was.
            KeyboardInterrupt: a second Ctrl-C, or a first before there is anything to keep; an earlier fit stays as it
                was.
        """
        with distributed.propagate_errors():
            fit_model(self, Data.of(X, y, sample_weight), validation)
        return self

    def learned_encoding(self, X: Any, y: Any = None) -> Encoding:
        """The encoding that ``fit`` would learn from these sequences, for ``fit_encoded``; raises as ``fit`` does."""
        check_arguments(self)
        return learn_setting(self, Data.of(X, y)).encoding

    @checked
    def fit_encoded(self, encoding: Encoding, X: Any, y: Any = None, *, validation: Any = "auto") -> Self:
        """``fit`` in an ``encoding`` that is fitted already, so that several models share alphabet and units.

        Raises:
            ValueError: as ``fit``; a model that would go on (``warm_start``) from what it learned in its own encoding.
        """
        if self.warm_start and self.__sklearn_is_fitted__():
            raise ValueError(
                "a warm start goes on in the encoding that was learned first; call fit, or clone the model"
            )
        with distributed.propagate_errors():
            fit_model(self, Data.of(X, y), validation, encoding)
        return self

    # -- scoring -------------------------------------------------------------------------------------------

    def check_data(self, X: Any, y: Any = None) -> None:
        """Do nothing if the fitted model can read the data, as ``score`` takes them.

        Raises:
            NotFittedError: a model that is not fitted.
            ValueError: data that it cannot read, naming the sequence and the step.
        """
        checked_data(self, X, y)

    def log_prob_steps(self, X: Any, y: Any = None) -> list[np.ndarray]:
        """``log p(x_t | x_<t)`` in nats for every raw unit of every sequence (of ``y`` given ``X``), raw units.

        A sequence with a past (``Sequences(items, past=...)``) is scored given it, ``log p(x_t | past, x_<t)``: it has
        the last steps of past and sequence in one. Under ``length="stop"`` there is one more step, the last: the end. A
        step of several bytes (a BPE piece) stands on its last byte; the bytes before it have 0.

        A figure is finite, or -inf where the model gives probability zero; never NaN. Sequences whose log-probabilities
        float32 cannot hold are computed in float64. Those of a sequence on disk that has more than
        ``mapped.MAX_STEPS_IN_MEMORY`` are on disk too, in a temporary file (``mapped.MappedArray``).

        Raises:
            ValueError: sequences that cannot be read, or a log-probability that float64 cannot hold, by sequence and
                position.
        """
        return self._log_prob_steps(checked_data(self, X, y))

    def _log_prob_steps(self, data: Data) -> list[np.ndarray]:
        """``log_prob_steps`` of data that ``checked_data`` has checked."""
        setting = self._setting()
        examples = setting.examples(data, on_disk=self._reads_from_disk, may_have_no_steps=True)
        names = "X" if data.y is None else "y"
        steps = checked_log_prob_steps(examples, self._steps, lambda some: in_float64(self)._steps(some), names)
        return setting.all_in_raw_units(data.scored, steps)

    def log_prob(self, X: Any, y: Any = None) -> np.ndarray:
        """``(n,)`` nats of each sequence: the sum of its steps; of sequences on disk no steps are kept."""
        data = checked_data(self, X, y)
        if self._reads_from_disk and any_mapped(data.scored):
            examples = self._setting().examples(data, on_disk=True)
            if not any(squares_exceed_float32(e.values) or squares_exceed_float32(e.source) for e in examples):
                sums = self._sums_of_steps(examples) + np.array([e.log_det for e in examples])
                if np.isfinite(sums).all():
                    return np.asarray(sums)
        return totals(self._log_prob_steps(data))

    def score(self, X: Any, y: Any = None) -> float:
        """Nats per frame, byte or symbol: ``Σ log p / Σ units``. Higher is better."""
        data = Data.of(X, y)
        return float(self.log_prob(data.X, data.y).sum() / data.scored.n_units.sum())

    def bic(self, X: Any, y: Any = None) -> float:
        """Return the Bayesian information criterion, ``n_parameters_ log n - 2 log p``; lower is better.

        n is the number of units scored: frames, bytes or symbols. Steps of a sequence are not independent, so it is
        generous (Schwarz 1978; hmmlearn counts likewise). The fit is taken for a maximum of the likelihood, which that
        of a network, stopped early, is not.
        """
        n = float(Data.of(X, y).scored.n_units.sum())
        return float(self.n_parameters_ * np.log(n) - 2 * self.log_prob(X, y).sum())

    def aic(self, X: Any, y: Any = None) -> float:
        """Return Akaike's information criterion, ``2 n_parameters_ - 2 log p``; lower is better (Akaike 1974)."""
        return float(2 * self.n_parameters_ - 2 * self.log_prob(X, y).sum())

    def score_error(self, X: Any, y: Any = None) -> float:
        """The Monte Carlo standard error of ``score``, in nats per unit: 0 but where ``measure_.kind`` is
        ``"estimate"``.
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
        """``(n,)`` nats of each text (of ``y`` given ``X``), summed over its tokenisations; at least ``log_prob``.

        ``log_prob`` is that of the canonical tokenisation, which the merges of a ``BPE`` give. The model may also spell
        the text in other pieces, so the probability of the text is larger (Cao & Rimell 2021, *You should evaluate your
        language model on marginal likelihood over tokenisations*). The figure is one a text: a tokenisation has its
        steps, a sum over tokenisations has none. Under ``length="given"`` it is that of the text as the beginning of an
        endless one, with a piece's end at its end. The cost is that of ``beam`` steps of the model for each byte, one
        after the other. Where symbols have one spelling: ``log_prob``.

        Args:
            beam: beginnings of tokenisations that are continued from each byte, besides the canonical one. None: all,
                which is exact; their number doubles with every byte or so, but an HMM merges all into one belief, and
                an n-gram those that end alike, so these two are exact for long texts too.
            pruning: ``"best"`` keeps the most probable: a lower bound for certain. In a long text a beam holds few of
                the combinations of its choices, so the gain a byte goes to nothing. ``"drawn"`` draws which to keep, so
                that the probability is unbiased: then the logarithm lies below the truth in the mean, and above it by x
                nats with probability ``exp(-x)`` at most. For long texts take that.
            random_state: seed of the draws; a text's figure does not depend on which others there are.

        Raises:
            ValueError: a tagger, whose pieces are as many as its source's steps; a beam below 1; another ``pruning``.
        """
        return log_prob_marginal(self, X, y, beam=beam, pruning=pruning, random_state=random_state)

    # -- what comes next -----------------------------------------------------------------------------------

    def predict_next(self, prefix: Any = None, *, source: Any = None, inputs: Any = None, times: Any = None) -> Any:
        """A Pyro distribution over the raw step after ``prefix`` (None: the first step), given ``source``; on the CPU.

        Its ``p_end`` is the probability that the sequence ends here instead, 0 under ``length="given"``. Symbols under
        ``"stop"`` have the end as one more category, the last, so that ``log_prob(x)`` is what ``stream().update(x)``
        returns. A density has no such place: of vectors the distribution is given that the sequence goes on, and
        ``update(x) == log(1 - p_end) + log_prob(x)``. Its ``mean`` is NaN where none exists; of angles it is the
        direction.

        ``inputs``: of a model of p(x | inputs) those of the prefix and of the step after it, ``(P + 1, U)`` in the
        order of ``input_names_``, or a mapping from names to values. ``times``: of a model of p(x | times) likewise.
        """
        return predict_next(self, prefix, source, with_times(inputs, times))

    def stream(
        self, *, source: Any = None, past: Any = None, past_inputs: Any = None, past_times: Any = None
    ) -> Stream:
        """Reads one sequence as it comes: ``update(x_t)`` is ``log p(x_t | past)``, ``predict_next()`` what is next.

        Args:
            source: what the sequence is given, of a model of p(y | x).
            past: raw steps that came before it, an item such as ``Sequences.past`` has; None: it begins here.
            past_inputs: of a model of p(x | inputs) those of the past; ``update(x, inputs=...)`` takes those of x.
            past_times: of a model of p(x | times) those of the past; ``update(x, time=...)`` takes that of x.
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
        """What follows each sequence of ``X`` (of ``y``, given ``X``, for a model of p(y | x)), 1 to ``k`` steps ahead.

        The distribution of each step, not seeing those between. In closed form for HMMs whose observations do not look
        back, for an autoregression of one state (a VAR), and one step ahead for every model; else the mean, over n
        drawn paths, of the model's prediction after each path. The parameters are taken for certain.

        Args:
            k: encoded steps: frames, symbols, of text bytes or pieces.
            quantiles: levels between 0 and 1, increasing; each feature's own. Of angles those of level q and 1 - q are
                the ends of the shortest arc that holds 1 - 2 q, and that of a half is the median direction.
            n: paths.
            top_k: of symbols, how many of the most probable to list at each step; None: all.
            random_state: seed of the paths; None takes the model's.
            inputs: of a model of p(x | inputs), for each sequence those of the k steps ahead, ``(k, U)`` in the order
                of ``input_names_``, or a mapping from names to values.
            times: of a model of p(x | times), for each sequence the ``(k,)`` times of the steps ahead; None: those that
                go on as the times of X do, by one step or frequency.

        Raises:
            ValueError: a sequence that cannot be read, or of probability zero, named; a tagger, whose targets end with
                their sources; arguments that cannot be; no inputs of the steps ahead, where the model reads some.

        >>> from seqmodels import HMM
        >>> moments = {"means": [[0.0], [5.0]], "covariances": [[1.0], [1.0]]}
        >>> model = HMM.from_parameters([1.0, 0.0], [[0.9, 0.1], [0.2, 0.8]], **moments)
        >>> model.forecast([[[0.1], [-0.2]]], 2).frame[["step", "mean", "5%", "95%", "method"]].round(2)
           step  mean    5%   95% method
        0     1  0.50 -1.59  5.00  exact
        1     2  0.85 -1.55  5.54  exact
        """
        data = checked_data(self, X, y)
        if times is not None:
            each = [None] * len(data.X) if inputs is None else inputs
            if isinstance(times, str) or len(times) != len(data.X) or len(each) != len(data.X):
                raise ValueError(f"times are not a list of {len(data.X)}; pass for each sequence the {k} times ahead")
            inputs = [with_times(u, ahead) for u, ahead in zip(each, times, strict=True)]
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
        """Draw ``n`` raw sequences that begin with ``prefix``, given ``source``.

        Args:
            length: number of encoded steps after the prefix; None draws until the end (``length="stop"`` only), at
                most ``max_length`` steps after the prefix. A given length masks the end, which is not p(x | T). A
                tagger needs none: its source has it.
            random_state: seed; None takes the model's.
            temperature, top_k, top_p, min_p: what is drawn from instead of the model's own distribution: see
                ``seqmodels.generation.Decoding``.
            stop: strings, for text: a text ends after the first of them that is completed by what is drawn, and
                contains it.
            inputs: of a model of p(x | inputs) those of the prefix and of the steps to draw, ``(P + length, U)`` in the
                order of ``input_names_``, or a mapping from names to values; they say the length, too.
            times: of a model of p(x | times) those of the prefix and of the steps to draw; they say the length, too.

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
        """What ``sample(1)`` of the same arguments draws after ``prefix``, as it is drawn.

        Frames ``(D,)``, symbols, or strings of whole characters (the bytes of an unfinished one are held back), never
        empty.

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
        """The ``n`` most probable whole sequences of symbols or text that begin with ``prefix``, given ``source``.

        Found by beam search, so they are the most probable of those that it comes upon.

        Args:
            n_beams: partial sequences that are kept at each step; None: n, and at least 5.
            length: number of encoded steps after the prefix; under ``length="stop"`` None searches all that end at most
                ``max_length`` steps after it.
            max_length: None: 1000; given a source, as in ``predict``.
            alpha: normalisation by length (Wu et al. 2016): see ``seqmodels.generation.BeamSearch``.

        Raises:
            ValueError: a model of vectors, which cannot be listed; nothing possible begins with the prefix.

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
        """The target that the model finds most probable for each source. A past that sources have is not read.

        Args:
            n_beams: partial sequences that are kept at each step (see ``n_best``); None: one, which is greedy, unless
                the model can find the most probable of all, as an ``HMMTagger`` and taggers of independent labels can.
            n_best: instead of a target, a list of so many ``Candidate`` for each source, best first (fewer if there are
                no more); at least as many partial sequences are kept.
            prefix: raw beginning of every target, or a list with one for each.
            length: encoded steps of the targets after the prefix, one number or one for each; needed under
                ``length="given"``, but not by taggers.
            max_length: most encoded steps of a target after the prefix, under ``length="stop"``; None: as many as the
                longest target of ``fit`` had, and besides as many for each step of the source as those targets had on
                average (``target_lengths_``; 1000 where that is unknown, as in files of earlier versions).
            max_ratio: steps that a target may have for each step of its source, besides ``max_length``.
            alpha: normalisation by length (Wu et al. 2016): see ``seqmodels.generation.BeamSearch``.
            batch_size: sources that are searched at once; of equal length, unless a network's encoder or a neural
                tagger reads them.

        Raises:
            ValueError: a model that was fitted without ``y``; one of vectors; nothing possible begins with the prefix.
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
        """What a fitted model is, in a few lines: its sizes, what it was fitted to, how the fit ended.

        >>> from seqmodels import HMM
        >>> print(HMM.from_parameters([1.0], [[0.5]], final=[0.5], emission=[[0.75, 0.25]]).describe())
        HMM
          model        HMM(n_states=1, length='stop', observation=Categorical())
          density      p(x)
          data         integer symbols, scored per symbol, the end of a sequence is scored too
          observation  Categorical()
          encoding     Symbols(n_symbols=2)
          parameters   2
          context      the whole sequence
          fitted       not by training: its parameters were given or counted

        Raises:
            NotFittedError: a model that is not fitted.
        """
        self._setting()
        return text_facts(type(self).__name__, model_facts(self))

    def _repr_html_(self) -> str:
        """What a notebook shows: the description of a fitted model, the hyperparameters of another."""
        if self.__sklearn_is_fitted__():
            return html_facts(type(self).__name__, model_facts(self))
        return html_facts(f"{type(self).__name__}, not fitted", settings_in_words(self))

    # -- keeping -------------------------------------------------------------------------------------------

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safetensors file; ``seqmodels.load`` reads it.

        Warns of classes that are not seqmodels' own, which ``load`` must be given: ``load(path, classes=[MyModel])``.
        """
        content = self.content()
        storage.warn_of_classes_to_give(self, self.encoding_, self.source_encoding_, self.observation_)
        storage.write(path, content)
