from pathlib import Path

import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor
from torch.nn import functional as F

import seqmodels as sm
from seqmodels.common import storage
from seqmodels.neural.network import Source, select
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.incremental import TransformerState
from seqmodels.neural.transformer.network import TransformerNetwork, TransformerSeq2SeqNetwork
from seqmodels.neural.transformer.short_convolution import IncrementalConvolution, ShortConvolution

B, T, D = 3, 7, 4
R = 5  # rows of a table of inputs


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def network() -> TransformerNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TransformerNetwork(
            TransformerConfig(d_model=D, n_layers=2, n_heads=2, dropout=0.0), convolution_lags=2
        ).double()


def in_pieces(network: TransformerNetwork, x: Tensor, sizes: list[int]) -> tuple[Tensor, TransformerState]:
    state, pieces = network.start(len(x)), []
    for piece in x.split(sizes, 1):
        hidden, state = network(piece, state)
        pieces.append(hidden)
    return torch.cat(pieces, 1), state


@pytest.mark.parametrize("n", [1, 3, T + 2])
def test_it_is_a_convolution_over_zeros_and_the_step_itself(n: int) -> None:
    layer, x = ShortConvolution(D, n).double(), draw(B, T, D)
    found, recent = layer(x, layer.start(B))
    assert layer.map is not None
    kernel = layer.map.weight.view(D, n, D).transpose(1, 2).flip(2)  # (out, in, n), the most distant first
    padded = F.pad(x.transpose(1, 2), (n, 0))
    expected = x + F.conv1d(padded[..., :-1], kernel).transpose(1, 2)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert torch.equal(recent, padded[..., -n:].transpose(1, 2))


def test_without_previous_inputs_stay_as_they_are() -> None:
    layer, x = ShortConvolution(D, 0), draw(B, T, D)
    found, recent = layer(x, layer.start(B))
    assert found is x
    assert recent.shape == (B, 0, D)
    assert not list(layer.parameters())


def test_fewer_than_none_are_refused() -> None:
    with pytest.raises(ValueError, match="convolution_lags is -1; pass"):
        sm.Transformer(convolution_lags=-1, max_steps=1).fit([[0, 1, 2]], validation=None)


@pytest.mark.parametrize("sizes", [[1] * T, [3, 4], [2, 1, 3, 1]], ids=str)
@pytest.mark.parametrize("learning", [False, True], ids=["in place", "joined"])
def test_steps_are_the_whole(network: TransformerNetwork, sizes: list[int], learning: bool) -> None:
    x = draw(B, T, D)
    with torch.set_grad_enabled(learning):
        found, expected = in_pieces(network, x, sizes)[0], in_pieces(network, x, [T])[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_the_future_does_not_change_the_past(network: TransformerNetwork) -> None:
    x, other = draw(B, T, D), draw(B, T, D, seed=1)
    other[:, :4] = x[:, :4]
    before, after = in_pieces(network, x, [T])[0], in_pieces(network, other, [T])[0]
    torch.testing.assert_close(before[:, :4], after[:, :4], rtol=1e-12, atol=1e-12)
    assert not torch.equal(before[:, 4:], after[:, 4:])


@torch.no_grad()
def test_a_state_is_a_value(network: TransformerNetwork) -> None:
    x, index = draw(B, T, D), torch.tensor([2, 0])
    _, state = in_pieces(network, x[:, :4], [1, 3])
    first, second = network(x[:, 4:], state)[0], network(x[:, 4:], state)[0]
    torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-12)
    chosen = network(x[index, 4:], select(state, index))[0]
    torch.testing.assert_close(chosen, first[index], rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 3])
def test_gradients_come_from_every_distance(n: int) -> None:
    layer, x, recent = (
        ShortConvolution(2, n).double(),
        draw(2, 4, 2).requires_grad_(),
        draw(2, n, 2, seed=1).requires_grad_(),
    )
    assert torch.autograd.gradcheck(lambda x, recent: layer(x, recent), (x, recent), nondet_tol=1e-12)


@torch.no_grad()
def test_an_encoder_and_its_decoder_mix_apart_and_padding_is_not_mixed_in() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = TransformerConfig(d_model=D, n_layers=2, n_heads=2, dropout=0.0)
        both = TransformerSeq2SeqNetwork(config, convolution_lags=2).double()
    x, source, mask = draw(B, T, D), draw(B, 5, D, seed=1), torch.arange(5) < torch.tensor([[5], [3], [1]])
    whole = both(x, both.start(B, Source(source, mask)))[0]
    state, pieces = both.start(B, Source(source.masked_fill(~mask[..., None], torch.nan), mask)), []
    for piece in x.split([3, 1, 3], 1):
        hidden, state = both(piece, state)
        pieces.append(hidden)
    torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=0, atol=1e-12)
    for i, n in enumerate((5, 3, 1)):
        alone = Source(source[i : i + 1, :n], torch.ones(1, n, dtype=torch.bool))
        torch.testing.assert_close(both(x[i : i + 1], both.start(1, alone))[0], whole[i : i + 1], rtol=0, atol=1e-12)
    for part in (both.previous, both.source_previous):
        assert part.map is not None
        before = part.map.weight.clone()
        part.map.weight.zero_()
        assert not torch.equal(both(x, both.start(B, Source(source, mask)))[0], whole)
        part.map.weight.copy_(before)


# -- step by step -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_previous", [0, 1, 3])
def test_step_by_step_as_at_once(n_previous: int) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2, 7, D, dtype=torch.float64, generator=generator)
    previous = ShortConvolution(D, n_previous).double()
    with torch.no_grad():
        steps_of, expected = IncrementalConvolution(previous, inputs), previous(inputs, previous.start(2))[0]
        projected = steps_of.input_map(inputs.flatten(0, 1)).unflatten(0, (2, 7))
        for begun in (0, 2):  # from nothing, and from what was read at once
            found, pending = steps_of.first_steps(inputs[:, :begun])
            steps = [*found.unbind(1)]
            for step in projected[:, begun:].unbind(1):
                x, pending = steps_of(step.clone(), pending)
                steps.append(x)
            torch.testing.assert_close(torch.stack(steps, 1), expected, rtol=0, atol=1e-12)
        _, recent = previous(inputs, previous.start(2))
        torch.testing.assert_close(steps_of.pending_after(recent), pending, rtol=0, atol=1e-12)


@pytest.mark.parametrize("model", [sm.Transformer(context=4), sm.TransformerSeq2Seq()], ids=["decoder", "seq2seq"])
def test_a_file_of_before_says_previous(model: sm.SequenceModel, tmp_path: Path) -> None:
    model.set_params(d_model=D, n_layers=1, convolution_lags=1, max_steps=1)
    x = [[0, 1, 2, 1], [1, 2, 0]]
    data = (x, x) if isinstance(model, sm.TransformerSeq2Seq) else (x,)
    model.fit(*data, validation=None).save(tmp_path / "model.safetensors")
    content = storage.read(tmp_path / "model.safetensors")
    parameters = content["model"]["params"]
    assert "previous" not in parameters
    parameters["previous"] = parameters.pop("convolution_lags")
    storage.write(tmp_path / "before.safetensors", content)
    loaded = sm.load(tmp_path / "before.safetensors")
    assert repr(loaded) == repr(model)
    assert_allclose(loaded.log_prob(*data), model.log_prob(*data), rtol=1e-5)
