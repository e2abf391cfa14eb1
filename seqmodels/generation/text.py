"""Text generated symbol by symbol: strings that end it, and the characters that its bytes complete."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence

import numpy as np


class StopStrings:
    """A detector of strings at which generated texts stop; each text is cut after the first of them that it completes.

    Args:
        stop: the strings.
        spelling: bytes of each symbol, by its number.
        prefix: symbols with which all texts begin; a stop string may begin in the prefix but not end in it.
        n: number of texts generated at once.
        leading: bytes that the spelling of a text begins with and that are not part of the text.

    Raises:
        ValueError: if there is no string, or an empty one.
    """

    def __init__(
        self, stop: Sequence[str], spelling: Sequence[bytes], prefix: np.ndarray, n: int, leading: bytes = b""
    ) -> None:
        if isinstance(stop, str) or not stop or not all(isinstance(s, str) and s for s in stop):
            raise ValueError(f'stop is {stop!r}; pass a list of strings that are not empty, ["\\n\\n"], or None')
        self._stop, self._spelling, self._leading = [s.encode() for s in stop], spelling, leading
        self._kept = max(map(len, self._stop)) - 1  # last bytes of a text, in which a string may have begun
        self._prefix = b"".join(spelling[s] for s in prefix.tolist())
        self._tails = [self._last(self._prefix)] * n

    def _last(self, text: bytes) -> bytes:
        return text[-self._kept :] if self._kept else b""

    def advance(self, i: int, symbol: int) -> int | None:
        """Read the next symbol of one of the texts.

        Args:
            i: index of the text.
            symbol: the symbol.

        Returns:
            The number of the symbol's first bytes that complete a stop string; None if they complete none.
        """
        tail, part = self._tails[i], self._spelling[symbol]
        self._tails[i] = self._last(tail + part)
        end = self._end(tail + part, len(tail))
        return None if end is None else end - len(tail)

    def _end(self, text: bytes, n_before: int) -> int | None:
        """Return the end of the first stop string that ends after the first ``n_before`` bytes of a text, or None.

        Args:
            text: bytes of the text.
            n_before: number of bytes in which no stop string counts as completed.
        """
        ends = []
        for stop in self._stop:
            at = text.find(stop, max(0, n_before - len(stop) + 1))
            if at >= 0:
                ends.append(at + len(stop))
        return min(ends, default=None)

    def truncate(self, symbols: np.ndarray) -> bytes:
        """Return the bytes of a text, including its prefix, up to the end of the first stop string after the prefix.

        Args:
            symbols: all symbols of the text, with those of the prefix, ``(T,)``.
        """
        text = b"".join(self._spelling[s] for s in symbols.tolist())
        return text[: self._end(text, len(self._prefix))].removeprefix(self._leading)


def decode_stream(
    steps: Iterator[np.ndarray], spelling: Sequence[bytes], stop: StopStrings | None, leading: bytes = b""
) -> Iterator[str]:
    """Yield the characters that each generated symbol completes, if any, until a stop string ends the text.

    Args:
        steps: the symbols, as they are generated.
        spelling: bytes of each symbol, by its number.
        stop: detector of the strings that end the text; None if there are none.
        leading: bytes that are removed from the beginning of the first symbol.
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
    """A UTF-8 decoder for bytes that arrive in parts; the bytes of an unfinished character are held back.

    Invalid bytes become U+FFFD, as when the whole text is decoded at once.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def decode(self, part: bytes, *, last: bool = False) -> str:
        """Return the characters that the next bytes complete; bytes of an unfinished character are held back.

        Args:
            part: the next bytes.
            last: True if none follow; what was held back is then returned as U+FFFD.
        """
        return self._decoder.decode(part, final=last)
