"""Plans for a GPU that is not there."""

import pickle

import pytest

from prnn.cells import BUILTIN, cell, gru, gru_reset_before, lstm, mgu, tanh
from prnn.errors import UnsupportedProblem
from prnn.facts import GPUS
from prnn.kernels import cluster_forward, grid_forward, launched
from prnn.kernels.cluster_forward import ClusterConfig
from prnn.kernels.grid_forward import GridConfig
from prnn.plan import GPU_FAMILIES, choose_gpu
from prnn.plan.gpu_cost import estimate, gather_us
from prnn.problem import Problem

H200 = GPUS["h200"]


@cell(states=["h", "c"], gates=["a", "b"])
def of_state(a, b, h, c):
    """A dependent product of a vector other than the output."""
    return tanh(a), tanh(b.recurrent_of(c) + a)


def half(cell, hidden):
    return Problem(cell, hidden, hidden, dtype="float16")


@pytest.mark.parametrize("batch", [1, 8, 64, 512])
@pytest.mark.parametrize("hidden", [1, 64, 256, 512])
@pytest.mark.parametrize("cell", [lstm, gru], ids=lambda cell: cell.name)
def test_every_candidate_has_a_cost_or_a_reason(cell, hidden, batch):
    plan = choose_gpu(half(cell, hidden), H200, batch, 100, 2)
    assert plan.chosen in plan.candidates and plan.cost.step_us > plan.cost.exchange_us > 0
    for candidate in plan.candidates:
        assert (candidate.cost is None) == bool(candidate.refused)
        assert candidate.cost is None or candidate.cost.step_us >= plan.cost.step_us


def test_float32_costs_more_and_exact_products_most():
    costs = [
        choose_gpu(Problem(lstm, 256, 256, dtype=dtype, math=math), H200, 8, 256).cost.step_us
        for dtype, math in (("float16", "ieee"), ("float32", "tf32"), ("float32", "ieee"))
    ]
    assert costs == sorted(costs) and len(set(costs)) == 3


def test_tf32_is_of_float32():
    for dtype in ("float64", "float16"):
        with pytest.raises(ValueError, match=f"'tf32' is of float32 only, got 'tf32' with '{dtype}'"):
            Problem(lstm, 8, 8, dtype=dtype, math="tf32")
    with pytest.raises(ValueError, match=r"math must be one of \('ieee', 'tf32'\)"):
        Problem(lstm, 8, 8, math="fast")
    assert "float32 as tf32" in str(Problem(lstm, 8, 8, math="tf32"))


def test_more_copies_than_run_at_once_cost_more():
    one, many = (choose_gpu(half(lstm, 512), H200, batch, 256, backend="cluster_forward").cost for batch in (8, 1024))
    assert many.copies > many.active and many.recurrence_us > 2 * one.recurrence_us


