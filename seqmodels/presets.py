"""Published models, untrained: ``presets.gpt2("small").fit(X)``; published weights are read by ``from_huggingface``.

First the textbook: Rabiner's HMM, Elman's network, the encoder-decoders of Bahdanau, Luong and Vaswani, and attention
alone, whose equations are the published ones and nothing else. What all networks here have in common stays: step t
reads the embedding of step t - 1, a learned vector before the first; and the head has a bias. Then sizes of
Transformers that are known by name, over as many symbols as were published.

A function gives the architecture. How long and how fast to train, and with which optimizer and loss, is left as it is
everywhere here, but for the two configurations of nanoGPT, which are published to be run.
"""

from __future__ import annotations

from typing import Literal

from seqmodels.common.parameters import checked
from seqmodels.encodings import Symbols
from seqmodels.hmm import HMM, LeftToRight
from seqmodels.neural import (
    ElmanRNN,
    EncoderDecoder,
    MaskedTransformer,
    MaskedTransformerArchitecture,
    Transformer,
    TransformerArchitecture,
    TransformerSeq2Seq,
    TransformerSeq2SeqArchitecture,
)
from seqmodels.neural.seq2seq.textbook import BahdanauNetwork, LuongNetwork
from seqmodels.observations import Categorical
from seqmodels.training import AdamW, Cosine, GradientTraining

VaswaniSize = Literal["base", "big"]
GPT2Size = Literal["small", "medium", "large", "xl"]
BERTSize = Literal["base", "large"]
T5Size = Literal["small", "base", "large"]
NanoGPTSize = Literal["cpu", "gpu"]

# d_model, n_layers, n_heads, d_feedforward, dropout
VASWANI_SIZES: dict[VaswaniSize, tuple[int, int, int, int, float]] = {
    "base": (512, 6, 8, 2048, 0.1),
    "big": (1024, 6, 16, 4096, 0.3),
}
# d_model, n_layers, n_heads
GPT2_SIZES: dict[GPT2Size, tuple[int, int, int]] = {
    "small": (768, 12, 12),
    "medium": (1024, 24, 16),
    "large": (1280, 36, 20),
    "xl": (1600, 48, 25),
}
BERT_SIZES: dict[BERTSize, tuple[int, int, int]] = {"base": (768, 12, 12), "large": (1024, 24, 16)}
T5_SIZES: dict[T5Size, tuple[int, int, int]] = {"small": (512, 6, 8), "base": (768, 12, 12), "large": (1024, 24, 16)}


# -- the textbook ---------------------------------------------------------------------------------------------


@checked
def rabiner1989(n_states: int = 5, *, left_to_right: bool = False) -> HMM:
    """The discrete hidden Markov model ``λ = (A, B, π)`` of Rabiner (1989), *A tutorial on hidden Markov models*.

    ``α_1(i) = π_i b_i(o_1)``, ``α_{t+1}(j) = Σ_i α_t(i) a_ij · b_j(o_{t+1})``, ``P(o | λ) = Σ_i α_T(i)`` (his equations
    19 to 21), re-estimated by Baum-Welch from expected counts (40a to 40c), with no pseudocount. Lengths are given: no
    state ends.

    Args:
        n_states: N.
        left_to_right: whether A is Bakis's (48 and 49 with Δ = 2), ``a_ij = 0`` for ``j < i`` and ``j > i + 2``, from
            state 1; otherwise ergodic.
    """
    return HMM(
        n_states,
        observation=Categorical(pseudocount=0.0),
        length="given",
        pseudocount=0.0,
        topology=LeftToRight(skips=1) if left_to_right else "ergodic",
    )


@checked
def elman1990(d_model: int = 150) -> ElmanRNN:
    """The simple recurrent network of Elman (1990), *Finding structure in time*.

    ``h_t = σ(U x_t + V h_{t-1} + b)``, ``σ(z) = 1 / (1 + e^{-z})``; outputs ``W h_t + c``, here the logits of the next
    symbol. The context units ``h_{t-1}`` are a copy, through which no error is propagated: ``bptt=1``.

    Args:
        d_model: hidden units: 150 for sentences, 20 for letters.
    """
    return ElmanRNN(d_model=d_model, n_layers=1, nonlinearity="sigmoid", bptt=1, dropout=0.0)


