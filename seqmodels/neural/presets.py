"""Transformers of published sizes, untrained: ``presets.gpt2("small").fit(X)``; what was trained is in ``huggingface``.

A function gives the architecture, over as many symbols as was published. How long and how fast to train is left as it is
everywhere here, but for the two configurations of nanoGPT, which are published to be run.
"""

from __future__ import annotations

from typing import Literal, TypeVar

from seqmodels.encodings import Symbols
from seqmodels.neural.masked import MaskedTransformer
from seqmodels.neural.transformer.models import Transformer, TransformerSeq2Seq
from seqmodels.training import AdamW, Cosine

GPT2Size = Literal["small", "medium", "large", "xl"]
BERTSize = Literal["base", "large"]
T5Size = Literal["small", "base", "large"]
NanoGPTSize = Literal["cpu", "gpu"]
Size = TypeVar("Size", bound=str)
Shape = TypeVar("Shape")

# d_model, n_layers, n_heads
GPT2_SIZES: dict[GPT2Size, tuple[int, int, int]] = {
    "small": (768, 12, 12),
    "medium": (1024, 24, 16),
    "large": (1280, 36, 20),
    "xl": (1600, 48, 25),
}
BERT_SIZES: dict[BERTSize, tuple[int, int, int]] = {"base": (768, 12, 12), "large": (1024, 24, 16)}
T5_SIZES: dict[T5Size, tuple[int, int, int]] = {"small": (512, 6, 8), "base": (768, 12, 12), "large": (1024, 24, 16)}


def gpt2(size: GPT2Size = "small") -> Transformer:
    """GPT-2 (Radford et al. 2019): 124 M, 355 M, 774 M or 1558 M parameters.

    Over 50,257 symbols, of which the last ends a text, so ``length="given"``. Besides GPT-2's parameters it has a vector
    ``begin``, which there is the embedding of that last symbol, and a bias of the logits, which there is none.

    Raises:
        ValueError: for a size that does not exist.
    """
    d_model, n_layers, n_heads = _size("GPT-2", size, GPT2_SIZES)
    return Transformer(
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        context=1024,
        encoding=Symbols(50_257),
        length="given",
        tie_embeddings=True,
        scale_embeddings=False,
        previous=0,
        positions="learned",
        activation="gelu-tanh",
        bias=True,
        zero_init=False,
        dropout=0.1,
        attention_dropout=0.1,
    )


def bert(size: BERTSize = "base") -> MaskedTransformer:
    """BERT, uncased (Devlin et al. 2019): 110 M or 335 M parameters.

    Over 30,522 symbols. It has BERT's head of masked symbols, but neither its pooler nor its head of next sentences; of
    the embeddings of two segments none, as one segment's is part of the positions; and rows of its own for the marks of
    beginning, end and mask, which are three of BERT's symbols.

    Raises:
        ValueError: for a size that does not exist.
    """
    d_model, n_layers, n_heads = _size("BERT", size, BERT_SIZES)
    return MaskedTransformer(
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        max_length=512,
        encoding=Symbols(30_522),
        tie_embeddings=True,
        embedding_norm=True,
        head_transform=True,
        norm="post",
        norm_epsilon=1e-12,
        positions="learned",
        activation="gelu",
        dropout=0.1,
        attention_dropout=0.1,
    )


def t5(size: T5Size = "small") -> TransformerSeq2Seq:
    """T5 (Raffel et al. 2020), first version: 60 M, 223 M or 738 M parameters.

    Over 32,128 symbols, one of which ends a text, so ``length="given"``. Besides T5's parameters it has a vector
    ``begin``, which there is the embedding of padding, and a bias of the logits, which there is none.

    Raises:
        ValueError: for a size that does not exist.
    """
    d_model, n_layers, n_heads = _size("T5", size, T5_SIZES)
    return TransformerSeq2Seq(
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        encoding=Symbols(32_128),
        length="given",
        tie_embeddings=True,
        previous=0,
        positions="t5",
        norm_type="rms",
        norm_epsilon=1e-6,
        activation="relu",
        bias=False,
        zero_init=False,
        dropout=0.1,
        attention_dropout=0.1,
    )


def nanogpt(size: NanoGPTSize = "cpu") -> Transformer:
    """nanoGPT's configurations for the characters of Shakespeare (Karpathy 2022), and how they are trained.

    ``"gpu"``: 10.65 M parameters, minutes on a GPU; ``"cpu"``: 0.80 M, minutes on a CPU; nanoGPT, which counts no positions,
    says so. Its 65 characters are as many bytes, which are what text is read as here too, with rows for all 256. There
    is a vector ``begin`` and a bias of the logits besides. Rates fall by a cosine to a tenth.

    Raises:
        ValueError: for a size that does not exist.
    """
    small = _size("nanoGPT", size, {"cpu": True, "gpu": False})
    return Transformer(
        d_model=128 if small else 384,
        n_layers=4 if small else 6,
        n_heads=4 if small else 6,
        context=64 if small else 256,
        length="given",
        tie_embeddings=True,
        scale_embeddings=False,
        previous=0,
        positions="learned",
        activation="gelu",
        bias=False,
        zero_init=False,
        dropout=0.0 if small else 0.2,
        attention_dropout=0.0 if small else 0.2,
        batch_size=12 if small else 64,
        max_steps=2_000 if small else 5_000,
        lr=1e-3,
        weight_decay=0.1,
        optimizer=AdamW(betas=(0.9, 0.99)),
        schedule=Cosine(warm_up=0.05 if small else 0.02, final=0.1),
    )


def _size(name: str, size: Size, sizes: dict[Size, Shape]) -> Shape:
    if size not in sizes:
        raise ValueError(f"{name} has no size {size!r}; pass one of {', '.join(map(repr, sizes))}")
    return sizes[size]