# Whole calls of 256 steps on an H200, us a step; of each size the fastest configuration first.
# cluster: cluster_size, unit_warps, groups_per_warp, k_slices, batch_tiles
# grid: groups_per_cta, k_slices, batch_tiles, tiles_together, register_chunks, shared_chunks
MEASURED = {
    (lstm, "float16", "ieee", 64, 8): [
        (ClusterConfig(2, 4, 1, 1, 1), 0.594),
        (GridConfig(1, 4, 1, 1, 2, 0), 0.932),
    ],
    (lstm, "float16", "ieee", 128, 8): [
        (ClusterConfig(4, 4, 1, 1, 1), 0.649),
        (GridConfig(2, 4, 1, 1, 4, 0), 0.993),
    ],
    (lstm, "float16", "ieee", 256, 64): [
        (ClusterConfig(8, 4, 1, 1, 1), 0.838),
        (GridConfig(2, 8, 1, 1, 4, 0), 1.439),
        (GridConfig(4, 8, 1, 1, 8, 0), 1.775),
    ],
    (lstm, "float16", "ieee", 512, 8): [
        (ClusterConfig(16, 4, 1, 2, 1), 1.014),
        (GridConfig(1, 8, 1, 1, 4, 0), 1.219),
    ],
    (lstm, "float16", "ieee", 512, 64): [
        (GridConfig(4, 8, 1, 1, 16, 0), 2.171),
        (ClusterConfig(16, 4, 1, 2, 1), 2.238),
    ],
    (lstm, "float16", "ieee", 1024, 8): [
        (GridConfig(2, 8, 1, 1, 16, 0), 1.753),
        (GridConfig(1, 8, 1, 1, 8, 0), 1.835),
        (GridConfig(4, 8, 1, 1, 19, 13), 2.585),
    ],
    (lstm, "float16", "ieee", 2048, 8): [
        (GridConfig(2, 8, 1, 1, 17, 15), 2.868),
        (GridConfig(8, 8, 1, 1, 13, 15), 33.451),
    ],
    (lstm, "float32", "tf32", 256, 8): [
        (ClusterConfig(16, 2, 1, 2, 1), 0.886),
        (GridConfig(1, 8, 1, 1, 4, 0), 1.221),
    ],
    (lstm, "float32", "ieee", 128, 8): [
        (ClusterConfig(16, 1, 1, 4, 1), 0.899),
        (ClusterConfig(8, 2, 1, 2, 1), 0.957),
        (GridConfig(2, 8, 1, 1, 4, 0), 1.212),
    ],
    (gru, "float16", "ieee", 128, 8): [
        (ClusterConfig(2, 4, 2, 1, 1), 0.801),
        (GridConfig(2, 4, 1, 1, 3, 0), 0.997),
    ],
    (lstm, "float16", "ieee", 1536, 16): [
        (GridConfig(2, 8, 2, 2, 15, 9), 3.355),
        (GridConfig(2, 16, 1, 1, 4, 8), 4.998),
    ],
    (BUILTIN["rnn_tanh"], "float16", "ieee", 1024, 64): [
        (GridConfig(8, 16, 1, 1, 5, 3), 2.072),
        (ClusterConfig(16, 4, 2, 2, 2), 2.785),
    ],
}


def measured_problem(size):
    cell, dtype, math, hidden, _ = size
    return Problem(cell, hidden, hidden, dtype=dtype, math=math)


@pytest.mark.parametrize("size", MEASURED, ids=lambda size: "-".join(map(str, (size[0].name, *size[1:]))))
def test_estimates_are_near_what_an_h200_took(size):
    for config, measured_us in MEASURED[size]:
        family = cluster_forward if isinstance(config, ClusterConfig) else grid_forward
        cost = estimate(family, measured_problem(size), config, size[-1], 256, 1, H200)
        assert cost.step_us == pytest.approx(measured_us, rel=0.3), config


@pytest.mark.parametrize("size", MEASURED, ids=lambda size: "-".join(map(str, (size[0].name, *size[1:]))))
def test_a_choice_takes_no_tenth_longer_than_the_fastest(size):
    us = dict(MEASURED[size])
    assert us[choose_gpu(measured_problem(size), H200, size[-1], 256).config] <= 1.1 * min(us.values())


def test_few_sequences_take_many_sms_and_many_take_many_copies():
    """As was measured: more SMs make a step shorter where they are there, and copies do not wait for one another."""
    ctas = [
        choose_gpu(half(lstm, 1024), H200, batch, 256, backend="grid_forward").chosen.resources.ctas
        for batch in (8, 16, 32)
    ]
    assert ctas == [128, 64, 32]


def test_explains_where_weights_live():
    text = choose_gpu(half(lstm, 2048), H200, 8, 256).explain()
    assert "weights: registers, shared memory of 128 CTAs" in text and "from L2 in every step" in text


