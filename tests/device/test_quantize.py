"""prnn.quantize: modules with narrow weights."""

import copy
import pickle

import pytest
import torch
from torch.nn.utils import parametrizations, prune
from torch.nn.utils.rnn import pack_sequence

import prnn
from prnn.errors import UnsupportedProblem
from twins import flat

KINDS = {"int8": 0.05, "bfloat16": 0.02}  # and how far the outputs here may move


@prnn.cell(states=["h", "c"], gates=["i", "g"], vectors=["peep"])
def coupled(i, g, h, c, peep):
    """A user's cell with a vector."""
    i = prnn.cells.sigmoid(i + peep * c)
    c = c + i * (prnn.cells.tanh(g) - c)
    return prnn.cells.tanh(c), c


LAYERS = {
    "torch LSTM": lambda: torch.nn.LSTM(13, 40, 2, bidirectional=True),
    "torch LSTM, projected": lambda: torch.nn.LSTM(13, 40, proj_size=9),
    "torch GRU": lambda: torch.nn.GRU(13, 33, batch_first=True),
    "torch RNN": lambda: torch.nn.RNN(5, 7, nonlinearity="relu"),
    "LSTM": lambda: prnn.nn.LSTM(6, 40, 2),
    "GRU": lambda: prnn.nn.GRU(6, 8, bias=False, reset_after=False),
    "RNN": lambda: prnn.nn.RNN(6, 8, reverse=True),
    "own cell": lambda: prnn.nn.Recurrent(coupled, 4, 9, 2),
    "one matrix": lambda: prnn.nn.Recurrent(prnn.cells.indrnn, 4, 9),
}


@pytest.fixture(params=LAYERS)
def layer(request):
    return LAYERS[request.param]()


