"""``dtype="auto"``: float64 where that costs nothing, by the size of training data."""

from __future__ import annotations

from pathlib import Path

import hmmlearn.hmm
import numpy as np
import pytest
from numpy.testing import assert_allclose

import seqmodels as sm

RNG = np.random.default_rng(7)
COUNTS = RNG.poisson(np.where((RNG.random(107) < 0.1).cumsum() % 2, 25.0, 15.0))[:, None]
CHAIN = {"initial": [0.3, 0.7], "transition": [[0.9, 0.1], [0.2, 0.8]]}
FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"


def test_small_hmms_of_counts_have_the_figures_of_hmmlearn() -> None:
    model = sm.HMM.from_parameters(**CHAIN, rates=[[14.8], [25.3]])
    peer = hmmlearn.hmm.PoissonHMM(2)
    peer.startprob_, peer.transmat_, peer.lambdas_ = model.initial_, model.transition_, model.rates_
    expected = peer.score(COUNTS)
    assert_allclose(model.log_prob([COUNTS.astype(float)])[0], expected, rtol=1e-12)
    in_float32 = model.clone().set_params(dtype="float32")
    assert in_float32.dtype == "float32"
    model.set_params(dtype="float32")
    assert abs(model.log_prob([COUNTS.astype(float)])[0] - expected) > 1e-6  # so float32 would not pass
    _, path = peer.decode(COUNTS)
    assert model.decode([COUNTS.astype(float)])[0].tolist() == path.tolist()


def test_small_fits_end_where_hmmlearn_ends() -> None:
    x = [COUNTS.astype(float)]
    model = sm.HMM(2, observation=sm.Poisson(), start="free", tol=0, max_iter=150, n_init=1).fit(x)
    peer = hmmlearn.hmm.PoissonHMM(2, n_iter=50, tol=0, init_params="", lambdas_prior=0.0, lambdas_weight=0.0)
    peer.startprob_, peer.transmat_, peer.lambdas_ = model.initial_, model.transition_, model.rates_
    assert_allclose(model.log_prob(x)[0], peer.fit(COUNTS).score(COUNTS), atol=1e-7)


def test_auto_depends_on_the_size_of_training_data_alone() -> None:
    x = RNG.normal(size=(1 << 13, 1))
    model = sm.HMM(4, observation=sm.GaussianMixture(1), max_iter=1, n_init=1)
    assert model.fit([x]).dtype_ == "float64"  # 2^15 densities
    whole = model.log_prob([x, x[:10]])
    assert_allclose(whole, np.concatenate([model.log_prob([x]), model.log_prob([x[:10]])]), rtol=1e-13)
    assert model.fit([x, x[:1]]).dtype_ == "float32"
    assert model.set_params(dtype="float64").dtype_ == "float64"
    assert model.clone().set_params(dtype="float32").fit([x[:50]]).dtype_ == "float32"
    assert sm.HMM.from_parameters(**CHAIN, emission=np.eye(2)).dtype_ == "float64"
    assert sm.HMM.from_parameters(np.full(9, 1 / 9), np.eye(9), emission=np.eye(9)).dtype_ == "float32"
    with pytest.raises(ValueError, match="dtype is 'float16'; pass one of 'auto', 'float32', 'float64'"):
        sm.HMM(2, dtype="float16").fit([x[:50]])
    with pytest.raises(ValueError, match="dtype is 'auto'; pass one of 'float32', 'float64'"):
        sm.NGram(2, dtype="auto").fit(["ab"])


def test_batch_stream_and_file_agree(tmp_path: Path) -> None:
    x = [COUNTS[:40].astype(float)]
    model = sm.HMM(2, observation=sm.Poisson(), max_iter=5).fit(x)
    stream = model.stream()
    steps = model.log_prob_steps(x)[0]
    assert_allclose([stream.update(step) for step in x[0]], steps, rtol=1e-12)
    assert_allclose(model.history_["log_prob"].iloc[-1], model.score(x), rtol=1e-13)
    assert model.filter(x)[0].dtype == np.float64
    model.save(tmp_path / "model.safetensors")
    loaded = sm.load(tmp_path / "model.safetensors")
    assert (loaded.dtype, loaded.dtype_) == ("auto", "float64")
    np.testing.assert_allclose(loaded.log_prob_steps(x)[0], steps, rtol=1e-12)


def test_files_of_earlier_versions_compute_as_they_did_from_a_free_start() -> None:
    models = [sm.load(path) for path in sorted((FIXTURES / "0.1.0").glob("*.safetensors"))]
    hmms = [model for model in models if isinstance(model, sm.HMM)]
    assert {model.dtype for model in hmms} == {"float32", "float64"}
    assert all(model.dtype_ == model.dtype and model.start_ == "free" for model in hmms)
