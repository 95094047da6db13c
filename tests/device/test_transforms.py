"""opcheck, torch.compile, torch.export, torch.func, autocast, torch.jit.trace, gradcheck."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.export import Dim
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import prnn
from twins import flat, twins

F64 = torch.float64
KINDS = ["RNN", "LSTM", "GRU"]
# Dynamo makes an instance of every Function it traces
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


def rand(*shape, grad=True):
    return torch.randn(*shape, dtype=F64, requires_grad=grad)


def operator_arguments(layer, x, grad, lengths=None, reset=None, batch_sizes=None, batch=2):
    directions = 2 if layer.bidirectional else 1
    states = [rand(directions, batch, layer.hidden_size, grad=grad) for _ in layer.cell.states]
    weights = [parameter.detach().requires_grad_(grad) for parameter in layer.parameters()]
    scalars = (
        layer.cell.name,
        layer.input_size,
        layer.hidden_size,
        0,
        True,
        "both" if layer.bidirectional else "forward",
        False,
    )
    return (x, states, weights, batch_sizes, lengths, reset), scalars


@pytest.mark.parametrize("kind", KINDS)
def test_opcheck_forward(kind):
    layer = getattr(prnn.nn, kind)(2, 3, bidirectional=True, dtype=F64)
    operator = torch.ops.prnn.layer.default
    for grad in (False, True):
        tensors, scalars = operator_arguments(layer, rand(3, 2, 2, grad=grad), grad)
        torch.library.opcheck(operator, (*tensors, *scalars, False))
    ragged, scalars = operator_arguments(
        layer, rand(3, 2, 2, grad=False), False, torch.tensor([1, 3]), torch.tensor([[False, True]] * 3)
    )
    torch.library.opcheck(operator, (*ragged, *scalars, False))
    packed, scalars = operator_arguments(layer, rand(5, 2, grad=False), False, batch_sizes=torch.tensor([2, 2, 1]))
    torch.library.opcheck(operator, (*packed, *scalars, False))
    # what is saved has room to spare that nobody writes, so two runs may differ there
    torch.library.opcheck(
        operator, (*ragged, *scalars, True), test_utils=("test_schema", "test_autograd_registration", "test_faketensor")
    )


@pytest.mark.parametrize("kind", KINDS)
def test_opcheck_backward(kind):
    layer = getattr(prnn.nn, kind)(2, 2, dtype=F64)
    tensors, scalars = operator_arguments(layer, rand(2, 2, 2), True)
    with torch.no_grad():
        y, finals, saved = torch.ops.prnn.layer(*tensors, *scalars, True)
    arguments = (*tensors, saved, rand(*y.shape), [rand(*each.shape) for each in finals], *scalars)
    torch.library.opcheck(torch.ops.prnn.layer_backward.default, (*arguments, True, True))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", KINDS)
def test_compile(kind, backend):
    """No graph break, same values and gradients, with every form of input."""
    layer = getattr(prnn.nn, kind)(3, 4, 2, bidirectional=True, dtype=F64)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    x = rand(5, 2, 3)
    packed = pack_padded_sequence(rand(5, 2, 3, grad=False), [5, 2])
    packed = PackedSequence(packed.data.requires_grad_(), *packed[1:])
    lengths, reset = torch.tensor([2, 5]), torch.rand(5, 2) < 0.3
    alone = rand(5, 3)
    calls = [(x, {}), (x, {"lengths": lengths}), (x, {"lengths": [2, 5], "reset": reset}), (packed, {}), (alone, {})]
    for input, options in calls:
        mine, wanted = flat(compiled(input, **options)), flat(layer(input, **options))
        for a, b in zip(mine, wanted):
            torch.testing.assert_close(a, b)
        leaf = packed.data if input is packed else input
        for a, b in zip(
            torch.autograd.grad(mine[0].sin().sum(), [leaf, *layer.parameters()]),
            torch.autograd.grad(wanted[0].sin().sum(), [leaf, *layer.parameters()]),
        ):
            torch.testing.assert_close(a, b)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x)[0], layer(x)[0])


def test_compile_recompiles_at_most_once():
    layer = prnn.nn.LSTM(4, 5)
    counter = CompileCounter()
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    for steps in (5, 9, 13):
        x = torch.randn(steps, 2, 4)
        torch.testing.assert_close(compiled(x)[0], layer(x)[0])
    assert counter.frame_count <= 2


def test_compile_cell_and_user_cell():
    @prnn.cell(states=["h"], gates=["n"])
    def slow(n, h):
        return 0.9 * h + 0.1 * prnn.cells.tanh(n)

    for module, x in (
        (prnn.nn.LSTMCell(3, 4), torch.randn(2, 3)),
        (prnn.nn.Recurrent(slow, 3, 4), torch.randn(5, 2, 3)),
    ):
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        for a, b in zip(flat(compiled(x)), flat(module(x))):
            torch.testing.assert_close(a, b)


@pytest.mark.filterwarnings("ignore")  # inductor's own
def test_compile_inductor():
    layer = prnn.nn.GRU(3, 4)
    x, h0 = torch.randn(5, 2, 3, requires_grad=True), torch.randn(1, 2, 4)
    y, _ = torch.compile(layer, fullgraph=True)(x, h0)
    wanted, _ = layer(x, h0)
    torch.testing.assert_close(y, wanted)
    torch.testing.assert_close(torch.autograd.grad(y, x, wanted), torch.autograd.grad(wanted, x, wanted))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strict", [False, True])
def test_export_with_dynamic_time_and_batch(kind, strict):
    layer = getattr(prnn.nn, kind)(4, 5, 2, batch_first=True)
    shapes = {0: Dim("batch", min=1, max=50), 1: Dim("time", min=2, max=99)}
    program = torch.export.export(layer, (torch.randn(2, 7, 4),), dynamic_shapes={"input": shapes}, strict=strict)
    for batch, steps in ((3, 11), (1, 2), (50, 99)):
        x = torch.randn(batch, steps, 4)
        for a, b in zip(flat(program.module()(x)), flat(layer(x))):
            torch.testing.assert_close(a, b)
    assert sum(node.target is torch.ops.prnn.layer.default for node in program.graph.nodes) == 2


def test_export_with_lengths():
    layer = prnn.nn.LSTM(4, 5)
    batch = Dim("batch", min=1, max=50)
    shapes = {"input": {0: Dim("time", min=2, max=99), 1: batch}, "lengths": {0: batch}}
    program = torch.export.export(
        layer, (torch.randn(7, 2, 4),), {"lengths": torch.tensor([7, 3])}, dynamic_shapes=shapes
    )
    x, lengths = torch.randn(11, 3, 4), torch.tensor([2, 11, 0])
    torch.testing.assert_close(program.module()(x, lengths=lengths)[0], layer(x, lengths=lengths)[0])


def test_functional_transforms():
    """grad, grad of grad, vmap, per-sample gradients, jacrev."""
    layer = prnn.nn.LSTM(3, 4, 2, bidirectional=True, dtype=F64)
    parameters = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    x = rand(5, 2, 3)

    def loss(parameters, x):
        return torch.func.functional_call(layer, parameters, (x,))[0].sin().sum()

    gradient = torch.func.grad(loss)(parameters, x.detach())
    wanted = torch.autograd.grad(layer(x.detach())[0].sin().sum(), list(layer.parameters()))
    torch.testing.assert_close(list(gradient.values()), list(wanted))

    second = torch.func.grad(lambda x: torch.func.grad(loss, argnums=1)(parameters, x).square().sum())(x.detach())
    (first,) = torch.autograd.grad(layer(x)[0].sin().sum(), x, create_graph=True)
    torch.testing.assert_close(second, torch.autograd.grad(first.square().sum(), x)[0])

    samples = rand(3, 5, 2, 3, grad=False)
    torch.testing.assert_close(
        torch.func.vmap(lambda x: layer(x)[0])(samples), torch.stack([layer(sample)[0] for sample in samples])
    )
    per_sample = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, samples)
    for i, sample in enumerate(samples):
        alone = torch.func.grad(loss)(parameters, sample)
        torch.testing.assert_close({name: each[i] for name, each in per_sample.items()}, alone)
    jacobian = torch.func.jacrev(lambda x: layer(x)[0].sum((0, 1)))(x.detach())
    torch.testing.assert_close(jacobian.sum(0), torch.autograd.grad(layer(x)[0].sum(), x)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck_and_second_derivative(kind):
    layer = getattr(prnn.nn, kind)(2, 3, 2, dtype=F64)
    x, states = rand(3, 2, 2), [rand(2, 2, 3) for _ in layer.cell.states]
    names = [name for name, _ in layer.named_parameters()]

    def run(x, *rest):
        states, weights = rest[: len(layer.cell.states)], rest[len(layer.cell.states) :]
        hx = states[0] if len(states) == 1 else states
        return tuple(flat(torch.func.functional_call(layer, dict(zip(names, weights)), (x, hx))))

    inputs = (x, *states, *(parameter.detach().requires_grad_() for parameter in layer.parameters()))
    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)
    theirs, ours = twins(kind, 4, 4)
    x = rand(3, 2, 4)
    penalties = []
    for module in (ours, theirs):
        (gradient,) = torch.autograd.grad(module(x)[0].sum(), x, create_graph=True)
        penalties.append(torch.autograd.grad(gradient.square().sum(), [x, *module.parameters()], allow_unused=True))
    for a, b in zip(*penalties):
        torch.testing.assert_close(a, b if b is not None else torch.zeros_like(a))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_low_precision(kind, dtype):
    """fp32 arithmetic, rounded results: the error is one rounding of the exact value."""
    theirs, _ = twins(kind, 5, 7, 1, bidirectional=True)
    ours = getattr(prnn.nn, kind)(5, 7, 1, bidirectional=True, dtype=dtype)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())  # the rounded weights
    x = torch.randn(6, 3, 5).to(dtype).requires_grad_()
    y, last = ours(x)
    exact, exact_last = theirs(x.detach().double())
    for mine, wanted in zip([y, *flat(last)], [exact, *flat(exact_last)]):
        assert mine.dtype is dtype
        torch.testing.assert_close(mine.double(), wanted, rtol=torch.finfo(dtype).eps, atol=1e-6)
    y.sum().backward()
    assert x.grad.dtype is dtype and ours.weight_hh_l0.grad.dtype is dtype


def test_autocast():
    """Low type out, fp32 gradients on fp32 parameters, any mix of input types, three steps of training."""
    theirs = torch.nn.Sequential(torch.nn.Conv1d(1, 10, 2))
    ours = prnn.nn.LSTM(10, 10, bidirectional=True)
    twin = torch.nn.LSTM(10, 10, bidirectional=True)
    twin.load_state_dict(ours.state_dict())
    x = torch.randn(10, 1, 11)
    optimizers = [torch.optim.SGD(module.parameters(), 0.1) for module in (ours, twin)]
    for _ in range(3):
        features = theirs(x).permute(0, 2, 1).detach()
        with torch.autocast("cpu", torch.bfloat16):
            y, (h, _) = ours(features)
        assert y.dtype is torch.bfloat16 and h.dtype is torch.bfloat16
        wanted, _ = twin(features)
        torch.testing.assert_close(y.float(), wanted, atol=2e-2, rtol=0)
        for result, optimizer in zip((y, wanted), optimizers):
            optimizer.zero_grad()
            result.float().square().sum().backward()
            optimizer.step()
        assert ours.weight_hh_l0.grad.dtype is torch.float32
    state = tuple(torch.randn(2, 10, 10) for _ in range(2))
    with torch.autocast("cpu", torch.bfloat16):
        for input, dtype in ((features.bfloat16(), torch.float32), (features, torch.bfloat16)):
            assert ours(input, tuple(each.to(dtype) for each in state))[0].dtype is torch.bfloat16
        assert prnn.nn.GRUCell(10, 4)(features[0]).dtype is torch.bfloat16
        with torch.autocast("cpu", enabled=False):
            assert ours(features)[0].dtype is torch.float32


@pytest.mark.filterwarnings("ignore")  # torch.jit is deprecated
def test_jit_trace_records_the_operator():
    layer = prnn.nn.LSTM(3, 4)
    traced = torch.jit.trace(layer, (torch.randn(5, 2, 3),))
    x = torch.randn(7, 3, 3)
    torch.testing.assert_close(traced(x)[0], layer(x)[0])


def test_meta_and_fake():
    for kind in KINDS:
        layer = getattr(prnn.nn, kind)(3, 4, 2, bidirectional=True, device="meta")
        y, last = layer(torch.randn(5, 2, 3, device="meta"))
        assert y.is_meta and y.shape == (5, 2, 8)
        assert all(each.shape == (4, 2, 4) for each in flat(last))
    with torch._subclasses.FakeTensorMode():
        y, _ = prnn.nn.LSTM(3, 4)(torch.randn(5, 2, 3))
        assert type(y) is torch._subclasses.FakeTensor
