"""Published models say the same here: small ones of random weights, made by ``transformers`` itself."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

import seqmodels as sm
from seqmodels import presets
from seqmodels.neural import from_huggingface
from seqmodels.neural.huggingface.bert import SpecialSymbols

transformers = pytest.importorskip("transformers")

V = 13
SPECIAL = SpecialSymbols(mask=11, begin=10, end=12)
X = [np.array(x) for x in ([3, 1, 4, 1, 5, 9], [2], [6, 5, 3, 5, 8, 9, 7, 9])]


def shaken(model):
    """Noise in every weight: near their gentle starts much looks alike."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


@cache
def gpt2(**options):
    torch.manual_seed(0)
    size = {"vocab_size": V, "n_positions": 8, "n_embd": 8, "n_layer": 2, "n_head": 2, "bos_token_id": 12}
    return shaken(transformers.GPT2LMHeadModel(transformers.GPT2Config(**(size | {"eos_token_id": 12} | options))))


@cache
def bert(**options):
    torch.manual_seed(0)
    size = {"vocab_size": V, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    rest = {"intermediate_size": 24, "max_position_embeddings": 10}
    return shaken(transformers.BertForMaskedLM(transformers.BertConfig(**(size | rest | options))))


@torch.no_grad()
def theirs(model, x, start=12):
    """``log p(x_t | x_<t)``, by theirs."""
    logits = model(input_ids=torch.tensor([[start, *x[:-1]]])).logits[0]
    return logits.log_softmax(-1)[range(len(x)), x].numpy()


@torch.no_grad()
def their_guesses(model, x, places, special_symbols=SPECIAL):
    inputs = torch.tensor([[special_symbols.begin, *x, special_symbols.end]])
    inputs[0, [p + 1 for p in places]] = special_symbols.mask
    return model(input_ids=inputs).logits[0, [p + 1 for p in places]].softmax(-1).numpy()


# -- theirs, here ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"tie_word_embeddings": False}, {"n_inner": 20, "activation_function": "relu", "layer_norm_epsilon": 0.1}],
    ids=str,
)
def test_gpt2_says_the_same_here(options):
    published = gpt2(**options)
    model = from_huggingface(published)
    assert isinstance(model, sm.Transformer)
    for x, steps in zip(X, model.log_prob_steps(X), strict=True):
        np.testing.assert_allclose(steps, theirs(published, x), rtol=0, atol=1e-5)
    extra = 8 + V  # begin, which there is a row of the table, and the bias of the logits, which there is none
    assert model.n_parameters_ - extra == sum(p.numel() for p in published.parameters())


def test_gpt2_goes_on_here_as_there():
    model, x = from_huggingface(gpt2()), X[2]
    stream = model.stream()
    found = [stream.update(symbol) for symbol in x]
    np.testing.assert_allclose(found, theirs(gpt2(), x), rtol=0, atol=1e-5)
    assert len(model.sample(length=12, random_state=0)[0]) == 12  # past its positions, by windows


def test_gpt2_starts_after_the_symbol_that_is_asked_for():
    model = from_huggingface(gpt2(), start=4)
    np.testing.assert_allclose(model.log_prob_steps(X)[0], theirs(gpt2(), X[0], start=4), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "options", [{}, {"tie_word_embeddings": False}, {"hidden_act": "relu", "layer_norm_eps": 0.1}], ids=str
)
def test_bert_guesses_the_same_here(options):
    published = bert(**options)
    model = from_huggingface(published, special_symbols=SPECIAL)
    assert isinstance(model, sm.MaskedTransformer)
    for x, places in zip(X, ([0, 4], [0], [1, 2, 7]), strict=True):
        expected = their_guesses(published, x, places)
        np.testing.assert_allclose(model.fill(x, places).probabilities, expected, rtol=0, atol=1e-5)
    alone = [np.log(their_guesses(published, X[0], [t])[0, s]) for t, s in enumerate(X[0])]
    assert model.pseudo_log_prob(X)[0] == pytest.approx(sum(alone), abs=1e-5)


@pytest.mark.parametrize(
    ("make", "config", "preset"),
    [
        ("GPT2LMHeadModel", "GPT2Config", presets.gpt2),
        ("BertForMaskedLM", "BertConfig", presets.bert),
    ],
)
def test_presets_are_what_is_published(make, config, preset):
    """Their defaults are GPT-2 small and BERT base."""
    with torch.device("meta"):
        found = from_huggingface(getattr(transformers, make)(getattr(transformers, config)()))
    expected = preset().get_params()
    width = found.feedforward_width, preset().feedforward_width
    assert width[0] == width[1]
    unlike = {name for name, value in found.get_params().items() if repr(value) != repr(expected[name])}
    assert unlike <= {"d_feedforward"}


# -- what was converted ------------------------------------------------------------------------------------------


def test_conversion_leaves_global_randomness_alone():
    before = torch.get_rng_state()
    from_huggingface(gpt2())
    assert torch.equal(torch.get_rng_state(), before)


def test_what_was_converted_can_be_kept(tmp_path):
    model = from_huggingface(gpt2())
    model.save(tmp_path / "gpt2.safetensors")
    np.testing.assert_allclose(
        sm.load(tmp_path / "gpt2.safetensors").log_prob(X), model.log_prob(X), rtol=1e-5, atol=1e-5
    )


def test_what_was_converted_can_be_trained_on():
    model = from_huggingface(gpt2()).set_params(warm_start=True, max_steps=30, lr=1e-3)
    before = model.score(X)
    assert model.fit(X, validation=None).score(X) > before


# -- refusals ----------------------------------------------------------------------------------------------------


def test_other_models_are_refused():
    with pytest.raises(ValueError, match=r"has no cls.predictions.decoder.weight; pass a BertForMaskedLM"):
        from_huggingface(transformers.BertModel(bert().config), special_symbols=SPECIAL)
    with pytest.raises(ValueError, match=r"special_symbols.mask is symbol 103 but there are 13; pass one from 0 to 12"):
        from_huggingface(bert())
    with pytest.raises(ValueError, match="scale_attn_by_inverse_layer_idx=True is not supported"):
        from_huggingface(gpt2(scale_attn_by_inverse_layer_idx=True))
