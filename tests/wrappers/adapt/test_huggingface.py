"""Published causal language models as they are: small ones of random weights, beside their own losses.

Skipped without the package ``transformers``; ``make huggingface`` runs them.
"""

from __future__ import annotations

import copy
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from numpy.testing import assert_allclose

import seqmodels as sm
from seqmodels.sequences import Sequences
from seqmodels.wrappers.adapt.huggingface import CachedReader

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()

TEXTS = ["to be or né € not", "that is the question, the question", "a", " b"]
SIZE = {"hidden_size": 16, "num_hidden_layers": 2}
ATTENTION = {**SIZE, "intermediate_size": 24, "num_attention_heads": 2, "max_position_embeddings": 64}
KINDS: dict[str, dict[str, Any]] = {
    "Llama": {**ATTENTION, "num_key_value_heads": 1},
    "Qwen2": {**ATTENTION, "num_key_value_heads": 2},
    "Mamba": {**SIZE, "state_size": 4},
    "GPT2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64},
}

CACHED = {
    "Llama": 1e-9,
    "Qwen2": 1e-9,
    "GPT2": 1e-9,
    "Mamba": 1e-5,
}  # which scans in float32


@cache
def tokenizer() -> Any:
    """Byte-level BPE, learned from a line of text."""
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=280,
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<s>", "</s>"],
        show_progress=False,
    )
    trained.train_from_iterator(["to be or not to be, that is the question"], trainer)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=trained, bos_token="<s>", eos_token="</s>")


@cache
def published(kind: str, **options: Any) -> Any:
    """Of random weights, with three outputs more than the tokenizer has tokens."""
    torch.manual_seed(0)
    size = {"vocab_size": len(tokenizer()) + 3, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None}
    config = getattr(transformers, f"{kind}Config")(**(size | KINDS[kind] | options))
    model = getattr(transformers, f"{'GPT2LMHeadModel' if kind == 'GPT2' else f'{kind}ForCausalLM'}")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape)
    return model.eval()


def ids(text: str) -> list[int]:
    return tokenizer().encode(text, add_special_tokens=False)


@torch.no_grad()
def own_loss(model: Any, tokens: list[int]) -> float:
    """Nats of all tokens but the first, by the model itself."""
    x = torch.tensor([tokens])
    return float(model(input_ids=x, labels=x).loss) * (len(tokens) - 1)


