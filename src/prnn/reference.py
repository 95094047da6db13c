"""The slow truth: a float64 loop over time that interprets the cell's definition. Everything else is tested against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from prnn.cells import Cell
from prnn.cells.interp import evaluate
from prnn.specs import LayerWeights

Array = Any


def layer(
    cell: Cell,
    x: Array,
    weights: LayerWeights,
    states: Sequence[Array],
    *,
    lengths: Sequence[int] | None = None,
    reset: Array | None = None,
    reset_to_initial: bool = False,
    reverse: bool = False,
    xp: Any = np,
) -> tuple[Array, list[Array]]:
    """Run one layer in one direction.

    Args:
        x: [T, B, I].
        states: one [B, width] for each state of the cell.
        lengths: valid steps of each sequence; T by default.
        reset: bool [T, B]; True puts a boundary between t-1 and t.
        xp: numpy, or torch to get a result that can be differentiated.

    Returns:
        y [T, B, P], zero past each end, and the final states.
    """
    num_steps, batch = x.shape[0], x.shape[1]
    lengths = [num_steps] * batch if lengths is None else [int(each) for each in lengths]
    columns, finals = [], []
    for b in range(batch):  # one sequence at a time: nothing can leak between rows
        initial = [state[b] for state in states]
        current = list(initial)
        outputs: list[Array] = [xp.zeros_like(current[0])] * num_steps
        order = range(lengths[b])
        for t in reversed(order) if reverse else order:
            boundary = t + 1 if reverse else t
            if reset is not None and boundary < lengths[b] and bool(reset[boundary, b]):
                current = list(initial) if reset_to_initial else [xp.zeros_like(state) for state in initial]
            current = step(cell, x[t, b], weights, current, xp)
            outputs[t] = current[0]
        columns.append(outputs)
        finals.append(current)
    final = [xp.stack([row[s] for row in finals]) if batch else states[s] for s in range(len(states))]
    if num_steps == 0 or batch == 0:
        return xp.zeros((num_steps, batch, states[0].shape[-1]), dtype=x.dtype), final
    return xp.stack([xp.stack(outputs) for outputs in columns], 1), final


def step(cell: Cell, x: Array, weights: LayerWeights, states: Sequence[Array], xp: Any = np) -> list[Array]:
    """One timestep of one sequence: x [I], states [width] each -> the next states."""
    leaves: dict[Any, Array] = {("state", name): value for name, value in zip(cell.states, states)}
    leaves.update({("vector", name): value for name, value in zip(cell.vectors, weights.vectors)})
    hidden_size = weights.w_ih.shape[0] // len(cell.input_gates) if weights.w_ih is not None else states[-1].shape[-1]

    def block(matrix: Array, gates: tuple[str, ...], gate: str) -> Array:
        k = gates.index(gate)
        return matrix[k * hidden_size : (k + 1) * hidden_size]

    def affine(matrix: Array, bias: Array | None, gates: tuple[str, ...], gate: str, vector: Array) -> Array:
        product = block(matrix, gates, gate) @ vector
        return product if bias is None else product + block(bias, gates, gate)

    def recurrent(gate: str, vector: Array) -> Array:
        return affine(weights.w_hh, weights.b_hh, cell.recurrent_gates, gate, vector)

    for gate in cell.input_gates:
        leaves["input", gate] = affine(weights.w_ih, weights.b_ih, cell.input_gates, gate, x)
    for gate in cell.recurrent_gates:
        if ("product", gate) not in [(slot.kind, slot.gate) for slot in cell.program.slots]:
            leaves["recurrent", gate] = recurrent(gate, states[0])
            leaves["sum", gate] = leaves.get(("input", gate), 0.0) + leaves["recurrent", gate]
    following = evaluate(cell.next_states, leaves, xp, recurrent)
    if weights.w_hr is not None:
        following[0] = weights.w_hr @ following[0]
    return following
