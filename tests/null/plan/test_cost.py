"""The cost model: close to what was measured, and moving the right way."""

import dataclasses

import pytest

from prnn.cells import lstm
from prnn.facts import CpuFacts
from prnn.kernels import cpu_inplace, cpu_panels
from prnn.kernels.family import Config
from prnn.plan.cost import estimate
from prnn.problem import Problem

MILAN = CpuFacts("AMD EPYC Milan", ("x86-64-v3",), 2, 32 << 10, 512 << 10, 32 << 20)
ONE, TWO = Config("x86-64-v3", 1), Config("x86-64-v3", 2)


def step_us(family, hidden, batch, steps, config=ONE, facts=MILAN, dtype="float32"):
    problem = Problem(lstm, hidden, hidden, dtype=dtype)
    return estimate(problem, config, family.work(problem, batch, steps), steps, facts)


@pytest.mark.parametrize(("hidden", "measured_us"), [(256, 31), (512, 129), (1024, 1569)])
def test_streaming_lstm_is_bound_by_bytes_as_measured(hidden, measured_us):
    cost = step_us(cpu_inplace, hidden, 1, 1)
    assert cost.bound == "bytes"
    assert cost.step_us == pytest.approx(measured_us, rel=0.25)


def test_many_rows_are_bound_by_arithmetic():
    assert step_us(cpu_panels, 256, 16, 100).bound == "arithmetic"


def test_packing_costs_several_products_for_one_step_and_nothing_over_a_hundred():
    in_place, packed = step_us(cpu_inplace, 256, 1, 1), step_us(cpu_panels, 256, 1, 1)
    assert 4 < (packed.once_us - in_place.once_us) / in_place.products_us < 14
    assert step_us(cpu_panels, 256, 1, 1000).once_us < 0.1 * step_us(cpu_panels, 256, 1, 1000).products_us


def test_two_threads_pay_for_barriers_and_waking():
    one, two = step_us(cpu_inplace, 32, 1, 1), step_us(cpu_inplace, 32, 1, 1, TWO)
    assert one.barriers_us == 0 < two.barriers_us
    assert two.step_us > one.step_us


def test_double_precision_and_a_smaller_cache_cost_more():
    cost = step_us(cpu_panels, 512, 1, 100)
    assert step_us(cpu_panels, 512, 1, 100, dtype="float64").step_us > cost.step_us
    small = dataclasses.replace(MILAN, l3_bytes=2 << 20)
    assert step_us(cpu_panels, 512, 1, 100, facts=small).home == "memory" != cost.home
    assert step_us(cpu_panels, 512, 1, 100, facts=small).step_us > cost.step_us
