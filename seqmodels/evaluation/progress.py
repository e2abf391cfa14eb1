"""How far a run is: one bar over all models, by the seconds that each is expected to take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from seqmodels.model import SequenceModel


class Progress:
    """A bar on stderr with the time left; nothing where that is no terminal, or where it is not ``shown``.

    Args:
        total: seconds that everything is expected to take.
    """

    def __init__(self, total: float, *, shown: bool) -> None:
        self._bar = tqdm(
            total=total,
            disable=None if shown else True,
            bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed} so far, {remaining} left",
            leave=False,
        )
        self._total = total
        self._before = 0.0  # what is behind, of ``total``

    @contextmanager
    def of(self, models: Mapping[str, SequenceModel], shares: Mapping[str, float], seeds: int) -> Iterator[_Watch]:
        """Watch these models while they are fitted, in their order, ``seeds`` times each."""
        watch = _Watch(self, shares, seeds)
        kept = {n: m.get_params(deep=False)["callbacks"] for n, m in models.items() if _tells(m)}
        for name, callbacks in kept.items():
            models[name].set_params(callbacks=(*callbacks, _Listener(watch, _end(models[name]))))
        try:
            yield watch
        finally:
            for name, callbacks in kept.items():
                models[name].set_params(callbacks=callbacks)

    def at(self, name: str, share: float, fraction: float) -> None:
        """A model is so far."""
        self._bar.set_description_str(name, refresh=False)
        self._move(self._before + share * fraction)

    def behind(self, share: float) -> None:
        """A model is done."""
        self._before += share
        self._move(self._before)

    def _move(self, to: float) -> None:
        """Never back, nor beyond the end, which sums of shares may pass by a rounding error."""
        self._bar.update(max(0.0, min(to, self._total) - self._bar.n))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the bar away while something else is printed."""
        with tqdm.external_write_mode():
            yield

    def close(self) -> None:
        self._bar.close()


class _Watch:
    """One comparison's models, the first of which is being fitted."""

    def __init__(self, progress: Progress, shares: Mapping[str, float], seeds: int) -> None:
        self._progress, self._left, self._seeds = progress, list(shares.items()), seeds
        self._runs, self._last = 0, 0.0
        self._show(0.0)

    def hear(self, fraction: float) -> None:
        """The fit under way is so far; going back, it is the next seed's."""
        self._runs += fraction < self._last
        self._last = fraction
        self._show(min(1.0, (self._runs + fraction) / self._seeds))

    def done(self) -> None:
        """The first of those left is done."""
        _, share = self._left.pop(0)
        self._runs, self._last = 0, 0.0
        self._progress.behind(share)
        self._show(0.0)

    def _show(self, fraction: float) -> None:
        if self._left:
            self._progress.at(*self._left[0], fraction)


class _Listener:
    """What a network calls with each line of its history."""

    def __init__(self, watch: _Watch, end: tuple[str, float]) -> None:
        self._watch, (self._column, self._end) = watch, end

    def __call__(self, row: dict[str, float]) -> None:
        self._watch.hear(min(1.0, row[self._column] / self._end))


def _tells(model: SequenceModel) -> bool:
    return "callbacks" in model.get_params(deep=False)


def _end(model: SequenceModel) -> tuple[str, float]:
    """The column of the history that says how far the fit is, and where it ends."""
    params: dict[str, Any] = model.get_params(deep=False)
    if params["max_seconds"] is not None:
        return "seconds", float(params["max_seconds"])
    return "step", float(params["max_steps"]) if isinstance(params["max_steps"], int) else 2000.0
