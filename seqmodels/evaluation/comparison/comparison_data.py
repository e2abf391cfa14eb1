"""``ComparisonData``: the data of a comparison and its table; ``Comparison`` adds plots, the report and files."""

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
from seqmodels.evaluation.comparison.formatted_table import ALPHA, LINE_WIDTH, formatted_table, how_to_read
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
    from xarray import DataTree


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonData:
    """The data of a comparison with its pairwise tests and its table, the base class of ``Comparison``.

    Attributes:
        frame: a frame with a row for each model, best first.
        measure: what the scores measure; the same for every row.
        log_prob_steps: for each model, the log-probability of each step of each test sequence, a list of ``(T,)``
            arrays in nats, the mean over seeds.
        histories: the training history of each model, a frame.
        models: the fitted models of the first seed, by name.
        test: the scored sequences.
        source: for p(y | x), the sequences x that the scored ones were given; else None.
        provenance: command, versions, hardware, hashes of the data, and a description of the models.
        search: a frame with a row for each trial of the search.
        log_prob_by_seed: with several seeds, for each model the log-probability of n test sequences in nats, ``(S, n)``
            for S seeds; for one long sequence, of its steps, ``(S, T)``. Empty with one seed.
        code_lengths: code length of the training part under each model; None if it was not asked for.
    """

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
        """Name of the model that the others are compared to."""
        return str(self.frame.attrs["baseline"])

    @property
    def _title(self) -> str:
        return str(self.frame.attrs.get("title", ""))

    @cached_property
    def steps(self) -> pd.DataFrame:
        """A frame with a row for each step of each test sequence under each model.

        Its columns are ``model``, ``sequence`` (from 0), ``name``, ``cluster`` (None if there are no clusters),
        ``position`` (from 1), and ``log_prob`` in nats, the mean over seeds. Under ``length="stop"`` the last step is
        the end.
        """
        import pandas as pd

        column = self.frame.attrs["cluster"] or "cluster"
        has_clusters = column in self.test.metadata
        clusters = list(self.test.metadata[column]) if has_clusters else [None] * len(self.test)
        return pd.concat([self._steps_of(name, clusters) for name in self.log_prob_steps], ignore_index=True)

    def to_inference_data(self) -> DataTree:
        """Return the log-likelihood of every step in the form that ArviZ reads; needs ``seqmodels[arviz]``.

        Returns:
            The ``xarray.DataTree`` that ArviZ calls inference data. Its group ``log_likelihood`` has a variable for
            each model, with the dimensions ``chain`` and ``draw``, of one each, and ``step``: the log-probability of
            each step of all test sequences given those before it in nats, the mean over seeds. Coordinates of the steps
            are ``sequence`` (from 0), ``name`` and ``position`` (from 1).

        Raises:
            ImportError: xarray is not installed.
        """
        try:
            from xarray import Dataset, DataTree
        except ImportError as error:
            raise ImportError("inference data need xarray: pip install 'seqmodels[arviz]'") from error
        of_one_model = self._steps_of(next(iter(self.log_prob_steps)), [None] * len(self.test))
        coordinates = {name: ("step", of_one_model[name].to_numpy()) for name in ("sequence", "name", "position")}
        variables = {
            name: (("chain", "draw", "step"), np.concatenate(steps)[None, None])
            for name, steps in self.log_prob_steps.items()
        }
        return DataTree.from_dict({"log_likelihood": Dataset(variables, coords=coordinates)})

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
        """Names of the models with a rank, best first, without the reference that ``compare`` added."""
        ranked = self.frame.loc[self.frame["rank"].notna(), "model"]
        reference = self.frame.attrs["iid"] if self.frame.attrs.get("iid_added") else None
        return [name for name in ranked if name != reference and name in self.log_prob_steps]

    @cached_property
    def _clusters(self) -> list[Any] | None:
        """Cluster of each test sequence; None means that every sequence is its own."""
        column = self.frame.attrs.get("cluster") or "cluster"
        return list(self.test.metadata[column]) if column in self.test.metadata else None

    def _by_seed(self, model: str) -> np.ndarray:
        """Return the log-probability of each test sequence under each seed in nats, ``(S, n)``: S seeds, n sequences.

        For a single test sequence, return the log-probability of its steps, ``(S, T)``.
        """
        if model in self.log_prob_by_seed:
            return self.log_prob_by_seed[model]
        steps = self.log_prob_steps[model]
        return (np.asanyarray(steps[0]) if len(steps) == 1 else totals(steps))[None]

    @checked
    def difference(self, model: str, other: str) -> Difference:
        """Return the score of one model minus the score of another, with interval and p-value, in nats per unit.

        They are computed on the same test sequences, as the differences to the baseline are.

        Args:
            model: name of the model.
            other: name of the model that it is compared to.

        Returns:
            ``Difference``, with ``.difference``, the interval ``.low`` to ``.high``, and ``.p_value``.

        Raises:
            ValueError: a name is not among the scored models.
        """
        self._check_names(model, other)
        names = (model, other)
        return model_difference(self._by_seed(model), self._by_seed(other), self.test.n_units, self._clusters, names)

    def pairwise(self) -> pd.DataFrame:
        """Return a frame with a row for each pair of ranked models, the better one first; an added ``iid`` is left out.

        Its columns are ``model`` and ``other``; ``difference`` of their scores, ``model`` minus ``other``, with its 95
        % interval ``ci_low``, ``ci_high``, all in nats per unit; ``p_value``, two-sided, for that pair alone;
        ``p_holm``, corrected for the number of pairs (Holm 1979); and ``method`` and ``n_clusters``, as in ``frame``.
        """
        log_probs = {name: self._by_seed(name) for name in self.ranked}
        return pairwise_frame(log_probs, self.test.n_units, self._clusters)

    @checked
    def confidence_set(self, alpha: float = ALPHA) -> list[str]:
        """Return the model confidence set of level ``1 - alpha``, the names of models that may be the best, best first.

        The method of Hansen, Lunde & Nason (2011) removes models, the worst first, until a test no longer rejects at
        ``alpha`` that all others have equal scores. With probability ``1 - alpha`` the best model is in the set, if
        there are many clusters. The p-values (``p_best`` in ``frame``) come from 2,000 bootstrap draws, with a fixed
        seed, of the test clusters, and of seeds if there are several; for one long sequence, of circular blocks of its
        steps. Models without a rank and an added ``iid`` (the reference of independent steps) take no part.

        Args:
            alpha: largest probability that the set lacks the best model.

        Raises:
            ValueError: ``alpha`` is not between 0 and 1, or there are too few clusters (fewer than 5) or steps of a
                single sequence (fewer than 20).
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
        """Return how much ``model`` gains on ``other`` by position: the mean difference of log p in each octave.

        An octave has the positions 2^i to 2^(i+1) - 1. The frame has columns ``first`` and ``last`` (positions, from
        1), ``n_steps``, ``n_sequences``, ``gain`` (nats per step, ``model`` minus ``other``) and ``share`` (of the sum
        of the gains over all steps). Steps that are -inf under one of the two are left out. If an adaptive model, which
        learns from what it has read of a sequence, is compared with its static counterpart, the frame shows after how
        many steps adaptation pays.

        Args:
            model: name of the model.
            other: name of the model that it is compared to.

        Raises:
            ValueError: a name is not among the scored models.
        """
        self._check_names(model, other)
        return gain_by_position(self.log_prob_steps[model], self.log_prob_steps[other])

    def _check_names(self, *names: str) -> None:
        for name in names:
            if name not in self.log_prob_steps:
                raise ValueError(f"{name!r} is not among the scored models: {', '.join(self.log_prob_steps)}")

    def table(self) -> pd.DataFrame:
        """Return the main columns of ``frame`` formatted as text, a frame with a row for each model."""
        return formatted_table(self.frame)

    def how_to_read(self) -> str:
        """Return a paragraph that explains the figures of ``table()``: unit, test sequences, intervals and notes."""
        return how_to_read(self.frame, self.measure, self.test)

    def __str__(self) -> str:
        errors = zip(self.frame["model"], self.frame["error"], strict=True)
        failed = [f"{name} failed: {error}" for name, error in errors if error]
        body = self.table().to_string(index=False)
        note = textwrap.fill(self.how_to_read(), LINE_WIDTH, break_long_words=False)
        return "\n".join([*([self._title] if self._title else []), body, "", note, *failed])

    def __repr__(self) -> str:
        return str(self)  # so that a comparison evaluated at a prompt shows its table

    def _repr_html_(self) -> str:
        from markupsafe import Markup

        errors = zip(self.frame["model"], self.frame["error"], strict=True)
        notes = [self.how_to_read(), *(f"{name} failed: {error}" for name, error in errors if error)]
        parts = [html_table(self.table(), self._title), *(element("paragraph", note) for note in notes)]
        return str(Markup("").join(parts))

    @checked
    def ranking_figure(self, *, width: PositiveFloat = 7.0, title: str | None = None) -> Figure:
        """Return a plot of each model's difference to the baseline as a figure that pyplot does not manage.

        Args:
            width: width in inches.
            title: title of the plot; None means the title of the comparison.
        """
        from seqmodels.plot.forest import forest

        return forest(self._scored_rows, width=width, title=self._title if title is None else title)

    @property
    def _scored_rows(self) -> pd.DataFrame:
        rows = self.frame[self.frame["error"] == ""]
        rows.attrs = dict(self.frame.attrs)
        return rows

    @checked
    def curves_figure(self, *, width: PositiveFloat = 7.0, title: str | None = None) -> Figure:
        """Return a plot of nats per unit against seconds of training, as a figure that pyplot does not manage.

        Args:
            width: width in inches.
            title: title of the plot; None means the title of the comparison.
        """
        from seqmodels.plot.curves import learning_curves

        title = self._title if title is None else title
        return learning_curves(self._curves, unit=self.measure.unit, title=title, width=width)

    @property
    def _curves(self) -> dict[str, pd.DataFrame]:
        """The training history of each model as it is plotted; a history of one row is replaced by an empty one.

        The model stays in the dictionary, so that models have the same colours in every plot.
        """
        return {name: history.iloc[: len(history) * (len(history) > 1)] for name, history in self.histories.items()}
