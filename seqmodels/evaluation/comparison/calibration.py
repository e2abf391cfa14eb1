"""Measure and plot the calibration of the models of a comparison, on a sample of the test steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seqmodels.evaluation.calibration import Reliability, histogram, pit, reliability
from seqmodels.generation.predicted_features import WITH_DENSITY
from seqmodels.model import SequenceModel
from seqmodels.plot.calibration import draw_reliability, draw_transforms, reliability_diagram, transform_histograms
from seqmodels.plot.style import axes_or_new, in_style, note_in_label
from seqmodels.sequences import Sequences


@dataclass(frozen=True)
class CalibrationPlot:
    """A plot of the calibration of several models, with its description.

    Attributes:
        draw: function that draws the figure in a given width in inches.
        description: paragraph that says what was measured.
        caption: sentence that says how to read the plot.
        errors: calibration error of each model; 0 is best.
    """

    draw: Callable[[float], Figure]
    description: str
    caption: str
    errors: dict[str, float]


def calibration_plot(
    models: Mapping[str, SequenceModel], X: Sequences, y: Sequences | None = None
) -> CalibrationPlot | None:
    """Measure the calibration of the models on a sample of held-out steps and return a plot of it.

    For symbols it is whether events of predicted probability p occur in a share p of the cases; for vectors whether the
    predicted cumulative probabilities of what came (probability integral transforms) are uniform.

    Args:
        models: fitted models by name.
        X, y: held-out sequences, and targets for p(y | x).

    Returns:
        The plot; None if no model can be measured, because the data are bits or counts or the models do not predict
        steps.
    """
    scored = X if y is None else y
    return _plot_of_vectors(models, X, y) if scored.kind == "vectors" else _plot_of_symbols(models, X, y)


def calibration_axes(
    ax: Axes | None, models: Mapping[str, SequenceModel], X: Sequences, y: Sequences | None = None
) -> Axes | None:
    """Draw the calibration of several models, measured on a sample of held-out steps.

    Args:
        ax: axes to draw on; None makes a new pyplot figure.
        models: fitted models by name.
        X, y: held-out sequences, and targets for p(y | x).

    Returns:
        The axes, or None if no model can be measured.
    """
    if (X if y is None else y).kind != "vectors":
        measured = _reliabilities(models, X, y)
        if not measured:
            return None
        tables = {name: each.table for name, each in measured.items()}
        with in_style():
            axes = axes_or_new(ax, max(4.2, 1.0 + 0.2 * len(tables)))
            note_in_label(axes, draw_reliability(axes, tables, {name: each.error for name, each in measured.items()}))
        return axes
    histograms = {name: histogram(values) for name, values in _transforms(models, X, y).items()}
    if not histograms:
        return None
    heights = {name: heights_of_bins for name, (heights_of_bins, _) in histograms.items()}
    errors = {name: error for name, (_, error) in histograms.items()}
    with in_style():
        axes = axes_or_new(ax, max(3.2, 1.0 + 0.2 * len(heights)))
        note_in_label(axes, draw_transforms(axes, heights, errors))
    return axes


def _reliabilities(models: Mapping[str, SequenceModel], X: Sequences, y: Sequences | None) -> dict[str, Reliability]:
    return {name: reliability(model, X, y) for name, model in models.items() if model._predicts_steps}


def _transforms(models: Mapping[str, SequenceModel], X: Sequences, y: Sequences | None) -> dict[str, np.ndarray]:
    """Return the probability integral transforms of each model with known cdfs, ``(n, D)``, by the model's name.

    They are the predicted cumulative probabilities of D features at n held-out steps. Models of bits, counts and values
    rounded to a grid are left out, because their cdfs have steps.

    Args:
        models: fitted models by name.
        X, y: held-out sequences, and targets for p(y | x).
    """
    return {name: pit(model, X, y) for name, model in models.items() if _has_cdfs(model)}


def _has_cdfs(model: SequenceModel) -> bool:
    observation = model.observation_
    has_cdfs = observation.emits == "vectors" and observation.has_marginal_cdfs
    return has_cdfs and set(observation.values(model.encoding_.size)) <= WITH_DENSITY


def _plot_of_symbols(models: Mapping[str, SequenceModel], X: Sequences, y: Sequences | None) -> CalibrationPlot | None:
    measured = _reliabilities(models, X, y)
    if not measured:
        return None
    errors = {name: each.error for name, each in measured.items()}
    tables = {name: each.table for name, each in measured.items()}
    caption = "On the diagonal predicted and observed frequencies agree; the calibration error is in brackets."
    chance = [each.by_chance for each in measured.values()]
    steps = max(each.n_steps for each in measured.values())
    description = (
        f"On {steps:,} test steps: of all the symbols that a model gave a probability of about p, what share came? The "
        "calibration error adds up, over bins of p, by how many per step the symbols that came differ from those "
        f"expected. For models that were right it would be {min(chance):.3f} to {max(chance):.3f}, by chance alone."
    )
    return CalibrationPlot(lambda w: reliability_diagram(tables, errors, width=w), description, caption, errors)


def _plot_of_vectors(models: Mapping[str, SequenceModel], X: Sequences, y: Sequences | None) -> CalibrationPlot | None:
    transforms = _transforms(models, X, y)
    if not transforms:
        return None
    histograms = {name: histogram(values) for name, values in transforms.items()}
    errors = {name: error for name, (_, error) in histograms.items()}
    heights = {name: of_bins for name, (of_bins, _) in histograms.items()}
    n = max(len(values) for values in transforms.values())
    description = (
        f"Where did each feature of {n:,} test frames fall in what the model said of it, given the past (the "
        "probability integral transform)? For a model that is right, anywhere between 0 and 1 equally often."
    )
    caption = (
        "A flat histogram: calibrated. In brackets the share of all values that would have to move to make it flat."
    )
    return CalibrationPlot(lambda w: transform_histograms(heights, errors, width=w), description, caption, errors)
