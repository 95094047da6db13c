"""Stream: a recurrent network that runs as its input arrives, a step or a chunk at a time, and keeps its state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from prnn import engine, narrow
from prnn.cells import Cell
from prnn.problem import Problem
from prnn.sequence import problem_of
from prnn.specs import LayerWeights, Rows

Array = Any


class Stream:
    """Run a recurrent network step by step.

    Holds a snapshot of the weights, taken when it is made and by `refresh`, and the states of `slots` independent sequences. One
    caller at a time. Nothing is allocated in a step but its result.

    Args:
        source: a layer of ``prnn.nn`` on the CPU (one direction, no reverse; dropout does not apply), or a cell.
        weights: with a cell: the weights of each layer, numpy arrays of one dtype, or as `prnn.narrow.narrowed` made them.
        slots: sequences that run side by side: the batch.

    Raises:
        TypeError: the source is neither.
        ValueError: the source cannot run step by step (it is bidirectional or reversed), or the weights do not fit the cell.

    Example::

        stream = prnn.Stream(prnn.nn.LSTM(40, 256))
        for frame in microphone:         # [1, 40], numpy or torch
            y = stream.step(frame)       # [1, 256], the same kind
    """

    def __init__(self, source: Any, weights: Sequence[LayerWeights] | None = None, *, slots: int = 1) -> None:
        if isinstance(source, Cell):
            if not weights:
                raise ValueError("Stream(cell) needs weights: one LayerWeights for each layer")
            given = tuple(weights)
            self._read: Callable[[], tuple[LayerWeights, ...]] = lambda: given
            self._cell = source
        elif hasattr(source, "layer_weights"):
            self._read = source.layer_weights
            self._cell = source.cell
        else:
            raise TypeError(
                f"Stream takes a layer of prnn.nn or a cell with weights, got {type(source).__name__}; "
                "prnn.accelerate(model) turns torch.nn layers into layers of prnn.nn"
            )
        if slots < 1:
            raise ValueError(f"slots must be at least 1, got {slots}")
        self.slots = slots
        self._weights = tuple(_copy(each) for each in self._read())
        self._problems = tuple(_problem(self._cell, each) for each in self._weights)
        for below, above in zip(self._problems, self._problems[1:]):
            if above.input_size != below.output_size:
                raise ValueError(
                    f"a layer of {above.input_size} inputs stands on a layer of {below.output_size} outputs"
                )
        first = self._problems[0]
        self._executables = tuple(engine.prepare(each, slots, held=True) for each in self._problems)
        self._x = np.zeros((slots, first.input_size), first.dtype)
        self._outputs = tuple(np.zeros((slots, each.output_size), first.dtype) for each in self._problems)
        # A step reads one set of states and writes the other.
        self._states = tuple(
            tuple(tuple(np.zeros((slots, width), each.dtype) for width in each.state_sizes) for each in self._problems)
            for _ in range(2)
        )
        self._current = 0
        self._shape, self._dtype = (slots, first.input_size), np.dtype(first.dtype)
        self._y = self._outputs[-1]
        self.refresh()

    def refresh(self) -> None:
        """Take a new snapshot of the weights; the states stay."""
        for kept, now in zip(self._weights, self._read()):
            for to, new in zip((*kept[:5], *kept.vectors, *kept.scales), (*now[:5], *now.vectors, *now.scales)):
                if to is not None:
                    to[...] = _numpy(new)
        self._snapshots = tuple(each.snapshot(weights) for each, weights in zip(self._executables, self._weights))
        inputs = (self._x, *self._outputs)
        rows = Rows(1, self.slots)
        self._steps = tuple(
            tuple(
                executable.bind(x, before, weights, rows, y, after, snapshot)
                for executable, x, before, weights, y, after, snapshot in zip(
                    self._executables, inputs, self._states[now], self._weights, self._outputs, self._states[1 - now],
                    self._snapshots,
                )
            )
            for now in range(2)
        )  # fmt: skip

    def step(self, x: Array) -> Array:
        """Advance every slot by one step.

        Args:
            x: [slots, input_size], numpy array or CPU torch tensor of the weights' dtype.

        Returns:
            The last layer's output [slots, output_size], a new array of the same kind.

        Raises:
            ValueError: the shape or dtype of x is another.
        """
        array = x if isinstance(x, np.ndarray) else _numpy(x)
        if array.shape != self._shape or array.dtype != self._dtype:
            raise ValueError(f"x must be {self._dtype} {list(self._shape)}, got {array.dtype} {list(array.shape)}")
        self._x[...] = array
        for layer in self._steps[self._current]:
            layer()
        self._current = 1 - self._current
        y = self._y.copy()
        return y if array is x else _like(y, x)

    def chunk(self, xs: Array) -> Array:
        """Advance every slot by several steps at once; the same numbers as `step` by `step`.

        Args:
            xs: [T, slots, input_size], T >= 0.

        Returns:
            The outputs [T, slots, output_size].

        Raises:
            ValueError: the shape or dtype of xs is another.
        """
        array = _numpy(xs)
        if array.ndim != 3 or array.shape[1:] != self._shape or array.dtype != self._dtype:
            raise ValueError(
                f"xs must be {self._dtype} [T, {self.slots}, {self._shape[1]}], got {array.dtype} {list(array.shape)}"
            )
        rows = Rows(array.shape[0], self.slots)
        below = np.ascontiguousarray(array).reshape(rows.num_rows, -1)
        before, after = self._states[self._current], self._states[1 - self._current]
        for k, executable in enumerate(self._executables):
            y = np.empty((rows.num_rows, self._problems[k].output_size), self._dtype)
            executable.bind(below, before[k], self._weights[k], rows, y, after[k], self._snapshots[k])()
            below = y
        self._current = 1 - self._current
        y = below.reshape(rows.steps, self.slots, -1)
        return y if isinstance(xs, np.ndarray) else _like(y, xs)

    def reset(self, slots: Iterable[int] | None = None) -> None:
        """Set the states of these slots (all by default) to zero.

        Raises:
            IndexError: there is no such slot.
        """
        where: Any = slice(None) if slots is None else list(slots)
        for layer in self._states[self._current]:
            for state in layer:
                state[where] = 0

    @property
    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """The states by name, [layers, slots, width] each: a copy. Assign a dict of the same shapes to restore them."""
        layers = self._states[self._current]
        return {name: np.stack([layer[s] for layer in layers]) for s, name in enumerate(self._cell.states)}

    @state.setter
    def state(self, value: dict[str, Array]) -> None:
        current = self.state
        if set(value) != set(current):
            raise ValueError(f"the states are {sorted(current)}, got {sorted(value)}")
        arrays = {name: _numpy(array) for name, array in value.items()}
        for name, array in arrays.items():
            if array.shape != current[name].shape:
                raise ValueError(f"state {name!r} must have shape {list(current[name].shape)}, got {list(array.shape)}")
        for s, name in enumerate(self._cell.states):
            for k, layer in enumerate(self._states[self._current]):
                layer[s][...] = arrays[name][k]


def _problem(cell: Cell, weights: LayerWeights) -> Problem:
    if weights.w_ih is None:
        raise ValueError(f"cell {cell.name!r} takes no input product; there is nothing to stream into it")
    dtype = weights.w_ih.dtype.name if narrow.kind_of(weights) == "same" else "float32"
    return problem_of(cell, weights.w_ih.shape[1], weights, dtype)


def _numpy(array: Array) -> np.ndarray[Any, Any]:
    """A numpy view of a numpy array or a torch tensor."""
    return array.detach().numpy() if hasattr(array, "detach") else np.asarray(array)


def _like(y: np.ndarray[Any, Any], x: Array) -> Array:
    """y as a torch tensor, without importing torch here: x brings it along."""
    import torch

    return torch.from_numpy(y)


def _copy(weights: LayerWeights) -> LayerWeights:
    def copy(array: Array) -> Array:
        return None if array is None else np.array(_numpy(array), order="C")

    w_ih, w_hh, b_ih, b_hh, w_hr = map(copy, weights[:5])
    return LayerWeights(
        w_ih, w_hh, b_ih, b_hh, w_hr, tuple(map(copy, weights.vectors)), tuple(map(copy, weights.scales))
    )
