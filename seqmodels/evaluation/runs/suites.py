"""The standard comparisons of text, speech, tables and pairs: every family of models, each by a number of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np

from seqmodels.common.display import listed
from seqmodels.counts.ngram import NGram
from seqmodels.data import builtin_text, speech
from seqmodels.evaluation.tuning.budget import within_budget
from seqmodels.hmm import HMM
from seqmodels.model import SequenceModel
from seqmodels.neural import GRU, LSTM, ElmanRNN, LSTMSeq2Seq, Transformer, TransformerSeq2Seq
from seqmodels.neural.model import NeuralModel
from seqmodels.observations import AutoregressiveGaussian, GaussianMixture
from seqmodels.sequences import Sequences

TEXT_CONTEXT, TEXT_REST = 64, 128  # characters
SPEECH_CONTEXT = 20  # frames
WINDOWS_PER_CLUSTER = 8  # neighbouring windows of one text are not independent
QUICK = ("iid", "var", "hmm", "lstm", "transformer")

GIVEN = "-inputs"  # after the name of a model that reads the inputs of a table
GIVEN_SLOWDOWN = 4.0  # of a fit that reads inputs, about
MAX_GIVEN_STATES, GIVEN_RIDGE = 12, 10.0  # of an HMM whose K (K - 1) transitions are regressions, each with a prior

Suite = dict[str, tuple[Callable[[int], SequenceModel], float]]  # a model from a seed; seconds of its fit on two cores


@dataclass(frozen=True)
class Task:
    """One comparison to run.

    Attributes:
        name: of its files.
        title: of its table.
        train, test: sequences, or sources and targets.
        models: by name.
        seconds: that all fits are expected to take.
        baseline: the model that differences are taken to.
        estimates: the expected seconds by model; models without an estimate take equal shares.
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
        """The task with every model under the same budget, and its estimates accordingly."""
        estimates = {
            name: expected_seconds(model, self.estimates.get(name, 0.0), seconds=seconds, steps=steps)
            for name, model in self.models.items()
        }
        models = {name: within_budget(model, seconds=seconds, steps=steps) for name, model in self.models.items()}
        return replace(self, models=models, seconds=sum(estimates.values()), estimates=estimates)


def expected_seconds(model: SequenceModel, estimate: float, *, seconds: float | None, steps: int | None) -> float:
    """About how long a fit takes under a budget, if it takes ``estimate`` under the model's own settings."""
    params = model.get_params(deep=False)
    own_steps = params.get("max_steps", params.get("max_iter"))
    by_steps = estimate * steps / own_steps if steps is not None and isinstance(own_steps, int) else estimate
    if seconds is None or "max_seconds" not in params:
        return by_steps
    return seconds if steps is None else min(by_steps, seconds)


@dataclass(frozen=True)
class Choice:
    """Which of the standard models to fit.

    Args:
        names: only these and the baseline; empty: all.
        quick: density only, fewer models, half the steps.
        random_state: seed of the models and of the split.
    """

    names: tuple[str, ...] = ()
    quick: bool = False
    random_state: int = 0


ALL_MODELS = Choice()


def _lstm_encoder_decoders(
    *, d_model: int, steps: int, attention_steps: int, seconds: tuple[float, float, float]
) -> Suite:
    """One fixed context vector, and both kinds of attention, whose steps take longer: fewer steps, smaller batches."""

    def attending(attention: Literal["additive", "multiplicative"], seed: int) -> LSTMSeq2Seq:
        return LSTMSeq2Seq(
            d_model=d_model, attention=attention, batch_size=32, max_steps=attention_steps, random_state=seed
        )

    fixed, additive, multiplicative = seconds
    return {
        "seq2seq-fixed": (
            lambda seed: LSTMSeq2Seq(d_model=d_model, attention=None, max_steps=steps, random_state=seed),
            fixed,
        ),
        "seq2seq-additive": (lambda seed: attending("additive", seed), additive),
        "seq2seq-multiplicative": (lambda seed: attending("multiplicative", seed), multiplicative),
    }


