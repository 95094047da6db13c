"""The cases of PyTorch's own tests of its recurrent modules (test/test_nn.py, test/nn/test_packed_sequence.py, test/nn/test_dropout.py
and the module inputs of torch/testing/_internal/common_modules.py), against torch.nn in float64."""

import itertools

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import prnn
from twins import assert_same, flat, states_for, twins

KINDS = ["RNN", "LSTM", "GRU"]
F64 = torch.float64


def rand(*shape, grad=True):
    return torch.randn(*shape, dtype=F64, requires_grad=grad)


@pytest.mark.parametrize("kind", KINDS)
def test_module_inputs(kind):
    """Unbatched and batched, with and without a state: every combination of the constructor's flags."""
    variants = [{"nonlinearity": "relu"}, {"nonlinearity": "tanh"}] if kind == "RNN" else [{}]
    variants = [{"proj_size": 0}, {"proj_size": 2}] if kind == "LSTM" else variants
    for bias, batch_first, bidirectional, variant in itertools.product(
        (False, True), (False, True), (False, True), variants
    ):
        theirs, ours = twins(kind, 2, 3, 2, bias=bias, batch_first=batch_first, bidirectional=bidirectional, **variant)
        for shape, batch in (((2, 2), None), ((4, 3, 2), 4 if batch_first else 3)):
            assert_same(ours, theirs, (rand(*shape),))
            assert_same(ours, theirs, (rand(*shape), states_for(ours, batch, requires_grad=True)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_packed_module_inputs(kind, enforce_sorted):
    for bias, batch_first, bidirectional in itertools.product((False, True), repeat=3):
        theirs, ours = twins(kind, 2, 3, 2, bias=bias, batch_first=batch_first, bidirectional=bidirectional)
        lengths = [5, 4, 2] if enforce_sorted else [2, 5, 4]
        packed = pack_padded_sequence(rand(5, 3, 2, grad=False), torch.tensor(lengths), enforce_sorted=enforce_sorted)
        leaf = packed.data.detach().requires_grad_()
        packed = PackedSequence(leaf, *packed[1:])
        assert_same(ours, theirs, (packed,))
        assert_same(ours, theirs, (packed, states_for(ours, 3, requires_grad=True)))
        mine, wanted = ours(packed)[0], theirs(packed)[0]
        assert torch.equal(mine.batch_sizes, wanted.batch_sizes)
        torch.testing.assert_close(
            pad_packed_sequence(mine, batch_first)[0], pad_packed_sequence(wanted, batch_first)[0]
        )


@pytest.mark.parametrize("kind", KINDS)
def test_variable_sequence(kind):
    """Packed sequences of different lengths equal the sequences run one by one."""
    _, ours = twins(kind, 6, 5, 2, bidirectional=True)
    sequences = [rand(n, 6) for n in (7, 5, 5, 3, 1)]
    output, hidden = ours(pack_sequence(sequences))
    padded, _ = pad_packed_sequence(output)
    for b, sequence in enumerate(sequences):
        alone, last = ours(sequence)
        torch.testing.assert_close(padded[: len(sequence), b], alone)
        for mine, wanted in zip(flat(hidden), flat(last)):
            torch.testing.assert_close(mine[:, b], wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_args_check(kind):
    """Each wrong size of input and state raises RuntimeError, as PyTorch's test_rnn_args_check wants it."""
    model = getattr(prnn.nn, kind)(3, 5, 2)
    good_input, good_hidden, bad = (6, 4, 3), (2, 4, 5), 7

    def attempt(input_shape, hidden_shape):
        input, hidden, good = torch.randn(input_shape), torch.randn(hidden_shape), torch.randn(good_hidden)
        for hx in [hidden] if kind != "LSTM" else [(hidden, good), (good, hidden)]:
            with pytest.raises(RuntimeError):
                model(input, hx)

    attempt((6, bad, 3), good_hidden)
    attempt((6, 4, bad), good_hidden)
    for dim in range(3):
        attempt(good_input, tuple(bad if i == dim else n for i, n in enumerate(good_hidden)))


def test_projection_args_check():
    model = prnn.nn.LSTM(3, 5, 2, proj_size=2)
    x, h, c = torch.randn(6, 4, 3), torch.randn(2, 4, 2), torch.randn(2, 4, 5)
    model(x, (h, c))
    for bad in [(c, c), (h, h), (torch.randn(2, 7, 2), c), (torch.randn(7, 4, 2), c), (h, torch.randn(2, 7, 5))]:
        with pytest.raises(RuntimeError):
            model(x, bad)
    with pytest.raises(RuntimeError):
        model(torch.randn(6, 4, 7), (h, c))


def test_projection_only_for_lstm():
    for kind in ("RNN", "GRU"):
        with pytest.raises((TypeError, ValueError)):
            getattr(prnn.nn, kind)(30, 20, 2, proj_size=10)


@pytest.mark.parametrize("kind", KINDS)
def test_initial_state_is_zero(kind):
    _, ours = twins(kind, 30, 20, 2)
    x, zero = rand(10, 32, 30), torch.zeros(2, 32, 20, dtype=F64)
    for mine, wanted in zip(flat(ours(x)), flat(ours(x, (zero, zero) if kind == "LSTM" else zero))):
        assert torch.equal(mine, wanted)
    if kind == "LSTM":
        _, ours = twins(kind, 30, 20, 2, proj_size=10)
        for mine, wanted in zip(flat(ours(x)), flat(ours(x, (zero[..., :10], zero)))):
            assert torch.equal(mine, wanted)


@pytest.mark.parametrize(("kind", "options"), [*((kind, {}) for kind in KINDS), ("LSTM", {"proj_size": 10})])
def test_messages_about_sizes_and_devices(kind, options):
    ours = getattr(prnn.nn, kind)(10, 20, batch_first=True, **options)
    x = torch.randn(2, 3, 10)

    def hx(width, device="cpu"):
        h = torch.zeros(1, 2, width, device=device)
        return (h, torch.zeros(1, 2, 20, device=device)) if kind == "LSTM" else h

    good = options.get("proj_size", 20)
    with pytest.raises(RuntimeError, match="Expected hidden.*size.*got"):
        ours(x, hx(19))
    with pytest.raises(RuntimeError, match=r"input\.size\(-1\) must be equal to input_size"):
        ours(x[..., :3], hx(good))
    for arguments in [(x.to("meta"), hx(good)), (x, hx(good, "meta"))]:
        with pytest.raises(RuntimeError, match="not at the same device"):
            ours(*arguments)


@pytest.mark.parametrize(("kind", "options"), [*((kind, {}) for kind in KINDS), ("LSTM", {"proj_size": 2})])
def test_weights_of_their_own_storage(kind, options):
    """A weight that was given other memory is read from there, and the memory stays shared."""
    theirs, ours = twins(kind, 3, 4, 2, **options)
    held = ours.weight_hh_l0.detach().clone()
    with torch.no_grad():
        ours.weight_hh_l0.set_(held)
    for _ in range(2):
        assert_same(ours, theirs, (rand(5, 2, 3), states_for(ours, 2, requires_grad=True)))
    held[:] = 0.5
    with torch.no_grad():
        theirs.weight_hh_l0.fill_(0.5)
    assert_same(ours, theirs, (rand(5, 2, 3),))


@pytest.mark.parametrize(("kind", "options"), [*((kind, {}) for kind in KINDS), ("LSTM", {"proj_size": 2})])
def test_tied_biases_of_both_directions_train(kind, options):
    theirs, ours = twins(kind, 3, 4, batch_first=True, bidirectional=True, **options)
    x = rand(5, 2, 3)
    for module in (theirs, ours):
        module.bias_ih_l0_reverse = module.bias_ih_l0
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            module(x)[0].square().sum().backward()
            optimizer.step()
        assert module.bias_ih_l0_reverse is module.bias_ih_l0
    assert_same(ours, theirs, (x,))


def test_a_weight_that_is_away_while_the_module_moves():
    theirs, ours = twins("LSTM", 3, 4, 2)
    for module in (theirs, ours):
        weight = module.weight_hh_l0
        del module.weight_hh_l0
        assert not hasattr(module, "weight_hh_l0")
        module.float(), module.double()
        module.weight_hh_l0 = weight
    assert_same(ours, theirs, (rand(5, 2, 3),))


def test_dropout_after_saving_and_loading(tmp_path):
    _, ours = twins("RNN", 5, 6, 2, dropout=0.5)
    torch.save(ours, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    x = rand(4, 3, 5)
    results = []
    for module in (ours, loaded, loaded):
        torch.manual_seed(len(results) // 2)
        results.append(module(x)[0])
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


@pytest.mark.parametrize("kind", KINDS)
def test_retain_graph(kind):
    _, ours = twins(kind, 10, 20, 2)
    x = rand(5, 6, 10)
    loss = ours(x)[0].sum()
    first = torch.autograd.grad(loss, [x, *ours.parameters()], retain_graph=True)
    second = torch.autograd.grad(loss, [x, *ours.parameters()])
    for a, b in zip(first, second):
        assert torch.equal(a, b)


def test_nonlinearity():
    """An identity RNN sums its inputs."""
    ours = prnn.nn.RNN(1, 10, nonlinearity="relu")
    assert ours.nonlinearity == "relu" and ours.mode == "RNN_RELU"
    with pytest.raises(ValueError, match="Unknown nonlinearity"):
        prnn.nn.RNN(1, 10, nonlinearity="garbage")
    assert prnn.nn.RNN(1, 10, 1, "relu").nonlinearity == "relu"


@pytest.mark.parametrize("kind", KINDS)
def test_input_and_hidden_size_zero(kind):
    with pytest.raises(ValueError, match="input_size must be greater than zero"):
        getattr(prnn.nn, kind)(0, 5)
    with pytest.raises(ValueError, match="hidden_size must be greater than zero"):
        getattr(prnn.nn, kind)(5, 0)
    with pytest.raises(ValueError, match="num_layers must be greater than zero"):
        getattr(prnn.nn, kind)(5, 4, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_constructor_types(kind):
    make = getattr(prnn.nn, kind)
    for bad in ({"bias": 1}, {"batch_first": 1}, {"input_size": 2.0}, {"hidden_size": "4"}):
        with pytest.raises(TypeError):
            make(**{"input_size": 3, "hidden_size": 4} | bad)
    with pytest.raises(ValueError, match="dropout should be a number"):
        make(3, 4, 2, dropout=1.5)
    with pytest.warns(UserWarning, match="dropout option adds dropout"):
        make(3, 4, dropout=0.5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [0.0, 0.276, 0.731, 1.0])
def test_dropout(kind, p):
    """The same seed draws the same mask; change of p and of mode acts on the next call."""
    theirs, ours = twins(kind, 10, 30, 3, dropout=p, bidirectional=True)
    x = rand(4, 5, 10)

    def run(module):
        torch.manual_seed(3)
        result = flat(module(x))
        return [*result, torch.rand(1), *torch.autograd.grad(result[0].sum(), [x, *module.parameters()])]

    for mine, wanted in zip(run(ours), run(theirs)):
        torch.testing.assert_close(mine, wanted)
    packed = pack_padded_sequence(x.detach(), [4, 3, 3, 2, 1])
    for module in (ours, theirs):
        module.dropout = 0.5
    torch.manual_seed(4)
    mine = ours(packed)[0].data
    torch.manual_seed(4)
    torch.testing.assert_close(mine, theirs(packed)[0].data)
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(x)[0], theirs(x)[0])


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(kind, bias):
    for variant in [{"nonlinearity": "tanh"}, {"nonlinearity": "relu"}] if kind == "RNNCell" else [{}]:
        theirs, ours = twins(kind, 10, 20, bias=bias, **variant)
        assert list(theirs.state_dict()) == list(ours.state_dict())
        for leading in [(3,), ()]:
            x = rand(*leading, 10)
            hidden = (rand(*leading, 20), rand(*leading, 20)) if kind == "LSTMCell" else rand(*leading, 20)
            assert_same(ours, theirs, (x,))
            assert_same(ours, theirs, (x, hidden))
            for _ in range(6):
                hidden = ours(x, hidden)
            sum(each.sum() for each in flat(hidden)).backward()


@pytest.mark.parametrize("output", [0, 1])
def test_backward_through_one_output_of_an_lstm_cell(output):
    theirs, ours = twins("LSTMCell", 3, 4)
    x, hx = rand(2, 3), (rand(2, 4), rand(2, 4))
    gradients = [
        torch.autograd.grad(cell(x, hx)[output].sin().sum(), [x, *hx, *cell.parameters()]) for cell in (ours, theirs)
    ]
    for mine, wanted in zip(*gradients):
        torch.testing.assert_close(mine, wanted)


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells_do_not_broadcast(kind):
    cell, good = getattr(prnn.nn, kind)(10, 20), torch.randn(3, 20)
    for input_shape, bad in [((3, 10), torch.randn(1, 20)), ((3, 10), torch.randn(3, 1)), ((3, 1), good)]:
        for hx in [(bad, good), (good, bad)] if kind == "LSTMCell" else [bad]:
            with pytest.raises(RuntimeError):
                cell(torch.randn(input_shape), hx)


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells_refuse_wrong_sizes(kind):
    cell = getattr(prnn.nn, kind)(10, 20)

    def hx(*shape):
        return (torch.randn(shape), torch.randn(shape)) if kind == "LSTMCell" else torch.randn(shape)

    with pytest.raises(RuntimeError):
        cell(torch.randn(3, 11), hx(3, 20))
    with pytest.raises(RuntimeError):
        cell(torch.randn(3, 10), hx(3, 21))
    with pytest.raises(RuntimeError):
        cell(torch.randn(3, 10), hx(5, 20))
    with pytest.raises(ValueError, match="1D or 2D"):
        cell(torch.randn(3, 1, 10), hx(3, 20))
    with pytest.raises(ValueError, match="1D or 2D"):
        cell(torch.randn(3, 10), hx(3, 1, 20))


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequence_refuses_lies(kind):
    """Batch sizes that do not describe the data (PyTorch's test_pack_sequence_batch_sizes_throw)."""
    ours = getattr(prnn.nn, kind)(3, 3, bidirectional=True)
    for data, sizes in [(7, [3, 3, 0]), (6, [4, 3]), (5, [2, 3])]:
        with pytest.raises((ValueError, RuntimeError)):
            ours(PackedSequence(torch.randn(data, 3), torch.tensor(sizes)))
