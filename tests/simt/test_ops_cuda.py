"""ops/cuda.py from tensors to launches and back, with the emulator in the GPU's place."""

from types import SimpleNamespace

import pytest
import torch

from emulator import build, has_compiler
from prnn import cells, engine
from prnn.kernels import cluster_forward, grid_forward
from prnn.kernels.cluster_forward import ClusterConfig
from prnn.kernels.gpu import Features
from prnn.kernels.grid_forward import GridConfig
from prnn.ops import cpu, cuda, key_of
from prnn.ops.arguments import Layer, plan_of
from prnn.problem import Problem

pytestmark = pytest.mark.skipif(not has_compiler(), reason="the emulator needs g++")
STEPS, BATCH, SIZE, HIDDEN = 6, 11, 3, 20
CONFIGS = {cluster_forward: ClusterConfig(2, 1, 2, 1, 1), grid_forward: GridConfig(2, 1, 1, 1, 2, 1)}
KINDS = {"lstm": cells.lstm, "gru": cells.gru}


@pytest.fixture(scope="module", params=CONFIGS, ids=lambda family: family.NAME)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def kernels(family, tmp_path_factory):
    types = [("float16", "ieee"), ("float32", "ieee"), ("float32", "tf32")]
    keys = [(kind, *each, masked) for kind in KINDS for each in types for masked in (False, True)]
    problems = [
        (Problem(KINDS[kind], SIZE, HIDDEN, dtype=dtype, math=math), CONFIGS[family], Features(masked))
        for kind, dtype, math, masked in keys
    ]
    return dict(zip(keys, build(family, problems, tmp_path_factory.mktemp("simt"))))


@pytest.fixture(autouse=True)
def emulated(family, kernels, monkeypatch):
    """Launches go to the emulator, in the order in which they are made."""
    seeds = iter(range(1000))

    def prepare(problem, device, features, batch, steps, directions, backend):
        kernel = kernels[problem.cell.name, problem.dtype, problem.math, features.is_masked]

        def launch(arguments, stream):
            launch = family.launch(problem, CONFIGS[family], arguments.batch, directions)
            arguments.copies_per_direction = launch.copies // directions
            arguments.patience.cycles = 1
            assert kernel(launch, arguments, next(seeds)) is None

        def workspace_bytes(batch):
            return family.workspace_bytes(problem, CONFIGS[family], batch, directions)

        plan = SimpleNamespace(family=family.NAME)
        return SimpleNamespace(launch=launch, problem=problem, plan=plan, workspace_bytes=workspace_bytes)

    monkeypatch.setattr(engine, "prepare_gpu", prepare)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)  # get_device() of a CPU tensor
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0, raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


def arguments(kind, direction, to_initial=False, dtype=torch.float16):
    torch.manual_seed(0)
    cell = KINDS[kind]
    problem = Problem(cell, SIZE, HIDDEN)
    count = 2 if direction == "both" else 1
    x = torch.rand(STEPS, BATCH, SIZE).to(dtype) * 2 - 1
    states = [torch.rand(count, BATCH, HIDDEN).to(dtype) * 2 - 1 for _ in cell.states]
    shapes = list(problem.weight_shapes.values())
    weights = [torch.rand(shape).to(dtype) * 0.4 - 0.2 for _ in range(count) for shape in shapes]
    return x, states, weights, Layer(key_of(cell), SIZE, HIDDEN, 0, True, direction, to_initial)


def compare(x, states, weights, config, batch_sizes=None, lengths=None, reset=None, tolerance=4e-3):
    got, got_ends = cuda.run(x, states, weights, batch_sizes, lengths, reset, config)
    want, want_ends, _ = cpu.run(x, states, weights, batch_sizes, lengths, reset, config, False)
    for ours, theirs in zip([got, *got_ends], [want, *want_ends]):
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0)


@pytest.mark.parametrize("direction", ["forward", "reverse", "both"])
@pytest.mark.parametrize("kind", KINDS)
def test_plain(kind, direction, monkeypatch):
    compare(*arguments(kind, direction))
    monkeypatch.setattr(cuda, "WORKSPACE_BYTES", 2 * BATCH * HIDDEN * 4 * 2)  # a step or two at a time
    compare(*arguments(kind, direction))


