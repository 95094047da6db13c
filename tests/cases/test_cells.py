"""Cells that look alike: the two GRUs (13), clipped gates (15), Keras's order of gates (17)."""

import math

import numpy as np
import pytest
import torch

import prnn
from cases.common import DTYPES, assert_outputs, flat
from prnn import engine, reference
from prnn.cells import clip, sigmoid, tanh
from prnn.testing import check_cell

AFTER, BEFORE = 0.5 * math.tanh(1.5) + 1, 0.5 * math.tanh(2) + 1  # 1.4526, 1.4820


def gru_by_hand(reset_after, dtype):
    """T = B = I = H = 1, W = 0, R_z = R_r = 0, R_h = 1, the recurrent bias of h 1, the other biases 0."""
    layer = prnn.nn.GRU(1, 1, reset_after=reset_after, dtype=dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.weight_hh_l0[2] = 1
        layer.bias_hh_l0[2] = 1
    return layer


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reset_after, expected", [(True, AFTER), (False, BEFORE)], ids=["reset-after", "reset-before"])
def test_the_reset_gate_acts_where_the_layer_says(reset_after, expected, dtype):
    layer = gru_by_hand(reset_after, dtype)
    h0 = torch.full((1, 1, 1), 2.0, dtype=dtype)
    y, h_n = layer(torch.zeros(1, 1, 1, dtype=dtype), h0)
    assert y.item() == pytest.approx(expected, abs=1e-6) and h_n.item() == y.item()
    with torch.no_grad():
        assert layer(torch.zeros(1, 1, 1, dtype=dtype), h0)[0].item() == pytest.approx(expected, abs=1e-6)
    weights = layer.layer_weights()[0]
    arrays = prnn.LayerWeights(*(None if each is None else each.detach().numpy() for each in weights[:5]))
    again, _ = prnn.run(layer.cell, np.zeros((1, 1, 1), str(dtype).removeprefix("torch.")), arrays, [h0[0].numpy()])
    assert again.item() == pytest.approx(expected, abs=1e-6)
    stream = prnn.Stream(layer)
    stream.state = {"h": h0.numpy()}
    assert stream.step(torch.zeros(1, 1, dtype=dtype)).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("reset_after", [True, False])
def test_the_two_grus_are_two_layers(reset_after):
    layer = prnn.nn.GRU(7, 32, reset_after=reset_after, dtype=torch.float64)
    x = torch.randn(10, 3, 7, dtype=torch.float64)
    other = prnn.nn.GRU(7, 32, reset_after=not reset_after, dtype=torch.float64)
    weights = {key: value for key, value in layer.state_dict().items() if not key.startswith("_")}
    if reset_after:
        torch_layer = torch.nn.GRU(7, 32, dtype=torch.float64)
        torch_layer.load_state_dict(weights)
        assert_outputs(layer(x), torch_layer(x))
    zeros = [torch.zeros(3, 32, dtype=torch.float64)]
    wanted, _ = reference.layer(layer.cell, x, layer.layer_weights()[0], zeros, xp=torch)
    assert_outputs(layer(x)[0], wanted)
    with torch.no_grad():
        for name, value in weights.items():
            getattr(other, name).copy_(value)
    assert (layer(x)[0] - other(x)[0]).abs().max() > 1e-3
    with pytest.raises(RuntimeError, match="reset_after"):  # saved weights know which of the two they belong to
        prnn.nn.GRU(7, 32).load_state_dict(prnn.nn.GRU(7, 32, reset_after=False).state_dict())


def clipped_lstm(limit):
    """ONNX's LSTM with clip: the input of every activation is clipped, the cell state's too."""

    @prnn.cell(states=["h", "c"], gates=["i", "f", "g", "o"], name=f"clipped_lstm_{limit}")
    def made(i, f, g, o, h, c):
        i, f, g, o = (clip(each, -limit, limit) for each in (i, f, g, o))
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        return sigmoid(o) * tanh(clip(c, -limit, limit)), c

    return made


def run_once(cell, x, c0, dtype, backend):
    """y and c of one step of one unit whose weights are 0 but w_ih, one for each gate."""
    zeros = np.zeros(4, dtype)
    weights = prnn.LayerWeights(np.array(x, dtype).reshape(4, 1), zeros.reshape(4, 1), zeros, zeros)
    prepare = engine.prepare
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "prepare", lambda problem, batch, steps: prepare(problem, batch, steps, backend))
        states = [np.full((1, 1), value, dtype) for value in (0.0, c0)]
        y, (_, c) = prnn.run(cell, np.ones((1, 1, 1), dtype), weights, states)
    return y.item(), c.item()


