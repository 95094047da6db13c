"""Weights are read as they are now: parametrized ones (case 1), and ones changed in place between calls (case 38)."""

import copy

import pytest
import torch
from torch.nn.utils import parametrizations, parametrize

import prnn
from cases.common import KINDS, assert_gradients, assert_outputs, flat, twins

# prnn reads the weights where they are for few rows and packs them for many.
BATCHES = (1, 33)


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return 2 * weight


def accelerated(kind, *args, **kwargs):
    model = getattr(torch.nn, kind)(*args, **kwargs)
    assert prnn.accelerate(model).left == ()
    return model


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(
    "make", [lambda kind, *a, **k: getattr(prnn.nn, kind)(*a, **k), accelerated], ids=["nn", "accelerate"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_parametrized_recurrent_weight_is_read_as_it_is_now(kind, make, warm, batch):
    layer = make(kind, 3, 4, dtype=torch.float64)
    plain = getattr(torch.nn, kind)(3, 4, dtype=torch.float64)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(5, batch, 3, dtype=torch.float64)
    if warm:
        layer(x)
        with torch.no_grad():
            layer(x)
    parametrize.register_parametrization(layer, "weight_hh_l0", Doubled())
    original = layer.parametrizations.weight_hh_l0.original
    with torch.no_grad():
        plain.weight_hh_l0.mul_(2)
    for _ in range(2):
        with torch.no_grad():
            assert_outputs(layer(x), plain(x))
        layer.zero_grad()
        plain.zero_grad()
        flat(layer(x))[0].square().sum().backward()
        flat(plain(x))[0].square().sum().backward()
        assert original.grad is not None and original.grad.abs().max() > 0
        assert_gradients(original.grad, 2 * plain.weight_hh_l0.grad)
        with torch.no_grad():
            original.add_(0.5)
            plain.weight_hh_l0.add_(1.0)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "orthogonal"])
@pytest.mark.parametrize("kind", KINDS)
def test_published_parametrizations_train_as_in_torch(kind, name, batch):
    ours, theirs = twins(kind, 3, 4)
    x = torch.randn(5, batch, 3, dtype=torch.float64)
    ours(x)
    for layer in (ours, theirs):
        torch.manual_seed(3)
        getattr(parametrizations, name)(layer, "weight_hh_l0")
        layer.to(torch.float32).to(torch.float64)
        layer.eval()  # in training spectral_norm moves on whenever the weight is read, which torch.nn does twice a call
    theirs.load_state_dict(ours.state_dict())
    before = copy.deepcopy(theirs.state_dict())
    for _ in range(3):
        for layer in (ours, theirs):
            layer.zero_grad()
            flat(layer(x))[0].square().sum().backward()
            torch.optim.SGD(layer.parameters(), lr=0.1).step()
    assert any(not torch.equal(before[key], value) for key, value in theirs.state_dict().items() if "weight_hh" in key)
    assert_outputs(list(ours.state_dict().values()), list(theirs.state_dict().values()))
    assert_outputs(ours(x), theirs(x))


def by_arithmetic(layer):
    with torch.no_grad():
        layer.weight_hh_l0.add_(0.25)


def by_data(layer):
    layer.weight_hh_l0.data.mul_(1.5)


def by_new_data(layer):
    layer.weight_ih_l0.data = layer.weight_ih_l0.data + 0.25


def by_numpy(layer):
    layer.weight_hh_l0.detach().numpy()[1] += 0.25


def by_new_parameter(layer):
    layer.bias_hh_l0 = torch.nn.Parameter(layer.bias_hh_l0.detach() + 0.5)


def by_state_dict(layer):
    layer.load_state_dict({name: value + 0.125 for name, value in layer.state_dict().items()})


def by_optimizer(optimizer, **options):
    def change(layer):
        for parameter in layer.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer(layer.parameters(), lr=0.1, **options).step()

    return change


CHANGES = {
    "arithmetic": by_arithmetic,
    "data": by_data,
    "new data": by_new_data,
    "numpy": by_numpy,
    "new parameter": by_new_parameter,
    "state_dict": by_state_dict,
    "sgd": by_optimizer(torch.optim.SGD),
    "fused adam": by_optimizer(torch.optim.Adam, fused=True),
    "foreach adam": by_optimizer(torch.optim.Adam, foreach=True),
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_weights_changed_in_place_between_calls_are_seen(change, batch, mode):
    ours, theirs = twins("LSTM", 5, 6, 2)
    x = torch.randn(4, batch, 5, dtype=torch.float64)
    for _ in range(3):
        with mode():
            before = ours(x)
            assert_outputs(before, theirs(x))
        change(ours)
        change(theirs)
        with mode():
            assert not torch.equal(ours(x)[0], before[0])
            assert_outputs(ours(x), theirs(x))


def test_a_stream_sees_them_when_it_refreshes():
    layer = prnn.nn.LSTM(5, 6)
    stream = prnn.Stream(layer)
    x = torch.randn(1, 5)
    before = stream.step(x)
    by_data(layer)
    stream.reset()
    assert torch.equal(stream.step(x), before)  # a snapshot, as its documentation says
    stream.refresh()
    stream.reset()
    with torch.no_grad():
        assert_outputs(stream.step(x), layer(x[None])[0][0])
