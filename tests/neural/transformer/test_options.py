import pytest

from seqmodels.neural.transformer.options import TransformerOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "middle"}, 'norm is \'middle\'; pass one of "pre", "post", "residual"'),
        ({"norm_type": "batch"}, "norm_type is 'batch'"),
        ({"activation": "swish"}, "activation is 'swish'"),
        ({"positions": "spiral"}, "positions is 'spiral'; pass one of .* None"),
        ({"positions": "learned"}, "need max_length"),
        ({"n_heads": 3}, "n_heads=3 does not divide d_model=8"),
        ({"norm_epsilon": 0.0}, "norm_epsilon is 0.0; pass a number above zero"),
        ({"n_heads": 0}, "n_heads=0 does not divide"),
        ({"n_heads": 4, "n_kv_heads": 3}, "n_kv_heads=3 does not divide n_heads=4"),
        ({"n_kv_heads": 0}, "n_kv_heads=0"),
        ({"n_heads": 8, "positions": "rotary"}, "width d_model / n_heads = 1; make it even"),
        ({"window": 0}, "window is 0; pass at least 1, or None"),
        ({"d_feedforward": 0}, "d_feedforward is 0"),
        ({"attention_dropout": 1.5}, "attention_dropout is 1.5"),
        ({"zero_init": True, "norm": "residual", "norm_affine": False}, "norm_affine=False has none"),
    ],
)
def test_what_cannot_be_is_refused(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        TransformerOptions(**({"d_model": 8} | options))


def test_what_follows_from_the_others() -> None:
    options = TransformerOptions(d_model=12, n_heads=3)
    assert (options.d_head, options.key_heads, options.width) == (4, 3, 48)
    assert TransformerOptions(d_model=12, n_kv_heads=2).key_heads == 2
    assert TransformerOptions(d_model=12, d_feedforward=5).width == 5
    assert TransformerOptions(d_model=12, activation="swiglu").width == 32
