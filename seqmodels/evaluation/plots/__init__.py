"""Pictures of a comparison, in one style: who is better, how they got there, where in a sequence it shows, how honest they are."""

from seqmodels.evaluation.plots.curves import learning_curves
from seqmodels.evaluation.plots.forest import forest
from seqmodels.evaluation.plots.frames import frame_differences, side_by_side, state_strip
from seqmodels.evaluation.plots.honesty import reliability_diagram, transform_histograms
from seqmodels.evaluation.plots.position import FEW, by_position
from seqmodels.evaluation.plots.style import COLOURS, DASHES, GRID, INK, MUTED, WIDTH

__all__ = [
    "COLOURS",
    "DASHES",
    "FEW",
    "GRID",
    "INK",
    "MUTED",
    "WIDTH",
    "by_position",
    "forest",
    "frame_differences",
    "learning_curves",
    "reliability_diagram",
    "side_by_side",
    "state_strip",
    "transform_histograms",
]
