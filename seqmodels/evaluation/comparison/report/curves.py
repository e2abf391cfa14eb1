"""The report's sections of one plot each: likelihood by position, calibration, learning curves, code lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqmodels.common.html import element
from seqmodels.evaluation.comparison.calibration import calibration_plot
from seqmodels.evaluation.comparison.report.data import pair_of
from seqmodels.evaluation.comparison.report.elements import Section, number, picture, together
from seqmodels.plot.curves import by_position
from seqmodels.plot.prequential import code_lengths_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from seqmodels.evaluation.comparison.comparison_data import ComparisonData

N_FIRST_STEPS = 5  # first steps of a sequence that are compared with the rest in words
MIN_SEQUENCES = 20  # with fewer sequences, positions are not averaged over enough content to say anything in words


def position(comparison: ComparisonData) -> Section | None:
    """Return the report's section that plots nats per unit against position, to show how models profit from context.

    Return None if every test sequence has a single unit.
    """
    if int(comparison.test.n_units.max()) < 2:
        return None
    caption = _position_in_words(comparison)
    alt = f"Mean nats per {comparison.measure.unit} of each model against position in the sequence. {caption}"

    def draw(width: float) -> Figure:
        return by_position(comparison.log_prob_steps, unit=comparison.measure.unit, width=width)

    return Section("position", "Likelihood by position", picture(draw, alt, caption))


def _position_in_words(comparison: ComparisonData) -> str:
    """Return sentences on how many nats per unit each model leads the baseline by in the first steps, and later.

    The first steps are ``N_FIRST_STEPS`` of each sequence. With fewer than ``MIN_SEQUENCES`` sequences the text only
    says that positions cannot be compared.
    """
    if len(comparison.test) < MIN_SEQUENCES:
        return (
            "Bumps are what happens to stand there, for there are few sequences: compare the lines, not the positions."
        )
    base = comparison.baseline
    unit = comparison.measure.unit
    leads = [
        f"{name} {number(early, '+.2f')}, later {number(late, '+.2f')}"
        for name, steps in comparison.log_prob_steps.items()
        if name != base
        for early, late in [_leads(steps, comparison.log_prob_steps[base])]
    ]
    words = f"Nats by which models lead {base} in the first {N_FIRST_STEPS} {unit}s, and later: {'; '.join(leads)}."
    return f"Who gains with position profits more from what came before. {words if leads else ''}"


def _leads(steps: list[np.ndarray], base: list[np.ndarray]) -> tuple[float, float]:
    with np.errstate(invalid="ignore"):  # -inf minus -inf, if a step is impossible under both models
        differences = [of_model - of_base for of_model, of_base in zip(steps, base, strict=True)]
    early = np.concatenate([d[:N_FIRST_STEPS] for d in differences])
    late = np.concatenate([d[N_FIRST_STEPS:] for d in differences])
    return _mean(early), _mean(late)


def _mean(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")


def calibration(comparison: ComparisonData) -> Section | None:
    """Return the report's section on calibration on a sample of test steps, or None if no model can be measured."""
    data = pair_of(comparison)
    plot = None if data is None else calibration_plot(comparison.models, *data)
    if plot is None:
        return None
    errors = "; ".join(f"{name} {error:.3f}" for name, error in plot.errors.items())
    alt = f"{plot.caption} Errors: {errors}"
    body = together(element("paragraph", plot.description), picture(plot.draw, alt, plot.caption))
    return Section("calibration", "Calibration", body)


def learning(comparison: ComparisonData) -> Section | None:
    """Return the report's section on nats per unit against seconds of fitting.

    Return None if no model has a training history of several steps.
    """
    curves = {name: h for name, h in comparison.histories.items() if len(h) > 1}
    if not curves:
        return None
    unit = comparison.measure.unit
    ends = []
    for name, history in curves.items():
        if history["log_prob"].notna().any():
            last = number(history["log_prob"].dropna().iloc[-1], ".2f")
            ends.append(f"{name} ends at {last} in training after {history['seconds'].iloc[-1]:.0f} s")
    alt = f"Nats per {unit} against seconds of fitting: {'; '.join(ends)}"
    caption = "A curve that still rises at its end would have gained by a larger budget."

    def draw(width: float) -> Figure:
        return comparison.curves_figure(width=width, title="")

    return Section("learning", "Learning curves", picture(draw, alt, caption))


def code_lengths(comparison: ComparisonData) -> Section | None:
    """Return the report's section on prequential code lengths of the training part; None if there are none."""
    codes = comparison.code_lengths
    if codes is None:
        return None
    unit = codes.unit
    rows = zip(codes.frame["model"], codes.frame["nats_per_unit"], strict=True)
    totals = "; ".join(f"{name} {number(nats, '.3f')}" for name, nats in rows)
    words = (
        "The training part, coded from nothing: each block costs its log-probability under the model fitted to all "
        "blocks before it, so that parameters cost what it takes to learn them. The shortest code is of the model that "
        f"learns these data best from few and from many of them alike. Nats per {unit} in all: {totals}."
    )
    caption = "A line that falls further learns more from more data. A ring: a block that the reference coded alone."

    def draw(width: float) -> Figure:
        return code_lengths_figure(codes, width=width)

    alt = f"Nats per {unit} of each block against the {unit}s before it. {totals}"
    body = together(element("paragraph", words), picture(draw, alt, caption))
    return Section("code-lengths", "Code lengths, from nothing", body)
