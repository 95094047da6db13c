"""Every cell, dtype and size in the GPU's kernels, beside the reference."""

import pytest
import torch

import cuda_cases as cases
from prnn import cells, engine
from prnn.errors import UnsupportedProblem
from prnn.kernels.gpu import Features
from prnn.problem import Problem

KINDS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "tf32": torch.float32, "ieee": torch.float32}
SINGLE_STAGE = [each for each in cells.BUILTIN.values() if each.program.num_stages == 1]
USED = [each for each in SINGLE_STAGE if each.name in ("lstm", "gru", "rnn_tanh")]


@cells.cell(states=["h", "c", "n"], gates=["a", "b", "d"], vectors=["u"])
def own(a, b, d, h, c, n, u):
    c = cells.sigmoid(a + u * c) * c + cells.tanh(b.recurrent) * cells.relu(d.input)
    return cells.tanh(c) + 0.25 * h + 0.1 * n, c, 0.5 * n + h


def name(value):
    return getattr(value, "name", str(value))


@pytest.fixture(params=KINDS)
def dtype(request, monkeypatch):
    """Every type of tensors; float32 twice, with TF32 allowed and not."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", request.param != "ieee")
    return KINDS[request.param]


@pytest.mark.parametrize("cell", [*SINGLE_STAGE, own], ids=name)
def test_every_cell(cell, dtype):
    cases.compare(cell, *cases.draw(cell, dtype, 48, 11, 9, input_size=20))
    cases.compare(cell, *cases.draw(cell, dtype, 48, 11, 9, input_size=20, directions=2), direction="both")


@pytest.mark.parametrize("hidden", [1, 7, 31, 33, 64, 100, 129, 256, 384])
@pytest.mark.parametrize("cell", USED, ids=name)
def test_sizes(cell, hidden, dtype):
    if dtype is torch.float32 and hidden > 256:
        pytest.skip("too large for the registers of a cluster in float32")
    for batch, steps in ((1, 1), (3, 6), (8, 5), (17, 7)):
        cases.compare(
            cell, *cases.draw(cell, dtype, hidden, batch, steps, input_size=9), rows=[0, batch // 2, batch - 1]
        )


@pytest.mark.parametrize("batch", [1, 2, 8, 9, 64, 65, 128, 300])
def test_batches(batch):
    cases.compare(cells.lstm, *cases.draw(cells.lstm, torch.float16, 128, batch, 12), rows=[0, batch // 2, batch - 1])


def test_every_configuration_of_the_family(dtype, monkeypatch):
    """Not only the one that the plan takes."""
    from prnn.kernels import cluster_forward
    from prnn.runtime.cuda import driver

    facts = driver.probe(torch.cuda.current_device())
    every, tried = cluster_forward.configs, 0
    arguments = cases.draw(cells.lstm, dtype, 128, 21, 10)
    math = "tf32" if dtype is torch.float32 and cases.cuda.allows_tf32() else "ieee"
    problem = Problem(cells.lstm, 128, 128, dtype=str(dtype).removeprefix("torch."), math=math)
    for config in every(problem, facts):
        if cluster_forward.refuse(problem, config, facts) is None:
            monkeypatch.setattr(cluster_forward, "configs", lambda problem, facts, config=config: (config,))
            engine._prepare_gpu.cache_clear()
            try:
                cases.compare(cells.lstm, *arguments, rows=[0, 7, 8, 20], backend="cluster_forward")
                tried += 1
            except UnsupportedProblem as error:
                assert "spills" in str(error) or "no cluster of" in str(error)
    engine._prepare_gpu.cache_clear()
    assert tried > 3


@pytest.mark.parametrize("direction", ["forward", "reverse", "both"])
@pytest.mark.parametrize("cell", USED, ids=name)
def test_lengths_and_reset(cell, direction, dtype, monkeypatch):
    count = 2 if direction == "both" else 1
    x, states, weights = cases.draw(cell, dtype, 65, 13, 10, input_size=16, directions=count)
    lengths = torch.tensor([10, 0, 3, 5, 1, 9, 10, 2, 4, 6, 0, 7, 8])
    reset = torch.rand(10, 13) < 0.3
    for b, length in enumerate(lengths):
        x[length:, b] = float("nan")
    options = {"direction": direction, "lengths": lengths}
    cases.compare(cell, x, states, weights, **options)
    cases.compare(cell, x, states, weights, **options, reset=reset, to_initial=True)
    monkeypatch.setattr(cases.cuda, "WORKSPACE_BYTES", 1)  # a step at a time
    cases.compare(cell, x, states, weights, **options, reset=reset)


def test_chunks_give_the_same_bits(monkeypatch):
    arguments = cases.draw(cells.gru, torch.bfloat16, 128, 9, 50)
    whole, ends = cases.run(cells.gru, *arguments)
    monkeypatch.setattr(cases.cuda, "WORKSPACE_BYTES", 7 * 9 * 3 * 128 * 2)
    chunked, chunked_ends = cases.run(cells.gru, *arguments)
    assert torch.equal(whole, chunked) and torch.equal(ends[0], chunked_ends[0])


def test_nan_reaches_its_own_row_only(dtype):
    x, states, weights = cases.draw(cells.lstm, dtype, 128, 20, 6)
    x[2, 5] = float("nan")
    y, _ = cases.run(cells.lstm, x, states, weights)
    assert y[2:, 5].isnan().all() and not y[:2].isnan().any()
    assert not y[:, [b for b in range(20) if b != 5]].isnan().any()


def test_unbounded_states_and_infinity(dtype):
    x, states, weights = cases.draw(cells.rnn_relu, dtype, 64, 8, 6, bound=100.0)
    y, _ = cases.run(cells.rnn_relu, x, states, weights)
    want, _ = cases.expected(cells.rnn_relu, x, states, weights)
    assert float((y.double().cpu() - want).abs().max() / want.max()) <= cases.tolerance(dtype)
    x[3, 2, 1] = float("inf")
    y, _ = cases.run(cells.rnn_relu, x, states, weights)
    others = [b for b in range(8) if b != 2]
    assert not y[3:, 2].isfinite().all() and y[:3].isfinite().all() and y[:, others].isfinite().all()


def test_a_long_memory_does_not_drift():
    """Forget gates near 1 over thousands of steps: at most twice the error of torch.nn in the same type, and 1e-3 more."""
    steps, hidden = 20000, 64
    x, states, weights = cases.draw(cells.lstm, torch.float16, hidden, 2, steps, input_size=8)
    weights[2][hidden : 2 * hidden] = 8
    theirs = torch.nn.LSTM(8, hidden).to("cuda", torch.float16)
    for parameter, weight in zip(theirs.parameters(), weights):
        parameter.data.copy_(weight)
    theirs.flatten_parameters()
    with torch.no_grad():
        torch_y, torch_ends = theirs(x, tuple(states))
    y, ends = cases.run(cells.lstm, x, states, weights)
    want, want_ends = cases.expected(cells.lstm, x, states, weights, rows=[1])
    for ours, torchs, wanted in zip((y, *ends), (torch_y, *torch_ends), (want, *want_ends)):
        assert cases.worst(ours[:, [1]], wanted) <= 2 * cases.worst(torchs[:, [1]], wanted) + 1e-3


@pytest.mark.parametrize("allowed", [False, True], ids=["ieee", "tf32"])
@pytest.mark.parametrize("hidden", [64, 128, 256])
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_float32_errs_at_most_twice_as_much_as_torch(kind, hidden, allowed, monkeypatch):
    """Whatever is said of plain products."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
    cell = {"RNN": cells.rnn_tanh, "LSTM": cells.lstm, "GRU": cells.gru}[kind]
    x, states, weights = cases.draw(cell, torch.float32, hidden, 8, 100)
    theirs = getattr(torch.nn, kind)(hidden, hidden).to("cuda")
    for parameter, weight in zip(theirs.parameters(), weights):
        parameter.data.copy_(weight)
    with torch.no_grad():
        torch_y = theirs(x, tuple(states) if kind == "LSTM" else states[0])[0]
    want, _ = cases.expected(cell, x, states, weights)
    bound = 2 * cases.worst(torch_y, want)
    kept = torch.backends.cuda.matmul.allow_tf32
    try:
        for plain in (False, True):
            torch.backends.cuda.matmul.allow_tf32 = plain
            y, _ = cases.run(cell, x, states, weights)
            assert torch.backends.cuda.matmul.allow_tf32 is plain
            assert cases.worst(y, want) <= bound
    finally:
        torch.backends.cuda.matmul.allow_tf32 = kept


