from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels.inference.chains import textbook, viterbi
from tests.inference.chains.enumeration import enumerate_paths, random_model

pytestmark = pytest.mark.usefixtures("recursions")


def test_finds_the_best_of_every_path() -> None:
    rng, n_possible = np.random.default_rng(0), 0
    for case in range(200):
        K, T = int(rng.integers(1, 5)), int(rng.integers(1, 7))
        initial, transition, final = random_model(rng, K, with_final=bool(case % 2), sparse=case % 3 == 0)
        b = rng.gamma(0.5, size=(T, K))
        expected = enumerate_paths(initial, transition, b, final)
        end = None if final is None else torch.as_tensor(final)
        numbers = torch.as_tensor(b).log()
        path, best = viterbi(torch.as_tensor(initial), torch.as_tensor(transition), numbers, end)
        assert_allclose(best.item(), expected.best, rtol=1e-12, atol=1e-13)
        if np.isfinite(expected.best):
            n_possible += 1
            assert path.tolist() == list(expected.best_path)
            by_the_book = textbook.viterbi(torch.as_tensor(initial), torch.as_tensor(transition), numbers, end)
            assert path.tolist() == by_the_book
    assert n_possible > 150


def test_ragged_batch_equals_one_at_a_time() -> None:
    rng, lengths = np.random.default_rng(1), [4, 11, 1, 11, 6]
    initial, transition, final = (torch.as_tensor(p) for p in random_model(rng, 5, True, False) if p is not None)
    starts = torch.stack([initial.roll(i) for i in range(len(lengths))])
    log_bs = [torch.as_tensor(rng.normal(size=(n, 5))) for n in lengths]
    paths, best = viterbi(starts, transition, torch.cat(log_bs), final, lengths=lengths)
    for i, path in enumerate(paths.split(lengths)):
        alone, log_prob = viterbi(starts[i], transition, log_bs[i], final)
        assert torch.equal(path, alone)
        assert best[i] == log_prob[0]


def test_exact_ties_go_to_the_lowest_state() -> None:
    uniform = torch.full((4, 4), 0.25, dtype=torch.float64)
    log_b = torch.zeros(6, 4, dtype=torch.float64)
    log_b[2, :2] = -1.0  # the third frame prefers states 2 and 3
    path, _ = viterbi(uniform[0], uniform, log_b)
    assert path.tolist() == [0, 0, 2, 0, 0, 0]


def test_the_end_decides() -> None:
    stay = torch.tensor([[0.5, 0.0], [0.0, 0.9]], dtype=torch.float64)
    start, log_b = torch.full((2,), 0.5, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.float64)
    path, _ = viterbi(start, stay, log_b)
    assert path.tolist() == [1, 1, 1]
    path, best = viterbi(start, stay, log_b, torch.tensor([0.5, 0.0], dtype=torch.float64))
    assert path.tolist() == [0, 0, 0]
    assert_allclose(best.item(), 4 * np.log(0.5), rtol=1e-12)


def test_an_impossible_sequence_has_minus_infinity_and_spoils_no_other() -> None:
    log_b = torch.tensor([[0.0, -1.0]] * 2 + [[-torch.inf, -torch.inf]] * 3)
    path, best = viterbi(torch.tensor([0.5, 0.5]), torch.eye(2), log_b, lengths=[2, 3])
    assert path[:2].tolist() == [0, 0]
    assert_allclose(best[0].item(), np.log(0.5), rtol=1e-12)
    assert best[1] == -torch.inf


def test_states_beyond_a_byte_are_told_apart() -> None:
    k, path = 300, torch.tensor([299, 3, 256, 255, 0, 43])
    log_b = torch.zeros(len(path), k)
    log_b[torch.arange(len(path)), path] = 1.0
    even = torch.full((k, k), 1 / k)
    assert torch.equal(viterbi(even[0], even, log_b)[0], path)


def test_float32_emissions_are_added_in_float64() -> None:
    n = 3000
    log_b = torch.full((n, 2), -0.1)
    _, best = viterbi(torch.tensor([0.5, 0.5]), torch.eye(2), log_b)
    assert_allclose(best.item(), np.log(0.5) + n * float(log_b[0, 0]), rtol=1e-12)
