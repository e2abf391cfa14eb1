"""One table for inputs and outputs: against the same model with two, what is counted, what is kept."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels.neural.cursor import StepperCursor

X = [np.array(x) for x in ([0, 2, 1, 1], [1], [2, 0, 0, 1, 2, 1])]
Y = [np.array(y) for y in ([2, 1], [0, 0, 2], [1])]
SMALL = {"d_model": 8, "n_layers": 1, "max_steps": 3, "dtype": "float64"}
V, D = 3, 8


def apart(tied):
    """The same function with a table for each end."""
    twin = copy.deepcopy(tied).set_params(architecture__tie_embeddings=False)
    twin._build()
    module = tied._evaluation_module()
    weights = module.state_dict()
    table, scale = weights["embedding.map.weight"], module.embedding.scale
    own = [weights.pop("head.own")] if "head.own" in weights else []
    weights |= {"embedding.map.weight": table * scale, "begin": weights["begin"] * scale}
    weights["head.weight"] = torch.cat([table, *own])
    if module.network.reads_source and module.spec.conditional:
        weights["source_embedding.map.weight"] = table * scale
    twin.module_.double().load_state_dict(weights)
    return twin


@pytest.mark.parametrize("length", ["given", "stop"])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("make", [sm.GRU, sm.Transformer])
def test_one_table_does_the_work_of_two(make, scaled, length):
    tying = {"architecture__tie_embeddings": True, "architecture__scale_embeddings": scaled}
    tied = make(**SMALL, length=length).set_params(**tying).fit(X, validation=None)
    twin = apart(tied)
    np.testing.assert_allclose(tied.log_prob(X), twin.log_prob(X), rtol=1e-12)
    assert twin.n_parameters_ - tied.n_parameters_ == V * D
    assert tied.module_.embedding.scale == (D**0.5 if scaled else 1)


def test_sources_are_read_by_the_same_table():
    tied = sm.TransformerSeq2Seq(
        **SMALL, architecture=sm.neural.TransformerSeq2SeqArchitecture(tie_embeddings=True)
    ).fit(X, Y, validation=None)
    twin = apart(tied)
    np.testing.assert_allclose(tied.log_prob(X, Y), twin.log_prob(X, Y), rtol=1e-12)
    assert twin.n_parameters_ - tied.n_parameters_ == 2 * V * D


def test_single_steps_are_a_symbol_cursors():
    model = sm.LSTM(**SMALL, architecture=sm.neural.RecurrentArchitecture(tie_embeddings=True)).fit(X, validation=None)
    cursor = model.cursor()
    assert isinstance(cursor, StepperCursor)
    state, steps = cursor.start(), []
    for x in X[0]:
        prediction = cursor.distribution(state)
        steps.append(float(prediction.observation.log_prob(prediction.output_parameters[:, 0], torch.tensor([x]))))
        state = cursor.advance(state, torch.tensor([x]))
    assert steps[0] == pytest.approx(model.log_prob_steps(X)[0][0])  # the first cannot be the end


def test_the_table_is_trained_and_kept_once(tmp_path):
    model = sm.Transformer(**SMALL, architecture=sm.neural.TransformerArchitecture(tie_embeddings=True)).fit(
        X, validation=None
    )
    before = copy.deepcopy(model)
    before._build()
    assert not torch.equal(before.module_.head.weight, model.module_.head.weight)
    names = [name for name, value in model.module_.state_dict().items() if value.shape[-1:] == (D,) and len(value) == V]
    assert names == ["embedding.map.weight"]
    model.save(tmp_path / "tied.safetensors")
    np.testing.assert_allclose(
        sm.load(tmp_path / "tied.safetensors").log_prob(X), model.log_prob(X), rtol=1e-5, atol=1e-5
    )


def test_a_copy_shares_its_own_table():
    model = sm.Transformer(**SMALL, architecture=sm.neural.TransformerArchitecture(tie_embeddings=True)).fit(
        X, validation=None
    )
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.module_.embedding.map.weight.zero_()
    assert not twin.module_.head.weight[:V].any()
    assert model.module_.head.weight[:V].all()


def test_vectors_have_no_table():
    with pytest.raises(ValueError, match="no table of embeddings to tie"):
        sm.GRU(**SMALL, architecture=sm.neural.RecurrentArchitecture(tie_embeddings=True)).fit(
            [np.random.default_rng(0).normal(size=(9, 2))], validation=None
        )


def test_masked_models_have_the_embedding_and_head_of_bert(tmp_path):
    options = {"norm": "post"}
    head = {"embedding_norm": True, "head_transform": True, "norm_affine": False}
    untied, tied = (
        sm.MaskedTransformer(
            **SMALL, **options, architecture=sm.neural.MaskedTransformerArchitecture(tie_embeddings=t, **head)
        ).fit(X, validation=None)
        for t in (False, True)
    )
    assert untied.n_parameters_ - tied.n_parameters_ == V * D
    module = tied.module_
    assert torch.equal(module.head.weight, module.embedding.weight[:V])  # the marks are never predicted
    states = tied.encode(X[:1], layer=0)[0]
    np.testing.assert_allclose(states.mean(1), 0, atol=1e-6)  # what enters the first block has passed a norm
    tied.save(tmp_path / "tied.safetensors")
    again = sm.load(tmp_path / "tied.safetensors")
    np.testing.assert_allclose(again.pseudo_log_prob(X), tied.pseudo_log_prob(X), rtol=1e-5)
