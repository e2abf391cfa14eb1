"""Damaged, lying and foreign files of every format, by what is wrong with them: each is refused, or warned of."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seqmodels.data import on_disk, pairs, read, text
from seqmodels.data.read import FORMATS
from seqmodels.data.vocabulary import Vocabulary

Expected = Literal["refused", "warned", "right"]
Outcome = Literal["refused", "warned", "right", "silent", "foreign"]
MIN_WORDS = 6  # of a refusal
BOMB = 1 << 24  # bytes that a member of a bomb unpacks to
READERS: dict[str, Callable[[Path], Any]] = {
    "read": read,
    "text": text,
    "on_disk": on_disk,
    "pairs": pairs,
    "vocabulary": Vocabulary.load,
    "classified": lambda path: read(path, label="label"),
    "as text": lambda path: read(path, kind="text"),
    "as vectors": lambda path: read(path, kind="vectors"),
}


@dataclass(frozen=True)
class Malformed:
    """One file: what is wrong with it, its name, how it is made, and what should come of it."""

    what: str
    name: str
    make: Callable[[Path], Any]
    expected: Expected = "refused"
    reader: str = "read"
    is_large: bool = False  # takes seconds to make or to read

    def __str__(self) -> str:
        return f"{self.reader} {self.name}: {self.what}"


def outcome(case: Malformed, path: Path) -> tuple[Outcome, str]:
    """What came of one file, and a few words on it: a refusal names the file, and so does a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = READERS[case.reader](path)
        except (ValueError, FileNotFoundError) as error:
            names_it = path.name in str(error) and len(str(error).split()) >= MIN_WORDS and "\n" not in str(error)
            return ("refused" if names_it else "foreign"), f"{type(error).__name__}: {error}"
        except Exception as error:  # whatever comes is what is measured
            return "foreign", f"{type(error).__name__}: {error}"
    said = [str(each.message) for each in caught if path.name in str(each.message)]
    if case.expected == "right":
        return "right", repr(value)
    return ("warned", said[0]) if said else ("silent", repr(value))


def write(content: bytes | str, path: Path) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def case(name: str, what: str, content: bytes | str, expected: Expected = "refused", reader: str = "read") -> Malformed:
    """A file of such bytes."""
    return Malformed(what, name, partial(write, content), expected, reader)


# -- what is no file, and what is packed ------------------------------------------------------------------------

PACKED = ("csv.gz", "txt.gz")
ENDINGS = (*(each.endings[0][1:] for each in FORMATS), "tsv", "parquet", "npz", "json", *PACKED)
TEXTS = {  # a good file of every format that is text
    "csv": "a,b\n0.5,1\n1.5,2\n",
    "ts": "@classLabel true x y\n@data\n1.5,2,3:x\n3,4:y\n",
    "fasta": ">s1\nGAT\n>s2\nCAT\n",
    "jsonl": '["a", "b"]\n["a"]\n',
    "txt": "to be or not to be\n",
}


def _linked(target: str, path: Path) -> None:
    path.symlink_to(target)


def special() -> Iterator[Malformed]:
    for ending in ENDINGS:
        name = f"x.{ending}"
        yield Malformed("a pipe", name, os.mkfifo)
        yield Malformed("/dev/zero", name, partial(_linked, "/dev/zero"))
        yield Malformed("a link to nothing", name, partial(_linked, "nothing"))
        yield Malformed("a folder", name, Path.mkdir)
        yield case(name, "empty", b"")
        yield case(name, "random bytes", np.random.default_rng(0).bytes(300))
    for name, reader in (("x.txt", "text"), ("x.npy", "on_disk"), ("x.bin", "on_disk"), ("x.txt", "on_disk")):
        yield Malformed("a pipe", name, os.mkfifo, reader=reader)
        yield Malformed("/dev/zero", name, partial(_linked, "/dev/zero"), reader=reader)
    yield Malformed("a pipe", "x.tsv", os.mkfifo, reader="pairs")
    yield Malformed("a pipe", "x.json", os.mkfifo, reader="vocabulary")
    for name, content in TEXTS.items():
        yield case(
            f"x.{name}", "null bytes", content.replace("o", "\0").replace("1", "\0").replace("A", "\0").encode() + b"\0"
        )
        yield case(f"x.{name}", "UTF-16", content.encode("utf-16"), *(["right"] if name == "csv" else []))
        yield case(f"x.{name}", "Latin-1", content.encode() + b"caf\xe9")
        yield case(f"x.{name}.gz", "not packed", content)
        packed = gzip.compress(content.encode() * 50)
        yield case(f"x.{name}.gz", "cut off", packed[:-9])
        yield case(f"x.{name}.gz", "a wrong checksum", packed[:-8] + b"12345678")
        yield case(f"x.{name}.gz", "a damaged byte", packed[:14] + bytes([packed[14] ^ 0xFF]) + packed[15:])
        yield case(f"x.{name}.gz", "bytes after its end", packed + b"more")
        yield Malformed("a bomb", f"x.{name}.gz", _gzip_bomb, is_large=True)


