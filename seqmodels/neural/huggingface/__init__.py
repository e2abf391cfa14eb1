"""Published Transformers: Hugging Face's weights <-> models of this library."""

from seqmodels.neural.huggingface.conversion import from_huggingface, to_huggingface

__all__ = ["from_huggingface", "to_huggingface"]
