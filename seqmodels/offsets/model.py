"""``LatentOffset``: vectors less an unknown offset, which a Gaussian prior covers, as a ``SequenceModel``."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch

from seqmodels.array_checks import array_of
from seqmodels.fitting import apply_setting, checked_data
from seqmodels.hmm.cursor import HMMCursor
from seqmodels.measure import MemoryKind
from seqmodels.model import SequenceModel
from seqmodels.observations import Observation
from seqmodels.offsets.conditional import CursorGivenOffset, GivenOffset, HMMGivenOffset
from seqmodels.offsets.cursor import OffsetCursor, evidence_of, log_prob_steps
from seqmodels.offsets.filtering import Belief
from seqmodels.offsets.training import Prior, cluster_ids, linear_offsets, posteriors, thinned_out
from seqmodels.preparation import Example
from seqmodels.sequences import Kind
from seqmodels.wrapped import WrappedModel


@dataclass(eq=False, repr=False)
class LatentOffset(WrappedModel):
    """``x_t = b + z_t``: z has the density of ``model``, ``b ~ N(0, C)`` is one for all of a sequence.

    The bias of a speaker, a channel or a sensor. It is integrated out, and inferred as one listens: ``p(x_t | x_<t) = ∫
    p(x_t | x_<t, b) p(b | x_<t) db``, with ``p(b | x_<t)`` a Gaussian, updated by each frame after that is scored. At
    the start of every sequence it is the prior again. C is learned over the clusters of the training sequences
    (speakers), by EM, where sequences have none each is a cluster of its own; ``model`` is fitted to the sequences less
    the offsets of their clusters (speaker-adaptive training, Anastasakos et al. 1996, *A compact model for
    speaker-adaptive training*).

    The posterior is exact for one Gaussian and one autoregression. With several components it is a mixture that grows
    with every frame; the Gaussian of its mean and covariance stands for it (assumed-density filtering). A network reads
    each frame less what the offset is expected to be once that frame is read; how its prediction moves with the
    offset, past and present, is linear around that, by differences of D + 1 copies. In all cases what is returned is a
    normalised density of the next frame that depends on the past alone: a probability by the chain rule.

    Args:
        model: an HMM or a network without an encoder, of vectors, with ``GaussianMixture`` or
            ``AutoregressiveGaussian``.
        covariance_type: of C, ``"diag"`` or ``"full"``.
        prior_count: pseudo-clusters of EM, and
        prior_variance: the variance of each feature's offset in them, in standardised units (1 is the variance of a
            feature over the training frames). With few clusters they keep C from what only those have.
        max_iter: rounds of EM of the prior.
        n_fits: how often ``model`` is fitted: first less the offsets that a linear prediction gives, then less those
            under the fit before.

    All is computed in float64, whatever ``dtype`` is. The cost is that of the cursor, of many sequences at once, and of
    J Cholesky factors of order D a frame (J components of the mixture; of a network also D + 1 copies of it). Missing
    values are summed out where ``model`` does, but not under ``AutoregressiveGaussian``. A source of p(y | x) has the
    offset too; only an HMM infers it from the source.

    Attributes (fitted): ``model_``; ``offset_mean_`` and ``offset_covariance_``, of the prior, in raw units.

    >>> rng = np.random.default_rng(0)
    >>> bias = [np.full((1, 1), b) for b in rng.normal(0, 5, 12)]
    >>> X = [b + rng.standard_normal((20, 1)) for b in bias]
    >>> from seqmodels import HMM
    >>> plain = HMM(1).fit(X[:8])
    >>> model = LatentOffset(HMM(1)).fit(X[:8])
    >>> bool(model.score(X[8:]) > plain.score(X[8:]) + 0.5)
    True
    """

    covariance_type: Literal["diag", "full"] = "diag"
    prior_count: float = 1.0
    prior_variance: float = 0.25
    max_iter: int = 10
    n_fits: int = 1

    @property
    def memory_(self) -> MemoryKind:
        return "adaptive"

    @property
    def context_(self) -> int | None:
        return None

    @property
    def n_parameters_(self) -> int:
        self._setting()
        size = self.encoding_.size
        return self.model_.n_parameters_ + (size if self.covariance_type == "diag" else size * (size + 1) // 2)

    @property
    def offset_mean_(self) -> np.ndarray:
        """``(D,)`` of the prior, raw units: 0, or after ``enrol`` what is known of the speaker."""
        self._setting()
        return np.asarray(self.prior_.mean[0].numpy() * self.encoding_.affine()[1])

    @property
    def offset_covariance_(self) -> np.ndarray:
        """``(D, D)`` of the prior, raw units."""
        self._setting()
        scale = self.encoding_.affine()[1]
        return np.asarray(self.prior_.covariance[0].numpy() * scale[:, None] * scale)

    def enrol(self, X: Any, y: Any = None) -> Self:
        """The model of this speaker: a fitted model whose prior is the posterior given these sequences.

        They are not scored. All are taken to have one offset, whatever clusters they name. None at all change nothing.

        Args:
            X: sequences as for ``score``, perhaps none.
            y: their targets, for a model of p(y | x).

        Raises:
            ValueError: sequences that cannot be read.
        """
        self._setting()
        enrolled = copy.copy(self)
        if not isinstance(X, np.ndarray) and not len(X):
            return enrolled
        examples = [replace(e, cluster=0) for e in self._setting().examples(checked_data(self, X, y))]
        mean, covariance = self.prior_.mean.numpy(), self.prior_.covariance[0].numpy()
        clusters = cluster_ids(examples)
        means, covariances = posteriors(
            examples, clusters, self._read, mean.copy(), mean[0], covariance, ROUNDS_OF_ENROLMENT
        )
        enrolled.prior_ = Belief(torch.as_tensor(means), torch.as_tensor(covariances))
        return enrolled

    # -- fitting -------------------------------------------------------------------------------------------

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        if self.covariance_type not in ("diag", "full"):
            raise ValueError(f"covariance_type is {self.covariance_type!r}; pass 'diag' or 'full'")
        for name, least in (("max_iter", 1), ("n_fits", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; pass at least {least}")
        if not (0 <= self.prior_count < np.inf and 0 < self.prior_variance < np.inf):
            raise ValueError(
                f"prior_count is {self.prior_count} and prior_variance {self.prior_variance}; pass finite numbers, "
                "the variance above 0"
            )

    def _default_observation(self, kind: Kind) -> Observation:
        if kind != "vectors":
            raise ValueError(f"{type(self).__name__} is for vectors, but the sequences are {kind}; leave it out")
        return super()._default_observation(kind)

    def _sums_out(self, observation: Observation) -> bool:
        return self._sums_out_missing and observation.sums_out_missing and not observation.n_past

    def _reads_missing(self) -> bool:
        return not self.observation_.n_past and self.model_._reads_missing()

    def _take(self, model: SequenceModel) -> None:
        super()._take(model)
        size = self.encoding_.size
        start = torch.as_tensor(self._prior().start(size))
        self.prior_ = Belief(torch.zeros(1, size, dtype=torch.float64), start[None])

    def _prior(self) -> Prior:
        return Prior(self.covariance_type == "diag", self.prior_count, self.prior_variance)

    def _examples_to_fit(self, train: list[Example], validation: list[Example]) -> tuple[list[Example], list[Example]]:
        self._check_observation()
        return self._less_linear_offsets(train), self._less_linear_offsets(validation)

    def _check_observation(self) -> None:
        if self.encoding_.reads != "vectors":
            raise ValueError(f"{type(self).__name__} is for vectors, but the sequences are {self.encoding_.reads}")
        observation, size = self.observation_, self.encoding_.size
        past = torch.zeros(observation.n_past, size) if observation.n_past else None
        observation.shifted_means(torch.zeros(observation.n_output_parameters(size)), torch.zeros(size), past)

    def _less_linear_offsets(self, examples: list[Example]) -> list[Example]:
        if not examples:
            return examples
        clusters = cluster_ids(examples)
        return _less(examples, linear_offsets(examples, clusters, self._prior())[clusters])

    def _fit_around(self, train: list[Example], validation: list[Example]) -> None:
        seen = [e for e in train if e.weight > 0]
        clusters = cluster_ids(seen)
        offsets = self._fit_prior(seen, clusters, linear_offsets(seen, clusters, self._prior()))
        for _ in range(self.n_fits - 1):
            inner = self.model.clone()
            apply_setting(inner, self._setting())
            held_out = self._less_posterior(validation)
            inner._fit(_less(seen, offsets[clusters]), held_out)
            inner.fit_seconds_ = self.model_.fit_seconds_
            self.model_, self.history_, self.converged_ = inner, inner.history_, inner.converged_
            offsets = self._fit_prior(seen, clusters, offsets)

    def _fit_prior(self, examples: list[Example], clusters: np.ndarray, start: np.ndarray) -> np.ndarray:
        """EM; returns the clusters' offsets ``(n, D)``."""
        prior, chosen = self._prior(), thinned_out(examples, clusters)
        covariance = prior.start(start.shape[1])

        def maximise(means: np.ndarray, covariances: np.ndarray) -> np.ndarray:
            nonlocal covariance
            covariance = prior.maximised(means, covariances)
            return covariance

        few = [examples[i] for i in chosen]
        zero = np.zeros(start.shape[1])
        means, _ = posteriors(few, clusters[chosen], self._read, start, zero, covariance, self.max_iter, maximise)
        self.prior_ = Belief(torch.as_tensor(zero[None]), torch.as_tensor(covariance[None]))
        return means

    def _less_posterior(self, examples: list[Example]) -> list[Example]:
        """Examples less their clusters' offsets, given all of them."""
        if not examples:
            return examples
        clusters, mean = cluster_ids(examples), self.prior_.mean[0].numpy()
        start = np.repeat(mean[None], int(clusters.max()) + 1, 0)
        means, _ = posteriors(
            examples, clusters, self._read, start, mean, self.prior_.covariance[0].numpy(), ROUNDS_OF_ENROLMENT
        )
        return _less(examples, means[clusters])

    def _read(self, examples: list[Example], offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        read = evidence_of(self._given_offset(), examples, offsets)
        return read.precision.numpy(), read.gradient.numpy()

    # -- scoring -------------------------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        return log_prob_steps(self.cursor(), examples, has_end=self.length_ == "stop")

    def cursor(self, n_steps: int | None = None) -> OffsetCursor:
        self._setting()
        device = self._device()
        prior = Belief(self.prior_.mean.to(device), self.prior_.covariance.to(device))
        return OffsetCursor(self._given_offset(n_steps), prior)

    def _given_offset(self, n_steps: int | None = None) -> GivenOffset[Any]:
        inner = copy.copy(self._inner())
        inner.dtype = "float64"
        cursor = inner.cursor(n_steps)
        if isinstance(cursor, HMMCursor):
            return HMMGivenOffset(cursor)
        return CursorGivenOffset(cursor, self.encoding_.size, self._device())

    # -- keeping -------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        return {"offset_mean": self.prior_.mean[0].numpy(), "offset_covariance": self.prior_.covariance[0].numpy()}

    def _restore(self, state: dict[str, Any]) -> None:
        size = self.encoding_.size
        mean = array_of(state, "offset_mean", np.float64, (size,))
        covariance = array_of(state, "offset_covariance", np.float64, (size, size))
        if not (np.isfinite(mean).all() and np.isfinite(covariance).all() and np.linalg.eigvalsh(covariance)[0] >= 0):
            raise ValueError("the prior of the offset is no Gaussian")
        self.prior_ = Belief(torch.as_tensor(mean[None]), torch.as_tensor(covariance[None]))


ROUNDS_OF_ENROLMENT = 10


def _less(examples: list[Example], offsets: np.ndarray) -> list[Example]:
    """Examples less their offsets ``(n, D)``, sources too where they are read by the same encoding."""
    return [
        replace(e, values=e.values - offset, source=None if e.source is None else e.source - offset)
        for e, offset in zip(examples, offsets, strict=True)
    ]
