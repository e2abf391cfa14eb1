"""Descriptions of a model in words: its hyperparameters and, once fitted, its sizes, its data and how the fit ended."""

from __future__ import annotations

from typing import Any

from seqmodels.model.family import Family

MAX_VALUE_LENGTH = 200  # characters of a hyperparameter


def settings_in_words(model: Any) -> dict[str, str]:
    """Return the ``repr`` of each hyperparameter of ``model`` by name, cut to ``MAX_VALUE_LENGTH`` characters."""
    settings = {name: repr(value) for name, value in model.get_params(deep=False).items()}
    return {
        name: text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]} ..."
        for name, text in settings.items()
    }


def model_facts(model: Family) -> dict[str, str]:
    """Return facts about a fitted model as a mapping from a short heading to one line of text.

    The facts are its settings, its sizes, the data it was fitted to, how the fit ended, and its scores. Scores are
    taken from ``history_`` and are in nats per frame, byte or symbol.
    """
    measure = model.measure_
    facts = {
        "model": repr(model),
        "density": "p(y | x)" if measure.conditional else "p(x | inputs)" if measure.inputs else "p(x)",
        "data": f"{_space_in_words(measure.space)}, scored per {measure.unit}"
        + (", lengths given" if measure.length == "given" else ", the end of a sequence is scored too"),
        **({"inputs": ", ".join(measure.inputs)} if measure.inputs else {}),
        "observation": repr(model.observation_),
        "encoding": repr(model.encoding_) if model.encoding_.note is None else model.encoding_.note,
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
    if measure.kind == "estimate":
        facts["kind"] = (
            "its probabilities are means over draws (of parameters, of paths), with a Monte Carlo error (score_error)"
        )
    return facts


def _end_in_words(model: Family) -> str:
    if model.interrupted_:
        return "interrupted; the best so far was kept"
    return "converged" if model.converged_ else "the budget ended before convergence"


def _space_in_words(space: str) -> str:
    return {"text": "text", "symbols": "integer symbols"}.get(space, f"vectors in {space}")
