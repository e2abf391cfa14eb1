"""``Outcome``: what a comparison found, its pairs and its table in words; ``Comparison`` adds plots, pages, files."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from seqmodels.common.display import html_table
from seqmodels.common.html import element
from seqmodels.common.parameters import PositiveFloat, checked
from seqmodels.evaluation.comparison.adaptation import gain_by_position
from seqmodels.evaluation.comparison.table import ALPHA, formatted_table, how_to_read
from seqmodels.evaluation.prequential import CodeLengths
from seqmodels.evaluation.statistics.confidence_set import confidence_set_p_values
from seqmodels.evaluation.statistics.paired import Difference
from seqmodels.evaluation.statistics.pairwise import model_difference, pairwise_frame
from seqmodels.evaluation.tuning.search import trials_frame
from seqmodels.model import SequenceModel
from seqmodels.sequences import Sequences
from seqmodels.sequences.mapped import totals
from seqmodels.sequences.measure import Measure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LINE_WIDTH = 120  # characters


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """The data of a ``Comparison``, which says what its attributes are."""

    frame: pd.DataFrame
    measure: Measure
    log_prob_steps: Mapping[str, list[np.ndarray]]
    histories: Mapping[str, pd.DataFrame]
    models: Mapping[str, SequenceModel]
    test: Sequences
    source: Sequences | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    search: pd.DataFrame = field(default_factory=lambda: trials_frame({}))
    log_prob_by_seed: Mapping[str, np.ndarray] = field(default_factory=dict)
    code_lengths: CodeLengths | None = None

    @property
    def baseline(self) -> str:
        """The model the others are compared to."""
        return str(self.frame.attrs["baseline"])

    @property
    def _title(self) -> str:
        return str(self.frame.attrs.get("title", ""))

    @cached_property
    def steps(self) -> pd.DataFrame:
        """A row for each step of each test sequence under each model.

        ``model``, ``sequence`` (from 0), ``name``, ``cluster`` (None where there are none), ``position`` (from 1),
        ``log_prob`` in nats, the mean over seeds. Under ``length="stop"`` the last step is the end.
        """
        import pandas as pd

        column = self.frame.attrs["cluster"] or "cluster"
        has_clusters = column in self.test.metadata
        clusters = list(self.test.metadata[column]) if has_clusters else [None] * len(self.test)
        return pd.concat([self._steps_of(name, clusters) for name in self.log_prob_steps], ignore_index=True)

    def _steps_of(self, model: str, clusters: list[Any]) -> pd.DataFrame:
        import pandas as pd

        steps = self.log_prob_steps[model]
        lengths = [len(s) for s in steps]
        dtype = None if any(c is not None for c in clusters) else object
        sequences = pd.DataFrame(
            {
                "model": model,
                "sequence": range(len(steps)),
                "name": self.test.names,
                "cluster": pd.Series(clusters, dtype=dtype),
            }
        )
        rows = sequences.loc[np.repeat(sequences.index, lengths)].reset_index(drop=True)
        positions = np.concatenate([np.arange(1, n + 1) for n in lengths])
        return rows.assign(position=positions, log_prob=np.concatenate(steps))

    # -- models beside each other --------------------------------------------------------------------------------

    @property
    def ranked(self) -> list[str]:
        """The models with a rank, best first, without a reference that ``compare`` added."""
        ranked = self.frame.loc[self.frame["rank"].notna(), "model"]
        reference = self.frame.attrs["iid"] if self.frame.attrs.get("iid_added") else None
        return [name for name in ranked if name != reference and name in self.log_prob_steps]

    @cached_property
    def _clusters(self) -> list[Any] | None:
        """What each test sequence belongs to; None: each is its own."""
        column = self.frame.attrs.get("cluster") or "cluster"
        return list(self.test.metadata[column]) if column in self.test.metadata else None

    def _by_seed(self, model: str) -> np.ndarray:
        """``(S, n)`` nats of each test sequence, or of one sequence ``(S, T)`` nats of its steps."""
        if model in self.log_prob_by_seed:
            return self.log_prob_by_seed[model]
        steps = self.log_prob_steps[model]
        return (np.asanyarray(steps[0]) if len(steps) == 1 else totals(steps))[None]

    @checked
    def difference(self, model: str, other: str) -> Difference:
        """The score of a model minus that of another, paired, with its interval and p-value as in the table.

        Raises:
            ValueError: a name that is not among the scored models.
        """
        self._check_names(model, other)
        names = (model, other)
        return model_difference(self._by_seed(model), self._by_seed(other), self.test.n_units, self._clusters, names)

    def pairwise(self) -> pd.DataFrame:
        """A row for each pair of models with a rank (but an added ``iid``), the better one first.

        ``model``, ``other``; ``difference`` of their scores, ``model`` minus ``other``, with its 95 % interval
        ``ci_low``, ``ci_high``, all in nats per unit; ``p_value``, two-sided, of that pair alone; ``p_holm``, corrected
        for the number of pairs (Holm 1979); ``method`` and ``n_clusters`` as of ``frame``.
        """
        log_probs = {name: self._by_seed(name) for name in self.ranked}
        return pairwise_frame(log_probs, self.test.n_units, self._clusters)

    @checked
    def confidence_set(self, alpha: float = ALPHA) -> list[str]:
        """The models that may be the best: the model confidence set of level ``1 - alpha``, best score first.

        By Hansen, Lunde & Nason (2011): models are left out, the worst first, until a test that all others have equal
        scores does not reject them at ``alpha``. With probability ``1 - alpha`` the best model is in the set, if there
        are many clusters. The p-values (``p_best`` of ``frame``) are of 2,000 bootstrap draws of the test clusters, and
        of seeds where there are several, with a fixed seed; of one long sequence, of circular blocks. Rows without a
        rank and an added ``iid`` are not looked at.

        Raises:
            ValueError: ``alpha`` not between 0 and 1; too few clusters (5) or steps of one sequence (20).
        """
        if not 0 < alpha < 1:
            raise ValueError(f"alpha is {alpha!r}; pass a number between 0 and 1, such as 0.05")
        names = self.ranked
        p_values = confidence_set_p_values([self._by_seed(name) for name in names], self.test.n_units, self._clusters)
        if np.isnan(p_values).any():
            raise ValueError("there are too few test clusters for a confidence set; test on five or more")
        return [name for name, p in zip(names, p_values, strict=True) if p >= alpha]

    @checked
    def gain_by_position(self, model: str, other: str) -> pd.DataFrame:
        """Where in the sequences a model gains on another: mean difference of log p of a step, by octaves of position.

        Columns ``first``, ``last`` (positions, from 1), ``n_steps``, ``n_sequences``, ``gain`` (nats per step, model
        minus other), ``share`` (of the sum of the gains over all steps). Steps that are -inf under one of the two are
        left out. An adaptive model against its static counterpart shows after how many steps adaptation pays.

        Raises:
            ValueError: a name that is not among the scored models.
        """
        self._check_names(model, other)
        return gain_by_position(self.log_prob_steps[model], self.log_prob_steps[other])

    def _check_names(self, *names: str) -> None:
        for name in names:
            if name not in self.log_prob_steps:
                raise ValueError(f"{name!r} is not among the scored models: {', '.join(self.log_prob_steps)}")

    def table(self) -> pd.DataFrame:
        """The columns that a reader needs, formatted."""
        return formatted_table(self.frame)

    def how_to_read(self) -> str:
        """What the figures mean, in words."""
        return how_to_read(self.frame, self.measure, self.test)

    def __str__(self) -> str:
        errors = zip(self.frame["model"], self.frame["error"], strict=True)
        failed = [f"{name} failed: {error}" for name, error in errors if error]
        body = self.table().to_string(index=False)
        note = textwrap.fill(self.how_to_read(), LINE_WIDTH, break_long_words=False)
        return "\n".join([*([self._title] if self._title else []), body, "", note, *failed])

    def __repr__(self) -> str:
        return str(self)  # so that its name typed at a prompt shows the table

    def _repr_html_(self) -> str:
        """What a notebook shows: the table, and how to read it."""
        from markupsafe import Markup

        errors = zip(self.frame["model"], self.frame["error"], strict=True)
        notes = [self.how_to_read(), *(f"{name} failed: {error}" for name, error in errors if error)]
        parts = [html_table(self.table(), self._title), *(element("paragraph", note) for note in notes)]
        return str(Markup("").join(parts))

    @checked
    def ranking_figure(self, *, width: PositiveFloat = 7.0, title: str | None = None) -> Figure:
        """A figure of ``plot_ranking``, so many inches wide, that pyplot does not know; titled as the comparison is."""
        from seqmodels.plot.forest import forest

        return forest(self._scored_rows, width=width, title=self._title if title is None else title)

    @property
    def _scored_rows(self) -> pd.DataFrame:
        rows = self.frame[self.frame["error"] == ""]
        rows.attrs = dict(self.frame.attrs)
        return rows

    @checked
    def curves_figure(self, *, width: PositiveFloat = 7.0, title: str | None = None) -> Figure:
        """A figure of ``plot_curves``, so many inches wide, that pyplot does not know; titled as the comparison is."""
        from seqmodels.plot.curves import learning_curves

        title = self._title if title is None else title
        return learning_curves(self._curves, unit=self.measure.unit, title=title, width=width)

    @property
    def _curves(self) -> dict[str, pd.DataFrame]:
        """A history of one row is no curve, but keeps its place, so that every plot has the same colours."""
        return {name: history.iloc[: len(history) * (len(history) > 1)] for name, history in self.histories.items()}
