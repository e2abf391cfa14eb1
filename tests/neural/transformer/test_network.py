from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqmodels.neural.network import Network, Source, select
from seqmodels.neural.transformer.attention import CrossAttention, SelfAttention
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.network import TransformerNetwork, TransformerSeq2SeqNetwork
from seqmodels.neural.transformer.stack import TransformerBlock

B, S, T, D, H, L = 3, 5, 7, 8, 2, 2
MASK = torch.arange(S) < torch.tensor([[5], [2], [3]])
SIZES: dict[str, Any] = {"d_model": D, "n_layers": L, "n_heads": H, "dropout": 0.0}
NETWORKS = [TransformerNetwork, TransformerSeq2SeqNetwork]
OPTIONS: dict[str, dict[str, Any]] = {
    "pre": {"positions": "learned"},
    "post": {"norm": "post"},
    "residual rms": {"norm": "residual", "norm_type": "rms", "activation": "relu2", "positions": None},
    "plain rms": {"norm_type": "rms", "norm_affine": False, "bias": False, "activation": "gelu-tanh"},
    "binary": {"positions": "binary", "norm_affine": False},
    "rotary swiglu": {"positions": "rotary", "activation": "swiglu", "qk_norm": True},
    "alibi shared": {"positions": "alibi", "n_heads": 4, "n_kv_heads": 2},
    "t5": {"positions": "t5", "activation": "relu"},
    "window": {"window": 3},
    "window shared rotary": {"window": 3, "positions": "rotary", "n_kv_heads": 1, "qk_norm": True},
    "window t5": {"window": 2, "positions": "t5"},
    "window alibi": {"window": 6, "positions": "alibi"},
    "cross bias": {"cross_bias": True, "positions": "rotary"},
}
CASES = list(product(NETWORKS, OPTIONS))


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


SOURCE = Source(draw(B, S, D, seed=5), MASK)


def build(make: Callable[..., Network], **options: Any) -> Network:
    with torch.random.fork_rng(devices=[]):
        network = make(TransformerConfig(**(SIZES | options)), max_length=T).double()
    # Weights of order one, biases and norms that do something: at their gentle start much would look alike.
    for i, parameter in enumerate(network.parameters()):
        parameter.data += 0.4 * draw(*parameter.shape, seed=i)
    return network


def in_pieces(network: Network, inputs: Tensor, sizes: list[int], source: Source = SOURCE) -> Tensor:
    memory, pieces = network.start(len(inputs), source), []
    for piece in inputs.split(sizes, 1):
        hidden, memory = network(piece, memory)
        pieces.append(hidden)
    return torch.cat(pieces, 1)


# -- torch's own modules with the same weights ----------------------------------------------------------------


