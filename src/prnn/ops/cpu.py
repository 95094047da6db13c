"""The operators on CPU tensors: packing around the engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prnn import engine
from prnn.ops.arguments import ARITHMETIC, Layer, Plan, check, check_weights, packing_of, plan_of, zeros_like
from prnn.specs import Rows

Array = Any

# Elements are moved by numpy: torch does it on threads of its own above 32,768 of them, and then a child forked later hangs.


def _plain(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Contiguous and of the dtype of the arithmetic: what the engine takes."""
    if tensor.dtype is not dtype:
        tensor = tensor.to(dtype)
    return tensor if tensor.is_contiguous() else torch.from_numpy(np.ascontiguousarray(tensor.detach().numpy()))


def _all_plain(tensors: Sequence[Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
    """The tensors, of one dtype, as `_plain` gives them: usually as they are."""
    if tensors[0].dtype is dtype and all(map(Tensor.is_contiguous, tensors)):
        return tensors
    return [_plain(each, dtype) for each in tensors]


def _rows(tensor: Tensor, index: Array | None, dtype: torch.dtype) -> Tensor:
    """The valid rows of a padded [T, B, width] (or already packed) tensor."""
    plain = _plain(tensor, dtype)
    if index is None:
        return plain
    return torch.from_numpy(plain.detach().view(-1, tensor.shape[-1]).numpy()[index])


def _padded(rows: Tensor, index: Array | None, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Undo `_rows`; zero where there is no row."""
    if index is not None:
        whole = np.zeros((math.prod(shape[:-1]), shape[-1]), rows.numpy().dtype)
        whole[index] = rows.numpy()
        rows = torch.from_numpy(whole)
    rows = rows.view(shape)
    return rows if rows.dtype is dtype else rows.to(dtype)


def _ordered(states: Sequence[Tensor], order: Array | None, dtype: torch.dtype) -> Sequence[Tensor]:
    """The states [D, B, width] in the order of the packed rows."""
    plain = _all_plain(states, dtype)
    if order is None:
        return plain
    return [torch.from_numpy(np.ascontiguousarray(state.detach().numpy()[:, order])) for state in plain]


def _unordered(states: Sequence[Tensor], order: Array | None, dtype: torch.dtype) -> Sequence[Tensor]:
    if order is not None:
        result = [torch.empty_like(state) for state in states]
        for to, state in zip(result, states):
            to.numpy()[:, order] = state.numpy()
        states = result
    return states if states[0].dtype is dtype else [state.to(dtype) for state in states]


def run(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    layer: Layer,
    save: bool,
) -> tuple[Tensor, Sequence[Tensor], Tensor | None]:
    """Forward, as in the schema in library.py; the last value is None unless save."""
    plan = plan_of(layer, x.dtype, save)
    batch, dtype = check(layer, plan, x, states, weights, batch_sizes), ARITHMETIC[x.dtype]
    packing = packing_of(layer, plan.reverse, x, batch, batch_sizes, lengths, reset)
    index, order = packing.index, packing.order
    rows, initial = _rows(x, index, dtype), _ordered(states, order, dtype)
    num_rows, width, directions = packing.rows[0].num_rows, plan.state_sizes[0], len(plan.reverse)
    saved = None
    if save:  # for every row of the input, since the fake kernel cannot know how many of them are valid
        saved = x.new_empty(x.shape[:-1].numel() * plan.saved_per_row * directions, dtype=dtype)
    whole = index is None and directions == 1  # then the engine takes the tensors as they are
    y = rows.new_empty((*x.shape[:-1], width) if whole else (num_rows, width * directions))
    if num_rows:
        finals = [torch.empty_like(state) for state in initial]
        executable = _executable(plan, batch, packing.rows[0].steps, save)
        per_direction = plan.split(_all_plain(weights, dtype))
        for d, direction_rows in enumerate(packing.rows):
            executable.forward(
                rows,
                tuple(initial) if whole else tuple([state[d] for state in initial]),
                per_direction[d],
                direction_rows,
                y if directions == 1 else y[:, d * width : (d + 1) * width],
                tuple(finals) if whole else tuple([state[d] for state in finals]),
                None if saved is None else _part(saved, d, directions, num_rows * plan.saved_per_row),
            )
    else:
        finals = [state.clone() for state in initial]
    if not whole or dtype is not x.dtype:
        y = _padded(y, index, (*x.shape[:-1], width * directions), x.dtype)
    return y, _unordered(finals, order, x.dtype), saved


def _executable(plan: Plan, batch: int, steps: int, save: bool) -> engine.Executable:
    executable = engine.prepare(plan.problem, batch, steps)
    if save and executable.saved_size(1) != plan.saved_per_row:
        raise RuntimeError(
            f"cell {plan.cell.name!r} was first trained by another engine than the one at hand ({executable.plan.family}), for "
            "example because compiling was allowed in between; start the process anew"
        )
    return executable


def step(x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor], layer: Layer) -> list[Tensor]:
    """One timestep without derivative: x [B, input_size], states [B, width], checked by the caller -> the next states."""
    plan = plan_of(layer, x.dtype, False)
    check_weights(plan, weights, x.dtype)
    dtype = ARITHMETIC[x.dtype]
    initial = tuple(_all_plain(states, dtype))
    finals = tuple([torch.empty_like(state) for state in initial])
    batch = x.shape[0]
    if batch:
        (per_direction,) = plan.split(_all_plain(weights, dtype))
        # The output is the first state: one array serves both.
        engine.prepare(plan.problem, batch).forward(
            _plain(x, dtype), initial, per_direction, _one_step(batch), finals[0], finals
        )
    return list(finals) if dtype is x.dtype else [state.to(x.dtype) for state in finals]


@lru_cache(maxsize=256)
def _one_step(batch: int) -> Rows:
    return Rows(1, batch)


def _part(saved: Tensor, d: int, directions: int, size: int) -> Tensor:
    """What direction d of the layer keeps: the first `size` elements of its share."""
    start = d * (saved.numel() // directions)
    return saved[start : start + size]


def forward(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    *scalars: Any,
) -> tuple[Tensor, Sequence[Tensor], Tensor]:
    """`run` as a kernel of the operator."""
    y, finals, saved = run(x, states, weights, batch_sizes, lengths, reset, Layer(*scalars[:-1]), scalars[-1])
    return y, finals, x.new_empty(0, dtype=ARITHMETIC[x.dtype]) if saved is None else saved


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
    *scalars: Any,
) -> tuple[Tensor, Sequence[Tensor], list[Tensor]]:
    """See the schema in library.py."""
    *config, needs_x, needs_weights = scalars
    layer = Layer(*config)
    plan = plan_of(layer, x.dtype, True)
    batch, dtype = check(layer, plan, x, states, weights, batch_sizes), ARITHMETIC[x.dtype]
    capacity, width, directions = x.shape[:-1].numel(), layer.output_size, len(plan.reverse)
    expected = (
        capacity * plan.saved_per_row * directions,
        (*x.shape[:-1], width * directions),
        [state.shape for state in states],
    )
    if (saved.numel(), d_y.shape, [each.shape for each in d_finals]) != expected or saved.dtype is not dtype:
        raise RuntimeError(
            "saved, d_y or d_finals do not belong to this forward call: their shapes or dtypes differ from its results"
        )
    packing = packing_of(layer, plan.reverse, x, batch, batch_sizes, lengths, reset)
    index, order = packing.index, packing.order
    # a matrix, since the stride of a dimension of size 1 may be anything
    rows, d_rows = _rows(x, index, dtype), _rows(d_y, index, dtype).view(packing.rows[0].num_rows, d_y.shape[-1])
    d_last = _ordered(d_finals, order, dtype)
    num_rows = packing.rows[0].num_rows
    plain = _all_plain(weights, dtype)
    blank = torch.empty_like if num_rows else zeros_like  # the engine overwrites them
    d_x = blank(rows) if needs_x else None
    d_flat = [blank(weight) if needs_weights else None for weight in plain]
    if num_rows:
        d_first = [torch.empty_like(each) for each in d_last]
        executable = _executable(plan, batch, packing.rows[0].steps, True)
        per_direction, d_per_direction = plan.split(plain), plan.split(d_flat)
        for d, direction_rows in enumerate(packing.rows):
            d_x_here = torch.empty_like(rows) if needs_x and d else d_x
            executable.backward(
                rows,
                per_direction[d],
                direction_rows,
                _part(saved, d, directions, num_rows * plan.saved_per_row),
                d_rows[:, d * width : (d + 1) * width],
                tuple(each[d] for each in d_last),
                d_x_here,
                tuple(each[d] for each in d_first),
                d_per_direction[d],
            )
            if d_x is not None and d_x_here is not None and d:
                d_x.numpy()[...] += d_x_here.numpy()
    else:
        d_first = [each.clone() for each in d_last]
    return (
        x.new_empty(0) if d_x is None else _padded(d_x, index, x.shape, x.dtype),
        _unordered(d_first, order, x.dtype),
        [x.new_empty(0) if each is None else each.to(x.dtype) for each in d_flat],
    )
