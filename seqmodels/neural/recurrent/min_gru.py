"""minGRU: a GRU whose gate and candidate do not read the state, so that it is a scan (Feng et al. 2024)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqmodels.neural.ops.linear_scan import gated_scan
from seqmodels.neural.recurrent.cell import Cell

HiddenAndInputs = tuple[Tensor, Tensor]  # h (n, d_hidden), and the inputs before the next (n, n_lags, d_in)
LONGEST_GATE = 3.0  # gates start at σ(0) to σ(-3), and so forget half of the state in 1 to 14 steps


class MinGRUCell(Cell[HiddenAndInputs]):
    """One step of a minGRU: ``h_t = (1 - z_t) h_{t-1} + z_t c_t``, ``z_t = σ(W_z u_t + b_z)``, ``c_t = W_c u_t + b_c``.

    ``u_t`` holds the input and the n inputs before it, ``[x_{t-n}; ..; x_t]``, because gates that do not read the state
    would otherwise know the last input alone. Feng et al. (2024, *Were RNNs all we needed?*) have a convolution before
    the recurrence instead, over four steps and for each feature by itself; here it has full matrices. Inputs before the
    first step are zero. The candidate c_t is linear, as in their first form. Their second form, in logarithms, needs it
    to be positive; the scan here does not (``gated_scan``).

    A step costs its two matrix products, however long the past, and no step waits for the products of another. Gates of
    the first layer know only the last inputs, and gates of the second what the first has kept: use two layers, with
    ``residual`` and ``layer_norm``.

    Args:
        d_in: width of ``x``.
        d_hidden: width of ``h``.
        n_lags: n, the number of earlier inputs that are read with each.

    Raises:
        ValueError: If ``n_lags`` is below zero.

    >>> cell = MinGRUCell(3, 5)
    >>> outputs, (h, recent) = cell.unroll(torch.zeros(2, 7, 3), cell.initial_state(2))
    >>> outputs.shape, h.shape, recent.shape
    (torch.Size([2, 7, 5]), torch.Size([2, 5]), torch.Size([2, 1, 3]))
    """

    takes_autocast = True

    def __init__(self, d_in: int, d_hidden: int, n_lags: int = 1) -> None:
        super().__init__()
        if n_lags < 0:
            raise ValueError(f"n_lags is {n_lags}; pass how many inputs before each to read, or 0 for none")
        self.d_in, self.d_hidden, self.n_lags = d_in, d_hidden, n_lags
        self.project = nn.Linear((n_lags + 1) * d_in, 2 * d_hidden)
        with torch.no_grad():
            self.project.bias.zero_()
            self.project.bias[:d_hidden] = -torch.linspace(0, LONGEST_GATE, d_hidden)

    def initial_state(self, n: int) -> HiddenAndInputs:
        """Return the state before the first step of n sequences: h, zeros ``(n, d_hidden)``, and no inputs.

        The inputs before the first step are zeros ``(n, n_lags, d_in)``.
        """
        like = self.project.weight
        return like.new_zeros(n, self.d_hidden), like.new_zeros(n, self.n_lags, self.d_in)

    def forward(self, inputs: Tensor, state: HiddenAndInputs) -> tuple[Tensor, HiddenAndInputs]:
        outputs, state = self.unroll(inputs.unsqueeze(1), state)
        return outputs.squeeze(1), state

    def unroll(self, inputs: Tensor, state: HiddenAndInputs) -> tuple[Tensor, HiddenAndInputs]:
        h, recent = state
        n_steps = inputs.shape[1]
        if n_steps == 0:
            return inputs.new_zeros(len(inputs), 0, self.d_hidden), state
        joined = torch.cat([recent.to(inputs.dtype), inputs], 1)  # (n, n_lags + T, d_in)
        windows = torch.cat([joined[:, k : k + n_steps] for k in range(self.n_lags + 1)], 2) if self.n_lags else inputs
        hidden = gated_scan(self.project(windows), h)
        return hidden, (hidden[:, -1], joined[:, n_steps:])
