"""How a network begins where clusters are known: what is compared, on which clusters, and what stays as named."""

from pathlib import Path

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.encodings.examples import Example
from seqmodels.neural.choices_by_clusters import Beginning, beginnings, cluster_split
from seqmodels.training import Perturbation
from tests.killed_runs import Killed, written

OPTIONS = {"d_model": 8, "max_steps": 30, "batch_size": 8}


def speakers(n_speakers: int = 4, n_each: int = 6) -> sm.Sequences:
    """Smooth sequences of 20 frames around levels of their speakers, which are far apart."""
    rng = np.random.default_rng(1)
    levels = rng.normal(0, 5.0, (n_speakers, 1, 2))
    items = [levels[k // n_each] + np.cumsum(rng.normal(0, 0.3, (20, 2)), axis=0) for k in range(n_speakers * n_each)]
    return sm.Sequences(items, clusters=[f"speaker {k // n_each}" for k in range(len(items))])


def examples(*clusters: int | None) -> list[Example]:
    return [Example(np.zeros((4, 1)), cluster=cluster, n_units=4) for cluster in clusters]


def test_networks_begin_as_predicts_other_speakers_best() -> None:
    x = speakers()
    train, test = x.take(np.arange(24) < 18), x.take(np.arange(24) >= 18)
    model = sm.LSTM(**OPTIONS).fit(train)
    plain = sm.LSTM(**OPTIONS, training=sm.training.GradientTraining(linear_start=False, perturbation=None)).fit(train)
    assert model.score(test) > plain.score(test) + 0.5
    assert str(model.reason_).startswith("(linear_start, perturbation) = (True, ")
    assert (model.training.linear_start, model.training.perturbation) == ("auto", "auto")
    again = sm.LSTM(**OPTIONS).fit(train)
    np.testing.assert_allclose(again.log_prob(test), model.log_prob(test), rtol=1e-5)


def test_the_choice_is_what_would_have_been_named() -> None:
    x = speakers()
    model = sm.GRU(**OPTIONS).fit(x)
    named = sm.GRU(**OPTIONS, training=sm.training.GradientTraining(**model._beginning._asdict())).fit(x)
    np.testing.assert_allclose(named.log_prob(x), model.log_prob(x), rtol=1e-4, atol=1e-4)
    assert named.reason_ is None


def test_without_clusters_nothing_is_chosen() -> None:
    x = list(speakers())
    model = sm.GRU(**OPTIONS).fit(x)
    plain = sm.GRU(**OPTIONS, training=sm.training.GradientTraining(linear_start=False, perturbation=None)).fit(x)
    assert model.reason_ is None
    np.testing.assert_allclose(model.log_prob(x), plain.log_prob(x), rtol=1e-4, atol=1e-4)


def test_a_warm_start_goes_on_as_it_began() -> None:
    x = speakers()
    model = sm.GRU(**OPTIONS, warm_start=True).fit(x)
    beginning, reason = model._beginning, model.reason_
    model.fit(x)
    assert model._beginning == beginning
    assert model.reason_ == reason


def test_a_resumed_run_does_not_choose_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, path = speakers(), str(tmp_path / "run")
    whole = sm.GRU(**OPTIONS).fit(x)
    with monkeypatch.context() as patch:
        written(patch, most=20)
        with pytest.raises(Killed):
            sm.GRU(**OPTIONS, training=sm.training.GradientTraining(checkpoint=path, checkpoint_seconds=0)).fit(x)
    monkeypatch.setattr(sm.GRU, "_score_of_beginning", lambda *_: pytest.fail("tried again"))
    resumed = sm.GRU(**OPTIONS, training=sm.training.GradientTraining(resume_from=path)).fit(x)
    assert resumed.reason_ == whole.reason_
    np.testing.assert_allclose(resumed.log_prob(x), whole.log_prob(x), rtol=1e-4)


def test_what_is_compared() -> None:
    perturbation = Perturbation()
    each = beginnings([False, True], [None, perturbation])
    assert each == [Beginning(False, None), Beginning(True, None), Beginning(True, perturbation)]
    assert beginnings([False], [None, perturbation]) == [Beginning(False, None), Beginning(False, perturbation)]
    assert beginnings([True], [None]) == [Beginning(True, None)]


@pytest.mark.parametrize(
    ("train", "validation", "held_out"),
    [
        ((0, 0, 1, 1, 2, 2), (), [2, 2]),
        ((0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5), (), [2, 2, 5, 5]),
        ((0, 0, 1, 1), (0, 0, 0), [0, 0, 0]),
    ],
)
def test_clusters_that_are_held_out(train: tuple[int, ...], validation: tuple[int, ...], held_out: list[int]) -> None:
    parts = cluster_split(examples(*train), examples(*validation))
    assert parts is not None
    assert [e.cluster for e in parts[1]] == held_out
    if not validation:
        assert not {e.cluster for e in parts[0]} & set(held_out)


@pytest.mark.parametrize(
    ("train", "validation"), [((0, 1, 2), ()), ((0, 0, 1, 1), ()), ((0, 0, 1, None), (0,)), ((0, 0), (0, 0))]
)
def test_clusters_that_do_not_tell(train: tuple[int | None, ...], validation: tuple[int, ...]) -> None:
    assert cluster_split(examples(*train), examples(*validation)) is None


def test_missing_values_are_left_alone() -> None:
    train = examples(0, 0, 1, 1, 2, 2)
    train[1].values[2, 0] = np.nan
    assert cluster_split(train, []) is None
