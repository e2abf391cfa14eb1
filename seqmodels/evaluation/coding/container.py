"""The byte format of a compressed file: a head that says how it was coded, the code, and a checksum of both.

==========  ======================================================================================================
4 bytes     ``sqm`` and the version of the format
1 byte      the coder: a fitted model, or context mixing that has learned nothing
16 bytes    the arithmetic, see ``Arithmetic``
8 bytes     the fingerprint of the model
8 bytes     the first bytes of the SHA-256 of the sequences
1 or more   number of sequences, and their lengths if ends are no events: 7 bits a byte, the lowest first
the rest    the code, and 4 bytes with the CRC-32 of everything before
==========  ======================================================================================================
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Literal

from seqmodels.common.display import a_or_an
from seqmodels.evaluation.coding import arithmetic
from seqmodels.evaluation.coding.arithmetic import Arithmetic

MAGIC = b"sqm"
VERSION = 1
N_DIGEST, N_CHECK = 8, 4
LONGEST_NUMBER = 63  # most bits of a number in the head
CODERS = ("model", "context mixing")  # in the order of their numbers in the head
# Most sequences and steps for each byte of a container. The bound exists because a decoder allocates memory for all of
# them before it has decoded any; only sequences that are nearly certain would exceed it.
MOST_SEQUENCES, MOST_STEPS = 1 << 10, 1 << 20
LEAST = len(MAGIC) + 2 + arithmetic.N_BYTES + 2 * N_DIGEST + 1 + N_CHECK

CoderName = Literal["model", "context mixing"]


@dataclass(frozen=True)
class Container:
    """The content of a compressed file: the code, and the head that says how it was coded.

    Attributes:
        coder: name of the kind of coder: a fitted model, or context mixing that starts untrained.
        arithmetic: versions, platform and processor of the process that coded the data.
        model: first ``N_DIGEST`` bytes of the model's fingerprint.
        content: first ``N_DIGEST`` bytes of the digest of the sequences.
        n: number of sequences.
        lengths: number of encoded steps of each sequence; None if ends are coded.
        code: bytes of the range coder.
    """

    coder: CoderName
    arithmetic: Arithmetic
    model: bytes
    content: bytes
    n: int
    lengths: tuple[int, ...] | None
    code: bytes

    def to_bytes(self) -> bytes:
        """Return the container as bytes: head, lengths, code and checksum.

        Raises:
            ValueError: there are too many sequences or steps for so few bytes.
        """
        numbers = [self.n << 1 | (self.lengths is not None), *(self.lengths or ())]
        head = MAGIC + bytes([VERSION, CODERS.index(self.coder)]) + self.arithmetic.to_bytes()
        data = head + self.model + self.content + b"".join(map(_varint, numbers)) + self.code
        self._check_size(len(data) + N_CHECK)
        return data + zlib.crc32(data).to_bytes(N_CHECK, "little")

    @classmethod
    def of_bytes(cls, data: bytes) -> Container:
        """Read a compressed file, head and code, from the bytes that ``to_bytes`` wrote.

        Args:
            data: the bytes.

        Raises:
            ValueError: the data are something else, damaged or cut off, or written by a newer version.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise ValueError(f"data is {a_or_an(type(data))}; pass the bytes that compress returned")
        data = bytes(data)
        if not data.startswith(MAGIC):
            raise ValueError("the data are not what seqmodels.compress writes; pass the bytes that it returned")
        if len(data) > len(MAGIC) and data[len(MAGIC)] > VERSION:
            raise ValueError(
                f"the data were written by a newer version of seqmodels, in format {data[len(MAGIC)]}, or are damaged; "
                "upgrade with pip install -U seqmodels"
            )
        if len(data) < LEAST or zlib.crc32(data[:-N_CHECK]).to_bytes(N_CHECK, "little") != data[-N_CHECK:]:
            raise ValueError("the data are damaged or cut off: their checksum is wrong; copy them again")
        if data[len(MAGIC) + 1] >= len(CODERS):
            raise ValueError(
                f"the data were coded by coder {data[len(MAGIC) + 1]}, but this version knows only {len(CODERS)}; "
                "upgrade with pip install -U seqmodels"
            )
        at = len(MAGIC) + 2 + arithmetic.N_BYTES
        numbers = _Varints(data[at + 2 * N_DIGEST : -N_CHECK])
        first = numbers.next()
        n, is_given = first >> 1, first & 1
        lengths = tuple(numbers.next() for _ in range(n)) if is_given else None
        container = cls(
            CODERS[data[len(MAGIC) + 1]],  # type: ignore[arg-type]
            Arithmetic.of_bytes(data[len(MAGIC) + 2 : at]),
            data[at : at + N_DIGEST],
            data[at + N_DIGEST : at + 2 * N_DIGEST],
            n,
            lengths,
            numbers.rest(),
        )
        container._check_size(len(data))
        return container

    def _check_size(self, n_bytes: int) -> None:
        """Check that the numbers of sequences and of steps are not too large for a file of ``n_bytes`` bytes.

        Raises:
            ValueError: one of them is too large.
        """
        for n, most, what in ((self.n, MOST_SEQUENCES, "sequences"), (sum(self.lengths or ()), MOST_STEPS, "steps")):
            if n > most * n_bytes:
                raise ValueError(
                    f"the container has {n:,} {what} in {n_bytes:,} bytes, but with so few bytes it may have at most "
                    f"{most * n_bytes:,}; compress them in several parts"
                )


def _varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


class _Varints:
    """A reader of integers that are stored with 7 bits in each byte, the lowest first."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def next(self) -> int:
        """Read the next integer.

        Raises:
            ValueError: the bytes end within it or it is too long.
        """
        number = shift = 0
        while True:
            if self._at == len(self._data):
                raise ValueError("the data are no container: they end within their head; copy them again")
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 127) << shift
            shift += 7
            if shift > LONGEST_NUMBER:
                raise ValueError("the data are no container: a number in their head has no end; copy them again")
            if byte < 128:
                return number

    def rest(self) -> bytes:
        return self._data[self._at :]


def first_of(digest: bytes) -> bytes:
    """Return the first ``N_DIGEST`` bytes of a digest, which is all that a compressed file keeps of it."""
    return digest[:N_DIGEST]