@torch.no_grad()
def log_not_ended(model: Any) -> float:
    """That the first token after the start is not the end."""
    logits = model(input_ids=torch.tensor([[0]])).logits[0, 0]
    return float(np.log1p(-float(logits.softmax(-1)[1])))


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_the_models_own_losses(kind: str) -> None:
    model = published(kind)
    given = sm.adapt.from_huggingface(model, tokenizer(), end=None)
    assert_allclose(given.log_prob(TEXTS), [-own_loss(model, [0, *ids(text)]) for text in TEXTS], atol=1e-5, rtol=1e-6)
    ended = sm.adapt.from_huggingface(model, tokenizer())
    expected = [-own_loss(model, [0, *ids(text), 1]) - log_not_ended(model) for text in TEXTS]
    assert_allclose(ended.log_prob(TEXTS), expected, atol=1e-5, rtol=1e-6)
    assert (given.length_, ended.length_) == ("given", "stop")
    assert ended.measure_ == sm.Measure("text", "byte", "stop", "bound", False)
    n_bytes = sum(len(text.encode()) for text in TEXTS)
    assert ended.score(TEXTS) == pytest.approx(sum(expected) / n_bytes, rel=1e-6)
    assert ended.n_parameters_ == sum(p.numel() for p in model.parameters())
    assert ended.context_ == (None if kind == "Mamba" else 64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("context", ["auto", 6])
def test_step_by_step_with_a_cache_is_the_same(kind: str, context: Any) -> None:
    model = sm.adapt.from_huggingface(published(kind), tokenizer(), context=context, dtype="float64")
    encoding, cursor = model.encoding_, model.cursor()
    for text, steps in zip(TEXTS, model.log_prob_steps(TEXTS), strict=True):
        state, found = cursor.start(), []
        tokens = encoding.encode(text)
        for token in tokens:
            x = torch.tensor([token])
            found.append(float(cursor.distribution(state).log_prob(x)))
            state = cursor.advance(state, x)
        found.append(float(cursor.distribution(state).log_end))
        assert_allclose(found, steps[[*encoding.last_unit(tokens), -1]], atol=CACHED[kind], rtol=0)
    probabilities = cursor.distribution(state).log_probs().exp()
    assert float(probabilities.sum()) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_states_are_values_whatever_is_in_the_cache(kind: str) -> None:
    cursor = sm.adapt.from_huggingface(published(kind), tokenizer(), dtype="float64").cursor()
    x, y = torch.tensor([5, 7]), torch.tensor([9, 9])

    def log_prob(state: Any) -> np.ndarray:
        return cursor.distribution(state).log_prob(y).numpy()

    state = cursor.advance(cursor.start(n=2), x)
    before = log_prob(state)
    after = log_prob(cursor.advance(cursor.advance(state, y), x))
    other = log_prob(cursor.advance(state, x))
    assert_allclose(log_prob(state), before, atol=1e-12)
    assert_allclose(log_prob(cursor.advance(cursor.advance(state, y), x)), after, atol=1e-12)
    assert_allclose(log_prob(cursor.advance(state, x)), other, atol=1e-12)
    assert_allclose(log_prob(cursor.select(state, torch.tensor([1, 0]))), before[::-1], atol=1e-12)


def test_the_cache_reads_a_token_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    original = CachedReader._read
    monkeypatch.setattr(
        CachedReader,
        "_read",
        lambda self, tokens, known: (read.append(tokens.shape[1] - known), original(self, tokens, known))[1],
    )
    sm.adapt.from_huggingface(published("Llama"), tokenizer()).sample(length=20)
    assert read == [1] * 20


def test_windows_are_those_of_converted_weights() -> None:
    model = published("GPT2", n_positions=8, vocab_size=283)
    x = [np.random.default_rng(0).integers(2, 283, 50)]
    ours, adapted = sm.neural.from_huggingface(model), sm.adapt.from_huggingface(model)
    assert (adapted.context_, adapted.length_, adapted.measure_) == (8, "given", ours.measure_)
    # Here the end is masked; there it is a symbol.
    all_symbols = sm.adapt.from_huggingface(model, end=None)
    assert_allclose(all_symbols.log_prob_steps(x)[0], ours.log_prob_steps(x)[0], atol=1e-5)
    assert (adapted.log_prob(x) > all_symbols.log_prob(x)).all()


def test_batches_and_order_change_nothing() -> None:
    model = sm.adapt.from_huggingface(published("Mamba"), tokenizer(), dtype="float64")
    together = model.log_prob(TEXTS)
    assert_allclose(model.log_prob(TEXTS[::-1])[::-1], together, rtol=1e-12)
    assert_allclose([model.log_prob([text])[0] for text in TEXTS], together, rtol=1e-12)


def test_it_stands_in_a_table_beside_a_model_that_is_fitted_there() -> None:
    model = published("Qwen2")
    test = ["or", "not to be", "question", "that € is", "né", "to to"]
    models = {"qwen": sm.adapt.from_huggingface(model, tokenizer()), "ngram": sm.NGram(3)}
    alone = models["qwen"].score(test)
    frame = sm.compare(models, TEXTS, test=test).frame.set_index("model")
    assert frame["score"]["qwen"] == pytest.approx(alone)
    assert frame["kind"]["qwen"] == "bound"
    assert frame["n_parameters"]["qwen"] == sum(p.numel() for p in model.parameters())


def test_special_tokens_are_spelled_as_they_are_written() -> None:
    model = sm.adapt.from_huggingface(published("Llama"), tokenizer())
    encoding = model.encoding_
    for text in ("né\n\t€ 北京 🙂", "<s>a", "  two  spaces  "):
        steps = encoding.encode(text)
        assert b"".join(encoding.spelling()[step] for step in steps) == text.encode()
        assert encoding.decode(steps) == text
        assert encoding.last_unit(steps)[-1] == len(text.encode()) - 1
    assert model.log_prob(["a</s>"])[0] == -np.inf  # the end is no symbol
    assert len(encoding.spelling()) == len(tokenizer()) + 3
    assert model.log_prob_marginal(["to be"]) >= model.log_prob(["to be"])
    assert model.sample(length=30, prefix="to ", random_state=0)[0].startswith("to ")


@pytest.mark.parametrize("change", ["lower", "words"])
def test_a_tokenizer_that_gives_another_text_back_is_refused(change: str) -> None:
    trained = copy.deepcopy(tokenizer()._tokenizer)
    if change == "lower":
        trained.normalizer = tokenizers.normalizers.Lowercase()
    if change == "words":
        trained = tokenizers.Tokenizer(tokenizers.models.WordLevel({"to": 0, "be": 1, "?": 2}, unk_token="?"))
        trained.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=trained, bos_token="<s>", eos_token="</s>")
    model = sm.adapt.from_huggingface(published("Llama"), wrapped)
    with pytest.raises(ValueError, match="sequence 0 is another text after the tokenizer: from byte"):
        model.log_prob(["To be", "to be"])


