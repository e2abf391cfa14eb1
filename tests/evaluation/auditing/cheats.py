"""Models whose figures are no comparable log-probabilities, each wrong in one way, around models that are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import seqmodels as sm

V = 4  # symbols
WORDS = ("to be", "or not", "that is the question", "whether tis nobler", "in the mind", "to suffer", "né à Èze")


def symbols(seed: int, n: int = 30) -> list[np.ndarray]:
    """Sequences of unequal symbols, each of which often follows the one before it."""
    rng = np.random.default_rng(seed)
    steps = [rng.choice(V, size, p=[0.15, 0.6, 0.15, 0.1]) for size in rng.integers(4, 40, n)]
    return [np.cumsum(each) % V for each in steps]


def vectors(seed: int, n: int = 20) -> list[np.ndarray]:
    """One feature, in units of a hundredth, that remembers the last."""
    rng = np.random.default_rng(seed)
    items = []
    for size in rng.integers(5, 30, n):
        z = rng.standard_normal((size, 1))
        for t in range(1, size):
            z[t] += 0.8 * z[t - 1]
        items.append(0.01 * z + 3)
    return items


def texts(seed: int, n: int = 12) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 4))) for _ in range(n)]


class Bigram:
    """``p(x_t | x_t-1)`` from counts, and the end an event unless lengths are given: all that an audit asks of a model.

    Args:
        train: sequences of symbols 0 .. V - 1.
        ends: whether there is one more step, the end.
    """

    def __init__(self, train: list[np.ndarray], ends: bool = False) -> None:
        self.ends = ends
        counts = np.full((V + 1, V + 1), 0.5)  # the last row is the start, the last column the end
        for x in train:
            np.add.at(counts, (np.append(V, x), np.append(x, V)), 1)
        if not ends:
            counts[:, V] = 0
        counts[V, V] = 0  # a sequence is not empty
        self.p = counts / counts.sum(1, keepdims=True)

    def predictions(self, x: np.ndarray) -> np.ndarray:
        """``(T + 1, V + 1)`` before each step and after the last."""
        return self.p[np.append(V, x)]

    def log_prob_steps(self, X: Any) -> list[np.ndarray]:
        return [self.of_steps(np.asarray(x)) for x in X]

    def of_steps(self, x: np.ndarray) -> np.ndarray:
        steps = np.append(x, V) if self.ends else x
        return np.log(self.predictions(x)[np.arange(len(steps)), steps])

    def sample(
        self,
        n: int,
        *,
        length: int | None = None,
        prefix: Any = None,
        max_length: int = 100,
        random_state: int = 0,
    ) -> list[np.ndarray]:
        rng, drawn = np.random.default_rng(random_state), []
        for _ in range(n):
            x = [] if prefix is None else [int(v) for v in prefix]
            for _ in range(max_length if length is None else length):
                v = int(rng.choice(V + 1, p=self.drawn_from(self.p[x[-1] if x else V])))
                if v == V:
                    break
                x.append(v)
            drawn.append(np.array(x, dtype=int))
        return drawn

    def drawn_from(self, p: np.ndarray) -> np.ndarray:
        return p


class Autoregression:
    """``x_t = m + a (x_t-1 - m) + noise``, Gaussian, one feature; the first step has the stationary distribution."""

    def __init__(self, train: list[np.ndarray]) -> None:
        frames = np.concatenate(train)[:, 0]
        self.mean, self.deviation = frames.mean(), frames.std()
        z = [(x[:, 0] - self.mean) / self.deviation for x in train]
        self.a = sum(float(each[1:] @ each[:-1]) for each in z) / sum(float(each[:-1] @ each[:-1]) for each in z)

    def predictions(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(T + 1,)`` means and deviations before each step and after the last."""
        means = self.mean + self.a * (np.append(self.mean, x[:, 0]) - self.mean)
        deviations = np.full(len(means), self.deviation * np.sqrt(1 - self.a**2))
        deviations[0] = self.deviation
        return means, deviations

    def log_prob_steps(self, X: Any) -> list[np.ndarray]:
        each = []
        for x in X:
            means, deviations = self.predictions(x)
            z = (x[:, 0] - means[:-1]) / deviations[:-1]
            each.append(-0.5 * z**2 - np.log(deviations[:-1]) - 0.5 * np.log(2 * np.pi))
        return each

    def sample(
        self, n: int, *, length: int | None = None, prefix: Any = None, max_length: int = 100, random_state: int = 0
    ) -> list[np.ndarray]:
        rng = np.random.default_rng(random_state)
        x = np.tile(np.zeros((0, 1)) if prefix is None else np.asarray(prefix), (n, 1, 1))
        for _ in range(max_length if length is None else length):
            is_first = x.shape[1] == 0
            last = np.full(n, self.mean) if is_first else x[:, -1, 0]
            deviation = self.deviation * (1.0 if is_first else np.sqrt(1 - self.a**2))
            step = self.mean + self.a * (last - self.mean) + self.spread() * deviation * rng.standard_normal(n)
            x = np.concatenate([x, step[:, None, None]], axis=1)
        return list(x)

    def spread(self) -> float:
        """Of draws, relative to the deviation."""
        return 1.0


