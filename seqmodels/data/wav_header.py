"""Reading the header of a WAV file, and checking that it agrees with the size of the file."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from seqmodels.common.caller_warnings import warn_caller

PCM, FLOAT, A_LAW, MU_LAW, EXTENSIBLE = 1, 3, 6, 7, 0xFFFE  # codes of sample formats
OF_WHOLE_FRAMES = (PCM, FLOAT, A_LAW, MU_LAW)  # formats in which all frames have equally many bytes
# The size that a stream states, because it cannot go back to its header, and RF64, which has its sizes elsewhere.
UNKNOWN = 0xFFFFFFFF
REPAIRED = "write it again from the original, or repair it: ffmpeg -i old.wav new.wav"


@dataclass(frozen=True)
class WavHeader:
    """The number of frames, sample rate and number of channels that the header of a WAV file states.

    Args:
        n_frames: number of frames, each with one sample per channel; None if the format compresses them, so that the
            header does not say.
        sample_rate: the sample rate in Hz.
        n_channels: number of channels.
    """

    n_frames: int | None
    sample_rate: int
    n_channels: int

    @staticmethod
    def read(path: Path) -> WavHeader:
        """Read the header of a WAV file, check it against the size of the file, and return it.

        A warning is issued if the header does not state the size, as in a stream, because it is then not known whether
        the file is complete.

        Raises:
            ValueError: the file is not a WAV file; it has fewer or more samples than the header says; or the header
                contradicts itself.
        """
        with path.open("rb") as file:
            return _Chunks.of(path, file).header()


@dataclass
class _Chunks:
    """The chunks of a WAV (RIFF) file from which its header is read.

    Attributes:
        path: the path of the file, for error messages.
        order: byte order in the notation of ``struct``.
        fmt: contents of the chunk that describes the format; None before it was found.
        data: number of bytes of samples; None before they were found.
    """

    path: Path
    order: str
    fmt: bytes | None = None
    data: int | None = None

    @staticmethod
    def of(path: Path, file: BinaryIO) -> _Chunks:
        n_bytes = os.fstat(file.fileno()).st_size
        begin = file.read(12)
        if len(begin) < 12 or begin[:4] not in (b"RIFF", b"RIFX", b"RF64") or begin[8:] != b"WAVE":
            raise ValueError(
                f"{path} is not a WAV file, because it begins with {begin[:12]!r}; convert it: ffmpeg -i in out.wav"
            )
        chunks = _Chunks(path, ">" if begin[:4] == b"RIFX" else "<")
        sizes: dict[bytes, int] = {}  # sizes of chunks in RF64, in which 32 bits are too few
        while (at := file.tell()) + 8 <= n_bytes:
            name, size = struct.unpack(f"{chunks.order}4sI", file.read(8))
            size = sizes.get(name, size)
            left = n_bytes - at - 8
            if name == b"data":
                chunks._check_data(size, left)
                size = min(size, left)
                chunks.data = size
            elif not all(32 <= byte < 127 for byte in name) or size > left:
                after = "its samples" if chunks.data is not None else f"{at:,}"
                raise ValueError(
                    f"{path} goes on for {left + 8:,} bytes after {after}, which are not part of a WAV file: its "
                    f"header says fewer samples than there are, or it is damaged; {REPAIRED}"
                )
            elif name == b"fmt ":
                if chunks.fmt is not None:
                    raise ValueError(f"{path} says twice what its samples are; {REPAIRED}")
                chunks.fmt = file.read(size)
            elif name == b"ds64" and begin[:4] == b"RF64":
                content = file.read(size)
                sizes[b"data"] = struct.unpack("<Q", content[8:16].ljust(8, b"\0"))[0]
            file.seek(at + 8 + size + size % 2)
        return chunks

    def _check_data(self, size: int, left: int) -> None:
        if self.data is not None:
            raise ValueError(f"{self.path} has samples in two places, of which one would be lost; {REPAIRED}")
        if size == UNKNOWN and left:
            warn_caller(
                f"{self.path} does not say how long it is, as what was written to a stream, so that nothing says "
                f"whether it is whole; to be sure {REPAIRED}",
            )
        elif size > left:
            raise ValueError(
                f"{self.path} is cut off: its header says {size:,} bytes of samples, but {left:,} follow; {REPAIRED}"
            )

    def header(self) -> WavHeader:
        if self.fmt is None or len(self.fmt) < 16 or self.data is None:
            what = "samples" if self.data is None else "words on what its samples are"
            raise ValueError(f"{self.path} has no {what}, so it is damaged; {REPAIRED}")
        code, channels, rate, second, frame, bits = struct.unpack(f"{self.order}HHIIHH", self.fmt[:16])
        if code == EXTENSIBLE and len(self.fmt) >= 26:
            code = struct.unpack(f"{self.order}H", self.fmt[24:26])[0]
        if code not in OF_WHOLE_FRAMES:
            return WavHeader(None, rate, channels)
        sample = -(-bits // 8)
        if not channels or not bits or frame not in (channels * sample, channels * 4) or second != rate * frame:
            raise ValueError(
                f"{self.path} contradicts itself: {channels} channels of {bits} bits at {rate} Hz, but {frame} bytes a "
                f"frame and {second:,} a second; {REPAIRED}"
            )
        if self.data % frame:
            raise ValueError(f"{self.path} ends within a frame of {frame} bytes, so it is cut off; {REPAIRED}")
        return WavHeader(self.data // frame, rate, channels)