TEXT_DENSITY: Suite = {
    "iid": (lambda seed: HMM(1, random_state=seed), 1),
    "ngram": (lambda seed: NGram(5, random_state=seed), 1),
    "hmm": (lambda seed: HMM(64, max_iter=16, random_state=seed), 5),
    "elman": (lambda seed: ElmanRNN(max_steps=600, random_state=seed), 11),
    "lstm": (lambda seed: LSTM(max_steps=800, random_state=seed), 18),
    "gru": (lambda seed: GRU(max_steps=500, random_state=seed), 18),
    "transformer": (lambda seed: Transformer(max_steps=700, random_state=seed), 50),
}
TEXT_CONTINUATION: Suite = {
    "iid": (lambda seed: HMM(1, random_state=seed), 1),
    "ngram": (lambda seed: NGram(5, random_state=seed), 1),
    "hmm": (lambda seed: HMM(64, max_iter=16, random_state=seed), 3),
    "elman": (lambda seed: ElmanRNN(d_model=128, max_steps=600, random_state=seed), 7),
    "lstm": (lambda seed: LSTM(d_model=128, max_steps=600, random_state=seed), 8),
    "gru": (lambda seed: GRU(d_model=128, max_steps=400, random_state=seed), 8),
    "transformer": (lambda seed: Transformer(n_layers=2, context=256, max_steps=700, random_state=seed), 38),
    **_lstm_encoder_decoders(d_model=128, steps=400, attention_steps=150, seconds=(15, 42, 27)),
    "seq2seq-transformer": (lambda seed: TransformerSeq2Seq(max_steps=400, random_state=seed), 31),
}
SPEECH_DENSITY: Suite = {
    "iid": (lambda seed: HMM(1, observation=GaussianMixture(1, "full"), random_state=seed), 1),
    "var": (lambda seed: HMM(1, observation=AutoregressiveGaussian(), random_state=seed), 1),
    "hmm": (lambda seed: HMM(24, observation=GaussianMixture(4), max_iter=30, random_state=seed), 2),
    "elman": (lambda seed: ElmanRNN(d_model=128, max_steps=400, random_state=seed), 9),
    "lstm": (lambda seed: LSTM(d_model=128, max_steps=400, random_state=seed), 9),
    "gru": (lambda seed: GRU(d_model=128, max_steps=300, random_state=seed), 9),
    "transformer": (lambda seed: Transformer(d_model=96, n_layers=2, max_steps=300, random_state=seed), 14),
}
SPEECH_CONTINUATION: Suite = {
    **{name: SPEECH_DENSITY[name] for name in ("iid", "var", "hmm")},
    "elman": (lambda seed: ElmanRNN(d_model=96, max_steps=300, random_state=seed), 7),
    "lstm": (lambda seed: LSTM(d_model=96, max_steps=300, random_state=seed), 7),
    "gru": (lambda seed: GRU(d_model=96, max_steps=200, random_state=seed), 8),
    "transformer": (lambda seed: Transformer(d_model=96, n_layers=2, max_steps=200, random_state=seed), 11),
    **_lstm_encoder_decoders(d_model=96, steps=300, attention_steps=100, seconds=(12, 18, 15)),
    "seq2seq-transformer": (lambda seed: TransformerSeq2Seq(d_model=96, max_steps=200, random_state=seed), 20),
}


def text_tasks(text: Sequences | None = None, choice: Choice = ALL_MODELS) -> list[Task]:
    """Density of a text (its last tenth held out), and continuation of 64 characters by the next 128."""
    whole = builtin_text() if text is None else text
    train, test = whole.split(0.1)
    tasks = [Task("text-density", "Text: log p(x)", (train, None), (test, None))]
    if not choice.quick:
        longest = max(map(len, test))
        if longest <= TEXT_CONTEXT:
            raise ValueError(
                f"the text is too short for continuation: held out are {longest} characters, and {TEXT_CONTEXT} are "
                "given; take more text, or density alone (--quick)"
            )
        train_pairs, test_pairs = (
            _in_clusters(part.chunks(TEXT_CONTEXT + TEXT_REST)).continuation(TEXT_CONTEXT) for part in (train, test)
        )
        title = f"Text: log p(next {TEXT_REST} characters | {TEXT_CONTEXT} characters)"
        tasks.append(Task("text-continuation", title, train_pairs, test_pairs))
    suites = (TEXT_DENSITY, TEXT_CONTINUATION)
    return [_with_models(task, suite, choice) for task, suite in zip(tasks, suites, strict=False)]


def speech_tasks(frames: Sequences | None = None, choice: Choice = ALL_MODELS) -> list[Task]:
    """Density of utterances, and continuation of the first 20 frames; of unheard speakers where there are enough."""
    if frames is None:
        frames = speech(600, 60, features="mfcc", random_state=choice.random_state).sequences
    by = "speaker" if "speaker" in frames.metadata and frames.metadata["speaker"].nunique() >= 20 else None
    if by is None and "cluster" in frames.metadata:
        # Few speakers, in both parts: the conclusion generalises over utterances, so these are the independent units.
        frames = frames.with_metadata(frames.metadata.drop(columns="cluster"))
    train, test = frames.split(0.2, by=by, random_state=choice.random_state)
    tasks = [Task("speech-density", "Speech: log p(x)", (train, None), (test, None))]
    if not choice.quick:
        longest = max(map(len, test))
        if longest <= SPEECH_CONTEXT:
            raise ValueError(
                f"the recordings are too short for continuation: of those held out the longest has {longest} frames, "
                f"and {SPEECH_CONTEXT} are given; take longer ones, or density alone (--quick)"
            )
        title = f"Speech: log p(rest | first {SPEECH_CONTEXT} frames)"
        train_pairs, test_pairs = (part.continuation(SPEECH_CONTEXT) for part in (train, test))
        tasks.append(Task("speech-continuation", title, train_pairs, test_pairs))
    suites = (SPEECH_DENSITY, SPEECH_CONTINUATION)
    return [_with_models(task, suite, choice) for task, suite in zip(tasks, suites, strict=False)]