@checked
def bahdanau2015(d_model: int = 1000) -> EncoderDecoder:
    """RNNsearch (Bahdanau, Cho and Bengio 2015, *Neural machine translation by jointly learning to align ...*).

    ``e_ij = vᵀ tanh(W s_{i-1} + U h_j)``, ``c_i = Σ_j softmax_j(e_ij) h_j``, over annotations ``h_j`` of a
    bidirectional network of Cho's gated units; ``s_i = GRU([y_{i-1}; c_i], s_{i-1})``; the output by maxout of
    ``s_{i-1}``, ``y_{i-1}`` and ``c_i``. All equations are in ``seqmodels.neural.seq2seq.textbook.BahdanauNetwork``.

    Args:
        d_model: 1000, the width of states; embeddings (620) and maxout units (500) have the same width here.
    """
    return EncoderDecoder(network=BahdanauNetwork, d_model=d_model, n_layers=1, dropout=0.0)


@checked
def luong2015(d_model: int = 1000, n_layers: int = 4) -> EncoderDecoder:
    """Global attention with input feeding (Luong, Pham and Manning 2015, *Effective approaches to attention ...*).

    ``c_t = Σ_s softmax_s(h_tᵀ W g_s) g_s`` over states g of the encoder; ``a_t = tanh(W_c [c_t; h_t])``, from which the
    output is predicted; ``h_t = LSTM([y_{t-1}; a_{t-1}], h_{t-1})`` in layers. All equations are in
    ``seqmodels.neural.seq2seq.textbook.LuongNetwork``.

    Args:
        d_model: 1000, the width of embeddings and states.
        n_layers: 4, of encoder and decoder; 0.2 of the inputs of each are dropped.
    """
    return EncoderDecoder(network=LuongNetwork, d_model=d_model, n_layers=n_layers, dropout=0.2)


@checked
def vaswani2017(size: VaswaniSize = "base") -> TransformerSeq2Seq:
    """The Transformer (Vaswani et al. 2017, *Attention is all you need*).

    ``softmax(Q Kᵀ / √d_k) V`` in heads; ``max(0, x W_1 + b_1) W_2 + b_2``; each sublayer is ``LayerNorm(x +
    Sublayer(x))``; positions ``sin(t / 10000^{2i/d})`` and ``cos(t / 10000^{2i/d})`` are added to embeddings times
    √d_model; one table embeds source and target and is the output layer. All linear maps have biases.

    Raises:
        ValueError: for a size that does not exist.
    """
    d_model, n_layers, n_heads, d_feedforward, dropout = VASWANI_SIZES[size]
    return TransformerSeq2Seq(
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        d_feedforward=d_feedforward,
        norm="post",
        positions="sinusoidal",
        activation="relu",
        architecture=TransformerSeq2SeqArchitecture(
            bias=True, tie_embeddings=True, zero_init=False, attention_dropout=0.0
        ),
        convolution_lags=0,
        dropout=dropout,
    )


@checked
def plain_attention(d_model: int = 128, *, scale_scores: bool = True) -> Transformer:
    """Causal self-attention of the inputs themselves, with which textbooks introduce attention.

    ``w_ij = softmax_j(x_i · x_j / √d_model)`` over ``j ≤ i``, ``y_i = Σ_j w_ij x_j``; outputs ``W y_i + c``, here the
    logits of the next symbol. Queries, keys and values have no weights, so all that is learned are embeddings and head,
    and the order of the steps before the last is not seen.

    Args:
        d_model: width of the embeddings x.
        scale_scores: whether products are divided by ``√d_model`` (Vaswani et al. 2017).
    """
    return Transformer(
        d_model=d_model,
        n_layers=1,
        n_heads=1,
        positions=None,
        convolution_lags=0,
        dropout=0.0,
        architecture=TransformerArchitecture(projections=False, scale_scores=scale_scores),
    )


# -- sizes that are known by name -----------------------------------------------------------------------------


