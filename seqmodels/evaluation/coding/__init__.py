"""Sequences of symbols and text as the bytes that a model's probabilities are worth, and back."""

from seqmodels.evaluation.coding.compression import compress, decompress, n_code_bytes
from seqmodels.evaluation.coding.files import compress_file, decompress_file

__all__ = ["compress", "compress_file", "decompress", "decompress_file", "n_code_bytes"]
