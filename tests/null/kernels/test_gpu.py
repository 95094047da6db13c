"""Kernels of the GPU without a GPU: their text, what they take, and what NVRTC makes of them."""

import ctypes
import re
from importlib import util

import pytest

from prnn.cells import cell, gru, gru_reset_before, indrnn, lstm, lstm_peephole, mgu, rnn_tanh, tanh
from prnn.facts import GPUS, GpuFacts
from prnn.kernels import budget, cluster_forward, gpu, launched
from prnn.kernels.cluster_forward import ClusterConfig
from prnn.kernels.gpu import Features
from prnn.kernels.launched import LaunchedConfig
from prnn.problem import MATHS, Problem
from prnn.runtime.cuda.compiler import compile_text

H200 = GPUS["h200"]
AMPERE = GpuFacts("a test", "sm_80", 108, (), 1410, 163 << 10, 1555, 312)
needs_nvrtc = pytest.mark.skipif(
    util.find_spec("cuda") is None or util.find_spec("cuda.core") is None,
    reason="cuda-core and NVRTC are not installed",
)


def half(cell, hidden, dtype="float16", **options):
    return Problem(cell, 8, hidden, dtype=dtype, **options)


def single(cell, hidden, math="ieee"):
    return Problem(cell, 8, hidden, dtype="float32", math=math)


@cell(states=["h", *"abcdefgi"], gates=["n"])
def nine_states(n, h):
    return (tanh(n), *[h] * 8)


# ---- text


def test_the_text_needs_no_other_file():
    text = cluster_forward.source(half(lstm, 64), ClusterConfig(2, 4, 1, 1, 1), Features())
    includes = re.findall(r'#include ["<]([^">]+)', text)
    assert set(includes) <= {"bit", "cmath", "cstdint", "simt.h"}  # of the CPU twin
    assert "#pragma once" not in text and text.count("Mbarrier { u64 state; }") == 1


def test_everything_that_matters_changes_the_text():
    config = ClusterConfig(2, 4, 1, 1, 1)
    texts = {
        cluster_forward.source(half(lstm, 64), config, Features()),
        cluster_forward.source(half(lstm, 64, "bfloat16"), config, Features()),
        cluster_forward.source(single(lstm, 64), config, Features()),
        cluster_forward.source(single(lstm, 64, "tf32"), config, Features()),
        cluster_forward.source(half(lstm, 62), config, Features()),
        cluster_forward.source(half(lstm_peephole, 64), config, Features()),
        cluster_forward.source(half(lstm, 64), ClusterConfig(2, 4, 1, 1, 2), Features()),
        cluster_forward.source(half(lstm, 64), config, Features(is_masked=True)),
    }
    assert len(texts) == 8


def test_arguments_have_the_members_of_the_header():
    header = gpu.include("cell_step.cuh")
    for struct in (gpu.Direction, gpu.Arguments, launched.StepArguments):
        body = re.search(rf"struct {struct.__name__} {{\n(.*?)\n}};", header, re.DOTALL)[1]
        code = re.sub(r"//.*", "", body)
        members = [
            name for line in code.split(";") for name in re.findall(r"(\w+)(?:\[\w+\])?\s*(?:,|$)", line.strip())
        ]
        assert members == [name for name, *_ in struct._fields_]
    assert ctypes.sizeof(launched.StepArguments) < 4096  # what a launch can carry


def test_the_stages_beside_the_cells_have_the_numbers_of_the_header():
    found = dict(re.findall(r"(\w+)_stage = (-\d)", gpu.include("cell_step.cuh")))
    assert found == {name: str(getattr(launched, name.upper())) for name in ("begin", "project", "end", "keep")}


# ---- what fits


def test_resources_by_hand():
    needs = cluster_forward.resources(half(lstm, 256), ClusterConfig(8, 4, 1, 2, 1))
    assert needs.weight_registers * 4 * needs.threads * 8 == 4 * 256 * 256 * 2  # R, once
    assert (needs.threads, needs.ctas, needs.sequences) == (256, 8, 8)
    assert needs.shared_bytes >= 2 * 256 * 8 * 2


def test_float32_takes_twice_the_room_and_in_two_parts_four_times():
    config = ClusterConfig(16, 2, 1, 4, 1)
    half_needs, tf32, ieee = (
        cluster_forward.resources(each, config)
        for each in (half(lstm, 256), single(lstm, 256, "tf32"), single(lstm, 256))
    )
    assert (tf32.weight_registers, ieee.weight_registers) == (
        2 * half_needs.weight_registers,
        4 * half_needs.weight_registers,
    )
    assert tf32.shared_bytes == ieee.shared_bytes > half_needs.shared_bytes
    assert cluster_forward.exchanges(single(lstm, 256), config, 8) == (16, 4 * 256 * 8)


def test_a_launch_covers_batch_and_directions():
    config = ClusterConfig(8, 4, 1, 1, 2)
    for batch, copies in ((1, 1), (16, 1), (17, 2), (64, 4)):
        assert cluster_forward.launch(half(lstm, 256), config, batch, 2).copies == 2 * copies
        assert cluster_forward.launch(half(lstm, 256), config, batch, 2).ctas == 16 * copies


