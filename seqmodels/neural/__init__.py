"""Neural networks, which map the history (and a source) to a hidden state, and the hidden state to an observation."""

from seqmodels.neural.architecture import Architecture
from seqmodels.neural.custom_module import CausalModel, from_module
from seqmodels.neural.huggingface.conversion import from_huggingface
from seqmodels.neural.inspection import gradient_by_lag
from seqmodels.neural.masked import MaskedTransformer
from seqmodels.neural.recurrent.cell import Cell
from seqmodels.neural.recurrent.elman import ElmanCell
from seqmodels.neural.recurrent.gru import GRUCell
from seqmodels.neural.recurrent.lstm import LSTMCell
from seqmodels.neural.recurrent.min_gru import MinGRUCell
from seqmodels.neural.recurrent.models import GRU, LSTM, ElmanRNN, Recurrent, RecurrentArchitecture
from seqmodels.neural.seq2seq.models import EncoderDecoder, LSTMSeq2Seq, LSTMSeq2SeqArchitecture
from seqmodels.neural.seq2seq.textbook import BahdanauNetwork, GatedUnit, LuongNetwork
from seqmodels.neural.tagging.models import LSTMTagger, TransformerTagger
from seqmodels.neural.transformer.architecture import (
    MaskedTransformerArchitecture,
    TransformerArchitecture,
    TransformerSeq2SeqArchitecture,
    TransformerTaggerArchitecture,
)
from seqmodels.neural.transformer.models import Transformer, TransformerSeq2Seq

__all__ = [
    "GRU",
    "LSTM",
    "Architecture",
    "BahdanauNetwork",
    "CausalModel",
    "Cell",
    "ElmanCell",
    "ElmanRNN",
    "EncoderDecoder",
    "GRUCell",
    "GatedUnit",
    "LSTMCell",
    "LSTMSeq2Seq",
    "LSTMSeq2SeqArchitecture",
    "LSTMTagger",
    "LuongNetwork",
    "MaskedTransformer",
    "MaskedTransformerArchitecture",
    "MinGRUCell",
    "Recurrent",
    "RecurrentArchitecture",
    "Transformer",
    "TransformerArchitecture",
    "TransformerSeq2Seq",
    "TransformerSeq2SeqArchitecture",
    "TransformerTagger",
    "TransformerTaggerArchitecture",
    "from_huggingface",
    "from_module",
    "gradient_by_lag",
]
