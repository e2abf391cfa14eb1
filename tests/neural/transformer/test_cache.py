"""The cache is a value, whatever is written in place below it, and does not copy itself at every step."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from seqmodels.neural.batches import Windowing
from seqmodels.neural.cursor import NetworkCursor
from seqmodels.neural.network import select
from seqmodels.neural.transformer.cache import FIRST_CAPACITY, CacheUpdate, FillLevel, cached_length, plan_update
from seqmodels.neural.transformer.config import TransformerConfig
from seqmodels.neural.transformer.incremental import TransformerState
from seqmodels.neural.transformer.network import TransformerNetwork

N, H, D = 2, 2, 4


def steps(length: int, seed: int = 0) -> Tensor:
    return torch.randn(N, H, length, D, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def network() -> TransformerNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = TransformerConfig(d_model=8, n_layers=2, n_heads=2, dropout=0.0, positions="rotary")
        return TransformerNetwork(config).double()


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def buffers_of(memory: TransformerState) -> list[int]:
    return [part.data_ptr() for layer in memory[0][0] for part in layer]


def walk(network: TransformerNetwork, memory: TransformerState, x: Tensor) -> Tensor:
    """Hidden states of these inputs, one by one."""
    hidden = []
    for step in x.split(1, 1):
        out, memory = network(step, memory)
        hidden.append(out)
    return torch.cat(hidden, 1)


@torch.no_grad()
def test_a_state_advanced_twice_gives_the_same_twice(network: TransformerNetwork) -> None:
    x, left, right = draw(N, 3, 8), draw(N, 4, 8, seed=1), draw(N, 4, 8, seed=2)
    _, memory = network(x[:, :2], network.start(N))
    _, memory = network(x[:, 2:], memory)  # from here on there is room behind the last step
    first = walk(network, memory, left)
    second = walk(network, memory, right)
    expected = network(torch.cat([x, left], 1), network.start(N))[0][:, 3:]
    torch.testing.assert_close(first, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        second, network(torch.cat([x, right], 1), network.start(N))[0][:, 3:], rtol=0, atol=1e-12
    )
    torch.testing.assert_close(walk(network, memory, left), first, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_interleaved_branches_do_not_meet(network: TransformerNetwork) -> None:
    x = draw(N, 3, 8)
    _, root = network(x, network.start(N))
    _, root = network(x[:, :1], root)
    states = [root, root, select(root, torch.tensor([1, 0]))]
    history = [torch.cat([x, x[:, :1]], 1)] * 2 + [torch.cat([x, x[:, :1]], 1).flip(0)]
    for k in range(3):
        for i in range(3):
            step = draw(N, 1, 8, seed=10 * k + i)
            hidden, states[i] = network(step, states[i])
            history[i] = torch.cat([history[i], step], 1)
            expected = network(history[i], network.start(N))[0][:, -1:]
            torch.testing.assert_close(hidden, expected, rtol=0, atol=1e-12)


@torch.no_grad()
def test_beams_are_independent_copies(network: TransformerNetwork) -> None:
    _, memory = network(draw(N, 3, 8), network.start(N))
    _, memory = network(draw(N, 1, 8, seed=1), memory)
    beams, step = select(memory, torch.tensor([0, 0, 1])), draw(3, 1, 8, seed=2)
    before = network(step, beams)[0]
    walk(network, memory, draw(N, 5, 8, seed=3))
    torch.testing.assert_close(network(step, beams)[0], before, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_steps_are_written_in_place_and_buffers_double(network: TransformerNetwork) -> None:
    _, memory = network(draw(N, 1, 8), network.start(N))
    seen = []
    for k in range(3 * FIRST_CAPACITY):
        _, memory = network(draw(N, 1, 8, seed=k), memory)
        seen.append(tuple(buffers_of(memory)))
    assert cached_length(memory[0]) == 3 * FIRST_CAPACITY + 1
    assert len(set(seen)) == 3  # of 64, 130 and 262 steps
    assert memory[0][0][0][0].shape == (N, 2, 2 * (2 * FIRST_CAPACITY + 3), 4)


def test_the_longest_sequence_bounds_the_capacity_until_it_is_passed() -> None:
    layers = ((steps(5), steps(5)),)
    with torch.no_grad():
        assert plan_update((layers, 5, FillLevel(5)), 1)[0].capacity == FIRST_CAPACITY
        assert plan_update((layers, 5, FillLevel(5)), 1, max_length=10)[0].capacity == 10
        assert plan_update((layers, 5, FillLevel(5)), 1, max_length=4)[0].capacity == FIRST_CAPACITY


def test_only_the_last_state_of_a_buffer_may_write_behind_itself() -> None:
    buffer, fill = (steps(8), steps(8)), FillLevel(6)
    with torch.no_grad():
        assert not plan_update(((buffer,), 5, fill), 1)[0].in_place  # somebody wrote step 5 before
        assert not plan_update(((buffer,), 6, fill), 3)[0].in_place  # no room for three
        assert plan_update(((buffer,), 6, fill), 2)[0].in_place
        assert fill.steps == 8
    assert not plan_update(((buffer,), 8, fill), 0)[0].in_place  # a gradient needs what was there


def test_without_a_past_nothing_is_copied_and_gradients_flow_through_one() -> None:
    new = (steps(3), steps(3, 1))
    update, _ = plan_update(None, 3)
    assert update.write(None, new) is new
    assert update.steps_from(0, new) is new
    past = (steps(2, 2).requires_grad_(), steps(2, 3).requires_grad_())
    update, fill = plan_update(((past,), 2, FillLevel(2)), 3)
    joined = update.write(past, new)
    assert fill.steps == 5
    assert torch.equal(joined[0], torch.cat([past[0], new[0]], 2))
    joined[1].sum().backward()
    assert past[1].grad is not None


def test_steps_are_read_from_the_first_on() -> None:
    buffers = (steps(8), steps(8, 1))
    key, value = CacheUpdate(4, 6, True, 8).steps_from(2, buffers)
    assert torch.equal(key, buffers[0][:, :, 2:6])
    assert torch.equal(value, buffers[1][:, :, 2:6])


def test_a_cache_made_under_inference_mode_is_read_outside_of_it(network: TransformerNetwork) -> None:
    with torch.inference_mode():
        _, memory = network(draw(N, 2, 8), network.start(N))
        _, memory = network(draw(N, 1, 8, seed=1), memory)
    with torch.no_grad():
        found, _ = network(draw(N, 1, 8, seed=2), memory)
        whole = torch.cat([draw(N, 2, 8), draw(N, 1, 8, seed=1), draw(N, 1, 8, seed=2)], 1)
        torch.testing.assert_close(found, network(whole, network.start(N))[0][:, -1:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["transformer", "transformer seq2seq"])
def test_the_cursor_is_a_pure_function(build_module: Callable[..., tuple], name: str) -> None:
    module, observation = build_module(name)
    cursor = NetworkCursor(module, observation, Windowing(6 if name == "transformer" else None))
    states = [cursor.start(None, N)]
    for k in range(9):
        states.append(cursor.advance(states[-1], torch.tensor([k % 3, 1])))
    for k, state in enumerate(states[:-1]):
        again = cursor.advance(state, torch.tensor([k % 3, 1]))
        torch.testing.assert_close(again.outputs, states[k + 1].outputs, rtol=0, atol=1e-12)
