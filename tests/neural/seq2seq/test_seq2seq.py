from itertools import product

import pytest
import torch
from torch import Tensor, nn

from seqmodels.neural.network import Source, select
from seqmodels.neural.seq2seq.attention import AdditiveAttention
from seqmodels.neural.seq2seq.encoder import LSTMEncoder
from seqmodels.neural.seq2seq.network import LSTMSeq2SeqNetwork
from tests.neural.seq2seq.attentions import WITH_EARLIER_WEIGHTS, WITHOUT_EARLIER_WEIGHTS

B, S, T, D = 3, 5, 7, 6
MASK = torch.arange(S) < torch.tensor([[5], [2], [3]])
MAKERS = WITHOUT_EARLIER_WEIGHTS | {
    name: WITH_EARLIER_WEIGHTS[name] for name in ("additive coverage", "location", "general coverage")
}
CASES = [
    *product(["additive", "multiplicative", None], ["last", "mean"], [True, False], ["previous"], [2]),
    *product(MAKERS, ["last"], [True], ["previous", "current"], [1]),
]
case = pytest.mark.parametrize(("attention", "summary", "bidirectional", "query", "n_layers"), CASES)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


SOURCE = Source(draw(B, S, D, seed=5), MASK)


def build(
    attention: str | None, summary: str = "last", bidirectional: bool = True, query: str = "previous", n_layers: int = 2
) -> LSTMSeq2SeqNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = None if attention is None else MAKERS[attention](D)
        network = LSTMSeq2SeqNetwork(
            D, n_layers, attention=made, summary=summary, bidirectional=bidirectional, query=query
        ).double()
        if made is not None and getattr(made, "cover", None) is not None:
            nn.init.constant_(made.cover, 0.7)
        return network


def in_pieces(network: LSTMSeq2SeqNetwork, inputs: Tensor, sizes: list[int], source: Source = SOURCE) -> Tensor:
    memory, pieces = network.start(len(inputs), source), []
    for piece in inputs.split(sizes, 1):
        hidden, memory = network(piece, memory)
        pieces.append(hidden)
    return torch.cat(pieces, 1)


@pytest.mark.quick_cases(14)
@pytest.mark.parametrize("sizes", [[1] * T, [3, 4]], ids=["one by one", "3 + 4"])
@case
def test_steps_are_the_whole(
    attention: str | None, summary: str, bidirectional: bool, query: str, n_layers: int, sizes: list[int]
) -> None:
    network, x = build(attention, summary, bidirectional, query, n_layers), draw(B, T, D)
    whole = in_pieces(network, x, [T])
    assert whole.shape == (B, T, D)
    torch.testing.assert_close(in_pieces(network, x, sizes), whole, rtol=0, atol=1e-12)


