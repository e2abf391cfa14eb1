"""What options do to a recurrent network in training, and that nothing of it is left when it scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import seqmodels as sm
from seqmodels.neural.recurrent.elman import ElmanNetwork
from seqmodels.neural.recurrent.gru import GRUNetwork
from seqmodels.neural.recurrent.lstm import LSTMNetwork
from seqmodels.neural.recurrent.stack import KernelNetwork, RecurrentOptions

B, T, D, L = 3, 9, 16, 2
DROPS = ("recurrent_dropout", "embedding_dropout", "weight_drop")
MAKERS: dict[str, Callable[..., KernelNetwork]] = {
    "tanh": lambda **options: ElmanNetwork(D, L, nonlinearity="tanh", options=RecurrentOptions(**options)),
    "relu": lambda **options: ElmanNetwork(D, L, nonlinearity="relu", options=RecurrentOptions(**options)),
    "sigmoid": lambda **options: ElmanNetwork(D, L, nonlinearity="sigmoid", options=RecurrentOptions(**options)),
    "lstm": lambda **options: LSTMNetwork(D, L, options=RecurrentOptions(**options)),
    "gru": lambda **options: GRUNetwork(D, L, options=RecurrentOptions(**options)),
}
networks = pytest.mark.parametrize("name", MAKERS)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


X = draw(B, T, D)


def build(name: str, **options: Any) -> KernelNetwork:
    """The same weights whatever the options."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MAKERS[name](**options).double()


def run(network: KernelNetwork, x: Tensor = X, seed: int = 1) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network(x, network.start(len(x)))[0]


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "sigmoid"])  # torch has no kernel of it
def test_layer_by_layer_is_the_fused_kernel(name: str) -> None:
    network, states = build(name), tuple(draw(L, B, D, seed=2 + i) for i in range(build(name).n_states))
    found = network.layer_by_layer(network.layers(), X, states)
    torch.testing.assert_close(found, network.all_layers(X, states), rtol=0, atol=1e-12)


