"""The family launched from tensors to outputs: its kernel on the emulator, its products by torch on the CPU."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

import cuda_cases as cases
from emulator import build, has_compiler
from launched_cases import EVERY, MIXED, name
from prnn import engine
from prnn.kernels import launched
from prnn.kernels.gpu import Features
from prnn.kernels.launched import LaunchedConfig
from prnn.ops import cuda
from prnn.ops import launched as loops
from prnn.problem import Problem

pytestmark = pytest.mark.skipif(not has_compiler(), reason="the emulator needs g++")
STEPS, BATCH, SIZE = 9, 5, 3
CONFIG = LaunchedConfig(32)
PLAIN = [(each, torch.float32, 10, 0) for each in EVERY]
LENGTHS = torch.tensor([9, 0, 4, 7, 1])


class Recorded:
    """In place of a graph: the same launches, made again."""

    def __init__(self, owner, size):
        self.owner, self.size = owner, size

    def replay(self):
        self.owner.arguments.kept = self.owner.kept.data_ptr()
        for step in range(self.size):
            self.owner.step(step, 0)
        self.owner.arguments.kept = None


class OnEmulator:
    """In place of runtime.cuda.kernel.Kernel."""

    def __init__(self, kernel):
        self.kernel = kernel

    def enqueue(self, launch, arguments, stream):
        assert self.kernel(launch, arguments, 0) is None


def problem_of(cell, dtype, hidden, proj_size):
    return Problem(cell, SIZE, hidden, proj_size, dtype=str(dtype).removeprefix("torch."))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    keys = [(problem_of(*each), True) for each in PLAIN + MIXED] + [(problem_of(*each), False) for each in MIXED[:4]]
    built = build(
        launched,
        [(problem, CONFIG, Features(masked)) for problem, masked in keys],
        tmp_path_factory.mktemp("simt"),
        header=launched.HEADER,
    )
    return dict(zip(keys, map(OnEmulator, built)))


@pytest.fixture(autouse=True)
def emulated(kernels, monkeypatch):
    """Stages run when they are launched; steps are replayed three and two at a time."""

    def prepare(problem, device, features, batch, steps, directions, backend):
        kernel = kernels.get((problem, features.is_masked)) or kernels[problem, True]
        plan = SimpleNamespace(family=launched.NAME, problem=problem, config=CONFIG)
        return SimpleNamespace(kernel=kernel, plan=plan)

    stream = SimpleNamespace(cuda_stream=0, wait_stream=lambda other: None)
    monkeypatch.setattr(engine, "prepare_gpu", prepare)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)  # get_device() of a CPU tensor
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0, raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(loops, "_shared", lambda device: SimpleNamespace(stream=stream))
    monkeypatch.setattr(loops, "Graph", Recorded)
    monkeypatch.setattr(loops, "GRAPH_STEPS", (3, 2))


def draw(case, directions=1, steps=STEPS):
    cell, dtype, hidden, proj_size = case
    return cell, *cases.draw(
        cell, dtype, hidden, BATCH, steps, SIZE, directions=directions, proj_size=proj_size, device="cpu"
    )


def beyond_the_end(x, value=float("nan")):
    for b, length in enumerate(LENGTHS):
        x[length:, b] = value


@pytest.mark.parametrize("case", PLAIN + MIXED, ids=lambda each: "-".join(map(name, each)))
def test_every_cell(case):
    cases.compare(*draw(case))
    cell, x, *rest = draw(case, directions=2)
    beyond_the_end(x)
    reset = torch.rand(STEPS, BATCH) < 0.3
    cases.compare(cell, x, *rest, direction="both", lengths=LENGTHS, reset=reset, to_initial=True)


def test_without_states_it_starts_from_zero():
    cell, x, states, weights = draw(PLAIN[0])
    config = cases.config_of(cell, x, states, weights, "forward", False)
    got, got_ends = cuda.run(x, None, weights, None, None, None, config)
    zero = [torch.zeros_like(each) for each in states]
    want, want_ends = cuda.run(x, zero, weights, None, None, None, config)
    assert torch.equal(got, want) and all(torch.equal(ours, theirs) for ours, theirs in zip(got_ends, want_ends))


@pytest.mark.parametrize("direction", ["forward", "reverse", "both"])
@pytest.mark.parametrize("case", MIXED[:4], ids=lambda each: "-".join(map(name, each)))
def test_lengths_reset_and_chunks(case, direction, monkeypatch):
    cell, x, states, weights = draw(case, directions=2 if direction == "both" else 1)
    cases.compare(cell, x, states, weights, direction=direction)
    beyond_the_end(x)
    reset = torch.rand(STEPS, BATCH) < 0.3
    cases.compare(cell, x, states, weights, direction=direction, lengths=LENGTHS)
    cases.compare(cell, x, states, weights, direction=direction, reset=reset, lengths=LENGTHS)
    for num_bytes in (1, 5000):  # a step at a time, and a few
        monkeypatch.setattr(cases.cuda, "WORKSPACE_BYTES", num_bytes)
        cases.compare(cell, x, states, weights, direction=direction, reset=reset, lengths=LENGTHS, to_initial=True)


@pytest.mark.parametrize("case", MIXED[:4], ids=lambda each: "-".join(map(name, each)))
def test_packed(case):
    cell, x, states, weights = draw(case, directions=2)
    sizes = torch.tensor([5, 5, 4, 2, 2, 2, 1, 1, 1])
    lengths = (sizes[:, None] > torch.arange(BATCH)).sum(0)
    rows = torch.cat([x[t, :size] for t, size in enumerate(sizes)])
    y, ends = cases.run(cell, rows, states, weights, direction="both", batch_sizes=sizes)
    want, want_ends = cases.expected(cell, x, states, weights, direction="both", lengths=lengths)
    want = torch.cat([want[t, :size] for t, size in enumerate(sizes)])
    for got, wanted in zip((y, *ends), (want, *want_ends)):
        assert cases.worst(got, wanted) <= cases.TOLERANCE[x.dtype]


def test_a_captured_call_launches_every_step(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(loops, "Graph", None)
    cases.compare(*draw(MIXED[0]))


def test_a_loop_is_kept_for_other_weights_and_other_steps():
    loops._loop.cache_clear()
    cell, x, states, weights = draw(MIXED[2])
    for steps in (STEPS, 1, 4, STEPS):
        weights = [each.flip(0) for each in weights]
        cases.compare(cell, x[:steps], states, weights)
    assert loops._loop.cache_info().misses == 1


def test_nan_reaches_its_own_row_only():
    for case in MIXED[:3]:
        cell, x, states, weights = draw(case)
        x[2, 1] = float("nan")
        cases.compare(cell, x, states, weights)


@pytest.mark.parametrize("shape", [(0, BATCH), (STEPS, 0)])
def test_nothing_to_do(shape):
    cell, x, states, weights = draw(MIXED[2])
    states = [state[:, : shape[1]] for state in states]
    y, ends = cases.run(cell, x[: shape[0], : shape[1]], states, weights)
    assert y.shape == (*shape, 6)
    assert all(torch.equal(end, state) for end, state in zip(ends, states))
