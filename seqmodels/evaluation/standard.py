"""The standard comparison: text, speech, tables and pairs, every family, budgets in steps so that runs repeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from seqmodels.data import builtin_text, speech
from seqmodels.hmm import HMM
from seqmodels.model import SequenceModel
from seqmodels.neural import GRU, LSTM, ElmanRNN, LSTMSeq2Seq, Transformer, TransformerSeq2Seq
from seqmodels.ngram import NGram
from seqmodels.observations import AutoregressiveGaussian, GaussianMixture
from seqmodels.sequences import Sequences

TEXT_CONTEXT, TEXT_REST = 64, 128  # characters
SPEECH_CONTEXT = 20  # frames
CHUNKS_A_CLUSTER = 8  # neighbouring pieces of one text are not independent
QUICK = ("iid", "var", "hmm", "lstm", "transformer")

Build = Callable[[int], SequenceModel]  # from a seed


@dataclass(frozen=True)
class Task:
    """One table to be: training pairs or sequences, held-out ones, models, and about how many seconds all of it takes.

    ``estimates``: of the seconds, by model; those that are not there take equal shares.
    """

    name: str
    title: str
    train: tuple[Sequences, Sequences | None]
    test: tuple[Sequences, Sequences | None]
    models: dict[str, SequenceModel] = field(default_factory=dict)
    seconds: float = 0.0
    baseline: str = "hmm"
    estimates: Mapping[str, float] = field(default_factory=dict)


# Each model from a seed, and about how many seconds it takes on two cores with the default data.
TEXT_DENSITY: dict[str, tuple[Build, float]] = {
    "iid": (lambda seed: HMM(1, random_state=seed), 1),
    "ngram": (lambda seed: NGram(5, random_state=seed), 1),
    "hmm": (lambda seed: HMM(64, max_iter=16, random_state=seed), 5),
    "elman": (lambda seed: ElmanRNN(max_steps=600, random_state=seed), 11),
    "lstm": (lambda seed: LSTM(max_steps=800, random_state=seed), 18),
    "gru": (lambda seed: GRU(max_steps=500, random_state=seed), 18),
    "transformer": (lambda seed: Transformer(max_steps=700, random_state=seed), 50),
}
TEXT_CONTINUATION: dict[str, tuple[Build, float]] = {
    "iid": (lambda seed: HMM(1, random_state=seed), 1),
    "ngram": (lambda seed: NGram(5, random_state=seed), 1),
    "hmm": (lambda seed: HMM(64, max_iter=16, random_state=seed), 3),
    "elman": (lambda seed: ElmanRNN(d_model=128, max_steps=600, random_state=seed), 7),
    "lstm": (lambda seed: LSTM(d_model=128, max_steps=600, random_state=seed), 8),
    "gru": (lambda seed: GRU(d_model=128, max_steps=400, random_state=seed), 8),
    "transformer": (lambda seed: Transformer(n_layers=2, context=256, max_steps=700, random_state=seed), 38),
    "seq2seq-fixed": (lambda seed: LSTMSeq2Seq(d_model=128, attention=None, max_steps=400, random_state=seed), 15),
    "seq2seq-additive": (lambda seed: LSTMSeq2Seq(d_model=128, batch_size=32, max_steps=150, random_state=seed), 42),
    "seq2seq-multiplicative": (
        lambda seed: LSTMSeq2Seq(
            d_model=128, attention="multiplicative", batch_size=32, max_steps=150, random_state=seed
        ),
        27,
    ),
    "seq2seq-transformer": (lambda seed: TransformerSeq2Seq(max_steps=400, random_state=seed), 31),
}
SPEECH_DENSITY: dict[str, tuple[Build, float]] = {
    "iid": (lambda seed: HMM(1, observation=GaussianMixture(1, "full"), random_state=seed), 1),
    "var": (lambda seed: HMM(1, observation=AutoregressiveGaussian(), random_state=seed), 1),
    "hmm": (lambda seed: HMM(24, observation=GaussianMixture(4), max_iter=30, random_state=seed), 2),
    "elman": (lambda seed: ElmanRNN(d_model=128, max_steps=400, random_state=seed), 9),
    "lstm": (lambda seed: LSTM(d_model=128, max_steps=400, random_state=seed), 9),
    "gru": (lambda seed: GRU(d_model=128, max_steps=300, random_state=seed), 9),
    "transformer": (lambda seed: Transformer(d_model=96, n_layers=2, max_steps=300, random_state=seed), 14),
}
SPEECH_CONTINUATION: dict[str, tuple[Build, float]] = {
    **{name: SPEECH_DENSITY[name] for name in ("iid", "var", "hmm")},
    "elman": (lambda seed: ElmanRNN(d_model=96, max_steps=300, random_state=seed), 7),
    "lstm": (lambda seed: LSTM(d_model=96, max_steps=300, random_state=seed), 7),
    "gru": (lambda seed: GRU(d_model=96, max_steps=200, random_state=seed), 8),
    "transformer": (lambda seed: Transformer(d_model=96, n_layers=2, max_steps=200, random_state=seed), 11),
    "seq2seq-fixed": (lambda seed: LSTMSeq2Seq(d_model=96, attention=None, max_steps=300, random_state=seed), 12),
    "seq2seq-additive": (lambda seed: LSTMSeq2Seq(d_model=96, batch_size=32, max_steps=100, random_state=seed), 18),
    "seq2seq-multiplicative": (
        lambda seed: LSTMSeq2Seq(
            d_model=96, attention="multiplicative", batch_size=32, max_steps=100, random_state=seed
        ),
        15,
    ),
    "seq2seq-transformer": (lambda seed: TransformerSeq2Seq(d_model=96, max_steps=200, random_state=seed), 20),
}


def text_tasks(
    text: Sequences | None = None, *, names: Sequence[str] | None = None, quick: bool = False, random_state: int = 0
) -> list[Task]:
    """Density of a text (its last tenth held out), and continuation of 64 characters by the next 128."""
    whole = builtin_text() if text is None else text
    train, test = whole.split(0.1)
    tasks = [Task("text-density", "Text: log p(x)", (train, None), (test, None))]
    if not quick:
        if max(map(len, test)) <= TEXT_CONTEXT:
            raise ValueError(
                f"the text is too short for continuation: held out are {max(map(len, test))} characters, and {TEXT_CONTEXT} are given; "
                "take more text, or density alone (--quick)"
            )
        train_pairs, test_pairs = (
            _in_clusters(part.chunks(TEXT_CONTEXT + TEXT_REST)).continuation(TEXT_CONTEXT) for part in (train, test)
        )
        title = f"Text: log p(next {TEXT_REST} characters | {TEXT_CONTEXT} characters)"
        tasks.append(Task("text-continuation", title, train_pairs, test_pairs))
    shelves = (TEXT_DENSITY, TEXT_CONTINUATION)
    return [_with_models(t, shelf, names, quick, random_state) for t, shelf in zip(tasks, shelves, strict=False)]


def speech_tasks(
    frames: Sequences | None = None, *, names: Sequence[str] | None = None, quick: bool = False, random_state: int = 0
) -> list[Task]:
    """Density of utterances, and continuation of the first 20 frames; unheard speakers where there are enough to hold out."""
    if frames is None:
        frames = speech(600, 60, features="mfcc", random_state=random_state).sequences
    by = "speaker" if "speaker" in frames.metadata and frames.metadata["speaker"].nunique() >= 20 else None
    if by is None and "cluster" in frames.metadata:
        # Few speakers, in both parts: what is generalised over is utterances, so these are the independent units.
        frames = Sequences(frames.items, metadata=frames.metadata.drop(columns="cluster"), grid=frames.grid)
    train, test = frames.split(0.2, by=by, random_state=random_state)
    tasks = [Task("speech-density", "Speech: log p(x)", (train, None), (test, None))]
    if not quick:
        if max(map(len, test)) <= SPEECH_CONTEXT:
            raise ValueError(
                f"the recordings are too short for continuation: of those held out the longest has {max(map(len, test))} frames, and "
                f"{SPEECH_CONTEXT} are given; take longer ones, or density alone (--quick)"
            )
        title = f"Speech: log p(rest | first {SPEECH_CONTEXT} frames)"
        train_pairs, test_pairs = (part.continuation(SPEECH_CONTEXT) for part in (train, test))
        tasks.append(Task("speech-continuation", title, train_pairs, test_pairs))
    shelves = (SPEECH_DENSITY, SPEECH_CONTINUATION)
    return [_with_models(t, shelf, names, quick, random_state) for t, shelf in zip(tasks, shelves, strict=False)]


def table_tasks(
    sequences: Sequences, *, names: Sequence[str] | None = None, quick: bool = False, random_state: int = 0
) -> list[Task]:
    """Density of vectors by the models for speech, of anything else by those for text; a fifth of the sequences held out."""
    train, test = sequences.split(0.2, random_state=random_state)
    shelf = SPEECH_DENSITY if sequences.kind == "vectors" else TEXT_DENSITY
    task = Task("table-density", "Table: log p(x)", (train, None), (test, None))
    return [_with_models(task, shelf, names, quick, random_state)]


def pair_tasks(
    X: Sequences,
    y: Sequences,
    *,
    names: Sequence[str] | None = None,
    quick: bool = False,
    random_state: int = 0,
) -> list[Task]:
    """Targets given sources; a tenth of the pairs held out."""
    order = np.random.default_rng(random_state).permutation(len(X))
    cut = max(1, round(0.1 * len(X)))
    if cut >= len(X):
        raise ValueError(f"there is {len(X)} pair; at least two are needed, one to train on and one to test on")
    test, train = np.sort(order[:cut]), np.sort(order[cut:])
    title = "Pairs: log p(target | source)"
    task = Task("pairs", title, (X.take(train), y.take(train)), (X.take(test), y.take(test)))
    return [_with_models(task, TEXT_CONTINUATION, names, quick, random_state)]


def _with_models(
    task: Task, shelf: dict[str, tuple[Build, float]], names: Sequence[str] | None, quick: bool, seed: int
) -> Task:
    known = list(dict.fromkeys([*TEXT_CONTINUATION, *SPEECH_CONTINUATION]))
    unknown = [n for n in names or () if n not in known]
    if unknown:
        raise ValueError(f"there is no model {unknown[0]!r}; choose from {', '.join(known)}")
    wanted = names if names else QUICK if quick else tuple(shelf)
    chosen = {name: shelf[name] for name in shelf if name in wanted or name == task.baseline}
    models = {name: build(seed) for name, (build, _) in chosen.items()}
    if quick:
        models = {name: _with_half_the_budget(model) for name, model in models.items()}
    estimates = {name: s * (0.5 if quick else 1.0) for name, (_, s) in chosen.items()}
    return replace(task, models=models, seconds=sum(estimates.values()), estimates=estimates)


def _with_half_the_budget(model: SequenceModel) -> SequenceModel:
    params = model.get_params(deep=False)
    return model.set_params(**{name: params[name] // 2 for name in ("max_iter", "max_steps") if name in params})


def _in_clusters(chunks: Sequences) -> Sequences:
    clusters = np.arange(len(chunks)) // CHUNKS_A_CLUSTER
    metadata = pd.DataFrame(chunks.metadata.drop(columns="cluster", errors="ignore"))
    return Sequences(chunks.items, metadata=metadata, clusters=list(clusters), grid=chunks.grid)
