"""Strides: of input and states (28), and of the gradients that arrive at outputs (29)."""

import pytest
import torch

from cases.common import DTYPES, KINDS, assert_gradients, assert_outputs, flat, states_for, twins

STEPS, BATCH, SIZE, HIDDEN = 6, 4, 3, 5


def offset(shape, dtype):
    """Contiguous, but one element off any alignment."""
    count = torch.Size(shape).numel()
    return torch.randn(count + 1, dtype=dtype)[1:].view(shape)


def inputs(shape, dtype):
    """Name -> a tensor of this shape [T, B, I] or [B, T, I] whose memory lies otherwise."""
    a, b, c = shape
    return {
        "every second row": torch.randn(a, 2 * b, c, dtype=dtype)[:, ::2],
        "every second": torch.randn(2 * a, b, c, dtype=dtype)[::2],
        "permuted": torch.randn(c, a, b, dtype=dtype).permute(1, 2, 0),
        "expanded": torch.randn(a, 1, c, dtype=dtype).expand(shape),
        "columns": torch.randn(a, b, c + 2, dtype=dtype)[..., 1:-1],
        "misaligned": offset(shape, dtype),
    }


def states(kind, dtype):
    """Name -> (leaf, function of the leaf that gives a state [1, B, H] in other memory)."""
    return {
        "transposed": (torch.randn(BATCH, 1, HIDDEN, dtype=dtype), lambda leaf: leaf.transpose(0, 1)),
        "units first": (torch.randn(HIDDEN, BATCH, dtype=dtype), lambda leaf: leaf.T[None]),
        "expanded": (torch.randn(1, 1, HIDDEN, dtype=dtype), lambda leaf: leaf.expand(1, BATCH, HIDDEN)),
        "every second": (torch.randn(1, 2 * BATCH, HIDDEN, dtype=dtype), lambda leaf: leaf[:, ::2]),
        "chunk": (torch.randn(1, BATCH, 2 * HIDDEN, dtype=dtype), lambda leaf: leaf.chunk(2, -1)[1]),
        "misaligned": (torch.randn(BATCH * HIDDEN + 1, dtype=dtype), lambda leaf: leaf[1:].view(1, BATCH, HIDDEN)),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_any_strides_of_input_and_states(kind, batch_first, dtype):
    ours, theirs = twins(kind, SIZE, HIDDEN, batch_first=batch_first, dtype=dtype)
    shape = (BATCH, STEPS, SIZE) if batch_first else (STEPS, BATCH, SIZE)
    x_cases, h_cases = inputs(shape, dtype), states(kind, dtype)
    for (x_name, x), (leaf, view) in zip(x_cases.items(), h_cases.values(), strict=True):
        gradients, kept, kept_leaf = [], x.clone(), leaf.clone()
        for layer, cast in ((ours, dtype), (theirs, torch.float64)):
            own = leaf.to(cast).requires_grad_()
            data = x.to(cast) if layer is theirs else x
            assert layer is theirs or x_name == "misaligned" or not data.is_contiguous()
            data = data.detach().requires_grad_()
            h = view(own)
            y, last = layer(data, (h, h * 0.5) if kind == "LSTM" else h)
            loss = sum(
                (t * torch.linspace(0.5, 1.5, t.numel(), dtype=cast).view(t.shape)).sum() for t in flat([y, last])
            )
            gradients.append((y, last, torch.autograd.grad(loss, [data, own, *layer.parameters()])))
        assert_outputs(gradients[0][:2], gradients[1][:2])
        assert_gradients(gradients[0][2], gradients[1][2])  # of an expanded leaf: the sum over rows
        assert torch.equal(x, kept) and torch.equal(leaf, kept_leaf)  # the caller's tensors are not changed


SLICES = {
    "later steps": lambda y: y[1:],
    "later rows": lambda y: y[:, 1:],
    "later units": lambda y: y[..., 1:],
    "last step": lambda y: y[-1],
    "every second": lambda y: y[::2],
    "one unit": lambda y: y[..., -1],
    "expanded": lambda y: y.expand(2, *y.shape),
    "all": lambda y: y,
}


@pytest.mark.parametrize("dtype", DTYPES[:1])
@pytest.mark.parametrize("hidden_size", [1, 2, 3, 5, 6, 7, 9, 15, 17, 63, 65])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_backward_of_any_slice_for_any_width(kind, hidden_size, dtype):
    bidirectional = hidden_size % 2 == 1
    ours, theirs = twins(kind, 3, hidden_size, bidirectional=bidirectional, dtype=dtype)
    x = torch.randn(4, 3, 3, dtype=dtype, requires_grad=True)
    reference = x.detach().double().requires_grad_()
    for cut in SLICES.values():
        found = []
        for layer, leaf in ((ours, x), (theirs, reference)):
            y, _ = layer(leaf)  # nothing arrives at the states; y.sum() sends a gradient of stride 0
            found.append(torch.autograd.grad(cut(y).sum(), [leaf, *layer.parameters()]))
        assert_gradients(*found)


@pytest.mark.parametrize("hidden_size", [5, 17])
@pytest.mark.parametrize("kind", KINDS)
def test_backward_through_one_output_alone(kind, hidden_size):
    ours, theirs = twins(kind, 3, hidden_size)
    x, hx = torch.randn(4, 3, 3, dtype=torch.float64), states_for(ours, 3)
    for which in range(len(flat(ours(x, hx)))):
        found = [
            torch.autograd.grad(flat(layer(x, hx))[which][..., 1:].sum(), layer.parameters())
            for layer in (ours, theirs)
        ]
        assert_gradients(*found)
