"""The network wing: history (and source) -> state -> observation."""

from seqmodels.neural.families import GRU, LSTM, ElmanRNN, LSTMSeq2Seq, Transformer, TransformerSeq2Seq
from seqmodels.neural.masked import MaskedTransformer

__all__ = ["GRU", "LSTM", "ElmanRNN", "LSTMSeq2Seq", "MaskedTransformer", "Transformer", "TransformerSeq2Seq"]
