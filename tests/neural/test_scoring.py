from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from seqmodels.neural import scoring
from seqmodels.neural.batches import Row, StepRange, Windowing, assemble
from seqmodels.neural.embedding_and_head import SequenceModule
from seqmodels.neural.scoring import batch_log_prob, log_prob_steps
from seqmodels.observations import Observation

Build = Callable[..., tuple[SequenceModule, Observation]]
NETWORKS = ["gru", "lstm", "transformer", "lstm seq2seq", "transformer seq2seq"]


def rows_of(emits: str, *lengths: int, ends: bool, first: int = 0) -> list[Row]:
    rng = np.random.default_rng(0)
    values = [rng.integers(0, 3, n) if emits == "symbols" else rng.normal(size=(n, 2)) for n in lengths]
    return [Row(v, min(first, len(v) - 1), None, 1.0, ends) for v in values]


@pytest.mark.parametrize("emits", ["symbols", "vectors", "autoregressive"])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("context", [None, 4])
def test_company_order_and_padding_change_nothing(
    build_module: Build, network: str, emits: str, context: int | None
) -> None:
    module, observation = build_module(network, emits)
    rows = rows_of(emits, 5, 1, 13, 8, ends=module.spec.has_end)
    alone = [log_prob_steps(module, observation, [row], Windowing(context))[0] for row in rows]
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        together = log_prob_steps(module, observation, [rows[i] for i in order], Windowing(context))
        for i, found in zip(order, together, strict=True):
            assert found.dtype == np.float64
            assert len(found) == rows[i].n_steps
            np.testing.assert_allclose(found, alone[i], rtol=0, atol=1e-11)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("emits", ["symbols", "autoregressive"])
def test_the_size_of_chunks_and_batches_changes_nothing(
    build_module: Build, network: str, emits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, observation = build_module(network, emits)
    rows = rows_of(emits, 5, 1, 13, 8, ends=module.spec.has_end, first=2)
    expected = log_prob_steps(module, observation, rows, Windowing())
    monkeypatch.setattr(scoring, "MAX_STEPS_PER_BATCH", 12)
    monkeypatch.setattr(scoring, "MAX_STEPS_PER_CALL", 3)
    for found, whole in zip(log_prob_steps(module, observation, rows, Windowing()), expected, strict=True):
        np.testing.assert_allclose(found, whole, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("network", "n_batches"), [("transformer", 5), ("gru", 1)])
def test_what_is_computed_at_once_stays_in_the_cache(
    build_module: Build, network: str, n_batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recurrent networks are faster with many sequences side by side."""
    module, observation = build_module(network, "symbols")
    sizes: list[int] = []

    def assembled(rows: list[Row], ranges: list[StepRange], *rest: object) -> object:
        sizes.append(sum(len(steps) for steps in ranges))
        return assemble(rows, ranges, *rest)

    monkeypatch.setattr(scoring, "assemble", assembled)
    monkeypatch.setattr(scoring, "STEPS_IN_CACHE", 8)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    log_prob_steps(module, observation, rows_of("symbols", 20, ends=False), Windowing(4))
    assert len(sizes) == n_batches
    assert sum(sizes) == 9 * 4


@pytest.mark.parametrize(("context", "stride", "hop"), [(1, None, 1), (2, None, 1), (5, None, 2), (6, 6, 6), (6, 1, 1)])
def test_a_bounded_memory_sees_its_window_and_no_more(
    build_module: Build, context: int, stride: int | None, hop: int
) -> None:
    module, observation = build_module("transformer")
    (row,) = rows_of("symbols", 17, ends=True)
    (found,) = log_prob_steps(module, observation, [row], Windowing(context, stride))
    for t in range(row.n_steps):
        begin = 0
        while t >= begin + context:
            begin += hop
        batch = assemble([row], [StepRange(0, begin, t + 1)], 0, torch.device("cpu"), torch.float64)
        with torch.no_grad():
            step, _, _ = batch_log_prob(module, observation, batch, module.start(1, None, None))
        assert found[t] == pytest.approx(float(step[0, -1]), abs=1e-11)


def test_only_targets_are_returned(build_module: Build) -> None:
    module, observation = build_module("gru", conditional=True)
    rows = rows_of("symbols", 9, 6, ends=True, first=4)
    assert [len(steps) for steps in log_prob_steps(module, observation, rows, Windowing())] == [6, 3]


@pytest.mark.parametrize(("network", "context"), [("gru", None), ("transformer", 2), ("lstm seq2seq", None)])
def test_the_probabilities_of_all_sequences_come_to_one(build_module: Build, network: str, context: int | None) -> None:
    module, observation = build_module(network)
    longest, total = 4, 0.0
    for n in range(1, longest + 1):
        rows = [Row(np.array(x), 0, None, 1.0, True) for x in itertools.product(range(3), repeat=n)]
        steps = log_prob_steps(module, observation, rows, Windowing(context))
        total += sum(float(np.exp(s.sum() if n < longest else s[:-1].sum())) for s in steps)  # the longest go on
    assert total == pytest.approx(1.0, abs=1e-12)


def test_scoring_is_pure(build_module: Build) -> None:
    module, observation = build_module("lstm")  # with dropout
    rows = rows_of("symbols", 9, 6, ends=True)
    expected = log_prob_steps(module, observation, rows, Windowing())
    before = torch.get_rng_state()
    found = log_prob_steps(module.train(), observation, rows, Windowing())
    assert torch.equal(torch.get_rng_state(), before)
    assert all(part.training for part in module.modules())
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_weights_are_for_training(build_module: Build) -> None:
    module, observation = build_module("gru")
    (row,) = rows_of("symbols", 6, ends=True)
    weighted = Row(row.values, 0, None, 0.25, True)
    found = log_prob_steps(module, observation, [row, weighted], Windowing())
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("stride", [0, 7])
def test_windows_that_leave_steps_out_are_refused(stride: int) -> None:
    with pytest.raises(ValueError, match="stride is"):
        Windowing(6, stride)
