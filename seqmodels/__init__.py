"""Sequence models from a Gaussian-mixture HMM to a Transformer, compared by likelihoods that may stand in one table."""

from seqmodels.neural import GRU, LSTM, ElmanRNN, LSTMSeq2Seq, Transformer, TransformerSeq2Seq
from seqmodels.sequences import Sequences
