"""A range coder of integers: symbols of known shares of 2³² as bytes, and back (Martin 1979).

A message is a number in an interval ``[low, low + width)`` of 62 bits; a symbol of the share ``[start, start + size)``
of ``TOTAL`` narrows it to that share, and bytes that are decided leave it. A symbol costs ``log2(TOTAL / size)`` bits,
and less than 10⁻⁶ of a bit besides, for a width is at least 2⁵⁴. All is in integers, so what was coded is decoded from
the same shares on any machine. Its steps are functions of arrays, so that compiled loops can code one binary decision
after the other; those of libraries are called from Python.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.range_interval import AT, LOW, ROOM, WIDTH, WIDTH_BITS


class RangeEncoder:
    """Codes symbols one after the other.

    Attributes:
        state, buffer: what ``narrow`` writes.

    >>> from seqmodels.common.range_interval import TOTAL
    >>> encoder = RangeEncoder()
    >>> for symbol in (1, 1, 0, 1):
    ...     encoder.encode(*((0, TOTAL // 4), (TOTAL // 4, 3 * (TOTAL // 4)))[symbol])
    >>> decoder = RangeDecoder(encoder.finish())
    >>> [decoder.decode(np.array([0, TOTAL // 4, TOTAL])) for _ in range(4)]
    [1, 1, 0, 1]
    """

    def __init__(self) -> None:
        from seqmodels.common.compiled_range_coder import narrow  # numba takes a while to load

        self._narrow = narrow
        self.state = np.array([0, 1 << WIDTH_BITS, 0], dtype=np.int64)
        self.buffer = np.zeros(1 << 10, dtype=np.uint8)

    def encode(self, start: int, size: int) -> None:
        """Code a symbol of the share ``[start, start + size)`` of ``TOTAL``; ``ValueError`` if it has none."""
        if size < 1:
            raise ValueError("the symbol has no share, so no code is long enough")
        self.reserve(ROOM)
        self._narrow(self.state, self.buffer, start, size)

    def reserve(self, n: int) -> None:
        """Make room for so many bytes more."""
        needed = int(self.state[AT]) + n
        if needed > len(self.buffer):
            self.buffer = np.concatenate([self.buffer, np.zeros(needed, dtype=np.uint8)])

    def finish(self) -> bytes:
        """All bytes. Nothing can be coded after it."""
        low, width = int(self.state[LOW]), int(self.state[WIDTH])
        for n_zeros in range(WIDTH_BITS, -1, -1):  # the number within the interval that ends with the most zeros
            number = -(-low >> n_zeros) << n_zeros
            if number < low + width:
                break
        self.reserve(ROOM)
        # A number is coded as the interval that has it alone: bits above the last ones carry as those of symbols do.
        before = int.from_bytes(self.buffer[: int(self.state[AT])].tobytes(), "big")
        whole = (before << WIDTH_BITS) + number
        n_bytes = int(self.state[AT])
        data = (whole << (64 - WIDTH_BITS)).to_bytes(n_bytes + 8, "big")
        return data[:n_bytes] + data[n_bytes:].rstrip(b"\0")  # a decoder reads zeros behind the data


class RangeDecoder:
    """Decodes what a ``RangeEncoder`` coded, given the same shares.

    Attributes:
        state, data: what ``follow`` reads and writes.
    """

    def __init__(self, data: bytes) -> None:
        from seqmodels.common.compiled_range_coder import follow, share_at  # numba takes a while to load

        self._follow, self._share_at = follow, share_at
        self.data = np.frombuffer(data, dtype=np.uint8).copy()  # compiled loops take what may be written
        first = int.from_bytes(data[:8].ljust(8, b"\0"), "big") >> (64 - WIDTH_BITS)
        self.state = np.array([first, 1 << WIDTH_BITS, 7], dtype=np.int64)

    def decode(self, cumulative: np.ndarray) -> int:
        """The next symbol, of shares between ``cumulative (V + 1,)`` from 0 to ``TOTAL``, int64."""
        symbol = int(np.searchsorted(cumulative, self.place(), side="right")) - 1
        self.follow(int(cumulative[symbol]), int(cumulative[symbol + 1] - cumulative[symbol]))
        return symbol

    def place(self) -> int:
        """A number below ``TOTAL`` in the share of the next symbol."""
        return int(self._share_at(self.state))

    def follow(self, start: int, size: int) -> None:
        """Go on behind a symbol of the share ``[start, start + size)``."""
        self._follow(self.state, self.data, start, size)
        self.check()

    def check(self) -> None:
        """Raise ``ValueError`` once more was read than there is."""
        if int(self.state[AT]) > len(self.data) + ROOM:
            raise ValueError("the coded sequences go on behind the end of the data")
