from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqmodels.common.randomness import Dropout, InitialDraws, fit_generator, torch_dropout, training_draws
from seqmodels.neural.recurrent.lstm import lstm

CPU = torch.device("cpu")
MODULES: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(3, 4),
    "lstm": lambda: nn.LSTM(4, 4, 2),
    "embedding": lambda: nn.Embedding(5, 4),
    "convolution": lambda: nn.Conv1d(2, 3, 3),
    "orthogonal": lambda: nn.ParameterList([nn.init.orthogonal_(torch.empty(4, 4)), torch.rand(3), torch.randn(2)]),
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", MODULES)
def test_weights_are_those_of_the_seed_and_the_global_generator_stays(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = list(MODULES[name]().parameters())
        before, generator = torch.get_rng_state(), seeded(5)
        with InitialDraws(generator):
            found = list(MODULES[name]().parameters())
        assert all(map(torch.equal, found, expected))
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(generator.get_state(), before)  # as many draws


def test_replaced_functions_of_init_draw_from_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """``transformers`` replaces them while it makes a model."""
    with InitialDraws(seeded(5)):
        expected = nn.Linear(3, 4).weight
    original = nn.init.kaiming_uniform_

    @functools.wraps(original)
    def replaced(tensor: Tensor, *args: Any, generator: torch.Generator | None = None, **options: Any) -> Tensor:
        return original(tensor, *args, generator=generator, **options)

    monkeypatch.setattr(nn.init, "kaiming_uniform_", replaced)
    before = torch.get_rng_state()
    with InitialDraws(seeded(5)):
        assert torch.equal(nn.Linear(3, 4).weight, expected)
    assert torch.equal(torch.get_rng_state(), before)


def both_ways(draw: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """What is drawn from torch's generator, and within a fit."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        expected = draw()
        before = torch.get_rng_state()
        with training_draws(seeded(7), CPU):
            found = draw()
        assert torch.equal(torch.get_rng_state(), before)
    return found, expected


@pytest.mark.parametrize("draw", [lambda x: torch_dropout(x, 0.3), lambda x: Dropout(0.3)(x)])
def test_dropout_is_that_of_torch(draw: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(50, 7, generator=seeded(1))
    found, expected = both_ways(lambda: draw(x))
    assert torch.equal(found, expected)
    assert (found == 0).any()
    assert torch.equal(Dropout(0.3).eval()(x), x)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_layers_with_dropout_between_are_those_of_torch(bidirectional: bool, given: bool) -> None:
    ways = 1 + bidirectional
    with InitialDraws(seeded(2)):
        rnn, x = nn.LSTM(4, 5, 3, batch_first=True, dropout=0.4, bidirectional=bidirectional), torch.randn(6, 8, 4)
        states = (torch.randn(3 * ways, 6, 5), torch.randn(3 * ways, 6, 5)) if given else None

    def run() -> Tensor:
        hidden, after = lstm(rnn, x, states)
        rnn.zero_grad()
        (hidden.sum() + after[1].square().sum()).backward()
        slopes = [p.grad.flatten() for p in rnn.parameters() if p.grad is not None]
        return torch.cat([hidden.detach().flatten(), *(each.detach().flatten() for each in after), *slopes])

    found, expected = both_ways(run)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_compiled_code_draws_from_the_default_generator_which_is_put_back() -> None:
    before = torch.get_rng_state()
    drawn = []
    for _ in range(2):
        with training_draws(seeded(3), CPU, compiled=True) as generator:
            assert generator is torch.default_generator
            assert fit_generator() is None
            drawn.append(torch.rand(3))
    assert torch.equal(drawn[0], torch.rand(3, generator=seeded(3)))
    assert torch.equal(*drawn)
    assert torch.equal(torch.get_rng_state(), before)
