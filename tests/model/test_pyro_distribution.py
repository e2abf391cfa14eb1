from __future__ import annotations

from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from numpy.testing import assert_allclose
from pyro.infer import SVI, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta
from pyro.optim import Adam

from seqmodels import GRU, HMM, GaussianMixture
from seqmodels.model.pyro_distribution import SequenceDistribution
from tests.inference.chains.enumeration import enumerate_paths
from tests.made import made

CHAIN: dict[str, Any] = {"initial": [0.6, 0.4], "transition": [[0.7, 0.3], [0.2, 0.8]]}


@pytest.fixture(autouse=True)
def _alone() -> Any:
    """Programs draw from torch's own generator and keep parameters by name: leave both as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
        pyro.clear_param_store()


def vectors(shift: float = 0.0) -> HMM:
    return made(
        HMM.from_parameters, **CHAIN, means=[[shift - 1.0], [shift + 1.0]], covariances=[[1.0], [0.5]], dtype="float64"
    )


def symbols(**final: Any) -> HMM:
    return made(HMM.from_parameters, **(CHAIN | final), emission=[[0.9, 0.1], [0.2, 0.8]], dtype="float64")


def test_log_prob_is_the_models_and_enumerations() -> None:
    model, x = symbols(), torch.tensor([[0, 1, 1], [0, 0, 0]])
    d = model.as_pyro(3)
    assert_allclose(d.log_prob(x), model.log_prob(list(x.numpy())), rtol=1e-12)
    b = np.array([[0.9, 0.1], [0.2, 0.8]]).T[x[0].numpy()]
    assert_allclose(d.log_prob(x[0]), enumerate_paths(model.initial_, model.transition_, b).log_prob, rtol=1e-12)
    stopping = symbols(transition=[[0.6, 0.3], [0.2, 0.7]], final=[0.1, 0.1])
    assert_allclose(stopping.as_pyro(3).log_prob(x), stopping.log_prob(list(x.numpy())), rtol=1e-12)


def test_it_is_pyros_own_hmm() -> None:
    model, x = vectors(), torch.randn(4, 5, 1, dtype=torch.float64)
    initial, transition = (torch.as_tensor(np.array(CHAIN[k])) for k in ("initial", "transition"))
    before = torch.linalg.solve(transition.T, initial)  # Pyro's makes one transition before the first observation
    normal = dist.Normal(torch.tensor([-1.0, 1.0]).double(), torch.tensor([1.0, 0.5]).double().sqrt())
    if (before > 0).all():
        their = dist.DiscreteHMM(before.log(), transition.log(), normal, validate_args=False, duration=5)
        assert_allclose(model.as_pyro(5).log_prob(x), their.log_prob(x[..., 0]), rtol=1e-9)
    else:
        pytest.fail("choose a chain with a state before the first")


def test_batches_shapes_and_draws() -> None:
    d = vectors().as_pyro(4).expand([3])
    assert d.batch_shape == (3,)
    assert d.event_shape == (4, 1)
    x = d.sample((2,))
    assert x.shape == (2, 3, 4, 1)
    assert d.log_prob(x).shape == (2, 3)
    assert d.log_prob(x[0, 0]).shape == (3,)
    assert d.support.check(x).all()
    s = symbols().as_pyro(6)
    assert s.sample().shape == (6,)
    torch.manual_seed(1)
    first = s.sample((4,))
    torch.manual_seed(1)
    assert torch.equal(s.sample((4,)), first)


def test_in_a_program() -> None:
    """How many of the sequences came from which of two models, by Pyro's enumeration and gradient."""
    low, high = vectors(-1.5).as_pyro(6), vectors(1.5).as_pyro(6)
    x = torch.cat([low.sample((3,)), high.sample((9,))])

    @config_enumerate
    def program() -> Any:
        share = pyro.sample("share", dist.Beta(*torch.ones(2).double()))
        with pyro.plate("sequences", len(x)):
            odds = torch.stack([low.log_prob(x), high.log_prob(x)], -1)
            which = pyro.sample("which", dist.Bernoulli(share))
            pyro.factor("evidence", odds[torch.arange(len(x)), which.long()])

    svi = SVI(
        program,
        AutoDelta(pyro.poutine.block(program, expose=["share"])),
        Adam({"lr": 0.2}),
        TraceEnum_ELBO(max_plate_nesting=1),
    )
    for _ in range(30):
        svi.step()
    assert 0.65 < pyro.param("AutoDelta.share").item() < 0.85


def test_as_an_observed_site_it_adds_its_log_prob() -> None:
    d = vectors().as_pyro(3)
    x = d.sample((2,))

    def program() -> None:
        with pyro.plate("sequences", 2):
            pyro.sample("x", d, obs=x)

    trace = pyro.poutine.trace(program).get_trace()
    assert_allclose(trace.log_prob_sum(), d.log_prob(x).sum(), rtol=1e-12)


def test_any_model_can_stand_in_a_program() -> None:
    x = [np.random.default_rng(i).normal(size=(5, 2)) for i in range(4)]
    plain = GRU(d_model=4, max_steps=2, dtype="float64").fit(x)
    d = SequenceDistribution(plain, 5)
    assert_allclose(d.log_prob(torch.as_tensor(np.stack(x))), plain.log_prob(x), rtol=1e-12)
    assert d.sample((3,)).shape == (3, 5, 2)
    model = HMM(2, observation=GaussianMixture(1), max_iter=2, dtype="float64").fit(x[:2], x[2:])
    given = model.as_pyro(5, source=x[0])
    assert_allclose(given.log_prob(torch.as_tensor(x[1])), model.log_prob(x[:1], x[1:2])[0], rtol=1e-12)
    assert given.sample().shape == (5, 2)


def test_what_cannot_be_is_refused() -> None:
    d = vectors().as_pyro(3)
    with pytest.raises(ValueError, match=r"shape \(2, 1\); its last axes must be \(3, 1\)"):
        d.log_prob(torch.zeros(2, 1))
    with pytest.raises(ValueError, match="obs="):
        d.log_prob(torch.zeros(3, 1, requires_grad=True))
    with pytest.raises(ValueError, match="length is 0"):
        vectors().as_pyro(0)
    with pytest.raises(ValueError, match="stop"):
        symbols(transition=[[0.6, 0.3], [0.2, 0.7]], final=[0.1, 0.1]).as_pyro(2).sample()
    with pytest.raises(ValueError, match="text cannot be a tensor"):
        HMM(1, max_iter=1).fit(["ab", "ba"]).as_pyro(2)
