"""Whether the models mean what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seqmodels.evaluation.calibration import Reliability, histogram, pit, reliability
from seqmodels.evaluation.report.data import pair_of
from seqmodels.evaluation.report.html import Section, paragraph, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from seqmodels.evaluation.comparison import Comparison


def section(comparison: Comparison) -> Section | None:
    """Reliability of symbols, or the probability integral transform of vectors, on a sample of test steps."""
    drawn = calibrated(comparison)
    if drawn is None:
        return None
    figure, words, caption, errors = drawn
    said = "; ".join(f"{name} {error:.3f}" for name, error in errors.items())
    return Section(
        "calibration", "Calibration", paragraph(words) + picture(figure, f"{caption} Errors: {said}", caption)
    )


def calibrated(comparison: Comparison) -> tuple[Figure, str, str, dict[str, float]] | None:
    """The picture, what was done, how to read it, and each model's error; None where no model can be judged."""
    data = pair_of(comparison)
    if data is None:
        return None
    return _vectors(comparison, *data) if comparison.test.kind == "vectors" else _symbols(comparison, *data)


def _symbols(comparison: Comparison, X: Any, y: Any) -> tuple[Figure, str, str, dict[str, float]]:
    from seqmodels.evaluation.plots import reliability_diagram  # lazily: matplotlib is slow to import

    found = {name: reliability(model, X, y) for name, model in comparison.models.items()}
    errors = {name: each.error for name, each in found.items()}
    figure = reliability_diagram({name: each.table for name, each in found.items()}, errors)
    caption = "On the diagonal a model means what it says; the calibration error is in brackets."
    return figure, _how_reliable(found), caption, errors


def _how_reliable(found: dict[str, Reliability]) -> str:
    chance = [each.by_chance for each in found.values()]
    steps = max(each.n_steps for each in found.values())
    return (
        f"On {steps:,} test steps: of all the symbols that a model gave a probability of about p, what share came? The calibration "
        "error adds up, over bins of p, by how many per step the symbols that came differ from those expected. For models that "
        f"were right it would be {min(chance):.3f} to {max(chance):.3f}, by chance alone."
    )


def _vectors(comparison: Comparison, X: Any, y: Any) -> tuple[Figure, str, str, dict[str, float]] | None:
    from seqmodels.evaluation.plots import transform_histograms  # lazily: matplotlib is slow to import

    real = {n: m for n, m in comparison.models.items() if set(m.observation_.values(m.encoding_.size)) == {"reals"}}
    if not real:
        return None
    transforms = {name: pit(model, X, y) for name, model in real.items()}
    found = {name: histogram(values) for name, values in transforms.items()}
    errors = {name: error for name, (_, error) in found.items()}
    figure = transform_histograms({name: height for name, (height, _) in found.items()}, errors)
    n = max(len(values) for values in transforms.values())
    words = (
        f"Where did each feature of {n:,} test frames fall in what the model said of it, given the past (the probability integral "
        "transform)? For a model that is right, anywhere between 0 and 1 equally often."
    )
    caption = (
        "A flat histogram: calibrated. In brackets the share of all values that would have to move to make it flat."
    )
    return figure, words, caption, errors