def test_unaligned_parameters():
    x, states, weights = cases.draw(cells.lstm, torch.float16, 64, 8, 5)
    shifted = []
    for weight in weights:
        room = weight.new_empty(weight.numel() + 1)
        shifted.append(room[1:].view(weight.shape).copy_(weight))
    assert torch.equal(cases.run(cells.lstm, x, states, weights)[0], cases.run(cells.lstm, x, states, shifted)[0])


def test_many_launches_of_mixed_shapes_and_streams():
    kept = []
    streams = [torch.cuda.Stream() for _ in range(3)]
    for number in range(300):
        cell, hidden, batch = USED[number % 3], (64, 100, 256)[number % 3], 1 + number % 19
        arguments = cases.draw(cell, torch.float16, hidden, batch, 1 + number % 7)
        torch.cuda.synchronize()
        with torch.cuda.stream(streams[number % 3]):
            y, _ = cases.run(cell, *arguments)
        if number % 50 == 0:
            kept.append((cell, arguments, y))
    torch.cuda.synchronize()
    for cell, arguments, y in kept:
        assert worst_of(cell, arguments, y) <= cases.tolerance(torch.float16)


def worst_of(cell, arguments, y):
    return cases.worst(y, cases.expected(cell, *arguments)[0])


def test_a_captured_graph_replays():
    x, states, weights = cases.draw(cells.lstm, torch.float16, 128, 8, 11)
    eager, _ = cases.run(cells.lstm, x, states, weights)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, _ = cases.run(cells.lstm, x, states, weights)
    for _ in range(100):
        y.zero_()
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, eager)