@pytest.mark.parametrize(
    ("problem", "facts", "message"),
    [
        (half(lstm, 64), AMPERE, r"a test \(sm_80\) has no thread-block clusters, which exist from sm_90 on"),
        (half(lstm, 64, "float64"), H200, "its products take float16, bfloat16 or float32, the problem is float64"),
        (half(lstm, 64, training=True), H200, "it keeps nothing for a backward pass"),
        (half(lstm, 64, proj_size=8), H200, r"it does not project the output \(proj_size 8\)"),
        (half(mgu, 64), H200, "a step of mgu has 1 product of a vector that the step itself computes"),
        (half(nine_states, 64), H200, "at most 8 states and 8 vectors; nine_states has 9 and 0"),
        (
            half(lstm, 1024),
            H200,
            r"takes at least \d+ registers, \d+ of them for weights; with \d+ threads it can have \d+",
        ),
        (half(lstm, 20000), H200, r"20000 units on 16 CTAs take 157 warps a CTA, at most 16 have room"),
    ],
)
def test_refusals(problem, facts, message):
    reasons = [cluster_forward.refuse(problem, config, facts) for config in cluster_forward.configs(problem, facts)]
    assert reasons and all(reasons)
    assert any(re.search(message, reason) for reason in reasons), reasons


@pytest.mark.parametrize("hidden", [1, 8, 17, 64, 100, 256, 500])
@pytest.mark.parametrize("each", [lstm, gru, rnn_tanh, indrnn], ids=lambda each: each.name)
def test_some_configuration_fits(each, hidden):
    problems = [half(each, hidden)] + [single(each, hidden, math) for math in MATHS if hidden <= 256]
    for problem in problems:
        configs = cluster_forward.configs(problem, H200)
        fitting = [config for config in configs if not cluster_forward.refuse(problem, config, H200)]
        assert fitting
        for config in fitting:
            groups = config.cluster_size * config.unit_warps * config.groups_per_warp
            assert groups * 8 >= hidden
            needs = cluster_forward.resources(problem, config)
            assert needs.least_registers * needs.threads <= H200.registers and needs.shared_bytes <= H200.shared_bytes


def test_registers_are_handed_out_in_eights():
    assert [budget.thread_registers(threads, H200) for threads in (128, 256, 384, 512)] == [255, 255, 168, 128]


# ---- compiled

COMPILED = [
    (half(lstm, 128), (4, 4, 1, 1, 1), Features()),
    (half(lstm, 256), (8, 4, 1, 1, 2), Features()),
    (half(lstm, 256, "bfloat16"), (8, 4, 1, 2, 4), Features(is_masked=True)),
    (half(lstm, 512), (16, 4, 1, 2, 2), Features()),
    (half(gru, 256, "bfloat16"), (8, 2, 2, 2, 1), Features(is_masked=True)),
    (half(gru, 512), (16, 2, 2, 4, 1), Features()),
    (half(rnn_tanh, 512), (16, 2, 2, 1, 1), Features()),
    (half(lstm_peephole, 37, "bfloat16"), (2, 3, 1, 1, 1), Features(is_masked=True)),
    (half(lstm, 384), (8, 6, 1, 1, 1), Features(is_masked=True)),  # with none to spare
    (half(lstm, 128), (2, 8, 1, 2, 2), Features()),
    (half(rnn_tanh, 512), (16, 2, 2, 4, 2), Features(is_masked=True)),
    (half(indrnn, 100), (4, 2, 2, 1, 1), Features()),
    (single(lstm, 128, "tf32"), (8, 2, 1, 1, 1), Features(is_masked=True)),
    (single(lstm, 256, "tf32"), (8, 4, 1, 2, 1), Features()),
    (single(gru, 256, "tf32"), (16, 1, 2, 4, 1), Features(is_masked=True)),
    (single(rnn_tanh, 384, "tf32"), (16, 2, 2, 2, 1), Features()),
    (single(lstm, 128), (8, 2, 1, 2, 1), Features(is_masked=True)),
    (single(lstm, 256), (16, 2, 1, 4, 1), Features(is_masked=True)),
    (single(gru, 256), (16, 1, 2, 8, 1), Features(is_masked=True)),
    (single(rnn_tanh, 256), (16, 1, 2, 4, 1), Features()),
    (single(indrnn, 100), (4, 2, 2, 1, 1), Features()),
]


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100"])
@pytest.mark.parametrize(("problem", "config", "features"), COMPILED, ids=lambda value: str(value).replace(" ", ""))
def test_compiled_it_spills_nothing_and_takes_the_registers_it_was_given(problem, config, features, arch):
    config = ClusterConfig(*config)
    assert cluster_forward.refuse(problem, config, H200) is None
    _, log = compile_text(cluster_forward.source(problem, config, features), arch)
    assert re.search(r"0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", log), log
    used, planned = int(re.search(r"Used (\d+) registers", log)[1]), cluster_forward.resources(problem, config)
    assert used <= budget.thread_registers(planned.threads, H200)
    assert planned.least_registers <= used <= planned.registers


LAUNCHED = [
    (half(lstm, 100, proj_size=7), "sm_90a"),
    (half(gru_reset_before, 64, "bfloat16"), "sm_80"),
    (half(lstm_peephole, 64, "float32"), "sm_86"),
    (half(lstm, 64, "float64", proj_size=5), "sm_89"),
    (half(mgu, 33, "float64"), "sm_100"),
    (half(indrnn, 1, "bfloat16"), "sm_120"),
]


@needs_nvrtc
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize(("problem", "arch"), LAUNCHED, ids=lambda value: str(value).replace(" ", ""))
def test_the_launched_kernel_compiles_for_every_gpu(problem, arch, is_masked):
    text = launched.source(problem, LaunchedConfig(256), Features(is_masked))
    _, log = compile_text(text, arch)
    assert re.search(r"0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", log), log
