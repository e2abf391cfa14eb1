"""Plots in one style: hidden states, effects, tracks, frames, alignments, attention, confusions, and forecasts.

The other modules draw results, which have methods for it: ``Comparison.plot_by_position``, ``Backtest.plot``.
Matplotlib takes a second to load, so it is imported only when something is drawn.
"""

from seqmodels.plot.alignment_matrix import alignment
from seqmodels.plot.attention_matrix import attention
from seqmodels.plot.coloured_track import track
from seqmodels.plot.confusion_matrix import confusion
from seqmodels.plot.driven_transitions import transitions_by_input
from seqmodels.plot.fan_chart import forecast
from seqmodels.plot.hidden_states import durations, posterior, states, transitions
from seqmodels.plot.input_effects import effects
from seqmodels.plot.one_sequence import frames
from seqmodels.plot.series_components import components

__all__ = [
    "alignment",
    "attention",
    "components",
    "confusion",
    "durations",
    "effects",
    "forecast",
    "frames",
    "posterior",
    "states",
    "track",
    "transitions",
    "transitions_by_input",
]
