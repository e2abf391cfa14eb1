"""EM on little data, by loops, against EM by tensor operations: parameters, histories and sums of the last step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from seqmodels import HMM, AutoregressiveGaussian, GaussianMixture, Poisson
from seqmodels.common.compiled import is_compiling
from seqmodels.hmm import Frozen, LeftToRight, Pseudocounts
from seqmodels.hmm.learning import small_data
from seqmodels.inference.chains import log_space
from seqmodels.observations import PseudoFrames
from tests.made import made

pytestmark = pytest.mark.skipif(not is_compiling(), reason="numba is not installed")


def vectors(lengths: tuple[int, ...] = (40, 25, 1, 33), *, has_missing: bool = False) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    x = [np.repeat(rng.integers(3, size=-(-n // 5)), 5)[:n, None] * 2.0 + rng.normal(size=(n, 2)) for n in lengths]
    for frames in x if has_missing else []:
        frames[rng.random(frames.shape) < 0.2] = np.nan
    return x


def counts() -> list[np.ndarray]:
    return [np.random.default_rng(n).poisson(3, (n, 1)) for n in (40, 20)]


def symbols() -> list[list[int]]:
    return [np.random.default_rng(n).integers(5, size=n).tolist() for n in (40, 20)]


KNOWN = [np.where(np.arange(n) % 7 == 0, np.arange(n) % 3, -1) for n in (40, 25, 1, 33)]
POSSIBLE = [np.arange(3) != (np.arange(n) % 3)[:, None] for n in (40, 25, 1, 33)]
COUNTED = Pseudocounts(1.0, 0.5, 2.0, 0.3)
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "plain": (vectors(), {"observation": GaussianMixture(1)}, {}),
    "one long sequence": (vectors((300,)), {"observation": GaussianMixture(1), "start": "free"}, {}),
    "components": (vectors(), {"observation": GaussianMixture(2)}, {}),
    "missing": (vectors(has_missing=True), {"observation": GaussianMixture(2)}, {}),
    "spherical": (vectors(has_missing=True), {"observation": GaussianMixture(2, "spherical")}, {}),
    "full": (vectors(), {"observation": GaussianMixture(1, "full")}, {}),
    "background": (vectors(), {"observation": GaussianMixture(2, background=0.01)}, {}),
    "prior": (
        vectors(has_missing=True),
        {"observation": GaussianMixture(2, prior=PseudoFrames(3.0, 0.2, "auto", 0.5), background=0.01)},
        {},
    ),
    "spherical, with a prior": (
        vectors(has_missing=True),
        {"observation": GaussianMixture(2, "spherical", prior=PseudoFrames(3.0))},
        {},
    ),
    "weights": (vectors(), {"observation": GaussianMixture(1)}, {"sample_weight": [1.0, 2.0, 0.5, 0.0]}),
    "ends": (vectors(), {"observation": GaussianMixture(1), "length": "stop", "pseudocount": COUNTED}, {}),
    "left to right": (
        vectors(),
        {"observation": GaussianMixture(1), "topology": LeftToRight(), "length": "stop", "pseudocount": COUNTED},
        {},
    ),
    "known states": (vectors(), {"observation": GaussianMixture(1)}, {"states": KNOWN}),
    "possible states": (vectors(), {"observation": GaussianMixture(1)}, {"states": POSSIBLE}),
    "stationary": (vectors((60,)), {"observation": GaussianMixture(1), "start": "stationary"}, {}),
    "uniform": (vectors(), {"observation": GaussianMixture(1), "start": "uniform"}, {}),
    "frozen and tied": (
        vectors(),
        {
            "observation": GaussianMixture(1),
            "training__tied": [0, 1, 1],
            "training__frozen": Frozen(transition=[1], emission=[0]),
        },
        {},
    ),
    "float32": (vectors(), {"observation": GaussianMixture(1), "dtype": "float32"}, {}),
    "counts": (counts(), {"observation": Poisson()}, {}),
    "symbols": (symbols(), {"pseudocount": 1.0}, {}),
    "regressions": (vectors(), {"observation": AutoregressiveGaussian(1)}, {}),
}


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize("case", CASES)
def test_loops_find_what_tensors_find(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, options, of_fit = CASES[case]
    n_runs, run = [], small_data.run_em_in_loops

    def counted(*args: Any, **named: Any) -> Any:
        n_runs.append(1)
        return run(*args, **named)

    def fitted() -> HMM:
        return made(HMM, 3, max_iter=6, tol=0, n_init=2, **options).fit(x, **of_fit)

    monkeypatch.setattr(small_data, "run_em_in_loops", counted)
    loops = fitted()
    assert len(n_runs) > 0
    monkeypatch.setattr(small_data, "runs_in_loops", lambda *_: False)
    tensors = fitted()
    tolerance = 1e-4 if case == "float32" else 1e-9
    assert len(loops.history_) == 7
    for column in ("step", "log_prob", "objective", "floor_hits", "starts_range"):
        assert_allclose(loops.history_[column], tensors.history_[column], rtol=tolerance, atol=tolerance)
    for name in ("initial", "transition", "table"):
        found, expected = (getattr(each.parameters_, name) for each in (loops, tensors))
        assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    found, expected = loops.statistics_.mean, tensors.statistics_.mean
    sums = ((found.initial, expected.initial), (found.xi, expected.xi), (found.final, expected.final))
    for a, b in (*sums, *zip(found.emission, expected.emission, strict=True)):
        assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    assert loops.starts_["chosen"].tolist() == tensors.starts_["chosen"].tolist()


def test_what_loops_lose_is_computed_in_logarithms(monkeypatch: pytest.MonkeyPatch) -> None:
    # State 1 is all but excluded by the first symbol of sequence 0, and all but certain given the rest; nothing leads
    # to it. What of it is below the least number of the loops is then all that counts.
    rows, x = [[1.0, 1e-250], [1e-230, 1.0]], [[0, 1, 1, 1], [0, 0]]
    calls, in_logarithms = [], log_space.forward_backward_pass

    def counted(trellis: Any) -> Any:
        calls.append(trellis.segments.n_sequences)
        return in_logarithms(trellis)

    monkeypatch.setattr(log_space, "forward_backward_pass", counted)
    model = HMM.from_parameters([0.5, 0.5], [[1.0, 0.0], [0.5, 0.5]], emission=rows)
    model.set_params(warm_start=True, max_iter=1, tol=0).fit(x)
    assert calls[0] == 1
    first = np.log(0.5) + np.log(1e-230) + 3 * np.log(0.5)
    assert_allclose(model.history_["log_prob"][0] * 6, first + np.log(0.5), rtol=1e-9)
    assert_allclose(model.initial_, [0.5, 0.5], atol=1e-9)
    assert_allclose(model.transition_, [[1.0, 0.0], [0.0, 1.0]], atol=1e-9)


def test_an_impossible_sequence_is_named() -> None:
    model = HMM.from_parameters([1.0, 0.0], np.eye(2), emission=[[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="sequence 1 has probability zero"):
        model.set_params(warm_start=True, max_iter=2).fit([[0, 0], [0, 1]])


def test_inputs_and_much_data_are_tensors() -> None:
    from seqmodels.hmm.corpus import Corpus
    from seqmodels.hmm.parameters import Parameters

    start = Parameters(torch.ones(2) / 2, torch.ones(2, 2) / 2, None, torch.zeros(2, 1))
    of_batches = (2, 2, torch.device("cpu"), torch.float64)
    few = Corpus([np.zeros((50, 1))], [1.0], None, 0, *of_batches).batches
    many = Corpus([np.zeros((100, 1))] * 2000, [1.0] * 2000, None, 0, *of_batches).batches
    assert small_data.runs_in_loops(start, few)
    assert not small_data.runs_in_loops(start, many)
