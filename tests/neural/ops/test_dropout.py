import pytest
import torch

from seqmodels.neural.ops.dropout import LEVELS, dropout, keep_mask


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_a_fraction_is_dropped_and_the_mean_is_kept(p: float) -> None:
    out = dropout(torch.ones(1000, 501), p, True)
    n, kept = out.numel(), int((out > 0).sum())
    assert abs(kept - n * (1 - p)) < 5 * (n * p * (1 - p)) ** 0.5
    scale = LEVELS / (LEVELS - round(p * LEVELS))
    assert out.unique().tolist() == pytest.approx([0.0, scale])
    assert scale == pytest.approx(1 / (1 - p), rel=1e-4)


def test_entries_that_share_a_draw_are_independent() -> None:
    kept = keep_mask(torch.Size((50_000, 4)), LEVELS // 2).double()
    correlation = torch.corrcoef(kept.T) - torch.eye(4)
    assert correlation.abs().max() < 5 / 50_000**0.5


def test_the_ends_of_the_range() -> None:
    assert keep_mask(torch.Size((3, 7)), 0).all()
    assert not dropout(torch.ones(5), 1.0, True).any()
    x = torch.randn(3)
    assert dropout(x, 0.0, True) is x
    assert dropout(x, 0.5, False) is x


def test_the_gradient_is_dropped_with_the_value() -> None:
    x = torch.ones(100, requires_grad=True)
    out = dropout(x, 0.5, True)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_it_follows_the_seed() -> None:
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(dropout(torch.ones(100), 0.5, True))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
