import math

import pytest
import torch
from torch import Tensor

from seqmodels.neural.transformer.positions import (
    BinaryPositions,
    LearnedPositions,
    NoPositions,
    SinusoidalPositions,
    make_positions,
    sinusoids,
)


def learned(d_model: int, max_length: int) -> LearnedPositions:
    with torch.random.fork_rng(devices=[]):
        return LearnedPositions(d_model, max_length)


def binary(d_model: int, max_length: int | None) -> BinaryPositions:
    with torch.random.fork_rng(devices=[]):
        return BinaryPositions(d_model, max_length)


@pytest.mark.parametrize("d_model", [6, 7])
def test_sinusoids_are_vaswanis_formula(d_model: int) -> None:
    found = sinusoids(0, 40, d_model, like=torch.zeros(1, dtype=torch.float64))
    for t in range(40):
        for j in range(d_model):
            angle = t / 10000 ** (2 * (j // 2) / d_model)
            assert float(found[t, j]) == pytest.approx(math.cos(angle) if j % 2 else math.sin(angle), abs=1e-12)


def test_sinusoids_have_no_end() -> None:
    far = sinusoids(1_000_000, 2, 8, like=torch.zeros(1, dtype=torch.float64))
    assert float(far[1, 0]) == pytest.approx(math.sin(1_000_001), abs=1e-9)


def test_half_precision_still_tells_neighbours_apart() -> None:
    near = sinusoids(1000, 2, 8, like=torch.zeros(1, dtype=torch.bfloat16))
    assert near.dtype == torch.bfloat16
    assert float(near[0, 0]) == pytest.approx(math.sin(1000), abs=1e-2)
    assert float(near[1, 0]) == pytest.approx(math.sin(1001), abs=1e-2)


@pytest.mark.parametrize(
    "positions", [SinusoidalPositions(6, 5), learned(6, 12), binary(6, 12), NoPositions()], ids=type
)
def test_an_offset_continues(positions: torch.nn.Module) -> None:
    x = torch.arange(2 * 10 * 6, dtype=torch.float32).reshape(2, 10, 6)
    pieces: list[Tensor] = [positions(x[:, :3], 0), positions(x[:, 3:4], 3), positions(x[:, 4:], 4)]
    assert torch.equal(torch.cat(pieces, 1), positions(x))


def test_positions_are_added() -> None:
    x, table = torch.ones(2, 3, 6), learned(6, 12)
    assert torch.equal(NoPositions()(x), x)
    assert torch.equal(table(x, 2) - x, (1 + table.table[2:5]).expand(2, 3, 6) - 1)
    torch.testing.assert_close(SinusoidalPositions(6)(x, 2) - x, sinusoids(2, 3, 6, like=x).expand(2, 3, 6))


def test_sinusoids_are_as_precise_as_the_inputs() -> None:
    positions, x = SinusoidalPositions(6), torch.zeros(1, 1000, 6)
    single = positions(x)
    exact = positions.double()(x.double())[0]
    torch.testing.assert_close(exact, sinusoids(0, 1000, 6, like=x.double()), rtol=0, atol=0)
    assert float(exact[999, 2]) == pytest.approx(math.sin(999 / 10000 ** (2 / 6)), abs=1e-12)
    assert torch.equal(positions.float()(x), single)  # there and back


def test_learned_positions_end_at_max_length() -> None:
    positions = learned(6, 5)
    assert positions(torch.zeros(1, 2, 6), 3).shape == (1, 2, 6)
    with pytest.raises(ValueError, match="the sequence has 6 steps but positions were learned for max_length=5"):
        positions(torch.zeros(1, 3, 6), 3)


@pytest.mark.parametrize(("max_length", "n_digits"), [(1, 1), (2, 1), (8, 3), (9, 4), (None, 16)])
def test_binary_positions_are_digits(max_length: int | None, n_digits: int) -> None:
    positions = binary(5, max_length)
    assert positions.map.shape == (n_digits, 5)
    length = min(max_length or 40, 40)
    found = positions(torch.zeros(1, length, 5))[0]
    for t in range(length):
        digits = [1.0 if digit == "1" else -1.0 for digit in reversed(f"{t:0{n_digits}b}")]
        torch.testing.assert_close(found[t], torch.tensor(digits) @ positions.map)
    with pytest.raises(ValueError, match="binary positions end at max_length"):
        positions(torch.zeros(1, 1, 5), max_length or 1 << 16)


def test_the_factory_knows_every_kind_and_no_other() -> None:
    for kind in (None, "rotary", "alibi", "t5"):
        assert isinstance(make_positions(kind, 4), NoPositions)
    assert isinstance(make_positions("sinusoidal", 4), SinusoidalPositions)
    with torch.random.fork_rng(devices=[]):
        made = make_positions("learned", 4, 9)
        assert isinstance(make_positions("binary", 4), BinaryPositions)
    assert made.table.shape == (9, 4)
    with pytest.raises(ValueError, match="need max_length"):
        make_positions("learned", 4)
    with pytest.raises(ValueError, match="positions is 'spiral'"):
        make_positions("spiral", 4)  # type: ignore[arg-type]


def test_waves_past_the_kept_ones_do_not_depend_on_where_a_piece_began() -> None:
    positions, x = SinusoidalPositions(6, 5).double(), torch.zeros(1, 9, 6, dtype=torch.float64)
    pieces = torch.cat([positions(x[:, :2]), positions(x[:, 2:7], 2), positions(x[:, 7:], 7)], 1)
    assert torch.equal(pieces, positions(x))
    torch.testing.assert_close(pieces[0], sinusoids(0, 9, 6, like=x), rtol=0, atol=1e-6)