# -- the cheats --------------------------------------------------------------------------------------------------------


class CountsBeforeScoring(Bigram):
    """A cache of the symbols so far, among them the one that is scored."""

    def of_steps(self, x: np.ndarray) -> np.ndarray:
        share = np.array([(x[: t + 1] == x[t]).mean() for t in range(len(x))])
        return np.log(0.8 * np.exp(super().of_steps(x)) + 0.2 * share)


class SeesTheNextSymbol(Bigram):
    """Attention without a mask: each prediction leans, by a normalised softmax, to the symbol after the one scored."""

    def of_steps(self, x: np.ndarray) -> np.ndarray:
        logits = np.log(self.predictions(x)[: len(x), :V])
        logits[np.arange(len(x) - 1), x[1:]] += 0.7
        logits -= np.logaddexp.reduce(logits, axis=1, keepdims=True)
        return np.asarray(logits[np.arange(len(x)), x])


class SmoothedLabels(Bigram):
    """The training loss: a twentieth of the label is spread over all symbols."""

    def of_steps(self, x: np.ndarray) -> np.ndarray:
        spread = np.log(self.predictions(x)[: len(x), :V]).mean(1)
        return 0.95 * super().of_steps(x) + 0.05 * spread


class WarmedUnnormalised(Bigram):
    """Log-probabilities divided by a temperature, and not normalised again."""

    def of_steps(self, x: np.ndarray) -> np.ndarray:
        return super().of_steps(x) / 1.1


class NormalisesTheBatch(Autoregression):
    """Vectors standardised by the mean and deviation of the batch in which they are scored."""

    def log_prob_steps(self, X: Any) -> list[np.ndarray]:
        frames = np.concatenate(X)
        deviation = frames.std() + 1e-3 * self.deviation
        scaled = [(x - frames.mean()) / deviation * self.deviation + self.mean for x in X]
        log_det, base = float(np.log(self.deviation / deviation)), super().log_prob_steps
        return [steps + log_det for steps in base(scaled)]


class PseudoLikelihood(Bigram):
    """Each symbol given both its neighbours, as a bidirectional model has it."""

    def of_steps(self, x: np.ndarray) -> np.ndarray:
        joint = self.predictions(x)[: len(x), :V].copy()
        joint[:-1] *= self.p[:V][:, x[1:]].T
        joint /= joint.sum(1, keepdims=True)
        return np.asarray(np.log(joint[np.arange(len(x)), x]))


class ScoresTokens:
    """Byte pairs: nats a token are said to be nats a byte."""

    def __init__(self, train: list[str]) -> None:
        self.model = sm.NGram(2, encoding=sm.BPE(280)).fit(train)

    @property
    def measure_(self) -> sm.Measure:
        return self.model.measure_

    def log_prob_steps(self, X: Any) -> list[np.ndarray]:
        return self.model.log_prob_steps(X)

    def score(self, X: Any) -> float:
        n_tokens = sum(len(self.model.encoding_.encode(x)) for x in X)
        return float(self.model.log_prob(X).sum() / n_tokens)


class StepsAreTokens(ScoresTokens):
    """A figure for each token, none for bytes."""

    def log_prob_steps(self, X: Any) -> list[np.ndarray]:
        each = zip(X, super().log_prob_steps(X), strict=True)
        last = [(self.model.encoding_.last_unit(self.model.encoding_.encode(x)), steps) for x, steps in each]
        return [np.append(steps[at], steps[-1]) for at, steps in last]

    def score(self, X: Any) -> float:
        steps = np.concatenate(self.log_prob_steps(X))
        return float(steps.sum() / (len(steps) - len(X)))


class FreeFirstSymbol(Bigram):
    """The first symbol is taken for given."""

    def of_steps(self, x: np.ndarray) -> np.ndarray:
        return np.append(0.0, super().of_steps(x)[1:])


class ForgottenEnd(Bigram):
    """Symbols are normalised among themselves, and the end costs nothing."""

    def of_steps(self, x: np.ndarray) -> np.ndarray:
        p = self.predictions(x)[: len(x), :V]
        p = p / p.sum(1, keepdims=True)
        return np.append(np.log(p[np.arange(len(x)), x]), 0.0)


