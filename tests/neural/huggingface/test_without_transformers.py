"""Published architectures by the names of their weights, without the package, against torch's functions."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from seqmodels.neural import from_huggingface
from seqmodels.neural.huggingface.bert import SpecialSymbols

V, D, WIDTH, N_HEADS = 7, 8, 12, 2
SPECIAL = SpecialSymbols(mask=5, begin=4, end=6)
GPT2 = {
    **{"model_type": "gpt2", "vocab_size": V, "n_embd": D, "n_layer": 2, "n_head": N_HEADS, "n_inner": WIDTH},
    **{"n_positions": 9, "activation_function": "gelu_new", "bos_token_id": 6},
    **{"layer_norm_epsilon": 1e-2, "resid_pdrop": 0.1, "attn_pdrop": 0.1},
}
BERT = {
    **{"model_type": "bert", "vocab_size": V, "hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": N_HEADS},
    **{"intermediate_size": WIDTH, "max_position_embeddings": 9, "hidden_act": "gelu"},
    **{"layer_norm_eps": 1e-2, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
}


def layers(activation, *, norm_first):
    """Two of torch's, of random weights."""
    generator, made = torch.Generator().manual_seed(0), []
    for _ in range(2):
        layer = nn.TransformerEncoderLayer(
            *(D, N_HEADS, WIDTH, 0.1, activation), layer_norm_eps=1e-2, batch_first=True, norm_first=norm_first
        )
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)
        made.append(layer.eval())
    return made


def noise(*shape):
    return 0.5 * torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def both(name, module, turn=False):
    return {f"{name}.weight": module.weight.t() if turn else module.weight, f"{name}.bias": module.bias}


def published(config, weights):
    return SimpleNamespace(config=SimpleNamespace(**config), state_dict=lambda: weights)


@torch.no_grad()
def gpt2():
    """A function from symbols (T,) to logits (T, V), and the weights as GPT-2 names them."""
    stack, words, places = layers(partial(F.gelu, approximate="tanh"), norm_first=True), noise(V, D), noise(9, D)
    last, weights = nn.LayerNorm(D, eps=1e-2), {"transformer.wte.weight": words, "transformer.wpe.weight": places}
    for i, layer in enumerate(stack):
        block, attention = f"transformer.h.{i}", layer.self_attn
        weights[f"{block}.attn.c_attn.weight"] = attention.in_proj_weight.t()
        weights[f"{block}.attn.c_attn.bias"] = attention.in_proj_bias
        weights |= both(f"{block}.attn.c_proj", attention.out_proj, turn=True)
        weights |= both(f"{block}.mlp.c_fc", layer.linear1, turn=True)
        weights |= both(f"{block}.mlp.c_proj", layer.linear2, turn=True)
        weights |= both(f"{block}.ln_1", layer.norm1) | both(f"{block}.ln_2", layer.norm2)
    weights |= both("transformer.ln_f", last) | {"lm_head.weight": words}

    @torch.no_grad()
    def logits(symbols):
        x = (words[symbols] + places[: len(symbols)])[None]
        for layer in stack:
            x = layer(x, nn.Transformer.generate_square_subsequent_mask(len(symbols)))
        return last(x[0]) @ words.t()

    return logits, weights


@torch.no_grad()
def bert():
    stack, words, places, segments = layers(F.gelu, norm_first=False), noise(V, D), noise(9, D), noise(2, D)
    first, last, dense, bias = nn.LayerNorm(D, eps=1e-2), nn.LayerNorm(D, eps=1e-2), nn.Linear(D, D), noise(V)
    nn.init.normal_(dense.weight, generator=torch.Generator().manual_seed(1))
    nn.init.ones_(dense.bias)
    ends = {"word": words, "position": places, "token_type": segments}
    weights = {f"bert.embeddings.{name}_embeddings.weight": table for name, table in ends.items()}
    weights |= both("bert.embeddings.LayerNorm", first) | both("cls.predictions.transform.dense", dense)
    weights |= both("cls.predictions.transform.LayerNorm", last) | {"cls.predictions.decoder.bias": bias}
    weights["cls.predictions.decoder.weight"] = words
    for i, layer in enumerate(stack):
        block = f"bert.encoder.layer.{i}"
        for kind in ("weight", "bias"):
            three = getattr(layer.self_attn, f"in_proj_{kind}").chunk(3)
            for name, each in zip(("query", "key", "value"), three, strict=True):
                weights[f"{block}.attention.self.{name}.{kind}"] = each
        weights |= both(f"{block}.attention.output.dense", layer.self_attn.out_proj)
        weights |= both(f"{block}.attention.output.LayerNorm", layer.norm1)
        weights |= both(f"{block}.intermediate.dense", layer.linear1) | both(f"{block}.output.dense", layer.linear2)
        weights |= both(f"{block}.output.LayerNorm", layer.norm2)

    @torch.no_grad()
    def logits(symbols):
        x = first(words[symbols] + places[: len(symbols)] + segments[0])[None]
        for layer in stack:
            x = layer(x)
        return last(F.gelu(dense(x[0]))) @ words.t() + bias

    return logits, weights


def test_gpt2_is_torchs_layers_with_norms_first():
    logits, weights = gpt2()
    model = from_huggingface(published(GPT2, weights))
    x = np.array([3, 0, 2, 2, 5, 1])
    expected = logits([6, *x[:-1]]).log_softmax(-1)[range(6), x]
    np.testing.assert_allclose(model.log_prob_steps([x])[0], expected, rtol=0, atol=1e-5)


def test_bert_is_torchs_layers_with_norms_last():
    logits, weights = bert()
    model = from_huggingface(published(BERT, weights), special_symbols=SPECIAL)
    expected = logits([4, 3, 5, 2, 5, 6])[[2, 4]].softmax(-1)
    np.testing.assert_allclose(model.fill([3, 0, 2, 1], [1, 3]).probabilities, expected, rtol=0, atol=1e-5)


def test_the_weights_given_are_left_alone():
    _, weights = gpt2()
    before = {name: weight.clone() for name, weight in weights.items()}
    from_huggingface(published(GPT2, weights)).module_.embedding.map.weight.data.zero_()
    assert all(torch.equal(weights[name], weight) for name, weight in before.items())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": "llama"}, "model_type is 'llama'; pass a model of type 'gpt2' or 'bert'"),
        ({"activation_function": "silu"}, "the activation 'silu' is not supported"),
        ({"bos_token_id": None}, "start is symbol None but there are 7; pass one from 0 to 6"),
        ({"scale_attn_weights": False}, "gpt2 with scale_attn_weights=False is not supported"),
    ],
)
def test_what_is_not_here_is_refused(changed, said):
    with pytest.raises(ValueError, match=said):
        from_huggingface(published(GPT2 | changed, gpt2()[1]))


def test_models_without_an_output_layer_are_refused():
    weights = {name: weight for name, weight in gpt2()[1].items() if not name.startswith("lm_head")}
    with pytest.raises(ValueError, match=r"the model has no lm_head.weight; pass a GPT2LMHeadModel"):
        from_huggingface(published(GPT2, weights))
