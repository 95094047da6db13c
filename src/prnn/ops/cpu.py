"""The operators on CPU tensors: packing around the engine."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from prnn import engine
from prnn.ops.arguments import ARITHMETIC, Layer, check, packing_of, plan_of, saved_size
from prnn.specs import LayerWeights


def _plain(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Contiguous, of the dtype of the arithmetic, unknown to autograd: what the engine takes."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype is not dtype:
        tensor = tensor.to(dtype)
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def _rows(tensor: Tensor, index: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The valid rows of a padded [T, B, width] (or already packed) tensor."""
    flat = _plain(tensor, dtype).view(-1, tensor.shape[-1])
    return flat if index is None else flat.index_select(0, index)


def _padded(rows: Tensor, index: Tensor | None, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Undo `_rows`; zero where there is no row."""
    if index is not None:
        rows = rows.new_zeros(shape).view(-1, shape[-1]).index_copy_(0, index, rows)
    return rows.view(shape).to(dtype)


def _ordered(states: Sequence[Tensor], order: Tensor | None, dtype: torch.dtype) -> list[Tensor]:
    """The states [D, B, width] in the order of the packed rows."""
    plain = [_plain(state, dtype) for state in states]
    return plain if order is None else [state.index_select(1, order) for state in plain]


def _unordered(states: Sequence[Tensor], order: Tensor | None, dtype: torch.dtype) -> list[Tensor]:
    if order is not None:
        states = [torch.empty_like(state).index_copy_(1, order, state) for state in states]
    return [state.to(dtype) for state in states]


def forward(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    cell: str,
    input_size: int,
    hidden_size: int,
    proj_size: int,
    bias: bool,
    direction: str,
    reset_to_initial: bool,
    save: bool,
) -> tuple[Tensor, list[Tensor], Tensor]:
    """See the schema in library.py."""
    layer = Layer(cell, input_size, hidden_size, proj_size, bias, direction, reset_to_initial)
    plan = plan_of(layer, x.dtype, save)
    check(layer, plan, x, states, weights)
    batch, dtype = states[0].shape[1], ARITHMETIC[x.dtype]
    packing = packing_of(layer, plan.reverse, x, batch, batch_sizes, lengths, reset)
    index = None if packing.index is None else torch.from_numpy(packing.index)
    order = None if packing.order is None else torch.from_numpy(packing.order)
    capacity = x.shape[:-1].numel()  # of rows; the fake kernel cannot know how many of them are valid
    saved = x.new_empty(saved_size(plan, capacity) if save else 0, dtype=dtype)
    rows, initial = _rows(x, index, dtype), _ordered(states, order, dtype)
    num_rows, width = rows.shape[0], layer.output_size
    y = rows.new_empty((num_rows, width * len(plan.reverse)))
    if num_rows:
        finals = [torch.empty_like(state) for state in initial]
        executable = engine.prepare(plan.problem, batch, packing.rows[0].steps)
        kept = saved.view(len(plan.reverse), -1)[:, : executable.saved_size(num_rows)] if save else None
        per_direction = plan.split([_plain(weight, dtype) for weight in weights])
        for d, direction_rows in enumerate(packing.rows):
            executable.forward(
                rows,
                tuple(state[d] for state in initial),
                per_direction[d],
                direction_rows,
                y[:, d * width : (d + 1) * width],
                tuple(state[d] for state in finals),
                None if kept is None else kept[d],
            )
    else:
        finals = [state.clone() for state in initial]
    shape = (*x.shape[:-1], y.shape[1])
    return _padded(y, index, shape, x.dtype), _unordered(finals, order, x.dtype), saved


def backward(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    saved: Tensor,
    d_y: Tensor,
    d_finals: Sequence[Tensor],
    cell: str,
    input_size: int,
    hidden_size: int,
    proj_size: int,
    bias: bool,
    direction: str,
    reset_to_initial: bool,
    needs_x: bool,
    needs_weights: bool,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """See the schema in library.py."""
    layer = Layer(cell, input_size, hidden_size, proj_size, bias, direction, reset_to_initial)
    plan = plan_of(layer, x.dtype, True)
    check(layer, plan, x, states, weights)
    batch, dtype = states[0].shape[1], ARITHMETIC[x.dtype]
    capacity, width = x.shape[:-1].numel(), layer.output_size
    expected = (saved_size(plan, capacity), (*x.shape[:-1], width * len(plan.reverse)), [state.shape for state in states])
    if (saved.numel(), d_y.shape, [each.shape for each in d_finals]) != expected or saved.dtype is not dtype:
        raise RuntimeError("saved, d_y or d_finals do not belong to this forward call: their shapes or dtypes differ from its results")
    packing = packing_of(layer, plan.reverse, x, batch, batch_sizes, lengths, reset)
    index = None if packing.index is None else torch.from_numpy(packing.index)
    order = None if packing.order is None else torch.from_numpy(packing.order)
    rows, d_rows = _rows(x, index, dtype), _rows(d_y, index, dtype)
    d_last = _ordered(d_finals, order, dtype)
    num_rows = rows.shape[0]
    plain = [_plain(weight, dtype) for weight in weights]
    d_x = torch.zeros_like(rows) if needs_x else None
    d_flat = [torch.zeros_like(weight) if needs_weights else None for weight in plain]
    if num_rows:
        d_first = [torch.empty_like(each) for each in d_last]
        executable = engine.prepare(plan.problem, batch, packing.rows[0].steps)
        kept = saved.view(len(plan.reverse), -1)[:, : executable.saved_size(num_rows)]
        for d, direction_rows in enumerate(packing.rows):
            d_x_here = torch.empty_like(rows) if needs_x and d else d_x
            executable.backward(
                rows,
                plan.split(plain)[d],
                direction_rows,
                kept[d],
                d_rows[:, d * width : (d + 1) * width],
                tuple(each[d] for each in d_last),
                d_x_here,
                tuple(each[d] for each in d_first),
                plan.split(d_flat)[d] if needs_weights else _NO_WEIGHTS._replace(vectors=(None,) * len(plan.cell.vectors)),
            )
            if d_x is not None and d_x_here is not d_x:
                d_x += d_x_here
    else:
        d_first = [each.clone() for each in d_last]
    return (
        x.new_empty(0) if d_x is None else _padded(d_x, index, x.shape, x.dtype),
        _unordered(d_first, order, x.dtype),
        [x.new_empty(0) if each is None else each.to(x.dtype) for each in d_flat],
    )


_NO_WEIGHTS = LayerWeights(None, None)
