"""Family ``interpreted``: numpy loops over the cell's program, for cells that cannot be compiled on this machine.

The same arithmetic, buffers and order as the native engine (kernels/cpu), a timestep at a time; slow, and in no need of a compiler.
What forward saves for each row: the program's saved values, the recurrent state before the step, the operands of dependent
products and, with a projection, the output before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from prnn.cells.interp import evaluate
from prnn.cells.program import Program
from prnn.facts import CpuFacts
from prnn.kernels.family import Config, Work, count_work, refuse_dtype
from prnn.problem import Problem
from prnn.specs import Available, LayerWeights, Rows

Array = Any

NAME = "interpreted"
FALLBACK = True


def configs(problem: Problem, facts: CpuFacts, available: Available) -> tuple[Config, ...]:
    """See family.Family."""
    return (Config("numpy", 1),)


def refuse(problem: Problem, config: Config, batch: int, available: Available) -> str | None:
    """See family.Family."""
    return refuse_dtype(problem)


def work(problem: Problem, batch: int, steps: int) -> Work:
    """See family.Family."""
    return count_work(problem, batch, 1, rows_per_pass=max(batch, 1), packs=False, peak_share=0.5, numpy=True)


def saved_size(problem: Problem, num_rows: int) -> int:
    """Elements that a training forward keeps for `num_rows` rows."""
    return num_rows * sum(_saved_widths(problem))


def _saved_widths(problem: Problem) -> tuple[int, int, int, int]:
    program, hidden = problem.cell.program, problem.hidden_size
    raw_output = hidden if problem.proj_size else 0
    return len(program.saved) * hidden, problem.output_size, len(program.products) * hidden, raw_output


def _saved_views(problem: Problem, saved: Array, num_rows: int) -> list[Array]:
    widths = _saved_widths(problem)
    parts = np.split(saved, np.cumsum([num_rows * width for width in widths])[:-1])
    return [part.reshape(num_rows, width) for part, width in zip(parts, widths)]


def _steps(rows: Rows) -> list[tuple[int, int, int]]:
    """(first row, number of rows, number of rows of the step processed before) for each step in processing order."""
    sizes = [rows.batch] * rows.steps if rows.batch_sizes is None else [int(n) for n in rows.batch_sizes]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    order = range(rows.steps - 1, -1, -1) if rows.reverse else range(rows.steps)
    result, before = [], 0
    for t in order:
        result.append((int(starts[t]), sizes[t], before))
        before = sizes[t]
    return result


def _columns(array: Array, index: int, hidden: int) -> Array:
    return array[..., index * hidden : (index + 1) * hidden]


def _gate_rows(matrix: Array | None, gates: tuple[str, ...], gate: str, hidden: int) -> Array | None:
    if matrix is None:
        return None
    k = gates.index(gate)
    return matrix[k * hidden : (k + 1) * hidden]


def _affine(x: Array, weight: Array, bias: Array | None) -> Array:
    return x @ weight.T if bias is None else x @ weight.T + bias


def forward(
    problem: Problem,
    x: Array,
    states: tuple[Array, ...],
    weights: LayerWeights,
    rows: Rows,
    y: Array,
    final_states: tuple[Array, ...],
    saved: Array | None = None,
) -> None:
    """Run a sequence; see engine.Executable.forward."""
    cell, program, hidden = problem.cell, problem.cell.program, problem.hidden_size
    current = [np.array(state) for state in states]
    leaves: dict[Any, Array] = {("vector", i): v for i, v in enumerate(weights.vectors)}
    views = _saved_views(problem, saved, rows.num_rows) if saved is not None else None
    for first, count, _ in _steps(rows):
        active = slice(first, first + count)
        if rows.restart is not None:
            again = np.flatnonzero(rows.restart[active])
            for state, initial in zip(current, states):
                state[again] = initial[again] if rows.restart_to_initial else 0
        previous = [state[:count] for state in current]
        for index, slot in enumerate(program.slots):
            value: Any = 0.0
            if slot.kind in ("input", "sum"):
                value = _affine(x[active], *_pair(weights.w_ih, weights.b_ih, cell.input_gates, slot.gate, hidden))
            if slot.kind in ("recurrent", "sum"):
                pair = _pair(weights.w_hh, weights.b_hh, cell.recurrent_gates, slot.gate, hidden)
                value = value + _affine(previous[0], *pair)
            leaves["slot", index] = value
        leaves.update({("state", s): value for s, value in enumerate(previous)})
        following: dict[int, Array] = {}
        for stage in program.forward:
            for output, value in zip(stage, evaluate([each.value for each in stage], leaves, np)):
                if output.kind == "operand":
                    slot_index = program.products[output.index]
                    gate = program.slots[slot_index].gate
                    pair = _pair(weights.w_hh, weights.b_hh, cell.recurrent_gates, gate, hidden)
                    leaves["slot", slot_index] = _affine(value, *pair)
                    if views is not None:
                        _columns(views[2], output.index, hidden)[active] = value
                elif output.kind == "next":
                    following[output.index] = value
                elif views is not None:
                    _columns(views[0], output.index, hidden)[active] = value
        if views is not None:
            views[1][active] = previous[0]
        if weights.w_hr is not None:
            if views is not None:
                views[3][active] = following[0]
            following[0] = following[0] @ weights.w_hr.T
        y[active] = following[0]
        for s, state in enumerate(current):
            state[:count] = following[s]
    for final, state in zip(final_states, current):
        final[...] = state


def _pair(
    weight: Array, bias: Array | None, gates: tuple[str, ...], gate: str, hidden: int
) -> tuple[Array, Array | None]:
    block = _gate_rows(weight, gates, gate, hidden)
    assert block is not None
    return block, _gate_rows(bias, gates, gate, hidden)


def backward(
    problem: Problem,
    x: Array,
    weights: LayerWeights,
    rows: Rows,
    saved: Array,
    d_y: Array,
    d_final_states: tuple[Array, ...],
    d_x: Array | None,
    d_states: tuple[Array, ...],
    d_weights: LayerWeights,
) -> None:
    """Gradients of a sequence; see engine.Executable.backward."""
    cell, program, hidden = problem.cell, problem.cell.program, problem.hidden_size
    values, outputs_before, operands, raw_outputs = _saved_views(problem, saved, rows.num_rows)
    carry = [np.array(gradient) for gradient in d_final_states]
    for gradient in (d_x, *d_states, *d_weights[:5], *d_weights.vectors):
        if gradient is not None:
            gradient[...] = 0
    steps = _steps(rows)
    for first, count, before in reversed(steps):
        active = slice(first, first + count)
        d_next = [gradient[:count] for gradient in carry]
        d_next[0] = d_next[0] + d_y[active]
        if weights.w_hr is not None:
            if d_weights.w_hr is not None:
                d_weights.w_hr[...] += d_next[0].T @ raw_outputs[active]
            d_next[0] = d_next[0] @ weights.w_hr
        leaves: dict[Any, Array] = {("vector", i): v for i, v in enumerate(weights.vectors)}
        leaves.update({("d_next", s): value for s, value in enumerate(d_next)})
        leaves.update({("saved", j): _columns(values, j, hidden)[active] for j in range(len(program.saved))})
        if program.backward_reads_output:
            leaves["state", 0] = outputs_before[active]
        shape = (count, hidden)
        d_previous = [np.zeros((count, width), x.dtype) for width in problem.state_sizes]
        for stage in program.backward:
            for output, value in zip(stage, evaluate([each.value for each in stage], leaves, np)):
                value = np.broadcast_to(value, shape)
                if output.kind == "d_state":
                    if not (output.index == 0 and problem.proj_size):
                        d_previous[output.index] += value
                elif output.kind == "d_vector":
                    d_vector = d_weights.vectors[output.index]
                    if d_vector is not None:
                        d_vector += value.sum(0)
                else:
                    _slot_gradient(problem, program, output.index, value, active, x, weights, d_x, d_weights)
                    slot = program.slots[output.index]
                    if slot.kind == "input":
                        continue
                    block = _gate_rows(weights.w_hh, cell.recurrent_gates, slot.gate, hidden)
                    if slot.kind == "product":
                        k = program.products.index(output.index)
                        leaves["d_operand", k] = value @ block
                        vector = _columns(operands, k, hidden)[active]
                    else:
                        d_previous[0] += value @ block
                        vector = outputs_before[active]
                    d_block = _gate_rows(d_weights.w_hh, cell.recurrent_gates, slot.gate, hidden)
                    if d_block is not None:
                        d_block += value.T @ vector
        if rows.restart is not None:
            again = np.flatnonzero(rows.restart[active])
            for gradient, initial in zip(d_previous, d_states):
                if rows.restart_to_initial:
                    initial[again] += gradient[again]
                gradient[again] = 0
        for gradient, previous, initial in zip(carry, d_previous, d_states):
            gradient[:count] = previous
            initial[before:count] += gradient[before:count]  # these sequences begin at this step
    started = max((count for _, count, _ in steps), default=0)
    for gradient, unchanged in zip(d_states, carry):
        gradient[started:] += unchanged[started:]  # sequences of length 0


def _slot_gradient(
    problem: Problem,
    program: Program,
    index: int,
    value: Array,
    active: slice,
    x: Array,
    weights: LayerWeights,
    d_x: Array | None,
    d_weights: LayerWeights,
) -> None:
    """Gradients of the input product and of the biases from the gradient of one slot."""
    slot, hidden, cell = program.slots[index], problem.hidden_size, problem.cell
    if slot.kind in ("input", "sum"):
        block = _gate_rows(weights.w_ih, cell.input_gates, slot.gate, hidden)
        d_block = _gate_rows(d_weights.w_ih, cell.input_gates, slot.gate, hidden)
        d_bias = _gate_rows(d_weights.b_ih, cell.input_gates, slot.gate, hidden)
        if d_block is not None:
            d_block += value.T @ x[active]
        if d_bias is not None:
            d_bias += value.sum(0)
        if d_x is not None:
            d_x[active] += value @ block
    if slot.kind != "input":
        d_bias = _gate_rows(d_weights.b_hh, cell.recurrent_gates, slot.gate, hidden)
        if d_bias is not None:
            d_bias += value.sum(0)
