"""A torch.nn.LSTM as an ONNX graph of nothing but LSTM nodes, for timing onnxruntime on the same subgraph."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime  # type: ignore[import-untyped]
import torch

Floats = npt.NDArray[np.float32]

OPSET = 17
IR_VERSION = 8  # the oldest that carries OPSET, so that any onnxruntime of the last years reads it


def lstm_graph(lstm: torch.nn.LSTM) -> onnx.ModelProto:
    """A chain of one LSTM node a layer, for B=1.

    Inputs: ``x`` [T, 1, I], and for each layer ``h{layer}`` and ``c{layer}`` [1, 1, H].
    Outputs: ``y`` [T, 1, H], and for each layer ``hn{layer}`` and ``cn{layer}`` [1, 1, H].
    """
    helper, single = onnx.helper, onnx.TensorProto.FLOAT
    size, layers = lstm.hidden_size, range(lstm.num_layers)
    # ONNX puts a direction axis into an LSTM's output, which the next layer's input does not have.
    initializers = [onnx.numpy_helper.from_array(np.array([1], np.int64), "direction")]
    nodes, source = [], "x"
    for layer in layers:
        weights = {f"W{layer}": _weight(lstm, f"weight_ih_l{layer}"), f"R{layer}": _weight(lstm, f"weight_hh_l{layer}")}
        biases = [_weight(lstm, f"bias_ih_l{layer}"), _weight(lstm, f"bias_hh_l{layer}")]
        weights[f"B{layer}"] = np.concatenate(biases, axis=1)
        initializers += [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
        inputs = [source, *weights, "", f"h{layer}", f"c{layer}"]
        source = "y" if layer == layers[-1] else f"y{layer}"
        outputs = [f"Y{layer}", f"hn{layer}", f"cn{layer}"]
        nodes.append(helper.make_node("LSTM", inputs, outputs, hidden_size=size))
        nodes.append(helper.make_node("Squeeze", [f"Y{layer}", "direction"], [source]))

    def states(*prefixes: str) -> list[onnx.ValueInfoProto]:
        names = [f"{prefix}{layer}" for layer in layers for prefix in prefixes]
        return [helper.make_tensor_value_info(name, single, [1, 1, size]) for name in names]

    x = helper.make_tensor_value_info("x", single, ["T", 1, lstm.input_size])
    y = helper.make_tensor_value_info("y", single, ["T", 1, size])
    graph = helper.make_graph(nodes, "lstm", [x, *states("h", "c")], [y, *states("hn", "cn")], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def _weight(lstm: torch.nn.LSTM, name: str) -> Floats:
    """A parameter [4H, ...] with its gates in ONNX order (input, output, forget, cell), as [1, 4H, ...]."""
    i, f, g, o = np.split(lstm.get_parameter(name).detach().numpy(), 4)
    return np.concatenate([i, o, f, g])[None]


def _zeros(size: int) -> onnxruntime.OrtValue:
    """A new [1, 1, size]; an OrtValue lives in the memory of the array it is made from, so no two may share one."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((1, 1, size), np.float32))


class OnnxLSTM:
    """An LSTM run by onnxruntime on one thread, B=1: a whole sequence at once, or step by step with its state kept."""

    def __init__(self, lstm: torch.nn.LSTM) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        model = lstm_graph(lstm).SerializeToString()
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        states_in = [value.name for value in self._session.get_inputs()[1:]]
        states_out = [value.name for value in self._session.get_outputs()[1:]]
        self._zero = np.zeros((1, 1, lstm.hidden_size), np.float32)
        self._zeros = dict.fromkeys(states_in, self._zero)
        # Steps alternate between two bound sets of states, one read and one written: this spares onnxruntime the copies
        # and allocations of session.run, which would cost it about a third of its time on the smaller network.
        self._x = _zeros(lstm.input_size)
        self._y = _zeros(lstm.hidden_size)
        self._states = [[_zeros(lstm.hidden_size) for _ in states_in] for _ in range(2)]
        self._bindings = []
        for read, written in (self._states, self._states[::-1]):
            binding = self._session.io_binding()
            binding.bind_ortvalue_input("x", self._x)
            binding.bind_ortvalue_output("y", self._y)
            for i in range(len(states_in)):
                binding.bind_ortvalue_input(states_in[i], read[i])
                binding.bind_ortvalue_output(states_out[i], written[i])
            self._bindings.append(binding)

    def sequence(self, x: Floats) -> Floats:
        """x [T, 1, I] -> y [T, 1, H], from zero state."""
        y: Floats = self._session.run(["y"], {"x": x, **self._zeros})[0]
        return y

    def reset(self) -> None:
        """Set the state that the next step reads to zero."""
        for state in self._states[0]:
            state.update_inplace(self._zero)
        self._turn = 0

    def step(self, x: Floats) -> Floats:
        """x [1, 1, I] -> y [1, 1, H], after reset or the step before."""
        self._x.update_inplace(x)
        self._session.run_with_iobinding(self._bindings[self._turn])
        self._turn = 1 - self._turn
        y: Floats = self._y.numpy()
        return y
