"""Expressions: built by operators, shared by construction, never computed."""

import gc

import pytest

from prnn.cells import expr
from prnn.cells.expr import BINARY, UNARY, Expr, const, leaf, lift, rebuild, topological

A, B = leaf("a"), leaf("b")


def test_equal_nodes_are_one_object():
    assert A * B + 1 is A * B + 1
    assert leaf("a") is A
    assert A * B is not B * A


def test_zero_and_minus_zero_are_two_constants():
    assert const(0.0) is not const(-0.0)
    assert const(1) is const(1.0)


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (A + 1, "add(a, 1.0)"),
        (1 + A, "add(1.0, a)"),
        (A - B, "sub(a, b)"),
        (1 - A, "sub(1.0, a)"),
        (2 * A, "mul(2.0, a)"),
        (A / 2, "div(a, 2.0)"),
        (2 / A, "div(2.0, a)"),
        (-A, "neg(a)"),
        (expr.minimum(A, B), "neg(maximum(neg(a), neg(b)))"),
        (expr.clip(A, -1, 1), "neg(maximum(neg(maximum(a, -1.0)), neg(1.0)))"),
    ],
)
def test_operators_build_the_node_that_they_look_like(built, text):
    assert repr(built) == text


def test_neutral_elements_are_dropped():
    assert A + 0 is A and 0 + A is A and A - 0 is A
    assert A * 1 is A and 1 * A is A


def test_every_operation_has_a_function_of_its_name():
    for name in (*UNARY, *BINARY):
        node = getattr(expr, name)(*([A] if name in UNARY else [A, B]))
        assert isinstance(node, Expr) and node.op == name


@pytest.mark.parametrize("value", ["x", None, True, [1.0]])
def test_only_traced_values_and_numbers_are_taken(value):
    with pytest.raises(TypeError, match="traced values and numbers"):
        lift(value)


def test_branching_on_a_traced_value_says_what_to_use_instead():
    with pytest.raises(TypeError, match=r"cannot branch.*maximum, minimum or relu"):
        bool(A)


def test_topological_lists_arguments_first_and_each_node_once():
    shared = A * B
    order = topological([shared + A, shared - B])
    assert len(order) == len(set(order))
    for position, node in enumerate(order):
        assert all(order.index(arg) < position for arg in node.args)


def test_a_graph_as_deep_as_a_long_formula_needs_no_recursion():
    node = A
    for _ in range(5000):
        node = node * B + 1
    assert len(topological([node])) == 2 + 1 + 2 * 5000
    assert rebuild([node], lambda each, args: None) == [node]


def test_rebuild_replaces_below_and_keeps_the_rest():
    kept, changed = rebuild([B + 1, expr.tanh(A) * B], lambda node, args: args[0] if node.op == "tanh" else None)
    assert kept is B + 1
    assert changed is A * B


def test_nodes_that_nobody_holds_are_forgotten():
    before = len(expr._nodes)
    node = expr.exp(leaf("only here"))
    assert len(expr._nodes) == before + 2
    del node
    gc.collect()
    assert len(expr._nodes) == before
