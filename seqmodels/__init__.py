"""Sequence models from a Gaussian-mixture HMM to a Transformer, compared by likelihoods that may stand in one table."""

from seqmodels.encodings import BPE, Bytes, Characters, Standardize, Symbols
from seqmodels.hmm import HMM
from seqmodels.loading import load
from seqmodels.measure import IncomparableError, Measure
from seqmodels.model import NotFittedError, SequenceModel
from seqmodels.neural import GRU, LSTM, ElmanRNN, LSTMSeq2Seq, Transformer, TransformerSeq2Seq
from seqmodels.observations import AutoregressiveGaussian, Categorical, GaussianMixture
from seqmodels.sequences import Sequences, as_sequences
