"""A state is a value, whoever writes first into what it shares with others."""

from __future__ import annotations

import pytest
import torch

from seqmodels.neural.transformer.gathered import Heads
from seqmodels.neural.transformer.workspace import Cached, Desk, Workspace

L, G, D, ROOM = 2, 2, 4, 5
HEADS = Heads(4, G, D, paired=True)


def state(n: int = 3, length: int = 2) -> Cached:
    cache = torch.randn(L, 2, n, G, ROOM, D, generator=torch.Generator().manual_seed(0))
    return Cached(Workspace(cache, length, HEADS), length, torch.zeros(n, 0))


def test_who_comes_first_writes_in_place_and_who_comes_later_into_a_copy() -> None:
    before = state()
    first, later = before.claimed(ROOM), before.claimed(ROOM)
    assert first is before.workspace
    assert later.cache.data_ptr() != first.cache.data_ptr()
    assert torch.equal(later.cache[..., :2, :], first.cache[..., :2, :])
    assert first.steps == later.steps == 3
    assert later.cache.shape == first.cache.shape


def test_a_full_workspace_is_left_for_a_larger_one() -> None:
    full = state(length=ROOM)
    assert full.claimed(None).cache.shape[4] > ROOM
    assert full.claimed(8).cache.shape[4] == 8


def test_chosen_sequences_are_copies() -> None:
    before, index = state(), torch.tensor([2, 2, 0, 1])
    chosen = before.select(index)
    assert torch.equal(chosen.workspace.cache, before.workspace.cache[:, :, index])
    chosen.claimed(ROOM).new(2)[0].fill_(7.0)
    assert before.claimed(ROOM) is before.workspace
    assert not (before.workspace.cache == 7).any()


def test_what_is_written_for_a_step_is_what_is_seen() -> None:
    space = state().workspace
    for layer, new in enumerate(space.new(1)):
        new.copy_(torch.full((2, 3, G, D), float(layer)))
    for layer, (key, value) in enumerate(zip(*space.seen(2), strict=True)):
        assert key.shape == (3 * G, D, 2)
        assert value.shape == (3 * G, 2, D)
        assert (key[:, :, 1] == layer).all()
        assert (value[:, 1] == layer).all()
        assert torch.equal(value[:, 0], space.cache[layer, 1].flatten(0, 1)[:, 0])


@pytest.mark.parametrize("n", [1, 3])
def test_a_desk_shows_one_projection_in_all_ways(n: int) -> None:
    desk = Desk(n, HEADS, torch.empty(0))
    desk.heads.copy_(torch.arange(desk.heads.numel()).view(n, -1))
    assert torch.equal(desk.query.flatten(1), desk.heads[:, : 4 * D])
    assert torch.equal(desk.own[0].flatten(1), desk.heads[:, 4 * D : 6 * D])
    assert torch.equal(desk.own[1].flatten(1), desk.heads[:, 6 * D :])
    assert torch.equal(desk.ask().view(n, -1), desk.heads[:, : 4 * D])
    desk.answer.copy_(desk.asked)
    assert torch.equal(desk.context, desk.heads[:, : 4 * D])
    desk.pairs.mul_(1j)
    assert torch.equal(desk.query[0, 0, :2], torch.tensor([-1.0, 0.0]))
