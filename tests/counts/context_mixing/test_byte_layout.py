"""What bytes are: rows and channels of pictures, sound wherever its numbers begin, neither text nor noise."""

from __future__ import annotations

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.counts.context_mixing.byte_layout import BINARY, BYTES, NO_NUMBERS, PROSE, TABLE, WORDS, look


def picture(width: int, height: int, channels: int = 1, most: int = 255) -> np.ndarray:
    """``(height * width * channels,)`` bytes that change slowly from one to the next, with noise."""
    y, x = np.mgrid[:height, :width]
    rng = np.random.default_rng(0)
    each = [2 * np.sin(x / 9 + c) + np.cos(y / 17 - c) for c in range(channels)]
    values = (np.stack(each, -1) + 3) / 6 * most + rng.normal(0, most / 200, (height, width, channels))
    return np.clip(np.rint(values), 0, most).astype(np.int64).ravel()


def sound(n: int) -> np.ndarray:
    """``(2 n,)`` bytes of n numbers of 16 bits, the lower one first."""
    rng = np.random.default_rng(1)
    t = np.arange(n)
    values = 3000 * np.sin(t / 11) + 900 * np.sin(t / 3.7) + rng.normal(0, 20, n)
    return np.frombuffer(np.rint(values).astype("<i2").tobytes(), dtype=np.uint8).astype(np.int64)


def layout_of(values: np.ndarray) -> list[int]:
    result = np.zeros(5, dtype=np.int64)
    look(values.astype(np.int32), result)
    return [int(each) for each in result]


@pytest.mark.parametrize(("channels", "width"), [(1, 75), (3, 61)])
def test_rows_of_a_picture_are_found(channels: int, width: int) -> None:
    assert layout_of(picture(width, 60, channels))[:4] == [BYTES, channels, width * channels, 0]


@pytest.mark.parametrize("n_more", [0, 1])
def test_sound_is_found_wherever_its_numbers_begin(n_more: int) -> None:
    values = np.concatenate([sound(2000), np.zeros(n_more, dtype=np.int64)])
    assert layout_of(values)[:4] == [WORDS, 2, 0, n_more]


def test_text_and_noise_are_no_numbers() -> None:
    text = np.frombuffer(str(sm.data.builtin_text()[0]).encode()[:8000], dtype=np.uint8)
    assert layout_of(text)[0] == NO_NUMBERS
    assert layout_of(np.random.default_rng(2).integers(256, size=8000))[0] == NO_NUMBERS


def test_layouts_are_prose_tables_and_no_text() -> None:
    text = np.frombuffer(str(sm.data.builtin_text()[0]).encode()[:8000], dtype=np.uint8)
    rows = np.frombuffer("".join(f"{n},{n * n % 97},0.{n % 7}\n" for n in range(600)).encode(), dtype=np.uint8)
    cyrillic = np.frombuffer("широкая электрификация южных губерний ".encode() * 90, dtype=np.uint8)
    noise = np.random.default_rng(2).integers(256, size=8000)
    assert [layout_of(each)[4] for each in (text, rows, cyrillic, noise)] == [PROSE, TABLE, PROSE, BINARY]
