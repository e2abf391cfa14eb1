"""Plot of the transition probabilities of an HMM against an input that they depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from seqmodels.common.display import listed
from seqmodels.common.parameters import checked_but

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from seqmodels.plot.style import Panels

N_POINTS = 200
DEVIATIONS = 2.5  # the axis extends so many standard deviations from the mean of the input by default


class DrivenStates(Protocol):
    """The interface of a model with K hidden states whose transitions depend on inputs, such as ``seqmodels.HMM``.

    Attributes:
        initial_: probabilities of the first state, ``(K,)``.
        input_names_: names of the inputs.
        input_scaling_: their ``mean`` and ``scale`` in the training data.
        transition_at: function that returns the transition probabilities at n rows of inputs, ``(n, K, K)``.
    """

    @property
    def initial_(self) -> np.ndarray: ...
    @property
    def input_names_(self) -> tuple[str, ...]: ...
    @property
    def input_scaling_(self) -> Any: ...
    def transition_at(self, inputs: Any) -> np.ndarray: ...


@checked_but("model")
def transitions_by_input(
    model: DrivenStates,
    name: str,
    *,
    ax: Axes | Sequence[Axes] | None = None,
    states: Sequence[int] | None = None,
    values: Sequence[float] | np.ndarray | None = None,
    others: Mapping[str, float] | None = None,
    state_names: Sequence[str] | None = None,
) -> Axes | Panels:
    """Draw the probability of each next state against an input, in one panel for each current state.

    Args:
        model: a fitted (or loaded) HMM whose transitions depend on inputs.
        name: name of the input on the x axis.
        ax: axes to draw on, as many as states are drawn; None creates a figure of pyplot.
        states: the current states whose transitions are drawn; None means all.
        values: values of the input, not standardised, at which the probabilities are drawn; None means 2.5 standard
            deviations to either side of its mean in the training data.
        others: values of the other inputs, by name; an input that is not listed has its mean.
        state_names: names of the K states; None means their numbers.

    Returns:
        The axes; for several states ``Panels``, which is a tuple of axes.

    Raises:
        ValueError: the transitions depend on no inputs, the model does not read an input that is named, or it does not
            have a state that is listed.
    """
    if not hasattr(type(model), "transition_at"):
        raise ValueError(
            f"the model is {model!r}, which has no transitions; pass a fitted HMM with "
            "input_effects=ChainInputEffects(transitions=...)"
        )
    known, k = model.input_names_, len(model.initial_)
    wrong = [each for each in (name, *(others or ())) if each not in known]
    if wrong:
        raise ValueError(f"the model reads no input {wrong[0]!r}; it reads {listed(known) or 'none'}")
    scaling, at = model.input_scaling_, known.index(name)
    mean, scale = float(scaling.mean[at]), float(scaling.scale[at])
    drawn = np.linspace(mean - DEVIATIONS * scale, mean + DEVIATIONS * scale, N_POINTS)
    drawn = drawn if values is None else np.asarray(values, dtype=np.float64)
    fixed = dict(zip(known, scaling.mean.tolist(), strict=True)) | dict(others or {})
    columns = {each: drawn if each == name else np.full(len(drawn), value) for each, value in fixed.items()}
    probabilities = model.transition_at(columns)  # (n, K, K)
    left = list(range(k)) if states is None else list(states)
    if not left or not all(0 <= state < k for state in left):
        raise ValueError(f"states is {states!r}; pass some of 0 to {k - 1}")
    names = [str(state) for state in range(k)] if state_names is None else [str(each) for each in state_names]
    if len(names) != k:
        raise ValueError(f"state_names is {state_names!r}, but the model has {k} states; pass a name for each")

    from seqmodels.plot.style import dash_of, in_style, panels_or_new, state_colour

    with in_style():
        panels = panels_or_new(ax, len(left), 2.2)
        for axes, i in zip(panels, left, strict=True):
            for j in range(k):
                if probabilities[:, i, j].any():
                    line = {"color": state_colour(j), "linestyle": dash_of(j), "label": names[j]}
                    axes.plot(drawn, probabilities[:, i, j], **line)
            axes.set_ylim(-0.02, 1.02)
            axes.set_ylabel(f"probability after {names[i]}")
            axes.legend(title="next state", fontsize=8, title_fontsize=8)
        panels[-1].set_xlabel(name)
    return panels if len(panels) > 1 else panels[0]
