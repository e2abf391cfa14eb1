"""Text that is generated symbol by symbol: strings that end it, and UTF-8 characters of its bytes as they come."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence

import numpy as np


class StopStrings:
    """Ends texts with the symbol that completes one of some strings; the text is cut after the string.

    Args:
        stop: the strings.
        spelling: the bytes of each symbol.
        prefix: symbols with which all texts begin: a string may begin in it, but not end.
        n: how many texts are generated at once.
        leading: what the spelling of a text has before it, which is no part of it.

    Raises:
        ValueError: no string, or an empty one.
    """

    def __init__(
        self, stop: Sequence[str], spelling: Sequence[bytes], prefix: np.ndarray, n: int, leading: bytes = b""
    ) -> None:
        if isinstance(stop, str) or not stop or not all(isinstance(s, str) and s for s in stop):
            raise ValueError(f'stop is {stop!r}; pass a list of strings that are not empty, ["\\n\\n"], or None')
        self._stop, self._spelling, self._leading = [s.encode() for s in stop], spelling, leading
        self._kept = max(map(len, self._stop)) - 1  # bytes in which a string may have begun
        self._prefix = b"".join(spelling[s] for s in prefix.tolist())
        self._tails = [self._last(self._prefix)] * n

    def _last(self, text: bytes) -> bytes:
        return text[-self._kept :] if self._kept else b""

    def advance(self, i: int, symbol: int) -> int | None:
        """Read the next symbol of text ``i``: how many of its bytes complete a string, None if it completes none."""
        tail, part = self._tails[i], self._spelling[symbol]
        self._tails[i] = self._last(tail + part)
        end = self._end(tail + part, len(tail))
        return None if end is None else end - len(tail)

    def _end(self, text: bytes, n_before: int) -> int | None:
        """Where the first string ends that ends after the first ``n_before`` bytes."""
        ends = []
        for stop in self._stop:
            at = text.find(stop, max(0, n_before - len(stop) + 1))
            if at >= 0:
                ends.append(at + len(stop))
        return min(ends, default=None)

    def truncate(self, symbols: np.ndarray) -> bytes:
        """The bytes of a text, prefix included, up to the end of the first string that ends after the prefix."""
        text = b"".join(self._spelling[s] for s in symbols.tolist())
        return text[: self._end(text, len(self._prefix))].removeprefix(self._leading)


def decode_stream(
    steps: Iterator[np.ndarray], spelling: Sequence[bytes], stop: StopStrings | None, leading: bytes = b""
) -> Iterator[str]:
    """The characters that each symbol completes, where it completes any, until a stop string ends the text.

    ``leading`` is left out where the first symbol begins with it.
    """
    characters = IncrementalDecoder()
    for i, step in enumerate(steps):
        symbol = int(step)
        end = None if stop is None else stop.advance(0, symbol)
        spelled = spelling[symbol][:end]
        part = characters.decode(spelled.removeprefix(leading) if i == 0 else spelled)
        if part:
            yield part
        if end is not None:
            break
    rest = characters.decode(b"", last=True)
    if rest:
        yield rest


class IncrementalDecoder:
    """UTF-8 characters of bytes as they come; the bytes of an unfinished character are held back.

    Bytes that are no UTF-8 become U+FFFD, as when the whole text is decoded at once.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def decode(self, part: bytes, *, last: bool = False) -> str:
        """The characters that ``part`` completes; after the ``last`` part all that is left."""
        return self._decoder.decode(part, final=last)
