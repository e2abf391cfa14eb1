"""The range coder: what was coded is decoded, in as many bytes as the shares say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqmodels.common.range_coder import RangeDecoder, RangeEncoder
from seqmodels.common.range_interval import TOTAL

Shares = list[tuple[np.ndarray, int]]  # cumulative, and the symbol that comes


@st.composite
def messages(draw: st.DrawFn) -> Shares:
    """Symbols of alphabets of 1 to 5, some of the least share that there is."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    power, message = draw(st.sampled_from([0.5, 4, 60])), []
    for _ in range(draw(st.integers(0, 60))):
        weights = rng.random(int(rng.integers(1, 6))) ** power
        sizes = np.maximum(1, np.floor(weights / weights.sum() * (TOTAL - 5))).astype(np.int64)
        sizes[np.argmax(sizes)] += TOTAL - sizes.sum()
        message.append((np.append(0, np.cumsum(sizes)), int(rng.integers(len(sizes)))))
    return message


def coded(message: Shares) -> bytes:
    encoder = RangeEncoder()
    for cumulative, symbol in message:
        encoder.encode(int(cumulative[symbol]), int(cumulative[symbol + 1] - cumulative[symbol]))
    return encoder.finish()


@given(messages())
@settings(deadline=None)  # the first call compiles
def test_what_was_coded_is_decoded_in_as_many_bits_as_it_is_worth(message: Shares) -> None:
    code = coded(message)
    decoder = RangeDecoder(code)
    assert [decoder.decode(cumulative) for cumulative, _ in message] == [symbol for _, symbol in message]
    bits = sum(np.log2(TOTAL / (cumulative[symbol + 1] - cumulative[symbol])) for cumulative, symbol in message)
    assert 8 * len(code) <= bits + 9


@pytest.mark.parametrize("n", [1, 2, 7])
def test_a_carry_goes_through_many_bytes(n: int) -> None:
    """The middle of the middle, n times, begins with 0, 1, 1, 1, ...; above it is 1, 0, 0, 0, ..."""
    middle, halves = np.array([0, TOTAL // 2 - 1, TOTAL // 2 + 1, TOTAL]), np.array([0, TOTAL // 2, TOTAL])
    for last in range(2):
        message = [(middle, 1)] * n + [(halves, last)] * 8
        code = coded(message)
        assert code[:3] == (b"\x7f\xff\xff" if last == 0 else b"\x80\0\0")
        decoder = RangeDecoder(code)
        assert [decoder.decode(cumulative) for cumulative, _ in message] == [symbol for _, symbol in message]


def test_data_that_end_too_early_are_refused() -> None:
    halves = np.array([0, TOTAL // 2, TOTAL])
    decoder = RangeDecoder(coded([(halves, 1)] * 8))
    for _ in range(8):
        assert decoder.decode(halves) == 1
    with pytest.raises(ValueError, match="go on behind the end of the data"):
        list(map(decoder.decode, [halves] * 200))
