"""Cells: definition and its errors, equality, pickling, the linear twin."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

import prnn.cells
from prnn.cells import BUILTIN, Cell, cell, find, gru, lstm, sigmoid, tanh
from prnn.cells.expr import topological
from prnn.errors import CellError


@cell(states=["h", "c"], gates=["i", "f", "g", "o"], name="renamed")
def my_lstm(o, g, f, i, c, h):
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


def test_a_cell_is_what_it_computes_not_what_it_is_called():
    assert my_lstm.name == "renamed"
    assert my_lstm == lstm and hash(my_lstm) == hash(lstm) and my_lstm.digest == lstm.digest
    assert my_lstm in BUILTIN.values()


def test_builtin_cells_differ_and_are_known_by_their_names():
    assert len({each.digest for each in BUILTIN.values()}) == len(BUILTIN)
    for name, each in BUILTIN.items():
        assert each.name == name and getattr(prnn.cells, name) is each


def test_a_swap_of_two_gates_is_another_cell():
    @cell(states=["h", "c"], gates=["i", "f", "g", "o"])
    def swapped(i, f, g, o, h, c):
        c = sigmoid(i) * c + sigmoid(f) * tanh(g)
        return sigmoid(o) * tanh(c), c

    assert swapped != lstm


def test_digest_is_the_same_in_every_process():
    code = "from prnn.cells import BUILTIN; print(*(each.digest for each in BUILTIN.values()))"
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.split() == [each.digest for each in BUILTIN.values()]


def test_digest_of_a_formula_that_uses_its_values_many_times_over():
    @cell(states=["h"], gates=["n"])
    def doubling(n):
        value = tanh(n)
        for _ in range(60):
            value = 0.5 * value * value + value
        return value

    assert len(topological(doubling.next_states)) < 250
    assert doubling.digest != lstm.digest


@pytest.mark.parametrize("each", [*BUILTIN.values(), my_lstm], ids=lambda each: each.name)
def test_pickle_goes_by_import_path(each):
    assert find(each.path) is each
    assert pickle.loads(pickle.dumps(each)) is each


def test_a_local_cell_cannot_be_pickled_and_says_why():
    @cell(states=["h"], gates=["n"])
    def local(n):
        return tanh(n)

    with pytest.raises(CellError, match=r"'local' cannot be pickled.*top level of a module"):
        pickle.dumps(local)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("prnn.cells:nothing", "no cell at 'prnn.cells:nothing'"),
        ("no_such_module:cell", "no cell at 'no_such_module:cell'"),
        ("", "no cell at ''"),
        ("os:path", "not a cell; decorate the step"),
    ],
)
def test_find_says_what_it_did_not_find(path, message):
    with pytest.raises(CellError, match=message):
        find(path)


def identity(n):
    return n


@pytest.mark.parametrize(
    ("arguments", "step", "message"),
    [
        ({"states": ["h"], "gates": "n"}, identity, r"gates='n' is a string; pass a list"),
        ({"states": [], "gates": ["n"]}, identity, r"declares no state"),
        ({"states": ["h"], "gates": ["n", "n"]}, identity, r"'n' is declared twice"),
        ({"states": ["n"], "gates": ["n"]}, identity, r"'n' is declared twice"),
        ({"states": ["h"], "gates": ["2n"]}, identity, r"'2n' is not a Python identifier"),
        ({"states": ["h"], "gates": ["m"]}, identity, r"parameter 'n' is neither a state \['h'\], a gate \['m'\]"),
        ({"states": ["h", "c"], "gates": ["n"]}, identity, r"returns 1 values for 2 states \['h', 'c'\]"),
        ({"states": ["h"], "gates": ["n"]}, lambda n: (n, n), r"returns 2 values for 1 states"),
        ({"states": ["h"], "gates": ["n", "m"]}, identity, r"declares gate 'm' but never uses it"),
        ({"states": ["h"], "gates": ["n"], "vectors": ["v"]}, identity, r"declares vector 'v' but never uses it"),
        (
            {"states": ["h"], "gates": ["n"]},
            lambda n: n.recurrent + n.recurrent_of(n.input),
            r"recurrent matrix of gate 'n' more than once a step",
        ),
    ],
)
def test_a_wrong_definition_is_refused_with_its_reason(arguments, step, message):
    with pytest.raises(CellError, match=message):
        cell(**arguments)(step)


def test_a_step_that_branches_or_calls_numpy_is_refused():
    with pytest.raises(TypeError, match="cannot branch"):
        cell(states=["h"], gates=["n"])(lambda n: n if n.input else -n)
    with pytest.raises(TypeError):
        cell(states=["h"], gates=["n"])(lambda n: np.tanh(n))


@pytest.mark.parametrize("each", BUILTIN.values(), ids=BUILTIN)
def test_linear_twin_has_the_same_shape_and_no_activation(each):
    twin = each.linear_twin()
    assert isinstance(twin, Cell)
    assert (twin.states, twin.input_gates, twin.recurrent_gates, twin.vectors) == (
        each.states,
        each.input_gates,
        each.recurrent_gates,
        each.vectors,
    )
    assert not {"sigmoid", "tanh", "relu"} & {node.op for node in topological(twin.next_states)}


def test_gates_say_which_products_they_take():
    assert gru.input_gates == gru.recurrent_gates == ("r", "z", "n")
    assert BUILTIN["indrnn"].recurrent_gates == ()
    assert not lstm.reads_output_elementwise and gru.reads_output_elementwise
