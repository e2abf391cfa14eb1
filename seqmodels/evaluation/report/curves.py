"""Where in a sequence models differ, and how they learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from seqmodels.evaluation.report.html import Section, picture

if TYPE_CHECKING:
    from seqmodels.evaluation.comparison import Comparison

EARLY = 5  # first steps of a sequence, against the rest, in words


def position(comparison: Comparison) -> Section | None:
    """Who profits from context."""
    if max(int(n) for n in comparison.test.n_units) < 2:
        return None
    unit, steps = comparison.measure.unit, comparison.log_prob_steps
    gains = {name: _gain(sequences) for name, sequences in steps.items()}
    said = "; ".join(f"{name} {gain:+.2f}" for name, gain in gains.items() if np.isfinite(gain))
    alt = f"Mean nats per {unit} of each model against position in the sequence. Later steps minus the first {EARLY}: {said}"
    caption = f"A model that profits from what came before rises with position. Gain of later {unit}s over the first {EARLY}: {said} nats."
    return Section("position", "Likelihood by position", picture(comparison.plot_by_position(), alt, caption))


def _gain(sequences: list[np.ndarray]) -> float:
    early = np.concatenate([s[:EARLY] for s in sequences])
    late = np.concatenate([s[EARLY:] for s in sequences])
    early, late = early[np.isfinite(early)], late[np.isfinite(late)]
    return float(late.mean() - early.mean()) if len(early) and len(late) else float("nan")


def learning(comparison: Comparison) -> Section | None:
    """How each model got where it is."""
    curves = {name: h for name, h in comparison.histories.items() if len(h) > 1}
    if not curves:
        return None
    unit = comparison.measure.unit
    ends = "; ".join(
        f"{name} ends at {h['log_prob'].dropna().iloc[-1]:.2f} in training after {h['seconds'].iloc[-1]:.0f} s"
        for name, h in curves.items()
        if h["log_prob"].notna().any()
    )
    alt = f"Nats per {unit} against seconds of fitting: {ends}"
    caption = "A curve that still rises at its end would have gained by a larger budget."
    return Section("learning", "Learning curves", picture(comparison.plot_learning_curves(), alt, caption))
