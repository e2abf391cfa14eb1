"""Power laws of scores against data, parameters or seconds: ``score(n) = c + a n^-b``, with confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from seqmodels.array_checks import numbers_of
from seqmodels.parameters import Range, checked

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MIN_POINTS = 4  # three numbers are fitted
EXPONENTS = np.geomspace(0.005, 8.0, 1500)  # that are looked at; an interval that reaches an end has no bound there


Level = Annotated[float, Range(0, 1, may_be_low=False)]  # of an interval


@dataclass(frozen=True)
class PowerLaw:
    """``score(n) = c + a n^-b``, fitted by least squares.

    Attributes:
        a, b, c: of the formula; ``c`` is what the score tends to. Of scores that rise with n, ``a`` is below zero.
        b_low, b_high, c_low, c_high: confidence intervals; 0 or infinite where the points set no bound.
        residual: standard deviation of the residuals, with n - 3 degrees of freedom.
        n_points: that it was fitted to.
    """

    a: float
    b: float
    c: float
    b_low: float
    b_high: float
    c_low: float
    c_high: float
    residual: float
    n_points: int

    def predict(self, n: Any) -> np.ndarray:
        """The scores at ``n`` (any shape)."""
        return np.asarray(self.c + self.a * numbers_of("n", n) ** -self.b)


@checked
def fit_power_law(n: Any, score: Any, *, level: Level = 0.95) -> PowerLaw:
    """Fit ``score = c + a n^-b`` by least squares (Hestness et al. 2017; Kaplan et al. 2020).

    For each exponent b, ``a`` and ``c`` are a linear regression; b is the one of least squared error ``S(b)``. The
    intervals are of the profile likelihood: b is in it if ``S(b) <= S (1 + F / (m - 3))`` for m points and the quantile
    F of the F distribution with 1 and m - 3 degrees of freedom (Bates & Watts 1988, chapter 6), and c likewise. They
    suppose independent normal residuals of one variance: use one point a fit, from several seeds where there are.

    Args:
        n: ``(m,)`` sequences, units, parameters or seconds; above zero.
        score: ``(m,)`` nats per unit.
        level: of the intervals.

    Raises:
        ValueError: fewer than four points, or three different n; values that are not finite, or n not above zero.

    >>> n = np.array([100.0, 200.0, 400.0, 800.0, 1600.0])
    >>> law = fit_power_law(n, -1.5 - 4 * n**-0.5)
    >>> round(law.b, 3), round(law.c, 3)
    (0.5, -1.5)
    """
    x, y = numbers_of("n", n), numbers_of("score", score)
    if x.ndim != 1 or x.shape != y.shape or len(x) < MIN_POINTS or len(np.unique(x)) < 3:
        raise ValueError(
            f"n and score have shapes {x.shape} and {y.shape}; pass {MIN_POINTS} points or more, of three different n"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all() and (x > 0).all()):
        raise ValueError("n and score must be finite, and n above zero; leave out models that failed")
    from scipy.optimize import fminbound
    from scipy.special import fdtri

    scale = float(np.exp(np.log(x).mean()))
    profile = _Profile(x / scale, y)
    errors, _, constants, weights = profile.at(EXPONENTS)
    best = int(errors.argmin())
    low, high = (float(np.log(EXPONENTS[i])) for i in (max(best - 1, 0), min(best + 1, len(EXPONENTS) - 1)))
    b = float(np.exp(fminbound(lambda log_b: profile.error(float(np.exp(log_b))), low, high, xtol=1e-10)))
    least, slope, constant, _ = (float(each[0]) for each in profile.at(np.array([b])))
    freedom = len(x) - 3
    bound = least * (1 + float(fdtri(1, freedom, level)) / freedom)
    among = np.flatnonzero(errors <= bound)
    b_low, b_high, c_low, c_high = b, b, constant, constant
    if len(among):
        b_low = 0.0 if among[0] == 0 else _crossing(profile, EXPONENTS[among[0] - 1], EXPONENTS[among[0]], bound)
        at_end = among[-1] == len(EXPONENTS) - 1
        b_high = np.inf if at_end else _crossing(profile, EXPONENTS[among[-1] + 1], EXPONENTS[among[-1]], bound)
        reach = np.sqrt((bound - errors[among]) / weights[among])
        c_low, c_high = float((constants[among] - reach).min()), float((constants[among] + reach).max())
        if among[0] == 0:  # as b goes to 0, c goes to an infinity, of either sign where the slope has none
            has_sign = abs(constants[0] - y.mean()) > reach[0]
            c_low = -np.inf if slope > 0 or not has_sign else c_low
            c_high = np.inf if slope < 0 or not has_sign else c_high
    residual = float(np.sqrt(least / freedom))
    return PowerLaw(slope * scale**b, b, constant, b_low, b_high, c_low, c_high, residual, len(x))


@dataclass(frozen=True)
class _Profile:
    """The least squared error for each exponent."""

    x: np.ndarray
    y: np.ndarray

    def at(self, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """For exponents ``(B,)`` squared error, slope, constant, and by how much the error grows with the square of the
        distance from that constant.
        """
        z = self.x ** -b[:, None]  # (B, m)
        mean = z.mean(axis=1)
        spread = z - mean[:, None]
        square = (spread**2).sum(axis=1)
        slope = spread @ self.y / square
        constant = self.y.mean() - slope * mean
        residuals = self.y - constant[:, None] - slope[:, None] * z
        return (residuals**2).sum(axis=1), slope, constant, len(self.x) * square / (z**2).sum(axis=1)

    def error(self, b: float) -> float:
        """The least squared error of one exponent."""
        return float(self.at(np.array([b]))[0][0])


def _crossing(profile: _Profile, outside: float, within: float, bound: float) -> float:
    """The exponent between these two whose squared error is ``bound``."""
    from scipy.optimize import brentq

    return float(brentq(lambda b: profile.error(b) - bound, outside, within))


@checked
def power_laws(
    frame: pd.DataFrame, *, x: str = "n", y: str = "score", by: str = "model", level: Level = 0.95
) -> pd.DataFrame:
    """A power law of each model: a row each, with the fields of ``PowerLaw``.

    Args:
        frame: a row for each fit, such as joined ``Comparison.frame`` with a column of the size of the training part.
        x: the column of data, parameters (``n_parameters``) or seconds (``fit_seconds``).
        y: the column of scores.
        by: the column that names the models.
        level: of the intervals.

    Raises:
        ValueError: columns that are missing; as of ``fit_power_law``, naming the model.
    """
    import pandas as pd

    rows = []
    for name, points in _groups(frame, x, y, by):
        try:
            law = fit_power_law(points[x], points[y], level=level)
        except ValueError as error:
            raise ValueError(f"{by} {name!r}: {error}") from error
        rows.append({by: name, **vars(law)})
    return pd.DataFrame(rows)


@checked
def plot_power_laws(
    frame: pd.DataFrame,
    *,
    x: str = "n",
    y: str = "score",
    by: str = "model",
    unit: str = "unit",
    ax: Axes | None = None,
) -> Axes:
    """Scores against data, parameters or seconds, with a fitted power law of each model that has four points or more.

    Args:
        frame, x, y, by: as of ``power_laws``.
        unit: frame, byte or symbol, for the label.
        ax: axes to draw on; None: those of a new figure of pyplot.
    """
    from seqmodels.evaluation.plots.scaling import draw_power_laws
    from seqmodels.plot_style import axes_or_new, in_style, note_in_label

    groups = _groups(frame, x, y, by)
    points = {name: part[[x, y]].to_numpy(dtype=float) for name, part in groups}
    laws = {name: fit_power_law(*part.T) for name, part in points.items() if _is_enough(part)}
    with in_style():
        axes = axes_or_new(ax, 3.8)
        note_in_label(axes, draw_power_laws(axes, points, laws, x_label=x.replace("_", " "), unit=unit))
    return axes


def _is_enough(points: np.ndarray) -> bool:
    return len(points) >= MIN_POINTS and len(np.unique(points[:, 0])) >= 3


def _groups(frame: pd.DataFrame, x: str, y: str, by: str) -> list[tuple[str, pd.DataFrame]]:
    missing = [column for column in (x, y, by) if column not in frame]
    if missing:
        raise ValueError(f"the frame has no column {missing[0]!r}; it has {', '.join(map(str, frame.columns))}")
    return [(str(name), part.sort_values(x)) for name, part in frame.groupby(by, sort=False)]
