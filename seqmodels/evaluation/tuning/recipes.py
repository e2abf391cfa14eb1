"""``propose_recipes``: what a careful analyst would try with a model and these data, as named arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqmodels.common.parameters import checked_but
from seqmodels.data import FrameFeatures
from seqmodels.encodings import RunningScale
from seqmodels.encodings.auto_series import choose as reading_of
from seqmodels.encodings.defaults import MOST_SERIES_BY_DEFAULT
from seqmodels.encodings.step_maps import as_frames
from seqmodels.evaluation.tuning.search import in_words
from seqmodels.hmm import HMM, HSMM
from seqmodels.model import SequenceModel
from seqmodels.neural.model import NeuralModel
from seqmodels.observations import AutoregressiveGaussian, GaussianMixture, PseudoFrames
from seqmodels.sequences import Sequences, as_sequences
from seqmodels.training import Perturbation
from seqmodels.wrappers.classification import GenerativeClassifier

FEWEST_CLUSTERS = 3  # so that a model of two or more is asked about another
# These two were set on the four speakers of one corpus (experiments/unheard_speakers.py).
PRIOR_FRAMES = 40.0  # frames that training data count as in a running scale
SHARED_VARIANCES = PseudoFrames(1000.0, covariance=0.5, mean_count=30.0)


@dataclass(frozen=True, repr=False)
class Proposal:
    """A recipe: arguments of a model that are tried together, and why they may describe the data better.

    Attributes:
        arguments: values by the name of a hyperparameter; nested ones as ``observation__n_components``.
        why: the reason in one sentence; empty if a user named the arguments.
    """

    arguments: Mapping[str, Any]
    why: str = ""

    def __repr__(self) -> str:
        return in_words(self.arguments) or "the arguments as they are"


AS_IT_IS = Proposal({}, "The model is fitted as it is.")


@checked_but("model", "X")
def propose_recipes(model: Any, X: Any) -> list[Proposal]:
    """Propose recipes, combinations of arguments to try with a model on these sequences; the first changes nothing.

    Nothing is fitted. Arguments that the model already names are left alone.

    - For an ``HMM`` of vectors: an autoregressive observation and, with several sequences, frames that are scaled by a
      running mean and deviation. For an ``HMM`` or ``HSMM`` of up to five series: differences, if the series look as if
      they wander or have a season.
    - For a network of vectors: training that starts from a linear prediction and, with three clusters or more, randomly
      perturbed sequences.
    - For a ``GenerativeClassifier`` of vectors: slopes beside the frames; frames minus the mean of each recording, in
      all columns or in those whose mean follows the cluster more than the label; frames in the recording's own scale.
      Its HMMs get a strong prior on variances, which keeps them nearly the same in all states.

    A cluster is a set of sequences that depend on each other, such as those of one speaker.

    Args:
        model: a ``SequenceModel`` or a ``GenerativeClassifier``, unfitted.
        X: the sequences; for a classifier with their labels.

    Returns:
        A list of ``Proposal``, each with its ``.arguments`` and the reason ``.why``.

    Raises:
        ValueError: there is nothing to propose for this model or these data.

    >>> from seqmodels import HMM
    >>> x = list(np.random.default_rng(0).normal(size=(8, 30, 2)))
    >>> propose_recipes(HMM(2), x)[1]
    observation=AutoregressiveGaussian(), n_init=1
    """
    sequences = as_sequences(X)
    recipes: list[Proposal] = []
    if sequences.kind == "vectors" and isinstance(model, GenerativeClassifier):
        recipes = _of_classifier(model, sequences)
    elif sequences.kind == "vectors" and isinstance(model, SequenceModel):
        is_network = isinstance(model, NeuralModel)
        recipes = _of_network(model, sequences) if isinstance(model, NeuralModel) else _of_states(model, sequences)
        if not is_network:
            recipes += _of_series(model, sequences)
    if not recipes:
        raise ValueError(
            f"there is no recipe for {model!r:.200} and {sequences.kind} with the arguments that it leaves open; pass "
            "recipe=[{...}, {...}] with arguments of your own"
        )
    return [AS_IT_IS, *recipes]


def _of_states(model: SequenceModel, sequences: Sequences) -> list[Proposal]:
    if not isinstance(model, HMM) or model.observation != "auto" or model.algorithm == "variational":
        return []
    once = {"n_init": 1} if model.n_init == "auto" else {}  # the best of several starts predicts others no better
    memory = {"observation": AutoregressiveGaussian(), **once}
    recipes = [Proposal(memory, "Each frame is predicted from the one before it, which smooth frames ask for.")]
    if model.encoding == "auto" and len(sequences) > MOST_SERIES_BY_DEFAULT:
        scale = RunningScale(PRIOR_FRAMES)
        why = "Frames are also read in the level and scale that their sequence has shown so far, so that a new speaker "
        recipes.append(Proposal({**memory, "encoding": scale}, f"{why}or sensor is followed."))
    return recipes


def _of_series(model: SequenceModel, sequences: Sequences) -> list[Proposal]:
    if not isinstance(model, HMM | HSMM) or model.encoding != "auto" or len(sequences) > MOST_SERIES_BY_DEFAULT:
        return []
    choice = reading_of([as_frames(item) for item in sequences])
    if not choice.order and choice.season is None and not choice.log:
        return []
    return [Proposal({"encoding": choice.chain()}, f"The series is read as changes: {choice.reason}.")]


def _of_network(model: NeuralModel, sequences: Sequences) -> list[Proposal]:
    if model.training.linear_start or model.training.perturbation is not None:
        return []
    why = "Training starts from a linear prediction of each frame from the last."
    recipes = [Proposal({"training__linear_start": True}, why)]
    if _n_clusters(sequences) >= FEWEST_CLUSTERS:
        why = (
            "Training sequences are also moved and mixed at random, so that the network does not learn its speakers or "
        )
        changes = {"training__linear_start": True, "training__perturbation": Perturbation()}
        recipes.append(Proposal(changes, f"{why}sensors by heart."))
    return recipes


def _of_classifier(classifier: GenerativeClassifier, sequences: Sequences) -> list[Proposal]:
    if classifier.features is not None or sequences.labels is None:
        return []
    columns = level_columns(sequences) if _n_clusters(sequences) > 1 else ()
    of_level = "The level of each recording is taken away"
    candidates = [
        (FrameFeatures(2, mean=False, variance=False), "Slopes stand beside the frames."),
        (FrameFeatures(2, variance=False), f"{of_level}, and slopes stand beside the frames."),
        (FrameFeatures(2, constant="keep"), f"{of_level}, its scale too, and slopes stand beside the frames."),
    ]
    if columns:
        why = (
            f"{of_level} in the columns where it tells the speaker more than the label; slopes stand beside the frames."
        )
        candidates.insert(1, (FrameFeatures(2, mean=columns, variance=False), why))
    inner, shared = classifier.model, {}
    if isinstance(inner, HMM) and inner.observation == "auto" and inner.algorithm == "em":
        shared = {"model__observation": GaussianMixture(1, prior=SHARED_VARIANCES.clone(), background=0.01)}
    return [Proposal({"features": features, **shared}, why) for features, why in candidates]


def _n_clusters(sequences: Sequences) -> int:
    return 0 if sequences.clusters is None else len(set(map(str, sequences.clusters)))


def level_columns(sequences: Sequences) -> tuple[int, ...]:
    """Return the columns (features) whose mean over a sequence depends on its cluster more than on its label.

    Both dependences are measured by the variance of the means of groups of sequences, each weighted by its size.

    Args:
        sequences: sequences of vectors with labels and clusters (sets of sequences that depend on each other, such as
            those of one speaker).
    """
    means = np.stack([np.asarray(item, dtype=np.float64).mean(axis=0) for item in sequences])  # (n, D)
    by_cluster, by_label = (_between(means, group) for group in (sequences.clusters, sequences.labels))
    return tuple(np.flatnonzero(by_cluster > by_label).tolist())


def _between(values: np.ndarray, names: Sequence[Any] | None) -> np.ndarray:
    """Return the variance between groups, ``(D,)``: that of the groups' means, weighted by the sizes of the groups.

    Args:
        values: n vectors of D features, ``(n, D)``.
        names: group of each vector.
    """
    assert names is not None
    _, group = np.unique(np.asarray(names).astype(str), return_inverse=True)
    sums = np.zeros((group.max() + 1, values.shape[1]))
    np.add.at(sums, group, values)
    means = sums / np.bincount(group)[:, None]
    return np.asarray(means[group].var(axis=0))
