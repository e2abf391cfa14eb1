"""The network wing: history (and source) -> state -> observation."""

from seqmodels.neural.families import LSTMSeq2Seq, Transformer, TransformerSeq2Seq
from seqmodels.neural.gradients import gradient_by_lag
from seqmodels.neural.masked import MaskedTransformer
from seqmodels.neural.recurrent_models import GRU, LSTM, ElmanRNN

__all__ = [
    "GRU",
    "LSTM",
    "ElmanRNN",
    "LSTMSeq2Seq",
    "MaskedTransformer",
    "Transformer",
    "TransformerSeq2Seq",
    "gradient_by_lag",
]
