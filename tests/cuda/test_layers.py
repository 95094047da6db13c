"""prnn.nn on CUDA devices, beside torch.nn."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import prnn
from prnn.errors import PrnnFallbackWarning, UnsupportedProblem
from prnn.ops import cuda

NAMES = ["RNN", "LSTM", "GRU"]
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 5e-3, torch.float64: 1e-12}


@pytest.fixture(autouse=True)
def quiet():
    """torch.nn says once that its weights were copied; what prnn says is tested where it matters."""
    torch.manual_seed(0)
    cuda._warn.cache_clear()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
        warnings.filterwarnings(
            "ignore", message=".* runs interpreted, which is slow"
        )  # the CPU's side, where it was not built
        yield


def twins(name, dtype, *arguments, **options):
    theirs = getattr(torch.nn, name)(*arguments, **options).to("cuda", dtype).eval()
    ours = getattr(prnn.nn, name)(*arguments, **options).to("cuda", dtype).eval()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def flat(result):
    return [result] if isinstance(result, torch.Tensor) else [each for part in result for each in flat(part)]


def assert_close(ours, theirs, dtype):
    for a, b in zip(flat(ours), flat(theirs)):
        torch.testing.assert_close(a.float(), b.float(), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}, {"bias": False}]
)
@pytest.mark.parametrize("name", NAMES)
def test_inference_agrees_with_torch(name, options, dtype):
    ours, theirs = twins(name, dtype, 24, 96, **options)
    x = torch.randn(7, 5, 24, device="cuda", dtype=dtype)
    with torch.no_grad():
        assert_close(ours(x), theirs(x), dtype)


@pytest.mark.parametrize("name", NAMES)
def test_packed(name):
    ours, theirs = twins(name, torch.float16, 8, 32, bidirectional=True)
    x = torch.randn(6, 4, 8, device="cuda", dtype=torch.float16)
    packed = pack_padded_sequence(x, [2, 6, 5, 1], enforce_sorted=False)
    with torch.no_grad():
        got, want = ours(packed), theirs(packed)
    assert_close((got[0].data, got[1]), (want[0].data, want[1]), torch.float16)


@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_runs_in_torch_and_says_so_once(name):
    ours, theirs = twins(name, torch.float16, 16, 32)
    x = torch.randn(5, 3, 16, device="cuda", dtype=torch.float16)
    with pytest.warns(PrnnFallbackWarning, match="a gradient is asked for"):
        got = ours(x)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrnnFallbackWarning)
        ours(x)
    want = theirs.train()(x)[0]  # in eval mode cuDNN has no backward pass; ours() above is in eval mode
    assert_close(got, want, torch.float16)
    got.float().sum().backward()
    want.float().sum().backward()
    for a, b in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(a.grad, b.grad, atol=2e-2, rtol=2e-2)


def test_dropout_acts_in_training_mode_only_where_torch_runs():
    ours, _ = twins("LSTM", torch.float16, 16, 32, num_layers=2, dropout=0.5)
    x = torch.randn(5, 3, 16, device="cuda", dtype=torch.float16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrnnFallbackWarning)
        assert torch.equal(ours(x)[0], ours(x)[0])
        ours(x)[0].sum().backward()
        ours.train()
        assert not torch.equal(ours(x)[0], ours(x)[0])


@pytest.mark.parametrize("options", [{}, {"proj_size": 5}, {"num_layers": 2, "bidirectional": True}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_other_types_and_projections_run(dtype, options):
    ours, theirs = twins("LSTM", dtype, 16, 32, **options)
    x = torch.randn(50, 3, 16, device="cuda", dtype=dtype)
    with torch.no_grad():
        assert_close(ours(x), theirs(x), dtype)


def test_a_gradient_of_a_cell_that_torch_lacks_raises_with_the_reasons():
    layer = prnn.nn.Recurrent(prnn.cells.mgu, 8, 8, device="cuda", dtype=torch.float16)
    with pytest.raises(UnsupportedProblem, match="it has rnn_tanh, rnn_relu, lstm, gru, not mgu"):
        layer(torch.zeros(3, 2, 8, device="cuda", dtype=torch.float16))


@pytest.mark.parametrize("cell", [prnn.cells.lstm_peephole, prnn.cells.mgu], ids=lambda cell: cell.name)
def test_a_user_cell_runs(cell):
    layer = prnn.nn.Recurrent(cell, 8, 40, device="cuda", dtype=torch.float16)
    x = torch.randn(6, 2, 8, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        got = layer(x)
        want = layer.cpu()(x.cpu())
    assert_close([each.cpu() for each in flat(got)], want, torch.float16)


def test_weights_are_as_they_are_now():
    layer = prnn.nn.GRU(16, 32, device="cuda", dtype=torch.float16)
    x = torch.randn(5, 2, 16, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        before = layer(x)[0]
        layer.weight_hh_l0.data.mul_(2)
        after = layer(x)[0]
    assert not torch.equal(before, after)


def test_autocast():
    layer = prnn.nn.LSTM(16, 32, device="cuda")
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        y, _ = layer(torch.randn(5, 2, 16, device="cuda"))
    assert y.dtype is torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_lengths_and_reset_in_a_captured_graph_are_read_in_every_replay(bidirectional, dtype):
    layer = prnn.nn.LSTM(16, 64, bidirectional=bidirectional, device="cuda", dtype=dtype)
    x = torch.randn(9, 5, 16, device="cuda", dtype=dtype)
    lengths, reset = torch.full((5,), 9, device="cuda"), torch.zeros(9, 5, dtype=torch.bool, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        layer(x, lengths=lengths, reset=reset)  # compiled and chosen outside of the capture
        with torch.cuda.graph(graph):
            captured = layer(x, lengths=lengths, reset=reset)
        for _ in range(3):
            lengths.copy_(torch.randint(0, 10, (5,)))
            reset.copy_(torch.rand(9, 5) < 0.3)
            graph.replay()
            assert_close(captured, layer(x, lengths=lengths, reset=reset), dtype)


def test_what_cannot_be_captured_says_what_to_do():
    layer = prnn.nn.GRU(16, 64, device="cuda", dtype=torch.float16)
    x = torch.randn(9, 2, 16, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        layer(x, lengths=[9, 3])
        with (
            pytest.raises(RuntimeError, match="pass lengths= as a tensor on cuda"),
            torch.cuda.graph(torch.cuda.CUDAGraph()),
        ):
            layer(x, lengths=[9, 3])
        assert layer(x)[0].isfinite().all()


@pytest.mark.parametrize("hidden", [128, 1024])
def test_reserved_sms_change_no_result(hidden):
    layer = prnn.nn.LSTM(16, hidden, bidirectional=True, device="cuda", dtype=torch.float16)
    x = torch.randn(7, 200, 16, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        want = layer(x)
        prnn.set_reserved_sms(40)
        try:
            assert_close(layer(x), want, torch.float16)
        finally:
            prnn.set_reserved_sms(0)


def test_threads_launch_beside_one_another():
    layers = [prnn.nn.LSTM(16, hidden, device="cuda", dtype=torch.float16) for hidden in (32, 64, 96)]
    x = torch.randn(5, 3, 16, device="cuda", dtype=torch.float16)

    def call(layer):
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            y = [layer(x)[0] for _ in range(200)]
            torch.cuda.current_stream().synchronize()
            return all(torch.equal(each, y[0]) for each in y)

    with torch.no_grad():
        for layer in layers:
            layer(x)
    torch.cuda.synchronize()
    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(call, layers))
