import math

import pytest
import torch
from torch import Tensor

from seqmodels.neural.transformer.relative import (
    AlibiBias,
    Rotary,
    T5Bias,
    alibi_slopes,
    make_score_bias,
    rotate,
    rotation,
    t5_buckets,
)

LIKE = torch.zeros((), dtype=torch.float64)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_rotation_is_a_complex_product() -> None:
    x, offset = draw(2, 3, 5, 6), 4
    turned = rotate(x, rotation(offset, 5, 6, like=LIKE))
    for t in range(5):
        for i in range(3):
            angle = (offset + t) / 10000 ** (2 * i / 6)
            expected = torch.complex(x[:, :, t, i], x[:, :, t, i + 3]) * complex(math.cos(angle), math.sin(angle))
            torch.testing.assert_close(turned[:, :, t, i], expected.real, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(turned[:, :, t, i + 3], expected.imag, rtol=1e-12, atol=1e-12)


def test_rotated_scores_depend_on_differences_only() -> None:
    query, key = draw(6, 8), draw(6, 8, seed=1)
    scores = {}
    for offset in (0, 100):
        turn = rotation(offset, 6, 8, like=LIKE)
        scores[offset] = rotate(query, turn) @ rotate(key, turn).T
    torch.testing.assert_close(scores[0], scores[100], rtol=0, atol=1e-11)
    same = draw(1, 8).expand(6, 8)  # the same vector everywhere: a Toeplitz matrix
    turned = rotate(same, rotation(0, 6, 8, like=LIKE))
    table = turned @ turned.T
    torch.testing.assert_close(table[1:, 1:], table[:-1, :-1], rtol=0, atol=1e-12)
    assert (table[0] - table[0, 0]).abs().max() > 1e-2


@pytest.mark.parametrize(("offset", "length"), [(0, 5), (3, 2), (3, 3), (9, 1)])
def test_kept_turns_are_those_worked_out(offset: int, length: int) -> None:
    rotary, x = Rotary(8, 5), torch.zeros(2, length, 16)
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
