"""``NeuralModel``: the base of all sequence models that are networks trained by gradient."""

from __future__ import annotations

import copy
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from seqmodels.common import distributed
from seqmodels.common.display import a_or_an
from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.common.parameters import checked
from seqmodels.common.randomness import InitialDraws, fit_generator, training_draws
from seqmodels.encodings import Encoding
from seqmodels.encodings.examples import Example, no_garbage_collection
from seqmodels.encodings.inputs import chosen_inputs
from seqmodels.encodings.on_disk import OnDisk
from seqmodels.encodings.precision import DTYPES, squares_exceed_float32, where_largest
from seqmodels.encodings.raw_data import MAX_HELD_OUT, Data
from seqmodels.generation import Cursor, Prediction
from seqmodels.model import SequenceModel
from seqmodels.model.fitting import apply_setting, learn_setting, resolved_choices
from seqmodels.model.size_for_budget import largest_size
from seqmodels.neural.architecture import Architecture
from seqmodels.neural.batches import Batching, PaddedBatch, Row, StepRange, Windowing, assemble, weight_of
from seqmodels.neural.checked_weights import build_with_weights
from seqmodels.neural.cursor import NetworkCursor, StepperCursor
from seqmodels.neural.embedding_and_head import IOSpec, SequenceModule, SourceSpec
from seqmodels.neural.evaluation_copy import evaluation_copy
from seqmodels.neural.linear_start import linear_prediction
from seqmodels.neural.network import Network, map_state
from seqmodels.neural.ops.precision import autocast, autocast_dtype
from seqmodels.neural.scoring import batch_log_prob, event_log_probs, log_prob_steps, log_prob_sums, output_parameters
from seqmodels.neural.seconds_per_batch import seconds_per_batch
from seqmodels.neural.training_options import (
    DEFAULT_DROPOUT,
    DEFAULT_STEPS,
    DEFAULT_WIDTH,
    DROPOUT_OF_SMALL_DATA,
    FEW_PASSES,
    FEW_PASSES_OF_PAIRS,
    FEWEST_BATCHES,
    MANY_PASSES,
    MAY_CHANGE,
    MOST_SHORT_SERIES,
    SHORT_SERIES,
    STEPS_ON_SHORT_SERIES,
    STEPS_WITHOUT_VALIDATION,
    WIDTH_OF_FEW_BATCHES,
    TrainingOptions,
    check_training_options,
    compiled,
    dropout_for,
    learns_by_heart,
    only_time_is_given,
    parallel_of,
    passes_by_steps,
    sequences_per_batch,
    train_config,
    width_for,
)
from seqmodels.observations import AutoregressiveGaussian, Categorical, GaussianMixture, Observation
from seqmodels.sequences import Kind
from seqmodels.training import (
    BatchResult,
    Checkpoints,
    Perturbation,
    TrainConfig,
    Transformation,
    checkpoints_of_fit,
    train,
    whole_weights,
)
from seqmodels.training.gradient_training import DEFAULT_PATIENCE

WIDTH_STEP = 8  # that a budget of parameters widens networks by
MOST_LAYERS = 10_000  # that are made within seconds
MIN_WEIGHTS_TO_COUNT = 1 << 26  # of one layer, about: a smaller network is made without a look at memory
ROWS_PER_STEP = 256  # rows of a table of inputs that cost about as much as a step saves by it
SYMBOLS_AT_ONCE = 1 << 20  # that are counted, of those on disk
BACKGROUND = 0.005  # weight of the broad Gaussian that bounds what a step costs that a network did not foresee
VALIDATION_STEPS = 512  # at most in one sequence: longer ones of the held-out part are cut, to be scored side by side


