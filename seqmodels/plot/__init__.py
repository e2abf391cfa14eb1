"""Plots, in one style: of hidden states, frames, alignments, confusions and forecasts.

Results draw themselves with the other modules: ``Comparison.plot_by_position``, ``Backtest.plot``. Matplotlib, which
takes a second to load, is imported when something is drawn.
"""

from seqmodels.plot.alignment_matrix import alignment
from seqmodels.plot.confusion_matrix import confusion
from seqmodels.plot.fan_chart import forecast
from seqmodels.plot.hidden_states import durations, posterior, states, transitions
from seqmodels.plot.one_sequence import frames
from seqmodels.plot.transitions_by_input import transitions_by_input

__all__ = [
    "alignment",
    "confusion",
    "durations",
    "forecast",
    "frames",
    "posterior",
    "states",
    "transitions",
    "transitions_by_input",
]
