from __future__ import annotations

import pytest
import torch

from seqmodels.neural.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
def test_elements_are_dropped_as_often_as_asked_and_the_mean_stays(p: float) -> None:
    torch.manual_seed(0)
    out = Dropout(p)(torch.ones(300, 1001))
    share = round(256 * p) / 256
    spread = (share * (1 - share) / out.numel()) ** 0.5
    assert abs(float((out == 0).double().mean()) - share) < 4 * spread
    assert float(out.max()) == pytest.approx(1 / (1 - share))
    columns = (out == 0).double().mean(0)  # neither bytes of one word nor neighbours go together
    assert float((columns - share).abs().max()) < 5 * (share * (1 - share) / 300) ** 0.5
    zero = (out == 0).double() - share
    assert abs(float((zero[:, 1:] * zero[:, :-1]).mean())) < 4 * share * (1 - share) / out.numel() ** 0.5


def test_only_training_drops() -> None:
    x = torch.randn(5, 7)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_gradients_pass_where_values_do() -> None:
    x = torch.ones(4, 9, requires_grad=True)
    out = Dropout(0.5)(x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())
