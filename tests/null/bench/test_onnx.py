"""The ONNX graph against torch.nn, as a sequence and as a stream."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
for package in ("onnx", "onnxruntime"):
    pytest.importorskip(package)

from prnn.bench.onnx_session import OnnxSequence, OnnxStream  # noqa: E402
from prnn.specs import LayerWeights  # noqa: E402


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(("cell", "kind"), [("lstm", "LSTM"), ("gru", "GRU"), ("rnn_tanh", "RNN")])
def test_graph_of_a_layer(cell, kind, layers):
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(5, 7, num_layers=layers)
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    weights = [
        LayerWeights(*(module.get_parameter(f"{name}_l{k}").detach().numpy() for name in names)) for k in range(layers)
    ]
    x = np.random.default_rng(0).normal(size=(6, 2, 5)).astype(np.float32)
    with torch.inference_mode():
        y, state = module(torch.from_numpy(x))
    sequence, stream = OnnxSequence(cell, weights, batch=2), OnnxStream(cell, weights, batch=2)
    got, finals = sequence(x)
    np.testing.assert_allclose(got, y.numpy(), atol=1e-6)
    np.testing.assert_allclose(finals[0], (state if cell != "lstm" else state[0]).numpy()[:1], atol=1e-6)
    for num_steps in (5, 6):  # an odd number leaves the other half of the states as the next to read
        stream.reset()
        np.testing.assert_allclose(
            np.stack([stream.step(step) for step in x[:num_steps]]), y[:num_steps].numpy(), atol=1e-6
        )
