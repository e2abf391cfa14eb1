"""The network wing: history (and source) -> state -> observation."""

from seqmodels.neural.families import GRU, LSTM, ElmanRNN, LSTMSeq2Seq
from seqmodels.neural.transformer_models import Transformer, TransformerSeq2Seq

__all__ = ["GRU", "LSTM", "ElmanRNN", "LSTMSeq2Seq", "Transformer", "TransformerSeq2Seq"]
