"""The derivative rules, each against central differences of the interpreter in float64."""

import numpy as np
import pytest

from prnn import reference
from prnn.cells import BUILTIN, cell, clip, expr, minimum
from prnn.cells.expr import BINARY, UNARY, const, leaf, sigmoid, tanh
from prnn.cells.grad import RULES, gradients
from prnn.cells.interp import OPERATIONS, evaluate
from prnn.kernels import interpreted
from prnn.problem import Problem
from prnn.specs import LayerWeights, Rows

STEP = 1e-6
A, B = leaf("a"), leaf("b")


def difference(function, values, key):
    """Central difference of sum(function(values)) with respect to each element of values[key]."""
    plus, minus = ({**values, key: values[key] + sign * STEP} for sign in (1, -1))
    return (function(plus) - function(minus)) / (2 * STEP)


EXPRESSIONS = {
    **{name: getattr(expr, name)(A) for name in UNARY},
    **{name: getattr(expr, name)(A, B) for name in BINARY},
    "minimum": minimum(A, B),
    "clip": clip(A, -0.5, 0.5),
    "shared": sigmoid(A * B) * tanh(A * B) / (2 + A * B),
    "twice": A * A + A,
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_rule_agrees_with_central_differences(name):
    root = EXPRESSIONS[name]
    rng = np.random.default_rng(1)
    values = {("a",): rng.uniform(-2, 2, 64), ("b",): rng.uniform(-2, 2, 64)}
    if name in ("log", "sqrt"):
        values["a",] = abs(values["a",]) + 0.1
    if name == "div":
        values["b",] = np.sign(values["b",]) * (abs(values["b",]) + 0.5)
    seed = rng.standard_normal(64)
    found = gradients({root: leaf("d")})
    for each in (A, B):
        numeric = seed * difference(lambda at: evaluate([root], at, np)[0], values, each.value)
        derivative = found.get(each, const(0.0))
        derived = np.broadcast_to(evaluate([derivative], {**values, ("d",): seed}, np)[0], 64)
        np.testing.assert_allclose(derived, numeric, atol=2e-8, rtol=2e-8)


def test_every_operation_has_a_rule_and_a_meaning():
    assert set(OPERATIONS) == {*UNARY, *BINARY}
    assert set(RULES) == {*UNARY, *BINARY, "product"} - {"greater"}  # its gradient is zero


def test_a_tie_of_maximum_gives_half_to_each_and_relu_at_zero_gives_none():
    values = {("a",): np.zeros(1), ("b",): np.zeros(1), ("d",): np.ones(1)}
    found = gradients({expr.maximum(A, B): leaf("d")})
    assert evaluate([found[A], found[B]], values, np) == [0.5, 0.5]
    found = gradients({expr.relu(A): leaf("d")})
    assert evaluate([found[A]], values, np) == [0.0]


def test_gradients_of_several_roots_add():
    found = gradients({A: const(2.0), A * B: const(3.0)})
    assert evaluate([found[A]], {("b",): 5.0}, np) == [17.0]


@cell(states=["h", "m"], gates=["a", "b"], vectors=["v"])
def mixed(a, b, h, m, v):
    """Several stages, a mixed gate, both states read unit by unit."""
    inner = sigmoid(b.recurrent_of(tanh(a) * m)) + b.input
    return tanh(inner * v + a.recurrent) + 0.5 * h, clip(m + inner, -2, 2)


CELLS = {**BUILTIN, "mixed": mixed}


PROJECTED = [(name, 2) for name, each in CELLS.items() if not each.reads_output_elementwise]


@pytest.mark.parametrize("twin", [False, True], ids=["cell", "linear_twin"])
@pytest.mark.parametrize(("name", "proj_size"), [*((name, 0) for name in CELLS), *PROJECTED])
def test_derived_backward_agrees_with_central_differences_of_the_reference(name, proj_size, twin):
    each = CELLS[name].linear_twin() if twin else CELLS[name]
    problem = Problem(each, 2, 3, proj_size, dtype="float64", training=True)
    rng = np.random.default_rng(2)
    num_steps, batch, hidden = 3, 2, 3

    def normal(*shape):
        return rng.standard_normal(shape)

    gates_in, gates_rec = len(each.input_gates) * hidden, len(each.recurrent_gates) * hidden
    values = {
        "x": normal(num_steps, batch, 2),
        "w_ih": normal(gates_in, 2),
        "b_ih": normal(gates_in),
        **({"w_hh": normal(gates_rec, problem.output_size), "b_hh": normal(gates_rec)} if gates_rec else {}),
        **({"w_hr": normal(proj_size, hidden)} if proj_size else {}),
        **{f"vector{i}": normal(hidden) for i in range(len(each.vectors))},
        **{f"state{i}": normal(batch, width) for i, width in enumerate(problem.state_sizes)},
    }
    d_y = normal(num_steps, batch, problem.output_size)
    d_final = tuple(normal(batch, width) for width in problem.state_sizes)

    def unpack(at):
        vectors = tuple(at[f"vector{i}"] for i in range(len(each.vectors)))
        weights = LayerWeights(at["w_ih"], at.get("w_hh"), at["b_ih"], at.get("b_hh"), at.get("w_hr"), vectors)
        return weights, tuple(at[f"state{i}"] for i in range(len(each.states)))

    def loss(at):
        weights, states = unpack(at)
        y, final = reference.layer(each, at["x"], weights, states)
        return (y * d_y).sum() + sum((a * b).sum() for a, b in zip(final, d_final))

    weights, states = unpack(values)
    rows = Rows(num_steps, batch)
    x = values["x"].reshape(rows.num_rows, 2)
    y, final = np.empty((rows.num_rows, problem.output_size)), tuple(np.empty_like(state) for state in states)
    saved = np.full(interpreted.saved_size(problem, rows.num_rows), np.nan)
    interpreted.forward(problem, x, states, weights, rows, y, final, saved)
    expected_y, expected_final = reference.layer(each, values["x"], weights, states)
    np.testing.assert_allclose(y.reshape(expected_y.shape), expected_y, rtol=1e-13, atol=1e-13)
    for got, expected in zip(final, expected_final):
        np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-13)

    derived = {key: np.full_like(value, np.nan) for key, value in values.items()}
    d_weights, d_states = unpack(derived)
    d_x = derived["x"].reshape(rows.num_rows, 2)
    interpreted.backward(problem, x, weights, rows, saved, d_y.reshape(y.shape), d_final, d_x, d_states, d_weights)
    for key, value in values.items():
        for index in np.ndindex(value.shape):
            shift = np.zeros_like(value)
            shift[index] = STEP
            numeric = (loss({**values, key: value + shift}) - loss({**values, key: value - shift})) / (2 * STEP)
            assert derived[key][index] == pytest.approx(numeric, rel=2e-6, abs=2e-7), (key, index)
