"""A range coder: it codes symbols with known integer shares of 2³² as bytes and decodes them again (Martin 1979).

A message is a number in an interval ``[low, low + width)`` of 62 bits. A symbol with the share ``[start, start +
size)`` of ``TOTAL`` narrows the interval to that share, and bytes that are decided are written out. A symbol costs
``log2(TOTAL / size)`` bits plus less than 10⁻⁶ of a bit, because the width is at least 2⁵⁴. All arithmetic is on
integers, so the same shares decode a message on any machine. The steps are functions of arrays, so that compiled loops
can code one binary decision after the other; the shares that other libraries compute are coded from Python.
"""

from __future__ import annotations

import numpy as np

from seqmodels.common.range_interval import AT, LOW, ROOM, WIDTH, WIDTH_BITS


class RangeEncoder:
    """An encoder that turns symbols, one after the other, into the bytes of a range code (a form of arithmetic coding).

    Attributes:
        state: the interval and the number of bytes written, shape ``(3,)``, int64; ``narrow`` updates it.
        buffer: the bytes written so far and room for more, uint8; ``narrow`` writes into it.

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
        """Code one symbol, given its share ``[start, start + size)`` of the integer ``TOTAL``.

        Args:
            start: where the share begins: ``TOTAL`` times the probability of all symbols before it.
            size: size of the share: ``TOTAL`` times the symbol's probability.

        Raises:
            ValueError: ``size`` is less than 1.
        """
        if size < 1:
            raise ValueError("the symbol has a share below 1, which cannot be coded; give it a share of at least 1")
        self.reserve(ROOM)
        self._narrow(self.state, self.buffer, start, size)

    def reserve(self, n: int) -> None:
        needed = int(self.state[AT]) + n
        if needed > len(self.buffer):
            self.buffer = np.concatenate([self.buffer, np.zeros(needed, dtype=np.uint8)])

    def finish(self) -> bytes:
        """Return the whole code of the symbols so far as bytes, after which nothing more can be encoded."""
        low, width = int(self.state[LOW]), int(self.state[WIDTH])
        for n_zeros in range(WIDTH_BITS, -1, -1):  # the number within the interval that ends with the most zeros
            number = -(-low >> n_zeros) << n_zeros
            if number < low + width:
                break
        self.reserve(ROOM)
        # Add the number to the bytes before it as one large integer, because its addition may carry into them.
        before = int.from_bytes(self.buffer[: int(self.state[AT])].tobytes(), "big")
        whole = (before << WIDTH_BITS) + number
        n_bytes = int(self.state[AT])
        data = (whole << (64 - WIDTH_BITS)).to_bytes(n_bytes + 8, "big")
        return data[:n_bytes] + data[n_bytes:].rstrip(b"\0")  # because a decoder reads zeros behind the data


class RangeDecoder:
    """A decoder of the bytes that a ``RangeEncoder`` wrote, given the same shares in the same order.

    Args:
        data: the bytes.

    Attributes:
        state: the interval and the number of bytes read, shape ``(3,)``, int64; ``follow`` updates it.
        data: the bytes to decode, uint8; ``follow`` reads them.
    """

    def __init__(self, data: bytes) -> None:
        from seqmodels.common.compiled_range_coder import follow, share_at  # numba takes a while to load

        self._follow, self._share_at = follow, share_at
        self.data = np.frombuffer(data, dtype=np.uint8).copy()  # because compiled loops need writable arrays
        first = int.from_bytes(data[:8].ljust(8, b"\0"), "big") >> (64 - WIDTH_BITS)
        self.state = np.array([first, 1 << WIDTH_BITS, 7], dtype=np.int64)

    def decode(self, cumulative: np.ndarray) -> int:
        """Decode and return the next symbol, an integer from 0 to V - 1.

        Args:
            cumulative: cumulative shares of the V symbols (``TOTAL`` times their probabilities), from 0 to ``TOTAL``,
                shape ``(V + 1,)``, int64.

        Raises:
            ValueError: the data ended before this symbol.
        """
        symbol = int(np.searchsorted(cumulative, self.place(), side="right")) - 1
        self.follow(int(cumulative[symbol]), int(cumulative[symbol + 1] - cumulative[symbol]))
        return symbol

    def place(self) -> int:
        """Return an integer below ``TOTAL`` that lies in the share of the next symbol, and so identifies the symbol.

        A symbol's share is a range of integers, ``TOTAL`` times its probability long.
        """
        return int(self._share_at(self.state))

    def follow(self, start: int, size: int) -> None:
        """Move past the next symbol, whose share of ``TOTAL`` is ``[start, start + size)``.

        Args:
            start: where the share begins: ``TOTAL`` times the probability of all symbols before it.
            size: size of the share: ``TOTAL`` times the symbol's probability.

        Raises:
            ValueError: the data ended before this symbol.
        """
        self._follow(self.state, self.data, start, size)
        self.check()

    def check(self) -> None:
        """Check that no more bytes were read than the data have.

        ``ROOM`` bytes more are tolerated, because zeros at the end of the data are left out.

        Raises:
            ValueError: more were read.
        """
        if int(self.state[AT]) > len(self.data) + ROOM:
            raise ValueError("the coded sequences go on behind the end of the data")
