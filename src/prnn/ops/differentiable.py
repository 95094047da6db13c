"""A layer as a loop over time of ordinary torch operations: slow, and differentiable as often as one likes.

The operators' second derivative goes this way; the loop interprets the cell's own definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from prnn.cells import Cell
from prnn.cells.interp import evaluate
from prnn.ops.arguments import ARITHMETIC, Layer, packing_of, plan_of
from prnn.specs import LayerWeights, Rows


def forward(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    batch_sizes: Tensor | None,
    lengths: Tensor | None,
    reset: Tensor | None,
    layer: Layer,
) -> tuple[Tensor, ...]:
    """(y, *final states) of the operator `prnn::layer` with these arguments."""
    plan = plan_of(layer, x.dtype, True)
    dtype = ARITHMETIC[x.dtype]
    sizes = (_concrete(batch_sizes), _concrete(lengths), _concrete(reset))
    with torch._C._DisableFuncTorch():  # under a transform numpy() fails even on a tensor that takes no part in it
        packing = packing_of(layer, plan.reverse, x, states[0].shape[1], *sizes)
    rows = x.to(dtype).reshape(-1, x.shape[-1])
    initial = [state.to(dtype) for state in states]
    index = order = None
    if packing.index is not None and packing.order is not None:
        index, order = torch.from_numpy(packing.index), torch.from_numpy(packing.order)
        rows = rows.index_select(0, index)
        initial = [state.index_select(1, order) for state in initial]
    outputs, finals = [], []
    per_direction = plan.split([weight.to(dtype) for weight in weights])
    for d, direction_rows in enumerate(packing.rows):
        y, last = _direction(plan.cell, rows, [state[d] for state in initial], per_direction[d], direction_rows)
        outputs.append(y)
        finals.append(last)
    y = torch.cat(outputs, 1)
    result = [torch.stack(each) for each in zip(*finals)]
    if index is not None and order is not None:
        y = y.new_zeros(x.shape[0] * x.shape[1], y.shape[1]).index_copy(0, index, y)
        result = [torch.zeros_like(state).index_copy(1, order, state) for state in result]
    return y.reshape(*x.shape[:-1], y.shape[1]).to(x.dtype), *(state.to(x.dtype) for state in result)


def _concrete(tensor: Tensor | None) -> Tensor | None:
    """The tensor under the wrappers of torch.func."""
    while tensor is not None and torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def _direction(
    cell: Cell, x: Tensor, initial: list[Tensor], weights: LayerWeights, rows: Rows
) -> tuple[Tensor, list[Tensor]]:
    """One direction over packed rows x [num_rows, I] -> y [num_rows, P], final states."""
    sizes = [rows.batch] * rows.steps if rows.batch_sizes is None else rows.batch_sizes.tolist()
    restart = None if rows.restart is None else torch.from_numpy(rows.restart).bool().split(sizes)
    current = initial
    outputs: list[Any] = [x.new_empty(0, initial[0].shape[-1])] * rows.steps
    inputs = x.split(sizes)
    for t in reversed(range(rows.steps)) if rows.reverse else range(rows.steps):
        previous = [state[: sizes[t]] for state in current]
        if restart is not None:
            fresh = initial if rows.restart_to_initial else [torch.zeros_like(state) for state in initial]
            previous = [torch.where(restart[t][:, None], new[: sizes[t]], state) for new, state in zip(fresh, previous)]
        following = _step(cell, inputs[t], weights, previous)
        outputs[t] = following[0]
        current = [torch.cat([new, state[sizes[t] :]]) for new, state in zip(following, current)]
    return torch.cat(outputs) if outputs else x.new_empty(0, initial[0].shape[-1]), current


def _step(cell: Cell, x: Tensor, weights: LayerWeights, states: list[Tensor]) -> list[Tensor]:
    """One timestep of n sequences: x [n, I], states [n, width] each -> the next states."""
    hidden_size = states[-1].shape[-1] if weights.w_hr is None else weights.w_hr.shape[1]

    def affine(matrix: Any, bias: Tensor | None, gates: tuple[str, ...], gate: str, vector: Tensor) -> Tensor:
        block = slice(gates.index(gate) * hidden_size, (gates.index(gate) + 1) * hidden_size)
        return torch.nn.functional.linear(vector, matrix[block], None if bias is None else bias[block])

    def recurrent(gate: str, vector: Tensor) -> Tensor:
        return affine(weights.w_hh, weights.b_hh, cell.recurrent_gates, gate, vector)

    leaves: dict[Any, Any] = {("state", name): value for name, value in zip(cell.states, states)}
    leaves.update({("vector", name): value for name, value in zip(cell.vectors, weights.vectors)})
    for slot in cell.program.slots:
        if slot.kind in ("input", "sum"):
            leaves["input", slot.gate] = affine(weights.w_ih, weights.b_ih, cell.input_gates, slot.gate, x)
        if slot.kind in ("recurrent", "sum"):
            leaves["recurrent", slot.gate] = recurrent(slot.gate, states[0])
    for gate in cell.recurrent_gates:
        if ("recurrent", gate) in leaves:
            leaves["sum", gate] = leaves.get(("input", gate), 0.0) + leaves["recurrent", gate]
    following = evaluate(cell.next_states, leaves, torch, recurrent)
    width = (x.shape[0], hidden_size)
    following = [
        torch.as_tensor(value, dtype=x.dtype).expand(width) for value in following
    ]  # a state may be a constant
    if weights.w_hr is not None:
        following[0] = torch.nn.functional.linear(following[0], weights.w_hr)
    return following
