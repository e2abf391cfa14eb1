import pytest
import torch
from torch import Tensor, nn

from seqmodels.neural.transformer.norms import EPSILON, Residual, RMSNorm, make_norm


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("affine", [True, False])
def test_rms_is_torchs(affine: bool) -> None:
    ours, theirs = RMSNorm(6, affine=affine).double(), nn.RMSNorm(6, eps=EPSILON, elementwise_affine=affine).double()
    if affine:
        ours.weight.data = draw(6, seed=1)
        theirs.weight.data = draw(6, seed=1)
    x = draw(2, 3, 6).requires_grad_()
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(norm(x).pow(3).sum(), x)[0] for norm in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)
    assert len(list(ours.parameters())) == affine


def test_a_gain_for_each_head() -> None:
    norm = RMSNorm(2, 1, 4)
    norm.weight.data[1] = 3.0
    out = norm(torch.ones(5, 2, 3, 4))
    torch.testing.assert_close(out[:, 1], 3 * out[:, 0])


def test_rms_of_half_precision_is_computed_in_full() -> None:
    x = (1 + 1e-2 * draw(4, 64)).to(torch.bfloat16)
    out = RMSNorm(64, affine=False)(x)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out, RMSNorm(64, affine=False)(x.float()).to(torch.bfloat16), rtol=0, atol=0)


def test_where_the_norm_stands() -> None:
    layer, x, f = nn.LayerNorm(6).double(), draw(2, 6), nn.Linear(6, 6).double()
    layer.weight.data, layer.bias.data = draw(6, seed=1), draw(6, seed=2)
    expected = {"pre": x + f(layer(x)), "post": layer(x + f(x)), "residual": x + layer(f(x))}
    for norm, value in expected.items():
        residual = Residual(norm, layer, 0.0)
        assert torch.equal(residual.leave(x, f(residual.enter(x))), value)


def test_norms_by_name() -> None:
    assert sum(p.numel() for p in make_norm("layer", 6).parameters()) == 12
    assert sum(p.numel() for p in make_norm("layer", 6, bias=False).parameters()) == 6
    assert sum(p.numel() for p in make_norm("rms", 6).parameters()) == 6
    for kind in ("layer", "rms"):
        assert list(make_norm(kind, 6, affine=False).parameters()) == []


@pytest.mark.parametrize(("kind", "theirs"), [("layer", nn.LayerNorm), ("rms", nn.RMSNorm)])
def test_what_is_added_to_the_mean_square_is_chosen(kind, theirs) -> None:
    x = draw(4, 6)
    torch.testing.assert_close(make_norm(kind, 6, epsilon=0.3).double()(x), theirs(6, eps=0.3).double()(x))