@checked
def gpt2(size: GPT2Size = "small") -> Transformer:
    """GPT-2 (Radford et al. 2019): 124 M, 355 M, 774 M or 1558 M parameters.

    Over 50,257 symbols, of which the last ends a text, so ``length="given"``. Besides GPT-2's parameters it has a
    vector ``begin``, which there is the embedding of that last symbol, and a bias of the logits, which there is none.

    Raises:
        ValueError: for a size that does not exist.
    """
    d_model, n_layers, n_heads = GPT2_SIZES[size]
    return Transformer(
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        context=1024,
        encoding=Symbols(50_257),
        length="given",
        architecture=TransformerArchitecture(
            tie_embeddings=True, scale_embeddings=False, bias=True, zero_init=False, attention_dropout=0.1
        ),
        convolution_lags=0,
        positions="learned",
        activation="gelu-tanh",
        dropout=0.1,
    )


@checked
def bert(size: BERTSize = "base") -> MaskedTransformer:
    """BERT, uncased (Devlin et al. 2019): 110 M or 335 M parameters.

    Over 30,522 symbols. It has BERT's head of masked symbols, but neither its pooler nor its head of next sentences; of
    the embeddings of two segments none, as one segment's is part of the positions; and rows of its own for the marks of
    beginning, end and mask, which are three of BERT's symbols.

    Raises:
        ValueError: for a size that does not exist.
    """
    d_model, n_layers, n_heads = BERT_SIZES[size]
    return MaskedTransformer(
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        max_length=512,
        encoding=Symbols(30_522),
        architecture=MaskedTransformerArchitecture(
            tie_embeddings=True, embedding_norm=True, head_transform=True, norm_epsilon=1e-12, attention_dropout=0.1
        ),
        norm="post",
        positions="learned",
        activation="gelu",
        dropout=0.1,
    )


@checked
def t5(size: T5Size = "small") -> TransformerSeq2Seq:
    """T5 (Raffel et al. 2020), first version: 60 M, 223 M or 738 M parameters.

    Over 32,128 symbols, one of which ends a text, so ``length="given"``. Besides T5's parameters it has a vector
    ``begin``, which there is the embedding of padding, and a bias of the logits, which there is none.

    Raises:
        ValueError: for a size that does not exist.
    """
    d_model, n_layers, n_heads = T5_SIZES[size]
    return TransformerSeq2Seq(
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        encoding=Symbols(32_128),
        length="given",
        architecture=TransformerSeq2SeqArchitecture(
            tie_embeddings=True, norm_type="rms", norm_epsilon=1e-6, bias=False, zero_init=False, attention_dropout=0.1
        ),
        convolution_lags=0,
        positions="t5",
        activation="relu",
        dropout=0.1,
    )


@checked
def nanogpt(size: NanoGPTSize = "cpu") -> Transformer:
    """nanoGPT's configurations for the characters of Shakespeare (Karpathy 2022), and how they are trained.

    ``"gpu"``: 10.65 M parameters, minutes on a GPU; ``"cpu"``: 0.80 M, minutes on a CPU; nanoGPT, which counts no
    positions, says so. Its 65 characters are as many bytes, which are what text is read as here too, with rows for all
    256. There is a vector ``begin`` and a bias of the logits besides. Rates fall by a cosine to a tenth.

    Raises:
        ValueError: for a size that does not exist.
    """
    small = size == "cpu"
    return Transformer(
        d_model=128 if small else 384,
        n_layers=4 if small else 6,
        n_heads=4 if small else 6,
        context=64 if small else 256,
        length="given",
        architecture=TransformerArchitecture(
            tie_embeddings=True,
            scale_embeddings=False,
            bias=False,
            zero_init=False,
            attention_dropout=0.0 if small else 0.2,
        ),
        convolution_lags=0,
        positions="learned",
        activation="gelu",
        dropout=0.0 if small else 0.2,
        batch_size=12 if small else 64,
        max_steps=2_000 if small else 5_000,
        lr=1e-3,
        training=GradientTraining(
            weight_decay=0.1,
            optimizer=AdamW(betas=(0.9, 0.99)),
            schedule=Cosine(warm_up=0.05 if small else 0.02, final=0.1),
        ),
    )
