"""States before their frame is seen, and given all frames but it, by enumeration of every path."""

import numpy as np
import pytest
import torch

from seqmodels.inference.chains.log_space import log_given_others, log_predicted
from seqmodels.inference.chains.parallel_segments import Segments
from seqmodels.inference.chains.trellis import LogDensities, Trellis

LENGTHS = (3, 1, 5)
K = 3


def normalised(log_rows: np.ndarray) -> np.ndarray:
    return np.exp(log_rows - np.logaddexp.reduce(log_rows, axis=1, keepdims=True))


def marginals(initial, transitions, b, final, left_out, n_seen) -> np.ndarray:
    """p(z_t | the first frames but t), by a sum over all paths of ``n_seen`` states; ``transitions (T, K, K)``."""
    b = b[:n_seen].copy()
    b[left_out] = 1.0
    weights = np.zeros(len(initial))
    for path in np.ndindex(*[len(initial)] * n_seen):
        p = initial[path[0]] * b[0, path[0]]
        for t in range(1, n_seen):
            p *= transitions[t, path[t - 1], path[t]] * b[t, path[t]]
        weights[path[left_out]] += p * (1.0 if final is None else final[path[-1]])
    return weights / weights.sum()


@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize("ends", [False, True])
def test_by_enumeration(varies: bool, ends: bool) -> None:
    rng = np.random.default_rng(3)
    initial, n = rng.dirichlet(np.ones(K)), sum(LENGTHS)
    final = rng.uniform(0.1, 0.3, K) if ends else np.ones(K)
    leaves = (1 - final) if ends else np.ones(K)
    matrices = rng.dirichlet(np.ones(K), (n, K)) * leaves[:, None]
    matrices[:, 0, 1] = 0.0  # a structural zero
    if not varies:
        matrices[:] = matrices[0]
    b = rng.uniform(0.1, 1.0, (n, K))
    segments = Segments.whole(LENGTHS)
    pack = segments.packing.pack
    densities = LogDensities(pack(torch.from_numpy(np.log(b))))
    trellis = Trellis.of(*map(torch.from_numpy, (initial, matrices[0])), densities, segments, torch.from_numpy(final))
    if varies:
        with np.errstate(divide="ignore"):
            log_a = pack(torch.from_numpy(np.log(matrices)))
        trellis = Trellis(**{**vars(trellis), "log_transitions": log_a})
    predicted = [normalised(each.numpy()) for each in segments.split(log_predicted(trellis))]
    others = [normalised(each.numpy()) for each in segments.split(log_given_others(trellis))]
    for i, start in enumerate(np.cumsum([0, *LENGTHS[:-1]])):
        rows = slice(start, start + LENGTHS[i])
        for t in range(LENGTHS[i]):
            before = marginals(initial, matrices[rows], b[rows], None, t, t + 1)
            rest = marginals(initial, matrices[rows], b[rows], final, t, LENGTHS[i])
            np.testing.assert_allclose(predicted[i][t], before, atol=1e-13)
            np.testing.assert_allclose(others[i][t], rest, atol=1e-13)


def test_a_frame_far_from_every_state_but_one_leaves_what_is_known_without_it() -> None:
    """The posterior of the other state underflows; its probability without the frame is one half."""
    even = torch.full((2, 2), 0.5, dtype=torch.float64)
    log_b = torch.tensor([[0.0, 0.0], [0.0, -1e5], [0.0, 0.0]], dtype=torch.float64)
    trellis = Trellis.of_concatenated(even[0], even, log_b)
    torch.testing.assert_close(log_given_others(trellis).softmax(1), torch.full((3, 2), 0.5, dtype=torch.float64))
