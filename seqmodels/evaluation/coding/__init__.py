"""Sequences of symbols and text as the bytes that a model's probabilities are worth, and back."""

from seqmodels.evaluation.coding.compression import code_length, compress, decompress
from seqmodels.evaluation.coding.files import compress_file, decompress_file

__all__ = ["code_length", "compress", "compress_file", "decompress", "decompress_file"]
