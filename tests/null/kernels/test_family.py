"""What families say: configurations, refusals and counted work."""

import pytest

from prnn.cells import BUILTIN, cell, gru, indrnn, lstm, tanh
from prnn.facts import CpuFacts
from prnn.kernels import cpu_inplace, cpu_panels, interpreted
from prnn.kernels.family import NATIVE_PASS_ROWS, Config, weight_bytes
from prnn.problem import Problem
from prnn.specs import Available

FACTS = CpuFacts("test", ("x86-64-v3", "x86-64"), 4, 32 << 10, 512 << 10, 32 << 20)
READY = Available(threads=4, library="lib", isas=("x86-64-v4", "x86-64-v3", "x86-64"), compiler="c++")
NATIVE = [cpu_panels, cpu_inplace]
LSTM = Problem(lstm, 40, 64)


@cell(states=["h"], gates=["n"])
def own(n):
    return tanh(n) * 0.5


@pytest.mark.parametrize("family", NATIVE, ids=lambda family: family.NAME)
def test_the_best_instruction_set_that_cpu_and_library_share(family):
    assert family.configs(LSTM, FACTS, READY) == (Config("x86-64-v3", 1), Config("x86-64-v3", 4))
    one = Available(threads=1, library="lib", isas=("x86-64",))
    assert family.configs(LSTM, FACTS, one) == (Config("x86-64", 1),)


@pytest.mark.parametrize("family", NATIVE, ids=lambda family: family.NAME)
@pytest.mark.parametrize(
    ("available", "problem", "message"),
    [
        (Available(no_library="it was not built; build it"), LSTM, "it was not built; build it"),
        (
            Available(library="lib", isas=("neon",)),
            LSTM,
            r"the native engine has 1 builds \(neon\) and none for this CPU; build prnn from source",
        ),
        (
            Available(library="lib", isas=("x86-64",), no_compiler="there is no compiler; install one"),
            Problem(own, 40, 64),
            f"'own' is not one of the {len(BUILTIN)} built-in cells and has to be compiled, but there is no compiler; install one",
        ),
    ],
)
def test_native_refusals(family, available, problem, message):
    (config,) = family.configs(problem, FACTS, available)
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(family.refuse(problem, config, 1, available))


@pytest.mark.parametrize("family", NATIVE, ids=lambda family: family.NAME)
def test_a_renamed_builtin_cell_needs_no_compiler(family):
    @cell(states=["h"], gates=["r", "z", "n"])
    def my_gru(r, z, n, h):
        from prnn.cells import sigmoid

        n = tanh(n.input + sigmoid(r) * n.recurrent)
        return n + sigmoid(z) * (h - n)

    without = Available(library="lib", isas=("x86-64",))
    assert family.refuse(Problem(my_gru, 4, 4), Config("x86-64", 1), 1, without) is None


def test_in_place_says_what_short_dot_products_cost():
    shares = [cpu_inplace.work(Problem(lstm, size, size), 4, 100).peak_share for size in (16, 64, 256, 1024)]
    assert shares == sorted(shares) and shares[-1] < cpu_panels.PEAK_SHARE
    assert cpu_inplace.work(LSTM, 1, 1).peak_share == cpu_panels.PEAK_SHARE


def test_narrow_weights_are_read_from_panels_only():
    problem, config = Problem(lstm, 40, 64, weights="int8"), Config("x86-64-v3", 1)
    assert cpu_panels.refuse(problem, config, 1, READY) is None
    assert "these are int8; use cpu_panels" in cpu_inplace.refuse(problem, config, 1, READY)
    work = cpu_panels.work(problem, 1, 1)
    assert work.step_bytes == 4 * 64 * (40 * 2 + 64) and work.product_flops == 2 * 4 * 64 * (40 + 64)


def test_the_interpreter_refuses_nothing():
    (config,) = interpreted.configs(LSTM, FACTS, Available())
    assert interpreted.refuse(Problem(own, 1, 1), config, 10**6, Available()) is None


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (Problem(lstm, 40, 64), (4 * 64 * 40 * 4, 4 * 64 * 64 * 4)),
        (Problem(lstm, 40, 64, dtype="float64"), (4 * 64 * 40 * 8, 4 * 64 * 64 * 8)),
        (Problem(lstm, 40, 64, proj_size=16), (4 * 64 * 40 * 4, (4 * 64 * 16 + 16 * 64) * 4)),
        (Problem(indrnn, 40, 64), (64 * 40 * 4, 0)),
        (Problem(lstm, 40, 64, weights="int8"), (4 * 64 * 40 * 2, 4 * 64 * 64)),
        (Problem(lstm, 40, 64, proj_size=16, weights="bfloat16"), (4 * 64 * 40 * 2, (4 * 64 * 16 + 16 * 64) * 2)),
    ],
)
def test_bytes_of_the_weights(problem, expected):
    assert weight_bytes(problem) == expected


def test_counts_of_a_step_by_hand():
    problem = Problem(gru, 40, 64)
    work = cpu_inplace.work(problem, 1, 1)
    matrices = 3 * 64 * (40 + 64)
    assert work.product_flops == 2 * matrices
    assert work.step_bytes == work.kept_bytes == 4 * matrices
    assert work.packed_bytes == 0 and cpu_panels.work(problem, 1, 1).packed_bytes == 4 * matrices
    # a long sequence: only the recurrent matrix is read in every step
    long = cpu_panels.work(problem, 1, 3200)
    assert long.kept_bytes == 4 * 3 * 64 * 64
    assert long.step_bytes == pytest.approx(4 * 3 * 64 * (64 + 40 / NATIVE_PASS_ROWS))
