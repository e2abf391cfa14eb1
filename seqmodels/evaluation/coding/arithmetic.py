"""The arithmetic of a process: versions, platform and processor, on which the last bits of predictions depend."""

from __future__ import annotations

import hashlib
import platform
import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Self

import numpy as np
import torch

from seqmodels.common.compiled import is_compiling
from seqmodels.common.version import __version__

PACKAGES = ("seqmodels", "torch", "numpy", "numba")
N_DIGEST = 2  # bytes of a digest
N_BYTES = 3 * len(PACKAGES) + 2 * N_DIGEST


@dataclass(frozen=True)
class Arithmetic:
    """The versions and digests that identify the arithmetic of a process that codes data.

    The last bits of predictions depend on them, and with them whether data can be decoded.

    Attributes:
        versions: the three numbers of the version of each of seqmodels, torch, numpy and numba; zeros for numba if its
            loops are not compiled.
        platform: digest of the operating system, its C library, and the build of torch.
        processor: digest of its maker, its kind, and the vector instructions that torch uses.
    """

    versions: tuple[tuple[int, ...], ...]
    platform: bytes
    processor: bytes

    @classmethod
    def of_bytes(cls, data: bytes) -> Self:
        """Read versions of packages and digests of the platform and processor from the bytes that ``to_bytes`` wrote.

        Args:
            data: the bytes, ``N_BYTES`` of them or more; only the first are read.
        """
        n = 3 * len(PACKAGES)
        versions = tuple(tuple(data[i : i + 3]) for i in range(0, n, 3))
        return cls(versions, data[n : n + N_DIGEST], data[n + N_DIGEST : N_BYTES])

    def to_bytes(self) -> bytes:
        """Return the versions and digests as the ``N_BYTES`` bytes that stand in the head of coded data."""
        return b"".join(map(bytes, self.versions)) + self.platform + self.processor

    def differences(self, here: Arithmetic) -> list[str]:
        """Return phrases that say how versions and digests differ from those of this process; none if they are equal.

        Args:
            here: versions and digests of this process.
        """
        pairs = zip(PACKAGES, self.versions, here.versions, strict=True)
        words = [f"{name} {_said(there)} (here {_said(now)})" for name, there, now in pairs if there != now]
        words += ["another platform, C library or build of torch"] if self.platform != here.platform else []
        return words + (["another processor"] if self.processor != here.processor else [])


@cache
def arithmetic_here() -> Arithmetic:
    """Return the versions of packages and the digests of platform and processor of this process."""
    said = {
        "seqmodels": __version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "numba": version("numba") if is_compiling() else "",
    }
    system = (platform.system(), platform.machine(), *platform.libc_ver(), *said.values())
    maker = (_maker(), platform.machine(), torch.backends.cpu.get_cpu_capability())
    return Arithmetic(tuple(_numbers(said[name]) for name in PACKAGES), _digest(*system), _digest(*maker))


def _numbers(text: str) -> tuple[int, ...]:
    numbers = [min(255, int(part)) for part in re.findall(r"\d+", text)[:3]]
    return tuple([*numbers, 0, 0, 0][:3])


def _said(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers)) if any(numbers) else "not installed"


def _maker() -> str:
    """Return the name of the processor's maker.

    Libraries choose their loops by it, even if the instructions are the same.
    """
    facts = Path("/proc/cpuinfo")
    line = re.search(r"^vendor_id\s*:\s*(\S+)", facts.read_text(), re.MULTILINE) if facts.is_file() else None
    return line[1] if line else platform.processor()


def _digest(*words: str) -> bytes:
    return hashlib.sha256("\n".join(words).encode()).digest()[:N_DIGEST]
