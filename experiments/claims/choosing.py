"""An order or a size chosen by what the training part's end says, so that no family is given the wrong one."""

from collections.abc import Iterable
from typing import TypeVar

import seqmodels as sm

Model = TypeVar("Model", bound=sm.SequenceModel)


def best(candidates: Iterable[Model], train: sm.Sequences) -> Model:
    """Not fitted yet: the candidate that predicts the last tenth of ``train`` best when fitted to the rest."""
    fitted, judged = _last_tenth_held_out(train)
    return max(candidates, key=lambda model: model.clone().fit(fitted).score(judged))


def _last_tenth_held_out(train: sm.Sequences) -> tuple[sm.Sequences, sm.Sequences]:
    if len(train) == 1:
        return train.split(0.1)
    at = len(train) - max(1, len(train) // 10)
    return train[:at], train[at:]
