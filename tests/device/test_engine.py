"""Every family against the reference: forward and backward, every cell, lengths, resets, directions, odd sizes, threads."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import prnn
from prnn import engine
from prnn.cells import BUILTIN, clip, exp, log, maximum, minimum, sigmoid, sqrt, tanh
from prnn.errors import PrnnFallbackWarning
from prnn.problem import Problem
from prnn.runtime.cpu import library
from prnn.testing import LayerCase, assert_same, check_cell, run_engine, run_reference

BACKENDS = ("cpu_panels", "cpu_inplace", "interpreted")


@prnn.cell(states=["h", "m"], gates=["a", "b"], vectors=["u"])
def crowded(a, b, h, m, u):
    """Every operation, a dependent product, a second state, a vector."""
    m = maximum(sigmoid(a) * m, u) + log(exp(tanh(a)) + 1.5) / sqrt(1.0 + h * h)
    w = clip(b.recurrent_of(m * 0.5), -0.7, 0.8)
    return minimum(w + b.input, 1.5) * 0.5 - h / 3, m


@prnn.cell(states=["h"], gates=["a", "b", "n"])
def two_products(a, b, n, h):
    """Two products in a row, each of what the one before gave."""
    first = tanh(a.input + a.recurrent_of(sigmoid(b) * h))
    return tanh(n.input + n.recurrent_of(first * h)) + h * 0.5


CELLS = {**BUILTIN, "crowded": crowded, "two_products": two_products}
MODES = {
    "plain": {},
    "lengths": {"lengths": [3, 5, 0, 5, 1]},
    "reset": {"with_reset": True},
    "reset_to_initial": {"with_reset": True, "reset_to_initial": True},
    "lengths and reset": {"lengths": [5, 2, 4, 1, 0], "with_reset": True},
}


@pytest.fixture
def threads():
    yield engine.set_num_threads
    engine.set_num_threads(None)


@pytest.mark.parametrize("reverse", (False, True))
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CELLS)
def test_forward_and_backward_in_float64(name, backend, reverse):
    for options in MODES.values():
        case = LayerCase(_problem(CELLS[name]), batch=5, reverse=reverse, **options)
        assert_same(run_engine(case, backend), run_reference(case), 1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [name for name, cell in CELLS.items() if not cell.reads_output_elementwise])
def test_projection(name, backend):
    for options in MODES.values():
        case = LayerCase(_problem(CELLS[name], proj_size=4), batch=5, **options)
        assert_same(run_engine(case, backend), run_reference(case), 1e-12)


@pytest.mark.parametrize("name", CELLS)
def test_the_linear_twin_shows_what_saturation_hides(name):
    check_cell(CELLS[name].linear_twin())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("hidden_size", (1, 2, 3, 8, 15, 31, 32, 33, 65, 70))
def test_odd_hidden_sizes(hidden_size, backend):
    for name in ("lstm", "gru", "gru_reset_before"):
        case = LayerCase(
            _problem(CELLS[name], hidden_size=hidden_size, input_size=hidden_size % 7 + 1), steps=3, batch=2
        )
        assert_same(run_engine(case, backend), run_reference(case), 1e-12)


@pytest.mark.parametrize("batch", (1, 2, 3, 4, 5, 6, 7, 11, 16, 65, 130))
def test_batches_of_every_tile(batch):
    """Rows are multiplied up to six at a time, and forward takes at most 64 sequences together."""
    lengths = [t % 4 for t in range(batch)]
    for options in ({}, {"lengths": lengths}):
        case = LayerCase(_problem(CELLS["gru"], hidden_size=9), steps=3, batch=batch, **options)
        assert_same(run_engine(case, "cpu_panels"), run_reference(case), 1e-12)


@pytest.mark.parametrize("steps", (0, 1, 63, 64, 65, 130))
def test_steps_around_a_chunk(steps):
    """The input product is formed for 64 rows at a time."""
    for reverse in (False, True):
        case = LayerCase(_problem(CELLS["lstm"]), steps=steps, batch=1, reverse=reverse)
        assert_same(run_engine(case, "cpu_panels"), run_reference(case), 1e-11)


def test_an_empty_batch():
    case = LayerCase(_problem(CELLS["lstm"]), batch=0)
    results = run_engine(case)
    assert results.y.shape == (5, 0, 9)
    assert not results.gradients["w_hh"].any()


@pytest.mark.parametrize("count", (1, 2, 3, 7))
def test_threads_share_the_units(threads, count):
    """More threads than cores, and than panels of units, too."""
    threads(count)
    for name in ("lstm", "gru_reset_before", "crowded", "lstm_peephole"):
        for backend in ("cpu_panels", "cpu_inplace"):
            problem = _problem(CELLS[name], hidden_size=150, input_size=70)
            executable = engine.prepare(problem, 4, 1 << 20, backend)
            case = LayerCase(problem, batch=4, steps=6, with_reset=True)
            results = run_engine(case, backend)
            assert_same(results, run_reference(case), 1e-11)
            assert executable.plan.config.threads <= count


@pytest.mark.parametrize("name", CELLS)
def test_float32_is_as_good_as_numpys(name):
    """The interpreted family runs the same formulas in numpy's float32: the native engine may err at most three times as much."""
    case = LayerCase(_problem(CELLS[name], hidden_size=40, dtype="float32"), steps=20)
    truth = run_reference(case)
    for backend in ("cpu_panels", "cpu_inplace"):
        native, plain = run_engine(case, backend), run_engine(case, "interpreted")
        assert _error(native.y, truth.y) <= max(3 * _error(plain.y, truth.y), 1e-6)
        for gradient, value in truth.gradients.items():
            allowed = max(3 * _error(plain.gradients[gradient], value), 2e-6)
            assert _error(native.gradients[gradient], value) <= allowed, gradient


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_stays_in_its_row(backend):
    """NaN and infinity reach their own sequence and later steps, and nothing else."""
    for name in CELLS:
        case = LayerCase(_problem(CELLS[name], hidden_size=9), steps=4)
        clean = run_engine(case, backend).y
        case.x[2, 1] = np.nan
        y = run_engine(case, backend).y
        assert np.isnan(y[2:, 1]).any(), name
        assert np.array_equal(y[:2], clean[:2]) and np.array_equal(y[:, [0, 2]], clean[:, [0, 2]]), name