def _gzip_bomb(path: Path) -> None:
    """1.6 MB that unpack to 1.6 GB."""
    path.write_bytes(gzip.compress(bytes(BOMB)) * 100)


# -- NumPy's files ---------------------------------------------------------------------------------------------


def header(shape: str, descr: str = "'<f8'", rest: bytes = b"") -> bytes:
    """A ``.npy`` file with this header, and what follows it."""
    said = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(said)) + said + rest


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npz(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two members of one name
        with zipfile.ZipFile(file, "w", method) as packed:
            for name, content in members:
                packed.writestr(name, content)
    return file.getvalue()


X = np.arange(6.0).reshape(3, 2)


def arrays() -> Iterator[Malformed]:
    good, packed = npy(X), npz(("a.npy", npy(X)), ("b.npy", npy(X + 1)))
    for reader in ("read", "on_disk"):
        yield case("x.npy", "44 GB, it says", header("(5500000000,)"), reader=reader)
        yield case("x.npy", "10^30 numbers, it says", header(f"({10**15}, {10**15})"), reader=reader)
        yield case("x.npy", "a negative shape", header("(-1, -3)", rest=bytes(24)), reader=reader)
        yield case("x.npy", "cut off", good[:-8], reader=reader)
        yield case("x.npy", "more than it says", good + bytes(8), reader=reader)
        yield case("x.npy", "two arrays", good + good, reader=reader)
        yield case("x.npy", "a shape of 100 axes", header("(" + "1," * 100 + ")", rest=bytes(8)), reader=reader)
        yield case("x.npy", "a shape of words", header("('a',)"), reader=reader)
        yield case("x.npy", "a header that is no dictionary", header("[[[[[[[").replace(b"{", b"(", 1), reader=reader)
        yield case(
            "x.npy",
            "a header of 60,000 brackets",
            b"\x93NUMPY\x01\x00" + struct.pack("<H", 60000) + b"[" * 60000,
            reader=reader,
        )
        yield case("x.npy", "a newer version", b"\x93NUMPY\x09\x00" + good[8:], reader=reader)
        yield case("x.npy", "complex numbers", npy(X * 1j), reader=reader)
        yield case("x.npy", "dates", npy(np.array(["2020-01-01"], dtype="M8[D]")), reader=reader)
        yield case("x.npy", "named columns", npy(np.zeros(3, dtype=[("a", float), ("b", float)])), reader=reader)
        yield case("x.npy", "strings of no length", header("(1000000000000,)", "'|S0'"), reader=reader)
        yield case("x.npy", "no rows", npy(np.zeros((0, 3))), reader=reader)
        yield case("x.npy", "a million million empty rows", header("(1000000000000, 0, 1)"), reader=reader)
        yield case("x.npy", "one number", npy(np.array(3.0)), reader=reader)
        yield case("x.npy", "four axes", npy(np.zeros((2, 2, 2, 2))), reader=reader)
        yield case("x.npy", "infinite", npy(X / 0.0 if False else np.full((2, 2), np.inf)), reader=reader)
        yield case("x.npy", "negative symbols", npy(np.array([1, -1])), reader=reader)
        yield case("x.npy", "objects", npy_of_objects(), reader=reader)
        yield case("x.npy", "a pickle", b"\x80\x04K\x01.", reader=reader)
    yield case("x.bin", "half a symbol", b"abc", reader="on_disk")
    yield case("x.npz", "cut off", packed[:-30])
    yield case("x.npz", "a damaged byte", packed[:60] + bytes([packed[60] ^ 0xFF]) + packed[61:])
    yield case("x.npz", "a wrong checksum", npz_with_wrong_checksum())
    yield case("x.npz", "two members of one name", npz(("a.npy", npy(X)), ("a.npy", npy(X + 1))))
    yield case("x.npz", "two members of one name, one without its ending", npz(("a.npy", npy(X)), ("a", npy(X + 1))))
    yield case("x.npz", "a member that is no array", npz(("a.npy", npy(X)), ("notes.txt", b"three frames")))
    yield case("x.npz", "a member that says 44 GB", npz(("a.npy", header("(5500000000,)"))))
    yield case("x.npz", "a member that is cut off", npz(("a.npy", good[:-8])))
    yield case("x.npz", "a member with more than it says", npz(("a.npy", good + bytes(8))))
    yield case("x.npz", "no members", npz())
    yield case("x.npz", "another width", npz(("a.npy", npy(X)), ("b.npy", npy(X[:, :1]))))
    yield case("x.npz", "an empty member", npz(("a.npy", npy(X)), ("b.npy", npy(X[:0]))))
    yield case("x.npz", "a password", npz_encrypted())
    yield case(
        "x.npz",
        "a compression of its own",
        packed.replace(b"PK\x03\x04\x14\x00\x00\x00\x08", b"PK\x03\x04\x14\x00\x00\x00\x63").replace(
            b"PK\x01\x02\x14\x03\x14\x00\x00\x00\x08", b"PK\x01\x02\x14\x03\x14\x00\x00\x00\x63"
        ),
    )
    yield case("x.npz", "lengths that do not sum up", npz(("X.npy", npy(X)), ("lengths.npy", npy(np.array([1, 1])))))
    yield case("x.npz", "lengths of reals", npz(("X.npy", npy(X)), ("lengths.npy", npy(np.array([1.5, 1.5])))))
    yield case("x.npz", "one length", npz(("X.npy", npy(X)), ("lengths.npy", npy(np.array(3)))))
    yield case(
        "x.npz",
        "labels of two axes",
        npz(("X.npy", npy(X)), ("lengths.npy", npy(np.array([3]))), ("labels.npy", npy(np.array([["a"]])))),
    )
    yield case(
        "x.npz",
        "labels too many",
        npz(("X.npy", npy(X)), ("lengths.npy", npy(np.array([3]))), ("labels.npy", npy(np.array(["a", "b"])))),
    )
    yield case(
        "x.npz",
        "an array beside X and lengths",
        npz(("X.npy", npy(X)), ("lengths.npy", npy(np.array([3]))), ("classes.npy", npy(np.array(["a"])))),
        "warned",
    )
    yield Malformed("a bomb", "x.npz", _npz_bomb, is_large=True)


def npy_of_objects() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([X, None], dtype=object), allow_pickle=True)
    return file.getvalue()


