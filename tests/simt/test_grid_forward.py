"""The family grid_forward on the CPU emulator, against the reference, under random schedules."""

from dataclasses import replace

import numpy as np
import pytest

from emulator import build, has_compiler
from layer_case import LayerCase
from prnn.cells import BUILTIN, cell, lstm, relu, sigmoid, tanh
from prnn.kernels import grid_forward
from prnn.kernels.grid_forward import GridConfig
from prnn.problem import MATHS, Problem

pytestmark = pytest.mark.skipif(not has_compiler(), reason="the emulator needs g++")
NUM_SCHEDULES = 20


@cell(states=["h", "c", "n"], gates=["a", "b", "d"], vectors=["u"])
def own(a, b, d, h, c, n, u):
    """Three states, a gate apart, one that takes the input alone, and the output read unit by unit."""
    c = sigmoid(a + u * c) * c + tanh(b.recurrent) * relu(d.input)
    return tanh(c) + 0.25 * h + 0.1 * n, c, 0.5 * n + h


def case(each, dtype, hidden, config, steps, batch, **options):
    dtype, math = ("float32", dtype) if dtype in MATHS else (dtype, "ieee")
    problem = Problem(each, 5, hidden, 0, options.pop("bias", True), dtype, math=math)
    num_bytes = grid_forward.workspace_bytes(problem, GridConfig(*config), batch, 1 + options.get("both", False))
    return LayerCase(problem, GridConfig(*config), steps, batch, workspace_bytes=num_bytes, **options)


F16, BF16, TF32, IEEE, B = "float16", "bfloat16", "tf32", "ieee", BUILTIN
# config: groups_per_cta, k_slices, batch_tiles, tiles_together, register_chunks, shared_chunks
CASES = [
    case(lstm, F16, 64, (4, 2, 1, 1, 4, 4), 7, 8),
    case(lstm, BF16, 64, (2, 4, 1, 1, 0, 3), 6, 13, both=True),
    case(lstm, F16, 37, (2, 2, 2, 1, 2, 1), 6, 19, lengths=tuple(range(5, -1, -1)) + (6,) * 13),
    case(lstm, F16, 72, (5, 2, 2, 2, 10, 5), 5, 11, with_restart=True, chunk=2, reverse=True),
    case(B["gru"], F16, 48, (2, 2, 1, 1, 3, 0), 7, 3, both=True, with_restart=True, to_initial=True, lengths=(7, 0, 3)),
    case(B["gru"], BF16, 33, (3, 2, 2, 2, 2, 2), 5, 9, lengths=(5, 5, 4, 4, 3, 2, 2, 1, 0), packed=True, reverse=True, chunk=2),
    case(B["rnn_tanh"], BF16, 64, (4, 1, 1, 1, 3, 1), 6, 5, y_offset=1),
    case(B["rnn_relu"], F16, 40, (2, 2, 1, 1, 1, 0), 9, 8, bound=30.0),
    case(B["rnn_relu"], BF16, 136, (9, 2, 2, 2, 3, 2), 5, 12, bound=5.0),
    case(B["lstm_peephole"], F16, 24, (1, 1, 1, 1, 2, 0), 5, 4, bias=False),
    case(B["lstm_coupled"], F16, 56, (4, 2, 1, 1, 0, 0), 5, 8, chunk=1),
    case(B["indrnn"], F16, 19, (1, 2, 2, 1, 0, 0), 6, 10, with_restart=True),
    case(own, BF16, 17, (2, 1, 1, 1, 1, 1), 5, 6, to_initial=True, with_restart=True, both=True),
    case(lstm, F16, 1, (1, 1, 1, 1, 1, 1), 4, 1),
    case(lstm, F16, 136, (6, 4, 1, 1, 10, 10), 4, 2),
    case(lstm, TF32, 64, (4, 2, 1, 1, 6, 5), 7, 8),
    case(lstm, IEEE, 37, (2, 2, 2, 2, 3, 2), 6, 19, lengths=tuple(range(5, -1, -1)) + (6,) * 13),
    case(B["gru"], IEEE, 48, (2, 3, 1, 1, 1, 1), 7, 3, both=True, with_restart=True, to_initial=True, lengths=(7, 0, 3)),
    case(B["gru"], TF32, 33, (3, 2, 2, 1, 4, 1), 5, 9, lengths=(5, 5, 4, 4, 3, 2, 2, 1, 0), packed=True, reverse=True, chunk=2),
    case(B["rnn_relu"], TF32, 39, (2, 2, 1, 1, 1, 1), 9, 8, bound=10.0),
    case(B["rnn_relu"], IEEE, 40, (3, 2, 1, 1, 2, 0), 6, 5, bound=10.0, y_offset=1),
]  # fmt: skip


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    wanted = [(each.problem, each.config, each.features) for each in CASES]
    return build(grid_forward, wanted, tmp_path_factory.mktemp("simt"))


def run(kernel, each, seed, lost_store=2**64 - 1, copies_at_once=2, clears=True):
    """Launch after launch, of some copies of the weights at a time; the emulator's report if there is one."""
    for arguments in each.arguments():
        launch = grid_forward.launch(each.problem, each.config, each.batch, len(each.directions))
        if clears:
            each.workspace[:] = 0
        for first in range(0, launch.copies, copies_at_once):
            arguments.first_copy, copies = first, min(copies_at_once, launch.copies - first)
            report = kernel(replace(launch, ctas=launch.ctas // launch.copies * copies), arguments, seed, lost_store)
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


@pytest.mark.parametrize("steps", [*range(1, 9), 30])
def test_every_number_of_steps_ends_the_epochs_elsewhere(kernels, steps):
    each = replace(CASES[0], steps=steps)
    each.draw()
    for seed in range(5):
        assert run(kernels[0], each, seed) is None
        each.compare()


def test_no_steps(kernels):
    each = replace(CASES[0], steps=0)
    each.draw()
    assert run(kernels[0], each, 0) is None


@pytest.mark.parametrize("index", [0, 1, 4, 7, 15, 16])
def test_nan_reaches_its_own_row_only(kernels, index):
    each = replace(CASES[index], nan_row=2)
    each.draw()
    for seed in range(5):
        assert run(kernels[index], each, seed) is None
        each.compare()


@pytest.mark.parametrize("index", [0, 1, 2, 7, 15])
def test_a_lost_message_ends_the_launch_with_nan_and_says_so(kernels, index):
    each = CASES[index]
    each.draw()
    for seed in range(5):
        assert run(kernels[index], each, seed, lost_store=200) is None
        assert each.stopped[0] == 5
        assert any(np.isnan(ends[0]).any() for _, ends in each.results())


def is_right(kernel, each, seed, clears=True):
    if run(kernel, each, seed, clears=clears):
        return False
    try:
        each.compare()
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize(("mutation", "index"), [(1, 0), (2, 7), (2, 20), (3, 1), (4, 2)])
def test_a_deliberate_fault_is_found(tmp_path, mutation, index):
    """1: words taken whatever their epoch; 2: words sent that do not fit; 3: no barrier before the cells; 4: gates used before they are
    there."""
    each = CASES[index]
    (kernel,) = build(grid_forward, [(each.problem, each.config, each.features)], tmp_path, mutation)
    each.draw()
    assert not all(is_right(kernel, each, seed) for seed in range(10))


def test_exchange_that_nobody_cleared_is_found(kernels):
    each = CASES[0]
    each.draw()
    assert not all(is_right(kernels[0], each, seed, clears=False) for seed in range(10))
