import math

import pytest
import torch
from torch import Tensor

from seqmodels.neural.transformer.positions import (
    AlibiBias,
    BinaryPositions,
    LearnedPositions,
    NoPositions,
    RotaryEmbedding,
    SinusoidalPositions,
    T5Bias,
    alibi_slopes,
    make_positions,
    make_score_bias,
    rotate,
    rotation,
    sinusoids,
    t5_buckets,
)

LIKE = torch.zeros((), dtype=torch.float64)


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
    tolerance = 1e-6 if isinstance(positions, BinaryPositions) else 0.0  # the others are no products
    torch.testing.assert_close(torch.cat(pieces, 1), positions(x), rtol=tolerance, atol=tolerance)


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


def test_sinusoids_past_the_table_do_not_depend_on_where_a_piece_began() -> None:
    positions, x = SinusoidalPositions(6, 5).double(), torch.zeros(1, 9, 6, dtype=torch.float64)
    pieces = torch.cat([positions(x[:, :2]), positions(x[:, 2:7], 2), positions(x[:, 7:], 7)], 1)
    assert torch.equal(pieces, positions(x))
    torch.testing.assert_close(pieces[0], sinusoids(0, 9, 6, like=x), rtol=0, atol=1e-6)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_rotation_is_a_complex_product() -> None:
    x, offset = draw(2, 3, 5, 6), 4
    rotated = rotate(x, rotation(offset, 5, 6, like=LIKE))
    for t in range(5):
        for i in range(3):
            angle = (offset + t) / 10000 ** (2 * i / 6)
            expected = torch.complex(x[:, :, t, i], x[:, :, t, i + 3]) * complex(math.cos(angle), math.sin(angle))
            torch.testing.assert_close(rotated[:, :, t, i], expected.real, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(rotated[:, :, t, i + 3], expected.imag, rtol=1e-12, atol=1e-12)


def test_rotated_scores_depend_on_differences_only() -> None:
    query, key = draw(6, 8), draw(6, 8, seed=1)
    scores = {}
    for offset in (0, 100):
        rotation_of_steps = rotation(offset, 6, 8, like=LIKE)
        scores[offset] = rotate(query, rotation_of_steps) @ rotate(key, rotation_of_steps).T
    torch.testing.assert_close(scores[0], scores[100], rtol=0, atol=1e-11)
    same = draw(1, 8).expand(6, 8)  # the same vector everywhere: a Toeplitz matrix
    rotated = rotate(same, rotation(0, 6, 8, like=LIKE))
    table = rotated @ rotated.T
    torch.testing.assert_close(table[1:, 1:], table[:-1, :-1], rtol=0, atol=1e-12)
    assert (table[0] - table[0, 0]).abs().max() > 1e-2


@pytest.mark.parametrize(("offset", "length"), [(0, 5), (3, 2), (3, 3), (9, 1)])
def test_rotations_of_the_table_are_those_computed(offset: int, length: int) -> None:
    rotary, x = RotaryEmbedding(8, 5), torch.zeros(2, length, 16)
    torch.testing.assert_close(rotary(x, offset), rotation(offset, length, 8, like=x), rtol=0, atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        assert rotary(x, offset)[0].dtype == torch.bfloat16


def test_alibi_slopes_are_the_papers() -> None:
    assert alibi_slopes(8) == [2.0**-k for k in range(1, 9)]
    assert alibi_slopes(1) == [2.0**-8]
    assert alibi_slopes(16) == pytest.approx([2.0 ** (-k / 2) for k in range(1, 17)])
    assert alibi_slopes(3) == [2.0**-4, 2.0**-8, 2.0**-2]  # of two heads, then the first of four


def test_alibi_falls_with_distance() -> None:
    distance = torch.arange(4)[:, None] - torch.arange(4)
    bias = AlibiBias(2)(distance)
    assert bias.shape == (2, 4, 4)
    assert bias[0, 3].tolist() == [-3 / 16, -2 / 16, -1 / 16, 0.0]
    assert bias[1, 0].tolist() == [0.0, -1 / 256, -2 / 256, -3 / 256]


def _bucket(distance: int, n_buckets: int, max_distance: int, causal: bool) -> int:
    """As the paper's text has it: half exact, half logarithmic; both ways, half of the buckets for each side."""
    start, n = 0, n_buckets
    if not causal:
        n //= 2
        start = n if distance < 0 else 0
        distance = abs(distance)
    distance = max(distance, 0)
    exact = n // 2
    if distance < exact:
        return start + distance
    share = math.log(distance / exact) / math.log(max_distance / exact)
    return start + min(n - 1, exact + int(share * (n - exact)))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 20)])
def test_t5_buckets_are_the_formula(causal: bool, n_buckets: int, max_distance: int) -> None:
    distance = torch.arange(-150, 151)
    found = t5_buckets(distance, n_buckets, max_distance, causal=causal).tolist()
    assert found == [_bucket(d, n_buckets, max_distance, causal) for d in distance.tolist()]
    unused = set() if causal else {n_buckets // 2}  # a key later by nothing
    assert set(found) == set(range(n_buckets)) - unused


def test_t5_is_one_number_a_bucket_and_head() -> None:
    bias = T5Bias(2, causal=False, n_buckets=8, max_distance=20)
    bias.table.data = torch.arange(16.0).reshape(8, 2)
    distance = torch.tensor([[0, 5, -3]])
    buckets = t5_buckets(distance, 8, 20, causal=False)
    torch.testing.assert_close(bias(distance), torch.stack([2.0 * buckets, 2.0 * buckets + 1]))


def test_only_some_kinds_have_a_bias() -> None:
    assert isinstance(make_score_bias("alibi", 2, causal=True), AlibiBias)
    assert isinstance(make_score_bias("t5", 2, causal=True), T5Bias)
    for kind in ("rotary", "sinusoidal", "learned", "binary", None):
        assert make_score_bias(kind, 2, causal=True) is None
