"""A detector of steps or sequences to which a model gives less probability than to all but a few of held-out data."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch

from seqmodels.common import storage
from seqmodels.common.array_checks import array_of, check_between
from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import a_or_an
from seqmodels.common.parameters import Configurable, checked, refuse_wrong_arguments, undone_on_failure
from seqmodels.encodings import Encoding
from seqmodels.encodings.examples import Example
from seqmodels.encodings.raw_data import Data, cluster_numbers
from seqmodels.generation import Prediction
from seqmodels.generation.given_inputs import with_inputs
from seqmodels.generation.inputs import with_enough_precision
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.model.teacher_forcing import WARM_UP
from seqmodels.sequences import Item, Sequences
from seqmodels.sequences.zones import on_its_clock, with_zone
from seqmodels.wrappers.anomalies.full_conditionals import feature_log_probs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from seqmodels.plot.flagged_steps import JudgedSequence
    from seqmodels.plot.style import Panels

MAX_DRAWN = 6  # largest number of sequences in one plot
FEATURE_STEPS = 2000  # number of held-out steps for the mean log-probability of each feature
END = "end"  # stands in place of a value


@dataclass(eq=False, repr=False)
class Anomalies(Configurable):
    """Detector of improbable steps or sequences: ``score = -log p``, flagged above a quantile of held-out scores.

    With n held-out scores, the p-value of a score is ``(1 + number of held-out scores at least as high) / (n + 1)``,
    and a step or sequence with ``p_value <= 1 - quantile`` is flagged. In data from the same source, the expected share
    that is flagged by mistake is then ``1 - quantile`` or a little less, however few the held-out data and however
    wrong the model: these are p-values of conformal prediction (Vovk et al. 2005; Bates et al. 2023, *Testing for
    outliers with conformal p-values*). The statement is exact if scores are exchangeable, as scores of sequences from
    one source are. Steps of a sequence depend on each other, so that in one sequence the share may be far from the
    mean.

    Args:
        model: any ``SequenceModel``: not fitted for ``fit``, fitted for ``calibrate``. It is not changed.
        quantile: quantile of the held-out scores above which a score is an anomaly; ``1 - quantile`` is the rate of
            false alarms. 0.999 needs at least 999 held-out scores.
        per: unit that is judged. ``"step"``: a frame, symbol or character given all before it; ``"sequence"``: a
            sequence, by its mean nats per unit; a number of steps: the mean over the last so many, for changes that
            last.
        held_out: fraction of the data from which ``fit`` takes the threshold: whole clusters if the data have them,
            else whole sequences. The tail of a single sequence is held out, and scored given what came before it.
        feature_names: names of the features of vectors, for the columns of the frame; None means the model's
            ``feature_names_in_``, or ``x0``, ``x1``, ... if it has none.
        random_state: seed by which held-out data are chosen.

    Attributes (fitted): ``model_``, the fitted model; ``threshold_``, the score above which there is an anomaly;
    ``scores_``, the held-out scores, ascending.

    >>> from seqmodels import NGram
    >>> rng = np.random.default_rng(0)
    >>> normal = [np.tile([0, 1, 2], 40) for _ in range(20)]
    >>> anomalies = Anomalies(NGram(2, length="given"), quantile=0.99).fit(normal)
    >>> frame = anomalies.predict([np.array([0, 1, 2, 0, 2, 1, 2, 0, 1])])
    >>> frame[frame["is_anomaly"]][["sequence", "step", "value"]]
       sequence  step  value
    4         0     4      2
    5         0     5      1
    """

    model: SequenceModel
    _: KW_ONLY
    quantile: float = 0.999
    per: Literal["step", "sequence"] | int = "step"
    held_out: float = 0.2
    feature_names: Sequence[str] | None = None
    random_state: int = 0

    # -- the threshold -------------------------------------------------------------------------------------

    @checked
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit a clone of the model to a part of the sequences; the rest, which is held out, gives the threshold.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
            y: sequences to be judged given ``X``, one for each, for a model of y given x; None for a model of ``X``.

        Raises:
            ValueError: If there are too few held-out scores for the quantile, or only one cluster; and whatever
                ``model.fit`` raises.
        """
        self._check()
        train, held_out = _hold_out(Data.of(X, y), self.held_out, self.random_state)
        self._check_enough(self._n_scores(held_out))
        with undone_on_failure(self):
            self.model_ = self.model.clone().fit(train.X, train.y)
            if self.model_.interrupted_:
                raise KeyboardInterrupt
            self._calibrate(held_out)
        return self

    @checked
    def calibrate(self, X: Any, y: Any = None) -> Self:
        """Take the threshold from these sequences, to which the fitted ``model`` must not have been fitted.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
            y: sequences to be judged given ``X``, one for each, for a model of y given x; None for a model of ``X``.

        Raises:
            NotFittedError: If the model is not fitted.
            ValueError: If there are too few scores for the quantile, or the model cannot read the sequences.
        """
        self._check()
        if not self.model.__sklearn_is_fitted__():
            raise NotFittedError("the model is not fitted; call fit, which fits it to a part of the data")
        data = Data.of(X, y)
        self._check_enough(self._n_scores(data))
        with undone_on_failure(self):
            self.model_ = self.model
            self._calibrate(data)
        return self

    def _check(self) -> None:
        if not isinstance(self.model, SequenceModel):
            raise ValueError(f"model is {self.model!r}, which has no likelihood; pass a SequenceModel such as HMM(4)")
        refuse_wrong_arguments(self)
        for name in ("quantile", "held_out"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ValueError(f"{name} is {value!r}; pass a number between 0 and 1")
        is_window = isinstance(self.per, int | np.integer) and not isinstance(self.per, bool) and self.per >= 1
        if not (is_window or (isinstance(self.per, str) and self.per in ("step", "sequence"))):
            raise ValueError(f"per is {self.per!r}; pass 'step', 'sequence' or a number of steps")

    def _n_scores(self, data: Data) -> int:
        """Return the number of scores that calibration on ``data`` will give, not counting ends."""
        if self.per == "sequence":
            return len(data.X)
        lengths = np.array([len(item) for item in data.scored])
        width = 1 if isinstance(self.per, str) else self.per
        return int(np.clip(lengths - width + 1, 0, None).sum())

    def _check_enough(self, n: int) -> None:
        if _rank(n, self.quantile) < 1:
            what = "sequences" if self.per == "sequence" else "steps"
            fewest = math.ceil(1 / (1 - self.quantile) - 1e-9) - 1
            raise ValueError(
                f"quantile={self.quantile} needs at least {fewest:,} held-out {what}, but there are {n:,}; pass more, "
                f"or a quantile of at most {math.floor(1e4 * n / (n + 1)) / 1e4}"
            )

    def _calibrate(self, data: Data) -> None:
        scores = np.concatenate(self._scores_of_each(data, self._steps(data)))
        self.scores_ = np.sort(scores[~np.isnan(scores)])
        self.threshold_ = float(self.scores_[-_rank(len(self.scores_), self.quantile)])
        if self.threshold_ == math.inf:
            warn_caller(
                f"more than {1 - self.quantile:.3g} of what was held out has probability zero, so nothing can be an "
                "anomaly; give the observation a pseudocount, such as Categorical(pseudocount=0.1), and n_symbols that "
                "count every symbol",
            )
        self._usual_of_features = self._usual(data) if self._has_features() else None

    # -- scores --------------------------------------------------------------------------------------------

    def score_samples(self, X: Any, y: Any = None) -> list[np.ndarray] | np.ndarray:
        """Return ``log p`` of each step given all steps before it, a list of ``(T,)`` arrays in nats.

        Steps of text are characters; if the end of a sequence is an event, it is the last step. Under
        ``per="sequence"`` the result is ``(n,)``: nats per unit of each of n sequences. If ``per`` is a number of
        steps, values are means over the last so many, and NaN while there are fewer. Frames in which every feature is
        missing have NaN.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
            y: sequences to be scored given ``X``, one for each, for a model of y given x; None for a model of ``X``.

        Raises:
            NotFittedError: If neither ``fit`` nor ``calibrate`` was called.
        """
        data = Data.of(X, y)
        scores = [0.0 - each for each in self._scores_of_each(data, self._steps(data))]
        return np.concatenate(scores) if self.per == "sequence" else scores

    @checked
    def predict(self, X: Any, y: Any = None, *, features: bool = True) -> pd.DataFrame:
        """Return a data frame with a row that judges each step, or each sequence under ``per="sequence"``.

        Columns for steps: ``sequence``, its name or position; ``step``, from 0 (a character in text); ``time``, if
        sequences have times, missing for an end; ``value``, for symbols and text, ``"end"`` for an end; ``log_prob``,
        nats given all steps before; ``score``, ``-log p`` of the step, or its mean over the last ``per`` steps;
        ``p_value``, the share of held-out scores that are at least as high; ``is_anomaly``; ``reason``, why
        ``log_prob`` is -inf, if it is. For vectors of several features there are also, if ``features``: ``log_prob_x0``
        and so on, the log-density of each feature in raw units given the others of its step and all steps before, NaN
        where it is missing; and ``feature``, for an anomaly, the feature whose ``log_prob`` (or its mean over as many
        steps) is furthest below its mean over held-out data. Observations that cannot sum out a feature have no such
        columns. They are computed step by step; ``features=False`` is faster.

        Columns for sequences: ``sequence``, ``n_units``, ``log_prob``, ``score`` (-log p per unit), ``p_value``,
        ``is_anomaly``, and ``worst_step``, the step with the lowest ``log_prob``.

        A symbol that the model does not know, or to which it gives probability zero, has -inf, and the following steps
        are predicted as if the likeliest symbol had come instead (for vectors: a missing frame, if the model sums out
        what is missing). A frame in which every feature is missing is not judged: its ``score`` and ``p_value`` are
        NaN.

        Args:
            X: a list of ``(T, D)`` arrays, of ``str``, of 1-D integer arrays, or ``Sequences``.
            y: sequences to be judged given ``X``, one for each, for a model of y given x; None for a model of ``X``.
            features: True for the columns about single features.

        Raises:
            NotFittedError: If neither ``fit`` nor ``calibrate`` was called.
            ValueError: If the model cannot read the sequences.
        """
        import pandas as pd

        data = Data.of(X, y)
        steps = self._steps(data)
        if self.per == "sequence":
            return self._frame_of_sequences(data, steps)
        conditionals = self._features(data) if features and self._has_features() else [None] * len(steps)
        frames = [
            self._frame_of_steps(name, item, each, by_feature)
            for name, item, each, by_feature in zip(data.X.names, data.scored, steps, conditionals, strict=True)
        ]
        if data.scored.times is not None:
            for part, times in zip(frames, data.scored.times, strict=True):
                column = pd.Series(with_zone(times, data.scored.time_unit))
                part.insert(2, "time", column.reindex(range(len(part))))  # an end has none
        return pd.concat(frames, ignore_index=True)

    @checked
    def plot(self, sequence: Any, source: Any = None, *, title: str = "", ax: Sequence[Axes] | None = None) -> Panels:
        """Plot one or several sequences, each with its ``log p`` below, and mark anomalies in both.

        Args:
            sequence: one sequence, or ``Sequences``, of which only the first 6 are drawn, with their times if they have
                any.
            source: x, if the model is of y given x and ``sequence`` is y; None otherwise.
            title: name of the sequence, to which the share of flagged steps is added. With several sequences, each
                sequence's name is added too.
            ax: two axes for each sequence that is drawn, above and below; None makes a new figure of pyplot,
                ``plot(x).figure``.

        Returns:
            The axes: ``above, below = anomalies.plot(x)``, and so on for each sequence.

        Raises:
            NotFittedError: If neither ``fit`` nor ``calibrate`` was called.
            ValueError: If the model cannot read the sequences, or there are not two axes for each.
        """
        from seqmodels.plot.flagged_steps import plot_anomalies

        data = _as_data(sequence, source)
        n = len(data.X)
        drawn = data if n <= MAX_DRAWN else data.take(np.arange(n) < MAX_DRAWN)
        frame, steps = self.predict(drawn.X, drawn.y), self._steps(drawn)
        n_rows = [1 if self.per == "sequence" else len(each.log_prob) for each in steps]
        rows = np.split(np.arange(len(frame)), np.cumsum(n_rows))
        is_named = "name" in drawn.X.metadata
        names = [str(name) if is_named else f"sequence {name}" for name in drawn.X.names]
        titles = [title] if n == 1 else [f"{title}, {name}" if title else name for name in names]
        judged = [
            self._judged(drawn.scored, i, frame.iloc[rows[i]].reset_index(drop=True), steps[i], titles[i])
            for i in range(len(drawn.X))
        ]
        left_out = f"the first {MAX_DRAWN} of {n:,} sequences; pass a slice of others" if n > MAX_DRAWN else ""
        return plot_anomalies(judged, ax, left_out)

    def _judged(self, scored: Sequences, i: int, frame: pd.DataFrame, steps: _Steps, title: str) -> JudgedSequence:
        """Return what the plot shows of one sequence: its steps, their log-probabilities and which are flagged.

        Args:
            scored: the sequences.
            i: index of the sequence in them.
            frame: rows of ``predict`` for this sequence.
            steps: log-probabilities of its steps.
            title: heading, to which the share of flagged steps is added.
        """
        import pandas as pd

        from seqmodels.plot.flagged_steps import JudgedSequence
        from seqmodels.plot.style import time_label

        item, whole = scored[i], self.per == "sequence"
        names = [] if isinstance(item, str) or item.ndim == 1 else self._names_of_features(item.shape[1])
        log_prob = steps.log_prob if whole else -frame["score"].to_numpy()
        at_fault = frame.get("feature", pd.Series([""] * len(log_prob)))
        feature = np.array([names.index(name) if name else -1 for name in at_fault])
        mean = f"mean of {self.per} " if self.per not in ("step", "sequence") else ""
        return JudgedSequence(
            item,
            log_prob,
            np.resize(frame["is_anomaly"].to_numpy(), len(log_prob)),
            np.resize(feature, len(log_prob)),
            None if whole else -self.threshold_,
            names,
            f"{title}: {self._in_words(frame)}" if title else self._in_words(frame),
            f"{mean}log p, nats",
            None if scored.times is None else on_its_clock(scored.times[i], scored.time_unit),
            "" if scored.times is None else time_label(scored.time_name, scored.time_unit, scored.times[i]),
        )

    def _in_words(self, frame: pd.DataFrame) -> str:
        """Return a phrase for a title that says how much of one sequence is flagged."""
        if self.per == "sequence":
            row = frame.iloc[0]
            said = "an anomaly" if row["is_anomaly"] else "no anomaly"
            return f"{said}: {-row['score']:.3g} nats a unit, p = {row['p_value']:.2g}"
        n = int(frame["is_anomaly"].sum())
        by_chance = (1 - self.quantile) * frame["score"].notna().sum()
        return f"{n:,} of {len(frame):,} steps flagged; {by_chance:.2g} would be by chance"

    # -- keeping -------------------------------------------------------------------------------------------

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model and the threshold to one safetensors file, which ``seqmodels.load`` reads.

        It warns of classes that are not seqmodels' own, which must be passed to ``load``:
        ``load(path, classes=[MyModel])``.

        Args:
            path: name of the file.

        Raises:
            NotFittedError: If neither ``fit`` nor ``calibrate`` was called.
        """
        content = self.content()
        fitted = self.model_
        storage.warn_of_classes_to_give(
            self, fitted, fitted.encoding_, fitted._setting().source_encoding, fitted.observation_
        )
        storage.write(path, content)

    def content(self) -> dict[str, Any]:
        """Return what ``save`` writes: nested dictionaries of arrays and JSON values."""
        fitted, described = self._fitted(), storage.describe(self)
        if self.feature_names is not None:  # a list, because a file cannot hold an index of pandas
            described["params"]["feature_names"] = [str(name) for name in self.feature_names]
        return {
            "model": described,
            "fitted": fitted.content(),
            "is_calibrated": self.model is fitted,
            "scores": self.scores_,
            "threshold": np.array(self.threshold_),
            "usual_of_features": self._usual_of_features,
        }

    def _load(self, content: dict[str, Any], fitted: Any) -> Self:
        if not isinstance(fitted, SequenceModel):
            raise ValueError(f"the file holds {a_or_an(type(fitted))}, which has no likelihood, as the fitted model")
        self._check()
        scores = array_of(content, "scores", np.float64, (None,))
        threshold = array_of(content, "threshold", np.float64, ())
        if np.isnan(scores).any() or (scores[1:] < scores[:-1]).any():
            raise ValueError("'scores' in the file should rise")
        if threshold not in scores:
            raise ValueError(f"'threshold' is {threshold}, which is none of the held-out scores")
        self.model_, self.scores_, self.threshold_ = fitted, scores, float(threshold)
        self.model = fitted if content["is_calibrated"] else self.model
        self._usual_of_features = None
        if self._has_features():
            usual = array_of(content, "usual_of_features", np.float64, (fitted.encoding_.size,))
            self._usual_of_features = check_between("usual_of_features", usual, -np.inf)
        return self

    def __repr__(self) -> str:
        settings = super().__repr__()
        if not hasattr(self, "scores_"):
            return settings
        what = {"step": "step", "sequence": "sequence"}.get(str(self.per), f"mean of {self.per} steps")
        return (
            f"{settings}: a {what} is an anomaly where -log p is above {self.threshold_:.4g} nats, as of "
            f"{1 - self.quantile:.3g} of {len(self.scores_):,} held out"
        )

    # -- inside --------------------------------------------------------------------------------------------

    def _fitted(self) -> SequenceModel:
        if not hasattr(self, "model_"):
            raise NotFittedError("these Anomalies have no threshold; call fit, or calibrate if the model is fitted")
        return self.model_

    def _steps(self, data: Data) -> list[_Steps]:
        return _step_log_probs(self._fitted(), data)

    def _scores_of_each(self, data: Data, steps: list[_Steps]) -> list[np.ndarray]:
        return [self._scores(each, int(n)) for each, n in zip(steps, data.scored.n_units, strict=True)]

    def _scores(self, steps: _Steps, n_units: int) -> np.ndarray:
        """Return the scores ``-log p`` of the steps of one sequence, ``(T,)``, or of the whole sequence, ``(1,)``.

        A score is NaN if nothing can be judged.

        Args:
            steps: log-probabilities of the T steps.
            n_units: number of units of the sequence, over which ``-log p`` of a whole sequence is averaged.
        """
        if self.per == "sequence":
            n_units -= int(steps.is_missing.sum())
            return np.array([0.0 - steps.log_prob.sum() / n_units if n_units else np.nan])
        log_prob = np.where(steps.is_missing, np.nan, steps.log_prob)
        if self.per == "step":
            return np.asarray(0.0 - log_prob)
        assert not isinstance(self.per, str)
        scores = np.full(len(log_prob), np.nan)
        if len(log_prob) >= self.per:
            windows = np.lib.stride_tricks.sliding_window_view(log_prob, self.per)
            scores[self.per - 1 :] = -windows.mean(1)
        return scores

    def _p_values(self, scores: np.ndarray) -> np.ndarray:
        n = len(self.scores_)
        p_values = (1 + n - np.searchsorted(self.scores_, scores, side="left")) / (n + 1)
        return np.where(np.isnan(scores), np.nan, p_values)

    def _frame_of_sequences(self, data: Data, steps: list[_Steps]) -> pd.DataFrame:
        import pandas as pd

        scores = np.concatenate(self._scores_of_each(data, steps))
        return pd.DataFrame(
            {
                "sequence": data.X.names,
                "n_units": data.scored.n_units,
                "log_prob": [each.log_prob.sum() for each in steps],
                "score": scores,
                "p_value": self._p_values(scores),
                "is_anomaly": scores > self.threshold_,
                "worst_step": [int(np.argmin(each.log_prob)) for each in steps],
            }
        )

    def _frame_of_steps(self, name: Any, item: Item, steps: _Steps, features: np.ndarray | None) -> pd.DataFrame:
        import pandas as pd

        scores = self._scores(steps, len(steps.log_prob))
        columns: dict[str, Any] = {"sequence": name, "step": np.arange(len(scores))}
        if isinstance(item, str) or item.ndim == 1:
            values: list[Any] = list(item) if isinstance(item, str) else item.tolist()
            columns["value"] = values + [END] * (len(scores) - len(values))
        is_anomaly = scores > self.threshold_
        columns |= {
            "log_prob": steps.log_prob,
            "score": scores,
            "p_value": self._p_values(scores),
            "is_anomaly": is_anomaly,
            "reason": [steps.reasons.get(t, "") for t in range(len(scores))],
        }
        if features is not None:
            names = self._names_of_features(features.shape[1])
            rest = np.full((len(scores) - len(features), features.shape[1]), np.nan)
            by_feature = np.concatenate([features, rest])
            columns |= {f"log_prob_{feature}": by_feature[:, d] for d, feature in enumerate(names)}
            columns["feature"] = [names[d] if d >= 0 else "" for d in self._least_usual(by_feature, is_anomaly)]
        return pd.DataFrame(columns)

    # -- features ------------------------------------------------------------------------------------------

    def _has_features(self) -> bool:
        model = self._fitted()
        size = model.encoding_.size
        return model.encoding_.reads == "vectors" and size > 1 and model.observation_.has_full_conditionals(size)

    def _names_of_features(self, size: int) -> list[str]:
        names = self.feature_names
        if names is None:
            names = getattr(self._fitted(), "feature_names_in_", [f"x{d}" for d in range(size)])
        if len(names) != size:
            raise ValueError(f"there are {len(names)} feature_names but {size} features; pass one each")
        return list(names)

    def _features(self, data: Data) -> list[np.ndarray]:
        return feature_log_probs(self._fitted(), data.X, data.y)

    def _usual(self, data: Data) -> np.ndarray:
        """Return the mean log-probability of each feature over a sample of held-out steps, ``(D,)``."""
        data = replace(data, X=data.X.with_past_of(WARM_UP)) if data.y is None else data
        order = np.random.default_rng(self.random_state).permutation(len(data.X))
        lengths = data.scored.n_units[order]
        mask = np.zeros(len(order), dtype=bool)
        mask[order[np.cumsum(lengths) - lengths < FEATURE_STEPS]] = True
        values = np.concatenate(self._features(data.take(mask)))
        values = np.where(np.isfinite(values), values, np.nan)
        seen = ~np.isnan(values).all(0)
        usual = np.zeros(values.shape[1])
        usual[seen] = np.nanmean(values[:, seen], 0)
        return usual

    def _least_usual(self, features: np.ndarray, is_anomaly: np.ndarray) -> list[int]:
        """Return, for each step, the feature furthest below its mean log-probability if it is an anomaly, else -1.

        Args:
            features: log-probability of each of D features, ``(T, D)``.
            is_anomaly: mask of the steps, ``(T,)``.
        """
        below = np.where(np.isnan(features), -np.inf, self._usual_of_features - features)
        if not isinstance(self.per, str) and len(below) >= self.per:
            windows = np.lib.stride_tricks.sliding_window_view(below, self.per, axis=0)  # (T - per + 1, D, per)
            below = np.concatenate([below[: self.per - 1], windows.mean(-1)])
        return [
            int(np.argmax(row)) if flagged and row.max() > -np.inf else -1
            for row, flagged in zip(below, is_anomaly, strict=True)
        ]


def _as_data(sequence: Any, source: Any) -> Data:
    """Convert what a user wants to plot to ``Data``: ``Sequences``, a list of ``(T, D)`` arrays, or one sequence.

    ``source`` has the sources of a conditional model; None means that there are none.
    """

    def several(x: Any) -> Any:
        are_several = isinstance(x, Sequences) or (isinstance(x, list | tuple) and len(x) and np.ndim(x[0]) == 2)
        return x if are_several else [x]

    return Data.of(several(sequence)) if source is None else Data.of(several(source), several(sequence))


def _rank(n: int, quantile: float) -> int:
    """Return k such that a score above the k-th largest of n has a p-value of at most ``1 - quantile``."""
    return math.floor((n + 1) * (1 - quantile) + 1e-9)


def _hold_out(data: Data, fraction: float, random_state: int) -> tuple[Data, Data]:
    """Split data into a training part and a held-out part with about ``fraction`` of them.

    The parts consist of whole clusters if there are any, else of whole sequences; a single sequence is split into head
    and tail. ``random_state`` is the seed of the choice.

    Raises:
        ValueError: If nothing can be held out.
    """
    if len(data.X) == 1:
        if data.y is not None:
            raise ValueError("there is one pair of sequences, so none can be held out; pass several, or calibrate")
        head, tail = data.X.split(fraction)
        return Data.of(head), Data.of(tail)
    clusters = cluster_numbers(data)
    groups = np.arange(len(data.X)) if clusters is None else clusters
    n = int(groups.max()) + 1
    if n < 2:
        raise ValueError("all sequences are of one cluster, so none can be held out; pass several, or calibrate")
    n_held_out = min(max(1, round(fraction * n)), n - 1)
    mask = np.isin(groups, np.random.default_rng(random_state).permutation(n)[:n_held_out])
    return data.take(~mask), data.take(mask)


# -- log-probabilities of steps -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Steps:
    """Log-probabilities of the T steps of one sequence.

    Attributes:
        log_prob: log-probability of each step in nats, ``(T,)``.
        is_missing: True for frames in which every feature is missing, ``(T,)``.
        reasons: why a step is -inf, in words, by its position.
    """

    log_prob: np.ndarray
    is_missing: np.ndarray
    reasons: dict[int, str]


def _step_log_probs(model: SequenceModel, data: Data) -> list[_Steps]:
    """Compute log p of each step of each sequence, so that one impossible step does not affect later ones.

    The steps after an impossible step or unknown symbol are predicted as if another one had come in its place; under
    ``log_prob_steps`` they would have no probability.
    """
    encoding = model.encoding_
    has_symbols = data.scored.kind == encoding.reads == "symbols"
    unknown = [encoding.unknown(item) if has_symbols else np.empty(0, np.int64) for item in data.scored]
    known, past = data.scored, data.scored.past or [None] * len(data.scored)
    unknown_past = [encoding.unknown(x) if has_symbols and x is not None else np.empty(0, np.int64) for x in past]
    if any(len(positions) for positions in (*unknown, *unknown_past)):
        items = [_with(item, positions, encoding) for item, positions in zip(data.scored, unknown, strict=True)]
        past = [x if x is None else _with(x, at, encoding) for x, at in zip(past, unknown_past, strict=True)]
        known = data.scored.with_items(items, past=past)
    X, y = (known, None) if data.y is None else (data.X, known)
    each = model.log_prob_steps(X, y)
    n_unknown = [len(positions) + len(before) for positions, before in zip(unknown, unknown_past, strict=True)]
    doubtful = [i for i, steps in enumerate(each) if n_unknown[i] or np.isneginf(steps).any()]
    reasons: list[dict[int, str]] = [{} for _ in each]
    if doubtful:
        mask = np.isin(np.arange(len(each)), doubtful)
        examples = model._setting().examples(Data.of(X, y).take(mask))
        for i, example in zip(doubtful, examples, strict=True):
            n_past, skipped = example.n_past, np.concatenate([unknown_past[i], example.n_past + unknown[i]])
            steps, impossible = _steps_past_zeros(model, example, skipped)
            each[i] = model._setting().in_raw_units(known[i], steps[n_past:], past[i])
            last_unit = encoding.last_unit(example.values[n_past:])
            for t in (t - n_past for t in impossible if t >= n_past):
                at = int(last_unit[t]) if t < len(last_unit) else len(each[i]) - 1
                reasons[i][at] = f"unknown symbol {data.scored[i][t]}" if t in unknown[i] else "impossible"
    return [_steps_of(item, steps, said) for item, steps, said in zip(data.scored, each, reasons, strict=True)]


def _with(item: Item, positions: np.ndarray, encoding: Encoding) -> Item:
    """Return a copy of a sequence of symbols with a symbol known to ``encoding`` at ``positions``, ``(m,)``."""
    if not len(positions):
        return item
    changed = np.array(item)
    changed[positions] = encoding.decode(np.zeros(1, dtype=np.int64))[0]
    return changed


@torch.inference_mode()
def _steps_past_zeros(model: SequenceModel, example: Example, unknown: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Return ``log p`` of encoded steps (and of the end), ``(T,)``, and the positions of impossible ones, with -inf.

    An impossible step is replaced by another before the following steps are predicted.

    Args:
        model: the fitted model.
        example: the encoded sequence.
        unknown: positions of symbols that the model does not know, which count as impossible.
    """
    cursor = with_inputs(with_enough_precision(model, example.values, example.source).cursor(), example.inputs)
    state = cursor.start(example.source)
    steps, impossible, skipped = [], [], set(unknown.tolist())
    for t, value in enumerate(example.values):
        x = torch.as_tensor(value).unsqueeze(0)
        prediction = cursor.distribution(state)
        log_prob = -math.inf if t in skipped else float(prediction.log_prob(x.to(prediction.output_parameters.device)))
        if log_prob == -math.inf:
            impossible.append(t)
            x = _replacement(model, prediction, x)
        steps.append(log_prob)
        state = cursor.advance(state, x)
    if model.length_ == "stop":
        log_end = cursor.distribution(state).log_end
        assert log_end is not None, "ends are events"
        steps.append(float(log_end))
        impossible += [len(steps) - 1] if steps[-1] == -math.inf else []
    return np.array(steps), impossible


def _replacement(model: SequenceModel, prediction: Prediction, x: torch.Tensor) -> torch.Tensor:
    """Return the step that a model should read in place of an impossible step ``x``, given its ``prediction``.

    It is the likeliest symbol; for vectors a missing frame if the model can read that, else ``x`` itself.
    """
    if prediction.observation.emits == "symbols":
        return prediction.log_probs(with_end=False).argmax(-1)
    can_be_missing = model._sums_out_missing and prediction.observation.sums_out_missing
    return torch.full_like(x, torch.nan) if can_be_missing else x


def _steps_of(item: Item, steps: np.ndarray, reasons: dict[int, str]) -> _Steps:
    """Return the log-probabilities of the steps of one sequence from those of its units (for text, bytes).

    Those of text are summed over the bytes of each character, which is a step.

    Args:
        item: the raw sequence.
        steps: log-probability of each unit in nats, and of the end if it is an event.
        reasons: why units have -inf, in words, by position.
    """
    if not isinstance(item, str):
        is_missing = np.zeros(len(steps), dtype=bool)
        if item.ndim == 2:
            is_missing[: len(item)] = np.isnan(np.asarray(item)).all(1)
        return _Steps(steps, is_missing, reasons)
    n_bytes = np.array([len(character.encode()) for character in item])
    character_of = np.repeat(np.arange(len(item)), n_bytes)
    character_of = np.concatenate([character_of, np.full(len(steps) - len(character_of), len(item))])
    summed = np.zeros(int(character_of[-1]) + 1)
    np.add.at(summed, character_of, steps)
    return _Steps(
        summed, np.zeros(len(summed), dtype=bool), {int(character_of[t]): reason for t, reason in reasons.items()}
    )
