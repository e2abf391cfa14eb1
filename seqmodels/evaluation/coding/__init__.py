"""Compression of symbols and text with a model's probabilities, and decompression."""

from seqmodels.evaluation.coding.compression import compress, decompress, n_code_bytes
from seqmodels.evaluation.coding.files import compress_file, decompress_file

__all__ = ["compress", "compress_file", "decompress", "decompress_file", "n_code_bytes"]
