from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import seqmodels as sm
from seqmodels.neural.checked_weights import MAX_UNSAVED, build_with_weights, check_shapes, shapes_alone

FIXTURES = Path(__file__).parents[1] / "fixtures" / "0.1.0"


def arrays(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def test_weights_come_back_and_nothing_is_drawn() -> None:
    given = arrays(nn.Linear(3, 2))
    before = torch.get_rng_state()
    module = build_with_weights(lambda: nn.Linear(3, 2), given, d_model=3, n_layers=1)
    assert torch.equal(torch.get_rng_state(), before)
    for name, array in arrays(module).items():
        np.testing.assert_array_equal(array, given[name])


def test_no_model_draws_from_the_global_generator_when_it_is_loaded() -> None:
    for name in (
        "lstm-chords",
        "lstm-symbols",
        "transformer-seq2seq-t5",
        "transformer-text",
        "masked",
        "elman-vectors",
    ):
        before = torch.get_rng_state()
        sm.load(FIXTURES / f"{name}.safetensors")
        assert torch.equal(torch.get_rng_state(), before), name


def test_shapes_alone_take_no_memory() -> None:
    with shapes_alone():
        module = nn.Linear(10**6, 10**6)
    assert module.weight.device.type == "meta"
    assert torch.zeros(1).device.type == "cpu"


def test_what_does_not_fit_is_named() -> None:
    given = arrays(nn.Linear(3, 2))
    with pytest.raises(ValueError, match=r"'weight' have shape \(2, 3\), but the hyperparameters ask for \(2, 4\)"):
        check_shapes(nn.Linear(4, 2), given)
    with pytest.raises(ValueError, match="the model has no place for the weights 'bias'"):
        check_shapes(nn.Linear(3, 2, bias=False), given)
    with pytest.raises(ValueError, match="'bias' are not all finite"):
        build_with_weights(
            lambda: nn.Linear(3, 2), given | {"bias": np.array([0, np.nan], np.float32)}, d_model=3, n_layers=1
        )
    with pytest.raises(ValueError, match="are float64; a saved model has float32"):
        build_with_weights(lambda: nn.Linear(3, 2), given | {"bias": np.zeros(2)}, d_model=3, n_layers=1)
    with pytest.raises(ValueError, match="n_layers is 3, but the weights"):
        build_with_weights(lambda: nn.Linear(3, 2), given, d_model=3, n_layers=3)


def test_large_tables_that_are_not_saved_are_refused() -> None:
    module = nn.Linear(3, 2)
    with shapes_alone():
        module.register_buffer("table", torch.zeros(MAX_UNSAVED + 10), persistent=False)
    with pytest.raises(ValueError, match=r"tables of .* numbers beside 8 weights"):
        check_shapes(module, arrays(nn.Linear(3, 2)))
