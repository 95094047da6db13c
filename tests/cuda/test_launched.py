"""The family launched: products by cuBLAS, steps from CUDA graphs, beside the reference."""

import threading

import pytest
import torch

import cuda_cases as cases
from launched_cases import EVERY, MIXED, name
from prnn import cells
from prnn.ops import cuda
from prnn.ops import launched as loops

STEPS = 83  # graphs of both sizes, and steps of their own
LENGTHS = torch.tensor([83, 0, 40, 64, 1, 33, 83])


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """float32 without TF32, where a test does not say otherwise."""
    monkeypatch.setattr(cuda, "allows_tf32", lambda: False)


def compare(*arguments, **options):
    cases.compare(*arguments, backend="launched", **options)


def draw(case, directions=1, steps=STEPS, batch=7, **options):
    cell, dtype, hidden, proj_size = case
    return cell, *cases.draw(cell, dtype, hidden, batch, steps, 9, directions, proj_size=proj_size, **options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("cell", EVERY, ids=name)
def test_every_cell(cell, dtype):
    for hidden in (1, 33, 128):
        compare(*draw((cell, dtype, hidden, 0), steps=12))


@pytest.mark.parametrize("direction", ["forward", "reverse", "both"])
@pytest.mark.parametrize("case", MIXED, ids=lambda each: "-".join(map(name, each)))
def test_lengths_and_reset(case, direction, monkeypatch):
    cell, x, states, weights = draw(case, directions=2 if direction == "both" else 1)
    compare(cell, x, states, weights, direction=direction)
    for b, length in enumerate(LENGTHS):
        x[length:, b] = float("nan")
    reset = torch.rand(STEPS, 7) < 0.1
    compare(cell, x, states, weights, direction=direction, lengths=LENGTHS)
    compare(cell, x, states, weights, direction=direction, lengths=LENGTHS, reset=reset, to_initial=True)
    monkeypatch.setattr(cuda, "WORKSPACE_BYTES", 30 * 7 * 4 * 4 * cell_width(weights))  # about 30 steps
    compare(cell, x, states, weights, direction=direction, lengths=LENGTHS, reset=reset)


def cell_width(weights):
    return weights[0].shape[0] // 4 + 1


@pytest.mark.parametrize("case", MIXED[:4], ids=lambda each: "-".join(map(name, each)))
def test_packed(case):
    cell, x, states, weights = draw(case, directions=2, steps=40)
    lengths = torch.tensor([40, 40, 33, 12, 12, 5, 1])
    sizes = (lengths > torch.arange(40)[:, None]).sum(1)
    rows = torch.cat([x[t, :size] for t, size in enumerate(sizes)])
    y, ends = cases.run(cell, rows, states, weights, direction="both", batch_sizes=sizes, backend="launched")
    want, want_ends = cases.expected(cell, x, states, weights, direction="both", lengths=lengths)
    want = torch.cat([want[t, :size] for t, size in enumerate(sizes)])
    for got, wanted in zip((y, *ends), (want, *want_ends)):
        assert cases.worst(got, wanted) <= cases.TOLERANCE[x.dtype]


@pytest.mark.parametrize("batch", [1, 2, 64, 513])
def test_large(batch):
    """Sizes at which cuBLAS splits K, and needs its workspace."""
    for dtype in (torch.float16, torch.float32):
        rows = [0, batch // 2, batch - 1]
        compare(*draw((cells.lstm, dtype, 1500, 0), batch=batch, steps=40), rows=rows)
        compare(*draw((cells.gru_reset_before, dtype, 1024, 0), batch=batch, steps=12), rows=rows)


def test_tf32_is_a_choice(monkeypatch):
    arguments = draw((cells.lstm, torch.float32, 256, 0), batch=64)
    errors, want = {}, cases.expected(*arguments)[0]
    for tf32 in (False, True, False):
        monkeypatch.setattr(cuda, "allows_tf32", lambda tf32=tf32: tf32)
        before = (
            torch.backends.cuda.matmul.fp32_precision if hasattr(torch.backends.cuda.matmul, "fp32_precision") else None
        )
        errors[tf32] = cases.worst(cases.run(*arguments, backend="launched")[0], want)
        assert before is None or torch.backends.cuda.matmul.fp32_precision == before
    assert errors[False] <= cases.TOLERANCE[torch.float32] < errors[True] < 5e-3


def test_other_weights_batches_and_steps_in_turn():
    for number in range(40):
        case = MIXED[number % len(MIXED)]
        arguments = draw(case, steps=1 + 17 * number % 100, batch=1 + number % 3)
        compare(*arguments)


def test_replays_give_the_bits_of_single_launches(monkeypatch):
    arguments = draw((cells.gru, torch.float16, 200, 0))
    cases.run(*arguments, backend="launched")  # the first call captures
    replayed, ends = cases.run(*arguments, backend="launched")
    monkeypatch.setattr(loops, "GRAPH_STEPS", ())
    single, single_ends = cases.run(*arguments, backend="launched")
    assert torch.equal(replayed, single) and torch.equal(ends[0], single_ends[0])


def test_streams_and_threads():
    """Calls of several threads, each on a stream of its own, share one loop."""
    arguments = draw((cells.lstm, torch.float16, 256, 0), batch=4)
    want = cases.run(*arguments, backend="launched")[0]
    torch.cuda.synchronize()
    outputs = []

    def work():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            outputs.extend(cases.run(*arguments, backend="launched")[0] for _ in range(20))
        stream.synchronize()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(outputs) == 60 and all(torch.equal(each, want) for each in outputs)


def test_a_captured_call_replays():
    arguments = draw((cells.mgu, torch.float16, 64, 0), steps=40)
    eager = cases.run(*arguments, backend="launched")[0]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = cases.run(*arguments, backend="launched")[0]
    for _ in range(10):
        y.zero_()
        graph.replay()
    torch.cuda.synchronize()
    assert cases.worst(y, eager.double().cpu()) <= cases.TOLERANCE[torch.float16]


def test_inference_mode_and_back():
    arguments = draw(MIXED[0])
    with torch.inference_mode():
        loops._loop.cache_clear()
        inside = cases.run(*arguments, backend="launched")[0]
    assert torch.equal(inside, cases.run(*arguments, backend="launched")[0])


def test_loops_that_are_dropped_give_their_memory_back():
    arguments = [draw((cells.lstm, torch.float16, 64, 0), batch=batch) for batch in range(1, 40)]

    def cycle():
        for each in arguments:
            cases.run(*each, backend="launched")
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated()

    first = cycle()
    assert cycle() <= first + (1 << 20)


def test_auto_takes_it_where_nothing_else_can():
    cases.compare(*draw((cells.gru_reset_before, torch.float16, 64, 0)))
    cases.compare(*draw((cells.lstm, torch.float64, 64, 9)))
