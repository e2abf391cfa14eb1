"""The standard comparisons for text, speech, tables and pairs, with a suite of models from every family.

The sizes of models follow from the amount of training data, see ``DataSize``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import listed
from seqmodels.counts.ngram import NGram
from seqmodels.data import builtin_text, speech
from seqmodels.evaluation.tuning.budget import within_budget
from seqmodels.hmm import HMM
from seqmodels.model import SequenceModel
from seqmodels.neural import GRU, LSTM, ElmanRNN, LSTMSeq2Seq, Transformer, TransformerSeq2Seq
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.training_options import DEFAULT_WIDTH
from seqmodels.observations import AutoregressiveGaussian, GaussianMixture, PseudoFrames
from seqmodels.sequences import Sequences

TEXT_CONTEXT, TEXT_REST = 64, 128  # characters that a continuation is given, and that it continues
SPEECH_CONTEXT = 20  # frames that a continuation is given
WINDOWS_PER_CLUSTER = 8  # because neighbouring windows of one text are not independent
QUICK = ("iid", "var", "hmm", "lstm", "transformer")

GIVEN = "-inputs"  # suffix of the name of a model that reads the inputs of a table
GIVEN_SLOWDOWN = 4.0  # a fit that reads inputs takes about this many times as long
MAX_GIVEN_STATES, GIVEN_RIDGE = 12, 10.0  # for an HMM whose K (K - 1) transitions are regressions, each with a prior

VALUES_PER_PARAMETER = 4  # fewest values of the training data for each parameter of an HMM
STEPS_PER_WIDTH = 8  # steps of the training data for each of a network's d_model features
MIN_WIDTH, WIDTH_STEP = 32, 32
MAX_STATES_OF_SYMBOLS, MAX_STATES_OF_VECTORS, MAX_COMPONENTS = 64, 24, 4
PSEUDO_FRAMES, BACKGROUND = 10.0, 0.01  # the HMM's own defaults


@dataclass(frozen=True)
class DataSize:
    """The amount of training data, which determines the sizes of the standard models.

    An HMM has as many states, up to 64 over symbols and 24 over vectors, and then as many Gaussians in each state, up
    to 4, as leave ``VALUES_PER_PARAMETER`` symbols or values for every parameter; at least 2 states. A network has one
    unit of width for every ``STEPS_PER_WIDTH`` frames or symbols, in multiples of 32 from 32 up to the widest of the
    comparison.

    Attributes:
        n_steps: number of frames, bytes or symbols of the training data.
        n_symbols: number of different symbols or bytes in them; for vectors, the number of features.
        n_inputs: number of inputs, columns of a table that are known at each step and not modelled.
    """

    n_steps: int
    n_symbols: int
    n_inputs: int = 0

    @classmethod
    def of(cls, train: Sequences) -> DataSize:
        """Return the size of training data.

        Args:
            train: the training sequences; of pairs, the targets.
        """
        if train.kind == "vectors":
            n_symbols = train.n_features
        elif train.kind == "text":
            n_symbols = len(set().union(*(set(str(item).encode()) for item in train)))
        else:
            n_symbols = len(np.unique(np.concatenate([np.asarray(item) for item in train])))
        return cls(int(train.n_units.sum()), n_symbols, len(train.input_names or ()))

    def n_states_of_symbols(self) -> int:
        """Return the number of states of an HMM over symbols, as many as the data allow and at least 2.

        With K states and V symbols it has ``K² - 1 + K (V - 1)`` parameters.
        """
        limit = self.n_steps / VALUES_PER_PARAMETER
        fits = [k for k in range(2, MAX_STATES_OF_SYMBOLS + 1) if k * k - 1 + k * (self.n_symbols - 1) <= limit]
        return max(fits, default=2)

    def mixture_sizes(self) -> tuple[int, int]:
        """Return the numbers of states and of Gaussians in each state for an HMM over vectors, as the data allow.

        The M diagonal Gaussians of a state have ``M (2 D + 1) - 1`` parameters for D features.
        """

        def fits(n_states: int, n_components: int) -> bool:
            of_state = n_components * (2 * self.n_symbols + 1) - 1
            return self.has_values_for(n_states**2 - 1 + n_states * of_state)

        n_states = max((k for k in range(2, MAX_STATES_OF_VECTORS + 1) if fits(k, 1)), default=2)
        more = range(2, MAX_COMPONENTS + 1 if n_states == MAX_STATES_OF_VECTORS else 2)
        return n_states, max((m for m in more if fits(n_states, m)), default=1)

    def n_states_given_inputs(self) -> int:
        """Return the number of states of an HMM with inputs, as many as the data allow and at least 2.

        Each of the ``K (K - 1)`` transitions of K states has a slope for every input.
        """
        limit = self.n_steps / VALUES_PER_PARAMETER / (1 + self.n_inputs)
        return max((k for k in range(2, MAX_GIVEN_STATES + 1) if k * (k - 1) <= limit), default=2)

    def has_values_for(self, n_parameters: int) -> bool:
        """Return True if the training data have enough values for a model of vectors with ``n_parameters`` parameters.

        Enough are at least ``VALUES_PER_PARAMETER`` values for each parameter.
        """
        return VALUES_PER_PARAMETER * n_parameters <= self.n_steps * self.n_symbols

    def width(self, most: int) -> int:
        """Return the width ``d_model`` of a network, a multiple of 32 from 32 to ``most`` that grows with the data."""
        return min(most, max(MIN_WIDTH, self.n_steps // STEPS_PER_WIDTH // WIDTH_STEP * WIDTH_STEP))

    def width_of_text(self) -> int | Literal["auto"]:
        """Return the width ``d_model`` of a recurrent network over text: ``"auto"``, or less than that for few data."""
        width = self.width(DEFAULT_WIDTH)
        return "auto" if width == DEFAULT_WIDTH else width


ANY_SIZE = DataSize(1, 1)  # to build a standard model only to see what it reads

# For each model by name: a function that builds it from the size of the data and a seed, and the seconds of its fit on
# two cores.
Suite = dict[str, tuple[Callable[[DataSize, int], SequenceModel], float]]


@dataclass(frozen=True)
class Task:
    """One comparison of models on one data set, which is to be run.

    Attributes:
        name: name of its files.
        title: title of its table.
        train, test: training and test part, each a pair of sequences and None, or of sources and targets.
        models: models by name.
        seconds: seconds that all fits are expected to take.
        baseline: name of the model that the others are compared to.
        estimates: expected seconds of each model; models without an estimate take equal shares.
    """

    name: str
    title: str
    train: tuple[Sequences, Sequences | None]
    test: tuple[Sequences, Sequences | None]
    models: dict[str, SequenceModel] = field(default_factory=dict)
    seconds: float = 0.0
    baseline: str = "hmm"
    estimates: Mapping[str, float] = field(default_factory=dict)

    def under_budget(self, *, seconds: float | None, steps: int | None) -> Task:
        """Return the task with the same budget for every model, and with estimated times to match.

        Args:
            seconds: seconds of training; None means no limit.
            steps: number of training steps (batches of a network, iterations of EM); None means no limit.
        """
        estimates = {
            name: expected_seconds(model, self.estimates.get(name, 0.0), seconds=seconds, steps=steps)
            for name, model in self.models.items()
        }
        models = {name: within_budget(model, seconds=seconds, steps=steps) for name, model in self.models.items()}
        return replace(self, models=models, seconds=sum(estimates.values()), estimates=estimates)


def expected_seconds(model: SequenceModel, estimate: float, *, seconds: float | None, steps: int | None) -> float:
    """Estimate how many seconds a fit of a model takes under a budget.

    Args:
        model: the model.
        estimate: number of seconds with the model's own settings.
        seconds: seconds of training that the budget allows; None means no limit.
        steps: number of training steps that the budget allows; None means no limit.
    """
    params = model.get_params(deep=False)
    own_steps = params.get("max_steps", params.get("max_iter"))
    by_steps = estimate * steps / own_steps if steps is not None and isinstance(own_steps, int) else estimate
    if seconds is None or "max_seconds" not in params:
        return by_steps
    return seconds if steps is None else min(by_steps, seconds)


@dataclass(frozen=True)
class Choice:
    """A choice among the standard models of comparisons.

    Args:
        names: names of the models to fit, in this order; empty means all. Differences are to ``"hmm"`` if it is among
            them, otherwise to the first.
        quick: whether to compare densities only, with fewer models and half the steps.
        random_state: seed of the models and of the split.
    """

    names: tuple[str, ...] = ()
    quick: bool = False
    random_state: int = 0


ALL_MODELS = Choice()


def _lstm_encoder_decoders(
    *, d_model: int, steps: int, attention_steps: int, seconds: tuple[float, float, float]
) -> Suite:
    """Return LSTM encoder-decoders with one fixed context vector, with additive and with multiplicative attention.

    The result maps a name to a function that builds the model and to the expected seconds of its fit. With attention
    there are fewer steps and smaller batches, because its steps take longer.

    Args:
        d_model: width of the networks with enough data.
        steps, attention_steps: training steps without and with attention.
        seconds: expected seconds of the three fits.
    """

    def attending(attention: Literal["additive", "multiplicative"], size: DataSize, seed: int) -> LSTMSeq2Seq:
        width = size.width(d_model)
        return LSTMSeq2Seq(
            d_model=width, attention=attention, batch_size=32, max_steps=attention_steps, random_state=seed
        )

    fixed, additive, multiplicative = seconds
    return {
        "seq2seq-fixed": (
            lambda n, seed: LSTMSeq2Seq(d_model=n.width(d_model), attention=None, max_steps=steps, random_state=seed),
            fixed,
        ),
        "seq2seq-additive": (partial(attending, "additive"), additive),
        "seq2seq-multiplicative": (partial(attending, "multiplicative"), multiplicative),
    }


def _hmm_of_symbols(size: DataSize, seed: int) -> HMM:
    return HMM(size.n_states_of_symbols(), max_iter=16, random_state=seed)


def _hmm_of_vectors(size: DataSize, seed: int) -> HMM:
    n_states, n_components = size.mixture_sizes()
    observation = GaussianMixture(n_components, prior=PseudoFrames(PSEUDO_FRAMES), background=BACKGROUND)
    return HMM(n_states, observation=observation, max_iter=30, random_state=seed)


def _iid_of_vectors(size: DataSize, seed: int) -> HMM:
    d = size.n_symbols
    covariance: Literal["full", "diag"] = "full" if size.has_values_for(d + d * (d + 1) // 2) else "diag"
    return HMM(1, observation=GaussianMixture(1, covariance), random_state=seed)


def _var(size: DataSize, seed: int) -> HMM:
    d = size.n_symbols
    covariance: Literal["full", "diag"] = "full" if size.has_values_for(d * d + 2 * d + d * (d + 1)) else "diag"
    return HMM(1, observation=AutoregressiveGaussian(covariance_type=covariance), random_state=seed)


TEXT_DENSITY: Suite = {
    "iid": (lambda n, seed: HMM(1, random_state=seed), 1),
    "ngram": (lambda n, seed: NGram(5, random_state=seed), 1),
    "hmm": (_hmm_of_symbols, 5),
    "elman": (lambda n, seed: ElmanRNN(d_model=n.width_of_text(), max_steps=600, random_state=seed), 11),
    "lstm": (lambda n, seed: LSTM(d_model=n.width_of_text(), max_steps=800, random_state=seed), 18),
    "gru": (lambda n, seed: GRU(d_model=n.width_of_text(), max_steps=500, random_state=seed), 18),
    "transformer": (lambda n, seed: Transformer(d_model=n.width(128), max_steps=700, random_state=seed), 50),
}
TEXT_CONTINUATION: Suite = {
    "iid": (lambda n, seed: HMM(1, random_state=seed), 1),
    "ngram": (lambda n, seed: NGram(5, random_state=seed), 1),
    "hmm": (_hmm_of_symbols, 3),
    "elman": (lambda n, seed: ElmanRNN(d_model=n.width(128), max_steps=600, random_state=seed), 7),
    "lstm": (lambda n, seed: LSTM(d_model=n.width(128), max_steps=600, random_state=seed), 8),
    "gru": (lambda n, seed: GRU(d_model=n.width(128), max_steps=400, random_state=seed), 8),
    "transformer": (
        lambda n, seed: Transformer(d_model=n.width(128), n_layers=2, context=256, max_steps=700, random_state=seed),
        38,
    ),
    **_lstm_encoder_decoders(d_model=128, steps=400, attention_steps=150, seconds=(15, 42, 27)),
    "seq2seq-transformer": (
        lambda n, seed: TransformerSeq2Seq(d_model=n.width(DEFAULT_WIDTH), max_steps=400, random_state=seed),
        31,
    ),
}
SPEECH_DENSITY: Suite = {
    "iid": (_iid_of_vectors, 1),
    "var": (_var, 1),
    "hmm": (_hmm_of_vectors, 2),
    "elman": (lambda n, seed: ElmanRNN(d_model=n.width(128), max_steps=400, random_state=seed), 9),
    "lstm": (lambda n, seed: LSTM(d_model=n.width(128), max_steps=400, random_state=seed), 9),
    "gru": (lambda n, seed: GRU(d_model=n.width(128), max_steps=300, random_state=seed), 9),
    "transformer": (
        lambda n, seed: Transformer(d_model=n.width(96), n_layers=2, max_steps=300, random_state=seed),
        14,
    ),
}
SPEECH_CONTINUATION: Suite = {
    **{name: SPEECH_DENSITY[name] for name in ("iid", "var", "hmm")},
    "elman": (lambda n, seed: ElmanRNN(d_model=n.width(96), max_steps=300, random_state=seed), 7),
    "lstm": (lambda n, seed: LSTM(d_model=n.width(96), max_steps=300, random_state=seed), 7),
    "gru": (lambda n, seed: GRU(d_model=n.width(96), max_steps=200, random_state=seed), 8),
    "transformer": (
        lambda n, seed: Transformer(d_model=n.width(96), n_layers=2, max_steps=200, random_state=seed),
        11,
    ),
    **_lstm_encoder_decoders(d_model=96, steps=300, attention_steps=100, seconds=(12, 18, 15)),
    "seq2seq-transformer": (
        lambda n, seed: TransformerSeq2Seq(d_model=n.width(96), max_steps=200, random_state=seed),
        20,
    ),
}


def text_tasks(text: Sequences | None = None, choice: Choice = ALL_MODELS) -> list[Task]:
    """Return the standard comparisons on a text: its density, and the continuation of 64 characters by the next 128.

    The last tenth of the text is held out.

    Args:
        text: the text; None means the built-in text.
        choice: which of the standard models to fit; if it is quick, only the density is compared.

    Raises:
        ValueError: the text is too short.
    """
    whole = builtin_text() if text is None else text
    train, test = whole.split(0.1)
    tasks = [Task("text-density", "Text: log p(x)", (train, None), (test, None))]
    if not choice.quick:
        longest = max(map(len, test))
        if longest <= TEXT_CONTEXT:
            raise ValueError(
                f"the text is too short for continuation: {longest} characters are held out, but {TEXT_CONTEXT} are "
                "given; pass more text, or compare densities only (--quick)"
            )
        train_pairs, test_pairs = (
            _in_clusters(part.chunks(TEXT_CONTEXT + TEXT_REST)).continuation(TEXT_CONTEXT) for part in (train, test)
        )
        title = f"Text: log p(next {TEXT_REST} characters | {TEXT_CONTEXT} characters)"
        tasks.append(Task("text-continuation", title, train_pairs, test_pairs))
    suites = (TEXT_DENSITY, TEXT_CONTINUATION)
    return [_with_models(task, suite, choice) for task, suite in zip(tasks, suites, strict=False)]


def speech_tasks(frames: Sequences | None = None, choice: Choice = ALL_MODELS) -> list[Task]:
    """Return the standard comparisons on utterances: their density, and the continuation of the first 20 frames.

    If there are at least 20 speakers, the speakers of the test part are not in training.

    Args:
        frames: sequences of vectors; None means synthetic speech.
        choice: which of the standard models to fit; if it is quick, only the density is compared.

    Raises:
        ValueError: the recordings are too short.
    """
    if frames is None:
        frames = speech(600, 60, features="mfcc", random_state=choice.random_state).sequences
    by = "speaker" if "speaker" in frames.metadata and frames.metadata["speaker"].nunique() >= 20 else None
    if by is None and "cluster" in frames.metadata:
        # With few speakers, who are in both parts, the conclusion generalises over utterances and not over speakers, so
        # that each utterance is its own cluster.
        frames = frames.with_metadata(frames.metadata.drop(columns="cluster"))
    train, test = frames.split(0.2, by=by, random_state=choice.random_state)
    tasks = [Task("speech-density", "Speech: log p(x)", (train, None), (test, None))]
    if not choice.quick:
        longest = max(map(len, test))
        if longest <= SPEECH_CONTEXT:
            raise ValueError(
                f"the recordings are too short for continuation: the longest held-out one has {longest} frames, but "
                f"{SPEECH_CONTEXT} are given; pass longer ones, or compare densities only (--quick)"
            )
        title = f"Speech: log p(rest | first {SPEECH_CONTEXT} frames)"
        train_pairs, test_pairs = (part.continuation(SPEECH_CONTEXT) for part in (train, test))
        tasks.append(Task("speech-continuation", title, train_pairs, test_pairs))
    suites = (SPEECH_DENSITY, SPEECH_CONTINUATION)
    return [_with_models(task, suite, choice) for task, suite in zip(tasks, suites, strict=False)]


def table_tasks(sequences: Sequences, choice: Choice = ALL_MODELS) -> list[Task]:
    """Return the standard comparison of densities: vectors by the models for speech, symbols by the models for text.

    A fifth of the sequences is held out. If the sequences have inputs (columns that are known at each step), models
    that can read them are fitted without and with them, and ends are not scored, because the inputs tell how long a
    sequence is.

    Args:
        sequences: the sequences.
        choice: which of the standard models to fit.
    """
    train, test = sequences.split(0.2, random_state=choice.random_state)
    suite = SPEECH_DENSITY if sequences.kind == "vectors" else TEXT_DENSITY
    title = "Table: log p(x)"
    if sequences.input_names is not None:
        suite, title = _beside_given(suite), f"Table: log p(x), and given {listed(sequences.input_names)}"
    task = Task("table-density", title, (train, None), (test, None))
    return [_with_models(task, suite, choice)]


def _beside_given(suite: Suite) -> Suite:
    """Return each model of a suite twice, without and with inputs if it can read them, all with ``length="given"``.

    Args:
        suite: for each model by name, a function that builds it and the expected seconds of its fit.
    """

    def without(build: Callable[[DataSize, int], SequenceModel], size: DataSize, seed: int) -> SequenceModel:
        return build(size, seed).set_params(length="given")

    def with_inputs(build: Callable[[DataSize, int], SequenceModel], size: DataSize, seed: int) -> SequenceModel:
        model = without(build, size, seed)
        return model.set_params(**_reading_inputs(model, size))

    both: Suite = {}
    for name, (build, seconds) in suite.items():
        both[name] = (partial(without, build), seconds)
        if _reading_inputs(build(ANY_SIZE, 0), ANY_SIZE):
            both[f"{name}{GIVEN}"] = (partial(with_inputs, build), GIVEN_SLOWDOWN * seconds)
    return both


def _reading_inputs(model: SequenceModel, size: DataSize) -> dict[str, bool | float]:
    """Return the arguments with which a standard model reads all inputs of the data; empty if it cannot.

    Args:
        model: the model.
        size: amount of the training data, which limits the number of states of an HMM.
    """
    if isinstance(model, HMM):
        if isinstance(model.observation, AutoregressiveGaussian):
            return {"input_effects__emissions": True}
        if model.n_states == 1:
            return {}
        n_states = min(model.n_states, size.n_states_given_inputs())
        return {"input_effects__transitions": True, "input_effects__ridge": GIVEN_RIDGE, "n_states": n_states}
    return {"inputs": True} if isinstance(model, NeuralModel) else {}


def pair_tasks(X: Sequences, y: Sequences, choice: Choice = ALL_MODELS) -> list[Task]:
    """Return the standard comparison of targets given sources, with a tenth of the pairs held out.

    Args:
        X: sources.
        y: their targets.
        choice: which of the standard models to fit.

    Raises:
        ValueError: there are fewer than two pairs.
    """
    order = np.random.default_rng(choice.random_state).permutation(len(X))
    cut = max(1, round(0.1 * len(X)))
    if cut >= len(X):
        raise ValueError(f"there is {len(X)} pair; at least two are needed, one to train on and one to test on")
    test = np.sort(order[:cut])
    train = np.sort(order[cut:])
    title = "Pairs: log p(target | source)"
    task = Task("pairs", title, (X.take(train), y.take(train)), (X.take(test), y.take(test)))
    return [_with_models(task, TEXT_CONTINUATION, choice)]


def check_names(names: Sequence[str]) -> None:
    """Check that each name belongs to a standard model.

    Args:
        names: the names.

    Raises:
        ValueError: a name is unknown.
    """
    of_tables = [*_beside_given(TEXT_DENSITY), *_beside_given(SPEECH_DENSITY)]
    known = list(dict.fromkeys([*TEXT_CONTINUATION, *SPEECH_CONTINUATION, *of_tables]))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"there is no model {unknown[0]!r}; choose from {', '.join(known)}")


def _with_models(task: Task, suite: Suite, choice: Choice) -> Task:
    """Return a task with the chosen standard models, in sizes that suit its training data.

    Warns of chosen names that are not in the suite.

    Args:
        task: the task.
        suite: for each model by name, a function that builds it and the expected seconds of its fit.
        choice: which models to fit, and their seed.
    """
    check_names(choice.names)
    quick = tuple(name for name in suite if name.removesuffix(GIVEN) in QUICK)
    names = dict.fromkeys(choice.names if choice.names else quick if choice.quick else suite)
    left_out = [f"{name}, {_why_left_out(name)}" for name in names if name not in suite]
    if left_out:
        warn_caller(f"left out of '{task.title}': {'; '.join(left_out)}")
    chosen = {name: suite[name] for name in names if name in suite}
    size = DataSize.of(task.train[0] if task.train[1] is None else task.train[1])
    models = {name: build(size, choice.random_state) for name, (build, _) in chosen.items()}
    if choice.quick:
        models = {name: _with_half_the_steps(model) for name, model in models.items()}
    estimates = {name: s * (0.5 if choice.quick else 1.0) for name, (_, s) in chosen.items()}
    baseline = task.baseline if task.baseline in models else next(iter(models), task.baseline)
    return replace(task, models=models, seconds=sum(estimates.values()), estimates=estimates, baseline=baseline)


def _why_left_out(name: str) -> str:
    """Return a clause that says why the standard model ``name`` is not compared on some kind of data."""
    name = name.removesuffix(GIVEN)
    if name not in SPEECH_CONTINUATION:
        return "which is a model of text and symbols"
    if name not in TEXT_CONTINUATION:
        return "which is a model of vectors"
    return "which is a model of pairs: of a sequence given its beginning, or of targets given sources"


def _with_half_the_steps(model: SequenceModel) -> SequenceModel:
    params = model.get_params(deep=False)
    return model.set_params(**{name: params[name] // 2 for name in ("max_iter", "max_steps") if name in params})


def _in_clusters(windows: Sequences) -> Sequences:
    """Return the windows of a text with a metadata column ``cluster``, in which neighbouring windows share a value."""

    clusters = np.arange(len(windows)) // WINDOWS_PER_CLUSTER
    return windows.with_metadata(windows.metadata.assign(cluster=clusters))
