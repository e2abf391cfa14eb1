from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqmodels.neural.network import Network, select
from seqmodels.neural.ops.precision import autocast
from seqmodels.neural.ops.scan import Nonlinearity
from seqmodels.neural.recurrent.elman import ACTIVATIONS, ARRAY_ACTIVATIONS, ElmanNetwork
from seqmodels.neural.recurrent.gru import GRUNetwork
from seqmodels.neural.recurrent.lstm import LSTMNetwork
from seqmodels.neural.recurrent.stack import RecurrentOptions

B, T, D, L = 3, 7, 6, 2
MAKERS: dict[str, Callable[..., Network]] = {
    "tanh": lambda **options: ElmanNetwork(D, L, nonlinearity="tanh", **options),
    "relu": lambda **options: ElmanNetwork(D, L, nonlinearity="relu", **options),
    "relu6": lambda **options: ElmanNetwork(D, L, nonlinearity="relu6", **options),
    "sigmoid": lambda **options: ElmanNetwork(D, L, nonlinearity="sigmoid", **options),
    "lstm": lambda **options: LSTMNetwork(D, L, **options),
    "gru": lambda **options: GRUNetwork(D, L, **options),
}
TORCHS = {
    "tanh": lambda: nn.RNN(D, D, L, "tanh", batch_first=True),
    "relu": lambda: nn.RNN(D, D, L, "relu", batch_first=True),
    "lstm": lambda: nn.LSTM(D, D, L, batch_first=True),
    "gru": lambda: nn.GRU(D, D, L, batch_first=True),
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().double()


def in_pieces(network: Network, inputs: Tensor, sizes: list[int]) -> Tensor:
    state, pieces = network.start(len(inputs)), []
    for piece in inputs.split(sizes, 1):
        hidden, state = network(piece, state)
        pieces.append(hidden)
    return torch.cat(pieces, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", TORCHS)
def test_states_are_torchs(name: str, dtype: torch.dtype) -> None:
    ours, theirs = seeded(MAKERS[name]).to(dtype), seeded(TORCHS[name]).to(dtype)
    theirs.load_state_dict(ours.rnn.state_dict())
    x = draw(B, T, D).to(dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(ours(x, ours.start(B))[0], theirs(x)[0], rtol=0, atol=tolerance)


def test_relu6_is_relu_up_to_six() -> None:
    network, x = seeded(lambda: ElmanNetwork(D, nonlinearity="relu6")), 8 * draw(B, T, D)
    u, v, b, b_recurrent = network.rnn.all_weights[0]
    hidden, h = network(x, network.start(B))[0], torch.zeros(B, D, dtype=torch.float64)
    assert hidden.min() == 0
    assert hidden.max() == 6
    for t in range(T):
        h = (h @ v.T + x[:, t] @ u.T + b + b_recurrent).clamp(0, 6)
        torch.testing.assert_close(hidden[:, t], h, rtol=0, atol=1e-12)


def test_sigmoid_is_elmans_equation() -> None:
    network, x = seeded(lambda: ElmanNetwork(D, nonlinearity="sigmoid")), draw(B, T, D)
    u, v, b, b_recurrent = network.rnn.all_weights[0]
    hidden, h = network(x, network.start(B))[0], torch.zeros(B, D, dtype=torch.float64)
    for t in range(T):
        h = 1 / (1 + torch.exp(-(h @ v.T + x[:, t] @ u.T + b + b_recurrent)))
        torch.testing.assert_close(hidden[:, t], h, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sizes", [[1] * T, [3, 4]], ids=["one by one", "3 + 4"])
@pytest.mark.parametrize("name", MAKERS)
def test_steps_are_the_whole(name: str, sizes: list[int]) -> None:
    network, x = seeded(MAKERS[name]), draw(B, T, D)
    torch.testing.assert_close(in_pieces(network, x, sizes), in_pieces(network, x, [T]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_rows_of_a_table_are_read_as_inputs_are(name: str) -> None:
    network, table, rows = seeded(MAKERS[name]), draw(4, D).requires_grad_(), draw(B, T, seed=1).argsort(1) % 4
    before = tuple(draw(B, L, D, seed=2 + i) for i in range(len(network.start(B))))
    weights = [table, *network.parameters()]
    found, expected = network.forward_rows(table, rows, before), network(table[rows], before)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(hidden.pow(2).sum(), weights) for hidden, _ in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", MAKERS)
def test_the_future_does_not_change_the_past(name: str) -> None:
    network, x = seeded(MAKERS[name]), draw(B, T, D)
    other = torch.cat([x[:, :4], draw(B, T - 4, D, seed=9)], 1)
    before, after = in_pieces(network, x, [T]), in_pieces(network, other, [T])
    torch.testing.assert_close(before[:, :4], after[:, :4], rtol=1e-12, atol=1e-12)
    assert not torch.equal(before[:, 4:], after[:, 4:])


@pytest.mark.parametrize("name", MAKERS)
def test_memory_has_the_batch_first_and_can_be_selected(name: str) -> None:
    network, x, rows = seeded(MAKERS[name]), draw(B, T, D), torch.tensor([2, 0, 2, 1])
    _, state = network(x[:, :3], network.start(B))
    assert all(part.shape == (B, L, D) for part in state)
    expected, _ = network(x[:, 3:], state)
    found, _ = network(x[rows, 3:], select(state, rows))
    torch.testing.assert_close(found, expected[rows], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_every_parameter_gets_a_gradient(name: str) -> None:
    network = seeded(MAKERS[name])
    network(draw(B, T, D), network.start(B))[0].pow(2).sum().backward()
    flat = [n for n, parameter in network.named_parameters() if parameter.grad is None or not parameter.grad.any()]
    assert flat == []


@pytest.mark.parametrize("name", MAKERS)
def test_dropout_is_between_layers_and_on_the_output_in_training_only(name: str) -> None:
    network, plain, x = seeded(lambda: MAKERS[name](dropout=0.5)), seeded(MAKERS[name]), draw(B, T, D)
    network.load_state_dict(plain.state_dict())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        noisy, (state, *_) = network(x, network.start(B))
    clean, (exact, *_) = plain(x, plain.start(B))
    assert ((noisy == 0) & (clean != 0)).any()
    # Nothing is dropped on the way through time.
    torch.testing.assert_close(state[:, 0], exact[:, 0], rtol=1e-12, atol=1e-12)
    assert not torch.equal(state[:, 1], exact[:, 1])
    torch.testing.assert_close(in_pieces(network.eval(), x, [T]), in_pieces(plain, x, [T]), rtol=1e-12, atol=1e-12)


def test_forget_gates_start_open() -> None:
    network = seeded(lambda: LSTMNetwork(D, L))
    for _, _, b, b_recurrent in network.rnn.all_weights:
        assert torch.equal((b + b_recurrent)[D : 2 * D], torch.ones(D, dtype=torch.float64))
        assert (b[:D] != 1).all()


def test_elmans_recurrence_starts_orthogonal() -> None:
    with torch.random.fork_rng(devices=[]):
        network = ElmanNetwork(D, L)
    for _, v, *_ in network.rnn.all_weights:
        torch.testing.assert_close(v @ v.T, torch.eye(D))


def test_with_the_sigmoid_it_starts_as_with_tanh() -> None:
    sigmoid, tanh, x = seeded(MAKERS["sigmoid"]), seeded(MAKERS["tanh"]), draw(B, T, D)
    middle = torch.full((B, L, D), 0.5, dtype=torch.float64)
    hidden, _ = tanh(x, tanh.start(B))
    torch.testing.assert_close(sigmoid(x, (middle,))[0], (1 + hidden) / 2, rtol=0, atol=1e-6)


def test_an_unknown_nonlinearity_is_refused() -> None:
    with pytest.raises(ValueError, match="nonlinearity is 'gelu'"):
        ElmanNetwork(D, nonlinearity="gelu")  # type: ignore[arg-type]


@pytest.mark.parametrize("layer_norm", [False, True])
def test_an_lstm_in_bfloat16_is_one_in_float32_where_the_processor_has_no_kernel(
    layer_norm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqmodels.neural.ops.precision.has_kernels_for_bfloat16", lambda: False)
    network = seeded(lambda: LSTMNetwork(D, L, options=RecurrentOptions(layer_norm=layer_norm))).float()
    inputs, state = draw(B, T, D).float(), (draw(B, L, D, seed=1).float(), draw(B, L, D, seed=2).float())
    expected = network(inputs, state)
    with autocast(inputs.device, torch.bfloat16):
        found = network(inputs, state)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)  # bfloat16 itself rounds by 4e-3


@pytest.mark.parametrize("nonlinearity", ACTIVATIONS)
def test_activations_of_arrays_are_those_of_tensors(nonlinearity: Nonlinearity) -> None:
    z = torch.linspace(-50, 50, 1001, dtype=torch.float64)
    found = ARRAY_ACTIVATIONS[nonlinearity](z.numpy())
    np.testing.assert_allclose(found, ACTIVATIONS[nonlinearity](z), rtol=1e-12, atol=1e-15)
