"""``observation="auto"`` where clusters are known: what it comes to, that it is kept, and when it is left alone."""

from pathlib import Path

import numpy as np
import pytest

import seqmodels as sm
from seqmodels.encodings import RunningScale
from seqmodels.encodings.vectors import Standardize
from tests.made import made


def speakers(memory: float, offset: float = 0.0, n_speakers: int = 4, n_each: int = 6) -> sm.Sequences:
    """Autoregressions of 30 frames, around levels of their speakers."""
    rng = np.random.default_rng(1)
    items, names = [], []
    for k in range(n_speakers):
        level = rng.normal(0, offset, 2) if offset else np.zeros(2)
        for _ in range(n_each):
            x = np.zeros((30, 2))
            for t in range(1, 30):
                x[t] = memory * x[t - 1] + rng.normal(size=2)
            items.append(x + level)
            names.append(f"speaker {k}")
    return sm.Sequences(items, clusters=names)


@pytest.fixture(scope="module")
def smooth() -> sm.Sequences:
    return speakers(0.9, 4.0)


def test_smooth_frames_are_an_autoregression_where_clusters_say_so(smooth: sm.Sequences, tmp_path: Path) -> None:
    train, test = smooth.take(np.arange(24) < 18), smooth.take(np.arange(24) >= 18)
    model = sm.HMM(2).fit(train)
    named = sm.HMM(2, observation=sm.GaussianMixture(1), n_init=1).fit(train)
    assert isinstance(model.observation_, sm.AutoregressiveGaussian)
    assert model.score(test) > named.score(test) + 0.5
    assert model.reason_ is not None
    assert "nats a frame of clusters held out" in model.reason_
    assert model.get_params()["observation"] == "auto"
    model.save(tmp_path / "model")
    loaded = sm.load(tmp_path / "model")
    assert loaded.reason_ == model.reason_
    assert loaded.score(test) == pytest.approx(model.score(test), rel=1e-12)


def test_steps_of_the_choice_are_those_of_its_cursor(smooth: sm.Sequences) -> None:
    model = sm.HMM(2).fit(smooth)
    stream = model.stream()
    steps = [stream.update(frame) for frame in smooth[0]]
    np.testing.assert_allclose(steps, model.log_prob_steps(smooth[:1])[0], atol=1e-9)


def test_frames_without_memory_stay_mixtures() -> None:
    model = sm.HMM(2, n_init=1).fit(speakers(0.0))
    assert isinstance(model.observation_, sm.GaussianMixture)
    assert type(model.encoding_) is Standardize
    assert model.reason_ is not None
    assert model.reason_.startswith("GaussianMixture")


@pytest.mark.parametrize(
    "options",
    [
        {"observation": sm.GaussianMixture(1)},
        {"training__tied": [0, 0]},
        {"algorithm": "variational"},
        {"training__frozen": ["emission"]},
    ],
    ids=str,
)
def test_what_is_named_is_left_alone(smooth: sm.Sequences, options: dict[str, object]) -> None:
    model = made(sm.HMM, 2, n_init=1, **options).fit(smooth)
    assert isinstance(model.observation_, sm.GaussianMixture)
    assert model.reason_ is None


def test_no_clusters_no_choice(smooth: sm.Sequences) -> None:
    model = sm.HMM(2, n_init=1).fit(list(smooth))
    assert isinstance(model.observation_, sm.GaussianMixture)
    assert model.reason_ is None


def test_an_encoding_that_is_named_stays(smooth: sm.Sequences) -> None:
    model = sm.HMM(2, encoding=sm.encodings.Standardize(), n_init=1).fit(smooth)
    assert isinstance(model.observation_, sm.AutoregressiveGaussian)
    assert type(model.encoding_) is Standardize
    assert type(sm.HMM(2, n_init=1).fit(smooth).encoding_) in (Standardize, RunningScale)


def test_the_choice_is_printed_where_asked(smooth: sm.Sequences, capsys: pytest.CaptureFixture[str]) -> None:
    model = sm.HMM(2, n_init=1, verbose=True).fit(smooth)
    assert str(model.reason_) in capsys.readouterr().out.splitlines()
