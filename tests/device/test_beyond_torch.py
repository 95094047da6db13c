"""lengths, reset, reverse, cells of one's own, reset-before GRU: against the float64 reference and against running the parts apart."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch

import prnn
from prnn import reference
from prnn.cells import BUILTIN, relu, sigmoid, tanh
from prnn.specs import LayerWeights
from twins import flat

F64 = torch.float64
LENGTHS = [5, 3, 0, 6]


@prnn.cell(states=["h", "m"], gates=["f", "n"], vectors=["v"])
def leaky(f, n, h, m, v):
    """A user's cell: two states, a vector, a gate used in parts."""
    f = sigmoid(f)
    m = f * m + (1 - f) * tanh(n.input + v * n.recurrent)
    return h + relu(m - h), m


def weights_of(layer, suffix=""):
    """The parameters of the first layer for the reference."""

    def get(prefix):
        parameter = layer._parameters.get(f"{prefix}_l0{suffix}")
        return None if parameter is None else parameter.detach().numpy()

    vectors = tuple(get(vector) for vector in layer.cell.vectors)
    return LayerWeights(*map(get, ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")), vectors)


def random_state(layer, batch, directions=1, grad=False):
    widths = [layer.proj_size or layer.hidden_size] + [layer.hidden_size] * (len(layer.cell.states) - 1)
    states = [torch.randn(directions, batch, width, dtype=F64, requires_grad=grad) for width in widths]
    return states[0] if len(states) == 1 else tuple(states)


@pytest.mark.parametrize("name", [*BUILTIN, "leaky"])
@pytest.mark.parametrize("reverse", [False, True])
def test_cells_with_lengths_and_reset(name, reverse):
    cell = leaky if name == "leaky" else BUILTIN[name]
    layer = prnn.nn.Recurrent(cell, 3, 5, dtype=F64, reverse=reverse)
    x = torch.randn(6, 4, 3, dtype=F64)
    reset = torch.rand(6, 4) < 0.4
    hx = random_state(layer, 4)
    states = [state[0].numpy() for state in flat(hx)]
    for lengths, boundary, target in itertools.product((None, LENGTHS), (None, reset), ("zero", "initial")):
        y, last = layer(x, hx, lengths=lengths, reset=boundary, reset_to=target)
        wanted, wanted_last = reference.layer(
            cell, x.numpy(), weights_of(layer), states, lengths=lengths, reset=boundary,
            reset_to_initial=target == "initial", reverse=reverse,
        )  # fmt: skip
        np.testing.assert_allclose(y.detach().numpy(), wanted, atol=1e-13)
        for mine, right in zip(flat(last), wanted_last):
            np.testing.assert_allclose(mine[0].detach().numpy(), right, atol=1e-13)


@pytest.mark.parametrize("target", ["zero", "initial"])
def test_reset_equals_segments_run_apart(target):
    """Two layers, both directions: a boundary cuts all of them."""
    layer = prnn.nn.LSTM(3, 5, 2, bidirectional=True, dtype=F64, batch_first=True)
    x = torch.randn(2, 8, 3, dtype=F64)
    reset = torch.zeros(2, 8, dtype=torch.bool)
    reset[:, 3] = True
    zero = tuple(torch.zeros(4, 2, 5, dtype=F64) for _ in range(2))
    given = tuple(torch.randn(4, 2, 5, dtype=F64) for _ in range(2))
    initial = given if target == "initial" else zero
    y, last = layer(x, initial, reset=reset, reset_to=target)
    first, last_first = layer(x[:, :3], initial)
    second, last_second = layer(x[:, 3:], initial)
    torch.testing.assert_close(y, torch.cat([first, second], 1))
    for mine, a, b in zip(last, last_first, last_second):
        torch.testing.assert_close(mine, torch.stack([b[0], a[1], b[2], a[3]]))


def test_reset_at_the_first_step_discards_the_state():
    layer = prnn.nn.GRU(3, 5, dtype=F64)
    x, h0 = torch.randn(4, 3, dtype=F64), torch.randn(1, 5, dtype=F64, requires_grad=True)
    reset = torch.tensor([True, False, False, False])
    y, _ = layer(x, h0, reset=reset)
    torch.testing.assert_close(y, layer(x)[0])
    (gradient,) = torch.autograd.grad(y.sum(), h0)
    assert not gradient.any()


@pytest.mark.parametrize("padding", [0.0, 1e30, float("nan")])
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_padding_is_never_read(kind, padding):
    """The same values and gradients whatever the padding holds; equal to a PackedSequence; zero past the end."""
    layer = getattr(prnn.nn, kind)(8, 6, 2, bidirectional=True, dtype=F64)
    lengths = torch.tensor([6, 16, 2, 26, 4, 0, 10, 18])
    data = torch.randn(40, 8, 8, dtype=F64)
    hx = tuple(torch.randn(4, 8, 6, dtype=F64, requires_grad=True) for _ in layer.cell.states)
    state = hx if kind == "LSTM" else hx[0]
    valid = (torch.arange(40)[:, None] < lengths)[..., None]
    x = torch.where(valid, data, torch.tensor(padding, dtype=F64)).requires_grad_()
    y, last = layer(x, state, lengths=lengths)
    assert not y[~valid.expand_as(y)].any()
    gradients = torch.autograd.grad(
        y.sin().sum() + sum(each.sum() for each in flat(last)), [x, *hx, *layer.parameters()]
    )
    assert all(gradient.isfinite().all() for gradient in gradients)
    for b in range(8):
        at_b = tuple(each[:, b].detach() for each in hx)
        alone, last_alone = layer(data[: lengths[b], b], at_b if kind == "LSTM" else at_b[0])
        torch.testing.assert_close(y[: lengths[b], b], alone)
        for mine, right in zip(flat(last), flat(last_alone)):
            torch.testing.assert_close(mine[:, b], right)
    clean = torch.where(valid, data, torch.zeros((), dtype=F64)).requires_grad_()
    again, last_again = layer(clean, state, lengths=lengths.tolist())
    wanted = torch.autograd.grad(
        again.sin().sum() + sum(each.sum() for each in flat(last_again)), [clean, *hx, *layer.parameters()]
    )
    for mine, right in zip(gradients, wanted):
        assert torch.equal(mine, right)


def test_reverse_is_the_second_direction():
    both = prnn.nn.LSTM(3, 5, bidirectional=True, dtype=F64)
    reverse = prnn.nn.LSTM(3, 5, reverse=True, dtype=F64)
    reverse.load_state_dict(
        {k.removesuffix("_reverse"): v for k, v in both.state_dict().items() if k.endswith("_reverse")}
    )
    x = torch.randn(7, 4, 3, dtype=F64)
    for lengths in (None, [7, 4, 1, 0]):
        y, last = both(x, lengths=lengths)
        mine, mine_last = reverse(x, lengths=lengths)
        torch.testing.assert_close(mine, y[..., 5:])
        for a, b in zip(mine_last, last):
            torch.testing.assert_close(a[0], b[1])
    with pytest.raises(ValueError, match="reverse"):
        prnn.nn.LSTM(3, 5, reverse=True, bidirectional=True)


def test_gru_reset_before_and_after():
    """One number: 0.5*tanh(1.5)+1 with the reset after the product, 0.5*tanh(2)+1 before it."""
    for reset_after, inner in ((True, 1.5), (False, 2.0)):
        layer = prnn.nn.GRU(1, 1, reset_after=reset_after, dtype=F64)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.zero_()
            layer.weight_hh_l0[2] = 1
            layer.bias_hh_l0[2] = 1
            y, _ = layer(torch.zeros(1, 1, 1, dtype=F64), torch.full((1, 1, 1), 2.0, dtype=F64))
        assert y.item() == pytest.approx(0.5 * np.tanh(inner) + 1, abs=1e-14)


def test_vector_parameters_and_their_names():
    layer = prnn.nn.Recurrent(prnn.cells.lstm_peephole, 3, 4, 2, bidirectional=True)
    assert {"p_i_l0", "p_f_l1", "p_o_l1_reverse"} <= set(layer.state_dict())
    assert prnn.nn.Recurrent(prnn.cells.indrnn, 3, 4).state_dict().keys() == {
        "weight_ih_l0",
        "bias_ih_l0",
        "u_l0",
        "_extra_state",
    }
    with pytest.raises(ValueError, match="unit by unit"):
        prnn.nn.Recurrent(prnn.cells.gru, 3, 4, proj_size=2)
    with pytest.raises(TypeError, match="Cell"):
        prnn.nn.Recurrent(torch.nn.LSTM, 3, 4)


@pytest.mark.parametrize("cell", [prnn.cells.mgu, prnn.cells.lstm], ids=lambda cell: cell.name)
def test_flattening_asks_cudnn_nothing(cell, monkeypatch):
    """PyTorch's own asks it for room for parameters of the layer's mode, where they are its own and on a GPU."""
    layer = prnn.nn.Recurrent(cell, 3, 4)
    before = [(name, each.data_ptr()) for name, each in layer.named_parameters()]
    asked = []
    monkeypatch.setattr(torch.backends.cudnn, "is_acceptable", lambda tensor: asked.append(tensor) or True)
    layer.flatten_parameters()
    layer.to(torch.float32)
    assert not asked and before == [(name, each.data_ptr()) for name, each in layer.named_parameters()]


def test_options_travel_with_the_state_dict():
    """Only what torch.nn does not have adds a key, and a wrong pairing is refused."""
    before = prnn.nn.GRU(3, 4, reset_after=False)
    after = prnn.nn.GRU(3, 4)
    assert set(before.state_dict()) - set(after.state_dict()) == {"_extra_state"}
    prnn.nn.GRU(3, 4, reset_after=False).load_state_dict(before.state_dict())
    with pytest.raises(RuntimeError, match="reset_after"):
        after.load_state_dict(before.state_dict())
    assert "reset_after=False" in repr(before) and "reverse=True" in repr(prnn.nn.RNN(3, 4, reverse=True))


def test_a_local_cell_runs_and_copies():
    @prnn.cell(states=["h"], gates=["n"])
    def local(n, h):
        return 0.5 * h + tanh(n)

    layer = prnn.nn.Recurrent(local, 3, 4)
    x = torch.randn(5, 2, 3)
    layer(x)[0].sum().backward()
    assert torch.equal(copy.deepcopy(layer)(x)[0], layer(x)[0])
    with pytest.raises(prnn.errors.CellError, match="top level"):
        pickle.dumps(layer)
    assert torch.equal(
        pickle.loads(pickle.dumps(prnn.nn.Recurrent(leaky, 3, 4)))(x)[0].isnan(), torch.zeros(5, 2, 4, dtype=torch.bool)
    )


@pytest.mark.parametrize("name", [*BUILTIN, "leaky"])
def test_gradients_of_every_cell(name):
    """First and second derivatives, with lengths and reset, in both directions at once."""
    cell = leaky if name == "leaky" else BUILTIN[name]
    layer = prnn.nn.Recurrent(
        cell, 2, 3, bidirectional=True, dtype=F64, proj_size=0 if cell.reads_output_elementwise else 2
    )
    x = torch.randn(3, 2, 2, dtype=F64, requires_grad=True)
    hx = random_state(layer, 2, 2, grad=True)
    reset = torch.tensor([[False, False], [True, False], [False, True]])
    names = list(dict(layer.named_parameters()))

    def run(x, *rest):
        states, weights = rest[: len(cell.states)], rest[len(cell.states) :]
        arguments = (x, states[0] if len(states) == 1 else states)
        options = {"lengths": [3, 2], "reset": reset, "reset_to": "initial"}
        return tuple(flat(torch.func.functional_call(layer, dict(zip(names, weights)), arguments, options)))

    inputs = (x, *flat(hx), *(parameter.detach().requires_grad_() for parameter in layer.parameters()))
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)
