"""``GenerativeClassifier``: ``p(c | x) ∝ p(x | c) p(c)``, a density of sequences for each label."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from seqmodels.common import storage
from seqmodels.common.array_checks import array_of, check_between, check_sums
from seqmodels.common.distributed import propagate_errors
from seqmodels.common.parameters import Configurable, checked, refuse_wrong_arguments, undone_on_failure
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.sequences import Sequences, as_sequences
from seqmodels.wrappers.classification.calibration import folds, learned_temperature, log_posterior
from seqmodels.wrappers.classification.repeated_warnings import FitWarnings

SMALLEST_POSITIVE = float(np.nextafter(0, 1))


@dataclass(eq=False, repr=False)
class GenerativeClassifier(Configurable):
    """A classifier of sequences by Bayes' rule, with a density ``p(x | c)`` for each label c.

    ``p(c | x) ∝ (p(x | c) p(c))^(1/temperature)``, where each density is a clone of ``model`` that is fitted to the
    sequences with that label. The encoding is fitted once, on the sequences of all labels, so that densities are
    comparable: a text's alphabet must be the same, and variance floors are in the same standardised units.

    A model that treats frames as less dependent than they are is surer than it is right, the more so the longer the
    sequence. The temperature corrects this. It scales likelihood and prior together, so that the most probable label
    stays the same; ``predict`` and ``decision_function`` do not use it.

    With ``features`` the densities are of what a function computes from each whole sequence, such as its frames minus
    their mean. They are no densities of the sequence, and comparable among the labels only. With ``training_features``
    the models are fitted to several versions of every sequence, as other speakers or microphones might have given it.

    A model that reads inputs u gives ``p(c | x, u) ∝ p(x | u, c) p(c)``: the inputs alone say nothing of the label.

    Args:
        model: any ``SequenceModel``, unfitted; it stays as it is. Its hyperparameters can be set as
            ``model__n_states``.
        features: a function of one sequence (a ``(T, D)`` array, a text, ...) that returns what the models read in its
            place: ``data.SpeechFeatures``, ``data.FrameFeatures``, or any other. It must be a ``Configurable`` if the
            classifier is to be saved. None means that models read the sequences as they are.
        training_features: further functions of this kind, which only ``fit`` uses: it fits the models to the results of
            all of them and of ``features``, each with the label and the cluster of its sequence.
        priors: ``"data"`` means the share of each label in training, ``"uniform"`` equal probabilities; or an array of
            probabilities in the order of ``classes_``.
        calibrate: whether to learn the temperature, by the log-loss of each of ``n_folds`` parts under models fitted to
            the others, which takes ``n_folds`` more fits of each label. False leaves it at 1.
        n_folds: number of these parts. They are parts of the clusters that ``X`` has (speakers, documents), unless
            every label lies within one cluster; otherwise of the sequences, with about the same share of each label.
        random_state: seed of the assignment to parts.

    Attributes (fitted): ``classes_``, the K labels in order; ``models_``, the fitted model of each; ``encoding_``,
    which they share; ``priors_``, probabilities, ``(K,)``; ``temperature_``; ``fit_seconds_``.

    >>> from seqmodels import HMM
    >>> x = [np.array([0, 0, 1, 0]), np.array([1, 1, 1]), np.array([0, 0, 0]), np.array([1, 0, 1, 1, 1])]
    >>> classifier = GenerativeClassifier(HMM(1), calibrate=False).fit(x, ["low", "high", "low", "high"])
    >>> classifier.predict([np.array([0, 0]), np.array([1, 1])]).tolist()
    ['low', 'high']
    """

    model: SequenceModel
    _: KW_ONLY
    features: Callable[[Any], Any] | None = None
    training_features: Sequence[Callable[[Any], Any]] = ()
    priors: Literal["data", "uniform"] | Any = "data"
    calibrate: bool = True
    n_folds: int = 3
    random_state: int = 0

    _former_values: ClassVar[Mapping[str, Mapping[str, Any]]] = {"features": {"auto": None}}

    @property
    def feature_names_in_(self) -> np.ndarray:
        """The names of the D features that the classifier was fitted to, ``(D,)``.

        The attribute is missing if they had no names.

        Raises:
            NotFittedError: If the classifier is not fitted.
        """
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this GenerativeClassifier is not fitted; call fit first")
        return self.models_[0].feature_names_in_

    # -- fitting -------------------------------------------------------------------------------------------

    @checked
    def fit(self, X: Any, y: Any = None, *, validation: Any = "auto") -> Self:
        """Fit a model to the sequences of each label, and learn the temperature if ``calibrate``.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
            y: label of each sequence, ``(n,)``; None means the labels that ``X`` has.
            validation: ``"auto"`` holds out a tenth of each label's sequences for early stopping of networks; None
                holds out nothing.

        Raises:
            ValueError: there are no labels, or all are the same; or ``model.fit`` raises it for the sequences of one
                label, which the message names.
        """
        fits = FitWarnings()
        try:
            with propagate_errors():
                return self._fit_to(as_sequences(X), y, validation, fits)
        finally:
            fits.warn()

    def _fit_to(self, sequences: Sequences, y: Any, validation: Any, fits: FitWarnings) -> Self:
        self.check(validation)
        classes, index = np.unique(_labels(sequences, y), return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"every sequence has the label {classes.tolist()[0]!r}; pass sequences of at least two labels"
            )
        priors, began = self._chosen_priors(classes, index), time.perf_counter()
        with undone_on_failure(self):
            self.classes_, self.priors_ = classes, priors
            readings = self._training_readings(sequences)
            self.encoding_ = self.model.clone().learned_encoding(readings)
            self.temperature_ = (
                self._calibrated(sequences, readings, index, validation, fits) if self.calibrate else 1.0
            )
            self.models_ = self._fitted(readings, np.resize(index, len(readings)), validation, fits)
        self.fit_seconds_ = time.perf_counter() - began
        return self

    def check(self, validation: Any = "auto") -> None:
        """Check the hyperparameters, and the argument ``validation`` of ``fit``, before any data are seen.

        Raises:
            ValueError: If one of them is invalid for any data.
        """
        if not isinstance(self.model, SequenceModel):
            raise ValueError(f"model is {self.model!r}, which has no likelihood; pass a SequenceModel such as HMM(3)")
        self._check_features()
        refuse_wrong_arguments(self)
        if self.n_folds < 2:
            raise ValueError(f"n_folds is {self.n_folds}; pass at least 2, or calibrate=False")
        if validation is not None and not (isinstance(validation, str) and validation == "auto"):
            raise ValueError("validation is a matter of each label's model; pass 'auto', or None to hold out nothing")

    def _check_features(self) -> None:
        named = [] if self.features is None else [self.features]
        for function in (*named, *self.training_features):
            if not callable(function):
                raise ValueError(f"features are read by {function!r:.80}, which is no function; pass one of a sequence")

    def _chosen_priors(self, classes: np.ndarray, index: np.ndarray) -> np.ndarray:
        if isinstance(self.priors, str):
            if self.priors not in ("data", "uniform"):
                raise ValueError(f"priors is {self.priors!r}; pass 'data', 'uniform' or {len(classes)} probabilities")
            counts = np.bincount(index).astype(np.float64)
            return counts / counts.sum() if self.priors == "data" else np.full(len(classes), 1 / len(classes))
        priors = np.asarray(self.priors, dtype=np.float64)
        if priors.shape != (len(classes),) or not ((priors >= 0).all() and np.isclose(priors.sum(), 1)):
            raise ValueError(
                f"priors is {self.priors!r}; pass one probability for each of {classes.tolist()}, summing to one"
            )
        return priors

    def _training_readings(self, sequences: Sequences) -> Sequences:
        """Return the features of all sequences as one: those of ``features``, then of each of ``training_features``."""
        readings = [_read(sequences, function) for function in (self.features, *self.training_features)]
        self._check_steps(sequences, readings)
        if len(readings) == 1:
            return readings[0]
        joined = Sequences.joined(readings)
        if joined.clusters is None:  # so that no reading of a sequence is held out while another is trained on
            groups = np.resize(np.arange(len(sequences)), len(joined))
            joined = joined.with_metadata(joined.metadata.assign(cluster=groups))
        return joined

    def _check_steps(self, sequences: Sequences, readings: Sequence[Sequences]) -> None:
        """Check that the features of the sequences have the times or inputs that the model reads.

        Args:
            sequences: the raw sequences.
            readings: their features, under one or several functions.

        Raises:
            ValueError: If they lack them.
        """
        loses_times = sequences.times is not None and any(each.times is None for each in readings)
        if self.model._times_in is not None and loses_times:
            raise ValueError(
                f"{self.model!r:.200} reads times, but features make other steps of the sequences, which have none; "
                "pass features that keep the steps, or sequences of features"
            )
        reads_other_inputs = self.model._reads_inputs and self.model._times_in is None
        if reads_other_inputs and any(each.inputs is None for each in readings):
            raise ValueError(
                f"{self.model!r:.200} reads inputs, but the sequences have none, or not one for each step of what "
                "features make of them; pass Sequences(items, inputs=...), and features that keep the steps"
            )

    def _calibrated(
        self,
        sequences: Sequences,
        readings: Sequences,
        index: np.ndarray,
        validation: Any,
        fits: FitWarnings,
    ) -> float:
        log_joint = np.full((len(index), len(self.classes_)), np.nan)
        clusters = None if sequences.clusters is None else np.asarray(sequences.clusters)
        for part in folds(index, clusters, self.n_folds, self.random_state):
            kept = np.resize(~part, len(readings))
            models = self._fitted(readings.take(kept), np.resize(index, len(readings))[kept], validation, fits)
            log_joint[part] = self._log_joint(models, readings.take(np.flatnonzero(part)))
        held_out = ~np.isnan(log_joint).any(axis=1)
        if not held_out.any():
            raise ValueError("no label has two sequences, so none can be held out; pass calibrate=False")
        return learned_temperature(log_joint[held_out], index[held_out])

    def _fitted(
        self, sequences: Sequences, index: np.ndarray, validation: Any, fits: FitWarnings
    ) -> list[SequenceModel]:
        return [self._fit_label(c, sequences.take(index == c), validation, fits) for c in range(len(self.classes_))]

    def _fit_label(self, c: int, sequences: Sequences, validation: Any, fits: FitWarnings) -> SequenceModel:
        label = self.classes_.tolist()[c]
        try:
            with fits.of_fit(label):
                model = self.model.clone().fit_encoded(self.encoding_, sequences, validation=validation)
        except ValueError as error:
            raise ValueError(f"the sequences labelled {label!r} alone: {error}") from error
        if model.interrupted_:  # with some labels alone there is no classifier
            raise KeyboardInterrupt
        return model

    # -- predictions ---------------------------------------------------------------------------------------

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label of each of n sequences, ``(n,)``; if several are, the first in ``classes_``.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
        """
        log_joint = self._fitted_log_joint(X)
        return np.asarray(self.classes_[log_posterior(log_joint, 1.0, self._log_priors()).argmax(axis=1)])

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the natural logarithm of the calibrated probability of each of K labels, for n sequences, ``(n, K)``.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
        """
        return log_posterior(self._fitted_log_joint(X), self.temperature_, self._log_priors())

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the calibrated probability of each of K labels, in the order of ``classes_``, ``(n, K)``.

        A sequence that is impossible under every label has the priors.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
        """
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def decision_function(self, X: Any) -> np.ndarray:
        """Return ``log p(x | c) + log p(c)`` in nats of n sequences x and K labels c, ``(n, K)``, not calibrated.

        For two labels it returns the log-odds of the second one, ``(n,)``.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
        """
        log_joint = self._fitted_log_joint(X)
        if log_joint.shape[1] > 2:
            return log_joint
        return np.diff(log_posterior(log_joint, 1.0, self._log_priors()), axis=1)[:, 0]

    def score(self, X: Any, y: Any = None) -> float:
        """Return the accuracy, the share of sequences whose label is predicted.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
            y: the true labels, ``(n,)``; None means the labels that ``X`` has.
        """
        sequences = as_sequences(X)
        return float((self.predict(sequences) == _labels(sequences, y)).mean())

    @checked
    def cross_val_predict(self, X: Any, y: Any = None, *, n_folds: int = 5, validation: Any = "auto") -> np.ndarray:
        """Predict the label of each sequence by a classifier that was fitted to other parts of the data, ``(n,)``.

        It serves to count errors if there are no further data. This classifier stays as it is, fitted or not. The
        temperature, which changes no label, is not learned.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
            y: label of each sequence, ``(n,)``; None means the labels that ``X`` has.
            n_folds: number of parts, each held out once: parts of the clusters that ``X`` has (speakers, documents),
                unless every label lies within one cluster; otherwise of the sequences, with about the same share of
                each label.
            validation: ``"auto"`` holds out a tenth of each label's sequences for early stopping of networks; None
                holds out nothing.

        Raises:
            ValueError: a label occurs in one part only, so that its sequences cannot be held out; or ``fit`` raises it.
        """
        if n_folds < 2:
            raise ValueError(f"n_folds is {n_folds}; pass at least 2")
        sequences = as_sequences(X)
        labels = _labels(sequences, y)
        _, index = np.unique(labels, return_inverse=True)
        clusters = None if sequences.clusters is None else np.asarray(sequences.clusters)
        parts = folds(index, clusters, n_folds, self.random_state)
        never = ~np.any([np.zeros(len(labels), dtype=bool), *parts], axis=0)
        if never.any():
            within = "sequence" if clusters is None else "part of the clusters"
            raise ValueError(
                f"the label {labels[never].tolist()[0]!r} has one {within} only, which cannot be held out; pass more, "
                "or leave that label out"
            )
        predicted, fits = np.empty_like(labels), FitWarnings()
        try:
            for part in parts:
                others = self.clone().set_params(calibrate=False)
                with propagate_errors():
                    others._fit_to(sequences.take(~part), labels[~part], validation, fits)
                predicted[part] = others.predict(sequences.take(part))
        finally:
            fits.warn()
        return predicted

    def _fitted_log_joint(self, X: Any) -> np.ndarray:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this GenerativeClassifier is not fitted; call fit first")
        sequences = as_sequences(X)
        reading = _read(sequences, self.features)
        self._check_steps(sequences, [reading])
        return self._log_joint(self.models_, reading)

    def _log_joint(self, models: list[SequenceModel], readings: Sequences) -> np.ndarray:
        log_prob = np.stack([model.log_prob(readings) for model in models], axis=1)  # (n, K)
        return np.asarray(log_prob + self._log_priors())

    def _log_priors(self) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.priors_))

    # -- keeping -------------------------------------------------------------------------------------------

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted classifier to one safetensors file, which ``seqmodels.load`` reads.

        It warns of classes that are not seqmodels' own, which must be passed to ``load``:
        ``load(path, classes=[MyModel])``.

        Args:
            path: name of the file.

        Raises:
            NotFittedError: If the classifier is not fitted.
        """
        content = self.content()
        storage.warn_of_classes_to_give(self, self.encoding_, *(model.observation_ for model in self.models_))
        storage.write(path, content)

    def content(self) -> dict[str, Any]:
        """Return the content of a saved file: nested dictionaries of arrays and JSON values."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this GenerativeClassifier is not fitted; call fit first")
        return {
            "model": storage.describe(self),
            "classes": {"values": self.classes_.tolist(), "dtype": self.classes_.dtype.str},
            "priors": self.priors_,
            "temperature": float(self.temperature_),
            "fit_seconds": float(self.fit_seconds_),
            "models": {str(c): model.content() for c, model in enumerate(self.models_)},
        }

    def _load(
        self, content: dict[str, Any], models: list[SequenceModel], features: Callable[[Any], Any] | None = None
    ) -> Self:
        """Restore a fitted classifier from what the method ``content`` returned and from its fitted ``models``.

        ``features`` are those that a classifier of version 0.1 had chosen by itself; None means the argument's.
        """
        if features is not None:
            self.features = features
        self._check_features()
        self.classes_ = _restored_labels(content["classes"]["values"], content["classes"]["dtype"])
        self.priors_ = check_between("priors", array_of(content, "priors", np.float64, self.classes_.shape), 0)
        check_sums("priors", self.priors_.sum(keepdims=True))
        self.temperature_ = float(
            check_between("temperature", np.array(content["temperature"], dtype=np.float64), SMALLEST_POSITIVE)
        )
        if len(models) != len(self.classes_) or not all(isinstance(model, SequenceModel) for model in models):
            raise ValueError(f"there should be a model with a likelihood for each of {len(self.classes_)} labels")
        self.fit_seconds_, self.models_ = content["fit_seconds"], models
        self.encoding_ = models[0].encoding_
        return self

    # -- scikit-learn --------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            classifier_tags=ClassifierTags(),
            target_tags=TargetTags(required=True),
            input_tags=InputTags(two_d_array=False, string=True, three_d_array=False),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "models_")


