"""``Finding``: what an audit says of one rule; ``Audit``: all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from seqmodels.common.display import html_table

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["held", "broken", "not checked"]


@dataclass(frozen=True)
class Finding:
    """What was seen of one rule.

    Attributes:
        rule: its name.
        verdict: ``"not checked"`` where the model, or the data, do not allow it; ``meaning`` then says why.
        statistic: the figure that was looked at; NaN where nothing was.
        meaning: what the statistic is.
        counter_example: sequence, step and the two figures that contradict each other; empty where the rule held.
    """

    rule: str
    verdict: Verdict
    statistic: float
    meaning: str
    counter_example: str = ""

    def __str__(self) -> str:
        figure = "" if np.isnan(self.statistic) else f"{self.statistic:.3g} is the "
        line = f"{self.rule:<26} {self.verdict:<12} {figure}{self.meaning}"
        return f"{line}: {self.counter_example}" if self.counter_example else line


def not_checked(rule: str, why: str) -> Finding:
    """A rule that could not be looked at, and why."""
    return Finding(rule, "not checked", np.nan, why)


@dataclass(frozen=True, eq=False)
class Audit:
    """The outcome of ``audit``; printed, it has a line a rule.

    Attributes:
        model: what was audited, in words.
        findings: one for each rule.
        n_steps: how many steps were scored for it.
    """

    model: str
    findings: tuple[Finding, ...]
    n_steps: int

    @property
    def passed(self) -> bool:
        """Whether no rule was broken; those that were not checked are in ``frame``."""
        return not self.broken

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of the rules that were broken."""
        return tuple(each.rule for each in self.findings if each.verdict == "broken")

    @property
    def frame(self) -> pd.DataFrame:
        """A row a rule: ``rule``, ``verdict``, ``statistic``, ``meaning`` and ``counter_example``."""
        import pandas as pd

        columns = ("rule", "verdict", "statistic", "meaning", "counter_example")
        return pd.DataFrame([{name: getattr(each, name) for name in columns} for each in self.findings])

    def summary(self) -> str:
        """The outcome in one line."""
        n = {verdict: sum(each.verdict == verdict for each in self.findings) for verdict in ("held", "not checked")}
        words = f"{n['held']} rules held, {n['not checked']} not checked"
        return f"{self.model}: {words}" + (f", BROKEN: {', '.join(self.broken)}" if self.broken else "")

    def __str__(self) -> str:
        return "\n".join([self.summary(), *map(str, self.findings)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """What a notebook shows: the frame, under the outcome in one line."""
        frame = self.frame
        frame["statistic"] = ["" if np.isnan(value) else f"{value:.3g}" for value in frame["statistic"]]
        return html_table(frame, self.summary())
