"""Where in a sequence models differ, and how they learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqmodels.evaluation.report.html import Section, number, picture

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison import Comparison

EARLY = 5  # first steps of a sequence, against the rest, in words
ENOUGH = 20  # sequences, below which positions are not averaged over enough content to say anything in words


def position(comparison: Comparison) -> Section | None:
    """Who profits from context."""
    if int(comparison.test.n_units.max()) < 2:
        return None
    said, unit = _said(comparison), comparison.measure.unit
    alt = f"Mean nats per {unit} of each model against position in the sequence. {said}"
    return Section("position", "Likelihood by position", picture(comparison.plot_by_position(), alt, said))


def _said(comparison: Comparison) -> str:
    """Differences to the baseline: what stands where in the sequences is then the same on both sides."""
    if len(comparison.test) < ENOUGH:
        return (
            "Bumps are what happens to stand there, for there are few sequences: compare the lines, not the positions."
        )
    base, unit = comparison.baseline, comparison.measure.unit
    leads = [
        f"{name} {number(early, '+.2f')}, later {number(late, '+.2f')}"
        for name, steps in comparison.log_prob_steps.items()
        if name != base
        for early, late in [_leads(steps, comparison.log_prob_steps[base])]
    ]
    words = f"Nats by which models lead {base} in the first {EARLY} {unit}s, and later: {'; '.join(leads)}."
    return f"Who gains with position profits more from what came before. {words if leads else ''}"


def _leads(steps: list[np.ndarray], base: list[np.ndarray]) -> tuple[float, float]:
    with np.errstate(invalid="ignore"):  # both of them impossible
        differences = [ours - theirs for ours, theirs in zip(steps, base, strict=True)]
    early, late = (np.concatenate([d[part] for d in differences]) for part in (slice(EARLY), slice(EARLY, None)))
    return _mean(early), _mean(late)


def _mean(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")


def learning(comparison: Comparison) -> Section | None:
    """How each model got where it is."""
    curves = {name: h for name, h in comparison.histories.items() if len(h) > 1}
    if not curves:
        return None
    unit = comparison.measure.unit
    ends = "; ".join(
        f"{name} ends at {number(h['log_prob'].dropna().iloc[-1], '.2f')} in training after {h['seconds'].iloc[-1]:.0f} s"
        for name, h in curves.items()
        if h["log_prob"].notna().any()
    )
    alt = f"Nats per {unit} against seconds of fitting: {ends}"
    caption = "A curve that still rises at its end would have gained by a larger budget."
    return Section("learning", "Learning curves", picture(comparison.plot_learning_curves(), alt, caption))