@pytest.fixture
def matmul():
    """The switches of PyTorch's plain products."""
    switches = torch.backends.cuda.matmul
    kept = switches.allow_tf32
    yield switches
    switches.allow_tf32 = kept


@pytest.mark.parametrize("kind", KINDS)
def test_float32_is_as_exact_as_the_switch_of_rnns_says(kind, matmul, monkeypatch):
    """Not as that of plain products says, which is as it was afterwards."""
    for plain in (False, True):
        matmul.allow_tf32 = plain
        for allowed, tolerance in ((True, 2e-3), (False, 1e-6)):
            monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
            assert cuda.allows_tf32() is allowed
            given = arguments(kind, "both", dtype=torch.float32)
            compare(*given, lengths=torch.tensor([6, 0, 3, 5, 1, 6, 2, 2, 4, 6, 0]), tolerance=tolerance)
            assert matmul.allow_tf32 is plain


def test_precision_of_products_is_set_for_a_call_and_put_back(matmul):
    for plain in (False, True):
        matmul.allow_tf32 = plain
        for wanted in (False, True):
            with pytest.raises(KeyError), cuda.float32_products(wanted):
                name = "fp32_precision" if cuda._HAS_PRECISION else "allow_tf32"
                assert (getattr(matmul, name) in ("tf32", True)) == wanted
                raise KeyError
            assert matmul.allow_tf32 is plain


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


@pytest.mark.parametrize("direction", ["forward", "reverse", "both"])
def test_maps_made_on_the_device_during_a_capture(direction, monkeypatch):
    x, states, weights, config = arguments("lstm", direction)
    lengths, reset = torch.tensor([6, 0, 3, 5, 1, 6, 2, 2, 4, 6, 0]), torch.rand(STEPS, BATCH) < 0.3
    plan = plan_of(config, x.dtype, False)
    for given in ((lengths, None), (None, reset), (lengths, reset), (lengths, reset[:, :1].expand(-1, BATCH))):
        want = cuda._map(x, BATCH, plan, None, *given)
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
            got = cuda._map(x, BATCH, plan, None, *given)
        assert got.offsets == want.offsets and got.row_of_step is None
        for ours, theirs in zip([got.lengths, *got.restarts], [want.lengths, *want.restarts]):
            assert (ours is None) == (theirs is None)
            if ours is not None:
                assert ours.dtype is theirs.dtype and ours.is_contiguous() and torch.equal(ours.flatten(), theirs)


def test_what_cannot_be_captured_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    x, states, weights, config = arguments("gru", "forward")
    plan = plan_of(config, x.dtype, False)
    on_device = x.to("meta")  # of another device than what is passed with it
    with pytest.raises(RuntimeError, match="pass lengths= as a tensor on meta"):
        cuda._map(on_device, BATCH, plan, None, torch.zeros(BATCH, dtype=torch.int64), None)
    with pytest.raises(RuntimeError, match="pass reset= as a tensor on meta"):
        cuda._map(on_device, BATCH, plan, None, None, torch.zeros(STEPS, BATCH, dtype=torch.bool))
    with pytest.raises(RuntimeError, match="PackedSequence cannot be captured"):
        cuda.run(x.flatten(0, 1), states, weights, torch.full((STEPS,), BATCH), None, None, config)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("to_initial", [False, True])
def test_without_states_it_starts_from_zero(to_initial, chunked, monkeypatch):
    if chunked:
        monkeypatch.setattr(cuda, "WORKSPACE_BYTES", 1)
    x, states, weights, config = arguments("lstm", "both", to_initial)
    reset, zero = torch.rand(STEPS, BATCH) < 0.3, [torch.zeros_like(each) for each in states]
    for given in (None, reset):
        got, got_ends = cuda.run(x, None, weights, None, None, given, config)
        want, want_ends = cuda.run(x, zero, weights, None, None, given, config)
        for ours, theirs in zip([got, *got_ends], [want, *want_ends]):
            assert torch.equal(ours, theirs)
    y, ends = cuda.run(x[:0], None, weights, None, None, None, config)
    assert y.shape[0] == 0 and all(torch.equal(end, each) for end, each in zip(ends, zero))


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