def copy_self(ours: SelfAttention, theirs: nn.MultiheadAttention) -> None:
    state = theirs.state_dict()
    state["in_proj_weight"].copy_(ours.project.weight)
    state["in_proj_bias"].copy_(ours.project.bias)
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def copy_cross(ours: CrossAttention, theirs: nn.MultiheadAttention) -> None:
    state = theirs.state_dict()
    state["in_proj_weight"].copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
    state["in_proj_bias"].copy_(torch.cat([ours.query.bias, torch.zeros(D), ours.value.bias]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def copy_block(ours: TransformerBlock, theirs: nn.Module, cross: bool) -> None:
    copy_self(ours.attention, theirs.self_attn)
    pairs = [(ours.attention_residual.norm, theirs.norm1)]
    if cross:
        copy_cross(ours.cross_attention, theirs.multihead_attn)
        pairs += [(ours.cross_residual.norm, theirs.norm2), (ours.feedforward_residual.norm, theirs.norm3)]
    else:
        pairs += [(ours.feedforward_residual.norm, theirs.norm2)]
    pairs += [(ours.feedforward.expand, theirs.linear1), (ours.feedforward.contract, theirs.linear2)]
    for mine, other in pairs:
        other.load_state_dict(mine.state_dict())


def torchs(ours: nn.Module, norm: str, activation: str, cross: bool) -> nn.Module:
    last = nn.LayerNorm(D) if norm == "pre" else None
    options = {"dropout": 0.0, "activation": activation, "batch_first": True, "norm_first": norm == "pre"}
    with torch.random.fork_rng(devices=[]):
        if cross:
            theirs = nn.TransformerDecoder(nn.TransformerDecoderLayer(D, H, 4 * D, **options), L, last)
        else:
            layer = nn.TransformerEncoderLayer(D, H, 4 * D, **options)
            theirs = nn.TransformerEncoder(layer, L, last, enable_nested_tensor=False)
    theirs.to(next(ours.parameters()).dtype)
    for mine, other in zip(ours.blocks, theirs.layers, strict=True):
        copy_block(mine, other, cross)
    if last is not None:
        theirs.norm.load_state_dict(ours.final_norm.state_dict())
    return theirs


EARLIER = torch.ones(T, T, dtype=torch.bool).triu(1)
KINDS = list(product(["pre", "post"], ["relu", "gelu"], [torch.float32, torch.float64]))


@pytest.mark.parametrize(("norm", "activation", "dtype"), KINDS)
def test_a_causal_stack_is_torchs_encoder_with_a_causal_mask(norm: str, activation: str, dtype: torch.dtype) -> None:
    network = build(TransformerNetwork, norm=norm, activation=activation, positions=None).to(dtype)
    x = draw(B, T, D).to(dtype)
    expected = torchs(network.decoder, norm, activation, cross=False)(x, mask=EARLIER)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(network(x, network.start(B))[0], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("norm", "activation", "dtype"), KINDS)
def test_encoder_and_decoder_are_torchs(norm: str, activation: str, dtype: torch.dtype) -> None:
    network = build(TransformerSeq2SeqNetwork, norm=norm, activation=activation, positions=None).to(dtype)
    x, values = draw(B, T, D).to(dtype), SOURCE.values.to(dtype)
    encoded = torchs(network.encoder, norm, activation, cross=False)(values, src_key_padding_mask=~MASK)
    decoder = torchs(network.decoder, norm, activation, cross=True)
    expected = decoder(x, encoded, tgt_mask=EARLIER, memory_key_padding_mask=~MASK)
    found, _ = network(x, network.start(B, Source(values, MASK)))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


# -- the protocol ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[1] * T, [3, 4], [2, 1, 3, 1]], ids=str)
@pytest.mark.parametrize(("make", "name"), CASES)
@pytest.mark.parametrize("learning", [False, True], ids=["in place", "joined"])
def test_steps_are_the_whole(make: Callable[..., Network], name: str, sizes: list[int], learning: bool) -> None:
    network, x = build(make, **OPTIONS[name]), draw(B, T, D)
    with torch.set_grad_enabled(learning):
        torch.testing.assert_close(in_pieces(network, x, sizes), in_pieces(network, x, [T]), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("make", "name"), CASES)
def test_the_future_does_not_change_the_past(make: Callable[..., Network], name: str) -> None:
    network, x = build(make, **OPTIONS[name]), draw(B, T, D)
    other = torch.cat([x[:, :4], draw(B, T - 4, D, seed=9)], 1)
    before, after = in_pieces(network, x, [T]), in_pieces(network, other, [T])
    torch.testing.assert_close(before[:, :4], after[:, :4], rtol=1e-12, atol=1e-12)
    assert not torch.equal(before[:, 4:], after[:, 4:])


@pytest.mark.parametrize("name", OPTIONS)
def test_padding_of_the_source_has_no_influence(name: str) -> None:
    network, x = build(TransformerSeq2SeqNetwork, **OPTIONS[name]), draw(B, T, D)
    together = in_pieces(network, x, [T])
    longer = torch.cat([MASK, torch.zeros(B, 2, dtype=torch.bool)], 1)
    noise = draw(B, S + 2, D, seed=8)
    noise[:, :S] = torch.where(MASK[..., None], SOURCE.values, torch.nan)
    torch.testing.assert_close(in_pieces(network, x, [T], Source(noise, longer)), together, rtol=0, atol=1e-12)
    for i, length in enumerate(MASK.sum(1).tolist()):
        alone = Source(SOURCE.values[i : i + 1, :length], MASK[i : i + 1, :length])
        torch.testing.assert_close(in_pieces(network, x[i : i + 1], [T], alone)[0], together[i], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", OPTIONS)
def test_padding_of_the_source_leaves_gradients_finite(name: str) -> None:
    network = build(TransformerSeq2SeqNetwork, **OPTIONS[name])
    padded = Source(SOURCE.values.masked_fill(~MASK[..., None], torch.nan), MASK)
    in_pieces(network, draw(B, T, D), [T], padded).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


@pytest.mark.parametrize("make", NETWORKS)
def test_memory_has_the_batch_first_and_can_be_selected(make: Callable[..., Network]) -> None:
    network, x, rows = build(make), draw(B, T, D), torch.tensor([2, 0, 2, 1])
    _, memory = network(x[:, :3], network.start(B, SOURCE))
    expected, _ = network(x[:, 3:], memory)
    found, _ = network(x[rows, 3:], select(memory, rows))
    torch.testing.assert_close(found, expected[rows], rtol=0, atol=1e-12)


# -- order, gradients, start ----------------------------------------------------------------------------------


def test_an_encoder_without_positions_does_not_know_the_order() -> None:
    network, order = build(TransformerSeq2SeqNetwork, positions=None), torch.tensor([3, 0, 2, 4, 1])
    encoded, _ = network.encoder(SOURCE.values, mask=MASK)
    moved, _ = network.encoder(SOURCE.values[:, order], mask=MASK[:, order])
    torch.testing.assert_close(moved, encoded[:, order], rtol=0, atol=1e-12)
    x, shuffled = draw(B, T, D), Source(SOURCE.values[:, order], MASK[:, order])
    torch.testing.assert_close(in_pieces(network, x, [T], shuffled), in_pieces(network, x, [T]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "binary", "rotary", "alibi", "t5"])
def test_positions_tell_the_order(positions: str) -> None:
    network, order = build(TransformerSeq2SeqNetwork, positions=positions), torch.tensor([1, 0, 2, 3, 4])
    x, shuffled = draw(B, T, D), Source(SOURCE.values[:, order], MASK)
    assert (in_pieces(network, x, [T], shuffled) - in_pieces(network, x, [T])).abs().max() > 1e-3
    swapped = x[:, [1, 0, 2, 3, 4, 5, 6]]
    assert (in_pieces(network, swapped, [T]) - in_pieces(network, x, [T]))[:, -1].abs().max() > 1e-3


@pytest.mark.parametrize(("make", "name"), CASES)
def test_every_parameter_gets_a_gradient(make: Callable[..., Network], name: str) -> None:
    network = build(make, **OPTIONS[name])
    (in_pieces(network, draw(B, T, D), [T]) * draw(B, T, D, seed=3)).sum().backward()
    flat = [n for n, p in network.named_parameters() if p.grad is None or p.grad.norm() < 1e-9]
    assert flat == []


def test_cross_bias_adds_to_the_scores_of_the_source() -> None:
    network = build(TransformerSeq2SeqNetwork, cross_bias=True, positions=None)
    state = network.start(B, SOURCE)
    inputs = draw(B, T, D, seed=2)
    table = network.decoder.cross_bias.table.detach()  # a row for each distance: those below 8 have one of their own
    attention = next(iter(network.decoder)).cross_attention
    queries: list[Tensor] = []
    network.decoder(inputs, prepared=state[2], source_mask=MASK, cross_queries=queries)
    query = attention.query(queries[0]).view(B, T, H, D // H)
    key, _ = state[2][0]
    expected = torch.zeros(B, H, T, S, dtype=torch.float64)
    for b, h, t in product(range(B), range(H), range(T)):
        scores = torch.full((S,), -torch.inf, dtype=torch.float64)
        for s in range(S):
            if MASK[b, s]:
                bias = 8 * table[t - s if t >= s else 16 + s - t, h]
                scores[s] = query[b, t, h] @ key[b, h, s] / (D // H) ** 0.5 + bias
        expected[b, h, t] = scores.softmax(-1)
    torch.testing.assert_close(network.attention_weights(inputs, state, 0), expected)


@pytest.mark.parametrize("kind", [TransformerNetwork, TransformerSeq2SeqNetwork])
def test_a_convolution_starts_at_the_inputs_themselves(
    kind: type[TransformerNetwork] | type[TransformerSeq2SeqNetwork],
) -> None:
    with torch.random.fork_rng(devices=[]):
        options = {**SIZES, "positions": None, "norm_affine": False}
        lagged, plain = (kind(TransformerConfig(**options, zero_init=True), convolution_lags=n) for n in (3, 0))
        random = kind(TransformerConfig(**options), convolution_lags=3)
    inputs, source = draw(B, T, D).float(), Source(SOURCE.values.float(), MASK)
    hidden = [network(inputs, network.start(B, source))[0] for network in (lagged, plain)]  # type: ignore[arg-type]
    torch.testing.assert_close(*hidden)
    assert not torch.allclose(random(inputs, random.start(B, source))[0], hidden[0])  # type: ignore[arg-type]


def test_learned_positions_end_at_max_length() -> None:
    network = build(TransformerNetwork, positions="learned")
    with pytest.raises(ValueError, match="8 steps but positions were learned for max_length=7"):
        in_pieces(network, draw(B, T + 1, D), [T, 1])


def test_the_residual_stream_starts_small() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = TransformerConfig(d_model=64, n_layers=3, n_heads=4)
        network = TransformerSeq2SeqNetwork(config).requires_grad_(False)
    decoder, encoder = network.decoder.blocks[1], network.encoder.blocks[1]
    assert float(decoder.attention.project.weight.std()) == pytest.approx(1 / 8, rel=0.05)
    for added in (decoder.attention.output, decoder.cross_attention.output):
        assert float(added.weight.std()) == pytest.approx(1 / 8 / 3, rel=0.05)
    assert float(decoder.feedforward.contract.weight.std()) == pytest.approx(1 / 16 / 3, rel=0.05)
    assert float(encoder.feedforward.contract.weight.std()) == pytest.approx(1 / 16 / 6**0.5, rel=0.05)
    assert not encoder.feedforward.expand.bias.any()


@pytest.mark.parametrize("make", NETWORKS)
def test_dropout_is_in_training_only(make: Callable[..., Network]) -> None:
    network, x = build(make, dropout=0.5), draw(B, T, D)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        noisy, again = in_pieces(network, x, [T]), in_pieces(network, x, [T])
    network.eval()
    assert not torch.equal(noisy, again)
    torch.testing.assert_close(in_pieces(network, x, [T]), in_pieces(network, x, [T]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", NETWORKS)
def test_dropout_is_on_the_inputs_and_on_every_addition(make: Callable[..., Network]) -> None:
    network = build(make, dropout=1.0)
    hidden = in_pieces(network, draw(B, T, D), [T])
    # Of a stream that stayed zero.
    torch.testing.assert_close(hidden, network.decoder.final_norm.bias.expand(B, T, D), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", NETWORKS)
@pytest.mark.parametrize("norm", ["pre", "residual"])
@pytest.mark.parametrize("norm_type", ["layer", "rms"])
def test_layers_that_start_at_zero_add_nothing(make: Callable[..., Network], norm: Any, norm_type: Any) -> None:
    config = TransformerConfig(**SIZES, norm=norm, norm_type=norm_type, positions=None, zero_init=True)
    with torch.random.fork_rng(devices=[]):
        network = make(config).double()
    x = draw(B, T, D)
    torch.testing.assert_close(in_pieces(network, x, [T]), network.decoder.final_norm(x), rtol=0, atol=1e-12)
