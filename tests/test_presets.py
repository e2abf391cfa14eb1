"""Published sizes, to the parameter: what is built here is the published sum, and what differs is named.

No weight is made.
"""

from __future__ import annotations

import pytest
import torch

from seqmodels import presets
from seqmodels.neural.untrained import untrained, untrained_masked

N_SPECIAL = 3


def gpt2_sum(d, layers, symbols=50_257, context=1024):
    block = (3 * d * d + 3 * d) + (d * d + d) + (4 * d * d + 4 * d) + (4 * d * d + d) + 2 * 2 * d
    return symbols * d + context * d + layers * block + 2 * d


def bert_sum(d, layers, symbols=30_522, length=512, segments=2):
    """Without the pooler ``d² + d``; what predicts masked symbols apart."""
    block = 4 * (d * d + d) + (4 * d * d + 4 * d) + (4 * d * d + d) + 2 * 2 * d
    return (symbols + length + segments + 2) * d + layers * block


@pytest.mark.parametrize(
    ("size", "published"),
    [("small", 124_439_808), ("medium", 354_823_168), ("large", 774_030_080), ("xl", 1_557_611_200)],
)
def test_gpt2_is_as_large_as_published(size, published):
    with torch.device("meta"):
        model = untrained(presets.gpt2(size), 50_257)
    begin, bias = model.module_.begin.numel(), model.module_.head.bias.numel()
    assert (begin, bias) == (model.d_model, 50_257)  # neither is a parameter of GPT-2
    assert model.n_parameters_ - begin - bias == published == gpt2_sum(model.d_model, model.n_layers)
    assert model.context_ == 1024


@pytest.mark.parametrize(("size", "published"), [("base", 109_482_240), ("large", 335_141_888)])
def test_bert_is_as_large_as_published(size, published):
    with torch.device("meta"):
        model = untrained_masked(presets.bert(size), 30_522)
    d, module = model.d_model, model.module_
    pooler, segments, special = d * d + d, 2 * d, N_SPECIAL * d
    head = sum(p.numel() for p in [*module.transform.parameters(), module.head.bias])
    assert head == d * d + d + 2 * d + 30_522  # published apart from the 110 M and 335 M
    assert published == bert_sum(d, model.n_layers) + pooler
    assert model.n_parameters_ == published - pooler - segments + special + head


@pytest.mark.parametrize(("size", "published"), [("gpu", 10.65e6), ("cpu", 0.80e6)])
def test_nanogpt_is_as_large_as_published(size, published):
    with torch.device("meta"):
        model = untrained(presets.nanogpt(size), 65)
    module = model.module_
    besides = module.begin.numel() + module.head.bias.numel() + module.network.positions.table.numel()
    d = model.d_model
    assert model.n_parameters_ - besides == model.n_layers * (12 * d * d + 2 * d) + d + 65 * d
    assert model.n_parameters_ - besides == pytest.approx(published, abs=0.005e6)  # nanoGPT counts no positions


def test_what_is_published_is_for_the_taking():
    model = presets.nanogpt("cpu").set_params(d_model=8, n_layers=1, n_heads=2, max_steps=2, context=8)
    assert model.fit(["to be, or not to be", "that is the question"]).score(["or not"]) < 0


@pytest.mark.parametrize("preset", [presets.gpt2, presets.bert, presets.nanogpt])
def test_unknown_sizes_are_refused(preset):
    with pytest.raises(ValueError, match="size is 'huge'; pass "):
        preset("huge")
