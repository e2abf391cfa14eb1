"""Sampling, streaming and beam search, written once on the cursor that every model has."""

from seqmodels.generation.beam import Hypothesis, Search, beam_search, beam_searches
from seqmodels.generation.cursor import Cursor, CursorState, select_rows
from seqmodels.generation.decoding import Decoding
from seqmodels.generation.drawing import Drawing
from seqmodels.generation.generative import Generative
from seqmodels.generation.given import Given, given_each, given_rows
from seqmodels.generation.marginal import Marginal
from seqmodels.generation.prediction import Prediction
from seqmodels.generation.sampling import sample_steps
from seqmodels.generation.searching import Candidate, Searching
from seqmodels.generation.spellings import Merged
from seqmodels.generation.stream import Stream

__all__ = [
    "Candidate",
    "Cursor",
    "CursorState",
    "Decoding",
    "Drawing",
    "Generative",
    "Given",
    "Hypothesis",
    "Marginal",
    "Merged",
    "Prediction",
    "Search",
    "Searching",
    "Stream",
    "beam_search",
    "beam_searches",
    "given_each",
    "given_rows",
    "sample_steps",
    "select_rows",
]
