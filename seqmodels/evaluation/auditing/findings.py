"""The result of an audit: a ``Finding`` for each rule, and ``Audit``, which holds all of them."""

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
    """The result of checking one rule of an audit.

    Attributes:
        rule: name of the rule.
        verdict: ``"held"``, ``"broken"``, or ``"not checked"`` if the model or the data do not allow a check;
            ``meaning`` then says why.
        statistic: the number that decided; NaN if the rule was not checked.
        meaning: what the statistic is.
        counter_example: sequence, step and the two log-probabilities that contradict each other; empty if the rule
            held.
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
    """Return the finding that a rule of an audit could not be checked.

    Args:
        rule: name of the rule.
        why: the reason.
    """
    return Finding(rule, "not checked", np.nan, why)


@dataclass(frozen=True, eq=False)
class Audit:
    """The result of ``audit``: whether each rule for log-probabilities held; printed, it has a line for each rule.

    Attributes:
        model: name of the audited model's class.
        findings: the findings, one for each rule.
        n_steps: number of steps that were scored in the audit.
    """

    model: str
    findings: tuple[Finding, ...]
    n_steps: int

    @property
    def passed(self) -> bool:
        """True if no rule was broken; rules that were not checked do not count."""
        return not self.broken

    @property
    def broken(self) -> tuple[str, ...]:
        """Names of the rules that were broken."""
        return tuple(each.rule for each in self.findings if each.verdict == "broken")

    @property
    def frame(self) -> pd.DataFrame:
        """A frame with a row for each rule: ``rule``, ``verdict``, ``statistic``, ``meaning``, ``counter_example``."""
        import pandas as pd

        columns = ("rule", "verdict", "statistic", "meaning", "counter_example")
        return pd.DataFrame([{name: getattr(each, name) for name in columns} for each in self.findings])

    def summary(self) -> str:
        """Return the result in one line: how many rules held and were not checked, and the names of broken ones."""
        n = {verdict: sum(each.verdict == verdict for each in self.findings) for verdict in ("held", "not checked")}
        words = f"{n['held']} rules held, {n['not checked']} not checked"
        return f"{self.model}: {words}" + (f", BROKEN: {', '.join(self.broken)}" if self.broken else "")

    def __str__(self) -> str:
        return "\n".join([self.summary(), *map(str, self.findings)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        frame = self.frame
        frame["statistic"] = ["" if np.isnan(value) else f"{value:.3g}" for value in frame["statistic"]]
        return html_table(frame, self.summary())