class LearnsFromTheTestPart(Bigram):
    """Counts go on from one sequence to the next, and from one call to the next."""

    def __init__(self, train: list[np.ndarray]) -> None:
        super().__init__(train)
        self.counts = np.ones((V + 1, V))

    def of_steps(self, x: np.ndarray) -> np.ndarray:
        steps = np.empty(len(x))
        for t, (before, v) in enumerate(zip(np.append(V, x), x, strict=False)):
            learned = self.counts[before, v] / self.counts[before].sum()
            steps[t] = np.log(0.5 * self.p[before, v] + 0.5 * learned)
            self.counts[before, v] += 1
        return steps


class LeaksWithinACall(Bigram):
    """As ``LearnsFromTheTestPart``, but each call starts anew."""

    def log_prob_steps(self, X: Any) -> list[np.ndarray]:
        counts, each = np.ones(V), []
        for x in X:
            each.append(np.log(0.5 * np.exp(self.of_steps(x)) + 0.5 * counts[x] / counts.sum()))
            counts += np.bincount(x, minlength=V)
        return each


class CountsPadding(Bigram):
    """``log_prob`` sums over the padded batch: shorter sequences pay for padding, a symbol 0."""

    def log_prob(self, X: Any) -> np.ndarray:
        longest = max(map(len, X))
        return np.array([self.of_steps(np.pad(x, (0, longest - len(x)))).sum() for x in X])


class DropsTheLastStep(Bigram):
    """The mask of a padded batch is one too short: the last step of all but the longest is left out."""

    def log_prob_steps(self, X: Any) -> list[np.ndarray]:
        longest = max(map(len, X))
        steps = super().log_prob_steps(X)
        return [np.append(s[:-1], s[-1] if len(s) == longest else 0.0) for s in steps]


class SamplesColder(Bigram):
    """Draws at temperature 0.8, scores at 1."""

    def drawn_from(self, p: np.ndarray) -> np.ndarray:
        return np.asarray(p**1.25 / (p**1.25).sum())


class ForgottenJacobian(Autoregression):
    """The density of standardised values, given as that of raw ones."""

    def log_prob_steps(self, X: Any) -> list[np.ndarray]:
        return [steps + np.log(self.deviation) for steps in super().log_prob_steps(X)]


class DrawsNarrower(Autoregression):
    """What is drawn is a fifth nearer to what is expected."""

    def spread(self) -> float:
        return 0.8


@dataclass(frozen=True)
class Cheat:
    """A kind of cheat.

    Attributes:
        number: of the ten kinds.
        make: a model fitted to ``data(seed)``.
        data: sequences by a seed.
        rule: that is broken by it, whatever else is.
    """

    number: int
    make: Callable[[Any], Any]
    data: Callable[[int], list[Any]]
    rule: str


CHEATS = [
    Cheat(1, CountsBeforeScoring, symbols, "scores before it learns"),
    Cheat(2, SeesTheNextSymbol, symbols, "causal"),
    Cheat(3, SmoothedLabels, symbols, "sums to one"),
    Cheat(3, WarmedUnnormalised, symbols, "sums to one"),
    Cheat(4, NormalisesTheBatch, vectors, "same in any batch"),
    Cheat(5, PseudoLikelihood, symbols, "causal"),
    Cheat(6, ScoresTokens, texts, "units"),
    Cheat(6, StepsAreTokens, texts, "units"),
    Cheat(7, FreeFirstSymbol, symbols, "sums to one"),
    Cheat(7, lambda train: ForgottenEnd(train, ends=True), symbols, "sums to one"),
    Cheat(8, LearnsFromTheTestPart, symbols, "no look at the test part"),
    Cheat(8, LeaksWithinACall, symbols, "declared memory"),
    Cheat(9, CountsPadding, symbols, "units"),
    Cheat(9, DropsTheLastStep, symbols, "same in any batch"),
    Cheat(10, SamplesColder, symbols, "samples follow scores"),
    Cheat(10, ForgottenJacobian, vectors, "sums to one"),
    Cheat(10, DrawsNarrower, vectors, "samples follow scores"),
]


def audit_of(cheat: Cheat, seed: int) -> tuple[Any, sm.evaluation.Audit]:
    """The model that cheats, and what an audit says of it, on sequences that it was not fitted to."""
    model = cheat.make(cheat.data(2 * seed))
    n_symbols = V if cheat.data is symbols else None
    return model, sm.audit(model, cheat.data(2 * seed + 1), n_symbols=n_symbols, effort="quick", random_state=seed)