@pytest.mark.quick_cases(9)
@case
def test_padding_of_the_source_has_no_influence(
    attention: str | None, summary: str, bidirectional: bool, query: str, n_layers: int
) -> None:
    network, x = build(attention, summary, bidirectional, query, n_layers), draw(B, T, D)
    together = in_pieces(network, x, [T])
    noise = draw(B, S + 2, D, seed=8)
    longer = torch.cat([MASK, torch.zeros(B, 2, dtype=torch.bool)], 1)
    noise[:, :S] = torch.where(MASK[..., None], SOURCE.values, torch.nan)
    torch.testing.assert_close(in_pieces(network, x, [T], Source(noise, longer)), together, rtol=0, atol=1e-12)
    for i, length in enumerate(MASK.sum(1).tolist()):
        alone = Source(SOURCE.values[i : i + 1, :length], MASK[i : i + 1, :length])
        torch.testing.assert_close(in_pieces(network, x[i : i + 1], [T], alone)[0], together[i], rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.parametrize("attention", [*MAKERS, None])
def test_padding_of_the_source_leaves_gradients_finite(attention: str | None, query: str, n_layers: int) -> None:
    network = build(attention, query=query, n_layers=n_layers)
    padded = Source(SOURCE.values.masked_fill(~MASK[..., None], torch.nan), MASK)
    in_pieces(network, draw(B, T, D), [T], padded).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.parametrize("attention", [*MAKERS, None])
def test_the_future_does_not_change_the_past(attention: str | None, query: str, n_layers: int) -> None:
    network, x = build(attention, query=query, n_layers=n_layers), draw(B, T, D)
    other = torch.cat([x[:, :4], draw(B, T - 4, D, seed=9)], 1)
    before, after = in_pieces(network, x, [T]), in_pieces(network, other, [T])
    torch.testing.assert_close(before[:, :4], after[:, :4], rtol=1e-12, atol=1e-12)
    assert not torch.equal(before[:, 4:], after[:, 4:])


@pytest.mark.quick_cases(14)
@case
def test_every_parameter_gets_a_gradient(
    attention: str | None, summary: str, bidirectional: bool, query: str, n_layers: int
) -> None:
    network = build(attention, summary, bidirectional, query, n_layers)
    in_pieces(network, draw(B, T, D), [T]).pow(2).sum().backward()
    flat = [n for n, p in network.named_parameters() if p.grad is None or p.grad.norm() < 1e-12]
    assert flat == []


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.parametrize("attention", [*MAKERS, None])
def test_memory_has_the_batch_first_and_can_be_selected(attention: str | None, query: str, n_layers: int) -> None:
    network, x, rows = build(attention, query=query, n_layers=n_layers), draw(B, T, D), torch.tensor([2, 0, 2, 1])
    _, memory = network(x[:, :3], network.start(B, SOURCE))
    expected, _ = network(x[:, 3:], memory)
    found, _ = network(x[rows, 3:], select(memory, rows))
    torch.testing.assert_close(found, expected[rows], rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("attention", MAKERS)
def test_the_decoder_is_bahdanaus(attention: str, n_layers: int) -> None:
    network, x = build(attention, n_layers=n_layers), draw(B, T, D)
    memory = network.start(B, SOURCE)
    h, c, past, key, value, mask = memory
    hidden, _ = network(x, memory)
    weights = network.attention_weights(x, memory)
    layers = [(h[:, i], c[:, i]) for i in range(n_layers)]
    for t in range(T):
        # the state before this step asks
        context, weight = network.attention(layers[-1][0][:, None], key, value, mask, past)
        past = network.attention.add_weights(past, weight[:, 0])
        torch.testing.assert_close(weights[:, t], weight[:, 0], rtol=0, atol=1e-12)
        below = torch.cat([x[:, t], context[:, 0]], -1)
        for i, (u, v, b, b_recurrent) in enumerate(network.decoder.all_weights):
            gates = below @ u.T + layers[i][0] @ v.T + b + b_recurrent
            write, forget, new, out = gates.chunk(4, -1)
            cell = forget.sigmoid() * layers[i][1] + write.sigmoid() * new.tanh()
            below = out.sigmoid() * cell.tanh()
            layers[i] = (below, cell)
        expected = below + network.readout(torch.cat([below, context[:, 0]], -1))
        torch.testing.assert_close(hidden[:, t], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("attention", MAKERS)
def test_under_a_current_query_the_decoder_is_luongs(attention: str) -> None:
    network, x = build(attention, query="current", n_layers=1), draw(B, T, D)
    h, c, past, key, value, mask = network.start(B, SOURCE)
    hidden, _ = network(x, (h, c, past, key, value, mask))
    states, _ = network.decoder(x, (h.transpose(0, 1), c.transpose(0, 1)))  # reads no context
    for t in range(T):
        context, weight = network.attention(states[:, t : t + 1], key, value, mask, past)
        past = network.attention.add_weights(past, weight[:, 0])
        expected = states[:, t] + network.readout(torch.cat([states[:, t], context[:, 0]], -1))
        torch.testing.assert_close(hidden[:, t], expected, rtol=0, atol=1e-12)


def test_without_attention_the_summary_is_fed_at_every_step() -> None:
    network, x = build(None), draw(B, T, D)
    h, c, summary = network.start(B, SOURCE)
    torch.testing.assert_close(summary, network.encoder(SOURCE.values, MASK)[1], rtol=0, atol=1e-12)
    context = summary[:, None].expand(B, T, D)
    states, _ = network.decoder(
        torch.cat([x, context], -1), (h.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous())
    )
    expected = states + network.readout(torch.cat([states, context], -1))
    torch.testing.assert_close(network(x, (h, c, summary))[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("query", ["previous", "current"])
@pytest.mark.parametrize("attention", MAKERS)
def test_weights_are_a_distribution_over_the_real_source(attention: str, query: str) -> None:
    network, x = build(attention, query=query, n_layers=1), draw(B, T, D)
    weights = network.attention_weights(x, network.start(B, SOURCE))
    assert weights.shape == (B, T, S)
    assert (weights.masked_select(~MASK[:, None]) == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, T, dtype=torch.float64), rtol=0, atol=1e-12)


def test_the_decoder_starts_from_the_summary_over_the_bridge() -> None:
    network = build("additive")
    _, summary = network.encoder(SOURCE.values, MASK)
    h, c, *_ = network.start(B, SOURCE)
    bridged = network.bridge(summary)
    torch.testing.assert_close(h.flatten(1), bridged[:, : 2 * D].tanh(), rtol=0, atol=1e-14)
    torch.testing.assert_close(c.flatten(1), bridged[:, 2 * D :], rtol=0, atol=1e-14)


def test_projections_are_optional() -> None:
    plain, projected = build("dot"), build("multiplicative")
    assert list(plain.attention.parameters()) == []
    assert sum(parameter.numel() for parameter in projected.attention.parameters()) == 3 * D * D + 2 * D


def test_keys_are_projected_once() -> None:
    network, calls = build("additive"), []
    network.attention.key.register_forward_hook(lambda *_: calls.append(1))
    in_pieces(network, draw(B, T, D), [3, 4])
    assert calls == [1]


@pytest.mark.parametrize("bidirectional", [True, False])
def test_summaries_are_the_ends_and_the_mean(bidirectional: bool) -> None:
    with torch.random.fork_rng(devices=[]):
        encoder = LSTMEncoder(D, 1, bidirectional=bidirectional, summary="last", dropout=0.0).double()
    states, last = encoder(SOURCE.values, MASK)
    encoder.summary = "mean"
    _, mean = encoder(SOURCE.values, MASK)
    for i, length in enumerate(MASK.sum(1).tolist()):
        raw, _ = encoder.lstm(SOURCE.values[i : i + 1, :length])
        ends = torch.cat([raw[0, -1, :D], raw[0, 0, D:]])
        torch.testing.assert_close(states[i, :length], encoder.combine(raw[0]), rtol=0, atol=1e-12)
        torch.testing.assert_close(last[i], encoder.combine(ends), rtol=0, atol=1e-12)
        torch.testing.assert_close(mean[i], encoder.combine(raw[0]).mean(0), rtol=0, atol=1e-12)


def test_forget_gates_start_open_in_both_directions() -> None:
    network = build("additive")
    for lstm in (network.encoder.lstm, network.decoder):
        for _, _, b, b_recurrent in lstm.all_weights:
            assert torch.equal((b + b_recurrent)[D : 2 * D], torch.ones(D, dtype=torch.float64))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="attention=None has no weights"):
        build(None).attention_weights(draw(B, T, D), build(None).start(B, SOURCE))
    with pytest.raises(ValueError, match="query is 'next'"):
        build("additive", query="next")
    with pytest.raises(ValueError, match="summary is 'max'"):
        build("additive", "max")


def test_dropout_is_in_training_only() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network: nn.Module = LSTMSeq2SeqNetwork(D, 2, attention=AdditiveAttention(D), dropout=0.5).double()
        x = draw(B, T, D)
        noisy = in_pieces(network, x, [T])
    network.eval()
    assert 0.2 < (noisy == 0).double().mean() < 0.8
    torch.testing.assert_close(in_pieces(network, x, [T]), in_pieces(network, x, [T]), rtol=1e-12, atol=1e-12)
