"""The family grid_forward on the CPU emulator, against the reference, under random schedules."""

import numpy as np
import pytest

from emulator import build, has_compiler
from layer_case import LayerCase
from prnn.cells import BUILTIN, cell, lstm, relu, sigmoid, tanh
from prnn.kernels import grid_forward
from prnn.kernels.grid_forward import GridConfig
from prnn.problem import Problem

pytestmark = pytest.mark.skipif(not has_compiler(), reason="the emulator needs g++")
NUM_SCHEDULES = 20


@cell(states=["h", "c", "n"], gates=["a", "b", "d"], vectors=["u"])
def own(a, b, d, h, c, n, u):
    """Three states, a gate apart, one that takes the input alone, and the output read unit by unit."""
    c = sigmoid(a + u * c) * c + tanh(b.recurrent) * relu(d.input)
    return tanh(c) + 0.25 * h + 0.1 * n, c, 0.5 * n + h


def case(each, dtype, hidden, config, steps, batch, **options):
    problem, config = Problem(each, 5, hidden, 0, options.pop("bias", True), dtype), GridConfig(*config)
    directions = 1 + options.get("both", False)
    num_bytes = grid_forward.workspace_bytes(problem, config, batch, directions)
    return LayerCase(problem, config, steps, batch, workspace_bytes=num_bytes, **options)


F16, BF16, B = "float16", "bfloat16", BUILTIN
# config: groups_per_cta, k_slices, batch_tiles, tiles_together, register_tiles, shared_tiles, partial_buffers
CASES = [
    case(lstm, F16, 64, (4, 2, 1, 1, 4, 4, 2), 7, 8),
    case(lstm, BF16, 64, (2, 4, 1, 1, 0, 3, 1), 6, 13, both=True),
    case(lstm, F16, 37, (2, 2, 2, 1, 2, 1, 2), 6, 19, lengths=tuple(range(5, -1, -1)) + (6,) * 13),
    case(lstm, F16, 72, (5, 2, 2, 2, 10, 0, 2), 5, 11, with_restart=True, chunk=2, reverse=True),
    case(B["gru"], F16, 48, (2, 2, 1, 1, 3, 0, 2), 7, 3, both=True, with_restart=True, to_initial=True, lengths=(7, 0, 3)),
    case(B["gru"], BF16, 33, (3, 2, 2, 2, 2, 2, 1), 5, 9, lengths=(5, 5, 4, 4, 3, 2, 2, 1, 0), packed=True, reverse=True, chunk=2),
    case(B["rnn_tanh"], BF16, 64, (4, 1, 1, 1, 1, 1, 2), 6, 5, y_offset=1),
    case(B["rnn_relu"], F16, 40, (2, 2, 1, 1, 1, 0, 2), 9, 8, bound=30.0),
    case(B["rnn_relu"], BF16, 136, (9, 2, 2, 2, 3, 2, 2), 5, 12, bound=5.0),
    case(B["lstm_peephole"], F16, 24, (1, 1, 1, 1, 2, 0, 2), 5, 4, bias=False),
    case(B["lstm_coupled"], F16, 56, (4, 2, 1, 1, 0, 0, 2), 5, 8, chunk=1),
    case(B["indrnn"], F16, 19, (1, 2, 2, 1, 0, 0, 1), 6, 10, with_restart=True),
    case(own, BF16, 17, (2, 1, 1, 1, 1, 1, 2), 5, 6, to_initial=True, with_restart=True, both=True),
    case(lstm, F16, 1, (1, 1, 1, 1, 1, 1, 2), 4, 1),
    case(lstm, F16, 136, (6, 4, 1, 1, 4, 4, 2), 4, 2),
]  # fmt: skip


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    wanted = [(each.problem, each.config, each.features) for each in CASES]
    return build(grid_forward, wanted, tmp_path_factory.mktemp("simt"))


def run(kernel, each, seed, lost_store=2**64 - 1):
    """Launch after launch; the emulator's report if there is one."""
    for arguments in each.arguments():
        launch = grid_forward.launch(each.problem, each.config, each.batch, len(each.directions))
        report = kernel(launch, arguments, seed, lost_store)
        if report:
            return report
    return None


@pytest.mark.parametrize("index", range(len(CASES)), ids=[str(each) for each in CASES])
def test_agrees_with_the_reference_under_random_schedules(kernels, index):
    each, kernel = CASES[index], kernels[index]
    each.draw()
    for seed in range(NUM_SCHEDULES):
        assert run(kernel, each, seed) is None
        each.compare()


@pytest.mark.parametrize("index", range(len(CASES)), ids=[str(each) for each in CASES])
def test_a_launch_is_as_large_as_the_kernel(kernels, index):
    launch = grid_forward.launch(CASES[index].problem, CASES[index].config, 1, 1)
    assert (launch.threads, launch.shared_bytes) == (kernels[index].threads, kernels[index].shared_bytes)