def test_a_wait_that_fails_is_reported_and_the_next_launch_is_right(monkeypatch):
    from prnn.errors import PrnnError
    from prnn.runtime.cuda import kernel

    arguments = cases.draw(cells.lstm, torch.float16, 256, 8, 40)
    monkeypatch.setattr(kernel, "PATIENCE_CYCLES", 0)  # every wait fails
    y, _ = cases.run(cells.lstm, *arguments)
    torch.cuda.synchronize()
    monkeypatch.undo()
    assert y.isnan().all()
    with pytest.raises(PrnnError, match="gave up waiting inside a kernel"):
        cases.run(cells.lstm, *arguments)
    cases.compare(cells.lstm, *cases.draw(cells.lstm, torch.float16, 256, 8, 10))


@pytest.mark.parametrize(
    ("dtype", "math"), [("float16", "ieee"), ("float32", "tf32"), ("float32", "ieee")], ids=["float16", "tf32", "ieee"]
)
def test_registers_are_as_planned(dtype, math):
    for cell in USED:
        for hidden in (64, 128, 256):
            for features in (Features(), Features(is_masked=True)):
                problem = Problem(cell, hidden, hidden, dtype=dtype, math=math)
                executable = engine.prepare_gpu(problem, torch.cuda.current_device(), features, 8, 256)
                kernel = executable.kernel
                assert kernel.local_bytes == 0
                assert kernel.registers <= executable.plan.chosen.resources.registers


def test_dependent_products_are_refused_with_a_reason():
    with pytest.raises(UnsupportedProblem, match="1 product of a vector that the step itself computes"):
        cases.run(cells.mgu, *cases.draw(cells.mgu, torch.float16, 16, 2, 3), backend="cluster_forward")
