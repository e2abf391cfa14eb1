"""The alignment model against its definition: every alignment of small pairs written out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import seqmodels as sm
from seqmodels.common import storage

N_SOURCE, N_TARGET, NULL = 4, 5, -1


def translated(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Symbol 3 is silent after a 2, otherwise two symbols; now and then a symbol comes from nowhere."""
    y = [s for before, here in zip([0, *x[:-1]], x, strict=True) for s in said(int(before), int(here))]
    y = [s for each in y for s in ([each, int(rng.integers(N_TARGET))] if rng.random() < 0.05 else [each])]
    return np.array(y or [0])


def said(before: int, here: int) -> list[int]:
    if here < 3:
        return [2 - here]
    return [] if before == 2 else [3, 4]


def drawn(n: int, longest: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    X = [rng.integers(N_SOURCE, size=rng.integers(1, longest + 1)) for _ in range(n)]
    return X, [translated(x, rng) for x in X]


X, Y = drawn(60, 5, 0)
ENCODED = {"encoding": sm.Symbols(N_TARGET), "source_encoding": sm.Symbols(N_SOURCE), "dtype": "float64"}
OPTIONS: list[dict[str, Any]] = [
    {"length": length, "null": null, **rest}
    for length, null in product(("stop", "given"), (False, True))
    for rest in ({}, {"window": 1, "previous": False, "jump_prior": False, "max_jump": 1})
]


def fit(**options: Any) -> sm.AlignmentHMM:
    return sm.AlignmentHMM(**(ENCODED | {"max_iter": 3} | options)).fit(X, Y)


@dataclass
class ByDefinition:
    """One source, its jumps added up by hand."""

    model: sm.AlignmentHMM
    x: np.ndarray

    def ways(self, origin: int, *, first: bool) -> dict[int, float]:
        """Positions after ``origin`` (0: before the source), and S + 1, the end."""
        S, jumps = len(self.x), self.model.model_.jumps
        D, w = jumps.max_jump, jumps.weights
        windows = np.pad(self.x, 9, constant_values=N_SOURCE)
        half = self.model.window // 2
        around = np.array([windows[8 + j - half : 9 + j + half] for j in range(1, S + 2)])
        prior = self.model.model_.prior(around[None])[0]
        weights = {}
        for j in range(1, S + 1):
            weights[j] = w[min(j, D) - 1] if origin == 0 else w[2 * D + max(-D, min(D, j - origin))]
        if jumps.has_end and not first:
            weights[S + 1] = w[3 * D + min(S + 1 - origin, D)]
        weights = {j: value * prior[j - 1] for j, value in weights.items()}
        return {j: value / sum(weights.values()) for j, value in weights.items()}

    def emitted(self, position: int, y: int, previous: int) -> float:
        half = self.model.window // 2
        windows = np.pad(self.x, 9, constant_values=N_SOURCE)
        around = windows[8 + position - half : 9 + position + half]
        if position == NULL:
            around = np.full(self.model.window, N_SOURCE + 1)
        p = self.model.model_.lexicon.probability(around[None], np.array([previous]), np.array([y]))
        return float(p[0])

    def joint(self, y: np.ndarray, alignment: tuple[int, ...]) -> float:
        """p(y, alignment, end | x)."""
        null, p, origin, previous = self.model.model_.jumps.null or 0.0, 1.0, 0, N_TARGET
        for t, (position, symbol) in enumerate(zip(alignment, y, strict=True)):
            if position == NULL:
                p *= null
            else:
                p *= (1 - null) * self.ways(origin, first=t == 0)[position]
                origin = position
            p *= self.emitted(position, int(symbol), previous)
            previous = int(symbol)
        if self.model.length_ == "stop":
            p *= (1 - null) * self.ways(origin, first=False)[len(self.x) + 1]
        return p

    def all(self, y: np.ndarray) -> dict[tuple[int, ...], float]:
        positions = [*range(1, len(self.x) + 1), *([NULL] if self.model.null else [])]
        return {a: self.joint(y, a) for a in product(positions, repeat=len(y))}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_is_summed_and_what_is_best_is_so_of_all_alignments_written_out(options: dict[str, Any]) -> None:
    model = fit(**options)
    sources, targets = drawn(6, 3, 5)
    targets = [y[:4] for y in targets]
    log_prob, weights = model.log_prob(sources, targets), model.align(sources, targets)
    paths = model.decode_alignment(sources, targets)
    for i, (x, y) in enumerate(zip(sources, targets, strict=True)):
        joint = ByDefinition(model, x).all(y)
        total = sum(joint.values())
        assert_allclose(log_prob[i], np.log(total), rtol=1e-11)
        expected = np.zeros((len(y), len(x) + 1))
        for alignment, p in joint.items():
            for t, position in enumerate(alignment):
                expected[t, len(x) if position == NULL else position - 1] += p / total
        assert_allclose(weights[i], expected[:, : len(x) + model.null], atol=1e-11)
        assert_allclose(weights[i].sum(1), 1, rtol=1e-12)
        best = max(joint, key=lambda a: joint[a])
        assert tuple(p + 1 if p >= 0 else NULL for p in paths[i].tolist()) == best


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_em_never_falls_and_says_what_it_did(options: dict[str, Any]) -> None:
    model = fit(**options, tol=0)
    history = model.history_
    n_stages = 2 + 4 * ("window" not in options) + ("previous" not in options)
    assert len(history) == 1 + 3 * n_stages
    assert (np.diff(history["objective"]) > -1e-12).all()
    assert history["log_prob"].iloc[-1] == pytest.approx(model.score(X, Y), abs=1e-12)
    assert history["log_prob"].iloc[-1] > history["log_prob"].iloc[0] + 0.1
    assert_array_equal(history["level"].unique(), np.arange(1, n_stages))


def test_weights_are_repetitions() -> None:
    weights = np.arange(len(X)) % 3
    options: dict[str, Any] = ENCODED | {"null": True, "max_iter": 2, "pseudocount": 2.0}
    weighted = sm.AlignmentHMM(**options).fit(X, Y, sample_weight=weights)
    repeated = [i for i, w in enumerate(weights) for _ in range(w)]
    plain = sm.AlignmentHMM(**options).fit([X[i] for i in repeated], [Y[i] for i in repeated])
    assert_allclose(weighted.log_prob(X, Y), plain.log_prob(X, Y), rtol=1e-9)
    assert_allclose(weighted.history_["objective"], plain.history_["objective"], rtol=1e-9)


def test_em_begins_as_model_1() -> None:
    """Written out: every position alike, ``t(y | x)`` of expected counts and pseudocounts."""
    model = fit(
        length="given", window=1, previous=False, jump_prior=False, max_jump=1, pseudocount=0.5, tol=0, max_iter=4
    )
    t, found = np.full((N_SOURCE, N_TARGET), 1 / N_TARGET), []
    for _ in range(5):
        counts, total = np.full(t.shape, 0.5 / N_TARGET), 0.0
        for x, y in zip(X, Y, strict=True):
            for symbol in y:
                total += np.log(t[x, symbol].mean())
                np.add.at(counts[:, symbol], x, t[x, symbol] / t[x, symbol].sum())
        t = counts / counts.sum(1, keepdims=True)
        found.append(total / sum(map(len, Y)))
    assert_allclose(model.history_["log_prob"][:5], found, rtol=1e-12)


def test_it_finds_which_symbol_came_from_where() -> None:
    sources, targets = drawn(400, 7, 2)
    narrow = sm.AlignmentHMM(**ENCODED, window=1, previous=False).fit(sources, targets)
    x = np.array([0, 2, 3, 1, 3, 0])  # the first 3 is silent, the second is two symbols
    y = np.array([2, 0, 1, 3, 4, 2])
    assert_array_equal(narrow.decode_alignment([x], [y])[0], [0, 1, 3, 4, 4, 5])
    model = sm.AlignmentHMM(**ENCODED, window=3).fit(sources, targets)
    plain = sm.AlignmentHMM(**ENCODED, window=3, jump_prior=False).fit(sources, targets)
    new = drawn(100, 7, 3)
    assert model.score(*new) > plain.score(*new) + 0.03


def test_texts_of_one_alphabet_become_symbols_of_another() -> None:
    spoken = [np.array([ord(c) - 97 for c in word[::2]]) for word in ("abab", "ba", "cabb", "bbcc") * 5]
    model = sm.AlignmentHMM(window=3).fit(["abab", "ba", "cabb", "bbcc"] * 5, spoken)
    assert model.measure_ == sm.Measure("symbols", "symbol", "stop", "exact", True)
    assert [weights.shape for weights in model.align(["abab"], spoken[:1])] == [(2, 4)]
    with pytest.raises(ValueError, match="got symbols as X"):
        model.score(spoken, spoken)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ((X, None), {}, r"no y; pass fit\(X, y\)"),
        (([np.ones((3, 2)) * [[1], [2], [3]]], Y[:1]), {}, "X is vectors"),
        ((X[:1], [np.ones((3, 2))]), {}, "y is vectors"),
        ((X, Y), {"window": 4}, "window is 4; pass an odd number"),
        ((X, Y), {"max_jump": 0}, "max_jump is 0; pass at least 1"),
        ((X, Y), {"jump_pseudocount": 0.0}, "jump_pseudocount is 0.0; pass a number above 0"),
        ((X, Y), {"pseudocount": "none"}, "pseudocount is 'none'"),
        ((X, Y), {"ignore_source": True}, "aligns y with a source"),
        ((X, Y), {"warm_start": True}, "counts contexts anew"),
        ((X, Y), {"observation": sm.Categorical(1.0)}, "leave observation='auto'"),
    ],
)
def test_what_cannot_be_is_refused_by_name(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sm.AlignmentHMM(**options).fit(*data)


def test_held_out_pairs_are_scored_once() -> None:
    new = drawn(10, 5, 9)
    model = sm.AlignmentHMM(**ENCODED, max_iter=1).fit(X, Y, validation=new)
    assert model.history_["validation"].iloc[-1] == pytest.approx(model.score(*new), abs=1e-12)
    assert model.history_["validation"].iloc[:-1].isna().all()


def test_alignments_stand_in_a_table_with_what_does_not_look_at_the_source() -> None:
    new = drawn(60, 7, 4)
    models = {
        "ignoring": sm.NGram(3, encoding=sm.Symbols(N_TARGET), ignore_source=True),
        "alignment": sm.AlignmentHMM(**ENCODED),
    }
    with pytest.warns(UserWarning, match="also occur in the training part"):  # short ones, by chance
        frame = sm.compare(models, X, Y, test=new).frame.set_index("model")
    assert frame.loc["alignment", "ci_low"] > 0.1
    assert frame.loc["ignoring", "kind"] == frame.loc["alignment", "kind"] == "exact"


def test_a_file_of_before_says_pull(tmp_path: Path) -> None:
    model = fit(window=1, jump_prior=False, jump_prior_pseudocount=0.75)
    model.save(tmp_path / "model.safetensors")
    content = storage.read(tmp_path / "model.safetensors")
    parameters = content["model"]["params"]
    assert not {"pull", "pull_pseudocount"} & parameters.keys()
    parameters["pull"] = parameters.pop("jump_prior")
    parameters["pull_pseudocount"] = parameters.pop("jump_prior_pseudocount")
    storage.write(tmp_path / "before.safetensors", content)
    loaded = sm.load(tmp_path / "before.safetensors")
    assert repr(loaded) == repr(model)
    assert_allclose(loaded.log_prob(X, Y), model.log_prob(X, Y), rtol=1e-12)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_sources_of_several_lengths_are_predicted_together(options: dict[str, Any]) -> None:
    """A shorter source beside longer ones says what it says alone, of every step and of the end."""
    model, sources = fit(**options), [np.array(x) for x in ([1], [2, 0, 1, 1, 2], [0, 2, 1])]
    cursor = model.cursor()
    together, alone = cursor.start(sources, 3), [cursor.start(source) for source in sources]
    for y in (torch.tensor([2, 0, 1]), torch.tensor([1, 1, 0]), torch.tensor([0, 2, 2])):
        expected = torch.cat([cursor.distribution(state).log_probs().cpu() for state in alone])
        assert_allclose(cursor.distribution(together).log_probs().cpu(), expected, rtol=1e-12, atol=1e-12)
        together = cursor.advance(together, y)
        alone = [cursor.advance(state, symbol) for state, symbol in zip(alone, y[:, None], strict=True)]
    length = 4 if model.length_ == "given" else None
    each = [model.predict([source], length=length, max_length=9)[0].tolist() for source in sources]
    assert [found.tolist() for found in model.predict(sources, length=length, max_length=9)] == each
