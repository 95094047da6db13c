"""Plans: values that say what runs, why, and what was refused."""

import dataclasses
import pickle

import pytest

from prnn.cells import BUILTIN, cell, gru, lstm, tanh
from prnn.errors import UnsupportedProblem
from prnn.facts import CpuFacts, CpuRates
from prnn.kernels.family import Config
from prnn.plan import Plan, choose, with_rates
from prnn.plan.choose import FAMILIES
from prnn.problem import Problem
from prnn.specs import Available

FACTS = CpuFacts("test", ("x86-64-v3", "x86-64"), 2, 32 << 10, 512 << 10, 32 << 20)
READY = Available(threads=2, library="lib", isas=("x86-64-v3", "x86-64"), compiler="c++")
LSTM = Problem(lstm, 256, 256)


@cell(states=["h"], gates=["n"])
def own(n):
    return tanh(n) * 0.5


def test_few_rows_are_read_in_place_and_many_pack():
    assert choose(LSTM, FACTS, 1, 1, READY).family == "cpu_inplace"
    assert choose(LSTM, FACTS, 4, 1, READY).family == "cpu_inplace"
    assert choose(LSTM, FACTS, 1, 128, READY).family == "cpu_inplace"
    assert choose(LSTM, FACTS, 16, 100, READY).family == "cpu_panels"
    # sums across lanes for each short dot product cost more than packing a small matrix
    assert choose(Problem(lstm, 32, 32), FACTS, 1, 128, READY).family == "cpu_panels"


def test_a_small_layer_runs_on_one_thread_and_a_large_one_on_all():
    assert choose(Problem(gru, 16, 16), FACTS, 1, 1, READY).config == Config("x86-64-v3", 1)
    assert choose(LSTM, FACTS, 16, 100, READY).config == Config("x86-64-v3", 2)


def test_without_the_engine_the_fallback_runs_and_says_why():
    plan = choose(LSTM, FACTS, 8, 100, Available(no_library="it was not built; build it"))
    assert plan.family == "interpreted" and plan.chosen.fallback
    text = plan.explain()
    assert "every faster family was refused" in text
    assert "cpu_panels (none, 1 thread): refused: it was not built; build it" in text


def test_the_fallback_is_never_chosen_for_its_estimate():
    problem = Problem(lstm, 2048, 2048)
    plan = choose(problem, FACTS, 512, 1, dataclasses.replace(READY, threads=1))
    assert not plan.chosen.fallback


def test_a_users_cell_without_a_compiler_is_interpreted():
    available = dataclasses.replace(READY, compiler="", no_compiler="there is no compiler")
    assert choose(Problem(own, 8, 8), FACTS, 1, 1, available).family == "interpreted"
    assert choose(Problem(own, 8, 8), FACTS, 1, 1, READY).family == "cpu_inplace"


def test_a_named_family_runs_or_raises_with_every_candidate():
    assert choose(LSTM, FACTS, 1, 1, READY, "cpu_panels").family == "cpu_panels"
    assert choose(LSTM, FACTS, 1, 1, READY, "interpreted").family == "interpreted"
    half = dataclasses.replace(LSTM, dtype="float16")
    with pytest.raises(UnsupportedProblem) as caught:
        choose(half, FACTS, 100, 10, READY, "cpu_inplace")
    lines = str(caught.value).splitlines()
    assert (
        lines[0]
        == "backend='cpu_inplace' cannot run lstm 256 -> 256, float16, inference with batch 100 and steps 10. Tried:"
    )
    assert lines[-1] == "Use backend='auto', which takes the fastest that runs."
    plan = choose(LSTM, FACTS, 100, 10, READY)
    assert [line.split(": refused: the CPU computes in")[0] for line in lines[1:-1]] == [
        f"  {each.family} ({each.config})" for each in plan.candidates
    ]


def test_an_unknown_backend_names_those_that_exist():
    with pytest.raises(ValueError, match=r"'auto' or one of \['cpu_panels', 'cpu_inplace', 'interpreted'\], got 'gpu'"):
        choose(LSTM, FACTS, 1, 1, READY, "gpu")


@pytest.mark.parametrize("each", BUILTIN.values(), ids=BUILTIN)
@pytest.mark.parametrize(("batch", "steps"), [(1, 1), (3, 7), (64, 1000)])
def test_every_candidate_has_a_cost_or_a_reason(each, batch, steps):
    plan = choose(Problem(each, 5, 7, dtype="float64", training=True), FACTS, batch, steps, READY)
    assert plan.chosen in plan.candidates and plan.chosen.cost is not None
    assert {candidate.family for candidate in plan.candidates} == {family.NAME for family in FAMILIES}
    for candidate in plan.candidates:
        assert (candidate.cost is None) == bool(candidate.refused)
        if candidate.cost:
            assert candidate.cost.step_us > 0


def test_measured_rates_change_the_estimates_and_not_the_choice():
    plan = choose(LSTM, FACTS, 1, 1, READY, held=True)
    slow = with_rates(plan, dataclasses.replace(FACTS, rates=CpuRates(10, 1, 1, 1, 1)), held=True)
    assert (slow.family, slow.config) == (plan.family, plan.config) and slow.chosen in slow.candidates
    assert slow.cost.read_us > 10 * plan.cost.read_us and slow.cost.multiply_us > 9 * plan.cost.multiply_us
    assert slow.cost.once_us == plan.cost.once_us
    assert "L2 1, L3 1, memory 1 GB/s; 10 GFLOP/s" in slow.explain() and "AMD EPYC" in plan.explain()


def test_a_plan_is_a_value():
    plan = choose(LSTM, FACTS, 8, 100, READY)
    assert plan == choose(LSTM, FACTS, 8, 100, READY)
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert isinstance(hash(plan), int)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.batch = 9


def test_a_plan_prints_itself_on_one_line_and_explains_itself_on_several():
    plan = choose(LSTM, FACTS, 8, 100, READY)
    assert "\n" not in str(plan)
    for part in (
        "lstm 256 -> 256, float32, inference",
        "batch 8, steps 100",
        "cpu_panels (x86-64-v3, 2 threads)",
        "weights in L3",
    ):
        assert part in str(plan)
    assert isinstance(plan, Plan)
    text = plan.explain()
    for part in ("chosen: cpu_panels", "its estimate is the lowest", "MiB read a step, kept in L3", "us a step ="):
        assert part in text
    for candidate in plan.candidates:
        assert candidate == plan.chosen or str(candidate) in text
