"""What ``observation="auto"`` of vectors comes to where clusters (speakers, sensors) are known: what predicts others.

Each cluster is held out once. An autoregression is taken where it predicts clusters that it was not fitted to clearly
better than frames that are independent given the state; then also whether frames are read less what the sequence has
shown of its own level (``RunningScale``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from seqmodels.encodings import Encoding, RunningScale
from seqmodels.encodings.defaults import Choices
from seqmodels.encodings.raw_data import Data
from seqmodels.model import SequenceModel
from seqmodels.model.held_out_clusters import cluster_parts, held_out_score
from seqmodels.observations import AutoregressiveGaussian, Observation

CLEAR_GAIN = 0.1  # nats a value: less is not worth states that have no level
PRIOR_FRAMES = 40.0  # that training data count as in a running scale; set on the four speakers of one corpus


def chosen_by_clusters(
    choices: Choices,
    data: Data,
    *,
    may_encode: bool,
    fitted: Callable[[Observation, Encoding], SequenceModel],
) -> Choices:
    """``choices``, or an autoregression of the same frames or of frames in a running scale, with the reason.

    Args:
        choices: what the arguments come to without a look at clusters.
        data: of the fit.
        may_encode: whether the encoding may be another too.
        fitted: makes a small model, to be fitted.
    """
    parts = cluster_parts(data)
    if not parts:
        return choices
    n_features = data.X.n_features
    candidates: list[tuple[Observation, Encoding]] = [(AutoregressiveGaussian(), choices.encoding)]
    if may_encode:
        candidates.append((AutoregressiveGaussian(), RunningScale(PRIOR_FRAMES)))
    independent = held_out_score(lambda: fitted(choices.observation, choices.encoding), parts)
    scores = [held_out_score(lambda each=each: fitted(*each), parts) for each in candidates]  # type: ignore[misc]
    best = max(range(len(candidates)), key=scores.__getitem__)
    gain = scores[best] - independent
    if not gain > CLEAR_GAIN * n_features:
        reason = f"{choices.observation!r}: of clusters held out it is"
        return replace(choices, reason=f"{reason} {independent:.2f} nats a frame, an autoregression {scores[best]:.2f}")
    observation, encoding = candidates[best]
    reason = f"{observation!r} in {encoding!r}: {scores[best]:.2f} nats a frame of clusters held out"
    reason += f", independent frames {independent:.2f}"
    return replace(choices, observation=observation, encoding=encoding, reason=reason)
