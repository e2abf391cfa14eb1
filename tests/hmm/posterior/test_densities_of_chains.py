"""Posterior densities of every chain: those of a plain program that sums over all paths, with numeric derivatives."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.linalg import expm
from scipy.special import logsumexp
from torch import Tensor

import seqmodels as sm
from seqmodels.encodings.raw_data import Data
from seqmodels.hmm import HSMM, ChainInputEffects, ContinuousTimeHMM, Frozen, MarkovSwitchingAR, PosteriorHMM
from seqmodels.hmm.hidden_chain import HiddenChainModel
from seqmodels.hmm.parameters import Parameters
from seqmodels.hmm.posterior.density import PosteriorDensity
from seqmodels.model.fitting import apply_setting
from seqmodels.observations import Gamma

SYMBOLS = [np.array([0, 1, 1, 0]), np.array([1, 0, 0])]
REALS = [np.array([[0.3], [-1.0], [1.4], [0.2]]), np.array([[2.0], [0.1], [-0.5]])]
TIMES = [np.array([0.0, 0.5, 2.0, 2.2]), np.array([1.0, 1.7, 4.0])]
LONGEST = 3
Plain = Callable[[Parameters], float]


def density_of(model: HiddenChainModel, X: Any) -> tuple[PosteriorDensity, HiddenChainModel]:
    fitted = model.fit(X)
    posterior = PosteriorHMM(fitted, length=fitted.length_)
    apply_setting(posterior, fitted._setting())
    posterior.model_ = fitted
    chain, family = fitted._fitted_chain, posterior._family()
    examples = fitted._setting().examples(Data.of(X))
    corpus = chain.corpus(examples, family.emission, torch.device("cpu"), torch.float64)
    return posterior._density(chain, family, examples, corpus), fitted


def simplex(p: Tensor) -> np.ndarray:
    return p.numpy()[..., :-1].ravel()


def dirichlet(rows: Tensor, concentration: float) -> float:
    """Of rows whose entries are all possible."""
    each = rows.numpy().reshape(-1, rows.shape[-1])
    return sum(float(stats.dirichlet(np.full(len(p), concentration)).logpdf(p / p.sum())) for p in each)


def of_paths(
    x: np.ndarray, initial: np.ndarray, step: Callable[[int], np.ndarray], density: Callable[..., float]
) -> float:
    """``log Σ_z p(z) Π_t density(t, z)``, the transitions into step t being ``step(t)``."""
    terms = []
    for z in itertools.product(range(len(initial)), repeat=len(x)):
        moves = sum(np.log(step(t)[z[t - 1], z[t]]) for t in range(1, len(x)))
        terms.append(np.log(initial[z[0]]) + moves + sum(density(t, z) for t in range(len(x))))
    return float(logsumexp(terms))


# -- semi-Markov -----------------------------------------------------------------------------------------------


def segmentations(n: int) -> list[tuple[int, ...]]:
    """Durations of the segments of n steps, each up to ``LONGEST``."""
    several = itertools.chain(*(itertools.product(range(1, LONGEST + 1), repeat=m) for m in range(1, n + 1)))
    return [lengths for lengths in several if sum(lengths) == n]


def semi_markov(p: Parameters, pmf_at: Callable[[int, int], np.ndarray], emission: np.ndarray) -> float:
    """Two states that follow each other; the last segment may go on after the sequence.

    ``pmf_at`` has the probabilities of durations of segments that begin at a step of a sequence.
    """
    total, initial = 0.0, p.initial.numpy()
    for sequence, x in enumerate(SYMBOLS):
        terms = []
        for lengths in segmentations(len(x)):
            for first in (0, 1):
                states = np.repeat([(first + i) % 2 for i in range(len(lengths))], lengths)
                log_p = np.log(initial[first]) + np.log(emission[states, x]).sum()
                for i, d in enumerate(lengths):
                    k, is_last = (first + i) % 2, i == len(lengths) - 1
                    pmf = pmf_at(sequence, sum(lengths[:i]))[k]
                    log_p += np.log(pmf[d - 1 :].sum() if is_last else pmf[d - 1])
                terms.append(log_p)
        total += float(logsumexp(terms))
    return total


def truncated(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum(1, keepdims=True)


MEDIAN = np.log(LONGEST / 4)
LOG_NORMAL = stats.norm(scale=1.5)
D = np.arange(1, LONGEST + 1)


def categorical(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Probabilities, free parameters and log-prior of a table of durations, as of those below."""
    return numbers, numbers[:, :-1].ravel(), dirichlet(torch.tensor(numbers), 1.0)


