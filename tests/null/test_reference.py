"""The slow truth itself, against torch.nn in float64 and against its own definition of lengths and boundaries."""

import numpy as np
import pytest
import torch

from prnn import reference
from prnn.cells import gru, lstm, rnn_relu, rnn_tanh
from prnn.specs import LayerWeights

T, B, H, P = 6, 3, 5, 2
INPUT = 4
CASES = {
    "rnn_tanh": (rnn_tanh, torch.nn.RNN, {}),
    "rnn_relu": (rnn_relu, torch.nn.RNN, {"nonlinearity": "relu"}),
    "lstm": (lstm, torch.nn.LSTM, {}),
    "lstm_projected": (lstm, torch.nn.LSTM, {"proj_size": P}),
    "gru": (gru, torch.nn.GRU, {}),
}


def make(name, bias=True):
    """(cell, torch module, its weights, x, states), seeded, in float64."""
    cell, kind, options = CASES[name]
    torch.manual_seed(3)
    module = kind(INPUT, H, bias=bias, dtype=torch.float64, **options)
    named = dict(module.named_parameters())
    weights = LayerWeights(
        *(named.get(f"{key}_l0") for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"))
    )
    x = torch.randn(T, B, INPUT, dtype=torch.float64, requires_grad=True)
    widths = [options.get("proj_size", H), H][: len(cell.states)]
    states = [torch.randn(B, width, dtype=torch.float64, requires_grad=True) for width in widths]
    return cell, module, weights, x, states


def torch_layer(module, x, states):
    state = tuple(each[None] for each in states)
    y, final = module(x, state if len(state) > 1 else state[0])
    return y, [each[0] for each in (final if isinstance(final, tuple) else (final,))]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_forward_and_backward_are_those_of_torch(name, bias):
    cell, module, weights, x, states = make(name, bias)
    y, final = reference.layer(cell, x, weights, states, xp=torch)
    expected_y, expected_final = torch_layer(module, x, states)
    torch.testing.assert_close(y, expected_y, rtol=0, atol=1e-14)
    torch.testing.assert_close(final, expected_final, rtol=0, atol=1e-14)
    inputs = [x, *states, *module.parameters()]
    d_outputs = [torch.randn_like(each) for each in (y, *final)]
    found = torch.autograd.grad((y, *final), inputs, d_outputs)
    expected = torch.autograd.grad((expected_y, *expected_final), inputs, d_outputs)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_two_swapped_gates_are_noticed(name):
    """The test above can fail: a layer with two gates exchanged is far off."""
    cell, module, weights, x, states = make(name)
    if len(cell.gates) == 1:
        swapped = weights._replace(w_ih=-weights.w_ih)  # one gate has nothing to exchange with
    else:
        order = torch.cat([torch.arange(H, 2 * H), torch.arange(H), torch.arange(2 * H, len(weights.w_ih))])
        swapped = weights._replace(w_ih=weights.w_ih[order])
    y, _ = reference.layer(cell, x, swapped, states, xp=torch)
    assert (y - torch_layer(module, x, states)[0]).abs().max() > 1e-3


def numpy_case(name):
    cell, _, weights, x, states = make(name)
    arrays = [None if each is None else each.detach().numpy() for each in weights[:5]]
    return cell, LayerWeights(*arrays), x.detach().numpy(), [state.detach().numpy() for state in states]


@pytest.mark.parametrize("name", CASES)
def test_numpy_and_torch_agree(name):
    cell, weights, x, states = numpy_case(name)
    _, _, torch_weights, torch_x, torch_states = make(name)
    y, final = reference.layer(cell, x, weights, states)
    torch_y, torch_final = reference.layer(cell, torch_x, torch_weights, torch_states, xp=torch)
    np.testing.assert_allclose(y, torch_y.detach(), rtol=0, atol=1e-14)
    for a, b in zip(final, torch_final):
        np.testing.assert_allclose(a, b.detach(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("reverse", [False, True])
def test_lengths_equal_each_sequence_alone(reverse):
    cell, weights, x, states = numpy_case("lstm")
    lengths = [4, 0, 6]
    poisoned = x.copy()
    for b, length in enumerate(lengths):
        poisoned[length:, b] = np.nan
    y, final = reference.layer(cell, poisoned, weights, states, lengths=lengths, reverse=reverse)
    for b, length in enumerate(lengths):
        alone, alone_final = reference.layer(
            cell, x[:length, b : b + 1], weights, [state[b : b + 1] for state in states], reverse=reverse
        )
        np.testing.assert_array_equal(y[:length, b], alone[:, 0])
        assert not y[length:, b].any()
        for whole, part in zip(final, alone_final):
            np.testing.assert_array_equal(whole[b], part[0])


@pytest.mark.parametrize("to_initial", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_reset_equals_the_segments_apart(reverse, to_initial):
    cell, weights, x, states = numpy_case("gru")
    reset = np.zeros((T, B), bool)
    reset[2, 0] = reset[4, 0] = True
    y, final = reference.layer(cell, x, weights, states, reset=reset, reset_to_initial=to_initial, reverse=reverse)
    segments = [(0, 2), (2, 4), (4, T)]
    for start, stop in segments:
        first = stop == T if reverse else start == 0
        initial = [state[:1] if first or to_initial else np.zeros_like(state[:1]) for state in states]
        part, part_final = reference.layer(cell, x[start:stop, :1], weights, initial, reverse=reverse)
        np.testing.assert_array_equal(y[start:stop, :1], part)
    last = reference.layer(
        cell, x[:2, :1] if reverse else x[4:, :1], weights,
        [state[:1] if to_initial else np.zeros_like(state[:1]) for state in states], reverse=reverse,
    )[1]  # fmt: skip
    np.testing.assert_array_equal(final[0][:1], last[0])
    untouched, _ = reference.layer(cell, x, weights, states, reverse=reverse)
    np.testing.assert_array_equal(y[:, 1:], untouched[:, 1:])


def test_a_reset_at_the_first_step_discards_the_initial_state():
    cell, weights, x, states = numpy_case("gru")
    reset = np.zeros((T, B), bool)
    reset[0] = True
    y, _ = reference.layer(cell, x, weights, states, reset=reset)
    zeros, _ = reference.layer(cell, x, weights, [np.zeros_like(state) for state in states])
    np.testing.assert_array_equal(y, zeros)


@pytest.mark.parametrize(("steps", "batch"), [(0, B), (T, 0)])
def test_nothing_to_do_returns_the_initial_state(steps, batch):
    cell, weights, x, states = numpy_case("lstm")
    states = [state[:batch] for state in states]
    y, final = reference.layer(cell, x[:steps, :batch], weights, states)
    assert y.shape == (steps, batch, H)
    for got, expected in zip(final, states):
        np.testing.assert_array_equal(got, expected)
