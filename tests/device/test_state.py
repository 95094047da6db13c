"""Weights as they are now, initial values, state_dict, pickle, deepcopy, parametrizations, ties, functional_call, hooks, memory."""

import copy
import io
import pickle

import pytest
import torch
from torch.nn.utils import parametrizations, parametrize, prune

import prnn
from twins import assert_same, flat, twins

F64 = torch.float64
KINDS = ["RNN", "LSTM", "GRU"]


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return 2 * weight


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extra", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}, {"proj_size": 2}])
def test_initial_values_and_state_dict(kind, extra):
    if "proj_size" in extra and kind != "LSTM":
        pytest.skip("only torch.nn.LSTM has a projection")
    theirs, ours = twins(kind, 3, 4, **extra)
    mine, wanted = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(wanted) and all(torch.equal(mine[key], wanted[key]) for key in mine)
    assert repr(ours) == repr(theirs)
    mine, wanted = copy.deepcopy(mine), copy.deepcopy(wanted)
    for module, state in ((ours, wanted), (theirs, mine)):
        module.load_state_dict({key: value + 1 for key, value in state.items()}, strict=True)
    assert_same(ours, theirs, (torch.randn(5, 2, 3, dtype=F64),))
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    file.seek(0)
    theirs.load_state_dict(torch.load(file, weights_only=True))