def table_tasks(sequences: Sequences, choice: Choice = ALL_MODELS) -> list[Task]:
    """Density of vectors by the models for speech, of symbols by those for text; a fifth of the sequences held out.

    Where the sequences have inputs, models that can read them are fitted without and with them, and none has ends that
    are events: the inputs say how long a sequence is.
    """
    train, test = sequences.split(0.2, random_state=choice.random_state)
    suite = SPEECH_DENSITY if sequences.kind == "vectors" else TEXT_DENSITY
    title = "Table: log p(x)"
    if sequences.input_names is not None:
        suite, title = _beside_given(suite), f"Table: log p(x), and given {listed(sequences.input_names)}"
    task = Task("table-density", title, (train, None), (test, None))
    return [_with_models(task, suite, choice)]


def _beside_given(suite: Suite) -> Suite:
    """The models of a suite under lengths that are given, and after each that can read inputs the same with them."""

    def without(build: Callable[[int], SequenceModel], seed: int) -> SequenceModel:
        return build(seed).set_params(length="given")

    def with_inputs(build: Callable[[int], SequenceModel], seed: int) -> SequenceModel:
        model = without(build, seed)
        return model.set_params(**_reading_inputs(model))

    both: Suite = {}
    for name, (build, seconds) in suite.items():
        both[name] = (partial(without, build), seconds)
        if _reading_inputs(build(0)):
            both[f"{name}{GIVEN}"] = (partial(with_inputs, build), GIVEN_SLOWDOWN * seconds)
    return both


def _reading_inputs(model: SequenceModel) -> dict[str, bool | float]:
    """The hyperparameters with which a standard model reads all inputs; none of one that cannot."""
    if isinstance(model, HMM):
        if isinstance(model.observation, AutoregressiveGaussian):
            return {"emission_inputs": True}
        if model.n_states == 1:
            return {}
        n_states = min(model.n_states, MAX_GIVEN_STATES)
        return {"transition_inputs": True, "transition_ridge": GIVEN_RIDGE, "n_states": n_states}
    return {"inputs": True} if isinstance(model, NeuralModel) else {}


def pair_tasks(X: Sequences, y: Sequences, choice: Choice = ALL_MODELS) -> list[Task]:
    """Targets given sources; a tenth of the pairs held out."""
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
    """Raise ``ValueError`` for a name that no standard model has."""
    of_tables = [*_beside_given(TEXT_DENSITY), *_beside_given(SPEECH_DENSITY)]
    known = list(dict.fromkeys([*TEXT_CONTINUATION, *SPEECH_CONTINUATION, *of_tables]))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"there is no model {unknown[0]!r}; choose from {', '.join(known)}")


def _with_models(task: Task, suite: Suite, choice: Choice) -> Task:
    """The task with the chosen models of a suite, and always its baseline."""
    check_names(choice.names)
    quick = tuple(name for name in suite if name.removesuffix(GIVEN) in QUICK)
    names = choice.names if choice.names else quick if choice.quick else tuple(suite)
    chosen = {name: suite[name] for name in suite if name in names or name == task.baseline}
    models = {name: build(choice.random_state) for name, (build, _) in chosen.items()}
    if choice.quick:
        models = {name: _with_half_the_steps(model) for name, model in models.items()}
    estimates = {name: s * (0.5 if choice.quick else 1.0) for name, (_, s) in chosen.items()}
    return replace(task, models=models, seconds=sum(estimates.values()), estimates=estimates)


def _with_half_the_steps(model: SequenceModel) -> SequenceModel:
    params = model.get_params(deep=False)
    return model.set_params(**{name: params[name] // 2 for name in ("max_iter", "max_steps") if name in params})


def _in_clusters(windows: Sequences) -> Sequences:
    """With neighbouring windows in one cluster."""

    clusters = np.arange(len(windows)) // WINDOWS_PER_CLUSTER
    return windows.with_metadata(windows.metadata.assign(cluster=clusters))