def test_a_named_family_is_obeyed():
    for backend in BACKENDS:
        assert engine.prepare(_problem(CELLS["lstm"]), 1, 1, backend).plan.family == backend


def test_a_cell_without_a_compiler_runs_interpreted_and_says_so_once(monkeypatch):
    monkeypatch.setattr(engine, "find_compiler", lambda: None)
    cell = prnn.cell(states=["h"], gates=["n"])(lambda n, h: tanh(n) * 0.75 + h * 0.25)
    problem = Problem(cell, 3, 4)
    with pytest.warns(PrnnFallbackWarning, match="C\\+\\+ compiler") as record:
        first = engine.prepare(problem, 1, 1)
        assert engine.prepare(problem, 1, 1) is first
    assert len(record) == 1 and first.plan.family == "interpreted"


# The best of them runs all other tests; the vectors of the others come from the same portable source.
@pytest.mark.parametrize("isa", library.usable_isas()[1:])
@pytest.mark.parametrize("name", ("lstm", "gru_reset_before", "crowded"))
def test_every_instruction_set_that_this_machine_runs(isa, name, monkeypatch):
    monkeypatch.setattr(library, "usable_isas", lambda: (isa,))
    engine._prepare.cache_clear()
    try:
        for hidden_size in (1, 5, 33):
            problem = _problem(CELLS[name], hidden_size=hidden_size)
            assert engine.prepare(problem).plan.config.isa == isa
            for backend in BACKENDS[:2]:
                case = LayerCase(problem, batch=5, lengths=[5, 2, 4, 1, 0], with_reset=True)
                assert_same(run_engine(case, backend), run_reference(case), 1e-12)
    finally:
        engine._prepare.cache_clear()


def _problem(cell, *, input_size=3, hidden_size=9, proj_size=0, dtype="float64"):
    return Problem(cell, input_size, hidden_size, proj_size, True, dtype, True)


def _error(got, expected):
    return np.abs(got - expected).max() / (np.abs(expected).max() or 1.0)


def test_several_python_threads_at_once(threads):
    """One of them gets the pool, the others work alone; every result is right."""
    threads(2)
    cases = [LayerCase(_problem(CELLS["lstm"], hidden_size=150), steps=20, seed=seed) for seed in range(4)]
    expected = [run_engine(case, "cpu_panels") for case in cases]

    def repeat(k):
        for _ in range(10):
            assert_same(run_engine(cases[k], "cpu_panels"), expected[k], 1e-12)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(repeat, range(4)))


def test_a_forked_child_computes(threads):
    """The parent's pool does not survive a fork; the child makes its own."""
    threads(2)
    case = LayerCase(_problem(CELLS["lstm"], hidden_size=150))
    expected = run_engine(case, "cpu_panels").y
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        for y in pool.map(_forward, [case, case], timeout=60):
            assert np.array_equal(y, expected)


def _forward(case):
    return run_engine(case, "cpu_panels").y
