"""Call the native engine for one problem."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from prnn.problem import Problem
from prnn.runtime.cpu.compiler import native_cell
from prnn.runtime.cpu.library import IN_PLACE, LAYER_ABI, PACKED, RESTART_TO_INITIAL, REVERSE, WEIGHTS, Layer, load
from prnn.specs import LayerWeights, Rows

Array = Any


def address(array: Array) -> int | None:
    """Where the first element of a numpy array or a torch tensor lies."""
    if array is None:
        return None
    if type(array) is np.ndarray:
        return array.__array_interface__["data"][0]  # type: ignore[no-any-return]
    return array.data_ptr()  # type: ignore[no-any-return]


def row_stride(array: Array) -> int:
    """Elements from one row of a matrix to the next."""
    if hasattr(array, "data_ptr"):
        return array.stride(-2)  # type: ignore[no-any-return]
    return array.strides[-2] // array.itemsize  # type: ignore[no-any-return]


class NativeLayer:
    """One problem, one instruction set, one number of threads; forward and backward as in engine.Executable.

    Args:
        in_place: read the weights where they are instead of packing them on every call.
    """

    def __init__(self, problem: Problem, isa: str, threads: int, in_place: bool) -> None:
        library = load()
        self._engine = library.prnn_engine(isa.encode())
        self._library = library
        self._template = Layer(
            abi=LAYER_ABI,
            dtype=int(problem.dtype == "float64"),
            flags=(IN_PLACE if in_place else 0) | WEIGHTS[problem.weights],
            threads=threads,
            input_size=problem.input_size,
            hidden_size=problem.hidden_size,
            proj_size=problem.proj_size,
            cell=native_cell(problem.cell, isa),
        )

    def saved_size(self, num_rows: int) -> int:
        layer = Layer.from_buffer_copy(self._template)
        layer.rows = num_rows
        return int(self._library.prnn_saved_elements(self._engine, layer))

    def pack(self, weights: LayerWeights) -> Array:
        """A packed copy of the matrices, as bytes."""
        layer = Layer.from_buffer_copy(self._template)
        self._set_weights(layer, weights)
        packed = _aligned_bytes(self._library.prnn_packed_bytes(self._engine, layer))
        layer.packed = address(packed)
        self._library.prnn_pack(self._engine, layer)
        return packed

    def forward(
        self,
        x: Array,
        states: tuple[Array, ...],
        weights: LayerWeights,
        rows: Rows,
        y: Array,
        final_states: tuple[Array, ...],
        saved: Array | None = None,
    ) -> None:
        layer = self._forward_arguments(x, states, weights, rows, y, final_states)
        layer.saved = address(saved)
        self._run(layer)

    def bind(
        self,
        x: Array,
        states: tuple[Array, ...],
        weights: LayerWeights,
        rows: Rows,
        y: Array,
        final_states: tuple[Array, ...],
        snapshot: Array,
    ) -> Callable[[], None]:
        layer = self._forward_arguments(x, states, weights, rows, y, final_states)
        layer.packed = address(snapshot)
        layer.flags |= PACKED
        return partial(self._run, layer)

    def _forward_arguments(
        self,
        x: Array,
        states: tuple[Array, ...],
        weights: LayerWeights,
        rows: Rows,
        y: Array,
        final_states: tuple[Array, ...],
    ) -> Layer:
        layer = Layer.from_buffer_copy(self._template)
        self._set_rows(layer, rows)
        self._set_weights(layer, weights)
        layer.x, layer.y, layer.y_row = address(x), address(y), row_stride(y)
        for s, (state, final) in enumerate(zip(states, final_states)):
            layer.states[s], layer.final_states[s] = address(state), address(final)
        return layer

    def _run(self, layer: Layer) -> None:
        if self._library.prnn_forward(self._engine, layer):
            raise MemoryError(f"no memory for {layer.rows} rows of a layer with hidden_size {layer.hidden_size}")

    def backward(
        self,
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
        layer = Layer.from_buffer_copy(self._template)
        self._set_rows(layer, rows)
        self._set_weights(layer, weights)
        layer.x, layer.saved = address(x), address(saved)
        layer.d_y, layer.d_y_row, layer.d_x = address(d_y), row_stride(d_y), address(d_x)
        for s, (d_final, d_state) in enumerate(zip(d_final_states, d_states)):
            layer.d_final_states[s], layer.d_states[s] = address(d_final), address(d_state)
        layer.d_w_ih, layer.d_w_hh, layer.d_b_ih, layer.d_b_hh, layer.d_w_hr = map(address, d_weights[:5])
        for v, d_vector in enumerate(d_weights.vectors):
            layer.d_vectors[v] = address(d_vector)
        if self._library.prnn_backward(self._engine, layer):
            raise MemoryError(
                f"no memory for the gradients of {layer.rows} rows of a layer with hidden_size {layer.hidden_size}"
            )

    def _set_rows(self, layer: Layer, rows: Rows) -> None:
        layer.steps, layer.batch, layer.rows = rows.steps, rows.batch, rows.num_rows
        layer.batch_sizes, layer.restart = address(rows.batch_sizes), address(rows.restart)
        if rows.reverse:
            layer.flags |= REVERSE
        if rows.restart_to_initial:
            layer.flags |= RESTART_TO_INITIAL

    def _set_weights(self, layer: Layer, weights: LayerWeights) -> None:
        layer.w_ih, layer.w_hh, layer.b_ih, layer.b_hh, layer.w_hr = map(address, weights[:5])
        for v, vector in enumerate(weights.vectors):
            layer.vectors[v] = address(vector)
        for s, scale in enumerate(weights.scales):
            layer.scales[s] = address(scale)


def _aligned_bytes(num_bytes: int) -> Array:
    """An uninitialised numpy byte array that begins at a multiple of a cache line."""
    raw = np.empty(num_bytes + 63, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + num_bytes]
