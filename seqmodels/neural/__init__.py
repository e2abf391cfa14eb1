"""The network wing: history (and source) -> state -> observation."""

from seqmodels.neural.inspection import gradient_by_lag
from seqmodels.neural.huggingface.conversion import from_huggingface, to_huggingface
from seqmodels.neural.masked import MaskedTransformer
from seqmodels.neural.recurrent.models import GRU, LSTM, ElmanRNN
from seqmodels.neural.seq2seq.models import LSTMSeq2Seq
from seqmodels.neural.tagging.models import LSTMTagger, TransformerTagger
from seqmodels.neural.transformer.models import Transformer, TransformerSeq2Seq

__all__ = [
    "GRU",
    "LSTM",
    "ElmanRNN",
    "LSTMSeq2Seq",
    "LSTMTagger",
    "MaskedTransformer",
    "Transformer",
    "TransformerSeq2Seq",
    "TransformerTagger",
    "from_huggingface",
    "gradient_by_lag",
    "to_huggingface",
]