def npz_with_wrong_checksum() -> bytes:
    content = npz(("a.npy", npy(X)), method=zipfile.ZIP_STORED)
    at = content.index(X.tobytes())
    return content[:at] + bytes(8) + (X + 1).tobytes()[8:] + content[at + X.nbytes :]


def npz_encrypted() -> bytes:
    content = bytearray(npz(("a.npy", npy(X))))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


def _npz_bomb(path: Path) -> None:
    """0.3 MB that unpack to 0.3 GB."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for i in range(20):
            packed.writestr(f"a{i}.npy", header(f"({BOMB // 8},)", rest=bytes(BOMB)))


# -- recordings and pieces -------------------------------------------------------------------------------------


def wav(
    n_frames: int = 400,
    *,
    said: int | None = None,
    riff: int | None = None,
    rate: int = 8000,
    channels: int = 1,
    bits: int = 16,
    frame: int | None = None,
    second: int | None = None,
    code: int = 1,
    after: bytes = b"",
    magic: bytes = b"RIFF",
) -> bytes:
    """A recording of noise, whose header says what it is told to."""
    samples = np.random.default_rng(0).integers(-9000, 9000, n_frames * channels).astype("<i2").tobytes()
    frame = channels * bits // 8 if frame is None else frame
    second = rate * frame if second is None else second
    fmt = struct.pack("<HHIIHH", code, channels, rate, second, frame, bits)
    body = b"WAVEfmt " + struct.pack("<I", len(fmt)) + fmt
    body += b"data" + struct.pack("<I", len(samples) if said is None else said) + samples + after
    return magic + struct.pack("<I", len(body) if riff is None else riff) + body


def recordings() -> Iterator[Malformed]:
    good = wav()
    yield case("x.wav", "as it should be", good, "right")
    yield case("x.wav", "notes after its samples", wav(after=b"LIST" + struct.pack("<I", 4) + b"INFO"), "right")
    odd = b"note" + struct.pack("<I", 5) + b"abcde\0" + b"fact" + struct.pack("<I", 4) + bytes(4)
    yield case("x.wav", "notes of an odd length after its samples", wav(after=odd), "right")
    yield case("x.wav", "cut off", good[:-200])
    yield case("x.wav", "cut off within a frame", good[:-201])
    yield case("x.wav", "cut off in its header", good[:40])
    yield case("x.wav", "no samples", wav(0))
    yield case("x.wav", "more samples, it says", wav(said=8000))
    yield case("x.wav", "4 GB of samples, it says", wav(said=0xFFFFFF00))
    yield case("x.wav", "fewer samples, it says", wav(said=400))
    yield case("x.wav", "no samples, it says", wav(said=0))
    yield case("x.wav", "a length that is not known", wav(said=0xFFFFFFFF, riff=0xFFFFFFFF), "warned")
    yield case("x.wav", "bytes after its end", good + b"\xff" * 300)
    yield case("x.wav", "half a frame, it says", wav(said=799, after=b""))
    yield case(
        "x.wav", "two channels, it says", good.replace(struct.pack("<HHI", 1, 1, 8000), struct.pack("<HHI", 1, 2, 8000))
    )
    yield case(
        "x.wav", "another rate, it says", good.replace(struct.pack("<HHI", 1, 1, 8000), struct.pack("<HHI", 1, 1, 9000))
    )
    yield case("x.wav", "8 bits, it says", wav(bits=8, frame=2))
    yield case("x.wav", "no channels", wav(channels=1).replace(struct.pack("<HH", 1, 1), struct.pack("<HH", 1, 0)))
    yield case(
        "x.wav",
        "65,535 channels",
        wav(frame=65535, second=0).replace(struct.pack("<HH", 1, 1), struct.pack("<HH", 1, 65535)),
    )
    yield case("x.wav", "a rate of 0", wav(rate=0))
    yield case("x.wav", "a rate of 4 GHz", wav(rate=2**31 - 1))
    yield case("x.wav", "an unknown format", wav(code=0x1234))
    yield case("x.wav", "samples twice", wav(after=b"data" + struct.pack("<I", 4) + b"abcd"))
    yield case("x.wav", "too short for a frame of cepstra", wav(20))
    yield case("x.wav", "another format", b"fLaC" + bytes(200))
    yield case("x.wav", "text", "to be or not to be")
    yield case("x.wav", "not a number", float_wav(np.nan))
    yield case("x.wav", "infinite", float_wav(np.inf))


def float_wav(value: float) -> bytes:
    samples = np.full(400, value, "<f4").tobytes()
    fmt = struct.pack("<HHIIHH", 3, 1, 8000, 32000, 4, 32)
    body = b"WAVEfmt " + struct.pack("<I", 16) + fmt + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


def midi(*tracks: bytes, n: int | None = None, division: int = 1, kind: int = 1, size: int | None = None) -> bytes:
    """A piece of these tracks, with a header that says how many they are."""
    begin = b"MThd" + struct.pack(">IHHH", 6, kind, len(tracks) if n is None else n, division & 0xFFFF)
    return begin + b"".join(b"MTrk" + struct.pack(">I", len(each) if size is None else size) + each for each in tracks)


NOTE = b"\x00\x90\x3c\x40\x04\x80\x3c\x00"


def pieces() -> Iterator[Malformed]:
    long = b"\x00\x90\x3c\x40\xff\xff\xff\x7f\x80\x3c\x00"
    yield case("x.mid", "as it should be", midi(NOTE), "right")
    yield case("x.mid", "30 bytes that ask for terabytes", midi(long))
    yield case("x.mid", "a thousand pauses of years", midi(long * 1000))
    yield case("x.mid", "a time of 20,000 bytes", midi(b"\xff" * 20_000 + NOTE))
    yield case("x.mid", "cut off", midi(NOTE)[:-3])
    yield case("x.mid", "a track of 4 GB, it says", midi(NOTE, size=0xFFFFFFF0))
    yield case("x.mid", "a track that is shorter, it says", midi(NOTE, size=5))
    yield case("x.mid", "65,535 tracks, it says", midi(NOTE, n=65535))
    yield case("x.mid", "fewer tracks, it says", midi(NOTE, NOTE, n=1))
    yield case("x.mid", "no tracks, it says", midi(NOTE, n=0))
    yield case("x.mid", "frames of film", midi(NOTE, division=-6360))
    yield case("x.mid", "no ticks in a beat", midi(NOTE, division=0))
    yield case("x.mid", "an event that is none", midi(b"\x00\xf5\x00"))
    yield case("x.mid", "a text of 4 GB, it says", midi(b"\x00\xff\x01\xff\xff\xff\x7f"))
    yield case("x.mid", "no notes", midi(b"\x00\xff\x2f\x00"))
    yield case("x.mid", "another format", b"RIFF" + bytes(60))


# -- series, residues, JSON ------------------------------------------------------------------------------------


def series() -> Iterator[Malformed]:
    yield case("x.ts", "a class that is not among those", "@classLabel true a b\n@data\n1,2:a\n3,4:c\n")
    yield case("x.ts", "no class", "@classLabel true a b\n@data\n1,2:a\n3,4\n")
    yield case("x.ts", "an empty class", "@classLabel true a b\n@data\n1,2:a\n3,4:\n")
    yield case("x.ts", "an unknown class", "@classLabel true a b\n@data\n1,2:a\n3,4:?\n")
    yield case("x.ts", "other dimensions than before", "@data\n1,2:3,4\n1,2\n")
    yield case("x.ts", "other dimensions than it says", "@dimensions 3\n@data\n1,2:3,4\n")
    yield case("x.ts", "more than one dimension", "@univariate true\n@data\n1,2:3,4\n")
    yield case("x.ts", "dimensions that contradict", "@univariate true\n@dimensions 3\n@data\n1,2\n")
    yield case("x.ts", "another length than it says", "@equalLength true\n@seriesLength 3\n@data\n1,2\n")
    yield case("x.ts", "a length that is a word", "@equalLength true\n@seriesLength long\n@data\n1,2\n")
    yield case("x.ts", "an entry twice", "@classLabel true a\n@classLabel true b\n@data\n1,2:a\n")
    yield case("x.ts", "classes and targets", "@classLabel true a\n@targetLabel true\n@data\n1,2:a\n")
    yield case("x.ts", "an empty dimension", "@data\n1,2::3,4\n")
    yield case("x.ts", "infinite", "@data\n1,inf\n")
    yield case("x.ts", "a number with a line in it", "@data\n1,2_0\n")
    yield case("x.ts", "a number of 5,000 digits", f"@data\n1,{'9' * 5000}\n")
    yield case("x.ts", "half a pair", "@timeStamps true\n@data\n(0,1),(1,2\n")
    yield case("x.ts", "a pair of three", "@timeStamps true\n@data\n(0,1),(1,2,3)\n")
    yield case("x.ts", "words between pairs", "@timeStamps true\n@data\n(0,1)and(1,2)\n")
    yield case("x.ts", "dimensions of other times", "@timeStamps true\n@data\n(0,1),(1,2):(0,1),(2,2)\n")
    yield case("x.ts", "a time that is none", "@timeStamps true\n@data\n(soon,1),(later,2)\n")
    yield case("x.ts", "a time that is missing", "@timeStamps true\n@data\n(nan,1),(1,2)\n")
    yield case("x.ts", "times that go back", "@timeStamps true\n@data\n(1,1),(0,2)\n")
    yield case("x.ts", "a target that is a word", "@targetLabel true\n@data\n1,2:much\n")
    yield case("x.ts", "all missing", "@data\n?,?\n")
    yield case("x.ts", "a table", "a,b\n1,2\n")


def residues() -> Iterator[Malformed]:
    yield case("x.fasta", "a page", ">s1\n<html>\n")
    yield case("x.fasta", "a character that is no residue", ">s1\nGAT\n>s2\nGA#T\n")
    yield case("x.fasta", "no header", "GAT\n")
    yield case("x.fasta", "a record without residues", ">s1\nGAT\n>s2\n")
    yield case("x.fasta", "a FASTQ", "@r1\nGAT\n+\n!!!\n")


def objects() -> Iterator[Malformed]:
    deep, digits = "[" * 100_000 + "]" * 100_000, "9" * 5000
    for name in ("x.jsonl", "x.json"):
        yield case(name, "lists in lists", deep)
        yield case(name, "objects in objects", '{"a":' * 100_000)
        yield case(name, "500 lists in lists", "[" * 500 + "]" * 500)
        yield case(name, "a number of 5,000 digits", f"[0, {digits}]")
        yield case(name, "a negative number of 5,000 digits", f"[[-{digits}, 1]]")
        yield case(name, "a number of 100 digits", f"[[{'9' * 100}]]" if name == "x.json" else f"[{'9' * 100}]")
        yield case(name, "1e400", "[[[1e400, 1.5]]]" if name == "x.json" else "[[1e400, 1.5]]")
        yield case(name, "a key twice", '{"tokens": [0], "tokens": [1]}')
        yield case(name, "cut off", '[["a", "b"], ["a"')
        yield case(name, "no JSON", "to be\n")
    yield case("x.json", "cut off in the third line", '[\n  ["a"],\n  ["b"\n')
    yield case("x.jsonl", "other keys of the sequence", '{"tokens": [0, 1]}\n{"words": [1, 1]}\n')
    yield case("x.jsonl", "a list after objects", '{"tokens": [0, 1]}\n[1, 1]\n')
    yield case("x.jsonl", "a label that some lack", '{"t": [0, 1], "label": "a"}\n{"t": [1, 1]}\n', "warned")
    yield case(
        "x.jsonl", "a label that is null", '{"t": [0, 1], "label": "a"}\n{"t": [1, 1], "label": null}\n', "warned"
    )
    yield case("x.jsonl", "a key that some lack", '{"t": [0, 1], "age": 3}\n{"t": [1, 1]}\n', "warned")
    yield case("x.jsonl", "a label that is a list", '{"t": [0, 1], "label": [1]}\n', reader="read")
    yield case("x.jsonl", "frames of other widths", "[[1.5, 2], [3]]\n")
    yield case("x.jsonl", "frames of other widths, as vectors", "[[1.5, 2], [3]]\n", reader="as vectors")
    yield case("x.jsonl", "words among numbers", '[[1.5, "a"]]\n')
    yield case("x.jsonl", "numbers among words", '["a", 3]\n')
    yield case("x.jsonl", "sequences of several kinds", '["a", "b"]\n[[1.5]]\n')
    yield case("x.jsonl", "an empty list", '["a"]\n[]\n')
    yield case("x.jsonl", "Infinity", "[[Infinity, 1]]\n")
    yield case("x.jsonl", "half a character", '"\\ud800"\n')
    yield case("x.json", "a token twice", json.dumps({"tokens": ["a", "a"], "unknown": None}), reader="vocabulary")
    yield case("x.json", "lists in lists", deep, reader="vocabulary")
    yield case("x.json", "another object", "{}", reader="vocabulary")
    yield case("x.json", "no JSON", "tokens", reader="vocabulary")


# -- tables and texts ------------------------------------------------------------------------------------------


def tables() -> Iterator[Malformed]:
    wide = ",".join(f"c{i}" for i in range(100_000))
    yield case("x.csv", "100,000 columns", f"{wide}\n" + ",".join(["1.5"] * 100_000) + "\n")
    yield Malformed("one line of 10^7 commas", "x.csv", partial(write, "," * 10_000_000), is_large=True)
    yield case("x.csv", "a line with fewer cells", "a,b,c\n1,2,3\n4,5\n")
    yield case("x.csv", "a line with one cell", "a,b\n0.5,2\n3\n")
    yield case("x.csv", "a line with more cells", "a,b\n1,2\n4,5,6\n")
    yield case("x.csv", "lines with more cells than the header", "a,b\nx,1,2\ny,4,5\n")
    yield case("x.csv", "a quote without an end", 'a,b\n1,2\n3,"4\n5,6\n')
    yield case("x.csv", "a word among numbers", "a\n1.5\n2.5x\n3.5\n4.5\n")
    yield case("x.csv", "a word beside one number", "a\n1.5\nx\n")
    yield case("x.csv", "a word in one of two columns", "a,b\n1.5,1\n2.5x,2\n3.5,4\n")
    yield case("x.csv", "a number of 5,000 digits", f"a\n{'9' * 5000}\n2\n3\n")
    yield case("x.csv", "a number of 400 digits", f"a\n{'9' * 400}\n2\n3\n")
    yield case("x.csv", "1e999", "a,b\n1e999,1\n2,3\n")
    yield case("x.csv", "infinite", "a,b\ninf,1\n2,3\n")
    yield case("x.csv", "complex numbers", "a\n1+2j\n2+1j\n3\n4\n5\n")
    yield case("x.csv", "a header alone", "a,b\n")
    yield case("x.csv", "dates that are none", "year,month,day,a\n2020,13,45,1\n2020,13,46,2\n")
    yield case("x.csv", "a label that is missing", "sequence,a,label\n0,1.5,x\n0,2,x\n1,3,\n1,4,\n", "warned")
    yield case("x.csv", "a label that changes", "sequence,a,label\n0,1.5,x\n0,2,y\n", reader="classified")
    yield case("x.csv", "a sequence that is missing", "sequence,a\n0,1.5\n,2\n")
    yield case("x.csv", "a page", "<html><body>\n<p>not found</p>\n<p>a, b, c</p>\n</body></html>\n")
    yield case("x.tsv", "a pair with one side", "a dog\tun chien\na cat\n", reader="pairs")
    yield case("x.parquet", "cut off", b"PAR1" + bytes(40))
    yield case("x.parquet", "a CSV", "a,b\n1,2\n")


def bombs() -> Iterator[Malformed]:
    """Parquet files of a few kilobytes that say they hold far more; made by pyarrow, which reads them."""
    n = 20_000_000
    yield Malformed("a bomb of rows", "x.parquet", lambda path: _parquet(path, np.zeros(n)), is_large=True)
    yield Malformed("a bomb of one list", "x.parquet", lambda path: _parquet(path, [np.zeros(n)]), is_large=True)
    yield Malformed("a bomb of one string", "x.parquet", lambda path: _parquet(path, ["z" * 8 * n]), is_large=True)
    yield Malformed("a bomb of one string in all rows", "x.parquet", _repeated_string)


def _parquet(path: Path, values: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": pa.array(values)}), path, compression="zstd")


def _repeated_string(path: Path) -> None:
    import pyarrow as pa

    _parquet(path, pa.DictionaryArray.from_arrays(pa.array(np.zeros(50_000, np.int32)), pa.array(["x" * 20_000])))


def texts() -> Iterator[Malformed]:
    workbook = npz(("[Content_Types].xml", b"<Types/>"), ("xl/workbook.xml", b"<workbook/>"))
    for reader in ("read", "as text"):
        yield case("x.xlsx", "a workbook", workbook, reader=reader)
    yield case("x.xlsx", "a workbook", workbook, reader="text")
    plain = npz(("xl/sheet.xml", b"<sheet/>"), method=zipfile.ZIP_STORED)
    yield case(
        "x.xlsx", "a workbook whose bytes are text", bytes(b if b < 128 and b else 32 for b in plain), reader="text"
    )
    yield case("x.xlsx", "text in the name of a workbook", "to be or not to be")
    yield case("x.docx", "text in the name of a document", "to be or not to be")
    yield case("x.txt", "a workbook in the name of a text", bytes(b if b < 128 and b else 32 for b in plain))
    yield case("x.txt", "a workbook in the name of a text", workbook, reader="on_disk")
    yield case("x.txt", "a PDF", b"%PDF-1.7 obj <<>> endobj")
    yield case("x.txt", "UTF-16 without a mark", "to be".encode("utf-16-le"))
    yield case("x.txt", "UTF-16 without a mark", "to be".encode("utf-16-le"), reader="on_disk")
    yield case("x.txt", "a null byte", b"to\0be")
    yield case("x.txt", "blank", " \n\n")
    yield case("x.txt", "digits that end in a word", "1" * 200_000 + "x", "right")
    yield case("x.tsv", "a side that is blank", "a\t\n", reader="pairs")


PARTS = (special, arrays, recordings, pieces, series, residues, objects, tables, bombs, texts)


def cases() -> list[Malformed]:
    """All of them; Parquet bombs where pyarrow is installed."""
    has_arrow = find_spec("pyarrow") is not None
    return [each for part in PARTS if part is not bombs or has_arrow for each in part()]
