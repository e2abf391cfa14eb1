import pytest

import seqmodels as sm
from seqmodels.neural.transformer.config import TransformerConfig, config_of


@pytest.mark.parametrize(
    ("arguments", "message"),
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
def test_what_cannot_be_is_refused(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        TransformerConfig(**({"d_model": 8, "n_heads": 4} | arguments)).check_architecture()


def test_what_follows_from_the_others() -> None:
    config = TransformerConfig(d_model=12, n_heads=3)
    assert (config.d_head, config.n_key_heads, config.feedforward_width) == (4, 3, 48)
    assert TransformerConfig(d_model=12, n_heads=4, n_kv_heads=2).n_key_heads == 2
    assert TransformerConfig(d_model=12, d_feedforward=5).feedforward_width == 5
    assert TransformerConfig(d_model=12, activation="swiglu").feedforward_width == 32


def test_the_longest_sequence_is_checked_too() -> None:
    TransformerConfig(positions="learned").check_architecture(5)
    with pytest.raises(ValueError, match="max_length is 0; pass at least 1, or None"):
        TransformerConfig().check_architecture(0)


def test_a_models_configuration_is_its_arguments() -> None:
    config = config_of(sm.Transformer(d_model=96, window=7))
    assert (config.n_heads, config.window, config.activation, config.positions) == (3, 7, "relu2", "rotary")
    assert not isinstance(config, sm.Transformer)
