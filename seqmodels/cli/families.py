"""Models by the names of their families, and hyperparameters as ``key=value``."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from seqmodels.evaluation.settings import from_table
from seqmodels.loading import MODELS
from seqmodels.model import SequenceModel
from seqmodels.parameters import Configurable, check_argument

NAMES = {
    "hmm": "HMM",
    "ngram": "NGram",
    "elman": "ElmanRNN",
    "lstm": "LSTM",
    "gru": "GRU",
    "transformer": "Transformer",
    "seq2seq": "LSTMSeq2Seq",
    "transformer-seq2seq": "TransformerSeq2Seq",
    "alignment-hmm": "AlignmentHMM",
}


def complete(incomplete: str) -> list[str]:
    """For the shell."""
    return [name for name in NAMES if name.startswith(incomplete)]


def model_of(family: str, settings: Sequence[str], random_state: int) -> Any:
    """An unfitted model of a family (or of a class, by its name) with these hyperparameters.

    Raises:
        ValueError: an unknown family or hyperparameter, or a value of another type.
    """

    known = [cls.__name__ for cls in MODELS if issubclass(cls, SequenceModel)]
    name = NAMES.get(family.lower(), family)
    if name not in known:
        raise ValueError(f"there is no model {family!r}; choose from {', '.join(NAMES)}")
    pairs = dict(map(parsed, settings))
    own = {key: value for key, value in pairs.items() if "__" not in key}
    model = from_table({"class": name, "random_state": random_state, **own})
    for key in sorted(pairs.keys() - own.keys()):
        _set_within(model, key, pairs[key])
    return model


def _set_within(model: Any, path: str, value: Any) -> None:
    """``observation__n_components``: of what a hyperparameter is."""

    outer, _, inner = path.partition("__")
    holder = model.get_params(deep=False).get(outer)
    if not isinstance(holder, Configurable):
        raise ValueError(
            f"{outer} is {holder!r}, which has no {inner} to set; say which it is, for example "
            "--set 'observation={class=\"GaussianMixture\", n_components=8}'"
        )
    check_argument(type(holder), inner, value)
    model.set_params(**{path: value})


def parsed(setting: str) -> tuple[str, Any]:
    """``key=value``: the value as TOML writes it; a word needs no quotes, and ``none`` is None.

    >>> parsed("d_model=64"), parsed("attention=none"), parsed("observation={class='Poisson'}")
    (('d_model', 64), ('attention', None), ('observation', {'class': 'Poisson'}))
    """
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"--set {setting} is not key=value; write for example --set d_model=64")
    return key.strip(), _value(text.strip())


def _value(text: str) -> Any:
    if text.lower() in ("none", "true", "false"):
        return {"none": None, "true": True, "false": False}[text.lower()]
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
