"""Operations on a fitted model through its cursor: sampling, streaming, beam search, forecasts, coding."""

from seqmodels.generation.beam import (
    BeamSearch,
    Candidate,
    Hypothesis,
    beam_search,
    beam_searches,
    n_best,
    predict,
)
from seqmodels.generation.coding import ImpossibleSymbolError, StepCoder, SymbolCoder, ToDecode
from seqmodels.generation.cursor import (
    Cursor,
    CursorState,
    MergedStates,
    Prediction,
    SingleSteps,
    Source,
    select_rows,
    source_of_each,
    stacked_sources,
)
from seqmodels.generation.decoding import Decoding, Draws
from seqmodels.generation.event_tables import event_log_probs
from seqmodels.generation.forecast import Forecast, forecast
from seqmodels.generation.inputs import GenerativeModel, encode_source
from seqmodels.generation.marginal import PruningName, log_prob_marginal
from seqmodels.generation.sampling import SamplingOptions, generate, sample, sample_steps
from seqmodels.generation.stream import Stream, predict_next

__all__ = [
    "BeamSearch",
    "Candidate",
    "Cursor",
    "CursorState",
    "Decoding",
    "Draws",
    "Forecast",
    "GenerativeModel",
    "Hypothesis",
    "ImpossibleSymbolError",
    "MergedStates",
    "Prediction",
    "PruningName",
    "SamplingOptions",
    "SingleSteps",
    "Source",
    "StepCoder",
    "Stream",
    "SymbolCoder",
    "ToDecode",
    "beam_search",
    "beam_searches",
    "encode_source",
    "event_log_probs",
    "forecast",
    "generate",
    "log_prob_marginal",
    "n_best",
    "predict",
    "predict_next",
    "sample",
    "sample_steps",
    "select_rows",
    "source_of_each",
    "stacked_sources",
]
