from __future__ import annotations

import math

from seqmodels.training import TensorBoard


class Writer:
    def __init__(self) -> None:
        self.written: list[tuple[str, float, int]] = []
        self.flushed = 0

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.written.append((name, value, step))

    def flush(self) -> None:
        self.flushed += 1


def test_a_line_of_the_history_becomes_scalars() -> None:
    board, writer = TensorBoard("folder"), Writer()
    board.writer = writer
    board({"step": 7.0, "log_prob": -2.5, "validation": math.nan})
    assert writer.written == [("log_prob", -2.5, 7)]
    assert writer.flushed == 1
