"""Models made elsewhere as models of this library: functions, networks, published models, compression programs."""

from seqmodels.wrappers.adapt.alphabet import Alphabet
from seqmodels.wrappers.adapt.compressor import Compressor
from seqmodels.wrappers.adapt.density import DensityModel, FunctionDensity
from seqmodels.wrappers.adapt.fine_tuning import FineTuning
from seqmodels.wrappers.adapt.function import CallableModel, from_callable
from seqmodels.wrappers.adapt.hmm_libraries import from_dynamax, from_hmmlearn, from_pyro
from seqmodels.wrappers.adapt.huggingface import HuggingFaceModel, from_huggingface
from seqmodels.wrappers.adapt.network import TorchModel, from_torch
from seqmodels.wrappers.adapt.tokenizer import PublishedTokens

__all__ = [
    "Alphabet",
    "CallableModel",
    "Compressor",
    "DensityModel",
    "FineTuning",
    "FunctionDensity",
    "HuggingFaceModel",
    "PublishedTokens",
    "TorchModel",
    "from_callable",
    "from_dynamax",
    "from_hmmlearn",
    "from_huggingface",
    "from_pyro",
    "from_torch",
]
