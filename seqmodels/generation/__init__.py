"""Sampling, streaming and beam search, written once on the cursor that every model has."""

from seqmodels.generation.cursor import Cursor, CursorState, select_rows
from seqmodels.generation.decoding import Decoding
from seqmodels.generation.generative import Generative
from seqmodels.generation.prediction import Prediction
from seqmodels.generation.sampling import sample_steps
from seqmodels.generation.stream import Stream

__all__ = ["Cursor", "CursorState", "Decoding", "Generative", "Prediction", "Stream", "sample_steps", "select_rows"]
