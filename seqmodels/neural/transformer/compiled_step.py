"""Steps of few sequences in one call of machine code each: ``CompiledStepper``, of what ``TransformerStepper`` is of.

Import this module where it is first needed: it loads numba.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from seqmodels.neural.network import Stepper
from seqmodels.neural.transformer.incremental import StepState, TransformerState, TransformerStepper
from seqmodels.neural.transformer.kernels import (
    GELU,
    RELU,
    SQUARED_RELU,
    SWIGLU,
    TANH_GELU,
    StepConstants,
    StepWeights,
    read_steps,
    take_step,
)
from seqmodels.neural.transformer.layers import Activation, RMSNorm
from seqmodels.neural.transformer.packed_weights import PackedBlock, PackedLinear
from seqmodels.neural.transformer.stack import TransformerStack

MAX_ROWS = 4  # sequences; of more torch's products of matrices are faster
ACTIVATIONS: dict[Activation, int] = {
    "relu": RELU,
    "relu2": SQUARED_RELU,
    "gelu": GELU,
    "gelu-tanh": TANH_GELU,
    "swiglu": SWIGLU,
}


@dataclass(frozen=True)
class CompiledStepper(Stepper[TransformerState, StepState]):
    """The steps of ``plain``, on the CPU, of up to ``MAX_ROWS`` sequences; all else is left to it.

    Attributes:
        plain: the same steps in torch.
        weights, constants: for the compiled functions.
        position: ``(T, d)``, added to the inputs of the first T steps; ``(T, 0)`` where nothing is.
        rotation: ``(T, (H + 2 G) d_head)``, cosines and sines in turn; ``(T, 0)`` without rotary embedding.
    """

    plain: TransformerStepper
    weights: StepWeights
    constants: StepConstants
    position: np.ndarray
    rotation: np.ndarray

    @classmethod
    def from_plain(cls, plain: TransformerStepper, stack: TransformerStack) -> CompiledStepper:
        """Of the weights of ``stack``, of which ``plain`` is."""
        nothing = plain.like.new_empty(plain.like.shape[1], 0)
        position, rotation = plain.position_table, plain.rotation_table
        return cls(
            plain,
            _step_weights(plain.blocks, stack),
            _step_constants(plain),
            _array(nothing if position is None else position),
            _array(nothing if rotation is None else torch.view_as_real(rotation).flatten(1)),
        )

    def converted(self, state: TransformerState) -> StepState:
        """See ``Stepper``."""
        return self.plain.converted(state)

    def select(self, state: StepState, index: Tensor) -> StepState:
        """See ``Stepper``."""
        return self.plain.select(state, index)

    def step(self, row_ids: Tensor, state: StepState) -> tuple[Tensor, StepState]:
        """See ``Stepper``."""
        t, n = state.length, state.pending.shape[0]
        if n > MAX_ROWS or t >= len(self.position):
            return self.plain.step(row_ids, state)
        cache = state.claimed_cache(self.plain.max_length)
        inputs, convolution = self.plain.convolution.table, self.plain.convolution
        if not convolution.precomputed:
            inputs, row_ids = convolution.now_and_later_of(row_ids), torch.arange(n)
        hidden, pending = take_step(
            row_ids.numpy(),
            state.pending.numpy(),
            inputs.numpy(),
            self.position[t],
            cache.key_value.numpy(),
            t,
            self.rotation[t : t + 1],
            self.weights,
            self.constants,
        )
        return torch.from_numpy(hidden), StepState(cache, t + 1, torch.from_numpy(pending))

    def prefill(self, inputs: Tensor) -> tuple[Tensor, StepState]:
        """See ``Stepper``."""
        n, length, d = inputs.shape
        if n > MAX_ROWS or length > len(self.position):
            return self.plain.prefill(inputs)
        x, pending = self.plain.convolution.first_steps(inputs)
        rows = x.numpy().copy()
        if self.position.shape[1]:
            rows += self.position[:length]
        cache, rotation = self.plain.empty_cache(n, length), self.rotation[:length]
        key_value = cache.key_value.numpy()
        hidden = read_steps(rows.reshape(n * length, d), key_value, 0, rotation, self.weights, self.constants)
        return torch.from_numpy(hidden), StepState(cache, length, pending)


def _step_weights(blocks: tuple[PackedBlock, ...], stack: TransformerStack) -> StepWeights:
    attention_norms = [block.attention_residual.norm for block in stack]
    feedforward_norms = [block.feedforward_residual.norm for block in stack]
    like = blocks[0].project.weight
    no_gain = like.new_zeros(0)
    return StepWeights(
        attention_norm=_stacked([_gain_and_shift(norm, like) for norm in attention_norms]),
        project=_stacked([block.project.weight for block in blocks]),
        project_bias=_stacked([_bias(block.project) for block in blocks]),
        head_gain=_stacked([no_gain if b.head_norm is None else b.head_norm.gain.flatten() for b in blocks]),
        output=_stacked([block.output.weight for block in blocks]),
        feedforward_norm=_stacked([_gain_and_shift(norm, like) for norm in feedforward_norms]),
        expand=_stacked([block.expand.weight for block in blocks]),
        expand_bias=_stacked([_bias(block.expand) for block in blocks]),
        contract=_stacked([block.contract.weight for block in blocks]),
        output_bias=_stacked([_bias(block.output) for block in blocks]),
        contract_bias=_stacked([_bias(block.contract) for block in blocks]),
        final_norm=_array(_gain_and_shift(stack.final_norm, like)),
    )


def _step_constants(plain: TransformerStepper) -> StepConstants:
    config = plain.config
    return StepConstants(
        n_heads=config.n_query_heads,
        activation=ACTIVATIONS[config.activation],
        centres=config.norm_type == "layer",
        epsilon=config.norm_epsilon,
        head_epsilon=config.d_head * config.norm_epsilon,
    )


def _gain_and_shift(norm: nn.Module, like: Tensor) -> Tensor:
    """``(2, d)``; one and zero where there are none."""
    gain, shift = norm.weight, None if isinstance(norm, RMSNorm) else norm.bias
    d = like.shape[0]
    return torch.stack(
        [
            like.new_ones(d) if gain is None else gain.detach(),  # type: ignore[list-item]
            like.new_zeros(d) if shift is None else shift.detach(),  # type: ignore[list-item]
        ]
    )


def _bias(linear: PackedLinear) -> Tensor:
    return linear.weight.new_zeros(linear.weight.shape[1]) if linear.bias is None else linear.bias


def _stacked(of_blocks: list[Tensor]) -> np.ndarray:
    return _array(torch.stack(of_blocks))


def _array(x: Tensor) -> np.ndarray:
    return x.detach().contiguous().numpy()
