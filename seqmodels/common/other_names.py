"""Argument names that other libraries use, and their names here, so that an error can say what to write."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

# Names in other libraries, and what they may be called here: the first that the called class or function has is meant.
HERE: dict[str, tuple[str, ...]] = {
    "hidden_size": ("d_model",),
    "hidden_dim": ("d_model",),
    "hidden_units": ("d_model",),
    "hidden_layer_sizes": ("d_model",),
    "n_hidden": ("d_model",),
    "n_units": ("d_model",),
    "units": ("d_model",),
    "embed_dim": ("d_model",),
    "embedding_dim": ("d_model",),
    "n_embd": ("d_model",),
    "num_layers": ("n_layers",),
    "n_layer": ("n_layers",),
    "depth": ("n_layers",),
    "nhead": ("n_heads",),
    "num_heads": ("n_heads",),
    "n_head": ("n_heads",),
    "num_attention_heads": ("n_heads",),
    "dim_feedforward": ("d_feedforward",),
    "d_ff": ("d_feedforward",),
    "n_components": ("n_states", "n_components"),
    "num_states": ("n_states",),
    "k_regimes": ("n_states",),
    "n_regimes": ("n_states",),
    "n_mix": ("n_components",),
    "covariance_type": ("covariance_type", "observation"),
    "n_iter": ("max_iter", "max_steps"),
    "max_iter": ("max_steps",),
    "maxiter": ("max_iter", "max_steps"),
    "iterations": ("max_iter", "max_steps"),
    "epochs": ("max_epochs", "max_iter"),
    "n_epochs": ("max_epochs", "max_iter"),
    "num_epochs": ("max_epochs", "max_iter"),
    "max_epochs": ("max_iter",),
    "n": ("order", "n_states"),
    "learning_rate": ("lr",),
    "seed": ("random_state",),
    "random_seed": ("random_state",),
    "rng": ("random_state",),
    "n_restarts": ("n_init",),
    "startprob": ("initial",),
    "start_prob": ("initial",),
    "pi": ("initial",),
    "transmat": ("transition",),
    "trans": ("transition",),
    "covars": ("covariances",),
    "emissionprob": ("emission",),
    "lambdas": ("rates",),
    "lengths": ("Sequences.from_lengths(X, lengths)",),
    "steps": ("k", "max_steps"),
    "horizon": ("k", "steps"),
    "h": ("k", "steps"),
    "n_steps": ("k", "length", "max_steps"),
    "cv": ("folds",),
    "n_folds": ("folds",),
    "n_splits": ("folds",),
    "freq": ("season",),
    "m": ("season",),
    "seasonal_periods": ("season", "period"),
    "optim": ("optimizer",),
    "criterion": ("observation",),
}


def meant_names(name: str, known: Collection[str]) -> list[str]:
    """Return the names of arguments that an unknown name may stand for, the likeliest first.

    The list is empty if no known name resembles it.

    Args:
        name: the unknown name, perhaps that of another library.
        known: names of the arguments that exist.
    """
    elsewhere = [other for other in HERE.get(name.lower(), ()) if other in known or "(" in other]
    return elsewhere or get_close_matches(name, known, 1)


def suggestion(name: str, known: Collection[str]) -> str:
    """Return the end of an error message about an unknown name, which asks whether a known one was meant.

    Return "" if no known name resembles it.

    Args:
        name: the unknown name, perhaps that of another library.
        known: names that exist.

    >>> suggestion("hidden_size", ["d_model", "n_layers"]), suggestion("n_layrs", ["d_model", "n_layers"])
    ('; did you mean d_model?', '; did you mean n_layers?')
    >>> suggestion("colour", ["d_model"])
    ''
    """
    meant = meant_names(name, known)
    return f"; did you mean {meant[0]}?" if meant else ""


def unknown_argument(called: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the ``TypeError`` to raise for an argument that a class or function does not have.

    Its message suggests a known name that resembles it, or lists them all.

    Args:
        called: name of the class or function.
        name: name of the argument.
        known: names of the arguments that it has.
    """
    known = tuple(known)
    says = suggestion(name, known) or f"; it has {', '.join(known) or 'none'}"
    return TypeError(f"{called} has no argument {name!r}{says}")
