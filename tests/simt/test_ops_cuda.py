"""ops/cuda.py from tensors to launches and back, with the emulator in the GPU's place."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from emulator import build, has_compiler
from prnn import cells, engine
from prnn.kernels import cluster_forward, grid_forward
from prnn.kernels.cluster_forward import ClusterConfig
from prnn.kernels.grid_forward import GridConfig
from prnn.kernels.gpu import Features
from prnn.ops import cpu, cuda, key_of
from prnn.ops.arguments import Layer
from prnn.problem import Problem

pytestmark = pytest.mark.skipif(not has_compiler(), reason="the emulator needs g++")
STEPS, BATCH, SIZE, HIDDEN = 6, 11, 3, 20
CONFIGS = {cluster_forward: ClusterConfig(2, 1, 2, 1, 1), grid_forward: GridConfig(2, 1, 1, 1, 2, 1, 2)}
KINDS = {"lstm": cells.lstm, "gru": cells.gru}


@pytest.fixture(scope="module", params=CONFIGS, ids=lambda family: family.NAME)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def kernels(family, tmp_path_factory):
    keys = [(kind, masked) for kind in KINDS for masked in (False, True)]
    problems = [
        (Problem(KINDS[kind], SIZE, HIDDEN, dtype="float16"), CONFIGS[family], Features(masked)) for kind, masked in keys
    ]
    return dict(zip(keys, build(family, problems, tmp_path_factory.mktemp("simt"))))


@pytest.fixture(autouse=True)
def emulated(family, kernels, monkeypatch):
    """Launches go to the emulator, in the order in which they are made."""
    seeds = iter(range(1000))

    def prepare(problem, device, features, batch, steps, directions, backend):
        kernel = kernels[problem.cell.name, features.is_masked]

        def launch(arguments, stream):
            launch = family.launch(problem, CONFIGS[family], arguments.batch, directions)
            arguments.copies_per_direction = launch.copies // directions
            assert kernel(launch, arguments, next(seeds)) is None

        def workspace_bytes(batch):
            return family.workspace_bytes(problem, CONFIGS[family], batch, directions)

        return SimpleNamespace(launch=launch, workspace_bytes=workspace_bytes)

    monkeypatch.setattr(engine, "prepare_gpu", prepare)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=0))


def arguments(kind, direction, to_initial=False):
    torch.manual_seed(0)
    cell = KINDS[kind]
    problem = Problem(cell, SIZE, HIDDEN)
    count = 2 if direction == "both" else 1
    x = torch.rand(STEPS, BATCH, SIZE).half() * 2 - 1
    states = [torch.rand(count, BATCH, HIDDEN).half() * 2 - 1 for _ in cell.states]
    weights = [torch.rand(shape).half() * 0.4 - 0.2 for _ in range(count) for shape in problem.weight_shapes.values()]
    return x, states, weights, Layer(key_of(cell), SIZE, HIDDEN, 0, True, direction, to_initial)


def compare(x, states, weights, config, batch_sizes=None, lengths=None, reset=None):
    got, got_ends = cuda.run(x, states, weights, batch_sizes, lengths, reset, config)
    want, want_ends, _ = cpu.run(x, states, weights, batch_sizes, lengths, reset, config, False)
    for ours, theirs in zip([got, *got_ends], [want, *want_ends]):
        torch.testing.assert_close(ours, theirs, atol=4e-3, rtol=0)


@pytest.mark.parametrize("direction", ["forward", "reverse", "both"])
@pytest.mark.parametrize("kind", KINDS)
def test_plain(kind, direction, monkeypatch):
    compare(*arguments(kind, direction))
    monkeypatch.setattr(cuda, "WORKSPACE_BYTES", 2 * BATCH * HIDDEN * 4 * 2)  # a step or two at a time
    compare(*arguments(kind, direction))


@pytest.mark.parametrize("direction", ["forward", "reverse", "both"])
@pytest.mark.parametrize("chunked", [False, True])
def test_lengths_and_reset(direction, chunked, monkeypatch):
    if chunked:
        monkeypatch.setattr(cuda, "WORKSPACE_BYTES", 1)
    x, states, weights, config = arguments("lstm", direction, to_initial=chunked)
    lengths = torch.tensor([6, 0, 3, 5, 1, 6, 2, 2, 4, 6, 0])
    for b, length in enumerate(lengths):
        x[length:, b] = float("nan")
    compare(x, states, weights, config, lengths=lengths)
    compare(x, states, weights, config, lengths=lengths, reset=torch.rand(STEPS, BATCH) < 0.3)


@pytest.mark.parametrize("direction", ["forward", "both"])
@pytest.mark.parametrize("chunked", [False, True])
def test_packed(direction, chunked, monkeypatch):
    if chunked:
        monkeypatch.setattr(cuda, "WORKSPACE_BYTES", 1)
    x, states, weights, config = arguments("gru", direction)
    sizes = torch.tensor([10, 10, 7, 4, 4, 1])
    rows = torch.cat([x[t, :size] for t, size in enumerate(sizes)])
    compare(rows, states, weights, config, batch_sizes=sizes)


@pytest.mark.parametrize("shape", [(0, BATCH), (STEPS, 0)])
def test_nothing_to_do(shape):
    x, states, weights, config = arguments("lstm", "both")
    states = [state[:, : shape[1]] for state in states]
    y, ends = cuda.run(x[: shape[0], : shape[1]], states, weights, None, None, None, config)
    assert y.shape == (*shape, 2 * HIDDEN)
    assert all(torch.equal(end, state) for end, state in zip(ends, states))
