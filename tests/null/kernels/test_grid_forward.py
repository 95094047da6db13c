"""The kernel grid_forward without a GPU: what it takes, what it refuses, and what NVRTC makes of it."""

import re
from importlib import util

import pytest

from prnn.cells import gru, indrnn, lstm, lstm_peephole, mgu, rnn_relu, rnn_tanh
from prnn.facts import GPUS
from prnn.kernels import budget, grid_forward
from prnn.kernels.gpu import Features
from prnn.kernels.grid_forward import GridConfig
from prnn.problem import Problem
from prnn.runtime.cuda.compiler import compile_text

H200 = GPUS["h200"]
needs_nvrtc = pytest.mark.skipif(
    util.find_spec("cuda") is None or util.find_spec("cuda.core") is None,
    reason="cuda-core and NVRTC are not installed",
)


def problem(cell, hidden, dtype="float16", math="ieee", **options):
    return Problem(cell, 8, hidden, dtype=dtype, math=math, **options)


def test_weights_are_kept_once():
    needs = grid_forward.resources(problem(lstm, 2048), GridConfig(2, 8, 1, 1, 16, 14))
    assert (needs.ctas, needs.threads, needs.sequences) == (128, 256, 8)
    kept = needs.register_weight_bytes + needs.shared_weight_bytes + needs.streamed_weight_bytes
    assert kept * needs.ctas == 4 * 2048 * 2048 * 2
    assert needs.weights_in == "registers, shared memory, L2"
    assert needs.shared_bytes >= needs.shared_weight_bytes


def test_a_launch_covers_batch_and_directions():
    config = GridConfig(2, 8, 2, 1, 16, 0)
    for batch, copies in ((1, 1), (16, 1), (17, 2), (64, 4)):
        launch = grid_forward.launch(problem(lstm, 1024), config, batch, 2)
        assert (launch.copies, launch.ctas, launch.is_cooperative) == (2 * copies, 128 * copies, True)
        words = 2 * 16 * 1024 // 2  # two buffers of 16 sequences
        assert grid_forward.workspace_bytes(problem(lstm, 1024), config, batch, 2) == 2 * copies * words * (4 + 8)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("hidden", [1, 8, 17, 100, 512, 1000, 2048])
@pytest.mark.parametrize("cell", [lstm, gru, rnn_tanh, indrnn], ids=lambda each: each.name)
def test_some_configuration_fits(cell, hidden, dtype):
    each = problem(cell, hidden, dtype)
    for config in grid_forward.configs(each, H200):
        needs = grid_forward.resources(each, config)
        assert grid_forward.refuse(each, config, H200) is None
        assert needs.ctas * config.groups_per_cta * 8 >= hidden and needs.ctas <= H200.sms
        assert needs.registers <= budget.thread_registers(needs.threads, H200)
        assert needs.shared_bytes <= H200.shared_bytes


@pytest.mark.parametrize(
    ("each", "message"),
    [
        (problem(lstm, 64, "float64"), "its products take float16, bfloat16 or float32, the problem is float64"),
        (problem(lstm, 64, training=True), "it keeps nothing for a backward pass"),
        (problem(lstm, 64, proj_size=8), r"it does not project the output \(proj_size 8\)"),
        (
            problem(lstm, 20000),
            r"takes at least \d+ registers, 0 of them for weights; with \d+ threads it can have \d+",
        ),
        (problem(mgu, 64), "a step of mgu has 1 product of a vector that the step itself computes"),
    ],
)
def test_refusals(each, message):
    assert all(
        re.search(message, grid_forward.refuse(each, config, H200)) for config in grid_forward.configs(each, H200)
    )


def test_more_ctas_than_sms_do_not_run_at_once():
    reason = grid_forward.refuse(problem(lstm, 2048), GridConfig(1, 8, 1, 1, 8, 0), H200)
    assert reason == "256 CTAs that wait for one another do not run at once on 132 SMs"


# config: groups_per_cta, k_slices, batch_tiles, tiles_together, register_chunks, shared_chunks
COMPILED = [
    (problem(lstm, 512), (1, 4, 1, 1, 8, 0), False),
    (problem(lstm, 1024), (1, 8, 1, 1, 8, 0), False),
    (problem(lstm, 1024, "bfloat16"), (2, 8, 4, 2, 16, 0), True),
    (problem(lstm, 1024), (4, 8, 2, 2, 17, 15), False),
    (problem(lstm, 2048), (2, 8, 1, 1, 17, 15), True),
    (problem(lstm, 4096), (4, 8, 1, 1, 4, 16), False),
    (problem(gru, 1024, "bfloat16"), (2, 8, 1, 1, 12, 0), True),
    (problem(rnn_relu, 1792), (2, 8, 1, 1, 7, 0), False),
    (problem(lstm_peephole, 301), (2, 4, 2, 1, 4, 3), True),
    (problem(indrnn, 4000), (4, 4, 1, 1, 0, 0), False),
    (problem(lstm, 1024, "float32", "tf32"), (1, 8, 1, 1, 16, 0), False),
    (problem(lstm, 2048, "float32", "tf32"), (2, 8, 1, 1, 8, 24), True),
    (problem(gru, 2048, "float32", "tf32"), (2, 8, 1, 1, 0, 16), True),
    (problem(lstm, 1024, "float32"), (1, 8, 1, 1, 5, 11), True),
]


@needs_nvrtc
@pytest.mark.parametrize(("each", "config", "is_masked"), COMPILED, ids=lambda value: str(value).replace(" ", ""))
def test_compiled_it_spills_nothing(each, config, is_masked):
    config = GridConfig(*config)
    assert grid_forward.refuse(each, config, H200) is None
    _, log = compile_text(grid_forward.source(each, config, Features(is_masked)), "sm_90a")
    assert re.search(r"0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", log), log
    used, planned = int(re.search(r"Used (\d+) registers", log)[1]), grid_forward.resources(each, config)
    assert planned.least_registers <= used <= budget.thread_registers(planned.threads, H200)
