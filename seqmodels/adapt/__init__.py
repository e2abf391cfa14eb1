"""Models that were made elsewhere, as models of this library: functions, networks, published models, compressors."""

from seqmodels.adapt.alphabet import Alphabet
from seqmodels.adapt.density import DensityModel, FunctionDensity
from seqmodels.adapt.function import CallableModel, from_callable
from seqmodels.adapt.huggingface import HuggingFaceModel, from_huggingface
from seqmodels.adapt.network import TorchModel, from_torch
from seqmodels.adapt.tokenizer import PublishedTokens

__all__ = [
    "Alphabet",
    "CallableModel",
    "DensityModel",
    "FunctionDensity",
    "HuggingFaceModel",
    "PublishedTokens",
    "TorchModel",
    "from_callable",
    "from_huggingface",
    "from_torch",
]
