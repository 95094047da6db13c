"""Recurrent layers by onnxruntime: a whole sequence a call, or one step a call with the state kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime  # type: ignore[import-untyped]

from prnn.bench.onnx_graph import Floats, chain
from prnn.specs import LayerWeights


def _open(
    cell: str, layers: Sequence[LayerWeights], batch: int, steps: int | None, threads: int
) -> tuple[onnxruntime.InferenceSession, dict[str, Floats]]:
    """A session, and zeros for each of its states."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    model = chain(cell, layers, batch, steps, whole=steps != 1).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session, {value.name: np.zeros(value.shape, np.float32) for value in session.get_inputs()[1:]}


class OnnxSequence:
    """Whole sequences from zero state; `layers` hold the weights as torch.nn has them."""

    def __init__(self, cell: str, layers: Sequence[LayerWeights], batch: int = 1, threads: int = 1) -> None:
        self._session, self._zeros = _open(cell, layers, batch, None, threads)

    def __call__(self, x: Floats) -> tuple[Floats, list[Floats]]:
        """x [T, B, I] -> y [T, B, H], and the final states [1, B, H] of every layer."""
        y, *finals = self._session.run(None, {"x": x, **self._zeros})
        return y[:, 0], finals


class OnnxStream:
    """Step by step with the state kept; `layers` hold the weights as torch.nn has them."""

    def __init__(self, cell: str, layers: Sequence[LayerWeights], batch: int = 1, threads: int = 1) -> None:
        self._session, zeros = _open(cell, layers, batch, 1, threads)
        # Steps alternate between two bound sets of states, one read and one written: this spares onnxruntime the copies
        # and allocations of session.run, which would cost it about a third of its time on a small layer.
        self._x = np.zeros(self._session.get_inputs()[0].shape, np.float32)
        self._states = [[zero.copy() for zero in zeros.values()] for _ in range(2)]
        output = [value.name for value in self._session.get_outputs()].index(f"hn{len(layers) - 1}")
        self._ys = [written[output][0] for written in self._states[::-1]]
        # An OrtValue lives in the memory of the array it is made from.
        x, *values = (
            onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in (self._x, *self._states[0], *self._states[1])
        )
        halves = [values[: len(zeros)], values[len(zeros) :]]
        self._bindings = []
        for read, written in (halves, halves[::-1]):
            binding = self._session.io_binding()
            binding.bind_ortvalue_input("x", x)
            for name, value in zip(zeros, read):
                binding.bind_ortvalue_input(name, value)
            for node, value in zip(self._session.get_outputs(), written):
                binding.bind_ortvalue_output(node.name, value)
            self._bindings.append(binding)
        self._turn = 0

    def reset(self) -> None:
        """Set the state that the next step reads to zero."""
        for state in self._states[self._turn]:
            state[...] = 0

    def step(self, x: Floats) -> Floats:
        """x [B, I] -> y [B, H], a new array."""
        self._x[0] = x
        self._session.run_with_iobinding(self._bindings[self._turn])
        y: Floats = self._ys[self._turn].copy()
        self._turn = 1 - self._turn
        return y
