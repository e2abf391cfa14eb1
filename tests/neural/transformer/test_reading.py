"""What is read step by step is what the convolution makes of all inputs at once."""

from __future__ import annotations

import pytest
import torch

from seqmodels.neural.transformer.previous import PreviousInputs
from seqmodels.neural.transformer.reading import Reading

R, D = 5, 4


@pytest.mark.parametrize("n_previous", [0, 1, 3])
@pytest.mark.parametrize("largest", [R, R - 1])
def test_step_by_step_as_at_once(n_previous: int, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqmodels.neural.transformer.reading.LARGEST_TABLE", largest)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(R, D, dtype=torch.float64, generator=generator)
    previous, rows = PreviousInputs(D, n_previous).double(), torch.randint(R, (2, 7), generator=generator)
    with torch.no_grad():
        read, expected = Reading(inputs, previous), previous(inputs[rows], previous.start(2))[0]
        for begun in (0, 2):  # from nothing, and from what was read at once
            found, pending = read.at_once(inputs[rows[:, :begun]])
            steps = [*found.unbind(1)]
            for row in rows[:, begun:].t():
                x, pending = read(row, pending)
                steps.append(x.clone())
                x.fill_(torch.nan)  # it is the caller's own
            torch.testing.assert_close(torch.stack(steps, 1), expected, rtol=0, atol=1e-12)
    assert not read.table.isnan().any()
