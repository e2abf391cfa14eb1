"""``propose_observations``: which distributions the values of each feature could have, by what they look like."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, get_args

import numpy as np

from seqmodels.common.parameters import checked_but
from seqmodels.encodings.vectors import RANGES, is_value
from seqmodels.observations import (
    Bernoulli,
    Beta,
    Columns,
    Gamma,
    GaussianMixture,
    LogNormal,
    NegativeBinomial,
    Observation,
    Poisson,
    StudentT,
    VonMises,
    ZeroInflated,
)
from seqmodels.sequences import as_sequences
from seqmodels.sequences.measure import Values
from seqmodels.sequences.profile import COARSE_STEP, Profile, profile_of

N_ERRORS = 3.0  # standard errors that a figure must be off by
MIN_EXCESS_ZEROS = 0.01  # of the frames
FAR_FROM_ZERO = 20.0  # deviations of the mean from 0, from which on Gamma and LogNormal are as good as Gaussian
MIN_EXCESS_KURTOSIS = 1.0  # of heavy tails; a Gaussian has 0, a Laplace density 3
NAMES_OF_ANGLES = {
    "angle",
    "angles",
    "azimuth",
    "bearing",
    "dir",
    "direction",
    "heading",
    "phase",
    "phi",
    "turn",
    "turning",
    "yaw",
}
MIN_ON_CIRCLE = 100  # frames of which it is told whether they fill the circle
NEAR_PI = 0.3  # radians from ±π, in which a part of the frames lies on both sides where angles fill the circle
SHARE_NEAR_PI = 0.01  # of the frames on each side; of a Gaussian of deviation 1 it is 0.002
END_OF_CIRCLE = 0.05  # radians from ±π, within which the outermost frames lie
DEGREES = 360.0


@dataclass(frozen=True)
class FeatureProposals:
    """The observation distributions that suit the values of one feature.

    Attributes:
        name: name of the feature, or its number.
        values: kind of its values, such as ``"reals"``, ``"counts"`` or ``"angles"``; all ``observations`` are
            distributions of this kind, or of all reals.
        observations: the distributions; the first is the plainest.
        reason: why they were proposed, in words.
        cautions: peculiarities of the values that none of them describes, in words.
    """

    name: str
    values: Values
    observations: tuple[Observation, ...]
    reason: str
    cautions: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = f"{self.name}: {self.reason}: {', '.join(map(repr, self.observations))}"
        return "\n".join([said, *(f"{self.name}: caution: {each}" for each in self.cautions)])


@dataclass(frozen=True, repr=False)
class ObservationProposals:
    """Observation distributions of all features together, for ``choose(model, X, observation=proposals)``.

    Neighbouring features with the same proposals form a group. The first observation has the plainest proposal of each
    group; each further one changes a single group, so that there are ``1 + Σ_g (n_g - 1)`` observations for n_g
    proposals of group g, not their product. ``choose`` adds the combination of the best of each group. Features are
    independent given the hidden state in all of them. Iterating over the object yields ``observations``.

    Attributes:
        features: the proposals of each feature, in their order.
        observations: distributions of all features together.
    """

    features: tuple[FeatureProposals, ...]
    observations: tuple[Observation, ...] = field(init=False)

    def __post_init__(self) -> None:
        plainest = [0] * len(self.groups)
        rows = [plainest] + [
            [*plainest[:g], j, *plainest[g + 1 :]]
            for g, (each, _) in enumerate(self.groups)
            for j in range(1, len(each))
        ]
        object.__setattr__(self, "observations", tuple(self._joint(row) for row in rows))

    @property
    def groups(self) -> list[tuple[tuple[Observation, ...], int]]:
        """Proposals and number of features of each group of neighbouring features that have the same proposals."""
        runs = [list(run) for _, run in groupby(self.features, key=lambda each: repr(each.observations))]
        return [(run[0].observations, len(run)) for run in runs]

    def combination(self, figures: Sequence[float]) -> Observation | None:
        """Combine the best proposal of each group of features into one observation.

        It is None if ``observations`` has it already.

        Args:
            figures: score of each of ``observations``, higher is better, NaN if it failed.
        """
        best, row = [], 1
        for each, _ in self.groups:
            of_group = np.array([figures[0], *figures[row : row + len(each) - 1]])
            best.append(0 if np.isnan(of_group).all() else int(np.nanargmax(of_group)))
            row += len(each) - 1
        return None if np.count_nonzero(best) < 2 else self._joint(best)

    def _joint(self, choice: Sequence[int]) -> Observation:
        parts = [(each[j].clone(), n) for j, (each, n) in zip(choice, self.groups, strict=True)]
        return parts[0][0] if len(parts) == 1 else Columns(parts)

    def __iter__(self) -> Iterator[Observation]:
        return iter(self.observations)

    def __len__(self) -> int:
        return len(self.observations)

    def __repr__(self) -> str:
        return "\n".join(map(str, self.features))


@checked_but("X", "kinds")
def propose_observations(X: Any, *, kinds: Mapping[Any, Values] | None = None) -> ObservationProposals:
    """Propose observation distributions for each feature of vectors, by what its values look like.

    - Whole numbers from 0 on have probabilities: ``Bernoulli`` for 0 and 1; else ``Poisson``, ``NegativeBinomial`` if
      the variance is above the mean, and ``ZeroInflated`` if there are more zeros than these distributions have.
    - All other values have densities, which may stand in one table: ``GaussianMixture(1)``; for all reals ``StudentT``,
      whose tails may be heavier; for values above 0 and near it ``Gamma`` and ``LogNormal``, between 0 and 1 also
      ``Beta``.
    - Angles from -π to π have ``VonMises``. A feature is an angle if its name says so (angle, direction, heading, ...)
      or its values fill the circle.

    A probability and a density are not comparable, so a feature has proposals of one of the two only. Excess variance
    and excess zeros must be above three standard errors over all frames together; which proposal is right given a
    hidden state is for a comparison to say.

    Args:
        X: sequences of vectors.
        kinds: kinds of features by their names or numbers, where they are not what they look like: ``"reals"`` for
            whole numbers that are rounded measurements, ``"angles"``, ``"amounts"`` for values that are 0 with some
            probability and have a density above it (``ZeroInflated(Gamma())``). None means that all are recognised.

    Returns:
        ``ObservationProposals``, with the distributions of each feature and the reason, to pass to ``choose``.

    Raises:
        ValueError: X is text or symbols; a feature is missing everywhere, or constant with a density; or ``kinds``
            names unknown features or contradicts the values.

    >>> rng = np.random.default_rng(0)
    >>> propose_observations([np.stack([rng.poisson(3.0, 500), rng.normal(size=500)], axis=1)])
    0: whole numbers from 0 on, so probabilities and no densities: Poisson()
    1: reals: GaussianMixture(n_components=1), StudentT()
    """
    sequences = as_sequences(X)
    if sequences.kind != "vectors":
        raise ValueError(
            f"the sequences are {sequences.kind}, which have Categorical; observations are proposed of vectors"
        )
    frames = np.concatenate([np.asarray(x, dtype=np.float64) for x in sequences.items])
    names = sequences.features or tuple(map(str, range(frames.shape[1])))
    said = _kinds_by_name(kinds or {}, names)
    proposals = [_of_feature(name, column, said.get(name)) for name, column in zip(names, frames.T, strict=True)]
    return ObservationProposals(tuple(proposals))


def _kinds_by_name(kinds: Mapping[Any, Values], names: Sequence[str]) -> dict[str, Values]:
    by_name: dict[str, Values] = {}
    for key, kind in kinds.items():
        name = names[key] if isinstance(key, int) and 0 <= key < len(names) else key
        if name not in names:
            raise ValueError(f"kinds names the feature {key!r}, but there are {', '.join(names)}")
        if kind not in get_args(Values):
            raise ValueError(f"kinds says {kind!r} of {key!r}; pass one of {', '.join(map(repr, get_args(Values)))}")
        by_name[name] = kind
    return by_name


def _of_feature(name: str, column: np.ndarray, said: Values | None) -> FeatureProposals:
    x = column[~np.isnan(column)]
    profile = profile_of(column)
    if profile.kind == "missing":
        raise ValueError(f"feature {name} is missing in every frame; leave the feature out")
    if said is not None and not is_value(x, said).all():
        expected, _ = RANGES[said]
        raise ValueError(
            f"kinds says {said!r} of {name}, which must be {expected}, but its values go from "
            f"{profile.low:g} to {profile.high:g}"
        )
    values, why = (said, "as said, ") if said is not None else (_recognised(name, x), "")
    is_whole = values in ("bits", "counts")
    if profile.kind == "constant" and not is_whole:
        raise ValueError(f"feature {name} is constant, so its density is unbounded; leave the feature out")
    observations, reason = PROPOSALS[values](x)
    cautions = _cautions_of_counts(name, profile, said) if is_whole else _cautions(name, x, profile, values)
    if profile.kind == "spike" and not (is_whole or values == "amounts"):
        # Densities that shrink to the spike would say nothing of the rest.
        observations, reason = observations[:1], "reals with a spike"
    return FeatureProposals(name, values, observations, why + reason, cautions)


def _recognised(name: str, x: np.ndarray) -> Values:
    for kind in ("bits", "counts"):
        if is_value(x, kind).all():
            return kind
    if is_value(x, "angles").all() and (_is_named_angle(name) or _fill_the_circle(x)):
        return "angles"
    if is_value(x, "proportions").all():
        return "proportions"
    if is_value(x, "positive").all() and x.mean() < FAR_FROM_ZERO * x.std():
        return "positive"
    return "reals"


def _is_named_angle(name: str) -> bool:
    return bool(NAMES_OF_ANGLES.intersection(re.split(r"[^a-z]+", name.lower())))


def _fill_the_circle(x: np.ndarray) -> bool:
    """Return True if values from -π to π come close to both ends, so that they may be angles.

    Args:
        x: n values of one feature, ``(n,)``.
    """
    if len(x) < MIN_ON_CIRCLE:
        return False
    reach = min(x.max(), -x.min()) >= np.pi - END_OF_CIRCLE
    shares = [(side * x > np.pi - NEAR_PI).mean() for side in (1, -1)]
    return bool(reach and min(shares) >= SHARE_NEAR_PI)


# -- proposals of each kind of values ---------------------------------------------------------------------------

Proposed = tuple[tuple[Observation, ...], str]


def _of_bits(x: np.ndarray) -> Proposed:
    return (Bernoulli(),), "0 and 1, so probabilities and no densities"


def _of_counts(x: np.ndarray) -> Proposed:
    mean, variance, n = float(x.mean()), float(x.var()), len(x)
    proposed: list[Observation] = [Poisson()]
    said = ["whole numbers from 0 on, so probabilities and no densities"]
    # The index of dispersion of a Poisson variable is 1, with a standard error of sqrt(2 / n).
    is_overdispersed = mean > 0 and variance / mean > 1 + N_ERRORS * np.sqrt(2 / n)
    if is_overdispersed:
        proposed.append(NegativeBinomial())
        said.append(f"variance {variance / mean:.3g} times the mean")
    zeros = float((x == 0).mean())
    if _exceeds(zeros, np.exp(-mean), n):
        proposed.append(ZeroInflated(Poisson()))
        said.append(f"{zeros:.1%} zeros where Poisson has {np.exp(-mean):.1%}")
        if is_overdispersed:
            size = mean**2 / (variance - mean)
            of_negative_binomial = (size / (size + mean)) ** size
            if _exceeds(zeros, of_negative_binomial, n):
                proposed.append(ZeroInflated(NegativeBinomial()))
    return tuple(proposed), ", ".join(said)


def _exceeds(share: float, expected: float, n: int) -> bool:
    """Return True if an observed share exceeds the expected one by more than 0.01 and more than three standard errors.

    Args:
        share: observed share.
        expected: expected share.
        n: number of values that the share is of.
    """
    return bool(share > expected + max(MIN_EXCESS_ZEROS, N_ERRORS * np.sqrt(expected * (1 - expected) / n)))


def _of_reals(x: np.ndarray) -> Proposed:
    # Tails given a state may be heavy where those of all frames together are not: states that lie apart lighten them.
    kurtosis = _excess_kurtosis(x)
    is_heavy = kurtosis > max(MIN_EXCESS_KURTOSIS, N_ERRORS * np.sqrt(24 / len(x)))
    reason = f"reals of heavy tails (excess kurtosis {kurtosis:.2g})" if is_heavy else "reals"
    return (GaussianMixture(1), StudentT()), reason


def _excess_kurtosis(x: np.ndarray) -> float:
    deviations = x - x.mean()
    scale = float(np.abs(deviations).max())
    z = deviations / scale if scale > 0 else deviations
    variance = float((z**2).mean())
    return float((z**4).mean()) / variance**2 - 3.0 if variance > 0 else 0.0


def _of_positive(x: np.ndarray) -> Proposed:
    return (GaussianMixture(1), Gamma(), LogNormal()), "reals above 0"


def _of_amounts(x: np.ndarray) -> Proposed:
    return (ZeroInflated(Gamma()), ZeroInflated(LogNormal())), "amounts of 0 or above, so a probability at 0"


def _of_proportions(x: np.ndarray) -> Proposed:
    return (GaussianMixture(1), Beta(), Gamma(), LogNormal()), "reals between 0 and 1"


def _of_angles(x: np.ndarray) -> Proposed:
    return (GaussianMixture(1), VonMises()), "angles from -π to π"


PROPOSALS: dict[Values, Callable[[np.ndarray], Proposed]] = {
    "bits": _of_bits,
    "counts": _of_counts,
    "reals": _of_reals,
    "positive": _of_positive,
    "amounts": _of_amounts,
    "proportions": _of_proportions,
    "angles": _of_angles,
}


# -- what no proposal does justice to -----------------------------------------------------------------------------


def _cautions_of_counts(name: str, profile: Profile, said: Values | None) -> tuple[str, ...]:
    if said is not None or profile.deviation * COARSE_STEP < 1:
        return ()
    return (f"if it is a rounded measurement and no count, kinds={{{name!r}: 'reals'}} (or 'positive') has densities",)


def _cautions(name: str, x: np.ndarray, profile: Profile, values: Values) -> tuple[str, ...]:
    said = []
    if profile.kind == "spike" and values != "amounts":
        said.append(
            f"{profile.spike_share:.0%} of the frames are {profile.spike:g}, where a density has no bound, so that its "
            "floor would set the figures; pass two features in its place: whether it is so, 0 or 1, and the value, NaN "
            "where it is so" + (f"; or kinds={{{name!r}: 'amounts'}} gives 0 a probability" if profile.low == 0 else "")
        )
    elif profile.step > COARSE_STEP * profile.deviation:
        said.append(
            f"the values lie on a grid of step {profile.step:g}, {profile.step / profile.deviation:.2g} deviations, on "
            "which a density grows without bound; choose on X.dithered()"
        )
    if values == "reals" and profile.low == 0:
        share = (x == 0).mean()
        said.append(
            f"{share:.1%} of the frames are 0, and all others above it, so neither Gamma nor LogNormal has "
            "a density there; if 0 stands for what is too small to measure, say so by a small number"
        )
    if values != "angles" and _is_named_angle(name) and profile.low >= 0 and profile.high <= DEGREES:
        unit = "x - 2π above π" if profile.high <= 2 * np.pi + 1e-6 else "radians from -π to π"
        said.append(f"its name is of an angle; as {unit} it would have VonMises too")
    return tuple(said)
