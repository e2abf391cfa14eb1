"""A trained module of tokens as a model, beside its own logits; the contract has a row of it too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn

import seqmodels as sm
from seqmodels.neural.batches import Windowing
from seqmodels.wrappers.adapt import TorchModel, logits
from seqmodels.wrappers.adapt.adapted import prediction_of_columns
from tests.families import CausalConvolution

V = 6
RNG = np.random.default_rng(0)
X = [RNG.integers(0, V, n) for n in (1, 5, 17, 40, 2)]
TOLERANCE = 1e-10


class Tokens(nn.Module):
    """``scale`` times the logits of ``V + 2`` tokens from the last three."""

    def __init__(self, scale: float = 3.0, n_tokens: int = V + 2) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embedding, self.mix, self.head = nn.Embedding(n_tokens, 8), CausalConvolution(8), nn.Linear(8, n_tokens)
        self.scale = scale
        for parameter in self.parameters():
            parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.scale * self.head(self.mix(self.embedding(tokens)))


NETWORK = Tokens().eval().double()


def own(x: np.ndarray, start: int | None, allowed: list[int], end: int | None) -> np.ndarray:
    """By definition, from the module's logits of one sequence after another."""
    tokens = [*([] if start is None else [start]), *x.tolist()]
    rows = NETWORK(torch.tensor([tokens]))[0].detach()
    steps, targets = [], [*x.tolist(), *([] if end is None else [end])]
    if start is None:
        steps.append(-np.log(len(allowed)))
        targets = targets[1:]
    for t, target in enumerate(targets):
        columns = allowed + ([] if end is None or (t == 0 and start is not None) else [end])
        masked = torch.full((V + 2,), -torch.inf, dtype=torch.float64)
        masked[columns] = rows[t, columns]
        steps.append(float(masked.log_softmax(-1)[target]))
    return np.array(steps)


SYMBOLS = list(range(V))
CASES: list[tuple[dict[str, Any], list[int], int | None]] = [  # arguments, symbols, and the end where it is an event
    ({"start": V, "end": V + 1}, SYMBOLS, V + 1),
    ({"start": V}, SYMBOLS, None),
    ({"start": V, "end": V + 1, "length": "given"}, SYMBOLS, None),
    ({"start": V, "end": 2}, [0, 1, 3, 4, 5], 2),
    ({"start": 2, "end": 2}, [0, 1, 3, 4, 5], 2),
    ({}, SYMBOLS, None),
    ({"end": V + 1}, SYMBOLS, V + 1),
    ({"end": 2}, [0, 1, 3, 4, 5], 2),
]


def without_end(x: np.ndarray, allowed: list[int]) -> np.ndarray:
    return np.where(np.isin(x, allowed), x, 3)


@pytest.mark.parametrize(("arguments", "allowed", "end"), CASES, ids=str)
def test_its_figures_are_those_of_the_module(arguments: dict[str, Any], allowed: list[int], end: int | None) -> None:
    model = sm.adapt.from_torch(NETWORK, n_symbols=V, dtype="float64", **arguments)
    items = [without_end(x, allowed) for x in X]
    for x, steps in zip(items, model.log_prob_steps(items), strict=True):
        assert_allclose(steps, own(x, arguments.get("start"), allowed, end), atol=TOLERANCE, rtol=0)
    in_float32 = sm.adapt.from_torch(NETWORK, n_symbols=V, **arguments)
    assert_allclose(in_float32.log_prob(items), model.log_prob(items), atol=1e-4, rtol=0)
    assert (model.measure_.kind, model.context_, model.measure_.space) == ("exact", None, "symbols")
    assert model.n_parameters_ == sum(p.numel() for p in NETWORK.parameters())
    if 2 not in allowed:
        assert model.log_prob([[2, 2]])[0] == -np.inf
        assert 2 not in np.concatenate(model.sample(20, max_length=9))


@pytest.mark.parametrize(("arguments", "allowed", "end"), CASES, ids=str)
@pytest.mark.parametrize("windowing", [{"context": 4}, {"context": 5, "stride": 2}, {"context": 1}], ids=str)
def test_windows_are_the_same_in_batches_and_one_by_one(
    arguments: dict[str, Any], allowed: list[int], end: int | None, windowing: dict[str, int]
) -> None:
    model = sm.adapt.from_torch(NETWORK, n_symbols=V, dtype="float64", **arguments, **windowing)
    items = [without_end(x, allowed) for x in X]
    for x, steps in zip(items, model.log_prob_steps(items), strict=True):
        stream = model.stream()
        found = [stream.update(symbol) for symbol in x]
        assert_allclose([*found, *([] if end is None else [stream.log_end()])], steps, atol=TOLERANCE, rtol=0)


def test_windows_are_anchored_at_the_start_and_overlap_by_half() -> None:
    model = sm.adapt.from_torch(NETWORK, n_symbols=V, start=V, context=4, dtype="float64")
    (steps,), x = model.log_prob_steps(X[2:3]), X[2]
    row = np.array([V, *x[:-1]])
    for begin, end, scored in Windowing(4).windows(len(x)):
        rows = NETWORK(torch.as_tensor(row[None, begin:end]))[0, :, :V].detach().log_softmax(-1)
        for t in range(scored, end):
            assert float(rows[t - begin, x[t]]) == pytest.approx(steps[t], abs=TOLERANCE)


def test_batches_and_their_sizes_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sm.adapt.from_torch(NETWORK, n_symbols=V, start=V, end=V + 1, context=7, dtype="float64")
    together = model.log_prob_steps(X)
    monkeypatch.setattr(logits, "MAX_TOKENS_AT_ONCE", 10)
    for i, steps in enumerate(model.log_prob_steps(X[::-1])[::-1]):
        assert_allclose(steps, together[i], atol=1e-12, rtol=0)