def _restored_labels(values: list[Any], dtype: str) -> np.ndarray:
    """Return the array of labels that a file describes.

    Args:
        values: the labels, as a list.
        dtype: name of the array's dtype.

    Raises:
        ValueError: If they are no labels, or the dtype is wider than they are, because the array could then take much
            memory.
    """
    labels = np.array(values, dtype=object if dtype == "|O" else None)
    saved_dtype = np.dtype(dtype)
    if (
        labels.ndim != 1
        or saved_dtype.kind not in "biufUO"
        or (saved_dtype.kind == "U" and saved_dtype != labels.dtype)
    ):
        raise ValueError(f"labels should be words or numbers, not an array of {labels.dtype} as {dtype!r:.50}")
    return labels.astype(saved_dtype)


def _read(sequences: Sequences, function: Callable[[Any], Any] | None) -> Sequences:
    """Apply a function to each sequence, and keep the metadata of the sequences.

    Args:
        sequences: the sequences.
        function: function of one sequence; None returns the sequences unchanged.

    Raises:
        ValueError: If the function raises it for a sequence, which the message names; or the sequences have a past.
    """
    if function is None:
        return sequences
    if sequences.past is not None:
        raise ValueError(
            "these sequences have a past, which features are not made of; pass X.without_past(), or features=None"
        )
    items = []
    for i, item in enumerate(sequences):
        try:
            items.append(function(item))
        except ValueError as error:
            raise ValueError(f"features of sequence {i}: {error}") from error
    keeps_steps = all(len(item) == n for item, n in zip(items, sequences.n_units, strict=True))
    of_steps: Any = "keep" if keeps_steps and sequences.kind != "text" else None
    return sequences.with_items(items, times=of_steps, inputs=of_steps)


def _labels(sequences: Sequences, y: Any) -> np.ndarray:
    y = sequences.labels if y is None else y
    if y is None:
        raise ValueError("the sequences carry no labels; pass y, or Sequences(items, labels=...)")
    import pandas as pd

    try:
        labels = np.asarray(y)
    except ValueError:
        raise ValueError("labels are lists of different lengths; pass one word or number for each sequence") from None
    if labels.shape != (len(sequences),):
        raise ValueError(f"there are {len(sequences)} sequences but labels of shape {labels.shape}; pass one each")
    missing = np.flatnonzero(pd.isna(pd.Series(list(y), dtype=object)))  # numpy would make the word "nan" of some
    if len(missing):
        raise ValueError(
            f"sequence {missing[0]} has no label ({list(y)[missing[0]]}), as have {len(missing)} of {len(labels)}; "
            "leave them out of X and y: X.take(mask)"
        )
    return labels
