"""Run a layer on numpy arrays alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from prnn import engine, narrow
from prnn.cells import Cell
from prnn.packing import pack
from prnn.problem import DTYPES, Problem
from prnn.specs import LayerWeights

Array = Any


def run(
    cell: Cell,
    x: Array,
    weights: LayerWeights,
    h0: Sequence[Array] | None = None,
    *,
    lengths: Sequence[int] | None = None,
    reset: Array | None = None,
    reset_to: str = "zero",
    reverse: bool = False,
) -> tuple[Array, tuple[Array, ...]]:
    """Run one layer in one direction over a sequence, without PyTorch.

    Args:
        cell: what one timestep computes.
        x: float32 or float64 [T, B, I].
        weights: of the dtype of x, or as `prnn.narrow.narrowed` made them; for the shapes see `LayerWeights`.
        h0: one array for each state of the cell: [B, P] for the first, [B, H] for the others. Zeros by default.
        lengths: valid steps of each sequence; what lies beyond is never read, and y is zero there.
        reset: bool [T, B]; True puts a boundary between t-1 and t.
        reset_to: where a segment starts after a boundary: "zero" or "initial" (h0).
        reverse: run from the last step to the first; y stays in input order.

    Returns:
        y [T, B, P] and the final states, shaped like h0.

    Raises:
        ValueError: a shape, dtype, length or option does not fit.
    """
    x = np.asarray(x)
    if x.ndim != 3 or x.dtype.name not in DTYPES:
        raise ValueError(f"x must be [T, B, I] of dtype float32 or float64, got {x.ndim} dimensions of {x.dtype}")
    if reset_to not in ("zero", "initial"):
        raise ValueError(f'reset_to must be "zero" or "initial", got {reset_to!r}')
    steps, batch, input_size = x.shape
    w_ih, w_hh, b_ih, b_hh, w_hr = map(_optional, weights[:5])
    vectors, scales = tuple(map(np.ascontiguousarray, weights.vectors)), tuple(map(_optional, weights.scales))
    weights = LayerWeights(w_ih, w_hh, b_ih, b_hh, w_hr, vectors, scales)
    problem = problem_of(cell, input_size, weights, x.dtype.name)
    shapes = [(batch, width) for width in problem.state_sizes]
    initial = [np.zeros(shape, x.dtype) for shape in shapes] if h0 is None else [np.asarray(state) for state in h0]
    if [(state.shape, state.dtype) for state in initial] != [(shape, x.dtype) for shape in shapes]:
        got = [(state.shape, state.dtype.name) for state in initial]
        raise ValueError(f"h0 must hold {shapes} of {x.dtype}, one for each state {cell.states}, got {got}")
    packing = pack(
        steps, batch, (reverse,), None if lengths is None else np.asarray(lengths),
        None if reset is None else np.asarray(reset, dtype=bool), reset_to == "initial",
    )  # fmt: skip
    flat = x.reshape(steps * batch, input_size)
    rows = np.ascontiguousarray(flat if packing.index is None else flat[packing.index])
    order = slice(None) if packing.order is None else packing.order
    begun = tuple(np.ascontiguousarray(state[order]) for state in initial)
    y = np.empty((len(rows), problem.output_size), x.dtype)
    last = tuple(map(np.empty_like, begun))
    if len(rows):
        engine.prepare(problem, batch, packing.rows[0].steps).forward(rows, begun, weights, packing.rows[0], y, last)
    else:
        last = begun
    finals = tuple(map(np.empty_like, initial))
    for final, state in zip(finals, last):
        final[order] = state
    padded = y
    if packing.index is not None:
        padded = np.zeros((steps * batch, problem.output_size), x.dtype)
        padded[packing.index] = y
    return padded.reshape(steps, batch, problem.output_size), finals


def _optional(array: Array | None) -> Array | None:
    return None if array is None else np.ascontiguousarray(array)


def problem_of(cell: Cell, input_size: int, weights: LayerWeights, dtype: str) -> Problem:
    """The problem that these weights belong to.

    Raises:
        ValueError: their shapes or dtypes do not fit the cell or each other.
    """
    blocks = weights.w_ih if cell.input_gates else weights.w_hh
    if blocks is None:
        raise ValueError(f"cell {cell.name!r} needs {'w_ih' if cell.input_gates else 'w_hh'}")
    hidden_size = len(blocks) // len(cell.input_gates or cell.recurrent_gates)
    proj_size = 0 if weights.w_hr is None else len(weights.w_hr)
    kind = narrow.kind_of(weights)
    problem = Problem(
        cell,
        input_size,
        hidden_size,
        proj_size,
        weights.b_ih is not None or weights.b_hh is not None,
        dtype,
        weights=kind,
    )
    given = [(array.shape, array.dtype.name) for array in (*weights[:5], *weights.vectors) if array is not None]
    layouts = {name: narrow.layout(name, shape, kind) for name, shape in problem.weight_shapes.items()}
    expected = {
        name: (shape, dtype if kind == "same" else layouts[name][0]) for name, shape in problem.weight_shapes.items()
    }
    if given != list(expected.values()):
        raise ValueError(f"{problem} takes weights {expected}, got {given}")
    scales = [(scale.shape, scale.dtype.name) for scale in weights.scales if scale is not None]
    wanted = [(shape, "float32") for _, shape in layouts.values() if shape and kind != "same"]
    if scales != wanted:
        raise ValueError(f"{problem} takes scales {wanted}, got {scales}")
    return problem