def test_nothing_runs_and_the_reasons_say_why():
    with pytest.raises(UnsupportedProblem) as caught:
        choose_gpu(half(mgu, 64), H200, 1, 1, backend="cluster_forward")
    lines = str(caught.value).splitlines()
    assert lines[0] == "no family of the GPU can run mgu 64 -> 64, float16, inference with batch 1 and steps 1. Tried:"
    assert "cluster_forward: " in lines[1] and "1 product of a vector that the step itself computes" in lines[1]


def test_a_refusal_after_compiling_moves_to_the_next_candidate():
    first = choose_gpu(half(lstm, 256), H200, 8, 100)
    reason = "compiled, it spills 8 bytes"
    second = choose_gpu(half(lstm, 256), H200, 8, 100, refused={(first.family, first.config): reason})
    assert second.config != first.config
    assert f"{first.family} ({first.config}): refused: {reason}" in second.explain()


def test_an_unknown_backend_names_those_that_exist():
    with pytest.raises(
        ValueError,
        match=r"'auto' or one of \['cluster_forward', 'grid_forward', 'launched'\] on a GPU, got 'cpu_panels'",
    ):
        choose_gpu(half(lstm, 64), H200, 1, 1, backend="cpu_panels")


def test_a_plan_is_a_value_and_explains_itself():
    plan = choose_gpu(half(lstm, 256), H200, 64, 256)
    assert pickle.loads(pickle.dumps(plan)) == plan and isinstance(hash(plan), int)
    assert "\n" not in str(plan)
    text = plan.explain()
    for part in (
        "on NVIDIA H200: sm_90a, 132 SMs",
        "weights: registers of",
        "copies of the weights:",
        "floor of a step",
    ):
        assert part in text
    for candidate in plan.candidates:
        assert candidate == plan.chosen or str(candidate) in text


@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("cell", BUILTIN.values(), ids=lambda cell: cell.name)
def test_every_layer_has_a_plan_on_every_gpu(cell, dtype, name):
    for hidden, batch in ((1, 1), (100, 7), (1024, 64), (5000, 3000)):
        for proj_size in (0,) if cell.reads_output_elementwise or hidden == 1 else (0, hidden // 2):
            problem = Problem(cell, 9, hidden, proj_size, dtype=dtype)
            plan = choose_gpu(problem, GPUS[name], batch, 100, 2)
            family = next(each for each in GPU_FAMILIES if plan.family == each.NAME)
            assert family.refuse(problem, plan.config, GPUS[name]) is None
            assert family is launched or dtype != "float64"


def test_large_batches_are_launched_and_small_ones_resident():
    families = [choose_gpu(half(lstm, 512), H200, batch, 256).family for batch in (1, 64, 4096)]
    assert families == ["cluster_forward", "grid_forward", "launched"]


def test_a_plan_without_residence_says_so():
    text = choose_gpu(Problem(gru_reset_before, 64, 64), GPUS["a100"], 3, 100).explain()
    assert "chosen: launched (products and 256 threads a CTA)" in text
    assert "weights: in memory, read in every step by 2 of cuBLAS's products" in text
    assert (
        "these and 2 launches for the cell's own arithmetic" in text and "(launches 10.00, the floor of a step)" in text
    )
    assert "A100 (sm_80) has no thread-block clusters" in text


def test_what_the_launched_family_refuses():
    training = Problem(lstm, 8, 8, training=True)
    with pytest.raises(UnsupportedProblem, match="it keeps nothing for a backward pass"):
        choose_gpu(training, H200, 1, 1)
    with pytest.raises(UnsupportedProblem, match="multiplies vectors of 8 units by a matrix of 4 columns"):
        choose_gpu(Problem(of_state, 8, 8, 4), H200, 1, 1)


def test_a_gather_costs_what_was_measured_and_grows_between():
    assert gather_us(8, 4 << 10) == 0.380 and gather_us(16, 16 << 10) == 0.735
    times = [gather_us(8, 1 << k) for k in range(8, 18)]
    assert times == sorted(times)