@pytest.mark.parametrize("backend", ["auto", "interpreted"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_clip_reaches_every_activation(dtype, backend):
    y, c = run_once(clipped_lstm(1.0), [0, 0, 0, 0], 10.0, dtype, backend)
    assert y == pytest.approx(0.5 * math.tanh(1), abs=1e-6) and c == pytest.approx(5.0)  # 0.3808, and not 0.49995
    for signs in ((1, 1, 1, 1), (-1, 1, 1, 1), (1, -1, 1, -1), (-1, -1, -1, -1)):
        i, f, g, o = (3.0 * sign for sign in signs)
        c = 1 / (1 + math.exp(-f)) * 0.5 + 1 / (1 + math.exp(-i)) * math.tanh(g)
        y = 1 / (1 + math.exp(-o)) * math.tanh(max(-3.0, min(3.0, c)))
        assert run_once(clipped_lstm(3.0), [20 * sign for sign in signs], 0.5, dtype, backend) == pytest.approx(
            (y, c), abs=1e-6
        )


@pytest.mark.parametrize("backend", ["auto", "interpreted"])
def test_the_gradient_of_clip_is_that_of_the_formula(backend):
    check_cell(clipped_lstm(0.5), backend)


def keras_weights(kind, rng, size=7, hidden=13):
    """Every element distinct: kernel [I, G*H], recurrent kernel [H, G*H], bias (2, G*H) or (G*H)."""
    gates = 3 if kind.startswith("gru") else 4
    bias = (2, gates * hidden) if kind == "gru after" else (gates * hidden,)
    shapes = [(size, gates * hidden), (hidden, gates * hidden), bias]
    count = sum(math.prod(shape) for shape in shapes)
    values = iter(rng.permutation(np.linspace(-0.6, 0.6, count)))
    return [np.array([next(values) for _ in range(math.prod(shape))]).reshape(shape) for shape in shapes]


def keras_step(kind, x, kernel, recurrent, bias, h, c):
    """A timestep as Keras writes it: z, r, h for the GRUs; i, f, c, o for the LSTM."""

    def sig(a):
        return 1 / (1 + np.exp(-a))

    if kind == "lstm":
        i, f, g, o = np.split(x @ kernel + h @ recurrent + bias, 4)
        c = sig(f) * c + sig(i) * np.tanh(g)
        return sig(o) * np.tanh(c), c
    of_input, of_state = bias if kind == "gru after" else (bias, np.zeros_like(bias))
    (x_z, x_r, x_h), (r_z, r_r, r_h) = np.split(x @ kernel + of_input, 3), np.split(recurrent, 3, 1)
    b_z, b_r, b_h = np.split(of_state, 3)
    z, r = sig(x_z + h @ r_z + b_z), sig(x_r + h @ r_r + b_r)
    candidate = np.tanh(x_h + (r * (h @ r_h + b_h) if kind == "gru after" else (r * h) @ r_h))
    return z * h + (1 - z) * candidate, c


def from_keras(kind, kernel, recurrent, bias):
    """A layer of prnn with the weights of Keras."""
    size, hidden = kernel.shape[0], recurrent.shape[0]
    order = [0, 1, 2, 3] if kind == "lstm" else [1, 0, 2]  # Keras's z r h -> r z h
    rows = np.concatenate([np.arange(k * hidden, (k + 1) * hidden) for k in order])
    layer = prnn.nn.LSTM(size, hidden) if kind == "lstm" else prnn.nn.GRU(size, hidden, reset_after=kind == "gru after")
    layer.double()
    of_input, of_state = bias if bias.ndim == 2 else (bias, np.zeros_like(bias))
    with torch.no_grad():
        for name, array in zip(
            ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), (kernel.T, recurrent.T, of_input, of_state)
        ):
            getattr(layer, name).copy_(torch.from_numpy(np.ascontiguousarray(array[rows])))
    return layer


def assert_as_keras(kind, weights, rng):
    x, h, c = (rng.standard_normal(shape) for shape in ((5, 7), 13, 13))
    given = torch.from_numpy(h)[None] if kind != "lstm" else (torch.from_numpy(h)[None], torch.from_numpy(c)[None])
    y, states = from_keras(kind, *weights)(torch.from_numpy(x), given)
    for t in range(5):
        h, c = keras_step(kind, x[t], *weights, h, c)
        np.testing.assert_allclose(y[t].detach().numpy(), h, rtol=0, atol=1e-12)
    np.testing.assert_allclose(flat(states)[-1][0].detach().numpy(), c if kind == "lstm" else h, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["gru after", "gru before", "lstm"])
def test_weights_of_keras_in_their_order_of_gates(kind):
    rng = np.random.default_rng(1)
    weights = keras_weights(kind, rng)
    assert_as_keras(kind, weights, rng)
    for which, array in enumerate(weights):  # a single 1 in each block, everything else 0
        rows = array if array.ndim == 2 else array[None]
        for block in range(rows.shape[1] // 13):
            for row in {0, len(rows) - 1}:
                probe = [np.zeros_like(each) for each in weights]
                (probe[which] if array.ndim == 2 else probe[which][None])[row, block * 13 + int(rng.integers(13))] = 1
                assert_as_keras(kind, probe, rng)
