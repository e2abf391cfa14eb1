"""EM goes on from a checkpoint to the parameters and the history of a run without a break, but for rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqmodels import HMM, AlignmentHMM, GaussianMixture, HMMTagger, SequenceModel, Sequences, hmm
from seqmodels.hmm import ChainInputEffects, ChainTraining
from tests.killed_runs import Killed, written

RNG = np.random.default_rng(0)
X = ([RNG.normal(size=(40, 2)) + 2 * (np.arange(40) // 10 % 2)[:, None] for _ in range(6)],)
SYMBOLS = ([RNG.integers(0, 4, 30) for _ in range(6)],)
LONG = ([RNG.normal(size=(5000, 1))],)
LABELS = [RNG.integers(0, 3, 20) for _ in range(6)]
LABELLED = ([RNG.normal(size=(20, 2)) + each[:, None] for each in LABELS], LABELS)
WORDS = ["abab", "bba", "aab", "abcb", "cab", "bcc"] * 2
PAIRS = (WORDS, [word.upper().replace("C", "") or "A" for word in WORDS])
GIVEN = (Sequences(X[0], inputs=[RNG.normal(size=(40, 2)) for _ in X[0]]),)
Data = tuple[Any, ...]


def of_durations(**options: Any) -> hmm.HSMM:
    effects = ChainInputEffects(durations=True)
    return hmm.HSMM(2, max_duration=9, left_censored=True, input_effects=effects, tol=0, max_iter=3, **options)


CASES: dict[str, tuple[Callable[..., SequenceModel], Data]] = {
    "em": (lambda **o: HMM(2, observation=GaussianMixture(2), tol=0, max_iter=5).set_params(**o), X),
    "end": (lambda **o: HMM(2, tol=0, max_iter=6).set_params(**o), SYMBOLS),
    "topology, tied, prior": (
        lambda **o: HMM(
            3, topology="left-to-right", pseudocount=0.1, training=ChainTraining(tied=[0, 0, 1]), tol=0, max_iter=4
        ).set_params(**o),
        X,
    ),
    "restarts side by side": (lambda **o: HMM(2, n_init=3, tol=1e-2, max_iter=8).set_params(**o), X),
    "restarts one by one": (
        lambda **o: HMM(2, observation=GaussianMixture(2, "tied"), n_init=3, tol=1e-3, max_iter=4).set_params(**o),
        X,
    ),
    "given inputs": (
        lambda **o: HMM(
            2,
            observation=GaussianMixture(1),
            input_effects=ChainInputEffects(transitions=True, emissions=True),
            tol=0,
            max_iter=5,
        ).set_params(**o),
        GIVEN,
    ),
    "stepwise": (
        lambda **o: HMM(
            2, algorithm="stepwise", training=ChainTraining(batches=3), n_init=2, tol=0, max_iter=3
        ).set_params(**o),
        X,
    ),
    "stepwise, cut": (
        lambda **o: HMM(2, algorithm="stepwise", training=ChainTraining(batches=3), tol=0, max_iter=2).set_params(**o),
        LONG,
    ),
    "gradient": (lambda **o: HMM(2, algorithm="gradient", n_init=2, max_iter=4).set_params(**o), X),
    "variational": (lambda **o: HMM(2, algorithm="variational", n_init=2, tol=0, max_iter=4).set_params(**o), X),
    "semi-Markov": (lambda **o: hmm.HSMM(2, max_duration=15, n_init=2, tol=1e-2, max_iter=4).set_params(**o), X),
    "semi-Markov, stepwise": (
        lambda **o: hmm.HSMM(
            2, max_duration=9, algorithm="stepwise", training=ChainTraining(batches=2), n_init=2, tol=1e-3, max_iter=3
        ).set_params(**o),
        X,
    ),
    "semi-Markov, durations given inputs": (lambda **o: of_durations(n_init=2).set_params(**o), GIVEN),
    "semi-Markov, durations given inputs, stepwise": (
        lambda **o: of_durations(algorithm="stepwise", training=ChainTraining(batches=2)).set_params(**o),
        GIVEN,
    ),
    "deviations": (lambda **o: hmm.MarkovSwitchingAR(2, 2, n_init=2, tol=0, max_iter=4).set_params(**o), X),
    "tagger": (lambda **o: HMMTagger(n_states_per_label=2, tol=0, max_iter=4).set_params(**o), LABELLED),
    "alignment": (lambda **o: AlignmentHMM(tol=0).set_params(**o), PAIRS),
    "alignment, null": (lambda **o: AlignmentHMM(window=3, null=True, tol=1e-2, previous=False).set_params(**o), PAIRS),
    "alignment, no jump prior": (
        lambda **o: AlignmentHMM(window=1, jump_prior=False, pseudocount=1.0, tol=0).set_params(**o),
        PAIRS,
    ),
}


# One of each algorithm and of each class whose state is another.
QUICK = {"em", "restarts side by side", "stepwise", "gradient", "variational", "semi-Markov", "alignment"}


def arrays(state: Mapping[str, Any]) -> Iterator[np.ndarray]:
    for value in state.values():
        if isinstance(value, Mapping):
            yield from arrays(value)
        else:
            yield np.asarray(value)


@pytest.mark.parametrize(
    ("make", "data"),
    [pytest.param(*CASES[name], id=name, marks=[] if name in QUICK else pytest.mark.slow) for name in CASES],
)
def test_it_ends_where_a_run_without_a_break_ends(
    make: Callable[..., SequenceModel], data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = make().fit(*data)
    always = {"training__checkpoint": str(tmp_path / "run"), "training__checkpoint_seconds": 0}
    with monkeypatch.context() as patch:
        seen = written(patch, most=None)
        make(**always).fit(*data)
    n = len(seen)
    assert n >= 4
    for most in {1, n // 2, n}:
        (tmp_path / "run").unlink()
        with monkeypatch.context() as patch:
            written(patch, most=most)
            with pytest.raises(Killed):
                make(**always).fit(*data)
        resumed = make(training__resume_from=always["training__checkpoint"]).fit(*data)
        # Products in float64 are the same but for rounding, which a few iterations make larger.
        for now, before in zip(arrays(resumed._state()), arrays(straight._state()), strict=True):
            if now.dtype.kind == "f":
                np.testing.assert_allclose(now, before, rtol=1e-9, atol=1e-12)
            else:
                np.testing.assert_array_equal(now, before)
        histories = (model.history_.drop(columns="seconds") for model in (resumed, straight))
        pd.testing.assert_frame_equal(*histories, rtol=1e-9, atol=1e-9)
        assert resumed.converged_ == straight.converged_
