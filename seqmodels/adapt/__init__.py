"""Models that were made elsewhere, as models of this library: functions, networks, published models, compressors."""

from seqmodels.adapt.alphabet import Alphabet
from seqmodels.adapt.compressor import Compressor
from seqmodels.adapt.density import DensityModel, FunctionDensity
from seqmodels.adapt.function import CallableModel, from_callable
from seqmodels.adapt.huggingface import HuggingFaceModel, from_huggingface
from seqmodels.adapt.linear_gaussian import LinearGaussianModel
from seqmodels.adapt.markov import from_dynamax, from_hmmlearn, from_pyro
from seqmodels.adapt.network import TorchModel, from_torch
from seqmodels.adapt.tokenizer import PublishedTokens

__all__ = [
    "Alphabet",
    "CallableModel",
    "Compressor",
    "DensityModel",
    "FunctionDensity",
    "HuggingFaceModel",
    "LinearGaussianModel",
    "PublishedTokens",
    "TorchModel",
    "from_callable",
    "from_dynamax",
    "from_hmmlearn",
    "from_huggingface",
    "from_pyro",
    "from_torch",
]
