"""Conversion of published Transformers in Hugging Face's format to models of this library, and back."""

from seqmodels.neural.huggingface.conversion import from_huggingface

__all__ = ["from_huggingface"]
