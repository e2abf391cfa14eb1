"""``LatentOffset``: vectors less an unknown offset, which a Gaussian prior covers, as a ``SequenceModel``."""

from __future__ import annotations

import copy
from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch

from seqmodels.common.array_checks import array_of, check_between, check_sums
from seqmodels.common.parameters import NotNegative, PositiveFloat, checked
from seqmodels.encodings.examples import Example
from seqmodels.hmm.cursor import HMMCursor
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import fit_member
from seqmodels.neural.model import NeuralModel
from seqmodels.observations import Observation
from seqmodels.sequences import Kind
from seqmodels.wrappers.offsets.conditional import CursorGivenOffset, GivenOffset, HMMGivenOffset
from seqmodels.wrappers.offsets.cursor import Evidence, OffsetCursor, evidence_of, log_prob_steps
from seqmodels.wrappers.offsets.filtering import Belief
from seqmodels.wrappers.offsets.scales import ScaleChain
from seqmodels.wrappers.offsets.training import (
    OffsetPrior,
    PriorOptions,
    cluster_ids,
    linear_offsets,
    offsets_of,
    thinned_out,
    with_draws,
)
from seqmodels.wrappers.wrapped_model import WrappedModel


@dataclass(eq=False, repr=False)
class LatentOffset(WrappedModel):
    """``x_t = b + z_t``: z has the density of ``model``, ``b ~ N(0, B + W)`` is constant within a sequence.

    The bias of a speaker, a channel or a sensor. It is integrated out, and inferred as one listens: ``p(x_t | x_<t) = ∫
    p(x_t | x_<t, b) p(b | x_<t) db``, with ``p(b | x_<t)`` a Gaussian, updated by each frame after that is scored. At
    the start of every sequence it is the prior again. B is the covariance between clusters (speakers), W that of the
    sequences within one; both are learned by EM over the clusters of the training sequences. Where these have none,
    each is a cluster of its own, and W is 0. ``model`` is fitted to the sequences less the offsets of their clusters
    (speaker-adaptive training, Anastasakos et al. 1996, *A compact model for speaker-adaptive training*), as a linear
    prediction of each vector from the last gives them.

    The posterior is exact for one Gaussian and one autoregression. With several components it is a mixture that grows
    with every frame; the Gaussian of its mean and covariance stands for it (assumed-density filtering). A network reads
    each frame less what the offset is expected to be once that frame is read; how its prediction moves with the
    offset, past and present, is linear around that, by differences of D + 1 copies. In all cases what is returned is a
    normalised density of the next frame that depends on the past alone: a probability by the chain rule.

    Args:
        model: an HMM or a network without an encoder, of vectors, with ``GaussianMixture`` or
            ``AutoregressiveGaussian``.
        covariance_type: of B, ``"diag"`` or ``"full"``; W is full.
        n_folds: B and W are learned from clusters that the model did not learn from: so many more models are fitted,
            each without a part of the clusters (with fewer clusters, each without one). 0 learns them from the fit
            itself, which knows its clusters, and so underrates how far others will lie from it.
        prior_count: pseudo-clusters of EM, and
        prior_variance: the variance of each feature's offset in them, in standardised units (1 is the variance of a
            feature over the training frames); of W a tenth of it. With few clusters they keep B from what only those
            have.
        max_iter: rounds of EM of the prior.
        scales: what standard deviations of the next frame are times: one of these, unknown, which stays from frame to
            frame or is drawn anew, and is inferred as one listens. The probabilities are learned over the training
            clusters. A model is too sure of speakers that it has not heard; ``(0.7, 1, 1.4, 2)`` lets it say so.

    All is computed in float64, whatever ``dtype`` is. The cost is that of the cursor, of many sequences at once, and of
    J Cholesky factors of order D a frame (J components of the mixture; of a network also D + 1 copies of it). Missing
    values are summed out where ``model`` does, but not under ``AutoregressiveGaussian``. A source of p(y | x) has the
    offset too; only an HMM infers it from the source.

    Attributes (fitted): ``model_``; of the prior, in raw units, ``offset_mean_``, ``offset_covariance_`` (B + W) and
    ``within_covariance_`` (W).

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
    n_folds: int = 3
    prior_count: float = 1.0
    prior_variance: float = 0.25
    max_iter: int = 10
    scales: Sequence[float] = (1.0,)

    @property
    def n_parameters_(self) -> int:
        self._setting()
        size = self.encoding_.size
        of_full = size * (size + 1) // 2
        of_scales = len(self.scales) if len(self.scales) > 1 else 0  # with the rate
        of_between = size if self.covariance_type == "diag" else of_full
        return self.model_.n_parameters_ + of_between + (of_full if self.prior_.within.any() else 0) + of_scales

    @property
    def offset_mean_(self) -> np.ndarray:
        """``(D,)`` of the prior, raw units: 0, or after ``enrol`` what is known of the speaker."""
        self._setting()
        return np.asarray(self.prior_.mean * self.encoding_.affine()[1])

    @property
    def offset_covariance_(self) -> np.ndarray:
        """``(D, D)`` of the prior of a sequence's offset, raw units."""
        self._setting()
        scale = self.encoding_.affine()[1]
        return np.asarray(self.prior_.covariance * scale[:, None] * scale)

    @property
    def within_covariance_(self) -> np.ndarray:
        """``(D, D)`` of the offsets of sequences around that of their cluster, raw units."""
        self._setting()
        scale = self.encoding_.affine()[1]
        return np.asarray(self.prior_.within * scale[:, None] * scale)

    @checked
    def enrol(self, X: Any, y: Any = None, *, steps: NotNegative = 0, lr: PositiveFloat = 1e-3) -> Self:
        """The model of this speaker: a fitted model whose prior is the posterior given these sequences.

        They are not scored. All are taken to be of one speaker, whatever clusters they name: the offset of recording i
        is ``b_s + d_i``, with one ``b_s`` of the speaker and a ``d_i ~ N(0, W)`` of each recording. What is learned is
        the posterior ``N(m, C)`` of ``b_s``; the offset of a new recording is ``N(m, C + W)`` before its first frame.
        No sequences at all change nothing. What the model knew of scales counts as 20 frames (a Dirichlet prior).

        Args:
            X: sequences as for ``score``, perhaps none. A past that they have is not read.
            y: their targets, for a model of p(y | x).
            steps: of training a copy of the network further, on these sequences less m; 0: none.
            lr: peak learning rate of these.

        Raises:
            ValueError: sequences that cannot be read; ``steps`` of a model that is no network.
        """
        self._setting()
        if steps and not isinstance(self.model_, NeuralModel):
            raise ValueError(f"steps is {steps}, but {type(self.model_).__name__} is no network; leave it at 0")
        enrolled = copy.copy(self)
        if isinstance(X, Sized) and not isinstance(X, np.ndarray) and not len(X):
            return enrolled
        examples = [replace(e, cluster=0) for e in self._examples_of(X, y)]
        start = np.tile(self.prior_.mean, (len(examples), 1))
        result, draws, prior = offsets_of(
            examples, cluster_ids(examples), self._read, self.prior_, start, ROUNDS_OF_ENROLMENT
        )
        enrolled.prior_ = replace(
            prior, mean=result.means[0], between=result.covariances[0], scales=with_draws(prior.scales, draws)
        )
        if steps:
            assert isinstance(self.model_, NeuralModel), "checked above"
            less = _less(examples, np.tile(result.means[0], (len(examples), 1)))
            enrolled.model_ = _trained_further(self.model_, less, steps, lr)
        return enrolled

    # -- fitting -------------------------------------------------------------------------------------------

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        if self.covariance_type not in ("diag", "full"):
            raise ValueError(f"covariance_type is {self.covariance_type!r}; pass 'diag' or 'full'")
        if not (len(self.scales) and all(0 < scale < np.inf for scale in self.scales)):
            raise ValueError(f"scales is {self.scales!r}; pass finite numbers above 0")
        for name, least in (("max_iter", 1), ("n_folds", 0)):
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
        self.prior_ = self._options().start(self.encoding_.size, has_within=False)

    def _options(self) -> PriorOptions:
        return PriorOptions(self.covariance_type == "diag", self.prior_count, self.prior_variance, len(self.scales))

    def _examples_to_fit(self, train: list[Example], validation: list[Example]) -> tuple[list[Example], list[Example]]:
        self._check_observation()
        return self._less_linear_offsets(train), self._less_linear_offsets(validation)

    def _check_observation(self) -> None:
        if self.encoding_.emits != "vectors":
            is_of_cells = self.encoding_.reads == "vectors"
            what = f"read as symbols by {self.encoding_!r}" if is_of_cells else self.encoding_.reads
            raise ValueError(f"{type(self).__name__} is for vectors, but the sequences are {what}")
        observation, size = self.observation_, self.encoding_.size
        past = torch.zeros(observation.n_past, size) if observation.n_past else None
        observation.shifted_means(torch.zeros(observation.n_output_parameters(size)), torch.zeros(size), past)

    def _less_linear_offsets(self, examples: list[Example]) -> list[Example]:
        if not examples:
            return examples
        clusters = cluster_ids(examples)
        return _less(examples, linear_offsets(examples, clusters, self._options())[clusters])

    def _fit_others(self, train: list[Example], validation: list[Example]) -> list[SequenceModel]:
        """The model inside, fitted without each fold of the clusters; where there are no folds, itself."""
        seen = [e for e in train if e.weight > 0]
        clusters = cluster_ids(seen)
        start = linear_offsets(seen, clusters, self._options())
        return [self._fitted_without(fold, seen, clusters, start, validation) for fold in self._fold_ids(len(start))]

    def _fit_around(
        self, train: list[Example], validation: list[Example], others: Sequence[SequenceModel] = ()
    ) -> None:
        seen = [e for e in train if e.weight > 0]
        clusters, options = cluster_ids(seen), self._options()
        start = linear_offsets(seen, clusters, options)
        chosen = thinned_out(seen, clusters)
        few, of_few = [seen[i] for i in chosen], clusters[chosen]
        has_within = len(chosen) > len(start)
        folds = self._folds(len(start))[of_few]
        inner = dict(zip(self._fold_ids(len(start)), others, strict=True))

        def read(examples: list[Example], offsets: np.ndarray, prior: OffsetPrior) -> Evidence:
            (n, size), n_scales = offsets.shape, len(self.scales)
            result = Evidence(np.zeros((n, size, size)), np.zeros((n, size)), np.zeros((n, n_scales)))
            for fold, model in inner.items():
                part = np.flatnonzero(folds == fold)
                each = self._read_by(model, [examples[i] for i in part], offsets[part], prior)
                result.precision[part], result.gradient[part] = each.precision, each.gradient
                result.draws[part] = each.draws
            return result

        prior = options.start(start.shape[1], has_within=has_within)
        *_, self.prior_ = offsets_of(few, of_few, read, prior, start[of_few], self.max_iter, options)

    def _folds(self, n_clusters: int) -> np.ndarray:
        """``(C,)`` the fold of each cluster; all in fold 0 where there are none."""
        n_folds = min(self.n_folds, n_clusters)
        if n_folds < 2:
            return np.zeros(n_clusters, dtype=np.int64)
        return np.random.default_rng(self.random_state).permutation(n_clusters) % n_folds + 1

    def _fold_ids(self, n_clusters: int) -> list[int]:
        return sorted(set(self._folds(n_clusters).tolist()))

    def _fitted_without(
        self,
        fold: int,
        examples: list[Example],
        clusters: np.ndarray,
        offsets: np.ndarray,
        validation: list[Example],
    ) -> SequenceModel:
        """The model inside, of fold 0; else one like it, fitted to the clusters of the other folds."""
        if not fold:
            return self.model_
        other = np.flatnonzero(self._folds(len(offsets))[clusters] != fold)
        inner = self.model.clone()
        part = _less([examples[i] for i in other], offsets[clusters[other]])
        fit_member(inner, self._setting(), part, self._less_linear_offsets(validation))
        return inner

    def _read(self, examples: list[Example], offsets: np.ndarray, prior: OffsetPrior) -> Evidence:
        return self._read_by(self._inner(), examples, offsets, prior)

    def _read_by(
        self, inner: SequenceModel, examples: list[Example], offsets: np.ndarray, prior: OffsetPrior
    ) -> Evidence:
        return evidence_of(self._given_offset(inner), examples, offsets, self._scale_chain(prior))

    def _scale_chain(self, prior: OffsetPrior) -> ScaleChain:
        device = self._device()
        values, probabilities = (
            torch.tensor(x, dtype=torch.float64, device=device) for x in (self.scales, prior.scales)
        )
        return ScaleChain(values, probabilities, prior.rate)

    # -- scoring -------------------------------------------------------------------------------------------

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        return log_prob_steps(self.cursor(), examples, has_end=self.length_ == "stop")

    @checked
    def cursor(self, n_steps: int | None = None) -> OffsetCursor:
        self._setting()
        device, prior = self._device(), self.prior_
        mean, covariance = (torch.as_tensor(x, device=device)[None] for x in (prior.mean, prior.covariance))
        given = self._given_offset(self._inner(), n_steps)
        return OffsetCursor(given, Belief(mean, covariance), self._scale_chain(prior))

    def _given_offset(self, inner: SequenceModel, n_steps: int | None = None) -> GivenOffset[Any]:
        inner = copy.copy(inner)
        inner.dtype, inner.device = "float64", self.device
        cursor = inner.cursor(n_steps)
        if isinstance(cursor, HMMCursor):
            return HMMGivenOffset(cursor)
        return CursorGivenOffset(cursor, self.encoding_.size, self._device())

    # -- keeping -------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        prior = self.prior_
        return {
            "offset_mean": prior.mean,
            "offset_between": prior.between,
            "offset_within": prior.within,
            "scales": prior.scales,
            "scale_rate": prior.rate,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        size = self.encoding_.size
        mean = array_of(state, "offset_mean", np.float64, (size,))
        between, within = (
            array_of(state, name, np.float64, (size, size)) for name in ("offset_between", "offset_within")
        )
        is_finite = all(np.isfinite(array).all() for array in (mean, between, within))
        if not (is_finite and np.linalg.eigvalsh(between)[0] > 0 and np.linalg.eigvalsh(within)[0] >= -1e-12):
            raise ValueError("the prior of the offset is no Gaussian")
        scales = check_between("scales", array_of(state, "scales", np.float64, (len(self.scales),)), 0, 1)
        check_sums("scales", scales.sum(keepdims=True))
        rate = state["scale_rate"]
        if type(rate) is not float or not 0 <= rate <= 1:
            raise ValueError("scale_rate should be a number from 0 to 1")
        self.prior_ = OffsetPrior(mean, between, within, scales, rate)


ROUNDS_OF_ENROLMENT = 10


def _less(examples: list[Example], offsets: np.ndarray) -> list[Example]:
    """Examples less their offsets ``(n, D)``, sources too where they are read by the same encoding."""
    return [
        replace(e, values=e.values - offset, source=None if e.source is None else e.source - offset)
        for e, offset in zip(examples, offsets, strict=True)
    ]


def _trained_further(model: NeuralModel, examples: list[Example], steps: int, lr: float) -> NeuralModel:
    """A copy of a fitted network that has been trained on these examples too; its hyperparameters are as they were."""
    trained = copy.deepcopy(model)
    nowhere = {"training__checkpoint": None, "training__resume_from": None}
    limits: dict[str, Any] = {"max_epochs": None, "max_seconds": None, **nowhere}
    as_now = trained.get_params(deep=False)
    trained.set_params(warm_start=True, max_steps=steps, lr=lr, **limits)
    trained._fit(examples, [])
    return trained.set_params(**as_now)