def poisson(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    rate = np.exp(numbers)
    prior = stats.lognorm(1.5, scale=LONGEST / 4).logpdf(rate).sum()
    return truncated(stats.poisson.pmf(D - 1, rate)), rate.ravel(), float(prior)


def negative_binomial(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """The prior is one of size r and mean m; ``q = m / (r + m)`` has the derivative ``r / (r + m)²`` by m."""
    r, q = np.exp(numbers[:, :1]), np.exp(numbers[:, 1:])
    m = r * q / (1 - q)
    prior = stats.lognorm(1.5).logpdf(r) + stats.lognorm(1.5, scale=LONGEST / 4).logpdf(m) - np.log(r / (r + m) ** 2)
    return truncated(stats.nbinom.pmf(D - 1, r, 1 - q)), np.concatenate([r, q]).ravel(), float(prior.sum())


def logarithmic(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    p = np.exp(numbers)
    prior = LOG_NORMAL.logpdf(np.log(p / (1 - p))) - np.log(p * (1 - p))
    return truncated(p**D / D), p.ravel(), float(prior.sum())


FAMILIES = {"categorical": categorical, "poisson": poisson, "negative-binomial": negative_binomial,
            "logarithmic": logarithmic}  # fmt: skip


HEAT = [np.array([0.0, 1.0, -1.0, 2.0]), np.array([1.0, -2.0, 0.5])]
ENCODED_HEAT = [(each - np.concatenate(HEAT).mean()) / np.concatenate(HEAT).std() for each in HEAT]


def of_hsmm(name: str, *, given: bool = False) -> tuple[Any, Callable[[Parameters], np.ndarray], Plain]:
    """Durations depend on an input if they are ``given`` it."""

    def split(p: Parameters) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        return p.table[:, :2].softmax(1).numpy(), *FAMILIES[name](p.table[:, 2:].numpy())

    def free(p: Parameters) -> np.ndarray:
        emission, _, durations, _ = split(p)
        slopes = [] if p.duration_slopes is None else p.duration_slopes.numpy().ravel()
        return np.concatenate([simplex(p.initial), emission[:, 0], durations, slopes])

    def log_joint(p: Parameters) -> float:
        emission, pmf, _, prior = split(p)
        of_prior = prior + dirichlet(p.initial, 1.0) + dirichlet(torch.tensor(emission), 0.5)
        if p.duration_slopes is None:
            return semi_markov(p, lambda sequence, t: pmf, emission) + of_prior
        w = p.duration_slopes.numpy()
        of_prior += stats.norm().logpdf(w).sum()
        return (
            semi_markov(p, lambda i, t: truncated(pmf * np.exp(w * ENCODED_HEAT[i][t] * (D - 1))), emission) + of_prior
        )

    effects = ChainInputEffects(durations=True if given else None)
    model = HSMM(2, durations=name, max_duration=LONGEST, observation=sm.Categorical(), length="given", n_init=1)  # type: ignore[arg-type]
    X = sm.Sequences(SYMBOLS, inputs=[each[:, None] for each in HEAT]) if given else SYMBOLS
    return (model.set_params(input_effects=effects), X), free, log_joint


# -- continuous time -------------------------------------------------------------------------------------------


def of_jumps() -> tuple[Any, Callable[[Parameters], np.ndarray], Plain]:
    gap = float(np.concatenate([np.diff(t) for t in TIMES]).mean())

    def free(p: Parameters) -> np.ndarray:
        assert p.generator is not None
        return np.concatenate(
            [simplex(p.initial), p.table.softmax(1).numpy()[:, 0], p.generator.numpy()[[0, 1], [1, 0]]]
        )

    def log_joint(p: Parameters) -> float:
        assert p.generator is not None
        emission, q = p.table.softmax(1).numpy(), p.generator.numpy()
        log_p = sum(
            of_paths(x, p.initial.numpy(), lambda t, times=times: expm(q * (times[t] - times[t - 1])),
                     lambda t, z, x=x: float(np.log(emission[z[t], x[t]])))
            for x, times in zip(SYMBOLS, TIMES, strict=True)
        )  # fmt: skip
        of_rates = stats.gamma(1.0, scale=1 / gap).logpdf(q[[0, 1], [1, 0]]).sum()
        return log_p + float(of_rates) + dirichlet(p.initial, 1.0) + dirichlet(torch.tensor(emission), 0.5)

    model = ContinuousTimeHMM(2, observation=sm.Categorical(), start="free", n_init=1)
    return (model, sm.Sequences(SYMBOLS, times=TIMES)), free, log_joint


# -- Markov-switching autoregression ---------------------------------------------------------------------------


def of_deviations(*, switches: bool) -> tuple[Any, Callable[[Parameters], np.ndarray], Plain]:
    encoded = [(x - np.concatenate(REALS).mean()) / np.concatenate(REALS).std() for x in REALS]

    def parts(p: Parameters) -> list[np.ndarray]:
        """Means, coefficients and variances of both states, and mean and variance of a first step."""
        mean, phi, log_variance, first, log_first = p.table.numpy().T
        return [mean, phi, np.exp(log_variance), first, np.exp(log_first)]

    def free(p: Parameters) -> np.ndarray:
        mean, phi, variance, *_ = parts(p)
        n = 2 if switches else 1
        return np.concatenate([simplex(p.initial), simplex(p.transition), mean, phi[:n], variance[:n]])

    def log_joint(p: Parameters) -> float:
        mean, phi, variance, first, of_first = parts(p)

        def density(x: np.ndarray, t: int, z: tuple[int, ...]) -> float:
            if t == 0:
                return float(stats.norm(first[0], np.sqrt(of_first[0])).logpdf(x[0, 0]))
            expected = mean[z[t]] + phi[z[t]] * (x[t - 1, 0] - mean[z[t - 1]])
            return float(stats.norm(expected, np.sqrt(variance[z[t]])).logpdf(x[t, 0]))

        a = p.transition.numpy()
        log_p = sum(of_paths(x, p.initial.numpy(), lambda t: a, lambda t, z, x=x: density(x, t, z)) for x in encoded)
        covariance, n = 2.0**-2, 2 if switches else 1
        precision = stats.gamma(0.5, scale=1 / (0.5 * covariance)).logpdf(1 / variance[:n]) - 2 * np.log(variance[:n])
        prior = stats.norm(0, np.sqrt(covariance / 0.1)).logpdf(mean).sum() + stats.norm(0, 1).logpdf(phi[:n]).sum()
        return log_p + float(prior + precision.sum()) + dirichlet(p.initial, 1.0) + dirichlet(p.transition, 1.0)

    options: dict[str, Any] = {"switching_ar": switches, "switching_variance": switches, "start": "free"}
    return (MarkovSwitchingAR(2, 1, n_init=1, **options), REALS), free, log_joint


# -- regressions on inputs -------------------------------------------------------------------------------------


def of_inputs() -> tuple[Any, Callable[[Parameters], np.ndarray], Plain]:
    def parts(p: Parameters) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Emissions, and the slopes that are free: of leaving a state, and of the second first state."""
        assert p.transition_slopes is not None
        assert p.initial_slopes is not None
        return p.table.softmax(1).numpy(), p.transition_slopes.numpy()[[0, 1], [1, 0], 0], p.initial_slopes.numpy()[1]

    def free(p: Parameters) -> np.ndarray:
        emission, leaving, first = parts(p)
        return np.concatenate([simplex(p.initial), simplex(p.transition), emission[:, 0], leaving, first])

    def log_joint(p: Parameters) -> float:
        emission, leaving, first = parts(p)
        log_a, slopes = p.transition.log().numpy(), np.array([[0.0, leaving[0]], [leaving[1], 0.0]])

        def at(log_p: np.ndarray, of_input: np.ndarray) -> np.ndarray:
            return np.exp(log_p + of_input - logsumexp(log_p + of_input, -1, keepdims=True))

        log_p = sum(
            of_paths(x, at(p.initial.log().numpy(), np.array([0.0, first[0]]) * u[0]),
                     lambda t, u=u: at(log_a, slopes * u[t]), lambda t, z, x=x: float(np.log(emission[z[t], x[t]])))
            for x, u in zip(SYMBOLS, ENCODED_HEAT, strict=True)
        )  # fmt: skip
        of_slopes = stats.norm().logpdf(np.concatenate([leaving, first])).sum()
        of_rows = dirichlet(p.initial, 1.0) + dirichlet(p.transition, 1.0) + dirichlet(torch.tensor(emission), 0.5)
        return log_p + float(of_slopes) + of_rows

    effects = ChainInputEffects(transitions=True, first_state=True)
    model = sm.HMM(2, observation=sm.Categorical(), input_effects=effects, length="given", n_init=1)
    return (model, sm.Sequences(SYMBOLS, inputs=[each[:, None] for each in HEAT])), free, log_joint


# -- observations without a conjugate prior --------------------------------------------------------------------


def of_columns() -> tuple[Any, Callable[[Parameters], np.ndarray], Plain]:
    X = [np.array([[0.5, 1.0], [2.0, 0.0], [1.2, 1.0], [0.7, 0.0]]), np.array([[3.0, 0.0], [0.2, 1.0], [np.nan, 0.0]])]
    scale = np.nanstd(np.concatenate(X)[:, 0])

    def free(p: Parameters) -> np.ndarray:
        on = p.table[:, 2].sigmoid().numpy()
        return np.concatenate([simplex(p.initial), simplex(p.transition), p.table[:, :2].numpy().ravel(), on])

    def log_joint(p: Parameters) -> float:
        shape, mean = p.table[:, :2].exp().numpy().T
        on, a = p.table[:, 2].sigmoid().numpy(), p.transition.numpy()

        def density(x: np.ndarray, t: int, k: int) -> float:
            amount = stats.gamma(shape[k], scale=mean[k] / shape[k]).logpdf(x[t, 0] / scale)
            return float(np.nan_to_num(amount) + stats.bernoulli(on[k]).logpmf(x[t, 1]))

        log_p = sum(of_paths(x, p.initial.numpy(), lambda t: a, lambda t, z, x=x: density(x, t, z[t])) for x in X)
        of_states = stats.norm(0, 5.0).logpdf(p.table[:, :2].numpy()).sum() + stats.beta(0.5, 0.5).logpdf(on).sum()
        return log_p + float(of_states) + dirichlet(p.initial, 1.0) + dirichlet(p.transition, 1.0)

    observation = sm.Columns([(Gamma(min_scale=1e-6), 1), (sm.Bernoulli(), 1)])
    return (sm.HMM(2, observation=observation, length="given", n_init=1, start="free"), X), free, log_joint


# -- tied and frozen: a tie has one prior, and what is frozen has none ----------------------------------------------


def of_tied_states() -> tuple[Any, Callable[[Parameters], np.ndarray], Plain]:
    def free(p: Parameters) -> np.ndarray:
        return np.concatenate([simplex(p.initial), simplex(p.transition[[0, 2]]), p.table.softmax(1).numpy()[:1, 0]])

    def log_joint(p: Parameters) -> float:
        emission, a = p.table.softmax(1), p.transition.numpy()
        log_p = sum(
            of_paths(x, p.initial.numpy(), lambda t: a, lambda t, z, x=x: float(emission[z[t], x[t]].log()))
            for x in SYMBOLS
        )
        return log_p + dirichlet(p.initial, 1.0) + dirichlet(p.transition[[0, 2]], 1.0) + dirichlet(emission[:1], 0.5)

    training = sm.hmm.ChainTraining(tied=[0, 0, 1], frozen=Frozen(transition=[1], emission=[2]))
    model = sm.HMM(3, observation=sm.Categorical(), length="given", n_init=1, start="free", training=training)
    return (model, SYMBOLS), free, log_joint


def of_tied_durations() -> tuple[Any, Callable[[Parameters], np.ndarray], Plain]:
    def free(p: Parameters) -> np.ndarray:
        return np.concatenate([p.table[:1, :2].softmax(1).numpy()[:, 0], simplex(p.table[:1, 2:])])

    def log_joint(p: Parameters) -> float:
        emission, durations = p.table[:, :2].softmax(1), p.table[:, 2:]
        of_prior = dirichlet(emission[:1], 0.5) + dirichlet(durations[:1], 1.0)
        return semi_markov(p, lambda sequence, t: durations.numpy(), emission.numpy()) + of_prior

    training = sm.hmm.ChainTraining(frozen=Frozen(initial=True, emission=[1]))
    options: dict[str, Any] = {"observation": sm.Categorical(), "length": "given", "n_init": 1, "training": training}
    return (
        (HSMM(2, durations="categorical", max_duration=LONGEST, tied_durations=[0, 0], **options), SYMBOLS),
        free,
        log_joint,
    )


def of_frozen_rates() -> tuple[Any, Callable[[Parameters], np.ndarray], Plain]:
    (model, X), _, log_joint = of_jumps()

    def free(p: Parameters) -> np.ndarray:
        assert p.generator is not None
        return np.concatenate([simplex(p.initial), p.table.softmax(1).numpy()[:1, 0], p.generator.numpy()[:1, 1]])

    def joint(p: Parameters) -> float:
        return log_joint(p) - dirichlet(p.table.softmax(1)[1:], 0.5)

    return (model.set_params(training__tied=[0, 0], training__frozen=Frozen(transition=[1])), X), free, joint


def of_tied_deviations() -> tuple[Any, Callable[[Parameters], np.ndarray], Plain]:
    (model, X), of_all, log_joint = of_deviations(switches=False)

    def free(p: Parameters) -> np.ndarray:
        each = of_all(p)  # a first state, two rows, two means, a coefficient and a variance
        return each[[0, 1, 2, 3, 5, 6]]

    def joint(p: Parameters) -> float:
        return log_joint(p) - float(stats.norm(0, np.sqrt(2.0**-2 / 0.1)).logpdf(p.table[1, 0]))

    return (model.set_params(training__tied=[0, 0]), X), free, joint


def of_tied_slopes() -> tuple[Any, Callable[[Parameters], np.ndarray], Plain]:
    """Two states that emit the same are one regression, whatever the chain."""
    whole = np.concatenate(HEAT)

    def free(p: Parameters) -> np.ndarray:
        assert p.table_slopes is not None
        emission, slope = p.table.softmax(1).numpy()[0, :1], p.table_slopes.numpy()[0, 1]
        return np.concatenate([simplex(p.initial), simplex(p.transition), emission, slope])

    def log_joint(p: Parameters) -> float:
        assert p.table_slopes is not None
        slope, total = p.table_slopes.numpy()[0, :, 0], float(stats.norm().logpdf(p.table_slopes[0, 1, 0]))
        for x, u in zip(SYMBOLS, HEAT, strict=True):
            log_p = p.table[0].numpy() + slope * ((u - whole.mean()) / whole.std())[:, None]
            total += float((log_p[np.arange(len(x)), x] - logsumexp(log_p, 1)).sum())
        of_chain = dirichlet(p.initial, 1.0) + dirichlet(p.transition, 1.0)
        return total + of_chain + dirichlet(p.table.softmax(1)[:1], 0.5)

    options: dict[str, Any] = {"input_effects": ChainInputEffects(emissions=True), "length": "given", "start": "free"}
    model = sm.HMM(2, observation=sm.Categorical(), n_init=1, training=sm.hmm.ChainTraining(tied=[0, 0]), **options)
    return (model, sm.Sequences(SYMBOLS, inputs=[each[:, None] for each in HEAT])), free, log_joint


# -- all of them -----------------------------------------------------------------------------------------------

CASES: dict[str, Callable[[], tuple[Any, Callable[[Parameters], np.ndarray], Plain]]] = {
    **{f"HSMM, {name}": lambda name=name: of_hsmm(name) for name in FAMILIES},
    "ContinuousTimeHMM": of_jumps,
    "HMM given inputs": of_inputs,
    "HSMM given inputs of durations": lambda: of_hsmm("negative-binomial", given=True),
    "HMM of columns": of_columns,
    "MarkovSwitchingAR": lambda: of_deviations(switches=False),
    "MarkovSwitchingAR that switches": lambda: of_deviations(switches=True),
    "HMM, tied and frozen": of_tied_states,
    "HSMM, tied and frozen": of_tied_durations,
    "ContinuousTimeHMM, tied and frozen": of_frozen_rates,
    "MarkovSwitchingAR, tied": of_tied_deviations,
    "HMM, tied and given inputs": of_tied_slopes,
}


@pytest.mark.filterwarnings("ignore:.*states of.*steps, but", "ignore:.*on the floor")
@pytest.mark.parametrize("name", CASES)
def test_a_density_is_that_by_hand_with_its_derivatives(name: str) -> None:
    (model, X), free, log_joint = CASES[name]()
    density, _ = density_of(model.set_params(max_iter=2, dtype="float64"), X)
    coordinates, n = density.coordinates, density.coordinates.n

    def by_hand(u: Tensor) -> float:
        steps = 1e-5 * torch.eye(n, dtype=torch.float64)
        columns = [free(coordinates.at(u + s)[0]) - free(coordinates.at(u - s)[0]) for s in steps]
        jacobian = np.stack(columns, 1) / 2e-5
        assert jacobian.shape == (n, n)
        return log_joint(coordinates.at(u)[0]) + float(np.linalg.slogdet(jacobian)[1])

    u, zero = torch.linspace(-0.6, 0.7, n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    ours = float(density(u) - density(zero))
    assert ours == pytest.approx(by_hand(u) - by_hand(zero), abs=1e-6)
    variable = u.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(density(variable), variable)
    steps = 1e-5 * torch.eye(n, dtype=torch.float64)
    numeric = [(float(density(u + step)) - float(density(u - step))) / 2e-5 for step in steps]
    np.testing.assert_allclose(gradient.numpy(), numeric, rtol=1e-5, atol=1e-6)
