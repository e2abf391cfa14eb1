from __future__ import annotations

import pytest
import torch

from seqmodels.training.clipping import clip


def test_long_gradients_come_to_the_length_and_short_ones_stay() -> None:
    gradients = [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])]
    clip(gradients, 10.0)
    assert [g.tolist() for g in gradients] == [[3.0, 0.0], [[4.0]]]
    clip(gradients, 1.0)
    torch.testing.assert_close(gradients, [torch.tensor([0.6, 0.0]), torch.tensor([[0.8]])])
    clip([], 1.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(RuntimeError, match="non-finite"):
        clip([torch.tensor([1.0]), torch.tensor([value])], 1.0)