def sentencepiece(puts_space: Any) -> Any:
    """Pieces of "to be", spaces and bytes; ``puts_space`` before a text: None, "prepend" or a scheme of Metaspace."""
    pieces = ["<unk>", *(f"<0x{b:02X}>" for b in range(256)), "▁", "t", "o", "to", "▁to", "b", "e", "be", "▁be"]
    merges = [("t", "o"), ("▁", "to"), ("b", "e"), ("▁", "be")]
    numbered = {piece: i for i, piece in enumerate(pieces)}
    trained = tokenizers.Tokenizer(tokenizers.models.BPE(numbered, merges, byte_fallback=True, unk_token="<unk>"))
    normalizers = tokenizers.normalizers
    if puts_space in (None, "prepend"):
        first = [normalizers.Prepend("▁")] if puts_space else []
        trained.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", "▁")])
    else:
        trained.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme=puts_space, split=False)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=trained)


@pytest.mark.parametrize("puts_space", ["prepend", "always", "first"])
def test_a_space_that_the_tokenizer_puts_first_is_no_byte_of_the_text(puts_space: str) -> None:
    model = sm.adapt.from_huggingface(published("Llama"), sentencepiece(puts_space), start=0, end=1, dtype="float64")
    encoding, texts = model.encoding_, ["to be to", "né to", "北 be", "o"]
    for text, steps in zip(texts, model.log_prob_steps(texts), strict=True):
        tokens = model.tokenizer.encode(text, add_special_tokens=False)
        assert b"".join(encoding.spelling()[t] for t in tokens) == b" " + text.encode()
        assert encoding.decode(np.array(tokens)) == text
        assert len(steps) == len(text.encode()) + 1
        raw = -own_loss(published("Llama"), [0, *tokens, 1])
        assert steps.sum() == pytest.approx(raw - log_not_ended(published("Llama")), rel=1e-6)
    assert model.score(texts) == pytest.approx(model.log_prob(texts).sum() / sum(len(t.encode()) for t in texts))
    (steps,) = model.log_prob_steps(["北 be"])  # "▁" with the first of three bytes, then "▁be", and the end
    assert [bool(nats < 0) for nats in steps] == [True, True, True, False, False, True, True]
    assert model.log_prob_marginal(["to be"])[0] >= model.log_prob(["to be"])[0]
    if puts_space == "prepend":
        assert np.isfinite(model.log_prob([" to"])).all()  # with two spaces in tokens
    else:
        with pytest.raises(ValueError, match="sequence 0 is another text after the tokenizer"):
            model.log_prob([" to"])


def test_a_text_read_in_pieces_has_one_space_first() -> None:
    model = sm.adapt.from_huggingface(published("Llama"), sentencepiece("prepend"), start=0, end=1, dtype="float64")
    stream = model.stream()
    nats = stream.update("to") + stream.update(" be") + stream.update("b") + stream.log_end()
    tokens = model.tokenizer.convert_tokens_to_ids(["▁to", "▁be", "b"])
    expected = -own_loss(published("Llama"), [0, *tokens, 1]) - log_not_ended(published("Llama"))
    assert nats == pytest.approx(expected, rel=1e-6)
    drawn = model.sample(20, length=3, prefix="to", random_state=1)
    assert all(text.startswith("to") for text in drawn)
    pieces = [*model.generate(length=3, random_state=3)]
    assert "".join(pieces) == model.sample(length=3, random_state=3)[0]
    stopped = model.sample(5, prefix="to be", stop=["b"], max_length=5)
    assert all(text.startswith("to be") for text in stopped)


