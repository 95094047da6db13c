"""The cost model: close to what was measured, and moving the right way."""

import dataclasses

import pytest

from prnn.cells import BUILTIN, lstm
from prnn.facts import CpuFacts, CpuRates
from prnn.kernels import cpu_inplace, cpu_panels
from prnn.kernels.family import Config
from prnn.plan import choose
from prnn.plan.cost import estimate
from prnn.problem import Problem
from prnn.specs import Available

MILAN = CpuFacts("AMD EPYC Milan", ("x86-64-v3",), 2, 32 << 10, 512 << 10, 32 << 20)
ONE, TWO = Config("x86-64-v3", 1), Config("x86-64-v3", 2)


def step_us(family, hidden, batch, steps, config=ONE, facts=MILAN, dtype="float32"):
    problem = Problem(lstm, hidden, hidden, dtype=dtype)
    return estimate(problem, config, family.work(problem, batch, steps), steps, facts)


# Microseconds a step on two cores of that CPU beside other work, one thread: medians of 30 rounds in which all layers took turns with the
# rates. One step: prnn.Stream; 100: a layer of prnn.nn. The fastest rounds took 0.6 to 1.0 of it.
MEASURED = (
    ("lstm", 64, 1, 1, "same", 5.67),
    ("lstm", 64, 16, 1, "same", 26.8),
    ("lstm", 256, 1, 1, "same", 51.3),
    ("lstm", 256, 16, 1, "same", 302),
    ("lstm", 512, 1, 1, "same", 200),
    ("lstm", 512, 16, 1, "same", 1300),
    ("lstm", 1024, 1, 1, "same", 3410),
    ("lstm", 1024, 4, 1, "same", 3740),
    ("lstm", 1024, 16, 1, "same", 5530),
    ("gru", 64, 1, 1, "same", 4.52),
    ("gru", 64, 16, 1, "same", 18.9),
    ("gru", 256, 1, 1, "same", 36.2),
    ("gru", 256, 16, 1, "same", 193),
    ("gru", 512, 1, 1, "same", 144),
    ("gru", 512, 16, 1, "same", 739),
    ("rnn_tanh", 64, 1, 1, "same", 2.8),
    ("rnn_tanh", 64, 16, 1, "same", 9.69),
    ("rnn_tanh", 256, 1, 1, "same", 15.8),
    ("rnn_tanh", 256, 16, 1, "same", 80.2),
    ("rnn_tanh", 512, 1, 1, "same", 47),
    ("rnn_tanh", 512, 16, 1, "same", 289),
    ("lstm", 64, 1, 100, "same", 2.95),
    ("lstm", 64, 16, 100, "same", 24.6),
    ("lstm", 256, 1, 100, "same", 34.7),
    ("lstm", 256, 16, 100, "same", 252),
    ("lstm", 512, 1, 100, "same", 142),
    ("lstm", 512, 16, 100, "same", 1060),
    ("gru", 64, 1, 100, "same", 2.34),
    ("gru", 64, 16, 100, "same", 17.8),
    ("gru", 256, 1, 100, "same", 24.4),
    ("gru", 256, 16, 100, "same", 210),
    ("gru", 512, 1, 100, "same", 105),
    ("gru", 512, 16, 100, "same", 793),
    ("rnn_tanh", 64, 1, 100, "same", 1.78),
    ("rnn_tanh", 64, 16, 100, "same", 6.48),
    ("rnn_tanh", 256, 1, 100, "same", 7.77),
    ("rnn_tanh", 256, 16, 100, "same", 71.8),
    ("rnn_tanh", 512, 1, 100, "same", 33.9),
    ("rnn_tanh", 512, 16, 100, "same", 259),
    ("lstm", 256, 1, 1, "bfloat16", 32.6),
    ("lstm", 512, 1, 1, "bfloat16", 113),
    ("gru", 256, 1, 1, "bfloat16", 22.9),
    ("gru", 512, 1, 1, "bfloat16", 87.1),
    ("lstm", 256, 1, 1, "int8", 36.7),
    ("lstm", 512, 1, 1, "int8", 118),
    ("gru", 256, 1, 1, "int8", 27.3),
    ("gru", 512, 1, 1, "int8", 96.2),
)  # fmt: skip
RATES = CpuRates(96.5, 152, 92, 63, 13.6)


@pytest.mark.parametrize(("cell", "hidden", "batch", "steps", "weights", "measured_us"), MEASURED)
def test_estimates_are_near_what_was_measured(cell, hidden, batch, steps, weights, measured_us):
    problem, available = Problem(BUILTIN[cell], hidden, hidden, weights=weights), Available(1, "lib", ("x86-64-v3",))
    facts = dataclasses.replace(MILAN, rates=RATES)
    assert 1 / 1.3 < choose(problem, facts, batch, steps, available, held=steps == 1).step_us / measured_us < 1.3


@pytest.mark.parametrize("hidden", [256, 512, 1024])
def test_a_stream_of_one_sequence_is_bound_by_bytes(hidden):
    assert step_us(cpu_inplace, hidden, 1, 1).bound == "bytes"


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
