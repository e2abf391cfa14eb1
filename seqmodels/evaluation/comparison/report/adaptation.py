"""The report's section on adaptation: static and adaptive models, each within its kind, and the gain by position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from seqmodels.common.html import element
from seqmodels.evaluation.comparison.adaptation import counterparts
from seqmodels.evaluation.comparison.formatted_table import is_any_adaptive, p_in_words
from seqmodels.evaluation.comparison.report.elements import Section, number, picture, table, together
from seqmodels.evaluation.comparison.report.ranking import lead_over
from seqmodels.plot.adaptation_gain import gains_by_position

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from seqmodels.evaluation.comparison.comparison_data import ComparisonData


def section(comparison: ComparisonData) -> Section | None:
    """Return the report's section on what adaptation gained.

    An adaptive model goes on learning within a sequence. Return None unless one with a rank stands beside a static
    model.
    """
    if not is_any_adaptive(comparison.frame):
        return None
    others = counterparts(comparison.frame, comparison.models)
    if not others:
        return None
    unit = comparison.measure.unit
    gains = {name: comparison.gain_by_position(name, other) for name, other in others.items()}
    by_position = _gains_table(gains, others)
    words = (
        "A static model has the parameters of its fit throughout; an adaptive one goes on learning within a sequence "
        "from what it has read of it. Within each kind models are compared to the best of that kind, and each adaptive "
        "model to its static counterpart: the best of the models that it is made of, or else the best static one."
    )

    def draw(width: float) -> Figure:
        return gains_by_position(gains, others, unit=unit, width=width)

    leads = "; ".join(f"{name}: {_lead_in_words(comparison, name, other)}" for name, other in others.items())
    body = together(
        element("paragraph", words),
        table(within_kinds(comparison), "Static and adaptive models, each within its kind"),
        element("paragraph", f"Gain of adaptation, nats per {unit}: {leads}."),
        picture(draw, f"Gain of adaptive models against position. {leads}", "Gain per step, by octaves of position."),
        element("details", "The gain by position", table(by_position, "Gain of adaptation by position")),
    )
    return Section("adaptation", "What adaptation gained", body)


def within_kinds(comparison: ComparisonData) -> pd.DataFrame:
    """Rank static models among themselves and adaptive models among themselves; return one frame of texts.

    An adaptive model goes on learning within a sequence. The columns are ``memory`` (static or adaptive), ``rank``
    within the kind, ``model``, ``score``, and ``difference`` to the best model of the kind with its interval and
    p-value.
    """
    frame = comparison.frame
    memory, scores = (dict(zip(frame["model"], frame[column], strict=True)) for column in ("memory", "score"))
    rows = []
    for kind in ("static", "adaptive"):
        names = [name for name in comparison.ranked if memory[name] == kind]
        for rank, name in enumerate(names, 1):
            row = {"memory": kind, "rank": str(rank), "model": name, "score": number(scores[name], ".4f")}
            rows.append(row | {"difference": "(best)", "95 % interval": "", "p": ""})
            if rank > 1:
                lead = lead_over(comparison, name, names[0])
                rows[-1] |= {"difference": number(lead.difference, "+.4f"), "p": p_in_words(lead.p_value)}
                rows[-1]["95 % interval"] = _interval(lead.low, lead.high)
    return pd.DataFrame(rows)


def _interval(low: float, high: float) -> str:
    return "" if np.isnan(low) else f"{number(low, '+.4f')} to {number(high, '+.4f')}"


def _lead_in_words(comparison: ComparisonData, name: str, other: str) -> str:
    lead = lead_over(comparison, name, other)
    interval = _interval(lead.low, lead.high)
    return f"{number(lead.difference, '+.4f')} over {other}" + (f" ({interval})" if interval else "")


def _gains_table(gains: dict[str, pd.DataFrame], others: dict[str, str]) -> pd.DataFrame:
    """Return the gains of adaptation as text, a row for each octave (positions 2^i to 2^(i+1) - 1).

    There is a column for each adaptive model.

    Args:
        gains: for each adaptive model, the frame of ``gain_by_position``.
        others: for each adaptive model, the name of the static model that it was compared with.
    """
    first = next(iter(gains.values()))
    result = pd.DataFrame(
        {"positions": [f"{a:,} to {b:,}" for a, b in zip(first["first"], first["last"], strict=True)]}
    )
    result["steps"] = [f"{n:,}" for n in first["n_steps"]]
    for name, gain in gains.items():
        cells = ["" if np.isnan(g) else number(g, "+.4f") for g in gain["gain"]]
        result[f"{name} over {others[name]}"] = cells
    return result