@dataclass(kw_only=True, eq=False, repr=False)
class NeuralModel(TrainingOptions, SequenceModel, ABC):
    """A sequence model that consists of a network and an observation, trained by gradient on the log-likelihood.

    The network maps the earlier steps of a sequence to a hidden state; the observation is the distribution of the next
    step given the hidden state. ``observation="auto"`` is ``Categorical`` for symbols, and for vectors
    ``GaussianMixture(4, "full", background=0.005)``, whose broad background bounds what a step costs that the network
    did not foresee; other steps lose 0.005 nats each. To add a model, subclass with the network's own hyperparameters
    and define ``_network``, ``_windowing``, ``_bptt_steps`` and ``_carries_state``.

    Args:
        d_model: width of the hidden state.
        n_layers: number of layers of the network.
        dropout: fraction of features that is dropped in training.
        architecture: the rarer options of the network itself, such as tied embeddings.
        inputs: names of the exogenous inputs (``Sequences(items, inputs=...)``) that the model is given; True: all of
            them; None: none. The inputs of a step are known when that step is predicted. Models with an encoder and
            taggers take none.

    Learning rate, batch size and limits of training are described at ``TrainingOptions``; encoding, observation, seed,
    device and precision at ``SequenceModel``.
    """

    d_model: Any = 256  # int; "auto" too where ``_width_follows_data``
    n_layers: int = 1
    dropout: Any = 0.1  # float; "auto" too where ``_dropout_follows_data``
    architecture: Architecture = field(default_factory=Architecture)
    inputs: Sequence[str] | bool | None = None

    _fits_in_parallel: ClassVar[bool] = True
    _sums_out_missing: ClassVar[bool] = True
    _reads_from_disk: ClassVar[bool] = True
    _reads_series: ClassVar[bool] = True
    _has_first = False  # whether the linear skip of the module has outputs of its own for the first step
    _size: ClassVar[str | None] = "d_model"
    _width_follows_data: ClassVar[bool] = False  # whether d_model may be "auto"
    _dropout_follows_data: ClassVar[bool] = False  # whether dropout may be "auto"
    _trained_on_missing = False  # whether training had missing values, so that the module reads where they are
    _carries_state: ClassVar[bool] = True  # whether training hands the state on, from steps to the next steps

    @abstractmethod
    def _network(self) -> Network[Any]:
        """Return the network of these hyperparameters, without embedding and output layer, with new random weights."""

    @abstractmethod
    def _windowing(self) -> Windowing:
        """Return the overlapping windows in which the model reads long sequences when it scores them.

        Raises:
            ValueError: if ``context`` or ``stride`` is impossible, such as a stride longer than the context.
        """

    @abstractmethod
    def _bptt_steps(self) -> int:
        """Return the number of steps that are back-propagated through at once in training."""

    # -- SequenceModel -------------------------------------------------------------------------------------

    @property
    def context_(self) -> int | None:
        return self._windowing().context

    @property
    def n_parameters_(self) -> int:
        return sum(p.numel() for p in self.module_.parameters())

    @property
    def _reads_inputs(self) -> bool:
        return bool(self.inputs)

    def _inputs_among(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return chosen_inputs(self.inputs, names)

    def _default_observation(self, kind: Kind) -> Observation:
        return GaussianMixture(4, "full", background=BACKGROUND) if kind == "vectors" else Categorical()

    def _limits(self, seconds: float | None, steps: int | None) -> dict[str, Any]:
        if seconds is None and steps is None:
            return {}
        return {"max_steps": steps, "max_epochs": None, "max_seconds": seconds}

    def _size_within(self, n_parameters: int, data: Data) -> int | None:
        setting = learn_setting(self.clone(), data)  # only the encodings are fitted, once

        def count(d_model: int) -> int:
            like = self.clone().set_params(d_model=d_model)
            like._check_hyperparameters()
            apply_setting(like, setting)
            with torch.device("meta"):
                like._build()
            return like.n_parameters_

        heads = self.get_params(deep=False).get("n_heads", 1)
        step = WIDTH_STEP if heads == "auto" else math.lcm(WIDTH_STEP, 2 * heads)
        return largest_size(count, n_parameters, step, "d_model")

    def _check_hyperparameters(self) -> None:
        check_training_options(self)
        if self.n_layers > MOST_LAYERS:
            raise ValueError(f"n_layers is {self.n_layers:,}; pass at most {MOST_LAYERS:,}")
        for name in ("d_model", "n_layers"):
            if name == "d_model" and self._width_follows_data and self.d_model == "auto":
                continue
            if not (isinstance(getattr(self, name), int | np.integer) and getattr(self, name) >= 1):
                raise ValueError(f"{name} is {getattr(self, name)}; pass at least 1")
        if not (self.dropout == "auto" and self._dropout_follows_data):
            if self.dropout == "auto" or not 0 <= self.dropout < 1:
                raise ValueError(f"dropout is {self.dropout}; pass a fraction from 0 up to 1")
        if self._reads_inputs and (self._has_encoder or self._is_tagger):
            raise ValueError(
                f"{a_or_an(type(self))} reads sources and no inputs beside them; leave inputs out, or take what "
                "reads inputs: HMM, ElmanRNN, LSTM, GRU or Transformer, fitted without y"
            )
        if self._bptt_steps() < 1:
            names = [name for name in ("context", "bptt", "piece", "max_length") if hasattr(self, name)]
            raise ValueError(f"{' or '.join(names)} is {self._bptt_steps()}; pass at least 1")
        self._windowing()

    @property
    def d_model_(self) -> int:
        """The width of the hidden state: ``d_model``, or the width chosen in ``fit`` for ``d_model="auto"``."""
        if self.d_model == "auto":
            return int(self.__dict__.get("_width", DEFAULT_WIDTH))
        return int(self.d_model)

    @property
    def dropout_(self) -> float:
        """The fraction of features dropped in training: ``dropout``, or the fraction that ``fit`` chose for "auto"."""
        if self.dropout == "auto":
            return float(self.__dict__.get("_dropout", DEFAULT_DROPOUT))
        return float(self.dropout)

    def _choose_width(self, examples: list[Example]) -> None:
        """Choose the width for ``d_model="auto"``: by the number of steps of training data, or the default.

        It follows the data if ``max_seconds`` is the only limit of training, or for a few short series. A model that
        continues from fitted weights (``warm_start``) keeps its width.

        Args:
            examples: encoded training data.
        """
        if self.d_model == "auto" and not (self.warm_start and hasattr(self, "module_")):
            n_steps = sum(len(e.values) for e in examples)
            is_by_data = only_time_is_given(self) or self._is_short_series(examples)
            self._width = width_for(n_steps) if is_by_data else DEFAULT_WIDTH

    def _choose_by_passes(self, examples: list[Example], checkpoints: Checkpoints) -> tuple[bool, Checkpoints]:
        """Choose the dropout for ``dropout="auto"`` by the number of passes that the run will make over the data.

        More is dropped, and weights are averaged, if the run goes over the data many times. Short series and labels
        keep their defaults, and so do several processes to which seconds are given, because each may have a shard of
        the network. If the seconds are too few for a network as wide as the data allow, ``d_model="auto"`` is made
        narrower. Of pairs only the dropout is chosen: 0 for less than four passes, and then the default.

        Args:
            examples: training data.
            checkpoints: the run's checkpoints.

        Returns:
            True if ``averaging="auto"`` averages weights; and checkpoints that also store what was chosen by timing,
            which a resumed run keeps.
        """
        self._dropout, self._sees_data_once = DEFAULT_DROPOUT, False
        if self._is_tagger or self._is_short_series(examples):
            return False, checkpoints
        if self.source_encoding_ is not None:
            return False, self._choose_dropout_of_pairs(examples, checkpoints)
        if only_time_is_given(self):
            is_asked = self._dropout_follows_data and "auto" in (self.d_model, self.dropout, self.training.averaging)
            if not is_asked or distributed.is_distributed():
                return False, checkpoints
            may_narrow = self.d_model == "auto" and not (self.warm_start and hasattr(self, "module_"))
            if "passes" not in checkpoints.chosen:
                n_batches, passes = self._batches_in_time(examples)
                if may_narrow and n_batches < FEWEST_BATCHES and self.d_model_ > WIDTH_OF_FEW_BATCHES:
                    self._width = WIDTH_OF_FEW_BATCHES
                    n_batches, passes = self._batches_in_time(examples)
                checkpoints = checkpoints.with_chosen({"passes": passes, "width": self.d_model_})
            passes = float(checkpoints.chosen["passes"])
            if may_narrow:
                self._width = int(checkpoints.chosen["width"])
            self._dropout, self._sees_data_once = dropout_for(passes), passes < FEW_PASSES
            return passes >= MANY_PASSES, checkpoints
        by_heart = learns_by_heart(self, sum(len(e.values) for e in examples))
        if by_heart:
            self._dropout = DROPOUT_OF_SMALL_DATA
        return by_heart, checkpoints

    def _choose_dropout_of_pairs(self, examples: list[Example], checkpoints: Checkpoints) -> Checkpoints:
        if self.dropout != "auto" or (only_time_is_given(self) and distributed.is_distributed()):
            return checkpoints
        if only_time_is_given(self):
            if "passes" not in checkpoints.chosen:
                checkpoints = checkpoints.with_chosen({"passes": self._batches_in_time(examples)[1]})
            passes = float(checkpoints.chosen["passes"])
            self._sees_data_once = passes < FEW_PASSES
        else:
            rows = [Row.from_example(e, self._has_encoder, self.length_ == "stop") for e in examples]
            passes = passes_by_steps(self, self._batching(rows).n_batches(rows))
        self._dropout = 0.0 if passes < FEW_PASSES_OF_PAIRS else DEFAULT_DROPOUT
        return checkpoints

    def _batches_in_time(self, examples: list[Example]) -> tuple[float, float]:
        """Return how many batches, and passes over the data, ``max_seconds`` allows, by timing a few batches."""
        assert self.max_seconds is not None
        like, device = copy.copy(self).set_params(training__compile=False), self._device()
        generator = like._build()
        like.module_.to(device, torch.float32).train()
        rows = like._rows(examples)
        batching = like._batching(rows)
        objective = _Objective(like, rows, (1.0, 0.0), None)
        with training_draws(generator, device):
            epoch = batching.epoch(rows, np.random.default_rng([self.random_state, 0]))
            seconds = seconds_per_batch(like.module_, epoch, objective, self.max_seconds)
        n_batches = self.max_seconds / max(seconds, 1e-9)
        return n_batches, n_batches / batching.n_batches(rows)

    def _batching(self, rows: list[Row]) -> Batching:
        bptt = self._bptt_steps()
        return Batching(sequences_per_batch(self, [row.n_steps for row in rows], bptt), bptt, self._carries_state)

    def _is_short_series(self, examples: list[Example]) -> bool:
        """Return True for one to five series of vectors, without sources, that have at most 1000 frames together.

        A network of the usual size overfits them.
        """
        is_few = self.encoding_.reads == "vectors" and len(examples) <= MOST_SHORT_SERIES
        return is_few and self.source_encoding_ is None and sum(len(e.values) for e in examples) <= SHORT_SERIES

    def _fit(self, train_examples: list[Example], validation: list[Example]) -> None:
        self._check_perturbation()
        self._choose_width(train_examples)
        self._check_memory()
        _check_float32(train_examples, "training")
        _check_float32(validation, "validation")
        device = self._device()
        checkpoints = checkpoints_of_fit(
            self, resolved_choices(self), train_examples, validation, may_change=MAY_CHANGE
        )
        previous = self.module_ if self.warm_start and hasattr(self, "module_") else None
        examples = [*train_examples, *validation]
        self._trained_on_missing = self.encoding_.emits == "vectors" and (
            any(_has_missing(example) for example in examples)
            or (previous is not None and previous.missing is not None)
        )
        starts_linear = self.training.linear_start and self.observation_.starts_linear
        self._has_first = starts_linear if previous is None else previous.spec.has_first
        by_heart, checkpoints = self._choose_by_passes(train_examples, checkpoints)
        initial_generator = self._build()
        rows = self._rows(train_examples)
        is_first = self._has_first and self.module_.skip is not None and previous is None
        linear = linear_prediction(rows) if is_first else None
        if linear is not None:
            start = self.observation_.starting_point(self.encoding_.size, self._starting_generator())
            self.module_.fit_linear(self.observation_.starting_linear(start, linear))
        elif self.observation_.emits == "vectors":
            self.module_.fit_bias(self.observation_, *_frame_sum(train_examples))
        elif only_time_is_given(self):  # else as ever: the same steps give the same figures
            self.module_.fit_bias(self.observation_, *_symbol_counts(train_examples, self.encoding_.size))
        if previous is not None:
            self._continue_from(previous)
        self.module_.to(device, torch.float32)
        n_steps = DEFAULT_STEPS
        if self._is_short_series(train_examples):
            n_steps = STEPS_ON_SHORT_SERIES if validation else STEPS_WITHOUT_VALIDATION
        batching = self._batching(rows)
        objective = _Objective(self, rows, _steps_to_units(train_examples), self.training.perturbation)
        config = train_config(self, n_steps, learns_by_heart=by_heart)
        if self._sees_data_once and self.training.patience == DEFAULT_PATIENCE:
            config = replace(config, patience=2 * config.evaluations)  # more than there are
        if self.verbose is True and distributed.is_rank_zero():
            tqdm.write(self._chosen(rows, batching, config), file=sys.stderr)
        held_out = _limit(validation, MAX_HELD_OUT, aligned=self._is_tagger)
        parallel = parallel_of(self, self.n_parameters_, device)
        with training_draws(initial_generator, device, compiled=bool(self.training.compile)) as generator:
            self.history_, self.converged_ = train(
                self.module_,
                lambda number: batching.epoch(rows, np.random.default_rng([self.random_state, number])),
                objective,
                (lambda: self._nats_per_unit(held_out)) if held_out else None,
                config,
                batching.n_batches(rows),
                carrier=objective if self._carries_state else None,
                checkpoints=checkpoints,
                generator=generator,
                parallel=parallel,
                units=self.module_.network.units,
            )
        if parallel == "shard":
            self._gather_module(device)
        self.module_.eval()

    def _chosen(self, rows: list[Row], batching: Batching, config: TrainConfig) -> str:
        """Return a line for the progress display: the values chosen for ``"auto"``, and the amount of data.

        Args:
            rows: training sequences.
            batching: their division into batches.
            config: arguments of the training loop, whose limits are shown.
        """
        limits = {"max_steps": config.max_steps, "max_epochs": config.max_epochs, "max_seconds": config.max_seconds}
        choices = {
            "d_model": self.d_model_,
            "n_layers": self.n_layers,
            "dropout": self.dropout_,
            "averaging": config.averaging,
            "batch_size": batching.batch_size,
            **{name: limit for name, limit in limits.items() if limit is not None},
        }
        said = ", ".join(f"{name}={value}" for name, value in choices.items())
        n_steps = sum(row.n_steps for row in rows)
        return f"{type(self).__name__}({said}): {self.n_parameters_:,} parameters, {n_steps:,} steps of training data"

    def _gather_module(self, device: torch.device) -> None:
        """Replace ``module_``, of which this process has a shard, by the whole one; all processes call this at once.

        Args:
            device: device on which the whole module is placed.
        """
        weights = whole_weights(self.module_)
        self._build()
        self.module_.load_state_dict(weights)
        self.module_.to(device)

    def _check_perturbation(self) -> None:
        if self.training.perturbation is None:
            return
        if self.encoding_.emits != "vectors" or set(self.observation_.values(self.encoding_.size)) != {"reals"}:
            raise ValueError("only vectors of real features can be perturbed; pass perturbation=None")
        if self._is_tagger or self._has_encoder:
            raise ValueError(
                "a source and its targets would have to be perturbed alike, which is not known how to; pass "
                "perturbation=None"
            )

    def _continue_from(self, previous: SequenceModule[Any]) -> None:
        weights = previous.state_dict()
        shapes = {name: value.shape for name, value in weights.items()}
        if {name: value.shape for name, value in self.module_.state_dict().items()} != shapes:
            raise ValueError(
                "the hyperparameters differ from what was fitted, so warm_start cannot continue; set them back, or "
                "warm_start=False"
            )
        self.module_.load_state_dict(weights)

    def _build(self) -> torch.Generator:
        """Make ``module_`` with random initial weights drawn by ``random_state``.

        Returns:
            The generator that drew the weights, for further random draws of the fit.
        """
        generator = torch.Generator().manual_seed(self.random_state)
        with InitialDraws(generator):
            self._make_module()
        return generator

    def _make_module(self) -> None:
        network = self._network()
        sources = self.source_encoding_
        spec = IOSpec(
            reads=self.encoding_.emits,
            size=self.encoding_.size,
            conditional=sources is not None,
            has_end=self.length_ == "stop",
            tied_scale=self._tied_scale(),
            source=None if sources is None or self._source_shares_encoding() else _source_spec(sources),
            has_missing=self._trained_on_missing,
            has_first=self._has_first,
            n_exogenous=0 if self._input_scaling is None else len(self._input_scaling.names),
        )
        self.module_: SequenceModule[Any] = SequenceModule(network, self.observation_, spec, self._starting_generator())

    def _starting_generator(self) -> torch.Generator:
        """Return the generator of the random draws in ``Observation.starting_point``, seeded by ``random_state``."""
        return torch.Generator().manual_seed(self.random_state)

    def _reads_missing(self) -> bool:
        module = self.module_
        return self._sums_out(self.observation_) and (module.missing is not None or not module.network.reads_past)

    def _sums_out(self, observation: Observation) -> bool:
        return super()._sums_out(observation) or isinstance(observation, AutoregressiveGaussian)

    def _source_shares_encoding(self) -> bool:
        return not self._has_encoder or self.architecture.tie_embeddings

    def _tied_scale(self) -> float | None:
        if self.architecture.tie_embeddings and self.encoding_.emits == "vectors":
            raise ValueError("vectors have no table of embeddings to tie; pass tie_embeddings=False")
        scale = self.d_model_**0.5 if self.architecture.scale_embeddings else 1.0
        return scale if self.architecture.tie_embeddings else None

    def _rows(self, examples: list[Example]) -> list[Row]:
        reads_source, has_end = self.module_.network.reads_source, self.length_ == "stop"
        with no_garbage_collection():
            return [Row.from_example(e, reads_source, has_end) for e in examples]

    def _steps(self, examples: list[Example]) -> list[np.ndarray]:
        return log_prob_steps(self._evaluation_module(), self.observation_, self._rows(examples), self._windowing())

    def _sums_of_steps(self, examples: list[Example]) -> np.ndarray:
        return log_prob_sums(self._evaluation_module(), self.observation_, self._rows(examples), self._windowing())

    def _event_log_probs(self, examples: list[Example]) -> list[np.ndarray]:
        return event_log_probs(self._evaluation_module(), self.observation_, self._rows(examples), self._windowing())

    def _step_predictions(self, examples: list[Example], *, given_rest: bool = False) -> list[Prediction] | None:
        if given_rest or self.observation_.n_past:
            return None
        module = self._evaluation_module()
        tables = output_parameters(module, self.observation_, self._rows(examples), self._windowing())
        observation = self.observation_.bound(module.shared).on_cpu()
        return [
            Prediction(observation, torch.from_numpy(table[: len(example.values), None]), None, None, None)
            for table, example in zip(tables, examples, strict=True)
        ]

    @property
    def _further_widths(self) -> tuple[int, ...]:
        """The widths of the network's weight matrices other than ``d_model`` and the alphabet; at least one."""
        return (self.d_model_,)

    def _check_memory(self) -> None:
        """Raise ``ValueError`` if weights, gradients and the optimiser's two moments do not fit in memory.

        Where several processes train with shards, each of them holds a part of these.
        """
        what = f"training {a_or_an(type(self))} of"
        way_out = "pass a smaller d_model or n_layers, or data of fewer symbols"
        widest = max(self.n_layers * self.d_model_, self.encoding_.size, *self._further_widths)
        refuse_beyond_memory(f"{what} {self.d_model_:,} x {widest:,} weights", 16.0 * self.d_model_ * widest, way_out)
        if self.d_model_ * widest < MIN_WEIGHTS_TO_COUNT:  # not worth building the network twice
            return
        like = copy.copy(self)
        with torch.device("meta"):
            like._build()
        n_bytes = 16.0 * like.n_parameters_
        if self.training.parallel != "replicate" and distributed.is_distributed():
            # Each process has a shard of them, but whole weights before and after training.
            n_bytes = n_bytes / distributed.n_processes() + 4.0 * like.n_parameters_
        refuse_beyond_memory(f"{what} {like.n_parameters_:,} parameters", n_bytes, way_out)

    def _nats_per_unit(self, examples: list[Example]) -> float:
        rows = self._rows(examples)
        sums = log_prob_sums(self.module_.eval(), self.observation_, rows, self._windowing(), shares=True)
        log_prob = distributed.sum_of(float(sum(sums.tolist())))
        return (log_prob + sum(e.log_det for e in examples)) / sum(e.n_units for e in examples)

    def _evaluation_module(self) -> SequenceModule[Any]:
        """Return the module on the model's device, in its ``dtype`` and in evaluation mode: itself or a copy.

        The caller must not change it.
        """
        return evaluation_copy(self.module_, self._device(), DTYPES[self.dtype])

    # -- the cursor ----------------------------------------------------------------------------------------

    @checked
    def cursor(self, n_steps: int | None = None) -> Cursor:
        self._setting()
        base = NetworkCursor(self._evaluation_module(), self.observation_, self._windowing())
        if n_steps is not None and n_steps * ROWS_PER_STEP < self.encoding_.size:
            return base
        return StepperCursor.from_network_cursor(base, compiled=self._compiles_steps()) or base

    def _compiles_steps(self) -> bool:
        """Return True if single steps of generation are to be compiled by numba (the network's ``compiled_stepper``).

        Raises:
            ValueError: if compiled steps are asked for but cannot be made.
        """
        return False

    # -- keeping -------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        return {name: tensor.float().cpu().numpy() for name, tensor in self.module_.state_dict().items()}

    def _restore(self, state: dict[str, Any]) -> None:
        self._trained_on_missing = "missing.weight" in state
        skip = state.get("skip.weight")
        self._has_first = skip is not None and np.shape(skip)[-1:] == (self.encoding_.size + 1,)
        if self.d_model == "auto" and "begin" in state:
            self._width = np.asarray(state["begin"]).size  # of a file that is none, refused next
        build_with_weights(self._untrained, state, d_model=self.d_model_, n_layers=self.n_layers)
        self.module_.eval()

    def _untrained(self) -> SequenceModule[Any]:
        self._build()
        return self.module_


class _Objective:
    """The training objective: log-probability of a batch, from the network's state after the batch before.

    Calling it with a batch, ``(ranges, continues)`` as ``Batching.epoch`` yields it, returns a ``BatchResult``.

    Args:
        model: the model, whose ``module_`` is trained.
        rows: training sequences, to which the ranges of a batch refer.
        units: two means over encoded steps: units of raw data, and log-determinant of the encoding
            (``_steps_to_units``).
        perturbation: random transformation of the vectors of each batch; None: there is none.
    """

    def __init__(
        self, model: NeuralModel, rows: list[Row], units: tuple[float, float], perturbation: Perturbation | None
    ) -> None:
        self.module, self.observation, self.rows = model.module_, model.observation_, rows
        self.units_per_step, self.log_det_per_step = units
        self.device = model._device()
        self.precision = autocast_dtype(model.training.precision, self.device)
        self.batch_log_prob = compiled(batch_log_prob, model.training.compile)
        self.perturbation = perturbation
        # Of the network, with a perturbation also what its sequences go through; None before the first batch, and where
        # several processes share a batch that is too small to have rows for all.
        self.carried_state: Any = None

    def __call__(self, batch: tuple[list[StepRange], bool]) -> BatchResult:
        ranges, continues = distributed.shard(batch[0]), batch[1]
        if not ranges:
            return self._without_rows(batch[0])
        result = self._of_rows(ranges, continues)
        return replace(result, weight=weight_of(self.rows, batch[0]))

    def _without_rows(self, ranges: list[StepRange]) -> BatchResult:
        """Return the result of a process that has no rows of a shared batch: log-probability zero, with zero gradients.

        It calls the network as often as the other processes do, because they wait for each other in every call.

        Args:
            ranges: all ranges of the batch, which the other processes divide among themselves.
        """
        result = self._of_rows([StepRange(r.row, r.begin, r.begin + 1) for r in ranges[:1]], continues=False)
        self.carried_state = None
        zero = torch.where(torch.isfinite(result.weighted_log_prob), result.weighted_log_prob, 0.0) * 0.0
        return BatchResult(zero, weight_of(self.rows, ranges), torch.zeros(()), 0.0, torch.zeros(()))

    def _of_rows(self, ranges: list[StepRange], continues: bool) -> BatchResult:
        """Return the log-probability of ranges of steps, with its weights and counts.

        Args:
            ranges: the steps to read, one range for each row of the batch.
            continues: True to start from the network's state after the last call; False to start anew.
        """
        assembled = assemble(
            self.rows,
            ranges,
            self.observation.n_past,
            self.device,
            torch.float32,
            aligned_sources=self.module.network.aligned,
        )
        transformation: Transformation | None = None
        if continues:
            # A copy, since under CUDA graphs the next step is written over the last one's.
            state = map_state(lambda kept: kept.detach().clone(), self.carried_state)
            if self.perturbation is not None:
                state, transformation = state[0], Transformation(*state[1])
        if self.perturbation is not None:
            transformation = transformation or self._drawn_transformation(assembled)
            assembled = self._perturbed(assembled, transformation)
        if not continues:
            with autocast(self.device, self.precision):
                state = self.module.start(len(ranges), assembled.source, assembled.source_mask)
        log_prob, output_parameters, state = self.batch_log_prob(
            self.module, self.observation, assembled, state, self.precision
        )
        self.carried_state = state if transformation is None else (state, tuple(transformation))
        scored = assembled.step_weights > 0
        scored_log_prob = torch.where(scored, log_prob, 0.0)
        hits = self.observation.floor_hits(output_parameters.detach(), self.module.spec.size)
        return BatchResult(
            weighted_log_prob=(scored_log_prob * assembled.step_weights).sum(),
            weight=weight_of(self.rows, ranges),
            log_prob=scored_log_prob.detach().double().sum() + self.log_det_per_step * assembled.n_steps,
            n_units=self.units_per_step * assembled.n_steps,
            floor_hits=(hits & scored).sum(),
        )

    def _drawn_transformation(self, batch: PaddedBatch) -> Transformation:
        assert self.perturbation is not None
        return self.perturbation.draw(len(batch.inputs), batch.inputs.shape[-1], fit_generator(), batch.inputs)

    def _perturbed(self, batch: PaddedBatch, transformation: Transformation) -> PaddedBatch:
        assert self.perturbation is not None
        return replace(
            batch,
            inputs=self.perturbation.noisy(transformation(batch.inputs), fit_generator()),
            targets=transformation(batch.targets),
            past=None if batch.past is None else transformation(batch.past),
        )


def _check_float32(examples: list[Example], part: str) -> None:
    for i, example in enumerate(examples):
        for values in (example.values, example.source):
            if values is not None and squares_exceed_float32(values):
                raise ValueError(
                    f"sequence {i} of the {part} part has {where_largest(values)}; networks are trained in "
                    "float32, which cannot hold its square: remove or rescale the value"
                )


def _has_missing(example: Example) -> bool:
    if isinstance(example.values, OnDisk):
        return example.values.has_missing
    parts = [values for values in (example.values, example.source) if values is not None]
    return any(bool(np.isnan(values).any()) for values in parts if values.dtype.kind == "f")


def _source_spec(encoding: Encoding) -> SourceSpec:
    vectors = encoding.reads == "vectors"
    return SourceSpec("vectors" if vectors else "symbols", encoding.size, encoding.values() if vectors else ())


def _frame_sum(examples: list[Example]) -> tuple[Tensor, float]:
    """Return the sum of all frames (D features), ``(D,)``, and their number, each sequence multiplied by its weight."""
    sums = [
        e.weight * (e.values.sum() if isinstance(e.values, OnDisk) else np.nansum(e.values, axis=0)) for e in examples
    ]
    return torch.as_tensor(np.sum(sums, axis=0)), sum(e.weight * len(e.values) for e in examples)


def _symbol_counts(examples: list[Example], n_symbols: int) -> tuple[Tensor, float]:
    """Return how often each of V symbols occurs, ``(V,)``, weighted by sequence, and the sum of these counts."""
    counts = np.zeros(n_symbols)
    for example in examples:
        for begin in range(0, len(example.values), SYMBOLS_AT_ONCE):
            np.add.at(counts, np.asarray(example.values[begin : begin + SYMBOLS_AT_ONCE]), example.weight)
    return torch.as_tensor(counts), float(counts.sum())


def _steps_to_units(examples: list[Example]) -> tuple[float, float]:
    """Return two means over the encoded steps of all examples.

    Returns:
        Number of units of the raw data for each step, and log-determinant of the encoding in nats for each step.
    """
    n_steps = sum(len(e.values) for e in examples)
    return sum(e.n_units for e in examples) / n_steps, sum(e.log_det for e in examples) / n_steps


def _limit(examples: list[Example], n_steps: int, *, aligned: bool = False) -> list[Example]:
    """Return the first examples that have ``n_steps`` steps together, cut into pieces that can be scored side by side.

    Args:
        examples: encoded sequences. A piece of a sequence with a past (earlier steps that are only context) has as many
            steps before it as context, but at most ``VALIDATION_STEPS``.
        n_steps: number of steps after which no more examples are taken.
        aligned: True if sources have as many steps as targets, and are cut with them.
    """
    kept: list[Example] = []
    n_kept = 0
    for example in examples:
        n_scored = len(example.values) - example.n_past
        n_before = min(example.n_past, VALIDATION_STEPS)
        for begin in range(example.n_past, len(example.values), VALIDATION_STEPS):
            if n_kept >= n_steps:
                return kept
            piece = slice(begin - n_before, begin + VALIDATION_STEPS)
            values = example.values[piece]
            n_of_piece = len(values) - n_before
            n_kept += n_of_piece
            part = n_of_piece / n_scored
            units = max(1, round(part * example.n_units))
            source = example.source
            if aligned and source is not None:
                source = source[piece]
            log_det = part * example.log_det
            piece_of = replace(example, values=values, source=source, log_det=log_det, n_units=units, n_past=n_before)
            kept.append(piece_of if example.inputs is None else replace(piece_of, inputs=example.inputs[piece]))
    return kept