def test_a_module_in_training_mode_is_copied_and_stays_as_it_is() -> None:
    class Noisy(Tokens):
        def forward(self, tokens: Tensor) -> Tensor:
            return nn.functional.dropout(super().forward(tokens), 0.5, self.training)

    module = Noisy()
    model = sm.adapt.from_torch(module, n_symbols=V, start=V)
    assert_allclose(model.log_prob(X), model.log_prob(X), rtol=1e-5, atol=1e-5)
    assert module.training
    assert next(module.parameters()).dtype == torch.float32
    quiet = sm.adapt.from_torch(Tokens(), n_symbols=V, start=V)
    assert_allclose(model.log_prob(X), quiet.log_prob(X), rtol=1e-6)


def test_text_of_characters_bytes_and_pieces() -> None:
    characters = sm.adapt.from_torch(Tokens(), alphabet="abcdé ", start=V, end=V + 1)
    assert (characters.measure_.space, characters.length_) == ("text", "stop")
    assert len(characters.log_prob_steps(["é a"])[0]) == 5
    by_bytes = sm.adapt.from_torch(Tokens(n_tokens=257), text=True, start=256)
    assert len(by_bytes.log_prob_steps(["é a"])[0]) == 4
    bpe = sm.NGram(2, encoding=sm.BPE(262)).fit(["to be or not to be"])
    pieces = sm.adapt.from_torch(Tokens(n_tokens=264), encoding=bpe.encoding_, start=262, end=263)
    assert pieces.measure_ == bpe.measure_
    before = pieces.log_prob(["to be"])
    assert_allclose(pieces.fit(["or"]).log_prob(["to be"]), before, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"BPE\(n_symbols=262\) is not fitted"):
        sm.adapt.from_torch(Tokens(n_tokens=264), encoding=sm.BPE(262), start=262)


class Bidirectional(Tokens):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) + super().forward(tokens.flip(1)).mean(1, keepdim=True)


class AcrossTheBatch(Tokens):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) - super().forward(tokens).mean(0)


class Several(Tokens):
    def forward(self, tokens: Tensor) -> Any:
        return super().forward(tokens), None


class LastOnly(Tokens):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens)[:, -1]


class NotANumber(Tokens):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) * torch.nan


class Random(Tokens):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) + torch.rand(())


class Rounded(Tokens):
    """Every call rounds otherwise, as products do that depend on where in memory an array lies."""

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) * (1 + 1e-6 * torch.rand(()))


def test_a_network_whose_products_are_rounded_otherwise_is_not_random() -> None:
    model = sm.adapt.from_torch(Rounded(), n_symbols=V, start=V, end=V + 1)
    expected = sm.adapt.from_torch(Tokens(), n_symbols=V, start=V, end=V + 1)
    np.testing.assert_allclose(model.log_prob([[0, 1, 2]]), expected.log_prob([[0, 1, 2]]), rtol=1e-5)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Bidirectional(), "the network is not causal: other tokens from step 1 on change earlier logits"),
        (AcrossTheBatch(), "depend on the other sequences of the batch"),
        (Several(), "to a tuple; it should return logits"),
        (LastOnly(), r"maps tokens \(2, 8\) to \(2, 8\); it should return logits"),
        (NotANumber(), "logits are not numbers"),
        (Random(), "two outputs for one input in evaluation mode"),
        (Tokens(n_tokens=V), "has logits of 6 tokens, but there are 6 symbols and the end is 7"),
        (len, "module is <built-in function len>; pass an nn.Module"),
        (dict, "dict makes a dict; pass a class of nn.Module"),
    ],
    ids=str,
)
def test_what_is_no_causal_network_of_tokens_is_refused(module: Any, message: str) -> None:
    start = 0 if isinstance(module, Tokens) and module.head.out_features == V else V
    with pytest.raises(ValueError, match=message):
        sm.adapt.from_torch(module, n_symbols=V, start=start, end=V + 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": -1}, "start is -1; pass a number"),
        ({"context": 0}, "context is 0; pass a number"),
        ({"context": 4, "stride": 5}, "stride is 5; pass a number from 1 to the context"),
        ({"length": "stop"}, 'length is "stop", but the network does not say which'),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.adapt.from_torch(Tokens(), n_symbols=V, **arguments)


def test_training_it_on_shows_in_its_figures() -> None:
    module = Tokens()
    model = sm.adapt.from_torch(module, n_symbols=V, start=V)
    before = model.log_prob(X)
    with torch.no_grad():
        module.head.bias[0] += 1
    assert (model.log_prob(X) != before).all()
    assert isinstance(model, TorchModel)


def test_many_short_sequences_are_scored_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    predictions = list[int]()

    def counted(observation: Any, logits: Tensor, *rest: Any, **options: Any) -> Any:
        predictions.append(len(logits))
        return prediction_of_columns(observation, logits, *rest, **options)

    model = sm.adapt.from_torch(NETWORK, n_symbols=V, start=V, end=V + 1, dtype="float64")
    items = [np.arange(length) % 3 for length in (3, 5, 4, 9, 1, 7)]
    singly = [model.log_prob_steps([item])[0] for item in items]
    monkeypatch.setattr("seqmodels.wrappers.adapt.adapted.prediction_of_columns", counted)
    for alone, together in zip(singly, model.log_prob_steps(items), strict=True):
        assert_allclose(together, alone, rtol=TOLERANCE)
    assert sorted(predictions) == [6, 29]  # the first steps, and all others with the ends
