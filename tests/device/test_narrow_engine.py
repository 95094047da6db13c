"""The engine with narrow weights against the float64 reference run with the weights that they stand for."""

import numpy as np
import pytest

import prnn
from prnn import engine, narrow, reference
from prnn.cells import BUILTIN
from prnn.errors import PrnnFallbackWarning
from prnn.problem import Problem
from prnn.runtime.cpu import library
from prnn.specs import LayerWeights, Rows
from prnn.testing import LayerCase


@prnn.cell(states=["h", "m"], gates=["a", "b"], vectors=["u"])
def own(a, b, h, m, u):
    """A dependent product, a second state, a vector."""
    m = prnn.cells.sigmoid(a) * m + u
    return prnn.cells.tanh(b.recurrent_of(m * 0.5) + b.input), m


CELLS = {**BUILTIN, "own": own}


@pytest.fixture
def threads():
    yield engine.set_num_threads
    engine.set_num_threads(None)


def check(cell, kind, *, steps=5, batch=3, input_size=3, hidden_size=9, proj_size=0, **options):
    """Run one case and compare; what it ran as is returned."""
    case = LayerCase(Problem(cell, input_size, hidden_size, proj_size), steps=steps, batch=batch, **options)
    weights = narrow.narrowed(case.weights, kind)
    arguments = {"lengths": case.lengths, "reset": case.reset, "reverse": case.reverse}
    y, finals = prnn.run(cell, case.x, weights, case.states, **arguments)
    wide = [None if each is None else each.astype(np.float64) for each in narrow.widened(weights)[:5]]
    vectors = tuple(each.astype(np.float64) for each in weights.vectors)
    states = [state.astype(np.float64) for state in case.states]
    wanted, last = reference.layer(cell, case.x.astype(np.float64), LayerWeights(*wide, vectors), states, **arguments)
    for mine, right in zip((y, *finals), (wanted, *last)):
        assert np.abs(mine - right).max(initial=0) <= 3e-6 * max(np.abs(right).max(initial=0), 1)
    return y


@pytest.mark.parametrize("kind", narrow.KINDS)
@pytest.mark.parametrize("name", [name for name, cell in CELLS.items() if cell.input_gates])
def test_every_cell(name, kind):
    for options in ({}, {"lengths": [5, 2, 0], "reverse": True}, {"with_reset": True}):
        check(CELLS[name], kind, **options)
    if (
        not CELLS[name].reads_output_elementwise and name != "own"
    ):  # the reference takes no projection with a dependent product
        check(CELLS[name], kind, proj_size=37, hidden_size=70)


@pytest.mark.parametrize("kind", narrow.KINDS)
@pytest.mark.parametrize("hidden_size", (1, 2, 7, 8, 9, 31, 32, 33, 65, 130))
def test_odd_sizes(hidden_size, kind):
    """Widths around a vector and a panel, even and odd depths."""
    for input_size in (1, 2, 127, 129):
        check(BUILTIN["lstm"], kind, hidden_size=hidden_size, input_size=input_size, batch=2)


@pytest.mark.parametrize("kind", narrow.KINDS)
@pytest.mark.parametrize("batch", (1, 2, 3, 4, 5, 6, 7, 11, 65))
def test_batches_of_every_tile(batch, kind):
    for steps in (0, 1, 4):
        check(BUILTIN["gru"], kind, steps=steps, batch=batch, hidden_size=70, input_size=130)


@pytest.mark.parametrize("kind", narrow.KINDS)
@pytest.mark.parametrize("isa", library.usable_isas()[1:])
def test_every_instruction_set_that_this_machine_runs(isa, kind, monkeypatch):
    monkeypatch.setattr(library, "usable_isas", lambda: (isa,))
    engine._prepare.cache_clear()
    try:
        for batch in (1, 2, 5):
            check(BUILTIN["lstm"], kind, batch=batch, hidden_size=33, input_size=130)
    finally:
        engine._prepare.cache_clear()


@pytest.mark.parametrize("kind", narrow.KINDS)
def test_threads_share_the_units(threads, kind):
    one = check(BUILTIN["lstm"], kind, hidden_size=150, steps=70)
    for count in (2, 3, 7):
        threads(count)
        problem = Problem(BUILTIN["lstm"], 3, 150, weights=kind)
        assert engine.prepare(problem, 4, 1 << 20).plan.family == "cpu_panels"
        assert np.array_equal(check(BUILTIN["lstm"], kind, hidden_size=150, steps=70), one)


@pytest.mark.parametrize("kind", narrow.KINDS)
def test_nan_in_the_input_stays_in_its_row(kind):
    case = LayerCase(Problem(BUILTIN["gru"], 3, 9))
    weights = narrow.narrowed(case.weights, kind)
    clean = prnn.run(BUILTIN["gru"], case.x, weights)[0]
    case.x[2, 1] = np.nan
    y = prnn.run(BUILTIN["gru"], case.x, weights)[0]
    assert np.isnan(y[2:, 1]).all() and np.array_equal(y[:, [0, 2]], clean[:, [0, 2]])


@pytest.mark.parametrize("kind", narrow.KINDS)
def test_what_is_packed_is_what_is_given(kind):
    """A snapshot gives the same bits as packing in the call, and is as small as it says."""
    problem = Problem(BUILTIN["lstm"], 32, 64, weights=kind)
    case = LayerCase(Problem(BUILTIN["lstm"], 32, 64), steps=3)
    weights = narrow.narrowed(case.weights, kind)
    executable = engine.prepare(problem, 3, 3, held=True)
    snapshot = executable.snapshot(weights)
    scales = 4 * 64 * 2 * 4 if kind == "int8" else 0
    assert snapshot.nbytes == 4 * 64 * (32 * problem.input_itemsize + 64 * problem.recurrent_itemsize) + scales
    y = np.empty((9, 64), np.float32)
    finals = tuple(map(np.empty_like, case.states))
    x = case.x.reshape(9, 32)
    executable.bind(x, tuple(case.states), weights, Rows(3, 3), y, finals, snapshot)()
    assert np.array_equal(y.reshape(3, 3, 64), prnn.run(BUILTIN["lstm"], case.x, weights, case.states)[0])


@pytest.mark.parametrize("kind", narrow.KINDS)
def test_without_a_compiler_a_users_cell_runs_interpreted(monkeypatch, kind):
    monkeypatch.setattr(engine, "find_compiler", lambda: None)
    cell = prnn.cell(states=["h"], gates=["n"])(lambda n, h: prnn.cells.tanh(n) * 0.625 + h * 0.375)
    with pytest.warns(PrnnFallbackWarning, match="C\\+\\+ compiler"):
        check(cell, kind)


@pytest.mark.parametrize("kind", narrow.KINDS)
def test_a_stream_of_a_cell(kind):
    case = LayerCase(Problem(BUILTIN["gru"], 6, 9), steps=7, batch=2)
    weights = narrow.narrowed(case.weights, kind)
    stream = prnn.Stream(BUILTIN["gru"], [weights], slots=2)
    wanted = prnn.run(BUILTIN["gru"], case.x, weights)[0]
    steps = np.stack([stream.step(x) for x in case.x])
    stream.reset()
    assert np.array_equal(steps, wanted) and np.array_equal(stream.chunk(case.x), wanted)