def test_sentencepiece_is_read_where_it_adds_no_space() -> None:
    vocabulary = {"<unk>": 0, **{f"<0x{b:02X}>": b + 1 for b in range(256)}, "▁": 257, "t": 258, "o": 259, "to": 260}
    vocabulary |= {"▁to": 261}
    trained = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocabulary, [("t", "o"), ("▁", "to")], byte_fallback=True, unk_token="<unk>")
    )
    trained.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=trained)
    model = sm.adapt.from_huggingface(published("Llama"), wrapped, start=0)
    item = Sequences(["to to né"]).items[0]
    assert [model.encoding_.spelling()[s] for s in model.encoding_.encode(item)][:2] == [b"to", b" to"]
    assert len(model.log_prob_steps([item])[0]) == len("to to né".encode()) + 1
    assert np.isfinite(model.log_prob([item])).all()


def test_what_cannot_be_adapted_is_refused(tmp_path: Any) -> None:
    model = published("Llama")
    config = transformers.BertConfig(**{**SIZE, "intermediate_size": 24, "num_attention_heads": 2, "vocab_size": 283})
    both_ways = transformers.BertForMaskedLM(config).eval()
    with pytest.raises(ValueError, match="not causal"):
        sm.adapt.from_huggingface(both_ways, tokenizer())
    with pytest.raises(ValueError, match="pass a causal language model"):
        sm.adapt.from_huggingface("llama", tokenizer())
    with pytest.raises(ValueError, match="the tokenizer has 280 tokens but the network 20"):
        sm.adapt.from_huggingface(published("Llama", vocab_size=20), tokenizer())
    with pytest.raises(ValueError, match="pass start=, the one that the model was trained to read"):
        sm.adapt.from_huggingface(published("Llama", bos_token_id=None, eos_token_id=None))
    with pytest.raises(ValueError, match=r"cannot hold how to make one; save the network, network_\.model\."):
        sm.adapt.from_huggingface(model, tokenizer()).save(tmp_path / "model")


def test_a_model_in_training_mode_or_half_precision_is_copied() -> None:
    model = copy.deepcopy(published("GPT2")).train()
    expected = sm.adapt.from_huggingface(published("GPT2"), tokenizer()).log_prob(TEXTS)
    assert_allclose(sm.adapt.from_huggingface(model, tokenizer()).log_prob(TEXTS), expected, rtol=1e-6)
    assert model.training
    half = copy.deepcopy(published("GPT2")).to(torch.bfloat16)
    scores = sm.adapt.from_huggingface(half, tokenizer()).log_prob(TEXTS)
    assert next(half.parameters()).dtype == torch.bfloat16
    assert_allclose(scores, expected, rtol=0.05)
    assert not np.array_equal(scores, expected)


def test_the_script_of_the_guide_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[3] / "docs/guides/bring-your-own.md"
    script, *_ = re.findall(r"^```py\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(script.splitlines()) <= 10
    for name, thing in (("AutoModelForCausalLM", published("Qwen2")), ("AutoTokenizer", tokenizer())):
        monkeypatch.setattr(getattr(transformers, name), "from_pretrained", lambda _, thing=thing: thing)
    exec(compile(script, str(page), "exec", dont_inherit=True), {})
    assert "qwen" in capsys.readouterr().out


def test_fine_tuned_it_is_better_and_the_published_one_stays_as_it_was() -> None:
    network = published("GPT2")
    before = sm.adapt.from_huggingface(network, tokenizer())
    texts = ["the cat sat", "the cat ran", "a cat sat"] * 4
    score = before.score(texts)
    how = sm.adapt.FineTuning(max_steps=30, lr=1e-2)
    tuned = sm.adapt.from_huggingface(network, tokenizer(), training=how).fit(texts)
    assert tuned.score(texts) > score + 1.0
    assert before.score(texts) == score
    assert tuned.measure_ == before.measure_