@pytest.mark.parametrize("kind", KINDS)
def test_pickle_deepcopy_and_moves(kind):
    _, ours = twins(kind, 3, 4, 2, bidirectional=True)
    x = torch.randn(5, 2, 3, dtype=F64)
    for module in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours), copy.deepcopy(ours).float().double()):
        torch.testing.assert_close(module(x)[0], ours(x)[0], rtol=1e-5, atol=1e-6)
    meta = getattr(prnn.nn, kind)(3, 4, 2, bidirectional=True, device="meta", dtype=F64)
    meta.to_empty(device="cpu").load_state_dict(ours.state_dict())
    assert torch.equal(meta(x)[0], ours(x)[0])
    meta.load_state_dict({key: value.clone() for key, value in ours.state_dict().items()}, assign=True)
    assert torch.equal(meta(x)[0], ours(x)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_as_they_are_now(kind):
    """In-place writes of every sort, replacement, and an optimizer's step act on the next call."""
    theirs, ours = twins(kind, 3, 4)
    x = torch.randn(5, 2, 3, dtype=F64)

    def write(module, how):
        weight = module.weight_hh_l0
        if how == "no_grad":
            with torch.no_grad():
                weight.add_(0.5)
        elif how == "data":
            weight.data.mul_(1.1)
        elif how == "numpy":
            weight.detach().numpy()[:] += 0.1
        elif how == "assign":
            module.weight_hh_l0 = torch.nn.Parameter(weight.detach() * 0.5)
        elif how == "storage":
            weight.data = weight.data.t().contiguous().t()
        else:
            module(x)[0].sum().backward()
            torch.optim.Adam(module.parameters(), 0.1, fused=True).step()

    for how in ("no_grad", "data", "numpy", "assign", "storage", "optimizer"):
        with torch.no_grad():
            ours(x)
        for module in (ours, theirs):
            write(module, how)
        with torch.no_grad():
            torch.testing.assert_close(ours(x)[0], theirs(x)[0], rtol=1e-12, atol=1e-12)
        assert_same(ours, theirs, (x,))


@pytest.mark.parametrize("kind", KINDS)
def test_parametrized_recurrent_weight(kind):
    """The parametrization acts, in-place changes of the original are seen, and its gradient is the doubled one's."""
    theirs, ours = twins(kind, 3, 4)
    x = torch.randn(5, 2, 3, dtype=F64)
    ours(x)  # whatever could be kept from a first call is kept now
    with torch.no_grad():
        theirs.weight_hh_l0.mul_(2)
    parametrize.register_parametrization(ours, "weight_hh_l0", Doubled())
    torch.testing.assert_close(ours(x)[0], theirs(x)[0])
    original = ours.parametrizations.weight_hh_l0.original
    with torch.no_grad():
        original.add_(0.5)
        theirs.weight_hh_l0.add_(1.0)
    torch.testing.assert_close(ours(x)[0], theirs(x)[0])
    ours.to("cpu")
    for module in (ours, theirs):
        module(x)[0].sin().sum().backward()
    torch.testing.assert_close(original.grad, 2 * theirs.weight_hh_l0.grad)


@pytest.mark.parametrize("normalize", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_normalized_weights(normalize):
    theirs, ours = twins("LSTM", 3, 4)
    for module in (ours, theirs):
        torch.manual_seed(5)
        normalize(module, "weight_hh_l0")
        module.eval()  # spectral_norm's power iteration would move on between the calls
    assert_same(ours, theirs, (torch.randn(5, 2, 3, dtype=F64, requires_grad=True),))


def test_tied_weights_share_their_gradient():
    theirs, ours = twins("RNN", 4, 4)
    for module in (ours, theirs):
        module.weight_hh_l0 = module.weight_ih_l0
    assert len(list(ours.parameters())) == 3
    assert_same(ours, theirs, (torch.randn(5, 2, 4, dtype=F64),))


def test_pruning_mask():
    theirs, ours = twins("LSTM", 3, 4)
    for module in (ours, theirs):
        prune.l1_unstructured(module, "weight_hh_l0", 0.5)
    assert_same(ours, theirs, (torch.randn(5, 2, 3, dtype=F64),))


def test_functional_call_and_frozen_weights():
    theirs, ours = twins("GRU", 3, 4)
    x = torch.randn(5, 2, 3, dtype=F64, requires_grad=True)
    changed = {name: (parameter.detach() + 0.1).requires_grad_() for name, parameter in ours.named_parameters()}
    results = [torch.func.functional_call(module, changed, (x,))[0] for module in (ours, theirs)]
    torch.testing.assert_close(*results)
    for mine, wanted in zip(*(torch.autograd.grad(result.sin().sum(), list(changed.values())) for result in results)):
        torch.testing.assert_close(mine, wanted)
    for module in (ours, theirs):
        module.requires_grad_(False)
        module.bias_hh_l0.requires_grad_()
    results = [torch.autograd.grad(module(x)[0].sin().sum(), [x, module.bias_hh_l0]) for module in (ours, theirs)]
    torch.testing.assert_close(*results)
    for module in (ours, theirs):
        module.requires_grad_(False)
    results = [torch.autograd.grad(module(x)[0].sin().sum(), x)[0] for module in (ours, theirs)]
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("kind", KINDS)
def test_any_strides(kind):
    """Inputs and states of every layout, expanded, flipped, misaligned; the caller's tensors stay as they were."""
    theirs, ours = twins(kind, 4, 5, 2, bidirectional=True)
    base = torch.randn(6, 8, 4, dtype=F64)
    shifted = torch.randn(6 * 3 * 4 + 1, dtype=F64)[1:].view(6, 3, 4)
    inputs = [base[::2, :3], base.flip(0)[:, :3], base.permute(1, 0, 2)[:, :3], base[:, :1].expand(6, 3, 4), shifted]
    row = torch.randn(4, 1, 5, dtype=F64, requires_grad=True)
    states = [
        row.expand(4, 3, 5),
        torch.randn(3, 4, 5, dtype=F64).transpose(0, 1),
        torch.randn(8, 3, 5, dtype=F64)[::2],
    ]
    for x in inputs:
        for state in states:
            hx = (state, state.flip(0)) if kind == "LSTM" else state
            copies = [each.detach().clone() for each in (x, *flat(hx))]
            results, gradients = [], []
            for module in (ours, theirs):
                y, last = module(x, hx)
                results.append([y, *flat(last)])
                loss = y[1:].sin().sum() + y[..., 1:].sum() + y[-1].expand(7, *y[-1].shape).sum() + flat(last)[0].sum()
                gradients.append(
                    torch.autograd.grad(loss, [*module.parameters(), *([row] if state is states[0] else [])])
                )
            torch.testing.assert_close(*results)
            torch.testing.assert_close(*gradients)
            assert all(torch.equal(a, b) for a, b in zip(copies, (x, *flat(hx))))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_do_not_depend_on_the_mode(kind):
    """eval() keeps gradients; no_grad and inference_mode keep nothing."""
    theirs, ours = twins(kind, 2, 3, 2)
    x = torch.randn(4, 2, 2, dtype=F64, requires_grad=True)
    ours.eval()
    mine = ours(x)[0]
    ours.train()
    torch.testing.assert_close(torch.autograd.grad(mine.sum(), x), torch.autograd.grad(theirs(x)[0].sum(), x))
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            y, last = ours(x)
            torch.testing.assert_close(y, theirs(x)[0])
        assert not y.requires_grad and y.grad_fn is None and all(each.grad_fn is None for each in flat(last))
    ours.requires_grad_(False)
    assert ours(x.detach())[0].grad_fn is None


def test_dropout_mask_is_replayed_in_backward():
    layer = prnn.nn.LSTM(3, 5, 2, dropout=0.5, dtype=F64)
    x = torch.randn(4, 3, 3, dtype=F64, requires_grad=True)

    def run(x):
        torch.manual_seed(11)
        return layer(x)[0]

    assert torch.autograd.gradcheck(run, (x,))


def test_runs_are_bit_equal():
    layer = prnn.nn.LSTM(32, 64, 2)
    x = torch.randn(50, 17, 32, requires_grad=True)
    runs = [torch.autograd.grad(layer(x)[0].sin().sum(), [x, *layer.parameters()]) for _ in range(3)]
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other))
