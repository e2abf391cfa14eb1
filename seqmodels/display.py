"""HTML for notebooks, and descriptions in words: tables, and lists of names and values; every text is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seqmodels.html import render

if TYPE_CHECKING:
    import pandas as pd
    from markupsafe import Markup

    from seqmodels.model import SequenceModel

MAX_LISTED = 8  # names in an error or a description
MAX_VALUE_LENGTH = 200  # characters of a hyperparameter
NOTEBOOK_STYLE = "text-align:left;white-space:nowrap;padding:0.15em 0.8em 0.15em 0"


def html_table(frame: pd.DataFrame, caption: str = "", *, label: str = "", cell_style: str = NOTEBOOK_STYLE) -> Markup:
    """The frame's rows as a ``<table>`` that scrolls where it is wider than the page, its first column as headings.

    Args:
        frame: its cells are shown as ``str``.
        caption: stands above it.
        label: describes it to screen readers; the caption does where there is one.
        cell_style: CSS of each cell, for a page without a style sheet.

    >>> import pandas as pd
    >>> html_table(pd.DataFrame({"a<b": ["&"]})).count("&lt;"), "&amp;" in html_table(pd.DataFrame({"a": ["&"]}))
    (1, True)
    """
    rows = frame.astype(str).to_numpy().tolist()
    return render("table.html", frame=frame, rows=rows, caption=caption, label=label or caption, cell=cell_style)


def html_facts(title: str, facts: Mapping[str, Any]) -> Markup:
    """A two-column ``<table>`` of names and values, under a title.

    >>> html_facts("HMM", {"states": "<3>"}).count("&lt;3&gt;")
    1
    """
    return render("facts.html", title=title, facts=facts, cell=NOTEBOOK_STYLE)


def text_facts(title: str, facts: Mapping[str, Any]) -> str:
    """A title, and a line for each name and value.

    >>> print(text_facts("HMM", {"states": 3, "parameters": 89}))
    HMM
      states      3
      parameters  89
    """
    width = max(map(len, facts), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in facts.items())])


def settings_in_words(model: Any) -> dict[str, str]:
    """The hyperparameters of a ``Configurable``, by name, each cut to ``MAX_VALUE_LENGTH`` characters."""
    settings = {name: repr(value) for name, value in model.get_params(deep=False).items()}
    return {
        name: text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]} ..."
        for name, text in settings.items()
    }


def model_facts(model: SequenceModel) -> dict[str, str]:
    """What a fitted model is: its settings, sizes, what it was fitted to, how the fit ended, and its scores.

    Scores are nats per unit of the raw data, as ``history_`` has them.
    """
    measure = model.measure_
    facts = {
        "model": repr(model),
        "density": "p(y | x)" if measure.conditional else "p(x)",
        "data": f"{_space_in_words(measure.space)}, scored per {measure.unit}"
        + (", lengths given" if measure.length == "given" else ", the end of a sequence is scored too"),
        "observation": repr(model.observation_),
        "encoding": repr(model.encoding_),
        "parameters": f"{model.n_parameters_:,}",
        "context": "the whole sequence" if model.context_ is None else f"{model.context_} steps",
    }
    history = model.history_
    if len(history):
        facts["fitted"] = (
            f"{int(history['step'].iloc[-1]):,} steps in {model.fit_seconds_:.1f} s: {_end_in_words(model)}"
        )
        for column, name in (("log_prob", "training"), ("validation", "validation")):
            if column in history and history[column].notna().any():
                values = history[column].dropna()
                facts[name] = f"{values.iloc[-1]:.4f} nats per {measure.unit}, at the end of the fit"
        hits = int(history["floor_hits"].iloc[-1]) if "floor_hits" in history else 0
        if hits:
            facts["floor"] = f"{hits} variances stand on their floor, min_covariance"
    else:
        facts["fitted"] = "not by training: its parameters were given or counted"
    if measure.memory == "adaptive":
        facts["memory"] = "adaptive: within a sequence it goes on learning from what it has read"
    if measure.kind == "bound":
        facts["kind"] = "its log-probabilities are lower bounds"
    return facts


def _end_in_words(model: SequenceModel) -> str:
    if model.interrupted_:
        return "interrupted; the best so far was kept"
    return "converged" if model.converged_ else "the budget ended before convergence"


def _space_in_words(space: str) -> str:
    return {"text": "text", "symbols": "integer symbols"}.get(space, f"vectors in {space}")


def sizes_in_words(sizes: Sequence[int], unit: str) -> str:
    """The lengths of sequences: how many, their range, and their sum.

    >>> sizes_in_words([3, 2], "frame")
    '2 sequences of 2 to 3 frames, 5 in all'
    """
    low, high = min(sizes), max(sizes)
    lengths = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{len(sizes):,} sequence{'s' * (len(sizes) != 1)} of {lengths} {unit}s, {sum(sizes):,} in all"


def listed(names: Sequence[Any]) -> str:
    """Names in a sentence, the first few of many."""
    return ", ".join(map(str, names[:MAX_LISTED])) + f", ... ({len(names)} in all)" * (len(names) > MAX_LISTED)
