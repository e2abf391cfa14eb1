"""A state is a value, whoever writes first into what it shares with others."""

from __future__ import annotations

import pytest
import torch

from seqmodels.neural.transformer.incremental import StepBuffers, StepCache, StepState
from seqmodels.neural.transformer.packed_weights import HeadLayout

L, G, D, CAPACITY = 2, 2, 4, 5
LAYOUT = HeadLayout(4, G, D, paired=True)


def state(n: int = 3, length: int = 2) -> StepState:
    key_value = torch.randn(L, 2, n, G, CAPACITY, D, generator=torch.Generator().manual_seed(0))
    return StepState(StepCache(key_value, length, LAYOUT), length, torch.zeros(n, 0))


def test_who_comes_first_writes_in_place_and_who_comes_later_into_a_copy() -> None:
    before = state()
    first, later = before.claimed_cache(CAPACITY), before.claimed_cache(CAPACITY)
    assert first is before.cache
    assert later.key_value.data_ptr() != first.key_value.data_ptr()
    assert torch.equal(later.key_value[..., :2, :], first.key_value[..., :2, :])
    assert first.n_written == later.n_written == 3
    assert later.key_value.shape == first.key_value.shape


def test_a_full_cache_is_copied_to_a_larger_one() -> None:
    full = state(length=CAPACITY)
    assert full.claimed_cache(None).key_value.shape[4] > CAPACITY
    assert full.claimed_cache(8).key_value.shape[4] == 8


def test_chosen_sequences_are_copies() -> None:
    before, index = state(), torch.tensor([2, 2, 0, 1])
    chosen = before.select(index)
    assert torch.equal(chosen.cache.key_value, before.cache.key_value[:, :, index])
    chosen.claimed_cache(CAPACITY).slots(2)[0].fill_(7.0)
    assert before.claimed_cache(CAPACITY) is before.cache
    assert not (before.cache.key_value == 7).any()


def test_what_is_written_for_a_step_is_what_is_seen() -> None:
    cache = state().cache
    for layer, new in enumerate(cache.slots(1)):
        new.copy_(torch.full((2, 3, G, D), float(layer)))
    for layer, (key, value) in enumerate(zip(*cache.first_steps(2), strict=True)):
        assert key.shape == (3 * G, D, 2)
        assert value.shape == (3 * G, 2, D)
        assert (key[:, :, 1] == layer).all()
        assert (value[:, 1] == layer).all()
        assert torch.equal(value[:, 0], cache.key_value[layer, 1].flatten(0, 1)[:, 0])


@pytest.mark.parametrize("n", [1, 3])
def test_buffers_are_views_of_one_projection(n: int) -> None:
    buffers = StepBuffers(n, LAYOUT, torch.empty(0))
    buffers.projected.copy_(torch.arange(buffers.projected.numel()).view(n, -1))
    assert torch.equal(buffers.query.flatten(1), buffers.projected[:, : 4 * D])
    assert torch.equal(buffers.key_value[0].flatten(1), buffers.projected[:, 4 * D : 6 * D])
    assert torch.equal(buffers.key_value[1].flatten(1), buffers.projected[:, 6 * D :])
    assert torch.equal(buffers.group_queries().view(n, -1), buffers.projected[:, : 4 * D])
    buffers.grouped_context.copy_(buffers.grouped_query)
    assert torch.equal(buffers.context, buffers.projected[:, : 4 * D])
    buffers.complex_pairs.mul_(1j)
    assert torch.equal(buffers.query[0, 0, :2], torch.tensor([-1.0, 0.0]))
