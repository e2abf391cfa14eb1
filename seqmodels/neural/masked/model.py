"""``MaskedModel``: trained to predict hidden symbols from both sides. It has no likelihood, so it is no ``SequenceModel``."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch

from seqmodels import distributed, storage
from seqmodels.agreement import check_processes_agree
from seqmodels.encodings import Encoding
from seqmodels.model import DTYPES, NotFittedError
from seqmodels.neural.batches import Batching
from seqmodels.neural.evaluation_copy import evaluation_copy
from seqmodels.neural.masked.bidirectional import BidirectionalModule
from seqmodels.neural.masked.masking import Masking, MaskingObjective, bracket
from seqmodels.neural.masked.training import train_masked
from seqmodels.neural.trained import MAY_CHANGE, Trained
from seqmodels.neural.weights import load_into
from seqmodels.observations import Categorical, Observation
from seqmodels.parameters import Configurable, undone_on_failure
from seqmodels.preparation import Data, Example, Setting, default_encoding, hold_out
from seqmodels.randomness import InitialDraws, training_draws
from seqmodels.sequences import Sequences
from seqmodels.training import checkpoints_of_fit, interruption


@dataclass(kw_only=True, eq=False, repr=False)
class MaskedModel(Trained, Configurable, ABC):
    """Symbols in, hidden ones out: how it is fitted and kept. To add one, define ``_check_architecture`` and ``_module``.

    Args:
        max_length: encoded steps seen at once, the marks of a sequence's beginning and end counted; longer sequences are
            cut in training, and read in windows afterwards.
        objective: ``"tokens"`` or ``"spans"``, see ``Masking``.
        mask_fraction: of the symbols, hidden at a time.
        span_mean: mean length of a span, symbols.
        mask_share, random_share, keep_share: of the hidden symbols, replaced by the mask, by random ones, left as they are.
        encoding: of text, ``"auto"`` is bytes; integers are read as they are.
        random_state: seed of everything random.
        device: ``"auto"`` takes a GPU where there is one.
        dtype: ``"float32"`` or ``"float64"``, of the computation once fitted; sums are float64 in both.

    The other arguments are those of ``Trained``; batches are of pieces.

    Attributes (fitted): ``encoding_``, ``module_``, ``history_`` (a frame: step, seconds, log_prob, validation, ...; nats
    per hidden symbol), ``n_parameters_``, ``converged_``, ``interrupted_``, ``fit_seconds_``.
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

    @abstractmethod
    def _check_architecture(self) -> None:
        """Raise ``ValueError`` for hyperparameters of the module that cannot be, before any work."""

    @abstractmethod
    def _module(self) -> BidirectionalModule:
        """The untrained module for symbols of ``encoding_``."""

    # -- fitting -------------------------------------------------------------------------------------------

    def fit(self, X: Any, *, validation: Any = "auto") -> Self:
        """Fit to texts or integer sequences.

        Args:
            X: a list of ``str`` or of 1-D integer arrays, or ``Sequences``.
            validation: ``"auto"`` holds out a tenth for early stopping (the head of a single sequence); ``None`` holds
                out nothing; or sequences.

        Raises:
            ValueError: bad input or hyperparameters, before any work; an earlier fit stays as it was.
        """
        with distributed.together():
            return self._fit_to(Data.of(X), validation)

    def _fit_to(self, data: Data, validation: Any) -> Self:
        self._check_budget()
        self._check_architecture()
        check_processes_agree(self, data, validation)
        masking = self._masking()
        if data.X.kind == "vectors":
            raise ValueError(
                f"{type(self).__name__} predicts hidden symbols but X is vectors; pass texts or integer sequences"
            )
        part, held_out = hold_out(data, validation, True, self.random_state)
        encoding = default_encoding(data.X.kind) if self.encoding == "auto" else self.encoding
        setting = Setting.learn(part, encoding, Categorical(), "given")
        for checked in (data, held_out):
            if checked is not None:
                setting.check(checked, missing_is_summed_out=False)
        began = time.perf_counter()
        with undone_on_failure(self):
            with interruption.interruptible() as interrupted:
                self.encoding_ = setting.encoding
                rows = self._rows(part.X), [] if held_out is None else self._rows(held_out.X)
                if not distributed.is_first():
                    interrupted.hold()  # a signal here is one to the process that works
                distributed.by_first(type(self).__name__, lambda: self._train(*rows, masking))
            if interrupted.asked and distributed.is_first():
                self.history_: pd.DataFrame = interruption.marked(self.history_)
                self.converged_ = False
            self.fit_seconds_ = time.perf_counter() - began
            content = distributed.content_of_first(self._content)
            if content is not None:
                self._load(content, self.encoding_, Categorical())
        if interrupted.asked and interrupted.signal is not None:
            interruption.tell(interrupted.signal, self.fit_seconds_, self.checkpoint, stacklevel=3)
        return self

    @property
    def interrupted_(self) -> bool:
        """Whether Ctrl-C or SIGTERM ended ``fit``; the last line of ``history_`` then has 1 in a column ``interrupted``."""
        return interruption.was_interrupted(self.history_)

    def _train(self, rows: list[np.ndarray], held_out: list[np.ndarray], masking: Masking) -> None:
        device = self._device()
        examples = [[Example(row) for row in part] for part in (rows, held_out)]
        checkpoints = checkpoints_of_fit(self, {"encoding": self.encoding_}, *examples, may_change=MAY_CHANGE)
        drawn = self._build()
        self.module_.to(device)
        with training_draws(drawn, device) as generator:
            self.history_, self.converged_ = train_masked(
                self.module_,
                rows,
                held_out,
                masking,
                Batching(self._rows_a_batch([len(row) for row in rows], self.max_length), self.max_length, carries_state=False),
                self._recipe(),
                self.random_state,
                checkpoints,
                generator,
            )
        self.module_.eval()

    def _build(self) -> torch.Generator:
        """Make the untrained module; the generator that drew its weights, to go on with."""
        drawn = torch.Generator().manual_seed(self.random_state)
        with InitialDraws(drawn):
            self.module_ = self._module()
        return drawn

    def _made(self) -> BidirectionalModule:
        self._build()
        return self.module_

    # -- keeping -------------------------------------------------------------------------------------------

    @property
    def n_parameters_(self) -> int:
        """Number of free parameters."""
        return sum(p.numel() for p in self.module_.parameters())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safetensors file; ``seqmodels.load`` reads it.

        Warns of classes that are not seqmodels' own, which ``load`` must be given: ``load(path, classes=[MyModel])``.
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
        self.encoding_ = encoding.restore(content["encoding"]["state"])
        self.history_, self.converged_ = pd.DataFrame(content["history"]), content["converged"]
        self.fit_seconds_ = content["fit_seconds"]
        sizes = self.get_params(deep=False)
        self.module_ = load_into(self._made, content["state"], d_model=sizes["d_model"], n_layers=sizes["n_layers"])
        self.module_.eval()
        return self

    # -- inside --------------------------------------------------------------------------------------------

    def _check_budget(self) -> None:
        self._check_training()
        if self.max_length < 3:
            raise ValueError(f"max_length is {self.max_length}; pass at least 3, for a symbol between two marks")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype is {self.dtype!r}; pass one of {', '.join(map(repr, DTYPES))}")

    def _masking(self) -> Masking:
        shares = (self.mask_share, self.random_share, self.keep_share)
        return Masking(self.objective, self.mask_fraction, self.span_mean, *shares)

    def _setting(self) -> Setting:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit first")
        return Setting.of(self.encoding_, Categorical(), "given", conditional=False)

    def _readable(self, X: Any) -> Sequences:
        data, setting = Data.of(X), self._setting()
        setting.check(data, missing_is_summed_out=False)
        return data.X

    def _values(self, sequences: Sequences) -> list[np.ndarray]:
        return [self.encoding_.encode(item) for item in sequences]

    def _rows(self, sequences: Sequences) -> list[np.ndarray]:
        return [bracket(values, self.encoding_.size) for values in self._values(sequences)]

    def _ready(self) -> BidirectionalModule:
        """The module on its device, in the dtype of computation, in evaluation mode: ``module_``, or a copy. Not to be changed."""
        return evaluation_copy(self.module_, self._device(), DTYPES[self.dtype])

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")
