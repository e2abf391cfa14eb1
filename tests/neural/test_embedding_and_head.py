from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seqmodels.neural.batches import PaddedBatch, Row, StepRange, assemble
from seqmodels.neural.embedding_and_head import SequenceModule, split_end
from seqmodels.neural.network import map_state, select
from seqmodels.neural.scoring import batch_log_prob
from seqmodels.observations import Observation

Build = Callable[..., tuple[SequenceModule, Observation]]
X = np.array([0, 2, 1, 1, 0, 2, 2])


def batch_of(rows: list[Row], ranges: list[StepRange] | None = None, n_past: int = 0) -> PaddedBatch:
    whole = [StepRange(i, 0, row.n_steps) for i, row in enumerate(rows)]
    return assemble(rows, whole if ranges is None else ranges, n_past, torch.device("cpu"), torch.float64)


def whole(module: SequenceModule, observation: Observation, row: Row) -> Tensor:
    batch = batch_of([row], n_past=observation.n_past)
    state = module.start(1, batch.source, batch.source_mask)
    return batch_log_prob(module, observation, batch, state)[0][0]


@pytest.mark.parametrize("network", ["gru", "lstm", "transformer", "lstm seq2seq", "transformer seq2seq"])
@pytest.mark.parametrize("emits", ["symbols", "autoregressive"])
def test_memory_carried_over_chunks_changes_nothing(build_module: Build, network: str, emits: str) -> None:
    module, observation = build_module(network, emits)
    values: Any = X if emits == "symbols" else np.random.default_rng(0).normal(size=(7, 2))
    row = Row(values, 0, None, 1.0, module.spec.has_end)
    expected = whole(module, observation, row)
    state, found = module.start(1, None, None), []
    for span in (StepRange(0, 0, 3), StepRange(0, 3, 4), StepRange(0, 4, row.n_steps)):
        piece = batch_of([row], [span], observation.n_past)
        log_prob, _, state = batch_log_prob(module, observation, piece, state)
        found.append(log_prob[0])
    torch.testing.assert_close(torch.cat(found), expected, rtol=1e-10, atol=1e-10)


