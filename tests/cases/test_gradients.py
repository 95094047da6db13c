"""Gradients whatever the mode (31), second derivatives (33), autocast (36)."""

import pytest
import torch

import prnn
from cases.common import KINDS, assert_gradients, assert_outputs, flat, states_for, twins


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_follow_requires_grad_and_not_the_mode(kind):
    ours, theirs = twins(kind, 1, 3, 2, dropout=0.0)
    x = torch.randn(5, 2, 1, dtype=torch.float64, requires_grad=True)

    def gradients(layer):
        return torch.autograd.grad(flat(layer(x))[0].square().sum(), [x, *layer.parameters()])

    wanted = gradients(theirs)
    assert_gradients(gradients(ours.eval()), wanted)
    loss = flat(ours(x))[0].square().sum()
    ours.train()  # between forward and backward
    assert_gradients(torch.autograd.grad(loss, [x, *ours.parameters()]), wanted)
    assert_gradients(gradients(ours), wanted)
    for parameter in ours.parameters():
        parameter.requires_grad_(False)
    (of_input,) = torch.autograd.grad(flat(ours.eval()(x))[0].square().sum(), [x])
    assert_gradients(of_input, wanted[0])
    ours.weight_hh_l0.requires_grad_()
    (of_weight,) = torch.autograd.grad(flat(ours(x.detach()))[0].square().sum(), [ours.weight_hh_l0])
    assert_gradients(of_weight, wanted[2])


@pytest.mark.parametrize("kind", KINDS)
def test_eval_has_no_dropout_and_keeps_its_gradients(kind):
    ours, theirs = twins(kind, 2, 3, 2, dropout=0.9)
    x = torch.randn(5, 2, 2, dtype=torch.float64, requires_grad=True)
    found = [flat(layer.eval()(x))[0] for layer in (ours, theirs)]
    assert_outputs(*found)
    assert_gradients(*(torch.autograd.grad(y.square().sum(), x) for y in found))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_nothing_is_kept_without_gradients(mode):
    layer = prnn.nn.LSTM(4, 64)
    x = torch.randn(200, 8, 4, requires_grad=True)
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile,
        mode(),
    ):
        y, _ = layer(x)
    assert not y.requires_grad and y.grad_fn is None
    allocated = sum(event.cpu_memory_usage for event in profile.events() if event.cpu_memory_usage > 0)
    assert allocated < 3 * y.nbytes  # what backward needs is six times the output


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_penalty_is_that_of_torch(kind):
    ours, theirs = twins(kind, 4, 4)
    x = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    found = []
    for layer in (ours, theirs):
        (gradient,) = torch.autograd.grad(layer(x)[0].sum(), x, create_graph=True)
        penalty = gradient.square().sum()
        found.append([gradient, *torch.autograd.grad(penalty, [x, *layer.parameters()], allow_unused=True)])
    pairs = [(a, b) for a, b in zip(*found) if b is not None]
    assert_gradients(*zip(*pairs))
    assert all(b.abs().max() > 0 for _, b in pairs[:4])  # never zeros


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_of_everything(kind):
    layer = getattr(prnn.nn, kind)(2, 3, dtype=torch.float64)
    names = [name for name, _ in layer.named_parameters()]
    hx = flat(states_for(layer, 2))

    def outputs(x, *rest):
        initial = rest[: len(hx)]
        given = initial[0] if len(initial) == 1 else tuple(initial)
        return tuple(flat(torch.func.functional_call(layer, dict(zip(names, rest[len(hx) :])), (x, given))))

    inputs = [torch.randn(2, 2, 2, dtype=torch.float64), *hx, *layer.parameters()]
    inputs = [each.detach().requires_grad_() for each in inputs]
    assert torch.autograd.gradgradcheck(outputs, inputs, fast_mode=True)


class Model(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.convolution = torch.nn.Conv1d(1, 10, 2)
        self.layer = layer

    def forward(self, x):
        return self.layer(self.convolution(x).permute(0, 2, 1))[0]


def trained(low, layer):
    """The outputs of three steps of training, with autocast to the low type or without."""
    torch.manual_seed(2)
    model = Model(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, outputs = torch.randn(10, 1, 10), []
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", low or torch.bfloat16, enabled=low is not None):
            y = model(x)
        assert y.dtype is (low or torch.float32)
        y.float().square().mean().mul(10).backward()
        assert all(parameter.grad.dtype is torch.float32 for parameter in model.parameters())
        outputs.append(y.detach().float())
        optimizer.step()
    return outputs


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_training_under_autocast_follows_that_in_float32(kind, low):
    torch.manual_seed(1)
    weights = getattr(torch.nn, kind)(10, 10, bidirectional=True).state_dict()
    runs = []
    for each, make in ((low, prnn.nn), (None, torch.nn)):
        layer = getattr(make, kind)(10, 10, bidirectional=True)
        layer.load_state_dict(weights)
        runs.append(trained(each, layer))
    for ours, wanted in zip(*runs):
        torch.testing.assert_close(ours, wanted, rtol=0, atol=2e-2)
    assert (runs[1][2] - runs[1][0]).abs().max() > 2e-2  # a copy of the first weights would show


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_autocast_takes_any_mix_of_types(kind, low):
    ours, theirs = twins(kind, 3, 4, dtype=torch.float32)
    x, hx = torch.randn(5, 2, 3), states_for(ours, 2, torch.float32)
    wanted = theirs(x.double(), hx.double() if kind != "LSTM" else tuple(each.double() for each in hx))
    for x_type, h_type in ((low, torch.float32), (torch.float32, low), (torch.float32, torch.float32), (low, low)):
        states = hx.to(h_type) if kind != "LSTM" else tuple(each.to(h_type) for each in hx)
        with torch.autocast("cpu", low):
            got = ours(x.to(x_type), states)
            with torch.autocast("cpu", enabled=False):
                full = ours(x, hx)
        assert all(each.dtype is low for each in flat(got))
        assert all(each.dtype is torch.float32 for each in flat(full))
        assert_outputs(full, wanted)
        for mine, reference in zip(flat(got), flat(wanted)):
            torch.testing.assert_close(mine.double(), reference, rtol=0, atol=2e-2)
        flat(got)[0].float().sum().backward()  # autocast in forward only
        assert all(parameter.grad.dtype is torch.float32 for parameter in ours.parameters())
