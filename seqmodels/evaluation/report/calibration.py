"""The calibration of the models: do steps of predicted probability p occur in a share p of the cases?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seqmodels.evaluation.calibration import histogram, pit, reliability
from seqmodels.evaluation.report.data import pair_of
from seqmodels.evaluation.report.html import Section, paragraph, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from seqmodels.evaluation.comparison import Comparison


def section(comparison: Comparison) -> Section | None:
    """Reliability of symbols, or the probability integral transform of vectors, on a sample of test steps."""
    plot = calibration_plot(comparison)
    if plot is None:
        return None
    errors = "; ".join(f"{name} {error:.3f}" for name, error in plot.errors.items())
    alt = f"{plot.caption} Errors: {errors}"
    return Section("calibration", "Calibration", paragraph(plot.description) + picture(plot.figure, alt, plot.caption))


@dataclass(frozen=True)
class CalibrationPlot:
    """A figure, what was measured, how to read it, and each model's calibration error."""

    figure: Figure
    description: str
    caption: str
    errors: dict[str, float]


def calibration_plot(comparison: Comparison) -> CalibrationPlot | None:
    """None where the calibration of no model can be measured."""
    data = pair_of(comparison)
    if data is None:
        return None
    return _vectors(comparison, *data) if comparison.test.kind == "vectors" else _symbols(comparison, *data)


def _symbols(comparison: Comparison, X: Any, y: Any) -> CalibrationPlot:
    from seqmodels.evaluation.plots.calibration import reliability_diagram

    measured = {name: reliability(model, X, y) for name, model in comparison.models.items()}
    errors = {name: each.error for name, each in measured.items()}
    figure = reliability_diagram({name: each.table for name, each in measured.items()}, errors)
    caption = "On the diagonal a model means what it says; the calibration error is in brackets."
    chance = [each.by_chance for each in measured.values()]
    steps = max(each.n_steps for each in measured.values())
    description = (
        f"On {steps:,} test steps: of all the symbols that a model gave a probability of about p, what share came? The "
        "calibration error adds up, over bins of p, by how many per step the symbols that came differ from those "
        f"expected. For models that were right it would be {min(chance):.3f} to {max(chance):.3f}, by chance alone."
    )
    return CalibrationPlot(figure, description, caption, errors)


def _vectors(comparison: Comparison, X: Any, y: Any) -> CalibrationPlot | None:
    from seqmodels.evaluation.plots.calibration import transform_histograms

    models = {n: m for n, m in comparison.models.items() if set(m.observation_.values(m.encoding_.size)) == {"reals"}}
    if not models:
        return None
    transforms = {name: pit(model, X, y) for name, model in models.items()}
    histograms = {name: histogram(values) for name, values in transforms.items()}
    errors = {name: error for name, (_, error) in histograms.items()}
    figure = transform_histograms({name: heights for name, (heights, _) in histograms.items()}, errors)
    n = max(len(values) for values in transforms.values())
    description = (
        f"Where did each feature of {n:,} test frames fall in what the model said of it, given the past (the "
        "probability integral transform)? For a model that is right, anywhere between 0 and 1 equally often."
    )
    caption = (
        "A flat histogram: calibrated. In brackets the share of all values that would have to move to make it flat."
    )
    return CalibrationPlot(figure, description, caption, errors)
