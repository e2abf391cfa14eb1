"""How many parameters an HMM of so many states would have, before one is fitted."""

from __future__ import annotations

from collections.abc import Callable

from seqmodels.hmm.model import HMM
from seqmodels.preparation import Data


def parameters_by_states(model: HMM, data: Data) -> Callable[[int], int]:
    """``n_states`` to ``n_parameters_``, were ``model`` fitted to ``data``; of it, only the encoding is fitted, once.

    Raises:
        ValueError: from the function too: a ``topology`` or ``tied`` that is of one number of states only.
    """
    like = model.clone()
    like._apply_setting(like._learn_setting(data))

    def count(n_states: int) -> int:
        return like._learning(n_states, like.length_).n_parameters(like.length_, like._emission())

    return count
