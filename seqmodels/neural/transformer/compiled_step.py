"""``CompiledStepper``, which takes the steps of ``TransformerStepper`` for few sequences in one compiled call each.

Import this module only where it is needed: it loads numba.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqmodels.neural.network import FasterStepper, StepperDraws, SymbolHead
from seqmodels.neural.transformer.incremental import (
    ArrayStepState,
    StepCache,
    StepState,
    TransformerState,
    TransformerStepper,
    claimed_cache,
)
from seqmodels.neural.transformer.kernels import (
    GELU,
    RELU,
    SQUARED_RELU,
    SWIGLU,
    TANH_GELU,
    BlockConstants,
    BlockWeights,
    draw_steps,
    take_step,
)
from seqmodels.neural.transformer.layers import Activation
from seqmodels.neural.transformer.packed_weights import PackedLinear, gain_and_shift
from seqmodels.neural.transformer.stack import TransformerStack

MAX_ROWS = 4  # sequences; for more, torch's products of matrices are faster
ACTIVATIONS: dict[Activation, int] = {
    "relu": RELU,
    "relu2": SQUARED_RELU,
    "gelu": GELU,
    "gelu-tanh": TANH_GELU,
    "swiglu": SWIGLU,
}


@dataclass(frozen=True)
class CompiledStepper(FasterStepper[TransformerState, StepState]):
    """A stepper that takes the steps of ``plain`` in compiled code on the CPU, for up to four sequences.

    Steps of more sequences, or beyond the tables of positions, are left to ``plain``.

    Attributes:
        plain: the same steps in torch.
        weights, constants: the network's weights and settings as arguments of the compiled function.
    """

    plain: TransformerStepper
    weights: BlockWeights
    constants: BlockConstants

    @classmethod
    def from_plain(cls, plain: TransformerStepper, stack: TransformerStack) -> CompiledStepper:
        return cls(plain, _block_weights(plain, stack), _block_constants(plain))

    def step(self, projected: Tensor, state: StepState) -> tuple[Tensor, StepState]:
        if not self._takes(state):
            return self.plain.step(projected, state)
        cache = state.claimed_cache(self.plain.max_length)
        pending = state.pending.numpy()
        hidden, pending = self._step(projected.numpy(), pending, cache, state.length, pending[:0], cache, 0)
        return torch.from_numpy(hidden), StepState(cache, state.length + 1, torch.from_numpy(pending))

    def array_step(self, projected: np.ndarray, state: ArrayStepState) -> tuple[np.ndarray, ArrayStepState]:
        if state.length >= len(self.weights.position):
            hidden, after = self.plain.step(torch.from_numpy(projected[None].copy()), self.in_tensors(state))
            return hidden[0].numpy(), self.in_arrays(after)
        cache = claimed_cache(state.cache, state.length, self.plain.max_length)
        before = state.pending[None]
        rows, pending = self._step(projected[None], before, cache, state.length, before[:0], cache, 0)
        return rows[0], ArrayStepState(cache, state.length + 1, pending[0])

    def begin_ahead(self, n: int) -> StepState | None:
        if n > MAX_ROWS:
            return None
        convolution = self.plain.convolution
        pending = self.plain.like.new_zeros(n, convolution.n_lags * convolution.d)
        return StepState(self.plain.empty_cache(n, 0), 0, pending)

    def step_ahead(self, projected: Tensor, state: StepState, ahead: StepState) -> tuple[Tensor, StepState, StepState]:
        if not self._takes(state):
            return self.plain.step_ahead(projected, state, ahead)
        n, cache, cache_ahead = len(projected), *(s.claimed_cache(self.plain.max_length) for s in (state, ahead))
        before = state.pending.numpy(), cache, state.length, ahead.pending.numpy(), cache_ahead, ahead.length
        rows, pending = self._step(projected.numpy(), *before)
        after = StepState(cache, state.length + 1, torch.from_numpy(pending[:n]))
        after_ahead = StepState(cache_ahead, ahead.length + 1, torch.from_numpy(pending[n:]))
        return torch.from_numpy(rows[:n]), after, after_ahead

    def n_drawn_at_once(self, state: StepState) -> int:
        if state.pending.shape[0] > MAX_ROWS:
            return 0
        return max(0, len(self.weights.position) - state.length)

    def draw(
        self, row_ids: Tensor, state: StepState, ahead: StepState | None, head: SymbolHead, uniform: Tensor
    ) -> StepperDraws[StepState]:
        (n_steps, n), max_length = uniform.shape, self.plain.max_length
        cache = state.claimed_cache(max_length, n_steps)
        cache_ahead = cache if ahead is None else ahead.claimed_cache(max_length, n_steps)
        pending, t_ahead = state.pending.numpy(), 0 if ahead is None else ahead.length
        symbols, outputs, pending = draw_steps(
            row_ids.contiguous().numpy(),  # a view with other strides would be compiled for anew
            uniform.numpy(),
            pending,
            cache.key_value.numpy(),
            state.length,
            pending[:0] if ahead is None else ahead.pending.numpy(),
            cache_ahead.key_value.numpy(),
            t_ahead,
            head.projected_inputs.numpy(),
            head.weight.numpy(),
            head.bias.numpy(),
            head.n_symbols,
            head.may_end,
            self.weights,
            self.constants,
        )
        return StepperDraws(
            torch.from_numpy(symbols),
            torch.from_numpy(outputs),
            StepState(cache, state.length + n_steps, torch.from_numpy(pending[:n])),
            None if ahead is None else StepState(cache_ahead, t_ahead + n_steps, torch.from_numpy(pending[n:])),
        )

    def _takes(self, state: StepState) -> bool:
        return state.pending.shape[0] <= MAX_ROWS and state.length < len(self.weights.position)

    def _step(
        self,
        projected: np.ndarray,
        pending: np.ndarray,
        cache: StepCache,
        t: int,
        pending_ahead: np.ndarray,
        cache_ahead: StepCache,
        t_ahead: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Take a step of n sequences in this window and in the next one, which may have begun, in compiled code.

        Args:
            projected: contributions of the inputs to this step and the next p, (n, d + p d).
            pending, cache, t: sums of earlier contributions to the next p steps (n, p d), keys and values, and number
                of steps in this window.
            pending_ahead, cache_ahead, t_ahead: the same in the next window; ``pending_ahead`` is (0, p d) if it has
                not begun.

        Returns:
            The hidden states, and the sums of contributions afterwards, first of this window and then of the next.
        """
        return take_step(
            np.arange(len(projected)),
            pending,
            cache.in_array,
            t,
            pending_ahead,
            cache_ahead.in_array,
            t_ahead,
            np.ascontiguousarray(projected),  # a view with other strides would be compiled for anew
            self.weights,
            self.constants,
        )


