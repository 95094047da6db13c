"""Dropout between layers: backward replays the forward's mask (20), and the seed fixes it (21)."""

import hashlib

import pytest
import torch

import prnn
from cases.common import DTYPES, KINDS, flat, python, states_for, twins


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_backward_uses_the_mask_that_forward_drew(kind, bidirectional):
    """Finite differences, with the seed reset before each evaluation, match the gradients of x, h0 and all weights."""
    layer = getattr(prnn.nn, kind)(3, 5, 2, dropout=0.5, bidirectional=bidirectional, dtype=torch.float64)
    names = [name for name, _ in layer.named_parameters()]
    hx = flat(states_for(layer, 3))

    def loss(x, *rest):
        torch.manual_seed(5)
        initial, weights = rest[: len(hx)], dict(zip(names, rest[len(hx) :]))
        given = initial[0] if len(initial) == 1 else tuple(initial)
        outputs = flat(torch.func.functional_call(layer, weights, (x, given)))
        return sum((each * torch.linspace(0.5, 1.5, each.numel()).view_as(each)).sum() for each in outputs)

    inputs = [torch.randn(4, 3, 3, dtype=torch.float64), *hx, *layer.parameters()]
    inputs = [each.detach().requires_grad_() for each in inputs]
    gradients = torch.autograd.grad(loss(*inputs), inputs)
    step = 1e-6
    with torch.no_grad():
        for i, (tensor, gradient) in enumerate(zip(inputs, gradients)):
            for _ in range(2):
                direction = torch.randn_like(tensor)
                above, below = (
                    loss(*inputs[:i], tensor + sign * step * direction, *inputs[i + 1 :]) for sign in (1, -1)
                )
                wanted = float((gradient * direction).sum())
                assert float(above - below) / (2 * step) == pytest.approx(wanted, rel=1e-6, abs=1e-6)


def constant_layer(p, dtype, size=64):
    """Layer 0 gives 1 whatever comes in; layer 1 hands on what it gets: its output shows the mask."""
    layer = prnn.nn.RNN(1, size, 2, nonlinearity="relu", dropout=p, dtype=dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.bias_ih_l0.fill_(1)
        layer.weight_ih_l1.copy_(torch.eye(size))
    return layer


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0.3, 0.5])
def test_the_mask_is_fresh_everywhere_and_scaled(p, dtype):
    layer = constant_layer(p, dtype)
    x = torch.zeros(40, 32, 1, dtype=dtype, requires_grad=True)
    y, h_n = layer(x)
    kept = y != 0
    assert torch.allclose(
        y[kept], torch.tensor(1 / (1 - p), dtype=dtype)
    )  # scaled once: no dropout after the last layer
    assert abs(kept.double().mean() - (1 - p)) < 0.02
    for axis in range(3):  # over time, rows and units
        assert (kept.diff(dim=axis)).any(dim=axis).double().mean() > 0.99
        assert (kept.double().mean(dim=axis) - (1 - p)).abs().max() < 0.5
    assert torch.equal(h_n[1], y[-1]) and bool((h_n[0] == 1).all())
    assert not torch.equal(layer(x)[0], y)
    assert bool((layer.eval()(x)[0] == 1).all())


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_fixes_everything_and_the_draw_is_torch_s(kind):
    ours, theirs = twins(kind, 4, 4, 3, dropout=0.5, bidirectional=True)
    x = torch.randn(6, 3, 4, dtype=torch.float64)

    def run(layer, seed):
        torch.manual_seed(seed)
        leaf = x.clone().requires_grad_()
        outputs = flat(layer(leaf))
        after = torch.rand(3)
        sum(each.square().sum() for each in outputs).backward()
        gradients = [leaf.grad, *(parameter.grad for parameter in layer.parameters())]
        layer.zero_grad()
        return [*outputs, after], gradients

    first = run(ours, 1)
    other = run(ours, 2)
    torch.nn.Dropout(0.5)(torch.ones(9))
    prnn.nn.GRU(2, 2, 2, dropout=0.5)(torch.ones(3, 2))
    again = run(ours, 1)
    assert all(map(torch.equal, flat(first), flat(again)))
    assert not torch.equal(first[0][0], other[0][0])
    wanted = run(theirs, 1)
    assert torch.equal(first[0][-1], wanted[0][-1])  # what is drawn next is the same
    for mine, reference in zip(flat(first), flat(wanted)):
        torch.testing.assert_close(mine, reference, rtol=1e-10, atol=1e-10)


DIGEST = """
import hashlib, torch, prnn
torch.manual_seed(1)
layer = prnn.nn.LSTM(4, 4, 2, dropout=0.5)
x = torch.randn(6, 3, 4, requires_grad=True)
layer(x)[0].sum().backward()
print(hashlib.sha256(x.grad.numpy().tobytes() + layer(x)[0].detach().numpy().tobytes()).hexdigest())
"""


def test_another_process_draws_the_same():
    torch.manual_seed(1)
    layer = prnn.nn.LSTM(4, 4, 2, dropout=0.5)
    x = torch.randn(6, 3, 4, requires_grad=True)
    layer(x)[0].sum().backward()
    text = hashlib.sha256(x.grad.numpy().tobytes() + layer(x)[0].detach().numpy().tobytes()).hexdigest()
    assert python(DIGEST) == text


@pytest.mark.parametrize("kind", KINDS)
def test_repeats_are_bit_equal_on_several_threads(kind):
    prnn.set_num_threads(2)
    try:
        layer = getattr(prnn.nn, kind)(40, 128)
        x = torch.randn(60, 33, 40, requires_grad=True)
        runs = []
        for _ in range(3):
            outputs = flat(layer(x))
            runs.append([*outputs, *torch.autograd.grad(sum(map(torch.sum, outputs)), [x, *layer.parameters()])])
        assert all(torch.equal(a, b) and torch.equal(b, c) for a, b, c in zip(*runs))
    finally:
        prnn.set_num_threads(None)
