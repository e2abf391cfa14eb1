from __future__ import annotations

import pytest
import torch

from seqmodels.inference.chains.packing import Packing

LENGTHS = [2, 5, 1, 5, 3]


def frames(lengths: list[int]) -> list[torch.Tensor]:
    """One (T, 2) tensor a sequence, every row saying where it belongs."""
    return [torch.stack([torch.full((n,), i), torch.arange(n)], 1) for i, n in enumerate(lengths)]


def test_rows_are_in_order_of_time_and_longest_first() -> None:
    packing = Packing.of(LENGTHS)
    packed = packing.pack(torch.cat(frames(LENGTHS)))
    assert packing.order.tolist() == [1, 3, 4, 0, 2]
    assert packing.batch_sizes == (5, 4, 3, 2, 2)
    assert packed[:, 1].tolist() == sorted(packed[:, 1].tolist())
    for low, high in packing.blocks:
        assert packed[low:high, 0].tolist() == packing.order[: high - low].tolist()
    assert packing.sequence.tolist() == packed[:, 0].tolist()
    assert packing.time.tolist() == packed[:, 1].tolist()


def test_unpack_and_split_undo_pack() -> None:
    packing, concatenated = Packing.of(LENGTHS), torch.cat(frames(LENGTHS))
    packed = packing.pack(concatenated)
    assert torch.equal(packing.unpack(packed), concatenated)
    for got, expected in zip(packing.split(packed), frames(LENGTHS), strict=True):
        assert torch.equal(got, expected)


def test_last_rows_and_frames_before() -> None:
    packing = Packing.of(LENGTHS)
    packed = packing.pack(torch.cat(frames(LENGTHS)))
    assert packed[packing.last].tolist() == [[i, n - 1] for i, n in enumerate(LENGTHS)]
    covered = []
    for shift, low, high in packing.spans:
        rows = torch.arange(low, high)
        assert torch.equal(packed[rows - shift, 0], packed[rows, 0])
        assert torch.equal(packed[rows - shift, 1] + 1, packed[rows, 1])
        covered += rows.tolist()
    assert covered == list(range(len(LENGTHS), sum(LENGTHS)))


def test_totals_and_any_are_by_sequence() -> None:
    packing = Packing.of(LENGTHS)
    packed = packing.pack(torch.cat(frames(LENGTHS)))
    assert packing.totals(packed[:, 1]).tolist() == [n * (n - 1) / 2 for n in LENGTHS]
    assert packing.any(packed[:, 1] == 2).tolist() == [n > 2 for n in LENGTHS]


def test_take_keeps_the_rows_of_the_chosen_sequences() -> None:
    packing = Packing.of(LENGTHS)
    packed = packing.pack(torch.cat(frames(LENGTHS)))
    part, rows = packing.take(torch.tensor([4, 0]))
    assert [x[:, 0].tolist() for x in part.split(packed[rows])] == [[4, 4, 4], [0, 0]]


@pytest.mark.parametrize(("lengths", "words"), [([], "no sequences"), ([3, 0], "sequence 1 is empty")])
def test_refuses_what_cannot_be_packed(lengths: list[int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Packing.of(lengths)


def test_refuses_rows_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="4 rows but the sequences have 3 frames"):
        Packing.of([1, 2]).pack(torch.zeros(4))