def test_the_start_is_shown_no_element(build_module: Build) -> None:
    module, _ = build_module("gru", "vectors")
    inputs = torch.randn(2, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    start, target = torch.ones(2, 1, dtype=torch.bool), torch.ones(2, 1, dtype=torch.bool)
    outputs, _ = module(inputs, start, target, module.start(2, None, None))
    torch.testing.assert_close(outputs[0], outputs[1])
    others, _ = module(inputs, ~start, target, module.start(2, None, None))
    assert not torch.allclose(others[0], others[1])


@pytest.mark.parametrize("tied", [None, 3.0])
@pytest.mark.parametrize("network", ["gru", "transformer"])
def test_what_is_read_from_a_table_in_training_is_what_is_read_in_scoring(
    build_module: Build, network: str, tied: float | None
) -> None:
    module, _ = build_module(network, tied_scale=tied)
    inputs = torch.from_numpy(np.stack([X, X[::-1]]))
    start, target = torch.zeros(2, 7, dtype=torch.bool), torch.ones(2, 7, dtype=torch.bool)
    start[:, 0] = True
    expected, _ = module(inputs, start, target, module.start(2, None, None))
    found, _ = module.train()(inputs, start, target, module.start(2, None, None))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_the_last_vector_reaches_the_outputs_by_the_skip(build_module: Build) -> None:
    module, _ = build_module("gru", "vectors")
    inputs = torch.ones(1, 1, 2, dtype=torch.float64)
    no, yes = torch.zeros(1, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool)
    assert module.skip is not None
    with torch.no_grad():
        module.head.weight.zero_()
        outputs, _ = module(inputs, no, yes, module.start(1, None, None))
        torch.testing.assert_close(outputs[0, 0], module.head.bias + module.skip.weight.sum(1))
    assert build_module("gru", "symbols")[0].skip is None


def test_the_segment_says_where_the_target_begins(build_module: Build) -> None:
    module, observation = build_module("gru", conditional=True)
    row = Row(X, 3, None, 1.0, True)
    moved = Row(X, 4, None, 1.0, True)
    assert not torch.allclose(whole(module, observation, row)[5:], whole(module, observation, moved)[5:])
    assert build_module("gru")[0].segment is None
    assert build_module("lstm seq2seq", conditional=True)[0].segment is None  # its encoder tells them apart


@pytest.mark.parametrize("network", ["lstm seq2seq", "transformer seq2seq"])
def test_padding_of_sources_is_not_read(build_module: Build, network: str) -> None:
    module, observation = build_module(network, conditional=True)
    rows = [Row(X, 0, np.array(source), 1.0, True) for source in ([1], [2, 0, 1, 1, 2])]
    batch = batch_of(rows)
    log_prob, _, _ = batch_log_prob(module, observation, batch, module.start(2, batch.source, batch.source_mask))
    for row, found in zip(rows, log_prob, strict=True):
        torch.testing.assert_close(found, whole(module, observation, row), rtol=1e-10, atol=1e-10)
    assert not torch.allclose(log_prob[0], log_prob[1])


def test_split_end() -> None:
    outputs = torch.arange(6.0).reshape(1, 2, 3)
    may_end = torch.tensor([[False, True]])
    parameters, end = split_end(outputs, may_end, has_end=True)
    assert end is not None
    assert parameters.tolist() == [[[0, 1], [3, 4]]]
    assert end.tolist() == [[-torch.inf, 5.0]]
    unchanged, none = split_end(outputs, may_end, has_end=False)
    assert unchanged is outputs
    assert none is None


def test_ends_and_symbols_share_the_probability(build_module: Build) -> None:
    """At each step: the probabilities of every symbol and of the end come to one."""
    module, observation = build_module("gru")
    for t in range(4):
        total = 0.0
        for symbol in range(3):
            row = Row(np.append(X[:t], symbol), 0, None, 1.0, True)
            total += float(whole(module, observation, row)[t].exp().detach())
        if t:
            total += float(whole(module, observation, Row(X[:t], 0, None, 1.0, True))[t].exp().detach())
        assert total == pytest.approx(1.0, abs=1e-12)


def test_gradients_are_finite_where_the_end_is_impossible(build_module: Build) -> None:
    module, observation = build_module("gru")
    whole(module, observation, Row(X, 0, None, 1.0, True)).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_autocast_is_for_the_network_only(build_module: Build) -> None:
    module, observation = build_module("gru", "vectors")
    module = module.float()
    batch = assemble(
        [Row(np.zeros((4, 2)), 0, None, 1.0, False)], [StepRange(0, 0, 4)], 0, torch.device("cpu"), torch.float32
    )
    low, output_parameters, _ = batch_log_prob(module, observation, batch, module.start(1, None, None), torch.bfloat16)
    full, _, _ = batch_log_prob(module, observation, batch, module.start(1, None, None))
    assert low.dtype == output_parameters.dtype == torch.float32
    torch.testing.assert_close(low, full, rtol=0.1, atol=0.1)
    assert not torch.equal(low, full)


def test_a_new_network_predicts_the_starting_point(build_module: Build) -> None:
    template, observation = build_module("gru")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = SequenceModule(template.network, observation, template.spec, torch.Generator())
    assert module.head.bias.tolist() == [0.0, 0.0, 0.0, -3.0]  # sequences rarely end


def test_memories_are_nested_tuples() -> None:
    state = (torch.tensor([[1.0], [2.0]]), (None, 3, torch.tensor([4.0, 5.0])))
    chosen = select(state, torch.tensor([1, 1, 0]))
    assert chosen[0].tolist() == [[2.0], [2.0], [1.0]]
    assert chosen[1][:2] == (None, 3)
    assert chosen[1][2].tolist() == [5.0, 5.0, 4.0]
    assert map_state(torch.neg, state)[1][2].tolist() == [-4.0, -5.0]