@pytest.mark.parametrize("kind", KINDS)
def test_forward_and_copies(layer, kind):
    """Close to the float layer, and equal to its copies and to what is loaded."""
    before, make = copy.deepcopy(layer), copy.deepcopy(layer)
    prnn.accelerate(before)
    x = torch.randn(6, 3, layer.input_size)
    report = prnn.quantize(layer, kind)
    assert [name for name, _ in report.swapped] == ["(the model)"] and not report.left
    assert report.swapped[0][1].endswith(f"-> prnn.nn.Quantized with {kind} weights")
    assert not list(layer.parameters()) and f"weights='{kind}'" in repr(layer)
    results = flat(layer(x))
    for mine, wanted in zip(results, flat(before(x))):
        assert mine.shape == wanted.shape and (mine - wanted).abs().max() <= KINDS[kind]
    prnn.quantize(make, kind)
    for buffer in make.buffers():
        buffer.zero_()
    make.load_state_dict(layer.state_dict())
    for same in (make, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        for mine, wanted in zip(flat(same(x)), results):
            assert torch.equal(mine, wanted)
    again = prnn.quantize(layer, kind)
    assert not again.swapped and not again.left
    other = next(each for each in KINDS if each != kind)
    assert f"are {kind} already" in prnn.quantize(layer, other).left[0][1]
    assert "float ones are gone" in prnn.restore(layer).left[0][1] and not prnn.accelerate(layer).swapped


def test_compiled():
    lstm = torch.nn.LSTM(3, 4, 2, bidirectional=True)
    prnn.quantize(lstm, "int8")
    compiled = torch.compile(lstm, backend="aot_eager", fullgraph=True)
    for batch in (2, 3):
        x = torch.randn(5, batch, 3)
        for mine, wanted in zip(flat(compiled(x)), flat(lstm(x))):
            assert torch.equal(mine, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_state_dict_holds_matrices_scales_and_what_they_are(kind):
    lstm = torch.nn.LSTM(3, 4, proj_size=2)
    prnn.quantize(lstm, kind)
    held = lstm.state_dict()
    recurrent = {"int8": torch.int8, "bfloat16": torch.int16}[kind]
    for name, dtype in (("weight_ih_l0", torch.int16), ("weight_hh_l0", recurrent), ("weight_hr_l0", recurrent)):
        assert held[name].dtype is dtype and (f"{name}_scale" in held) == (dtype is torch.int8)
    assert held["_extra_state"]["weights"] == kind
    assert not any(name.endswith("_packed") for name in held)


def test_a_state_dict_of_another_kind_is_refused():
    plain, int8, bfloat16 = (torch.nn.GRU(3, 4) for _ in range(3))
    prnn.quantize(int8, "int8")
    prnn.quantize(bfloat16, "bfloat16")
    for layer, given in ((int8, plain), (int8, bfloat16), (bfloat16, int8), (bfloat16, plain)):
        before = copy.deepcopy(layer.state_dict())
        for strict in (True, False):
            with pytest.raises(RuntimeError, match="call prnn.quantize on it"):
                layer.load_state_dict(given.state_dict(), strict=strict)
        for name, each in layer.state_dict().items():
            assert name == "_extra_state" or torch.equal(each, before[name])
    lstm = torch.nn.LSTM(3, 3)
    prnn.quantize(lstm, "int8")
    with pytest.raises(RuntimeError):
        int8.load_state_dict(lstm.state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_resets_and_packed_input(kind):
    gru = torch.nn.GRU(3, 9, 2, bidirectional=True)
    prnn.quantize(gru, kind)
    x, lengths = torch.randn(6, 3, 3), [6, 2, 4]
    y, last = gru(x, lengths=lengths)
    packed, packed_last = gru(pack_sequence([x[:n, b] for b, n in enumerate(lengths)], enforce_sorted=False))
    unpacked, _ = torch.nn.utils.rnn.pad_packed_sequence(packed)
    assert torch.equal(y, unpacked) and torch.equal(last, packed_last)
    alone = gru(x[:2, 1])
    torch.testing.assert_close(y[:2, 1], alone[0])
    torch.testing.assert_close(last[:, 1], alone[1])
    one = torch.nn.GRU(3, 9)
    prnn.quantize(one, kind)
    reset = torch.zeros(6, 3, dtype=torch.bool)
    reset[2] = True
    hx = torch.randn(1, 3, 9)
    torch.testing.assert_close(one(x, hx, reset=reset)[0], torch.cat([one(x[:2], hx)[0], one(x[2:])[0]]))
    torch.testing.assert_close(
        one(x, hx, reset=reset, reset_to="initial")[0], torch.cat([one(x[:2], hx)[0], one(x[2:], hx)[0]])
    )
    for empty in (x[:0], x[:, :0]):
        y, last = one(empty)
        assert y.shape == (*empty.shape[:2], 9) and last.shape == (1, empty.shape[1], 9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_keeps_them_narrow(kind):
    lstm = prnn.nn.LSTM(6, 40, 2)
    x = torch.randn(5, 2, 6)
    prnn.quantize(lstm, kind)
    stream = prnn.Stream(lstm, slots=2)
    wanted = lstm(x)[0]
    assert torch.equal(torch.stack([stream.step(each) for each in x]), wanted)
    assert all(problem.weights == kind for problem in stream._problems)
    stream.reset()
    stream.refresh()
    assert torch.equal(stream.chunk(x), wanted)
    both = torch.nn.LSTM(6, 4, bidirectional=True)
    prnn.quantize(both, kind)
    with pytest.raises(ValueError, match="cannot run step by step"):
        prnn.Stream(both)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_refused(compiled):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.GRU(3, 4))
    prnn.quantize(model, "int8")
    run = torch.compile(model, backend="aot_eager") if compiled else model
    x = torch.randn(5, 2, 3)
    refusals = UnsupportedProblem if not compiled else Exception
    with pytest.raises(refusals, match="for inference and has no gradient"):
        run(x)  # the input of the layer requires one
    with torch.no_grad():
        run(x)
    with torch.inference_mode():
        run(x)
    with pytest.raises(UnsupportedProblem, match="no gradient"):
        model[1](x, torch.randn(1, 2, 4, requires_grad=True))
    with pytest.raises(UnsupportedProblem, match="no gradient"):
        torch.func.grad(lambda x: model[1](x)[0].sum())(x)


def test_what_cannot_run():
    x = torch.randn(5, 2, 3)
    lstm = torch.nn.LSTM(3, 4, 2, dropout=0.5)
    prnn.quantize(lstm, "int8")
    with pytest.raises(UnsupportedProblem, match="dropout 0.5 would act in training mode; call eval"):
        lstm(x)
    lstm.eval()(x)
    with pytest.raises(ValueError, match="does not match weight dtype"):
        lstm(x.double())
    assert torch.equal(copy.deepcopy(lstm).float()(x)[0], lstm(x)[0])
    for change in (torch.nn.Module.double, torch.nn.Module.half, lambda module: module.to("meta")):
        with pytest.raises(UnsupportedProblem, match="runs in float32 on the CPU, but its"):
            change(copy.deepcopy(lstm))(x)


def test_bad_requests_change_nothing():
    broken = torch.nn.GRU(3, 4)
    model = torch.nn.ModuleDict({"fine": torch.nn.LSTM(3, 4), "broken": broken})
    with pytest.raises(ValueError, match=r"weights must be one of \('int8', 'bfloat16'\), got 'int4'"):
        prnn.quantize(model, "int4")
    with pytest.raises(TypeError, match="expected a torch.nn.Module"):
        prnn.quantize(torch.zeros(3), "int8")
    broken.double()
    with pytest.raises(
        UnsupportedProblem, match="broken: int8 weights run in float32 on the CPU, and weight_ih_l0 is torch.float64"
    ):
        prnn.quantize(model, "int8")
    broken.float()
    broken.weight_hh_l0.data[3, 1] = torch.nan
    with pytest.raises(ValueError, match="broken: w_hh holds 1 numbers that are NaN or infinite"):
        prnn.quantize(model, "bfloat16")
    assert type(model["fine"]) is torch.nn.LSTM and len(list(model.parameters())) == 8


class UsersGRU(torch.nn.GRU):
    pass


def test_what_is_left_and_why():
    pruned, normed, replaced = torch.nn.GRU(3, 4), torch.nn.GRU(3, 4), torch.nn.GRU(3, 4)
    prune.l1_unstructured(pruned, "weight_hh_l0", 0.5)
    parametrizations.weight_norm(normed, "weight_ih_l0")
    replaced.forward = lambda x: x
    model = torch.nn.ModuleDict(
        {
            "users": UsersGRU(3, 4),
            "pruned": pruned,
            "normed": normed,
            "replaced": replaced,
            "cell": torch.nn.LSTMCell(3, 4),
        }
    )
    report = prnn.quantize(model, "int8")
    assert not report.swapped
    reasons = dict(report.left)
    assert set(reasons) == set(model)
    for name, word in (
        ("users", "subclass"),
        ("pruned", "computed by a hook"),
        ("normed", "parametrization"),
        ("replaced", "forward was replaced"),
        ("cell", "only whole layers"),
    ):
        assert word in reasons[name]
    prune.remove(pruned, "weight_hh_l0")
    assert prnn.quantize(pruned, "int8").swapped


def test_accelerated_and_tied_layers():
    lstm = torch.nn.LSTM(3, 4)
    model = torch.nn.ModuleDict({"a": lstm, "b": lstm, "c": torch.nn.GRU(3, 4)})
    prnn.accelerate(model)
    report = prnn.quantize(model, "int8")
    assert [name for name, _ in report.swapped] == ["a", "c"]
    assert model["b"] is model["a"] and type(model["b"]) is prnn.nn.Quantized
    assert {name for name, _ in prnn.restore(model).left} == {"a", "c"}
