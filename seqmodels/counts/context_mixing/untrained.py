"""A context-mixing model that has read nothing: a code of bytes that needs no training data and learns while it
codes.
"""

from __future__ import annotations

import pandas as pd

from seqmodels.counts.context_mixing.model import ContextMixing
from seqmodels.encodings import Bytes
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.model.fitting import apply_setting
from seqmodels.observations import Categorical
from seqmodels.sequences import Sequences


def untrained_bytes(n_steps: int) -> ContextMixing:
    """Return a model of bytes before any training, with tables sized for reading ``n_steps`` bytes.

    It predicts each byte from the bytes before it in the sequence, with the probability that ``fit`` would give the
    byte before learning it.
    """
    model = ContextMixing(length="given", encoding=Bytes())
    encoding = Bytes().fit(Sequences([" "]))
    apply_setting(model, Setting.from_fitted(encoding, Categorical(), "given", conditional=False))
    columns = ("step", "seconds", "log_prob", "validation", "objective", "floor_hits")
    model.history_ = pd.DataFrame({name: pd.Series(dtype="float64") for name in columns})
    model.converged_, model.fit_seconds_ = True, 0.0
    model._read_nothing(n_steps)
    return model
