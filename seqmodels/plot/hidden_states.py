"""Plots of the hidden states of an HMM: over a sequence, their probabilities, their transitions and their durations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from seqmodels.common.parameters import Seed, checked_but
from seqmodels.encodings import Encoding
from seqmodels.encodings.examples import n_states_of
from seqmodels.encodings.text import encoded_steps
from seqmodels.plot.one_sequence import given_times, one_sequence, selected_steps, times_of
from seqmodels.sequences import Sequences

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Drawing functions are imported when something is drawn, because they import matplotlib, which takes a second.

MAX_CHARACTERS = 600  # the most characters of a text that are drawn


class HiddenStates(Protocol):
    """The interface of a fitted model whose K hidden states can be drawn, such as ``seqmodels.HMM``.

    Attributes:
        initial_: probabilities of the first state, ``(K,)``.
        transition_: probabilities of the next state, ``(K, K)``.
        final_: probabilities of ending after each state, ``(K,)``.
        stationary_: share of the steps in each state, ``(K,)``.
        encoding_: fitted encoding of the sequences.
        length_: ``"stop"`` if the model predicts the ends of sequences, ``"given"`` if it does not.
    """

    @property
    def initial_(self) -> np.ndarray: ...
    @property
    def transition_(self) -> np.ndarray: ...
    @property
    def final_(self) -> np.ndarray: ...
    @property
    def stationary_(self) -> np.ndarray: ...
    @property
    def encoding_(self) -> Encoding: ...
    @property
    def length_(self) -> str: ...
    def check_data(self, X: Any, y: Any = None) -> None: ...
    def decode(self, X: Any, y: Any = None) -> list[np.ndarray]: ...
    def posterior(self, X: Any, y: Any = None) -> list[np.ndarray]: ...
    def sample_states(self, X: Any, n: int, *, y: Any, random_state: int | None) -> list[np.ndarray]: ...


@runtime_checkable
class ExplicitDurations(Protocol):
    """The interface of a model with a distribution of durations for each state, such as ``seqmodels.hmm.HSMM``.

    Attributes:
        durations_: probability that a visit to each of K states lasts 1, 2, ..., L steps, ``(K, L)``.
    """

    @property
    def durations_(self) -> np.ndarray: ...


@checked_but("model")
def states(
    model: HiddenStates,
    x: Any,
    y: Any = None,
    *,
    ax: Axes | None = None,
    features: Sequence[str] | None = None,
    time: Any = None,
    state_names: Sequence[str] | None = None,
    path: Any = None,
    steps: slice = slice(None),
) -> Axes:
    """Draw one sequence and its hidden states: the most probable path (Viterbi), or a given path.

    Up to 6 features of vectors are lines, each scaled to its own range if there are several. More features are an image
    in standard deviations from the mean of each. Symbols are dots, and text is text. A state has the same colour in
    every plot of its model; colours repeat after 14 states.

    Args:
        model: a fitted (or loaded) HMM.
        x: one sequence: vectors of shape ``(T, D)``, a text, or integers of shape ``(T,)``.
        y: its target, if the model is p(y | x); then the steps of ``y`` are drawn.
        ax: axes to draw on; None creates a figure of pyplot. On axes with a plot, such as a spectrogram, only the
            states are drawn, translucent, at their times. Steps without times are spread over the plot, unless it has
            as many steps.
        features: names of the D features of vectors, or of the V symbols; None means those that the model was fitted
            to.
        time: times of the steps of vectors or symbols, which never decrease, shape ``(T,)``: numbers, dates or a
            ``DatetimeIndex``. None means the times of ``x``, if it is ``Sequences`` with times, and otherwise the
            numbers of the steps.
        state_names: names of the K states; None means their numbers.
        path: states to draw in place of the most probable ones, such as known ones or a random draw, shape ``(T,)``.
        steps: the steps to draw; all are decoded. Of a text at most 600 characters are drawn.

    Returns:
        The axes; ``ax.figure.savefig("states.pdf")`` writes them to a file.

    Raises:
        ValueError: the model is not an HMM; there is more than one sequence; no path can explain the sequence; the
            number of names, times or states does not fit; or the times are not within what ``ax`` shows.

    >>> from seqmodels import HMM, plot
    >>> model = HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], means=[[0], [5]], covariances=[[1], [1]])
    >>> ax = plot.states(model, [[0.1], [0.3], [5.2], [5.0]], features=["speed (m/s)"], state_names=["rest", "walk"])
    >>> ax.get_ylabel(), [text.get_text() for text in ax.get_legend().get_texts()]
    ('speed (m/s)', ['rest', 'walk'])
    """
    X, Y = _single(model, x, y)
    scored = X if Y is None else Y
    names, labels = _names_of_states(model, state_names), _names_of_features(model, features)
    item, n_steps = scored.items[0], n_states_of(model.encoding_, scored.items[0])
    states = model.decode(X, Y)[0][-n_steps:] if path is None else _checked_path(path, n_steps, len(names))
    selected = selected_steps(steps, n_steps)
    time = given_times(scored, time)
    t = times_of(time, n_steps)[selected]

    from seqmodels.plot import drawn_states as drawing
    from seqmodels.plot.style import axes_or_new, in_style

    with in_style():
        if isinstance(item, str):
            characters, path_of_characters = _characters(model, item, states, selected)
            axes = axes_or_new(ax, 0.8 + 0.24 * -(-len(characters) // drawing.CHARACTERS_PER_LINE))
            drawing.draw_text(axes, characters, path_of_characters, names)
            return axes
        if ax is not None and ax.has_data():
            drawing.draw_over(ax, None if time is None else t, states, names, selected)
            return ax
        label = "step" if time is None else _time_label(scored, time)
        if scored.kind == "symbols":
            axes = axes_or_new(ax, 2.6)
            numbers = item if item.dtype.kind != "O" else model.encoding_.encode(item)  # strings have names
            drawing.draw_symbols(axes, t, numbers[selected], states[selected], names, labels)
        else:
            lanes = min(scored.n_features, drawing.MAX_LINES)
            axes = axes_or_new(ax, 2.0 + 0.4 * lanes)
            drawing.draw_vectors(axes, t, item[selected], states[selected], names, labels)
        if label:
            axes.set_xlabel(label)
    return axes


@checked_but("model")
def posterior(
    model: HiddenStates,
    x: Any,
    y: Any = None,
    *,
    ax: Axes | None = None,
    time: Any = None,
    state_names: Sequence[str] | None = None,
    steps: slice = slice(None),
) -> Axes:
    """Draw the probability of each state (rows) at each step (columns) given the whole sequence, p(z_t | x_1 .. x_T).

    Args:
        model: a fitted (or loaded) HMM.
        x: one sequence: vectors of shape ``(T, D)``, a text, or integers of shape ``(T,)``.
        y: its target, if the model is p(y | x); then the steps of ``y`` are drawn.
        ax: axes to draw on; None creates a figure of pyplot.
        time: times of the steps of vectors or symbols, which never decrease, shape ``(T,)``. None means the times of
            ``x``, if it is ``Sequences`` with times, and otherwise the numbers of the steps.
        state_names: names of the K states; None means their numbers.
        steps: the steps to draw, counted in encoded steps if ``x`` is a text; all are read.

    Returns:
        The axes.

    Raises:
        ValueError: the model is not an HMM, there is more than one sequence, no path can explain the sequence, or the
            number of names or times does not fit.

    >>> from seqmodels import HMM, plot
    >>> model = HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]], means=[[0], [5]], covariances=[[1], [1]])
    >>> ax = plot.posterior(model, [[0.1], [0.3], [5.2], [5.0]], state_names=["rest", "walk"])
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['rest', 'walk']
    """
    X, Y = _single(model, x, y)
    names = _names_of_states(model, state_names)
    scored = X if Y is None else Y
    n_steps = n_states_of(model.encoding_, scored.items[0])
    selected = selected_steps(steps, n_steps)
    time = None if scored.kind == "text" else given_times(scored, time)
    t = times_of(time, n_steps)[selected]
    posterior = model.posterior(X, Y)[0][-n_steps:][selected]

    from seqmodels.plot import drawn_states as drawing
    from seqmodels.plot.style import axes_or_new, in_style

    with in_style():
        axes = axes_or_new(ax, 1.0 + 0.25 * min(max(len(names), 4), 16))
        drawing.draw_posterior(axes, t, posterior, names)
        label = "step" if time is None else _time_label(scored, time)
        if label:
            axes.set_xlabel(label)
    return axes


@checked_but("model")
def transitions(
    model: HiddenStates, *, ax: Axes | None = None, state_names: Sequence[str] | None = None, threshold: float = 0.1
) -> Axes:
    """Draw the chain of an HMM as a graph: nodes for the states, and arrows with the transition probabilities.

    The area of a node grows with the state's share of the steps (``stationary_``). Beside it are that share, the
    probability of staying, and, if the model has probabilities of ending, that of ending. More than 12 states are drawn
    as a matrix.

    Args:
        model: a fitted (or loaded) HMM.
        ax: axes to draw on; None creates a figure of pyplot.
        state_names: names of the K states; None means their numbers.
        threshold: an arrow is drawn if its share of all ways to leave its state, another state or the end, is at least
            this.

    Returns:
        The axes.

    Raises:
        ValueError: the model is not an HMM, there are not K names, or the threshold is not above 0 and at most 1.

    >>> from seqmodels import HMM, plot
    >>> model = HMM.from_parameters([0.5, 0.5], [[0.9, 0.1], [0.02, 0.98]], emission=[[0.9, 0.1], [0.2, 0.8]])
    >>> ax = plot.transitions(model, state_names=["low", "high"])
    >>> [text.get_text() for text in ax.texts if text.get_gid() == "about"]
    ['low', '17% of steps, stays 0.90', 'high', '83% of steps, stays 0.98']
    """
    names = _names_of_states(model, state_names)
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold is {threshold}; pass a share above 0, such as 0.1")

    from seqmodels.plot import drawn_chain as drawing
    from seqmodels.plot.style import axes_or_new, in_style

    with in_style():
        if len(names) > drawing.MAX_NODES:
            axes = axes_or_new(ax, 5.5)
            drawing.draw_matrix(axes, model.transition_, names)
        else:
            axes = axes_or_new(ax, 4.6 if len(names) > 2 else 2.4)
            drawing.draw_graph(axes, model.transition_, model.final_, model.stationary_, names, threshold)
    return axes


@checked_but("model")
def durations(
    model: HiddenStates,
    X: Any,
    y: Any = None,
    *,
    ax: Axes | None = None,
    state_names: Sequence[str] | None = None,
    n_draws: int = 0,
    random_state: Seed = 0,
) -> Axes:
    """Draw how long the states last in sequences, and how long they last under the model.

    The model's durations are ``a_kk^(d - 1) (1 - a_kk)`` in an HMM and ``durations_`` in an HSMM. For each state that
    is visited, the plot shows the share of visits of at least d steps on a logarithmic axis, on which the geometric
    distribution of an HMM is a straight line (dashed). The share is the estimate of Kaplan and Meier (1958), because
    the last visit of a sequence with a given length is cut off and may have lasted longer.

    Args:
        model: a fitted (or loaded) HMM.
        X: sequences, in the same form as for ``fit``.
        y: their targets, if the model is p(y | x); visits are counted in ``X`` followed by ``y``.
        ax: axes to draw on; None creates a figure of pyplot.
        state_names: names of the K states; None means their numbers.
        n_draws: 0 counts visits on the most probable path. That path leaves out short visits that are uncertain, so its
            visits are longer than the chain's even if the model is right. A larger number counts visits on so many
            paths of each sequence drawn from p(z | x), which agree with the chain if the model is right.
        random_state: seed of the draws.

    Returns:
        The axes.

    Raises:
        ValueError: the model is not an HMM, there are not K names, or no path can explain a sequence.
    """
    names = _names_of_states(model, state_names)
    if n_draws < 0:
        raise ValueError(f"n_draws is {n_draws}; pass 0 for the most probable paths, or how many to draw")
    if n_draws:
        draws = model.sample_states(X, n_draws, y=y, random_state=random_state)
        paths = [path for each in draws for path in each]
    else:
        paths = model.decode(X, y)
    observed = duration_shares(paths, are_cut_off=model.length_ == "given")

    from seqmodels.plot import drawn_chain as drawing
    from seqmodels.plot.style import axes_or_new, in_style

    with in_style():
        axes = axes_or_new(ax, 3.2)
        drawing.draw_survival(axes, observed, _fitted_shares(model, max(map(len, observed.values()))), names)
    return axes


def _fitted_shares(model: HiddenStates, longest: int) -> np.ndarray:
    """Return the model's probability that a visit to each state lasts at least 1, 2, ... steps, ``(K, longest)``.

    Args:
        model: the fitted model, with K states.
        longest: largest number of steps.
    """
    stays = np.diag(model.transition_)[:, None]
    if stays.any() or not isinstance(model, ExplicitDurations):
        with np.errstate(under="ignore"):
            geometric: np.ndarray = stays ** np.arange(longest)
        return geometric
    at_least = model.durations_[:, ::-1].cumsum(1)[:, ::-1]
    return np.pad(at_least, ((0, 0), (0, longest)))[:, :longest]


def duration_shares(paths: Sequence[np.ndarray], *, are_cut_off: bool) -> dict[int, np.ndarray]:
    """Return the share of the visits to each state that last at least 1, 2, ... steps (Kaplan and Meier 1958).

    It is ``S(d + 1) = Π_{e <= d} (1 - ended_e / lasting_e)``, where ``lasting_e`` counts visits known to last at least
    e steps and ``ended_e`` those among them that end after e steps.

    Args:
        paths: paths of states, each of shape ``(T,)``.
        are_cut_off: if True, the last visit of each path counts as lasting to its end but never as ended.

    Returns:
        For each state that occurs, the shares ``S(1), S(2), ...`` up to its longest visit.

    >>> duration_shares([np.array([0, 0, 1, 0, 1, 1])], are_cut_off=True)
    {0: array([1. , 0.5]), 1: array([1. , 0.5])}
    """
    from seqmodels.plot.drawn_frames import runs

    visits = [
        (state, end - first, are_cut_off and end == len(path)) for path in paths for first, end, state in runs(path)
    ]
    table = np.array(visits, dtype=np.int64)
    shares = {}
    for state in np.unique(table[:, 0]).tolist():
        steps, cut_off = table[table[:, 0] == state, 1:].T
        lasting = np.bincount(steps)[::-1].cumsum()[::-1][1:]  # visits of at least 1, 2, ... steps
        ended = np.bincount(steps[cut_off == 0], minlength=len(lasting) + 1)[1:]
        shares[state] = np.cumprod(np.append(1.0, 1 - ended / lasting))[:-1]
    return shares


# -- what is passed -----------------------------------------------------------------------------------------------


def _time_label(scored: Sequences, time: Any) -> str:
    """Return the label of an axis of times: name and unit of the times of the sequence, if these are shown.

    Return "" for dates, and for times that the caller passed.

    Args:
        scored: the only sequence, whose steps are drawn.
        time: times that are shown.
    """
    from seqmodels.plot.style import time_label

    is_own = scored.times is not None and time is scored.times[0]
    return time_label(scored.time_name, scored.time_unit, scored.times[0]) if is_own and scored.times else ""


def _single(model: HiddenStates, x: Any, y: Any) -> tuple[Sequences, Sequences | None]:
    """Return the sequence that a user passed and its target, if any, as ``Sequences`` that the model can read.

    Args:
        model: the fitted model.
        x: the sequence, or ``Sequences`` with one sequence.
        y: its target in the same form, or None.

    Raises:
        ValueError: there are several sequences, or the model has no hidden states.
    """
    X, Y = one_sequence("x", x), None if y is None else one_sequence("y", y)
    _names_of_states(model, None)
    model.check_data(X, Y)
    return X, Y


def _names_of_states(model: HiddenStates, names: Sequence[str] | None) -> list[str]:
    if not hasattr(type(model), "sample_states"):
        raise ValueError(f"the model is {model!r}, which has no hidden states to draw; pass a fitted HMM")
    k = len(model.initial_)
    if names is None:
        return [str(state) for state in range(k)]
    if isinstance(names, str) or len(names) != k:
        raise ValueError(f"state_names is {names!r}, but the model has {k} states; pass a list with a name for each")
    return [str(name) for name in names]


def _names_of_features(model: HiddenStates, names: Sequence[str] | None) -> list[str] | None:
    if names is None:  # take the names that the model was fitted to, if there are any
        known = getattr(model.encoding_, "names", None)
        return None if known is None else [str(name) for name in known]
    is_of_vectors = model.encoding_.reads == "vectors"
    size, what = (model.encoding_.n_features, "features") if is_of_vectors else (model.encoding_.size, "symbols")
    if isinstance(names, str) or len(names) != size:
        raise ValueError(f"features is {names!r}, but the model has {size} {what}; pass a list with a name for each")
    return [str(name) for name in names]


def _checked_path(path: Any, n_steps: int, n_states: int) -> np.ndarray:
    states = np.asarray(path)
    if states.shape != (n_steps,) or states.dtype.kind not in "iu":
        raise ValueError(
            f"path has shape {states.shape} and type {states.dtype}; pass {n_steps} integers, a state a step"
        )
    if not 0 <= states.min() <= states.max() < n_states:
        raise ValueError(f"path has states from {states.min()} to {states.max()}; the model has 0 to {n_states - 1}")
    return states


def _characters(model: HiddenStates, text: str, path: np.ndarray, steps: slice) -> tuple[str, np.ndarray]:
    """Return the characters of the selected part of a text, at most ``MAX_CHARACTERS``, and the state of each.

    Args:
        model: the model, with the encoding of the text.
        text: the text.
        path: state of each symbol into which the text is encoded, shape ``(T,)``.
        steps: the selected symbols.
    """
    pieces = encoded_steps(model.encoding_, text)[steps]
    states = np.repeat(path[steps], [len(piece) for piece in pieces])
    return "".join(pieces)[:MAX_CHARACTERS], states[:MAX_CHARACTERS]
