"""``MaskedTransformer``, which predicts masked symbols from both sides.

It is not a ``SequenceModel``, since it has no likelihood.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
import torch

from seqmodels.common import distributed, storage
from seqmodels.common.display import a_or_an
from seqmodels.common.parameters import Seed, checked, refuse_wrong_arguments, undone_on_failure
from seqmodels.common.randomness import InitialDraws, training_draws
from seqmodels.encodings import Encoding
from seqmodels.encodings.defaults import Choices, default_encoding
from seqmodels.encodings.examples import Example
from seqmodels.encodings.precision import DTYPES, check_device, check_device_is_here
from seqmodels.encodings.raw_data import Data, hold_out
from seqmodels.encodings.raw_to_examples import Setting
from seqmodels.model import NotFittedError
from seqmodels.neural.batches import Batching
from seqmodels.neural.checked_weights import build_with_weights
from seqmodels.neural.evaluation_copy import evaluation_copy
from seqmodels.neural.masked.inference import (
    conditional_log_probs,
    hidden_states,
    sampled_positions,
    self_attention,
)
from seqmodels.neural.masked.network import MASK, BidirectionalNetwork, EmbeddingAndHead, with_boundaries
from seqmodels.neural.masked.training import MaskedData, Masking, MaskingObjective, train_masked
from seqmodels.neural.training_options import (
    MAY_CHANGE,
    TrainingOptions,
    check_training_options,
    parallel_of,
    sequences_per_batch,
    train_config,
)
from seqmodels.neural.transformer.architecture import MaskedTransformerArchitecture
from seqmodels.neural.transformer.config import TransformerArguments, check_layer_and_head, config_of
from seqmodels.neural.transformer.positions import make_positions
from seqmodels.neural.transformer.stack import TransformerStack
from seqmodels.observations import Categorical, Observation
from seqmodels.sequences import Item, Sequences
from seqmodels.training import checkpoints_of_fit, interruption, whole_weights
from seqmodels.training.fingerprint import check_processes_agree

if TYPE_CHECKING:
    import pandas as pd


class Filled(NamedTuple):
    """The symbols that a model predicts for the masked positions of one sequence.

    Attributes:
        item: the raw sequence with the most probable symbol in each of N masked positions.
        symbols: the most probable symbols, as the model numbers them, (N,).
        probabilities: probability of each of V symbols at each masked position, given the unmasked symbols only, (N,
            V).
    """

    item: Item
    symbols: np.ndarray
    probabilities: np.ndarray


@dataclass(kw_only=True, eq=False, repr=False)
class MaskedTransformer(TransformerArguments, TrainingOptions):
    r"""A Transformer encoder trained to predict masked symbols from both sides (BERT: Devlin et al. 2019).

    It reads text and integer symbols. Its conditionals ``p(x_t | x_\t)`` are in general not those of any joint
    distribution, so their product is no probability: over all sequences it does not sum to one, and it depends on the
    encoding (a byte is easier to predict from its neighbours than a whole piece). Pseudo-log-likelihoods may be
    compared with those of other masked models of the same encoding, never with likelihoods.

    Args:
        d_model: width of inputs and of hidden states.
        n_layers: number of blocks of attention and feed-forward.
        n_heads: number of heads of attention, which must divide ``d_model``. ``"auto"``: the largest divisor whose
            heads have a width of at least 32.
        max_length: number of encoded steps that are seen at once, including the two boundaries of a sequence; longer
            sequences are cut in training, and read in windows afterwards.
        objective: what is masked: ``"tokens"``, single symbols, or ``"spans"``, runs of consecutive symbols; see
            ``Masking``.
        mask_fraction: fraction of the symbols of a sequence that is masked at a time.
        span_mean: mean length of a span, in symbols.
        mask_share, random_share, keep_share: shares of the masked symbols that are replaced by the mask symbol, that
            are replaced by random ones, and that are kept.
        encoding: how sequences are read; ``"auto"``: text as bytes, and integers as they are.
        architecture: a ``MaskedTransformerArchitecture``: the rarer options, such as the norms of BERT.
        random_state: seed of everything random.
        device: ``"auto"`` takes a GPU where there is one.
        dtype: ``"float32"`` or ``"float64"``: precision of the computation once fitted; sums are float64 in both.

    Norms, activation, positions, dropout and attention window are described at ``TransformerArguments``, and learning
    rate, batch size and limits of training at ``TrainingOptions``. Batches are of windows. The options ``precision``,
    ``compile``, ``perturbation`` and ``linear_start`` of ``training`` are not available.

    Attributes (fitted): ``encoding_``, ``module_``, ``history_`` (a frame: step, seconds, log_prob, validation, ...;
    nats per masked symbol), ``n_parameters_``, ``converged_``, ``interrupted_``, ``fit_seconds_``.

    >>> model = MaskedTransformer(d_model=8, n_layers=1, max_steps=2).fit(["to be", "or not"], validation=None)
    >>> model.pseudo_log_prob(["to", "not"]).shape, model.encode(["to", "not"])[1].shape
    ((2,), (3, 8))
    """

    max_length: int = 128
    objective: MaskingObjective = "tokens"
    mask_fraction: float = 0.15
    span_mean: float = 3.0
    mask_share: float = 0.8
    random_share: float = 0.1
    keep_share: float = 0.1
    encoding: Encoding | Literal["auto"] = "auto"
    random_state: int = 0
    device: str = "auto"
    dtype: str = "float32"
    architecture: MaskedTransformerArchitecture = field(default_factory=MaskedTransformerArchitecture)

    # -- fitting -------------------------------------------------------------------------------------------

    @checked
    def fit(self, X: Any, *, validation: Any = "auto") -> Self:
        """Fit the model to texts or integer sequences.

        Args:
            X: a list of ``str`` or of 1-D integer arrays, or ``Sequences``.
            validation: sequences for early stopping. ``"auto"`` holds out a tenth (whole clusters if ``Sequences`` has
                three or more, or the head of a single sequence), and None holds out nothing.

        Raises:
            ValueError: if the input or a hyperparameter is wrong, before any work. An earlier fit then stays as it was.
        """
        with distributed.propagate_errors():
            return self._fit_to(Data.of(X), validation)

    def _fit_to(self, data: Data, validation: Any) -> Self:
        self._check_budget()
        self._check_architecture()
        part, held_out = hold_out(data, validation, True, self.random_state)
        check_processes_agree(self, data, held_out)
        masking = self._masking()
        if data.X.kind == "vectors":
            raise ValueError(
                f"{type(self).__name__} predicts masked symbols but X is vectors; pass texts or integer sequences"
            )
        encoding = default_encoding(data.X.kind) if self.encoding == "auto" else self.encoding
        setting = Setting.learn(part, Choices(encoding, Categorical(), "given"))
        for each in (data, held_out):
            if each is not None:
                setting.check(each, missing_is_summed_out=False)
        began = time.perf_counter()
        with undone_on_failure(self):
            with interruption.interruptible() as interrupted:
                self.encoding_ = setting.encoding
                rows = self._rows(part.X), [] if held_out is None else self._rows(held_out.X)
                self._train(*rows, masking)
            if interrupted.requested and distributed.is_rank_zero():
                self.history_: pd.DataFrame = interruption.mark_interrupted(self.history_)
                self.converged_ = False
            self.fit_seconds_ = time.perf_counter() - began
            content = distributed.receive_content(self._content)
            if content is not None:
                self._load(content, self.encoding_, Categorical())
        if interrupted.requested and interrupted.signal is not None:
            interruption.warn_interrupted(interrupted.signal, self.fit_seconds_, self.training.checkpoint)
        return self

    @property
    def interrupted_(self) -> bool:
        """True if Ctrl-C or SIGTERM ended ``fit``; the last row of ``history_`` then has ``interrupted`` 1."""
        return interruption.was_interrupted(self.history_)

    def _train(self, rows: list[np.ndarray], held_out: list[np.ndarray], masking: Masking) -> None:
        device = self._device()
        examples = [[Example(row) for row in part] for part in (rows, held_out)]
        checkpoints = checkpoints_of_fit(self, {"encoding": self.encoding_}, *examples, may_change=MAY_CHANGE)
        initial_generator = self._build()
        self.module_.to(device)
        parallel = parallel_of(self, self.n_parameters_, device)
        with training_draws(initial_generator, device) as generator:
            rows_a_batch = sequences_per_batch(self, [len(row) for row in rows], self.max_length)
            batching = Batching(rows_a_batch, self.max_length, carries_state=False)
            data = MaskedData(rows, held_out, masking, batching, self.random_state)
            self.history_, self.converged_ = train_masked(
                self.module_, data, train_config(self), checkpoints, generator, parallel
            )
        if parallel == "shard":
            weights = whole_weights(self.module_)
            self._build()
            self.module_.load_state_dict(weights)
            self.module_.to(device)
        self.module_.eval()

    def _build(self) -> torch.Generator:
        """Make ``module_`` with random initial weights drawn by ``random_state``.

        Returns:
            The generator that drew the weights, for further random draws of the fit.
        """
        generator = torch.Generator().manual_seed(self.random_state)
        with InitialDraws(generator):
            self.module_ = self._network()
        return generator

    def _untrained(self) -> BidirectionalNetwork:
        self._build()
        return self.module_

    # -- saving -------------------------------------------------------------------------------------------

    @property
    def n_parameters_(self) -> int:
        """The number of free parameters of the fitted network."""
        return sum(p.numel() for p in self.module_.parameters())

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safetensors file at ``path``, which ``seqmodels.load`` reads.

        Warn if it uses classes that are not part of seqmodels; these must be passed to ``load``: ``load(path,
        classes=[MyModel])``.
        """
        content = self._content()
        storage.warn_of_classes_to_give(self, self.encoding_)
        storage.write(path, content)

    def _content(self) -> dict[str, Any]:
        self._setting()
        return {
            "model": storage.describe(self),
            "encoding": {**storage.describe(self.encoding_), "state": self.encoding_.state()},
            "observation": storage.describe(Categorical()),
            "history": {k: [float(x) for x in v] for k, v in self.history_.to_dict("list").items()},
            "converged": bool(self.converged_),
            "fit_seconds": float(self.fit_seconds_),
            "state": {name: tensor.float().cpu().numpy() for name, tensor in self.module_.state_dict().items()},
        }

    def _load(self, content: dict[str, Any], encoding: Encoding, observation: Observation) -> Self:
        import pandas as pd

        self.encoding_ = encoding.restore(content["encoding"]["state"])
        self.history_ = pd.DataFrame(content["history"])
        self.converged_ = content["converged"]
        self.fit_seconds_ = content["fit_seconds"]
        sizes = self.get_params(deep=False)
        self.module_ = build_with_weights(
            self._untrained, content["state"], d_model=sizes["d_model"], n_layers=sizes["n_layers"]
        )
        self.module_.eval()
        return self

    # -- what it says of sequences -------------------------------------------------------------------------

    @checked
    def pseudo_log_prob(self, X: Any, *, n_samples: int | None = None, random_state: Seed | None = None) -> np.ndarray:
        r"""Return the pseudo-log-likelihoods ``Σ_t log p(x_t | x_\t)``, ``(n,)``, in nats (Salazar et al. 2020).

        It takes one forward pass per symbol. In a sequence longer than ``max_length`` each symbol is predicted from a
        window of that length around it. If sequences have a past, it is not read.

        Args:
            X: sequences as in ``fit``.
            n_samples: how many symbols of each sequence are masked in turn, drawn without replacement. Their mean times
                the length is an unbiased estimate of the sum. None masks all.
            random_state: seed of the draw, or None for the model's own. The draw depends on the sequence too, but not
                on its place in X. Equal sequences have equal draws, so their errors do not average out; change the seed
                for that.

        Raises:
            ValueError: if ``n_samples`` is below 1, or a sequence cannot be read.
        """
        if n_samples is not None and n_samples < 1:
            raise ValueError(f"n_samples is {n_samples}; pass at least 1, or None for all symbols")
        seed = self.random_state if random_state is None else random_state
        values = self._values(self._readable(X))
        positions = [sampled_positions(v, n_samples, seed) for v in values]
        steps = conditional_log_probs(self._evaluation_module(), values, positions, self.max_length)
        return np.array([len(v) * s.mean() for v, s in zip(values, steps, strict=True)])

    @checked
    def pseudo_score(self, X: Any, *, n_samples: int | None = None, random_state: Seed | None = None) -> float:
        """Return the pseudo-log-likelihood per byte of text or per symbol, in nats: ``Σ pseudo_log_prob / Σ units``.

        Args:
            X: sequences as in ``fit``.
            n_samples: how many symbols of each sequence are masked in turn, drawn without replacement, for an unbiased
                estimate. None masks all.
            random_state: seed of the draw, or None for the model's own.

        Raises:
            ValueError: if ``n_samples`` is below 1, or a sequence cannot be read.
        """
        sequences = self._readable(X)
        pseudo_log_prob = self.pseudo_log_prob(sequences, n_samples=n_samples, random_state=random_state).sum()
        return float(pseudo_log_prob / sequences.n_units.sum())

    @checked
    def encode(self, X: Any, *, layer: int = -1, pooled: bool = False) -> Any:
        """Return the hidden states of the symbols, one array ``(S, d_model)`` for each sequence of S encoded steps.

        Args:
            X: sequences as in ``fit``; if longer than ``max_length`` they are read in windows that overlap by half.
            layer: 0 is the input of the first block, k the output of block k, and -1 the output of the last block.
            pooled: True to return the mean over the symbols of each sequence instead, ``(n, d_model)``.

        Raises:
            ValueError: if there is no such layer.
        """
        rows = self._rows(self._readable(X))
        network = self._evaluation_module()
        n = network.n_layers
        if not -n - 1 <= layer <= n:
            raise ValueError(f"layer is {layer} but the model has {n}; pass 0 to {n}, or -1 for the last")
        states = hidden_states(network, rows, self.max_length, layer % (n + 1))
        inner = [s[1:-1] for s in states]  # without the boundaries
        return np.stack([s.mean(0, dtype=np.float64) for s in inner]) if pooled else inner

    def attention(self, X: Any, *, layer: int = -1, head: int | None = None) -> list[np.ndarray]:
        """Return, for each sequence, the self-attention weights ``(S + 2, S + 2)`` of S steps and two boundaries.

        The boundaries are special symbols before and after the sequence. Row t belongs to step t - 1 of the sequence;
        the first and the last row belong to its boundaries. Each row sums to one. Nothing is masked. In a sequence
        longer than ``max_length`` each row comes from a window, as in ``encode``.

        Args:
            X: sequences as in ``fit``.
            layer: the number of the layer, from 0; a negative one counts from the last, which is the default.
            head: the number of the head, or None for the mean of all heads.

        Raises:
            ValueError: if there is no such layer or head.

        >>> model = MaskedTransformer(d_model=8, n_layers=1, max_steps=2).fit(["to be", "or not"], validation=None)
        >>> model.attention(["to"])[0].shape
        (4, 4)
        """
        check_layer_and_head(self, layer, head)
        rows = self._rows(self._readable(X))
        return self_attention(self._evaluation_module(), rows, self.max_length, layer % self.n_layers, head)

    def fill(self, x: Any, mask: Any) -> Filled:
        """Return the most probable symbol at each masked position of ``x``, predicted from the unmasked symbols only.

        Args:
            x: one raw sequence. Its symbols at masked positions are ignored, but must be there.
            mask: the masked positions, counted in encoded steps (bytes for text, unless encoded otherwise).

        Raises:
            ValueError: if ``mask`` is not a list of positions in the sequence.

        >>> model = MaskedTransformer(d_model=8, n_layers=1, max_steps=2).fit(["to be", "or not"], validation=None)
        >>> filled = model.fill("to b?", mask=[4])
        >>> filled.item[:4], filled.probabilities.shape
        ('to b', (1, 256))
        """
        (values,) = self._values(self._readable([x]))
        places = np.asarray(mask)
        if places.ndim != 1 or places.dtype.kind not in "iu" or not ((places >= 0) & (places < len(values))).all():
            raise ValueError(f"mask is {mask!r}; pass a list of positions from 0 to {len(values) - 1}")
        network = self._evaluation_module()
        inputs = values.copy()
        inputs[places] = self.encoding_.size + MASK
        row = with_boundaries(inputs, self.encoding_.size)
        (states,) = hidden_states(network, [row], self.max_length, network.n_layers)
        with torch.no_grad():
            logits = network.logits(torch.as_tensor(states[1:-1][places], device=self._device()))
        probabilities = logits.double().softmax(-1).cpu().numpy()
        filled = values.copy()
        symbols = probabilities.argmax(1)
        filled[places] = symbols
        return Filled(self.encoding_.decode(filled), symbols, probabilities)

    # -- checks, settings, parts ---------------------------------------------------------------------------

    def _check_architecture(self) -> None:
        for name in ("d_model", "n_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; pass at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; pass a fraction from 0 up to 1")
        config_of(self).check_architecture(self.max_length)

    def _network(self) -> BidirectionalNetwork:
        encoder = TransformerStack(config_of(self), max_length=self.max_length)
        positions = make_positions(self.positions, self.d_model, self.max_length)
        chosen = self.architecture
        options = EmbeddingAndHead(chosen.tie_embeddings, chosen.embedding_norm, chosen.head_transform)
        return BidirectionalNetwork(self.encoding_.size, positions, encoder, options)

    def _check_budget(self) -> None:
        refuse_wrong_arguments(self)
        check_device(self.device)
        check_device_is_here(self.device)
        check_training_options(self)
        for name in ("precision", "compile", "perturbation", "linear_start"):
            value = getattr(self.training, name)
            if value not in ("auto", "float32", False, None):
                raise ValueError(
                    f"{name} is {value!r}, but {a_or_an(type(self))} is trained without; leave it out of training"
                )
        if self.max_length < 3:
            raise ValueError(f"max_length is {self.max_length}; pass at least 3, for a symbol between the boundaries")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype is {self.dtype!r}; pass one of {', '.join(map(repr, DTYPES))}")

    def _masking(self) -> Masking:
        shares = (self.mask_share, self.random_share, self.keep_share)
        return Masking(self.objective, self.mask_fraction, self.span_mean, *shares)

    def _setting(self) -> Setting:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit first")
        return Setting.from_fitted(self.encoding_, Categorical(), "given", conditional=False)

    def _readable(self, X: Any) -> Sequences:
        data = Data.of(X)
        setting = self._setting()
        setting.check(data, missing_is_summed_out=False)
        return data.X

    def _values(self, sequences: Sequences) -> list[np.ndarray]:
        return [self.encoding_.encode(item) for item in sequences]

    def _rows(self, sequences: Sequences) -> list[np.ndarray]:
        return [with_boundaries(values, self.encoding_.size) for values in self._values(sequences)]

    def _evaluation_module(self) -> BidirectionalNetwork:
        """Return the network on the model's device, in its ``dtype`` and in evaluation mode: itself or a copy.

        The caller must not change it.
        """
        return evaluation_copy(self.module_, self._device(), DTYPES[self.dtype])

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")
