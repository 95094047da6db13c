"""The family grid_forward on a GPU, beside the reference."""

import pytest
import torch

import cuda_cases as cases
from prnn import cells, engine
from prnn.errors import PrnnError, UnsupportedProblem
from prnn.kernels import grid_forward
from prnn.problem import Problem

FLOAT16 = torch.float16
SINGLE_STAGE = [each for each in cells.BUILTIN.values() if each.program.num_stages == 1]
USED = [each for each in SINGLE_STAGE if each.name in ("lstm", "gru", "rnn_tanh")]


def name(value):
    return getattr(value, "name", str(value))


@pytest.fixture(autouse=True)
def only_this_family(monkeypatch):
    chosen = engine.choose_gpu
    monkeypatch.setattr(
        engine,
        "choose_gpu",
        lambda problem, facts, batch, steps, directions, backend, refused=None: chosen(
            problem, facts, batch, steps, directions, grid_forward.NAME, refused
        ),
    )
    engine._prepare_gpu.cache_clear()
    yield
    engine._prepare_gpu.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("cell", SINGLE_STAGE, ids=name)
def test_every_cell(cell, dtype):
    cases.compare(cell, *cases.draw(cell, dtype, 200, 11, 9, input_size=20))
    cases.compare(cell, *cases.draw(cell, dtype, 200, 11, 9, input_size=20, directions=2), direction="both")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("hidden", [1, 31, 100, 513, 1000, 1024, 1792, 2048])
@pytest.mark.parametrize("cell", USED, ids=name)
def test_sizes(cell, hidden, dtype):
    for batch, steps in ((1, 1), (3, 6), (8, 5), (17, 7), (65, 4)):
        cases.compare(
            cell, *cases.draw(cell, dtype, hidden, batch, steps, input_size=9), rows=[0, batch // 2, batch - 1]
        )


@pytest.mark.parametrize("batch", [8, 64])
def test_every_configuration_of_the_family(monkeypatch, batch):
    """Not only the one that the plan takes."""
    every, tried = grid_forward.configs, 0
    arguments = cases.draw(cells.lstm, FLOAT16, 1024, batch, 10)
    problem = Problem(cells.lstm, 1024, 1024, dtype="float16")
    for config in every(problem, engine.driver.probe(torch.cuda.current_device())):
        monkeypatch.setattr(grid_forward, "configs", lambda problem, facts, config=config: (config,))
        engine._prepare_gpu.cache_clear()
        try:
            cases.compare(cells.lstm, *arguments, rows=[0, batch - 1])
            tried += 1
        except UnsupportedProblem as error:
            assert "spills" in str(error) or "do not run at once" in str(error)
    assert tried > 10


@pytest.mark.parametrize("direction", ["forward", "reverse", "both"])
@pytest.mark.parametrize("cell", USED, ids=name)
def test_lengths_and_reset(cell, direction, monkeypatch):
    count = 2 if direction == "both" else 1
    x, states, weights = cases.draw(cell, FLOAT16, 516, 13, 10, input_size=16, directions=count)
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
    arguments = cases.draw(cells.gru, torch.bfloat16, 1024, 9, 50)
    whole, ends = cases.run(cells.gru, *arguments)
    monkeypatch.setattr(cases.cuda, "WORKSPACE_BYTES", 7 * 9 * 3 * 1024 * 4)
    chunked, chunked_ends = cases.run(cells.gru, *arguments)
    assert torch.equal(whole, chunked) and torch.equal(ends[0], chunked_ends[0])


@pytest.mark.parametrize("steps", range(1, 10))
def test_every_number_of_steps_back_to_back(steps):
    """On memory that the last call left in whatever epoch."""
    arguments = cases.draw(cells.lstm, FLOAT16, 1024, 8, steps)
    first = cases.run(cells.lstm, *arguments)[0]
    for _ in range(20):
        assert torch.equal(cases.run(cells.lstm, *arguments)[0], first)
    cases.compare(cells.lstm, *arguments)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_nan_reaches_its_own_row_only(dtype):
    x, states, weights = cases.draw(cells.lstm, dtype, 1024, 20, 6)
    x[2, 5] = float("nan")
    y, _ = cases.run(cells.lstm, x, states, weights)
    assert y[2:, 5].isnan().all() and not y[:2].isnan().any()
    assert not y[:, [b for b in range(20) if b != 5]].isnan().any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_states_beyond_2_and_infinity(dtype):
    x, states, weights = cases.draw(cells.rnn_relu, dtype, 1024, 8, 6, bound=20.0)
    y, _ = cases.run(cells.rnn_relu, x, states, weights)
    want, _ = cases.expected(cells.rnn_relu, x, states, weights)
    assert float(want.max()) > 20
    assert float((y.double().cpu() - want).abs().max() / want.max()) <= 3e-3
    x[3, 2, 1] = float("inf")
    y, _ = cases.run(cells.rnn_relu, x, states, weights)
    others = [b for b in range(8) if b != 2]
    assert not y[3:, 2].isfinite().all() and y[:3].isfinite().all() and y[:, others].isfinite().all()


def test_a_captured_graph_replays():
    x, states, weights = cases.draw(cells.lstm, FLOAT16, 1024, 8, 11)
    eager, _ = cases.run(cells.lstm, x, states, weights)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, _ = cases.run(cells.lstm, x, states, weights)
    for _ in range(100):
        y.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, eager)


def test_two_streams_at_once():
    """The launches wait for each other's SMs and finish."""
    arguments = [cases.draw(cells.lstm, FLOAT16, 1024, 8, 40 + i) for i in range(2)]
    alone = [cases.run(cells.lstm, *each)[0] for each in arguments]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    for _ in range(20):
        together = []
        for stream, each in zip(streams, arguments):
            with torch.cuda.stream(stream):
                together.append(cases.run(cells.lstm, *each)[0])
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(alone, together))


def test_a_wait_that_fails_is_reported_and_the_next_launch_is_right(monkeypatch):
    from prnn.runtime.cuda import kernel

    arguments = cases.draw(cells.lstm, FLOAT16, 1024, 8, 40)
    monkeypatch.setattr(kernel, "PATIENCE_CYCLES", 0)  # every wait fails
    y, _ = cases.run(cells.lstm, *arguments)
    torch.cuda.synchronize()
    monkeypatch.undo()
    assert y.isnan().all()  # the first step too: its states are sent like any others
    with pytest.raises(PrnnError, match="gave up waiting inside a kernel"):
        cases.run(cells.lstm, *arguments)
    cases.compare(cells.lstm, *cases.draw(cells.lstm, FLOAT16, 1024, 8, 10))


def test_more_sequences_than_copies_that_run_at_once():
    cases.compare(cells.lstm, *cases.draw(cells.lstm, FLOAT16, 1024, 300, 5), rows=[0, 150, 299])
