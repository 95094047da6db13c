"""Sizes at the edges: no step or no sequence (23), very many (24), and ones that do not fit the layer (26)."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import prnn
from cases.common import KINDS, assert_gradients, assert_outputs, flat, states_for, twins

LAYOUTS = [{}, {"batch_first": True}, {"num_layers": 2, "bidirectional": True}, {"num_layers": 2, "proj_size": 2}]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("steps, batch", [(5, 0), (0, 10), (0, 0)])
@pytest.mark.parametrize("options", LAYOUTS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_no_step_or_no_sequence(kind, options, steps, batch, training):
    if "proj_size" in options and kind != "LSTM":
        options = {**options, "proj_size": 0} if kind == "LSTM" else {"num_layers": 2}
    ours, theirs = twins(kind, 3, 4, **options)
    ours.train(training)
    x = torch.randn((batch, steps, 3) if "batch_first" in options else (steps, batch, 3), dtype=torch.float64)
    x.requires_grad_()
    initial = states_for(ours, batch)
    hx = [each.requires_grad_() for each in flat(initial)]
    y, states = ours(x, initial)
    if steps:
        assert_outputs((y, states), theirs(x, initial))
    else:  # torch.nn refuses; who streams wants the state back
        assert y.shape == (*x.shape[:-1], theirs(torch.zeros(1, 3, dtype=torch.float64))[0].shape[-1])
        assert all(torch.equal(state, begun) for state, begun in zip(flat(states), hx))
    ends = flat(states)
    gradients = torch.autograd.grad(
        y.sum() + sum((each * 2).sum() for each in ends), [x, *hx, *ours.parameters()], allow_unused=False
    )
    assert gradients[0].shape == x.shape
    assert all(not gradient.any() for gradient in gradients[1 + len(hx) :])
    if not steps:
        assert all(bool((gradient == 2).all()) for gradient in gradients[1 : 1 + len(hx)])
    whole = torch.randn(5, 2, 3, dtype=torch.float64)
    assert_outputs(ours(whole), theirs(whole))


@pytest.mark.parametrize("steps", [65535, 65536, 70001])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_long_sequences_are_their_chunks(kind, steps):
    layer = getattr(prnn.nn, kind)(2, 3, 2)
    x = torch.randn(steps, 2, 2, requires_grad=True)
    y, states = layer(x)
    loss = y[-1].sum() + y[0].sum() + sum(map(torch.sum, flat(states)))
    gradients = torch.autograd.grad(loss, [x, *layer.parameters()])
    with torch.no_grad():
        state, chunks = None, []
        for chunk in x.split(10_000):
            part, state = layer(chunk, state)
            chunks.append(part)
    assert_outputs((y, states), (torch.cat(chunks), state))
    state = None
    for chunk in x.split(10_000):
        part, state = layer(chunk, state)
        first = part[0] if chunk.data_ptr() == x.data_ptr() else first  # noqa: F821 - bound by the first chunk
    wanted = torch.autograd.grad(
        part[-1].sum() + first.sum() + sum(map(torch.sum, flat(state))), [x, *layer.parameters()]
    )
    assert_gradients(gradients, wanted)
    assert gradients[0][0].abs().max() > 0


@pytest.mark.parametrize("batch", [65536, 70000])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_large_batches(kind, batch):
    ours, theirs = twins(kind, 3, 8, dtype=torch.float32)
    x = torch.randn(2, batch, 3)
    y, states = ours(x)
    assert_outputs((y, states), theirs(x.double()))
    loss = (y * torch.linspace(0, 1, batch)[:, None]).sum()
    wanted = (theirs(x.double())[0] * torch.linspace(0, 1, batch)[:, None]).sum()
    assert_gradients(torch.autograd.grad(loss, ours.parameters()), torch.autograd.grad(wanted, theirs.parameters()))


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype)


# what is wrong -> (kind, arguments, options, call arguments, exception, words of the message: what was expected, what was got)
REFUSED = {
    "width without state": ("LSTM", (13, 4, 2), {"batch_first": True}, (zeros(3, 5, 2),), RuntimeError, ["13", "2"]),
    "width": ("GRU", (5, 4), {}, (zeros(3, 5, 6), zeros(1, 5, 4)), RuntimeError, ["5", "6"]),
    "layers of h0": ("GRU", (5, 4), {}, (zeros(3, 4, 5), zeros(2, 4, 4)), RuntimeError, ["(1, 4, 4)", "[2, 4, 4]"]),
    "directions of h0": (
        "RNN", (5, 4), {"bidirectional": True}, (zeros(3, 4, 5), zeros(1, 4, 4)), RuntimeError, ["(2, 4, 4)", "[1, 4, 4]"],
    ),
    "batch 1 of h0": ("GRU", (5, 4), {}, (zeros(3, 4, 5), zeros(1, 1, 4)), RuntimeError, ["(1, 4, 4)", "[1, 1, 4]"]),
    "width of c0 with a projection": (
        "LSTM", (5, 4), {"proj_size": 2}, (zeros(3, 4, 5), (zeros(1, 4, 2), zeros(1, 4, 2))), RuntimeError, ["(1, 4, 4)", "[1, 4, 2]"],
    ),
    "width of h0 with a projection": (
        "LSTM", (5, 4), {"proj_size": 2}, (zeros(3, 4, 5), (zeros(1, 4, 4), zeros(1, 4, 4))), RuntimeError, ["(1, 4, 2)", "[1, 4, 4]"],
    ),
    "three states": ("LSTM", (5, 4), {}, (zeros(3, 4, 5), (zeros(1, 4, 4),) * 3), RuntimeError, ["2", "3"]),
    "one state of two": ("LSTM", (5, 4), {}, (zeros(3, 4, 5), zeros(1, 4, 4)), (TypeError, RuntimeError), ["tuple of 2"]),
    "two states of one": ("GRU", (5, 4), {}, (zeros(3, 4, 5), (zeros(1, 4, 4),) * 2), (TypeError, RuntimeError), ["tensor", "tuple"]),
    "dtype of h0": (
        "GRU", (5, 4), {}, (zeros(3, 4, 5), zeros(1, 4, 4, dtype=torch.float64)), RuntimeError, ["float32", "float64"],
    ),
    "dtype of x": ("RNN", (5, 4), {}, (zeros(3, 4, 5, dtype=torch.int64),), ValueError, ["int64", "float32"]),
    "float64 x": ("RNN", (5, 4), {}, (zeros(3, 4, 5, dtype=torch.float64),), ValueError, ["float64", "float32"]),
    "4-D x": ("LSTM", (5, 4), {}, (zeros(1, 3, 4, 5),), ValueError, ["2D or 3D", "4D"]),
    "1-D x": ("LSTM", (5, 4), {}, (zeros(5),), ValueError, ["2D or 3D", "1D"]),
    "3-D h0 of 2-D x": ("GRU", (5, 4), {}, (zeros(3, 5), zeros(1, 1, 4)), RuntimeError, ["2-D", "3-D"]),
    "2-D h0 of 3-D x": ("GRU", (5, 4), {}, (zeros(3, 4, 5), zeros(1, 4)), RuntimeError, ["3-D", "2-D"]),
    "device of h0": ("GRU", (5, 4), {}, (zeros(3, 4, 5), torch.zeros(1, 4, 4, device="meta")), RuntimeError, ["cpu", "meta"]),
    "batch of h0 for packed input": (
        "GRU", (5, 4), {}, (pack_padded_sequence(zeros(3, 2, 5), [3, 2]), zeros(1, 3, 4)), RuntimeError, ["(1, 2, 4)", "[1, 3, 4]"],
    ),
    "batch of h0 for unsorted packed input": (
        "LSTM", (5, 4), {}, (pack_padded_sequence(zeros(3, 2, 5), [2, 3], enforce_sorted=False), (zeros(1, 3, 4),) * 2),
        RuntimeError, ["(1, 2, 4)", "[1, 3, 4]"],
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("wrong", REFUSED)
def test_what_does_not_fit_is_refused_before_it_is_read(wrong, grad):
    kind, sizes, options, arguments, error, words = REFUSED[wrong]
    layer = getattr(prnn.nn, kind)(*sizes, **options)
    with torch.set_grad_enabled(grad):
        with pytest.raises(error) as caught:
            layer(*arguments)
        assert all(word in str(caught.value) for word in words), caught.value
        good = torch.randn(3, 4, sizes[0])
        wanted = getattr(torch.nn, kind)(*sizes, **options)
        wanted.load_state_dict(layer.state_dict())
        assert_outputs(layer(good), wanted(good))
