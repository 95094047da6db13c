"""Recurrent layers as an ONNX graph of nothing but LSTM, GRU or RNN nodes, for peers that read one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from prnn.specs import Array, LayerWeights

Floats = npt.NDArray[np.float32]

OPSET = 17
IR_VERSION = 8  # the oldest that carries OPSET, so that any onnxruntime of the last years reads it

# cell -> (node, the place of each ONNX gate among ours, states)
_NODES = {
    "lstm": ("LSTM", (0, 3, 1, 2), ("h", "c")),
    "gru": ("GRU", (1, 0, 2), ("h",)),
    "rnn_tanh": ("RNN", (0,), ("h",)),
}


def chain(
    cell: str, layers: Sequence[LayerWeights], batch: int, steps: int | None, whole: bool = True
) -> onnx.ModelProto:
    """A chain of one node a layer.

    Inputs: ``x`` [T, B, I], and for each layer and state ``h{layer}`` (and ``c{layer}``) [1, B, H].
    Outputs: ``y`` [T, 1, B, H], and for each layer and state ``hn{layer}`` (``cn{layer}``) [1, B, H].

    Args:
        steps: T; None leaves it open.
        whole: with the output ``y``; a single step has it in the last ``hn`` already.
    """
    helper = onnx.helper
    kind, order, states = _NODES[cell]
    (_, hidden), (_, input_size) = np.asarray(layers[0].w_hh).shape, np.asarray(layers[0].w_ih).shape
    nodes, initializers, source = [], [], "x"
    for k, weights in enumerate(layers):
        biases = [_reordered(weights.b_ih, order), _reordered(weights.b_hh, order)]
        named = {
            f"W{k}": _reordered(weights.w_ih, order),
            f"R{k}": _reordered(weights.w_hh, order),
            f"B{k}": np.concatenate(biases, axis=1),
        }
        initializers += [onnx.numpy_helper.from_array(value, name) for name, value in named.items()]
        last = k == len(layers) - 1
        output = "y" if last and whole else "" if last else f"Y{k}"
        inputs = [source, *named, "", *(f"{state}{k}" for state in states)]
        options: dict[str, Any] = {"linear_before_reset": 1} if cell == "gru" else {}
        nodes.append(
            helper.make_node(kind, inputs, [output, *(f"{s}n{k}" for s in states)], hidden_size=hidden, **options)
        )
        if not last:
            source = f"x{k + 1}"
            # The axis of directions, which the next layer's input does not have.
            nodes.append(helper.make_node("Squeeze", [output, "direction"], [source]))
    if len(layers) > 1:
        initializers.append(onnx.numpy_helper.from_array(np.array([1], np.int64), "direction"))

    def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    length: int | str = "T" if steps is None else steps
    every = [f"{state}{{}}{k}" for k in range(len(layers)) for state in states]
    graph_inputs = [value("x", length, batch, input_size), *(value(s.format(""), 1, batch, hidden) for s in every)]
    graph_outputs = [value("y", length, 1, batch, hidden)] if whole else []
    graph_outputs += [value(s.format("n"), 1, batch, hidden) for s in every]
    graph = helper.make_graph(nodes, cell, graph_inputs, graph_outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def _reordered(array: Array, order: tuple[int, ...]) -> Floats:
    """A parameter [G*H, ...] with its gates in ONNX order, as [1, G*H, ...]."""
    blocks = np.split(np.asarray(array), len(order))
    return np.concatenate([blocks[place] for place in order])[None]
