"""Callbacks of training: functions that are called with a row of the history, which is a dictionary of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seqmodels.common.parameters import Configurable, refuse_wrong_arguments

Callback = Callable[[dict[str, float]], None]


@dataclass(eq=False, repr=False)
class TensorBoard(Configurable):
    """A callback that writes each row of the history as scalars for TensorBoard.

    It needs the package ``tensorboard``.

    Args:
        folder: folder of the event files.
    """

    folder: str

    def __call__(self, row: dict[str, float]) -> None:
        refuse_wrong_arguments(self)
        writer = self._writer()
        for name, value in row.items():
            if name != "step" and not math.isnan(value):
                writer.add_scalar(name, value, int(row["step"]))
        writer.flush()

    def _writer(self) -> Any:
        if "writer" not in self.__dict__:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(self.folder)
        return self.writer