def _block_weights(plain: TransformerStepper, stack: TransformerStack) -> BlockWeights:
    blocks, nothing = plain.blocks, plain.like.new_empty(plain.like.shape[1], 0)
    n_rotated = plain.layout.n_rotated * plain.layout.d_head
    position, rotation = plain.position_table, plain.rotation_table
    attention_norms = [block.attention_residual.norm for block in stack]
    feedforward_norms = [block.feedforward_residual.norm for block in stack]
    like = blocks[0].project.weight
    no_gain = like.new_zeros(0)
    return BlockWeights(
        attention_norm=_stacked([torch.stack(gain_and_shift(norm, like)) for norm in attention_norms]),
        project=_stacked([block.project.weight.t() for block in blocks]),
        project_bias=_stacked([_bias(block.project) for block in blocks]),
        head_gain=_stacked([no_gain if b.head_norm is None else b.head_norm.gain.flatten() for b in blocks]),
        output=_stacked([block.output.weight.t() for block in blocks]),
        feedforward_norm=_stacked([torch.stack(gain_and_shift(norm, like)) for norm in feedforward_norms]),
        expand=_stacked([block.expand.weight.t() for block in blocks]),
        expand_bias=_stacked([_bias(block.expand) for block in blocks]),
        contract=_stacked([block.contract.weight.t() for block in blocks]),
        output_bias=_stacked([_bias(block.output) for block in blocks]),
        contract_bias=_stacked([_bias(block.contract) for block in blocks]),
        final_norm=_array(torch.stack(gain_and_shift(stack.final_norm, like))),
        position=_array(nothing if position is None else position),
        rotation=_array(nothing if rotation is None else torch.view_as_real(rotation).flatten(1)[:, :n_rotated]),
    )


def _block_constants(plain: TransformerStepper) -> BlockConstants:
    config = plain.config
    return BlockConstants(
        activation=ACTIVATIONS[config.activation],
        centres=config.norm_type == "layer",
        epsilon=config.norm_epsilon,
        head_epsilon=config.d_head * config.norm_epsilon,
    )


def _bias(linear: PackedLinear) -> Tensor:
    return linear.weight.new_zeros(linear.weight.shape[1]) if linear.bias is None else linear.bias


def _stacked(of_blocks: list[Tensor]) -> np.ndarray:
    return _array(torch.stack(of_blocks))


def _array(x: Tensor) -> np.ndarray:
    return x.detach().contiguous().numpy()
