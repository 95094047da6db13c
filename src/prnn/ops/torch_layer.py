"""One layer in PyTorch's own implementation: what runs on a GPU where no kernel of ours can."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prnn import cells
from prnn.cells import Cell
from prnn.ops.arguments import DIRECTIONS, Layer
from prnn.packing import pack

_vf: Any = torch._VF
_FUNCTIONS = {
    cells.rnn_tanh: _vf.rnn_tanh,
    cells.rnn_relu: _vf.rnn_relu,
    cells.lstm: _vf.lstm,
    cells.gru: _vf.gru,
}


def refuse(cell: Cell, with_reset: bool) -> str | None:
    """Why PyTorch cannot run it, or None."""
    if cell not in _FUNCTIONS:
        return f"it has {', '.join(each.name for each in _FUNCTIONS)}, not {cell.name}"
    return "it knows no reset" if with_reset else None


def run(
    cell: Cell,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    config: Layer,
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, list[Tensor]]:
    """A layer with the arguments of `library.layer`; differentiable as PyTorch's layers are."""
    width = config.output_size * len(DIRECTIONS[config.direction])
    shape, batch = (*x.shape[:-1], width), states[0].shape[1]
    rows, initial = x.reshape(-1, x.shape[-1]), list(states)
    index = order = None
    sizes = None if batch_sizes is None else batch_sizes.numpy()
    if batch_sizes is None and lengths is not None:
        packing = pack(x.shape[0], batch, (False,), lengths.numpy())
        if packing.index is not None and packing.order is not None:
            index, order = (torch.from_numpy(each).to(x.device) for each in (packing.index, packing.order))
            rows, initial = rows.index_select(0, index), [each.index_select(1, order) for each in initial]
            sizes = packing.rows[0].batch_sizes
    if len(rows) == 0:
        return x.new_zeros(shape), [each.clone() for each in states]
    if sizes is None:
        return _padded(cell, x, initial, weights, config)
    flip = torch.from_numpy(_flipped(sizes)).to(x.device) if config.direction == "reverse" else None
    if flip is not None:
        rows = rows.index_select(0, flip)
    running = int(sizes[0])  # sequences of length 0 come last
    begin = [each[:, :running].contiguous() for each in initial]
    lengths_of_steps = torch.from_numpy(np.ascontiguousarray(sizes, np.int64))
    y, *last = _call(cell, rows, lengths_of_steps, _joined(begin), list(weights), *_options(config))
    finals = [torch.cat([end, each[:, running:]], 1) for end, each in zip(last, initial)]
    if flip is not None:
        y = y.index_select(0, flip)
    if index is not None and order is not None:
        y = y.new_zeros(x.shape[0] * batch, width).index_copy(0, index, y)
        finals = [torch.zeros_like(each).index_copy(1, order, each) for each in finals]
    return y.reshape(shape), finals


def _padded(
    cell: Cell, x: Tensor, states: list[Tensor], weights: Sequence[Tensor], config: Layer
) -> tuple[Tensor, list[Tensor]]:
    """Sequences of one length, which PyTorch's GPU libraries run faster than packed ones."""
    reverse = config.direction == "reverse"
    begin = [each.contiguous() for each in states]
    y, *last = _call(cell, x.flip(0) if reverse else x, _joined(begin), list(weights), *_options(config), False)
    return y.flip(0) if reverse else y, last


def _options(config: Layer) -> tuple[Any, ...]:
    """bias, layers, dropout, training (which backward insists on), bidirectional."""
    return config.bias, 1, 0.0, torch.is_grad_enabled(), config.direction == "both"


def _joined(states: list[Tensor]) -> Any:
    return states if len(states) > 1 else states[0]


def _call(cell: Cell, *arguments: Any) -> Any:
    with warnings.catch_warnings():
        # About weights that do not lie in one piece: they belong to the caller.
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        return _FUNCTIONS[cell](*arguments)


def _flipped(sizes: Any) -> Any:
    """For packed rows: the row that holds the same sequence as far from its end; its own inverse."""
    offsets = np.concatenate([[0], sizes.cumsum()])[:-1]
    lengths = (sizes[:, None] > np.arange(sizes[0])).sum(0)
    step = np.repeat(np.arange(len(sizes)), sizes)
    sequence = np.arange(int(sizes.sum())) - offsets[step]
    return offsets[lengths[sequence] - 1 - step] + sequence
