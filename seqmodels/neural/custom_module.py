"""A model made from any causal ``nn.Module`` that maps ``(B, T, d_model)`` to ``(B, T, d_model)``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seqmodels.common.display import a_or_an
from seqmodels.common.main_memory import refuse_beyond_memory
from seqmodels.common.parameters import checked, refuse_wrong_groups
from seqmodels.common.randomness import Dropout, InitialDraws
from seqmodels.neural.batches import Windowing
from seqmodels.neural.model import NeuralModel
from seqmodels.neural.network import Network, Source

STEPS_CHECKED = 9  # length of the sequences that a module is checked with
TOLERANCE = 1e-8  # for float64 outputs of order one


@dataclass(kw_only=True, eq=False, repr=False)
class CausalModel(NeuralModel):
    """A model whose hidden states are the outputs of a causal module: ``hidden_t = module(input_1 .. input_t)[t]``.

    It is trained and scored on windows of ``context`` steps, as ``Transformer`` is. When it generates step by step, it
    computes the whole window again at every step.

    ``nn.Dropout`` in the module draws from the fit's own generator; other random operations in training draw from
    torch's global one. A model made with an instance cannot be saved; a model made with a class or function is loaded
    by ``load(path, classes=[MyModule])``.

    Args:
        module: an ``nn.Module``, of which every ``fit`` trains a copy; or a subclass or a function that makes one from
            ``d_model``, whose weights are then drawn by ``random_state``.
        d_model: width of the module's inputs and outputs.
        context: number of steps that the module sees at once; longer sequences are read in windows.
        stride: number of steps from a window to the next in scoring and generation; None: half the context.
        architecture: an ``Architecture``: whether embeddings are tied and scaled.

    Learning rate, batch size and limits of training are described at ``TrainingOptions``; encoding, observation, seed,
    device and precision at ``SequenceModel``.

    Raises:
        ValueError: from ``fit``, a module of other shapes, or whose outputs depend on later inputs or on other
            sequences.
    """

    d_model: int = 256
    module: nn.Module | Callable[[int], nn.Module]
    context: int = 128
    stride: int | None = None

    _carries_state: ClassVar[bool] = False

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        what = f"steps of d_model={self.d_model_:,} numbers"
        refuse_beyond_memory(what, 64.0 * self.d_model_, "pass a smaller d_model")
        with InitialDraws(torch.Generator().manual_seed(self.random_state)):
            module = self._make()
        check_causal(module, self.d_model_)

    def _windowing(self) -> Windowing:
        return Windowing(self.context, self.stride)

    def _bptt_steps(self) -> int:
        return self.context

    def _network(self) -> Network[Any]:
        return CausalNetwork(self._make(), self.d_model_)

    def _make(self) -> nn.Module:
        if isinstance(self.module, nn.Module):
            return copy.deepcopy(self.module)
        made = self.module(self.d_model_)
        if not isinstance(made, nn.Module):
            raise ValueError(
                f"module makes {a_or_an(type(made))}; pass an nn.Module, or a function that makes one of d_model"
            )
        return made


@checked
def from_module(module: nn.Module | Callable[[int], nn.Module], d_model: int, **hyperparameters: Any) -> CausalModel:
    """Return a ``CausalModel`` of a causal module, whose shapes and causality are checked at once.

    A causal module maps inputs ``(B, T, d_model)`` to outputs of the same shape, of which those of step t depend on
    inputs up to step t only. ``module`` is an ``nn.Module``, or a class or function that makes one from the width
    ``d_model``; ``hyperparameters`` are all other arguments of ``CausalModel`` by name.

    >>> class Convolution(nn.Module):
    ...     def __init__(self, d_model):
    ...         super().__init__()
    ...         self.convolution = nn.Conv1d(d_model, d_model, 3)
    ...
    ...     def forward(self, x):
    ...         return torch.relu(self.convolution(nn.functional.pad(x.mT, (2, 0)))).mT
    >>> model = from_module(Convolution, 8, max_steps=2).fit(["to be or not to be"])
    >>> model.score(["to be"]) < 0
    True
    >>> from_module(nn.LSTM(8, 8, bidirectional=True), 8)
    Traceback (most recent call last):
    ValueError: the module returns a tuple; wrap it in one that returns a tensor (B, T, 8)
    """
    model = CausalModel(module=module, d_model=d_model, **hyperparameters)
    refuse_wrong_groups(model)
    model._check_hyperparameters()
    return model


class CausalNetwork(Network[Tensor]):
    """A causal module as a ``Network``, whose state is all inputs of n sequences so far (t steps), ``(n, t, d_model)``.

    Every call of the module reads all of them again.

    Args:
        module: a module that maps ``(B, T, d_model)`` to ``(B, T, d_model)``.
        d_model: width of inputs and outputs.
    """

    def __init__(self, module: nn.Module, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        self.module = module
        for parent in module.modules():
            for name, child in parent.named_children():
                if type(child) is nn.Dropout:
                    setattr(parent, name, Dropout(child.p))

    def start(self, n: int, source: Source | None = None) -> Tensor:
        """Return the state of ``n`` sequences before the first input: no inputs yet, ``(n, 0, d_model)``.

        ``source`` is ignored. The dtype is that of the module's weights.
        """
        like = next(self.module.parameters(), torch.zeros(()))
        return like.new_zeros(n, 0, self.d_model)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        history = torch.cat([state, inputs.to(state.dtype)], 1) if state.shape[1] else inputs
        outputs: Tensor = self.module(history)
        return outputs[:, -inputs.shape[1] :], history


@torch.no_grad()
def check_causal(module: nn.Module, d_model: int) -> None:
    """Raise ``ValueError`` unless the outputs of step t depend only on inputs up to step t of the same sequence.

    The module is tried on short random inputs ``(B, T, d_model)``, and must return outputs of the same shape.
    """
    module = copy.deepcopy(module).double().cpu().eval()
    generator = torch.Generator().manual_seed(0)
    shape = (2, STEPS_CHECKED, d_model)
    x, other = (torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(2))
    outputs = module(x)
    if not isinstance(outputs, Tensor):
        raise ValueError(
            f"the module returns {a_or_an(type(outputs))}; wrap it in one that returns a tensor (B, T, {d_model})"
        )
    if outputs.shape != shape:
        raise ValueError(
            f"the module maps inputs of shape {shape} to {tuple(outputs.shape)}; both should have one shape, "
            "(B, T, d_model)"
        )
    if not torch.allclose(module(x), outputs, rtol=1e-9, atol=1e-9):  # products may be rounded differently
        raise ValueError(
            "the module gives two outputs for one input in evaluation mode; let eval() turn off what is random"
        )
    for t in range(1, STEPS_CHECKED):
        changed = torch.cat([x[:, :t], other[:, t:]], 1)
        if not _close(module(changed)[:, :t], outputs[:, :t]):
            raise ValueError(
                f"the module is not causal: changing its inputs from step {t} on changes outputs before step {t}; mask "
                "the future, or pad convolutions on the left only"
            )
        if not _close(module(x[:, :t]), outputs[:, :t]):
            raise ValueError(
                f"the module's outputs change when its inputs end after {t} steps; let no output depend on the "
                "number of steps"
            )
    if not _close(module(x[:1]), outputs[:1]):
        raise ValueError(
            "the module's outputs depend on the other sequences of the batch; let them depend only on their own"
        )


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE)
