"""Warnings that the fits of many labels and folds give alike, given once for all of them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from seqmodels.common.caller_warnings import warn_caller
from seqmodels.common.display import listed

NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?")  # warnings that differ in their numbers alone are alike


@dataclass
class FitWarnings:
    """A record of the warnings of several fits, which are given once at the end.

    Attributes:
        n_fits: number of fits.
        given: label, category and text of each warning.
    """

    n_fits: int = 0
    given: list[tuple[Any, type[Warning], str]] = field(default_factory=list)

    @contextmanager
    def of_fit(self, label: Any) -> Iterator[None]:
        """Return a context manager that records the warnings given within its block, the fit of the model of one label.

        Args:
            label: the label, which the warnings will name.
        """
        self.n_fits += 1
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            try:
                yield
            finally:
                self.given += [(label, each.category, str(each.message)) for each in given]

    def warn(self) -> None:
        for text, category in self.joined():
            warn_caller(text, category)

    def joined(self) -> list[tuple[str, type[Warning]]]:
        """Join warnings that differ in numbers only; return text and category of each.

        The text is that of the first one, with the number of fits and the labels that gave it.

        >>> fits = FitWarnings(3, [("a", UserWarning, "a gap of 0.2"), ("b", UserWarning, "a gap of 0.3")])
        >>> fits.joined()[0][0]
        'a gap of 0.2 (2 warnings like this, in 3 fits, of the labels a, b)'
        """
        groups: dict[tuple[type[Warning], str], list[tuple[Any, str]]] = {}
        for label, category, text in self.given:
            groups.setdefault((category, NUMBER.sub("#", text)), []).append((label, text))
        joined = []
        for (category, _), alike in groups.items():
            labels = list(dict.fromkeys(label for label, _ in alike))
            of = f"of the label{'s' * (len(labels) > 1)} {listed(labels)}"
            how_many = f"{len(alike)} warnings like this, in {self.n_fits} fits, {of}" if len(alike) > 1 else of
            joined.append((f"{alike[0][1]} ({how_many})", category))
        return joined
