"""Published architectures as untrained models, such as ``presets.gpt2("small").fit(X)``.

First come textbook models (Rabiner's HMM, Elman's network, the encoder-decoders of Bahdanau, Luong and Vaswani, and
attention without weights) with the published equations and nothing else. Two things are as in all networks here: step t
reads the embedding of step t - 1, which is a learned vector before the first step, and the output layer has a bias.
Then come Transformers of sizes that are known by name, with the published number of symbols.

A function gives the architecture; learning rate, optimiser, number of steps and loss are the defaults of the class.
Only the two configurations of nanoGPT set them too. ``from_huggingface`` reads published weights.
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


# -- the textbook ---------------------------------------------------------------------------------------------


@checked
def rabiner1989(n_states: int = 5, *, left_to_right: bool = False) -> HMM:
    """Return the discrete hidden Markov model of Rabiner (1989), *A tutorial on hidden Markov models*.

    Its parameters are ``λ = (A, B, π)``. Its likelihood ``P(o | λ) = Σ_i α_T(i)`` is that of the forward algorithm,
    ``α_1(i) = π_i b_i(o_1)`` and ``α_{t+1}(j) = Σ_i α_t(i) a_ij · b_j(o_{t+1})`` (his equations 19 to 21). It is fitted
    by Baum-Welch (40a to 40c) without pseudocounts. The lengths of sequences are given, so states have no probability
    of ending.

    Args:
        n_states: number of states N.
        left_to_right: True for a left-to-right (Bakis) model: it starts in state 1 and ``a_ij = 0`` for ``j < i`` and
            ``j > i + 2`` (equations 48 and 49 with Δ = 2). False for an ergodic one, in which every transition is
            possible.
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
    """Return the simple recurrent network of Elman (1990), *Finding structure in time*.

    The hidden state is ``h_t = σ(U x_t + V h_{t-1} + b)`` with the logistic function ``σ(z) = 1 / (1 + e^{-z})``, and
    the logits of the next symbol are ``W h_t + c``. The context units are a copy of ``h_{t-1}`` through which no
    gradient flows (``bptt=1``).

    Args:
        d_model: number of hidden units; he used 150 for sentences and 20 for letters.
    """
    return ElmanRNN(d_model=d_model, n_layers=1, nonlinearity="sigmoid", bptt=1, dropout=0.0)


@checked
def bahdanau2015(d_model: int = 1000) -> EncoderDecoder:
    """Return RNNsearch (Bahdanau, Cho and Bengio 2015, *Neural machine translation by jointly learning to align ...*).

    The annotations ``h_j`` of the source are the states of a bidirectional GRU. The decoder attends to them by ``e_ij =
    vᵀ tanh(W s_{i-1} + U h_j)`` and ``c_i = Σ_j softmax_j(e_ij) h_j``, its state is ``s_i = GRU([y_{i-1}; c_i],
    s_{i-1})``, and the logits of symbol i come from a maxout layer of ``s_{i-1}``, ``y_{i-1}`` and ``c_i``. All
    equations are in ``seqmodels.neural.seq2seq.textbook.BahdanauNetwork``.

    Args:
        d_model: width of the states, 1000 in the paper. The embeddings and the maxout layer have the same width here;
            in the paper they have 620 and 500.
    """
    return EncoderDecoder(network=BahdanauNetwork, d_model=d_model, n_layers=1, dropout=0.0)


@checked
def luong2015(d_model: int = 1000, n_layers: int = 4) -> EncoderDecoder:
    """Return the LSTM with global attention and input feeding of Luong, Pham and Manning (2015).

    The decoder's state is ``h_t = LSTM([y_{t-1}; a_{t-1}], h_{t-1})`` in layers. It attends to the states g of the
    encoder by ``c_t = Σ_s softmax_s(h_tᵀ W g_s) g_s``, and ``a_t = tanh(W_c [c_t; h_t])`` gives the logits. All
    equations are in ``seqmodels.neural.seq2seq.textbook.LuongNetwork``. Reference: *Effective approaches to
    attention-based neural machine translation*.

    Args:
        d_model: width of embeddings and states, 1000 in the paper.
        n_layers: number of layers of the encoder and of the decoder, 4 in the paper. Dropout is 0.2.
    """
    return EncoderDecoder(network=LuongNetwork, d_model=d_model, n_layers=n_layers, dropout=0.2)


@checked
def vaswani2017(size: VaswaniSize = "base") -> TransformerSeq2Seq:
    """Return the encoder-decoder Transformer of Vaswani et al. (2017), *Attention is all you need*.

    Heads compute ``softmax(Q Kᵀ / √d_k) V``, and feed-forward layers ``max(0, x W_1 + b_1) W_2 + b_2``. Each sublayer
    is ``LayerNorm(x + Sublayer(x))``. Positions ``sin(t / 10000^{2i/d})`` and ``cos(t / 10000^{2i/d})`` are added to
    the embeddings times √d_model. Source embedding, target embedding and output layer share one matrix. All linear maps
    have biases.

    Args:
        size: ``"base"`` (width 512) or ``"big"`` (width 1024).

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
            bias=True, tie_embeddings=True, zero_init=False, attention_dropout=0.0, cross_bias=False
        ),
        convolution_lags=0,
        dropout=dropout,
        lr=3e-3,
        training=GradientTraining(optimizer=AdamW()),
    )


@checked
def plain_attention(d_model: int = 128, *, scale_scores: bool = True) -> Transformer:
    """Return a model of causal self-attention without weights, with which textbooks introduce attention.

    From embeddings x, ``w_ij = softmax_j(x_i · x_j / √d_model)`` over ``j ≤ i`` and ``y_i = Σ_j w_ij x_j``; the logits
    of the next symbol are ``W y_i + c``. Queries, keys and values are the embeddings themselves, so only the embeddings
    and the output layer are learned, and the order of the steps before the last one has no influence.

    Args:
        d_model: width of the embeddings x.
        scale_scores: True divides the products ``x_i · x_j`` by ``√d_model`` (Vaswani et al. 2017).
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
    """Return an untrained GPT-2 (Radford et al. 2019) with 124 M, 355 M, 774 M or 1558 M parameters.

    It reads 50,257 symbols. The last of them marks the end of a text, so ends are ordinary symbols and
    ``length="given"``. It has two parameters that GPT-2 does not: a vector ``begin``, read before the first symbol,
    where GPT-2 reads the embedding of the last symbol; and a bias of the logits.

    Args:
        size: ``"small"``, ``"medium"``, ``"large"`` or ``"xl"``.

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
    """Return an untrained, uncased BERT (Devlin et al. 2019) with 110 M or 335 M parameters.

    It reads 30,522 symbols and has BERT's output layer for masked symbols, but not its pooler and not its classifier of
    next sentences. There are no segment embeddings, because a model of one segment can hold its embedding in the
    positions. The marks of beginning, end and mask have embeddings of their own; in BERT they are three of the symbols.

    Args:
        size: ``"base"`` or ``"large"``.

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
def nanogpt(size: NanoGPTSize = "cpu") -> Transformer:
    """Return a Transformer as nanoGPT configures and trains it on the characters of Shakespeare (Karpathy 2022).

    Its parameters are counted as nanoGPT does, without positions. Text is read as bytes, with an embedding for all 256;
    nanoGPT has the 65 characters that occur. A vector ``begin``, read before the first byte, and a bias of the logits
    are added. The learning rate falls by a cosine to a tenth of its peak.

    Args:
        size: ``"gpu"`` has 10.65 M parameters and trains for minutes on a GPU, ``"cpu"`` 0.80 M and minutes on a CPU.

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