def test_with_all_off_a_fused_kernel_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    network, zeros = build("lstm"), torch.zeros(L, B, D).double()
    monkeypatch.setattr(KernelNetwork, "layer_by_layer", None)  # to call it would fail
    torch.testing.assert_close(run(network), network.rnn(X, (zeros, zeros))[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("drop", DROPS)
@networks
def test_dropping_is_for_training_alone(name: str, drop: str) -> None:
    plain, dropping = build(name), build(name, **{drop: 0.4})
    assert dropping.state_dict().keys() == plain.state_dict().keys()
    noisy = run(dropping)
    assert not torch.equal(noisy, run(dropping, seed=2))
    torch.testing.assert_close(noisy, run(dropping), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(run(dropping.eval()), run(plain), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("drop", DROPS)
def test_means_stay(drop: str) -> None:
    """Over many masks, of all that is masked."""
    options = RecurrentOptions(**{drop: 0.3})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        v, ones = torch.ones(D, D), torch.ones(B, T, D)
        means = [
            torch.stack([f(value, True) for _ in range(400)]).mean()
            for f, value in ((options.drop_weights, v), (options.variational_dropout, ones), (options.drop_steps, ones))
        ]
    assert all(abs(float(mean) - 1) < 0.05 for mean in means)


def test_recurrent_dropout_drops_the_same_features_and_states_at_all_steps() -> None:
    options = RecurrentOptions(recurrent_dropout=0.5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        steps, v = (
            options.variational_dropout(torch.ones(B, T, D), True),
            options.drop_weights(torch.ones(4 * D, D), True),
        )
    assert torch.equal(steps, steps[:, :1].expand(B, T, D))
    assert not torch.equal(steps[0], steps[1])
    assert set(steps.unique().tolist()) == set(v.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(v, v[:1].expand(4 * D, D))  # a state is gone for every gate, or for none


def test_a_column_dropped_is_a_state_dropped() -> None:
    """A matrix with dropped columns is the recurrence with masked states (Gal & Ghahramani's equation)."""
    network = build("tanh")
    u, v, b, b_recurrent = network.rnn.all_weights[0]
    mask = F.dropout(torch.ones(D).double(), 0.5)
    found, _ = network.one_layer(X, (torch.zeros(1, B, D).double(),), weights=(u, v * mask, b, b_recurrent))
    h = torch.zeros(B, D).double()
    for t in range(T):
        h = torch.tanh(X[:, t] @ u.T + (h * mask) @ v.T + b + b_recurrent)
        torch.testing.assert_close(found[:, t], h, rtol=0, atol=1e-12)


def test_weight_drop_drops_weights_and_embedding_dropout_steps() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        v = RecurrentOptions(weight_drop=0.5).drop_weights(torch.ones(4 * D, D), True)
        x = RecurrentOptions(embedding_dropout=0.5).drop_steps(torch.ones(B, T, D), True)
    assert set(v.unique().tolist()) == set(x.unique().tolist()) == {0.0, 2.0}
    assert abs(float((v == 0).float().mean()) - 0.5) < 0.06
    assert ((v == 0).any(0) & (v != 0).any(0)).all()
    assert torch.equal(x, x[..., :1].expand(B, T, D))
    assert len(x[..., 0].unique(dim=0)) > 1


@networks
def test_each_layer_is_normalised_and_adds_to_the_one_below(name: str) -> None:
    network = build(name, layer_norm=True, residual=True)
    for norm in network.norms:
        nn.init.normal_(norm.weight)
    below, zero = X, tuple(torch.zeros(1, B, D).double() for _ in range(network.n_states))
    for layer, weights in enumerate(network.rnn.all_weights):
        hidden, _ = network.one_layer(below, zero, weights=tuple(weights))
        scaled = (hidden - hidden.mean(-1, keepdim=True)) / (hidden.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        scaled = scaled * network.norms[layer].weight + network.norms[layer].bias
        below = scaled if layer == 0 else below + scaled
    torch.testing.assert_close(run(network.eval()), below, rtol=0, atol=1e-12)


@pytest.mark.parametrize("drops", [*((drop,) for drop in DROPS), DROPS], ids="+".join)
@networks
def test_rows_of_a_table_are_dropped_as_inputs_are(name: str, drops: tuple[str, ...]) -> None:
    """By the same draws: each sequence, each step of it has its own."""
    network = build(name, **dict.fromkeys(drops, 0.3), layer_norm=True, residual=True)
    table, rows, start = draw(4, D), torch.arange(B * T).view(B, T) % 4, network.start(B)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        found, _ = network.forward_rows(table, rows, start)
    expected = run(network, table[rows])
    if drops == ("weight_drop",):  # the one case in which the rows are projected before they are looked up
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    else:
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sizes", [[1] * T, [4, 5]], ids=["one by one", "4 + 5"])
@networks
def test_steps_are_the_whole(name: str, sizes: list[int]) -> None:
    network = build(name, layer_norm=True, residual=True, recurrent_dropout=0.3, weight_drop=0.3).eval()
    memory, pieces = network.start(B), []
    for piece in X.split(sizes, 1):
        hidden, memory = network(piece, memory)
        pieces.append(hidden)
    torch.testing.assert_close(torch.cat(pieces, 1), run(network), rtol=0, atol=1e-12)


@pytest.mark.parametrize("model", [sm.ElmanRNN, sm.LSTM, sm.GRU])
def test_models_hand_their_options_on(model: type[sm.LSTM]) -> None:
    options = dict(zip(DROPS, (0.1, 0.2, 0.3), strict=True)) | {"layer_norm": True, "residual": True}
    architecture = sm.neural.RecurrentArchitecture(**options)
    training = sm.training.GradientTraining(precision="bfloat16")
    fitted = model(d_model=8, n_layers=2, max_steps=3, architecture=architecture, training=training)
    fitted.fit(["to be or not"])
    network = fitted.module_.network
    assert isinstance(network, KernelNetwork)
    assert network.options == RecurrentOptions(**options)


@pytest.mark.parametrize("drop", DROPS)
def test_fractions_that_cannot_be(drop: str) -> None:
    model = sm.LSTM(d_model=8, max_steps=2).fit(["to be"])
    before = model.score(["to be"])
    for fraction in (-0.1, 1.0):
        with pytest.raises(ValueError, match=rf"{drop} is {fraction}; pass a fraction from 0 up to 1"):
            model.set_params(**{f"architecture__{drop}": fraction}).fit(["to be"])
    assert model.score(["to be"]) == pytest.approx(before, rel=1e-5)
